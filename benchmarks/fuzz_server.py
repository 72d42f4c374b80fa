"""The server meets damaged requests: it answers each, and never with 500.

    python benchmarks/fuzz_server.py

Good requests are changed at random: bytes of JSON and npz bodies (checksums made to fit again), values inside of
JSON, methods, paths and headers, and whole requests as they go through a real socket. An answer with a status of
500 or above is a fault, as is one slower than two seconds or one that is not what its type says. Requests come one
after the other, so that the server is never too busy.
"""

import argparse
import asyncio
import collections
import contextlib
import copy
import dataclasses as dc
import io
import itertools
import json
import random
import select
import socket
import sys
import tempfile
import threading
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from _common import Table, options_for, publish
from fuzz_readers import mutate

from trunkfirst.encoders import Elementwise
from trunkfirst.files.integrity import write_manifest
from trunkfirst.intervals import LEVELS, Intervals, fit_novelty
from trunkfirst.networks.layers import Perceptron, Trunk
from trunkfirst.networks.operator import Operator, save
from trunkfirst.serve.app import make_app
from trunkfirst.serve.predictor import JSON, NPZ
from trunkfirst.serve.requests import Limits
from trunkfirst.serve.server import make_server
from trunkfirst.training_summary import TrainingSummary, write_summary

SLOW = 2.0  # seconds, which count as a fault
PATIENCE = 0.02  # seconds until a connection without an answer is shut
LIMITS = Limits(bytes=2**16, numbers=10_000, rows=200, head_seconds=0.1)
VALUES: tuple[Any, ...] = (
    *(None, True, "inf", "1", "", [], {}, [[]], [[[]]], {"f": []}, {"inputs": [[1]]}, 0, -1, -0.0, 1e-320, 1e308),
    *(-1e308, 10**308, 10**400, float("nan"), float("inf"), "\ud800", "\0", [[1.0] * 3] * 300),
)
METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "CONNECT", "get", "X" * 300, "")
PATHS = (
    *(
        "/",
        "/predict",
        "/points",
        "/healthz",
        "/metrics",
        "/openapi.json",
        "/predict/",
        "//predict",
        "/../etc/passwd",
    ),
    *("/%2e%2e/model.json", "/\0", "/predict?x=1", "", "*", "/training.npz", "/" + "a" * 5000, "/\udcff"),
)
HEADER_VALUES = (
    *(b"", b"localhost", b"127.0.0.1:1", b"[::1]:80", b"evil.example", b"localhost:x", b"\xff\xfe", b":", b"]"),
    *(JSON.encode(), NPZ.encode(), b"application/json; charset=utf-16", b"text/plain", b"multipart/form-data"),
    *(b"-1", b"0", b"9" * 30, b"9" * 5000, b"1e3", b"Bearer x", b"Basic %%%", b"Basic Og==", b"gzip", b"chunked"),
)
HEADER_NAMES = (
    *(b"host", b"content-type", b"content-length", b"authorization", b"transfer-encoding", b"expect", b"upgrade"),
    *(b"content-encoding", b"range", b"connection", b"x-forwarded-for", b"origin"),
)
Ask = tuple[str, str, list[tuple[bytes, bytes]], bytes]
Answer = tuple[int, dict[str, str], bytes]


# -- a server without training, and one question to it


def make_run(folder: Path, *, channels: int | None = None) -> Operator:
    """A run folder around random weights: inputs f (1 number, which goes through a logarithm) and g (2)."""
    rng = np.random.default_rng(0)

    def network(*sizes: int) -> Perceptron:
        weights = tuple(jnp.asarray(rng.normal(size=(n, m)) / 2) for m, n in itertools.pairwise(sizes))
        return Perceptron(weights, tuple(jnp.asarray(rng.normal(size=len(W))) for W in weights), "tanh")

    with jax.enable_x64(True):
        trunk, branch = Trunk(network(2, 6, 4)), network(3, 6, 5 * (channels or 1))
        is_positive = jnp.asarray([True, False, False])
        operator = Operator(Elementwise(is_positive, "log"), branch, trunk, None, ("f", "g"), None, channels)
        save(operator, folder / "model")
    points, inputs = rng.uniform(-1, 1, (12, 2)), rng.uniform(1, 2, (40, 3))
    widths = rng.uniform(0.1, 0.2, (len(LEVELS), 12, *([] if channels is None else [channels])))
    intervals = Intervals(np.asarray(LEVELS), np.full(len(LEVELS), 0.1), points, widths)
    sensors = {"f": np.zeros((1, 1)), "g": np.zeros((2, 1))}
    write_summary(folder, TrainingSummary(points, sensors, fit_novelty(inputs), intervals))
    write_manifest(folder)
    return operator


