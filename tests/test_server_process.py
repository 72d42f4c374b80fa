"""The server in a process of its own: what it answers, and what it cuts off."""

import asyncio
import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the server needs the extra serve")
pytest.importorskip("uvicorn", reason="the server needs the extra serve")

from trunkfirst.serve.requests import Limits
from trunkfirst.serve.server import make_server

RNG = np.random.default_rng(0)
INPUTS = RNG.uniform(1, 2, (5, 3))
MIB = 2**20
GUARD = 60.0  # seconds: against hanging, however busy the machine


def head(length: str) -> bytes:
    """Of a request, up to the body."""
    lines = ("POST /predict HTTP/1.1", "Host: localhost", "Content-Type: application/json", length)
    return "\r\n".join((*lines, "", "")).encode()


def as_json(**arrays: Any) -> str:
    return json.dumps({name: np.asarray(array).tolist() for name, array in arrays.items()})


PROGRAM = """
import json, sys
from trunkfirst.serve.requests import Limits
from trunkfirst.serve.server import serve
serve(sys.argv[1], port=0, limits=Limits(**json.loads(sys.argv[2])), on_start=lambda url: print(url, flush=True))
"""


class Process:
    """A server behind a real socket."""

    def __init__(self, run: Path, **limits: Any):
        command = [sys.executable, "-c", PROGRAM, str(run), json.dumps(limits)]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.popen.stdout is not None
        self.port = int(self.popen.stdout.readline().rpartition(":")[2])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), GUARD)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=GUARD)
        try:
            connection.request(method, path, body, {"content-type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def peak(self) -> float:
        """Its peak memory, MiB."""
        lines = Path(f"/proc/{self.popen.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


@pytest.fixture(scope="module")
def process(served_run: Path) -> Iterator[Process]:
    """One for all tests, because it takes seconds to start; it waits longer than any of them."""
    server = Process(served_run, connections=12, head_seconds=2 * GUARD, body_seconds=2 * GUARD)
    yield server
    server.popen.kill()
    server.popen.communicate()


@pytest.fixture(scope="module")
def impatient(served_run: Path) -> Iterator[Process]:
    """One that waits for a second."""
    server = Process(served_run, head_seconds=1.0, body_seconds=1.0, request_seconds=2.0)
    yield server
    server.popen.kill()
    server.popen.communicate()


def test_process_answers(process: Process):
    status, body = process.ask("POST", "/predict", as_json(inputs=INPUTS))
    assert status == 200
    assert len(json.loads(body)["outputs"]) == 5


def test_small_answers_are_sent_at_once(app: Any):
    """The system would hold them back for 40 ms, to join them with others."""

    async def options() -> list[int]:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            server = make_server(app, Limits())
            task = asyncio.create_task(server.serve(sockets=[listening]))
            _, writer = await asyncio.open_connection(*listening.getsockname())
            while not server.server_state.connections:
                await asyncio.sleep(0.01)
            sockets = [each.transport.get_extra_info("socket") for each in server.server_state.connections]
            found = [each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in sockets]
            writer.close()
            server.should_exit = True
            await task
        return found

    (option,) = asyncio.run(asyncio.wait_for(options(), GUARD))
    assert option


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("is_chunked", [False, True])
def test_large_bodies_are_refused_and_not_kept(process: Process, is_chunked: bool):
    process.ask("POST", "/predict", b"{}")
    before = process.peak()
    with process.connect() as connection:
        size = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {100 * MIB}"
        connection.sendall(head(size))
        piece = (b"%x\r\n" % MIB if is_chunked else b"") + b" " * MIB + (b"\r\n" if is_chunked else b"")
        for _ in range(100):
            connection.sendall(piece)
        answer = connection.recv(2**16)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"8,388,608 bytes" in answer
    assert process.peak() - before < 20


@pytest.mark.parametrize(
    ("start", "ending"),
    [
        (b"POST /predict HTTP/1.1\r\nHost: local", b""),
        (b"", b""),
        (head("Content-Length: 99"), b"408"),
    ],
)
def test_slow_requests_are_cut(process: Process, impatient: Process, start: bytes, ending: bytes):
    answer, deadline = b"", time.monotonic() + GUARD
    with process.connect() as patient, impatient.connect() as connection:
        patient.sendall(start)
        connection.sendall(start)
        connection.settimeout(0.1)
        while True:
            assert time.monotonic() < deadline
            try:
                connection.sendall(b"a" if start else b"")
                if not (piece := connection.recv(1000)):
                    break
                answer += piece
            except TimeoutError:
                continue
            except ConnectionError:
                break
        patient.settimeout(0.1)
        with pytest.raises(TimeoutError):  # still open: it is the limit that cuts
            patient.recv(1)
    assert answer[9:12] == ending
    assert impatient.ask("GET", "/healthz")[0] == 200


def test_an_answer_that_is_not_read_is_cut(impatient: Process):
    body = as_json(inputs=np.ones((1500, 3)), points=np.ones((1000, 2))).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(GUARD)
        connection.connect(("127.0.0.1", impatient.port))
        connection.sendall(head(f"Content-Length: {len(body)}") + body)
        time.sleep(3.0)
        received = 0
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(2**20):
                received += len(piece)
    assert received < 20 * MIB


def test_damaged_requests_through_a_socket(process: Process, server_bench: Any):
    found = server_bench.fuzz_socket(process.port, 50, seed=1)
    assert found.faults == []
    assert found.statuses["200"] > 0


@pytest.mark.parametrize("path", [b"/predict", b"/nothing"])
@pytest.mark.parametrize("ending", [b"no number\r\n", b"9\r\n" + 9 * b"x" + b"and more"])
def test_bodies_that_are_not_http_end_the_connection(process: Process, path: bytes, ending: bytes):
    start = head("Transfer-Encoding: chunked").replace(b"/predict", path)
    with process.connect() as connection:
        connection.sendall(start + b"5\r\n     \r\n" + ending)
        answer = b"".join(iter(lambda: connection.recv(2**16), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_too_many_connections_are_refused(process: Process):
    idle = [process.connect() for _ in range(12)]
    try:
        time.sleep(0.1)
        assert process.ask("GET", "/healthz")[0] == 503
    finally:
        for connection in idle:
            connection.close()
    time.sleep(0.2)
    assert process.ask("GET", "/healthz")[0] == 200


def test_health_answers_while_predictions_run(process: Process):
    body = as_json(inputs=np.ones((1, 3)), points=RNG.uniform(size=(40_000, 2)))
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(process.ask("POST", "/predict", body)[0]))
    thread.start()
    answers = 0
    while thread.is_alive():
        assert process.ask("GET", "/healthz")[0] == 200
        answers += not done
    thread.join()
    assert done == [200]
    assert answers > 0


def test_default_times_are_below_half_a_minute():
    limits = Limits()
    assert limits.head_seconds <= 30
    assert limits.body_seconds <= 30
    assert limits.bytes == 8 * MIB


def test_a_signal_lets_requests_end(served_run: Path):
    process = Process(served_run)
    body = as_json(inputs=INPUTS).encode()
    with process.connect() as connection:
        connection.sendall(head(f"Content-Length: {len(body)}") + body[:10])
        time.sleep(0.2)
        process.popen.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        with pytest.raises(ConnectionError):
            process.connect().close()
        connection.sendall(body[10:])
        answer = connection.recv(2**16)
    out, err = process.popen.communicate(timeout=GUARD)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert process.popen.returncode == 0
    assert (out, err) == ("", "")
