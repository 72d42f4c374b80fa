"""The web application: a fixed list of paths, guarded and counted."""

import asyncio
import base64
import binascii
import concurrent.futures
import contextlib
import hmac
import html
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import TrunkfirstError
from ._metrics import Metrics
from ._openapi import openapi
from ._requests import JSON, NPZ, Refused, json_of, read_request, write_answer
from ._server_limits import Limits
from ._server_predictor import Predictor

_LOOPBACK_NAMES = (b"localhost", b"127.0.0.1", b"[::1]")
_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# The page holds its own script, style and pictures, and needs nothing from anywhere.
_INLINE = "; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}
_CHALLENGE = {"www-authenticate": 'Bearer realm="trunkfirst", Basic realm="trunkfirst"'}
T = TypeVar("T")


def make_app(folder: Path, *, limits: Limits, token: str | None = None, is_local: bool = True) -> "Guard":
    """The application for the operator of a run folder; `is_local` where only this machine may call it."""
    predictor = Predictor(folder)
    metrics = Metrics()  # after loading, which lets JAX compile
    rooms = _Rooms(folder, predictor, metrics, limits, token is not None)
    routes = [
        Route("/", rooms.page),
        Route("/predict", rooms.predict, methods=["POST"]),
        Route("/points", rooms.points),
        Route("/healthz", rooms.health),
        Route("/metrics", rooms.metrics),
        Route("/openapi.json", rooms.document),
    ]
    handlers: dict[Any, Any] = {Refused: _on_refused, HTTPException: _on_http_error, Exception: _on_fault}
    inner = Starlette(routes=routes, exception_handlers=handlers)
    inner.router.redirect_slashes = False
    return Guard(inner, metrics, frozenset(route.path for route in routes), token, is_local)


class Guard:
    """Around everything: whose request it is, the headers of every answer, and the counts."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, paths: frozenset[str], token: str | None, is_local: bool
    ) -> None:
        self._app, self.metrics, self._paths, self._is_local = app, metrics, paths, is_local
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin, status = time.perf_counter(), 0

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                is_page = any(v.startswith(b"text/html") for k, v in message["headers"] if k == b"content-type")
                policy = _NOTHING + (_INLINE if is_page else "")
                added = {**_HEADERS, b"content-security-policy": policy.encode()}
                message = {**message, "headers": [*message["headers"], *added.items()]}
            await send(message)

        try:
            await (self._refusal(scope) or self._app)(scope, receive, send_guarded)
        finally:
            path = scope["path"] if scope["path"] in self._paths else "other"
            self.metrics.count(path, status, time.perf_counter() - begin)

    def _refusal(self, scope: Scope) -> Response | None:
        """Names of other hosts may be made to point here by a page in a browser; ours may not."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"")
        name = host if host.endswith(b"]") else host.rpartition(b":")[0] or host
        if self._is_local and name.lower() not in _LOOPBACK_NAMES:
            return _error(421, "this server answers to localhost alone; the Host header names another")
        if self._token is None or scope["path"] == "/healthz":
            return None
        if hmac.compare_digest(_given_token(headers.get(b"authorization", b"")), self._token):
            return None
        return _error(401, "a token is needed: Authorization: Bearer TOKEN", _CHALLENGE)


def _given_token(header: bytes) -> bytes:
    """From Bearer, or the password of Basic, which is what a browser asks people for."""
    scheme, _, value = header.partition(b" ")
    if scheme.lower() == b"basic":
        with contextlib.suppress(binascii.Error, ValueError):
            return base64.b64decode(value, validate=True).partition(b":")[2]
    return value.strip() if scheme.lower() == b"bearer" else b""


class _Rooms:
    """What stands behind each path. Predictions run in threads, so that other paths answer meanwhile."""

    def __init__(self, folder: Path, predictor: Predictor, metrics: Metrics, limits: Limits, has_token: bool):
        self._folder, self._predictor, self._metrics, self._limits = folder, predictor, metrics, limits
        self._pool = concurrent.futures.ThreadPoolExecutor(min(4, os.cpu_count() or 1), "predict")
        self._pending = 0
        self._page: bytes | None = None
        self._points = f'{{"points": {json_of(predictor.points)}}}'.encode()
        document = openapi(predictor.shapes, most_rows=limits.rows, has_token=has_token)
        self._document = json.dumps(document).encode()

    async def page(self, request: Request) -> Response:
        del request
        if self._page is None:
            self._page = await self._in_thread(_explorer, self._folder)
        return Response(self._page, media_type="text/html")

    async def predict(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (JSON, NPZ):
            raise Refused(415, f"Content-Type is {kind[:60]!a}; expected {JSON} or {NPZ}")
        body = await _read_body(request, self._limits)
        answer, points = await self._in_thread(self._answer, body, kind)
        self._metrics.points += points
        return Response(answer, media_type=kind)

    async def points(self, request: Request) -> Response:
        del request
        return Response(self._points, media_type=JSON)

    async def health(self, request: Request) -> Response:
        del request
        return Response(b'{"status": "ok"}', media_type=JSON)

    async def metrics(self, request: Request) -> Response:
        del request
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    async def document(self, request: Request) -> Response:
        del request
        return Response(self._document, media_type=JSON)

    def _answer(self, body: bytes, kind: str) -> tuple[bytes, int]:
        inputs, points = read_request(
            body, kind, self._predictor.shapes, most_numbers=self._limits.numbers, most_rows=self._limits.rows
        )
        prediction = self._predictor(inputs, points)
        samples, count = prediction.outputs.shape[:2]
        return write_answer(prediction, kind), samples * count

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        if self._pending >= self._limits.waiting:
            raise Refused(503, "too many predictions are waiting; try again", {"retry-after": "1"})
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)
        finally:
            self._pending -= 1


async def _read_body(request: Request, limits: Limits) -> bytes:
    """As it comes, so that no more than the limit is ever held, and not for ever."""
    too_large = Refused(413, f"the body has more than {limits.bytes:,} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and (len(length) > 15 or int(length) > limits.bytes):
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.bytes:
                    raise too_large
    except TimeoutError as error:
        sentence = f"the body did not arrive within {limits.body_seconds:g} s"
        raise Refused(408, sentence, {"connection": "close"}) from error
    except ClientDisconnect as error:
        raise Refused(400, "the connection ended before the body did") from error
    return bytes(body)


def _explorer(folder: Path) -> bytes:
    """The page to play with, or, for an operator that it cannot draw, one that says so."""
    from ._page import explorer_page

    try:
        return explorer_page(folder)
    except TrunkfirstError as error:
        return (
            "<!doctype html><html lang=en><meta charset=utf-8><title>trunkfirst</title><h1>A trained operator</h1>"
            f"<p>It cannot be drawn: {html.escape(str(error))}"
            "<p>Predict by POST to /predict; <a href=/openapi.json>/openapi.json</a> says how."
        ).encode()


# -- errors: a sentence in JSON


def _error(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    return Response(json.dumps({"error": sentence}), status, headers, media_type=JSON)


async def _on_refused(request: Request, error: Refused) -> Response:
    del request
    return _error(error.status, str(error), error.headers)


async def _on_http_error(request: Request, error: HTTPException) -> Response:
    del request
    return _error(error.status_code, error.detail, dict(error.headers or {}))


async def _on_fault(request: Request, error: Exception) -> Response:
    del request, error
    return _error(500, "a fault of the server; its log says more")