async def ask(app: Any, method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes) -> Answer:
    """What the application answers, without a socket in between."""
    path, _, query = path.partition("?")
    names = {name for name, _ in headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(errors="replace"),
        "root_path": "",
        "query_string": query.encode(errors="replace"),
        "headers": [*headers, *([] if b"host" in names else [(b"host", b"localhost")])],
    }
    parts = [body[: len(body) // 2], body[len(body) // 2 :]]
    incoming = [{"type": "http.request", "body": part, "more_body": i == 0} for i, part in enumerate(parts)]
    sent: list[Any] = []

    async def receive() -> Any:
        return incoming.pop(0) if incoming else await asyncio.Future()  # the client waits for its answer

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    found = {name.decode(): value.decode("latin-1") for name, value in sent[0]["headers"]}
    return sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:])


# -- damaged requests

GOOD = {"inputs": {"f": [[1.0], [1.5]], "g": [[1.0, 2.0], [1.5, 1.25]]}, "points": [[0.5, 0.25], [-0.5, 1e-3]]}
SIDE_BY_SIDE = {"inputs": [[1.0, 1.0, 2.0], [1.5, 1.25, 1.0]]}


def post(body: bytes, kind: str = JSON) -> Ask:
    """To /predict."""
    return "POST", "/predict", [(b"content-type", kind.encode())], body


def json_bytes(rng: random.Random) -> Ask:
    """Bytes of a JSON text changed."""
    text = json.dumps(rng.choice((GOOD, SIDE_BY_SIDE))).encode()
    return post(mutate(rng, text, json.dumps(GOOD).encode()))


def json_values(rng: random.Random) -> Ask:
    """Sound JSON, or what Python takes for it, with unusual values in it."""
    value: Any = copy.deepcopy(rng.choice((GOOD, SIDE_BY_SIDE)))
    for _ in range(rng.choice((1, 1, 2))):
        place: Any = value
        while isinstance(place, (dict, list)) and place:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            key = rng.choice(list(keys))
            if rng.random() < 0.3 or not isinstance(place[key], (dict, list)):
                place[key] = copy.deepcopy(rng.choice(VALUES))
                break
            place = place[key]
    return post(json.dumps(value).encode())


def npz_bytes(rng: random.Random) -> Ask:
    """A zip with damaged arrays in it, or a damaged zip."""
    memory = io.BytesIO()
    arrays = {"inputs": np.ones((2, 3)), "points": np.ones((2, 2))}
    if rng.random() < 0.5:
        arrays = {
            "inputs.f": np.ones((2, 1)),
            "inputs.g": np.ones((2, 2), np.float32),
            "points": np.eye(2, dtype=int),
        }
    with zipfile.ZipFile(memory, "w") as archive:
        for name, array in arrays.items():
            piece = io.BytesIO()
            np.save(piece, array)
            content = piece.getvalue()
            archive.writestr(f"{name}.npy", mutate(rng, content, content) if rng.random() < 0.5 else content)
    whole = memory.getvalue()
    return post(mutate(rng, whole, whole) if rng.random() < 0.3 else whole, NPZ)


def heads(rng: random.Random) -> Ask:
    """Methods, paths and headers of all sorts."""
    count = rng.randrange(4)
    headers = [(rng.choice(HEADER_NAMES), rng.choice(HEADER_VALUES)) for _ in range(count)]
    headers += [(b"content-type", JSON.encode())] if rng.random() < 0.5 else []
    return rng.choice(METHODS), rng.choice(PATHS), headers, json.dumps(SIDE_BY_SIDE).encode()


def raw_request(rng: random.Random) -> bytes:
    """A whole request as it goes through a socket."""
    body = json.dumps(GOOD).encode()
    length = b"transfer-encoding: chunked" if rng.random() < 0.3 else b"content-length: %d" % len(body)
    if length.startswith(b"t"):
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    head = b"POST /predict HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close\r\n"
    whole = head + length + b"\r\n\r\n" + body
    return mutate(rng, whole, whole)


KINDS: dict[str, Callable[[random.Random], Ask]] = {
    "JSON, bytes": json_bytes,
    "JSON, values": json_values,
    "npz": npz_bytes,
    "heads": heads,
}
RAW = "whole, by socket"


# -- the work


@dc.dataclass
class Count:
    """The answers by status, what went wrong, and the longest time in seconds."""

    statuses: collections.Counter[str] = dc.field(default_factory=collections.Counter[str])
    faults: list[str] = dc.field(default_factory=list[str])
    slowest: float = 0.0

    def add(self, what: str, status: str, seconds: float, trouble: str | None) -> None:
        """One answer."""
        self.statuses[status] += 1
        self.slowest = max(self.slowest, seconds)
        if trouble or (status.isdecimal() and int(status) >= 500) or seconds > SLOW:
            self.faults.append(f"{what}: {status}, {seconds:.2f} s, {trouble}")


