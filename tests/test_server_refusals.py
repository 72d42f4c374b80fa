"""What the server refuses, and whose requests it answers, asked without a socket."""

import asyncio
import base64
import importlib.util
import json
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import INPUTS, JSON, NPZ, POINTS, as_json, npz
from own_problems import Call

pytest.importorskip("starlette", reason="the server needs the extra serve")
pytest.importorskip("uvicorn", reason="the server needs the extra serve")

from trunkfirst.errors import MissingExtraError, UsageError
from trunkfirst.serve import app as application
from trunkfirst.serve.app import make_app
from trunkfirst.serve.requests import Limits
from trunkfirst.serve.server import serve

TOKEN = "a token of many letters"
MANY = "2,100,000 numbers are asked for; at most 2,000,000"


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
        ("GET", "/healthz", [(b"host", b"127.0.0.2:8000")], 200),
        ("GET", "/healthz", [(b"x", b"y" * 60_000)], 431),
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
    assert status == 200 or list(json.loads(body)) in (["error"], ["error", "code"])
    assert answered["x-content-type-options"] == "nosniff"
    assert answered["content-security-policy"].startswith("default-src 'none'")


def test_faults_are_answered_without_a_stack_trace(
    ask: Any, served_run: Path, server_bench: Any, monkeypatch: pytest.MonkeyPatch
):
    broken = make_app(served_run, limits=Limits())

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(application, "read_request", fail)
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
    read = application.read_request

    def wait(*arguments: Any, **options: Any) -> Any:
        is_open.wait(10)
        return read(*arguments, **options)

    monkeypatch.setattr(application, "read_request", wait)
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


def test_what_nobody_waits_for_is_not_computed(served_run: Path, monkeypatch: pytest.MonkeyPatch):
    """The first is under way when its client leaves, the second waits: neither is computed to its end."""
    is_under_way, may_go_on, written = threading.Event(), threading.Event(), []

    class Predictor(application.Predictor):
        def __call__(self, *arguments: Any, proceed: Any, **options: Any) -> Any:
            is_under_way.set()
            may_go_on.wait(10)
            return super().__call__(*arguments, proceed=proceed, **options)

    monkeypatch.setattr(application, "Predictor", Predictor)
    monkeypatch.setattr(application, "write_answer", lambda *_: written.append(1))
    app = make_app(served_run, limits=Limits(small_numbers=0, large_waiting=2))
    body = json.dumps(as_json(inputs=INPUTS)).encode()

    async def go() -> None:
        leaves = asyncio.Event()

        async def asked() -> None:
            incoming = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive() -> Any:
                if incoming:
                    return incoming.pop()
                await leaves.wait()
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                del message

            scope = {"type": "http", "method": "POST", "path": "/predict", "query_string": b"", "root_path": ""}
            await app({**scope, "headers": [*JSON, (b"host", b"localhost")]}, receive, send)

        tasks = [asyncio.create_task(asked()) for _ in range(2)]
        await asyncio.to_thread(is_under_way.wait, 10)
        leaves.set()
        await asyncio.gather(*tasks)  # they end although the prediction still stands still
        assert not may_go_on.is_set()
        may_go_on.set()

    asyncio.run(go())
    assert not written
    assert app.metrics.requests["/predict", 400] == 2


def test_large_requests_do_not_delay_small_ones(
    served_run: Path, server_bench: Any, monkeypatch: pytest.MonkeyPatch
):
    is_open, read = threading.Event(), application.read_request

    def wait(body: bytes, *arguments: Any) -> Any:
        if len(body) > 1000:
            is_open.wait(10)
        return read(body, *arguments)

    monkeypatch.setattr(application, "read_request", wait)
    app = make_app(served_run, limits=Limits(small_bytes=1000, large_waiting=2))
    small = json.dumps(as_json(inputs=INPUTS[:1])).encode()
    large = small + b" " * 1000

    async def go() -> tuple[int, list[int]]:
        tasks = [asyncio.create_task(server_bench.ask(app, "POST", "/predict", JSON, large)) for _ in range(4)]
        await asyncio.sleep(0.05)
        quick = await server_bench.ask(app, "POST", "/predict", JSON, small)
        is_open.set()
        return quick[0], sorted(status for status, _, _ in await asyncio.gather(*tasks))

    assert asyncio.run(go()) == (200, [200, 200, 503, 503])


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
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else name)
    with pytest.raises(MissingExtraError, match=r"trunkfirst\[serve\]"):
        serve(served_run)
