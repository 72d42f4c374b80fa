"""One process, two processes and four virtual devices: the same numbers, and the time of an iteration.

    python benchmarks/two_processes.py

Step 1 of a smooth operator with random points: compressed factor (its Gram matrix), projected loss and gradient at
equal parameters, and the parameters after 100 steps of Adam, as relative differences from one process. Two
processes communicate through 127.0.0.1. The contenders run one after the other, each in processes of its own. If
they have to share cores, this shows that numbers agree, not a gain of time. One process with the points in another
order shows the effect of rounding.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.flatten_util
import jax.random as jr
import numpy as np
from _common import Table, options_for, publish

from trunkfirst.distributed.mesh import use_devices
from trunkfirst.distributed.processes import is_leader, join_processes, leave_processes
from trunkfirst.fields import Fields
from trunkfirst.linear.low_rank import compress
from trunkfirst.minimisers.adam import Adam
from trunkfirst.minimisers.loop import minimise
from trunkfirst.network_trunk import NetworkTrunk

# Name: processes, devices in each.
CONTENDERS = {
    "one process": (1, None),
    "one process, points in another order": (1, None),
    "two processes": (2, None),
    "four virtual devices": (1, 4),
}
QUANTITIES = ("Gram matrix", "loss", "gradient", "parameters")
DTYPE = np.dtype(np.float64)
WARM_UP, STEPS = 20, 100


def main(argv: Sequence[str] | None = None) -> None:
    """Run the contenders, each in processes of its own, and compare."""
    options = options_for(__doc__, _add_options, argv)
    if options.quick:
        options.samples, options.points = 60, 250
    if options.child is not None:
        _measure(options)
        return
    with tempfile.TemporaryDirectory() as folder:
        found = {
            name: _run(name, Path(folder) / f"{number}.npz", options) for number, name in enumerate(CONTENDERS)
        }
    base = found["one process"]
    rows = [
        (name, *(_difference(each[q], base[q]) for q in QUANTITIES), float(each["milliseconds"]))
        for name, each in found.items()
    ]
    title = f"Step 1 spread over devices and processes ({options.points:,} points, {options.samples:,} samples)"
    table = Table(title, ("", *QUANTITIES, "ms an iteration"), rows, ("Differences are relative to one process.",))

    publish(
        "two-processes", options, table, {name: list(row) for name, *row in rows}, lambda axes: _draw(axes, rows)
    )


def _draw(axes: Any, rows: Sequence[Sequence[Any]]) -> None:
    for number, (name, *differences, _) in enumerate(rows[1:]):
        places = np.arange(len(QUANTITIES)) + 0.27 * (number - 1)
        axes.bar(places, np.maximum(differences, 1e-17), 0.25, label=name)
    axes.axhline(1e-10, color="black", linewidth=0.8, linestyle="--")
    axes.set(yscale="log", ylim=(1e-17, 1e-7), ylabel="difference from one process")
    axes.set_xticks(range(len(QUANTITIES)), QUANTITIES)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--samples", type=int, default=400, help="how many")
    parser.add_argument("--points", type=int, default=2001, help="how many; 2001 is divided by neither 2 nor 4")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--devices", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--shuffle", action="store_true", help=argparse.SUPPRESS)


def _run(name: str, file: Path, options: argparse.Namespace) -> dict[str, np.ndarray]:
    processes, devices = CONTENDERS[name]
    command = [sys.executable, __file__, "--child", str(file), *(["--quick"] if options.quick else [])]
    command += ["--samples", str(options.samples), "--points", str(options.points)]
    command += [] if devices is None else ["--devices", str(devices)]
    command += ["--shuffle"] if "order" in name else []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{listener.getsockname()[1]}"
    own = {"TRUNKFIRST_PROCESSES": str(processes), "TRUNKFIRST_COORDINATOR": coordinator}
    environment = {"OPENBLAS_NUM_THREADS": "1", **os.environ, **own}
    running = [
        subprocess.Popen(command, env={**environment, "TRUNKFIRST_PROCESS": str(place)})
        for place in range(processes)
    ]
    codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit(f"{name}: a process failed")
    return dict(np.load(file))


def _measure(options: argparse.Namespace) -> None:
    """In a child: the quantities, and the time of an iteration of Adam."""
    join_processes()
    with use_devices(options.devices), jax.enable_x64(True):
        fields = make_fields(options.samples, options.points)
        order = np.random.default_rng(1).permutation(options.points) if options.shuffle else slice(None)
        fields = Fields(fields.points[order], fields.outputs[:, order])
        problem = fields.problem(DTYPE)(1e-3)
        trunk = NetworkTrunk(hidden=(50, 50, 50), width=20, starts=8)
        start = trunk.start(fields, dtype=DTYPE, key=jr.key(0))
        value, gradient = eqx.filter_jit(type(problem).value_and_grad)(problem, start, key=jr.key(0))
        warm = minimise(problem, start, Adam(), iterations=WARM_UP, key=jr.key(0))
        begin = time.perf_counter()
        end = minimise(problem, start, Adam(), iterations=STEPS, key=jr.key(0), state=warm.state)
        seconds = (time.perf_counter() - begin) / (STEPS - WARM_UP)
        factor = compress(fields.outputs).factor[:, np.argsort(np.arange(options.points)[order])]
        found = (factor.T @ factor, np.asarray(value), _flat(gradient), _flat(end.state.parameters))
    if is_leader():
        np.savez(options.child, **dict(zip(QUANTITIES, found, strict=True)), milliseconds=1e3 * seconds)
    leave_processes(0)


def make_fields(samples: int, points: int) -> Fields:
    """u(y) = 2 + sin(a . y) + a_1 exp(y_2) at random points of the square."""
    rng = np.random.default_rng(0)
    a, y = rng.uniform(0.5, 3, (samples, 2)), rng.uniform(-1, 1, (points, 2))
    return Fields(y, 2 + np.sin(a @ y.T) + a[:, :1] * np.exp(y[:, 1]))


def _flat(tree: Any) -> np.ndarray:
    return np.asarray(jax.flatten_util.ravel_pytree(eqx.filter(tree, eqx.is_inexact_array))[0])


def _difference(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


if __name__ == "__main__":
    main()
