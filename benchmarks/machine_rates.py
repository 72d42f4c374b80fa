"""Rates of this machine that the plan in docs/scale.md is made of: memory, arithmetic, hashing, disk, loopback.

    taskset -c 1 python benchmarks/machine_rates.py

One core; the best of some rounds counts, because others may be using the machine. The disk is written with fsync
and read back, most likely from the memory of the system: an upper bound for reading.
"""

import argparse
import hashlib
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from _common import Stopwatch, Table, options_for, publish

from trunkfirst.linear.blocked_qr import one_blas_thread


def main(argv: Sequence[str] | None = None) -> None:
    """Measure one after the other."""
    options = options_for(__doc__, _add_options, argv)
    mib = 4 if options.quick else options.mib
    with one_blas_thread(), jax.enable_x64(True), tempfile.TemporaryDirectory(dir=options.folder) as folder:
        rows = [
            (name, rate(work, amount, options) / 1e9, unit)
            for name, work, amount, unit in (*_arithmetic(options.quick), *_movement(mib, Path(folder)))
        ]
    table = Table("Rates of one core", ("what", "rate", "unit"), rows)

    def draw(axes: Any) -> None:
        axes.barh([f"{name}, {unit}" for name, _, unit in rows], [value for _, value, _ in rows])
        axes.set(xscale="log", xlabel="rate")

    publish("machine-rates", options, table, {name: value for name, value, _ in rows}, draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mib", type=int, default=256, help="size of what is copied, hashed and written")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of which the best counts")
    parser.add_argument("--folder", type=Path, help="where to write, if not in the temporary folder")


Work = tuple[str, Callable[[], object], float, str]


def rate(work: Callable[[], object], amount: float, options: argparse.Namespace) -> float:
    """Amount a second, the best of the rounds; the first is not counted."""
    seconds: list[float] = []
    for _ in range(options.rounds + 1):
        watch = Stopwatch(options.clock)
        work()
        seconds.append(watch.read())
    return amount / min(seconds[1:])


def _arithmetic(is_quick: bool) -> list[Work]:
    n, rows, columns = (64, 400, 16) if is_quick else (1024, 40_000, 128)
    rng = np.random.default_rng(0)
    A, tall = rng.normal(size=(n, n)), rng.normal(size=(rows, columns))
    Y, W = (
        jnp.asarray(rng.normal(size=(rows, 2))),
        [jnp.asarray(rng.normal(size=(64, k))) / k for k in (2, 64, 64)],
    )
    single = jnp.asarray(A, jnp.float32)
    product, network = jax.jit(lambda a: a @ a), jax.jit(jax.value_and_grad(_network))
    flops = 3 * 2 * rows * sum(w.size for w in W)
    return [
        ("product of matrices, NumPy", lambda: A @ A, 2 * n**3, "Gflop/s"),
        ("product of matrices, JAX", lambda: product(jnp.asarray(A)).block_until_ready(), 2 * n**3, "Gflop/s"),
        ("product, single precision, JAX", lambda: product(single).block_until_ready(), 2 * n**3, "Gflop/s"),
        ("triangle of a tall QR", lambda: scipy.linalg.qr(tall, mode="r"), 2 * rows * columns**2, "Gflop/s"),
        ("network, forward and backward", lambda: network(W, Y)[0].block_until_ready(), flops, "Gflop/s"),
    ]


def _network(weights: list[jax.Array], y: jax.Array) -> jax.Array:
    for W in weights:
        y = jnp.tanh(y @ W.T)
    return jnp.sum(y**2)


def _movement(mib: int, folder: Path) -> list[Work]:
    size = mib * 2**20
    source, target = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    file = folder / "block"

    def write() -> None:
        with file.open("wb") as out:
            out.write(source.data)
            os.fsync(out.fileno())

    return [
        ("memory, read and write", lambda: np.copyto(target, source), 2 * size, "GB/s"),
        ("SHA-256", lambda: hashlib.sha256(source.data).digest(), size, "GB/s"),
        ("disk, write with fsync", write, size, "GB/s"),
        ("disk, read", file.read_bytes, size, "GB/s"),
        ("loopback, one stream", lambda: _send(source), size, "GB/s"),
    ]


def _send(source: np.ndarray) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = threading.Thread(target=_feed, args=(server.getsockname(), source))
        sender.start()
        with server.accept()[0] as connection:
            while connection.recv(2**20):
                pass
        sender.join()


def _feed(address: tuple[str, int], source: np.ndarray) -> None:
    with socket.create_connection(address) as connection:
        connection.sendall(source.data)


if __name__ == "__main__":
    main()
