"""The server: right answers, polite refusals, limits that hold in a process of its own."""

import asyncio
import base64
import contextlib
import http.client
import importlib
import io
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
from own_problems import Call

pytest.importorskip("starlette", reason="the server needs the extra serve")
pytest.importorskip("uvicorn", reason="the server needs the extra serve")

from trunkfirst.errors import MissingExtraError, UsageError
from trunkfirst.networks import Operator
from trunkfirst.serving import Limits, _server, _server_app, serve
from trunkfirst.serving._server_app import make_app

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RNG = np.random.default_rng(0)
INPUTS, POINTS = RNG.uniform(1, 2, (5, 3)), RNG.uniform(-1, 1, (7, 2))
JSON = [(b"content-type", b"application/json")]
NPZ = [(b"content-type", b"application/x-npz")]
TOKEN = "a token of many letters"
MIB = 2**20
MANY = "2,100,000 numbers are asked for; at most 2,000,000"


def head(length: str) -> bytes:
    """Of a request, up to the body."""
    lines = ("POST /predict HTTP/1.1", "Host: localhost", "Content-Type: application/json", length)
    return "\r\n".join((*lines, "", "")).encode()


@pytest.fixture(scope="module")
def room() -> Any:
    """The benchmark that makes a run folder and asks without a socket."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        return importlib.import_module("fuzz_server")


@pytest.fixture(scope="module")
def folder(room: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    room.make_run(path)
    return path


@pytest.fixture(scope="module")
def operator(folder: Path) -> Operator:
    from trunkfirst.networks import load

    return load(folder)


@pytest.fixture(scope="module")
def app(folder: Path) -> Any:
    return make_app(folder, limits=Limits())


@pytest.fixture
def ask(app: Any, room: Any) -> Any:
    """(status, headers, body) of a question."""

    def go(method: str, path: str, body: Any = b"", headers: Any = None, *, app: Any = app) -> Any:
        headers = (JSON if method == "POST" else []) if headers is None else headers
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        return asyncio.run(room.ask(app, method, path, headers, sent))

    return go


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def as_json(**arrays: Any) -> dict[str, Any]:
    return {name: np.asarray(array).tolist() for name, array in arrays.items()}


# -- answers


def test_predictions_are_those_of_the_operator(ask: Any, operator: Operator):
    expected = operator.predict(INPUTS, POINTS)
    status, headers, body = ask("POST", "/predict", as_json(inputs=INPUTS, points=POINTS))
    found = json.loads(body)
    assert (status, headers["content-type"]) == (200, "application/json")
    np.testing.assert_allclose(found["outputs"], expected, rtol=1e-13)
    assert found["familiar"] == [True] * 5
    by_name = {"inputs": as_json(g=INPUTS[:, 1:], f=INPUTS[:, :1]), "points": POINTS.tolist()}
    assert json.loads(ask("POST", "/predict", by_name)[2])["outputs"] == found["outputs"]


def test_npz_goes_in_and_out(ask: Any, operator: Operator):
    expected = operator.predict(INPUTS, POINTS)
    for arrays in ({"inputs": INPUTS}, {"inputs.f": INPUTS[:, :1], "inputs.g": INPUTS[:, 1:]}):
        status, headers, body = ask("POST", "/predict", npz(points=POINTS, **arrays), NPZ)
        assert (status, headers["content-type"]) == (200, "application/x-npz")
        with np.load(io.BytesIO(body)) as found:
            np.testing.assert_allclose(found["outputs"], expected, rtol=1e-13)
            assert found["familiar"].all()
            assert found["half_width"].shape == (7,)
            assert found["level"] == 0.9


def test_without_points_the_training_points_are_meant(ask: Any, operator: Operator):
    points = np.asarray(json.loads(ask("GET", "/points")[2])["points"])
    found = json.loads(ask("POST", "/predict", as_json(inputs=INPUTS))[2])
    np.testing.assert_allclose(found["outputs"], operator.predict(INPUTS, points), rtol=1e-13)


def test_intervals_are_those_of_the_nearest_training_points(ask: Any, folder: Path):
    from trunkfirst.runs import read_memory

    known = read_memory(folder).intervals
    assert known is not None
    found = json.loads(ask("POST", "/predict", as_json(inputs=INPUTS, points=POINTS))[2])["interval"]
    nearest = np.linalg.norm(POINTS[:, None] - known.points, axis=2).argmin(axis=1)
    assert found == {"level": 0.9, "half_width": known.pointwise[1][nearest].tolist()}


@pytest.mark.parametrize("value", [9.0, 1e200, 1.7e308])
def test_strange_inputs_are_marked(ask: Any, value: float):
    status, _, body = ask("POST", "/predict", as_json(inputs=[[1.5, 1.5, 1.5], [1.5, value, 1.5]]))
    assert status == 200
    assert json.loads(body)["familiar"] == [True, False]


def test_channels_have_their_axis(room: Any, ask: Any, tmp_path: Path):
    operator = room.make_run(tmp_path, channels=2)
    other = make_app(tmp_path, limits=Limits())
    found = json.loads(ask("POST", "/predict", as_json(inputs=INPUTS, points=POINTS), app=other)[2])
    np.testing.assert_allclose(found["outputs"], operator.predict(INPUTS, POINTS), rtol=1e-13)
    assert np.shape(found["interval"]["half_width"]) == (7, 2)


def test_long_answers_are_the_same_text(room: Any):
    from trunkfirst.serving._requests import json_of

    for shape in ((3, 5000), (9001,), (700, 3, 4)):
        array = RNG.normal(size=shape)
        assert json_of(array) == json.dumps(array.tolist())


def test_new_sizes_compile_nothing(app: Any, ask: Any):
    import jax
    import jax.numpy as jnp

    before = app.metrics.compilations
    for samples, points in RNG.integers(1, 60, (50, 2)):
        inputs, at = RNG.uniform(1, 2, (samples, 3)), RNG.uniform(-1, 1, (points, 2))
        found = json.loads(ask("POST", "/predict", as_json(inputs=inputs, points=at))[2])
        assert np.shape(found["outputs"]) == (samples, points)
    assert app.metrics.compilations == before
    jax.jit(lambda x: 3.25 * x)(jnp.ones(3))  # the count would have noticed
    assert app.metrics.compilations > before


def test_other_paths(ask: Any):
    assert ask("GET", "/healthz")[::2] == (200, b'{"status": "ok"}')
    status, headers, page = ask("GET", "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"<html" in page
    ask("POST", "/predict", as_json(inputs=INPUTS, points=POINTS))
    text = ask("GET", "/metrics")[2].decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert int(values['trunkfirst_requests_total{path="/predict",status="200"}']) >= 1
    assert int(values["trunkfirst_points_predicted_total"]) >= 35
    assert values['trunkfirst_predict_seconds_bucket{le="+Inf"}'] == values["trunkfirst_predict_seconds_count"]


# -- refusals


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b'{"inputs": [[1, NaN, 1]]}', 422, "row 0, column 1 is not finite"),
        (b'{"inputs": [[1, 1, 1], [1, 1, -Infinity]]}', 422, "row 1, column 2 is not finite"),
        (b'{"inputs": [[1, 1e999, 1]]}', 422, "not finite"),
        (b'{"inputs": [[1, "inf", 1]]}', 422, "row 0, column 1 is not a number"),
        (b'{"inputs": [[1, "1", 1]]}', 422, "not a number"),
        (b'{"inputs": [[1, true, 1]]}', 422, "not a number"),
        (b'{"inputs": [[1, null, 1]]}', 422, "not a number"),
        (b'{"inputs": [[1, [1], 1]]}', 422, "not a number"),
        (b'{"inputs": [[1, 1' + b"0" * 400 + b", 1]]}", 422, "too large"),
        (b'{"inputs": [[1, 1' + b"0" * 5000 + b", 1]]}", 400, "not JSON"),
        (b'{"inputs": [[-1, 1, 1]]}', 422, "no finite output for sample 0"),
        (b'{"inputs": [[1, 1, 1]], "points": [[1]]}', 422, "points: expected shape (any, 2), got (1, 1)"),
        (b'{"inputs": [[1, 1, 1]], "points": []}', 422, "at least one row"),
        (b'{"inputs": [[1, 1, 1]], "points": null}', 422, "list of rows"),
        (b'{"inputs": [[1, 1]]}', 422, "shape (samples, 3)"),
        (b'{"inputs": [[1, 1, 1], [1]]}', 422, "3 in row 0 and 1 in row 1"),
        (b'{"inputs": [1, 1, 1]}', 422, "list of rows"),
        (b'{"inputs": []}', 422, "at least one row"),
        (b'{"inputs": {}}', 422, "inputs are missing"),
        (b'{"inputs": {"f": [[1]]}}', 422, "expected f, g"),
        (b'{"inputs": {"f": [[1]], "g": [[1]]}}', 422, "inputs.g: expected shape (samples, 2), got (1, 1)"),
        (b'{"inputs": {"f": [[1], [2]], "g": [[1, 1]]}}', 422, "same number of rows"),
        (b'{"inputs": [[1, 1, 1]], "model": "/etc/passwd"}', 422, "unknown key 'model'"),
        (b'{"inputs": [[1, 1, 1]], "\\ud800": 1}', 422, "unknown key"),
        (b"{}", 422, "inputs are missing"),
        (b"[]", 422, "expected an object"),
        (b"", 400, "not JSON"),
        (b'{"inputs": [[1, 1, 1]], "inputs": [[1, 1, 1]]}', 400, "twice"),
        (b"\xff\xfe", 400, "not JSON"),
        (b"[" * 100_000, 400, "64 brackets"),
        (b'{"a":' * 100_000, 400, "64 brackets"),
        (b'{"inputs": [' + b"[1,1,1]," * 100_000 + b"[1,1,1]]}", 422, "at most 100,000 in one request"),
        (
            b'{"inputs": [' + b"[1,1,1]," * 99_999 + b'[1,1,1]], "points": [' + b"[0,0]," * 20 + b"[0,0]]}",
            422,
            MANY,
        ),
    ],
)
def test_wrong_bodies_are_refused_in_words(ask: Any, body: bytes, status: int, words: str):
    found, headers, answer = ask("POST", "/predict", body)
    assert (found, headers["content-type"]) == (status, "application/json")
    assert words in json.loads(answer)["error"]


class Evil:
    def __reduce__(self) -> Any:
        return print, ("run",)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (npz(inputs=np.array([[Evil()]], object)), 400, "Python objects"),
        (npz(inputs=INPUTS)[:-30], 400, "the body"),
        (b"\x80\x04.", 400, "pickle"),
        (b"", 400, "the body"),
        (npz(inputs=INPUTS.astype(complex)), 422, "complex128"),
        (npz(inputs=np.array([["1", "1", "1"]])), 422, "real numbers"),
        (npz(inputs=INPUTS[0]), 422, "2 axes"),
        (npz(inputs=np.full((1, 3), np.nan)), 422, "not finite"),
        (npz(inputs=INPUTS[:, :2]), 422, "shape (samples, 3)"),
        (npz(inputs=INPUTS, other=INPUTS), 422, "unknown array 'other'"),
        (npz(points=POINTS), 422, "inputs are missing"),
        (npz(), 422, "inputs are missing"),
    ],
)
def test_wrong_archives_are_refused_in_words(ask: Any, body: bytes, status: int, words: str):
    found, _, answer = ask("POST", "/predict", body, NPZ)
    assert (found, words in json.loads(answer)["error"]) == (status, True), answer
    assert b"/tmp" not in answer


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/nothing", None, 404),
        ("GET", "/model/model.json", None, 404),
        ("GET", "/../training.npz", None, 404),
        ("POST", "/predict/", None, 404),
        ("GET", "/predict", None, 405),
        ("POST", "/healthz", None, 405),
        ("OPTIONS", "/predict", None, 405),
        ("POST", "/predict", [], 415),
        ("POST", "/predict", [(b"content-type", b"text/plain")], 415),
        ("POST", "/predict", [*JSON, (b"content-length", b"9" * 5000)], 413),
        ("POST", "/predict", [*JSON, (b"content-length", b"8388609")], 413),
        ("GET", "/", [(b"host", b"evil.example")], 421),
        ("GET", "/", [(b"host", b"localhost.evil.example:8000")], 421),
        ("GET", "/", [(b"host", b"")], 421),
        ("GET", "/healthz", [(b"host", b"LOCALHOST:8000")], 200),
        ("GET", "/healthz", [(b"host", b"[::1]:8000")], 200),
        ("GET", "/healthz", [(b"host", b"[::1]")], 200),
    ],
)
def test_paths_methods_and_headers(ask: Any, method: str, path: str, headers: Any, status: int):
    found, answered, body = ask(method, path, b"", headers)
    assert found == status
    assert status == 200 or list(json.loads(body)) == ["error"]
    assert answered["x-content-type-options"] == "nosniff"
    assert answered["content-security-policy"].startswith("default-src 'none'")


def test_faults_are_answered_without_a_stack_trace(
    ask: Any, folder: Path, room: Any, monkeypatch: pytest.MonkeyPatch
):
    broken = make_app(folder, limits=Limits())

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(_server_app, "read_request", fail)
    sent: list[Any] = []

    async def go() -> None:
        async def receive() -> Any:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/predict", "headers": [*JSON, (b"host", b"localhost")]}
        with pytest.raises(RuntimeError):  # for the log
            await broken({**scope, "query_string": b"", "root_path": ""}, receive, send)

    asyncio.run(go())
    assert sent[0]["status"] == 500
    assert b"secret" not in sent[1]["body"]
    assert broken.metrics.requests["/predict", 500] == 1


def test_too_many_predictions_are_sent_away(folder: Path, room: Any, monkeypatch: pytest.MonkeyPatch):
    small = make_app(folder, limits=Limits(waiting=2))
    is_open = threading.Event()
    read = _server_app.read_request

    def wait(*arguments: Any, **options: Any) -> Any:
        is_open.wait(10)
        return read(*arguments, **options)

    monkeypatch.setattr(_server_app, "read_request", wait)
    question = ("POST", "/predict", JSON, json.dumps(as_json(inputs=INPUTS)).encode())

    async def go() -> list[int]:
        tasks = [asyncio.create_task(room.ask(small, *question)) for _ in range(5)]
        await asyncio.sleep(0.05)
        health = await room.ask(small, "GET", "/healthz", [], b"")
        is_open.set()
        answers = await asyncio.gather(*tasks)
        assert {headers.get("retry-after") for status, headers, _ in answers if status == 503} == {"1"}
        return [health[0], *sorted(status for status, _, _ in answers)]

    assert asyncio.run(go()) == [200, 200, 200, 503, 503, 503]


# -- whose requests


def test_a_token_guards_everything_but_health(folder: Path, ask: Any):
    guarded = make_app(folder, limits=Limits(), token=TOKEN, is_local=False)
    basic = base64.b64encode(f"anybody:{TOKEN}".encode())
    for header, status in [
        (b"Bearer " + TOKEN.encode(), 200),
        (b"bearer " + TOKEN.encode(), 200),
        (b"Basic " + basic, 200),
        (b"Bearer " + TOKEN[:-1].encode(), 401),
        (b"Bearer", 401),
        (b"Basic " + TOKEN.encode(), 401),
        (b"\xff\xff", 401),
        (b"", 401),
    ]:
        headers = [(b"authorization", header), (b"host", b"example.org")]
        assert ask("GET", "/points", b"", headers, app=guarded)[0] == status, header
    assert "Bearer" in ask("GET", "/", app=guarded)[1]["www-authenticate"]
    assert ask("POST", "/predict", b"no JSON", app=guarded)[0] == 401
    assert ask("GET", "/healthz", app=guarded)[0] == 200
    good = [(b"authorization", b"Bearer " + TOKEN.encode())]
    document = json.loads(ask("GET", "/openapi.json", b"", good, app=guarded)[2])
    assert document["security"] == [{"token": []}]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_addresses_need_a_token(folder: Path, call: Call, host: str):
    code, _, err = call("serve", folder, "--host", host)
    assert code == UsageError.exit_code
    assert "--token" in err


@pytest.mark.parametrize("token", ["", "short", "ümläuts are no good here", " a space at the begin"])
def test_poor_tokens_are_refused(folder: Path, token: str):
    with pytest.raises(UsageError, match="token"):
        serve(folder, token=token)


def test_a_taken_port_is_named(folder: Path, call: Call):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = call("serve", folder, "--port", str(taken.getsockname()[1]))
    assert code == UsageError.exit_code
    assert "cannot listen on 127.0.0.1" in err


def test_missing_packages_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_server.importlib.util, "find_spec", lambda name: None if name == "uvicorn" else name)
    with pytest.raises(MissingExtraError, match=r"trunkfirst\[serve\]"):
        serve(folder)


# -- the document


@pytest.mark.filterwarnings("ignore")
def test_document_and_server_agree(app: Any, folder: Path):
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import CHECKS

    unguarded = make_app(folder, limits=Limits(), is_local=False)  # schemathesis sends its own Host header
    schema = schemathesis.openapi.from_asgi("/openapi.json", unguarded)
    quiet = settings(
        max_examples=8,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    # A logarithm has a domain and two inputs must have equally many rows, which no schema says.
    checks = [check for check in CHECKS.get_all() if check.__name__ != "positive_data_acceptance"]
    seen: set[int] = set()
    for result in schema.get_all_operations():
        operation = result.ok()
        # Where nothing is sent, nothing can be wrong with it.
        modes = (
            schemathesis.GenerationMode if operation.method == "post" else [schemathesis.GenerationMode.POSITIVE]
        )
        for mode in modes:

            @quiet
            @given(case=operation.as_strategy(generation_mode=mode))
            def run(case: Any) -> None:
                response = case.call()
                seen.add(response.status_code)
                case.validate_response(response, checks=checks)

            run()
    assert {200, 422} <= seen
    assert max(seen) < 500


# -- damaged requests


@pytest.mark.parametrize("kind", ["JSON, bytes", "JSON, values", "npz", "heads"])
def test_damaged_requests_are_answered(app: Any, room: Any, kind: str):
    found = room.fuzz(app, room.KINDS[kind], 200, seed=1)
    assert found.faults == []
    assert found.statuses.total() == 200
    assert len(found.statuses) > 1


# -- in a process of its own

PROGRAM = """
import json, sys
from trunkfirst.serving import Limits, serve
serve(sys.argv[1], port=0, limits=Limits(**json.loads(sys.argv[2])), on_start=lambda url: print(url, flush=True))
"""


class Process:
    """A server behind a real socket."""

    def __init__(self, folder: Path, **limits: Any):
        command = [sys.executable, "-c", PROGRAM, str(folder), json.dumps(limits)]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.popen.stdout is not None
        self.port = int(self.popen.stdout.readline().rpartition(":")[2])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body, {"content-type": "application/json", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def peak(self) -> float:
        """The most memory that it ever had, MiB."""
        lines = Path(f"/proc/{self.popen.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


@pytest.fixture(scope="module")
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for server in started:
        server.popen.kill()
        server.popen.communicate()


@pytest.fixture
def process(folder: Path, processes: list[Process]) -> Process:
    """One for all, because it takes seconds to start; a new one where a test has ended it."""
    if not processes or processes[-1].popen.poll() is not None:
        limits = {"head_seconds": 1.0, "body_seconds": 1.0, "request_seconds": 2.0, "connections": 12}
        processes.append(Process(folder, **limits))
    return processes[-1]


def test_process_answers(process: Process):
    status, body = process.ask("POST", "/predict", json.dumps(as_json(inputs=INPUTS)))
    assert status == 200
    assert len(json.loads(body)["outputs"]) == 5


def test_answers_do_not_wait_for_the_network(process: Process):
    connection, times = http.client.HTTPConnection("127.0.0.1", process.port, timeout=10), list[float]()
    for _ in range(20):
        begin = time.monotonic()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        times.append(time.monotonic() - begin)
    connection.close()
    assert min(times[1:]) < 0.03  # packets that are held back to be joined take 0.04 s


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
def test_slow_requests_are_cut(process: Process, start: bytes, ending: bytes):
    begin, answer = time.monotonic(), b""
    with process.connect() as connection:
        connection.sendall(start)
        connection.settimeout(0.1)
        while time.monotonic() < begin + 5:
            try:
                connection.sendall(b"a" if start else b"")
                if not (piece := connection.recv(1000)):
                    break
                answer += piece
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert 0.9 < time.monotonic() - begin < 2.5
    assert answer[9:12] == ending


def test_an_answer_that_nobody_reads_is_given_up(process: Process):
    body = json.dumps(as_json(inputs=np.ones((1500, 3)), points=np.ones((1000, 2)))).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", process.port))
        connection.sendall(head(f"Content-Length: {len(body)}") + body)
        time.sleep(3.0)
        received = 0
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(2**20):
                received += len(piece)
    assert received < 20 * MIB


def test_damaged_requests_through_a_socket(process: Process, room: Any):
    found = room.fuzz_socket(process.port, 50, seed=1)
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


def test_too_many_connections_are_sent_away(process: Process):
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
    body = json.dumps(as_json(inputs=np.ones((1, 3)), points=RNG.uniform(size=(40_000, 2))))
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(process.ask("POST", "/predict", body)[0]))
    thread.start()
    waits: list[float] = []
    while thread.is_alive():
        begin = time.monotonic()
        assert process.ask("GET", "/healthz")[0] == 200
        waits.append(time.monotonic() - begin)
    thread.join()
    assert done == [200]
    assert max(waits) < 1.0


def test_default_times_are_below_half_a_minute():
    limits = Limits()
    assert limits.head_seconds <= 30
    assert limits.body_seconds <= 30
    assert limits.bytes == 8 * MIB


def test_a_signal_lets_requests_end(process: Process):
    """The last one, because it ends the process; all the time there was nothing to complain of."""
    body = json.dumps(as_json(inputs=INPUTS)).encode()
    with process.connect() as connection:
        connection.sendall(head(f"Content-Length: {len(body)}") + body[:10])
        time.sleep(0.2)
        begin = time.monotonic()
        process.popen.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        with pytest.raises(ConnectionError):
            process.connect().close()
        connection.sendall(body[10:])
        answer = connection.recv(2**16)
    out, err = process.popen.communicate(timeout=10)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert process.popen.returncode == 0
    assert time.monotonic() - begin < 4
    assert (out, err) == ("", "")