def fuzz(app: Any, make: Callable[[random.Random], Ask], count: int, *, seed: int = 0) -> Count:
    """Ask the application `count` times."""
    rng, found = random.Random(seed), Count()

    async def go() -> None:
        for number in range(count):
            begin, question = time.perf_counter(), make(rng)
            try:
                status, headers, body = await ask(app, *question)
                trouble = _trouble(status, headers, body)
            except Exception as error:
                status, trouble = 500, f"{type(error).__name__}: {error}"
            found.add(f"number {number}, seed {seed}", str(status), time.perf_counter() - begin, trouble)

    asyncio.run(go())
    return found


def _trouble(status: int, headers: Mapping[str, str], body: bytes) -> str | None:
    """A body that is not what its type says, or that reveals how the server is made."""
    if headers.get("content-type") == JSON:
        value = json.loads(body, parse_constant=lambda word: 1 / 0)
        if status >= 400 and list(value) not in (["error"], ["error", "code"]):
            return f"an error without a message: {body[:200]}"
    return "a stack trace" if b"Traceback" in body or b"/site-packages/" in body else None


def fuzz_socket(port: int, count: int, *, seed: int = 0) -> Count:
    """Send `count` damaged requests through a socket; "closed" counts connections that end without an answer."""
    rng, found = random.Random(seed), Count()
    for number in range(count):
        begin, request = time.perf_counter(), raw_request(rng)
        answer = b""
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(request)
            select.select([connection], [], [], PATIENCE)
            connection.shutdown(socket.SHUT_WR)  # else the server waits for more
            while piece := connection.recv(2**16):
                answer += piece
        status = answer[9:12].decode() if answer.startswith(b"HTTP/1.1 ") else "closed"
        trouble = "a stack trace" if b"Traceback" in answer else None
        found.add(f"number {number}, seed {seed}", status, time.perf_counter() - begin, trouble)
    return found


@contextlib.contextmanager
def served(app: Any) -> Iterator[int]:
    """The port of a server in a thread of this process."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = make_server(app, LIMITS)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def main(argv: Sequence[str] | None = None) -> None:
    """Fuzz all kinds and count."""
    options = options_for(__doc__, _add_options, argv)
    total = 500 if options.quick else options.requests
    warnings.simplefilter("ignore")
    found: dict[str, Count] = {}
    with tempfile.TemporaryDirectory() as name:
        make_run(Path(name))
        app = make_app(Path(name), limits=LIMITS)
        asyncio.run(ask(app, "GET", "/", [], b""))  # the page is made once, which takes a second
        share = (total - total // 10) // len(KINDS)
        for label, make in KINDS.items():
            found[label] = fuzz(app, make, share, seed=options.seed)
            print(label, *found[label].faults[:20], sep="\n  ", file=sys.stderr, flush=True)
        with served(app) as port:
            found[RAW] = fuzz_socket(port, total - share * len(KINDS), seed=options.seed)
            print(RAW, *found[RAW].faults[:20], sep="\n  ", file=sys.stderr, flush=True)
    statuses = sorted({status for count in found.values() for status in count.statuses})
    rows = [
        (label, c.statuses.total(), *(c.statuses[s] for s in statuses), c.slowest) for label, c in found.items()
    ]
    sums = [sum(column) for column in list(zip(*rows, strict=True))[1:-1]]
    table = Table(
        "Damaged requests by status of the answer",
        ("kind", "requests", *statuses, "slowest, s"),
        [*rows, ("all", *sums, max(row[-1] for row in rows))],
        [f"Faults (status 500 or above, slower than {SLOW:g} s, a wrong body): {_faults(found)}."],
    )
    details = {label: {**vars(count), "statuses": dict(count.statuses)} for label, count in found.items()}
    publish("fuzz-server", options, table, details, _drawing(found, statuses))
    if _faults(found):
        raise SystemExit(1)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=100_000, help="how many in all")
    parser.add_argument("--seed", type=int, default=0, help="of the changes")


def _faults(found: Mapping[str, Count]) -> int:
    return sum(len(count.faults) for count in found.values())


def _drawing(found: Mapping[str, Count], statuses: Sequence[str]) -> Callable[[Any], None]:
    def draw(axes: Any) -> None:
        left = np.zeros(len(found))
        for status in statuses:
            counts = np.array([count.statuses[status] for count in found.values()])
            axes.barh(list(found), counts, left=left, label=status)
            left += counts
        axes.set(xlabel="damaged requests")

    return draw


if __name__ == "__main__":
    main()
