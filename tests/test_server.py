"""The server: right answers and polite refusals, asked without a socket."""

import asyncio
import base64
import io
import json
import socket
import threading
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


@pytest.fixture(scope="module")
def operator(served_run: Path) -> Operator:
    from trunkfirst.networks import load

    return load(served_run)


@pytest.fixture(scope="module")
def app(served_run: Path) -> Any:
    return make_app(served_run, limits=Limits())


@pytest.fixture
def ask(app: Any, server_bench: Any) -> Any:
    """(status, headers, body) of a question."""

    def go(method: str, path: str, body: Any = b"", headers: Any = None, *, app: Any = app) -> Any:
        headers = (JSON if method == "POST" else []) if headers is None else headers
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        return asyncio.run(server_bench.ask(app, method, path, headers, sent))

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


def test_intervals_are_those_of_the_nearest_training_points(ask: Any, served_run: Path):
    from trunkfirst.runs import read_memory

    known = read_memory(served_run).intervals
    assert known is not None
    found = json.loads(ask("POST", "/predict", as_json(inputs=INPUTS, points=POINTS))[2])["interval"]
    nearest = np.linalg.norm(POINTS[:, None] - known.points, axis=2).argmin(axis=1)
    assert found == {"level": 0.9, "half_width": known.pointwise[1][nearest].tolist()}


@pytest.mark.parametrize("value", [9.0, 1e200, 1.7e308])
def test_strange_inputs_are_marked(ask: Any, value: float):
    status, _, body = ask("POST", "/predict", as_json(inputs=[[1.5, 1.5, 1.5], [1.5, value, 1.5]]))
    assert status == 200
    assert json.loads(body)["familiar"] == [True, False]


def test_channels_have_their_axis(server_bench: Any, ask: Any, tmp_path: Path):
    operator = server_bench.make_run(tmp_path, channels=2)
    other = make_app(tmp_path, limits=Limits())
    found = json.loads(ask("POST", "/predict", as_json(inputs=INPUTS, points=POINTS), app=other)[2])
    np.testing.assert_allclose(found["outputs"], operator.predict(INPUTS, POINTS), rtol=1e-13)
    assert np.shape(found["interval"]["half_width"]) == (7, 2)


def test_long_answers_are_the_same_text(server_bench: Any):
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
    ask: Any, served_run: Path, server_bench: Any, monkeypatch: pytest.MonkeyPatch
):
    broken = make_app(served_run, limits=Limits())

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


def test_too_many_predictions_are_sent_away(served_run: Path, server_bench: Any, monkeypatch: pytest.MonkeyPatch):
    small = make_app(served_run, limits=Limits(waiting=2))
    is_open = threading.Event()
    read = _server_app.read_request

    def wait(*arguments: Any, **options: Any) -> Any:
        is_open.wait(10)
        return read(*arguments, **options)

    monkeypatch.setattr(_server_app, "read_request", wait)
    question = ("POST", "/predict", JSON, json.dumps(as_json(inputs=INPUTS)).encode())

    async def go() -> list[int]:
        tasks = [asyncio.create_task(server_bench.ask(small, *question)) for _ in range(5)]
        await asyncio.sleep(0.05)
        health = await server_bench.ask(small, "GET", "/healthz", [], b"")
        is_open.set()
        answers = await asyncio.gather(*tasks)
        assert {headers.get("retry-after") for status, headers, _ in answers if status == 503} == {"1"}
        return [health[0], *sorted(status for status, _, _ in answers)]

    assert asyncio.run(go()) == [200, 200, 200, 503, 503, 503]


# -- whose requests


def test_a_token_guards_everything_but_health(served_run: Path, ask: Any):
    guarded = make_app(served_run, limits=Limits(), token=TOKEN, is_local=False)
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
def test_other_addresses_need_a_token(served_run: Path, call: Call, host: str):
    code, _, err = call("serve", served_run, "--host", host)
    assert code == UsageError.exit_code
    assert "--token" in err


@pytest.mark.parametrize("token", ["", "short", "ümläuts are no good here", " a space at the begin"])
def test_poor_tokens_are_refused(served_run: Path, token: str):
    with pytest.raises(UsageError, match="token"):
        serve(served_run, token=token)


def test_a_taken_port_is_named(served_run: Path, call: Call):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = call("serve", served_run, "--port", str(taken.getsockname()[1]))
    assert code == UsageError.exit_code
    assert "cannot listen on 127.0.0.1" in err


def test_missing_packages_are_named(served_run: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_server.importlib.util, "find_spec", lambda name: None if name == "uvicorn" else name)
    with pytest.raises(MissingExtraError, match=r"trunkfirst\[serve\]"):
        serve(served_run)


# -- the document


@pytest.mark.filterwarnings("ignore")
def test_document_and_server_agree(app: Any, served_run: Path):
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import CHECKS

    unguarded = make_app(served_run, limits=Limits(), is_local=False)  # schemathesis sends its own Host header
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
def test_damaged_requests_are_answered(app: Any, server_bench: Any, kind: str):
    found = server_bench.fuzz(app, server_bench.KINDS[kind], 200, seed=1)
    assert found.faults == []
    assert found.statuses.total() == 200
    assert len(found.statuses) > 1
