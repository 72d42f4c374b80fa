"""The web application: a fixed list of paths, access control, and metrics in Prometheus' text format."""

import asyncio
import base64
import binascii
import concurrent.futures
import contextlib
import hmac
import html
import itertools
import json
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import h11
import jax
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import DataError, TrunkfirstError
from ..exporters.explorer import explorer_page
from .predictor import JSON, NPZ, Predictor, Proceed, Refused, json_of, write_answer
from .requests import OUTSIDE, Asked, Limits, is_loopback, openapi, read_request

_NOTHING = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# The explorer contains its script, style and pictures.
_INLINE = "; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}
_CHALLENGE = {"www-authenticate": 'Bearer realm="trunkfirst", Basic realm="trunkfirst"'}
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
T = TypeVar("T")


def make_app(folder: Path, *, limits: Limits, token: str | None = None, is_local: bool = True) -> "Guard":
    """The application for the operator of a run folder.

    If `is_local`, the Host header must name this machine. With a `token`, every path except /healthz needs it.
    """
    predictor = Predictor(folder)
    metrics = Metrics()  # after loading, which compiles
    endpoints = _Endpoints(folder, predictor, metrics, limits)
    document = openapi(predictor.shapes, limits, has_token=token is not None)
    routes = [
        Route("/", endpoints.page),
        Route("/predict", endpoints.predict, methods=["POST"]),
        Route("/points", _fixed(f'{{"points": {json_of(predictor.points)}}}')),
        Route("/healthz", _fixed('{"status": "ok"}')),
        Route("/metrics", endpoints.metrics),
        Route("/openapi.json", _fixed(json.dumps(document))),
    ]
    handlers: dict[Any, Any] = {Refused: _on_refused, HTTPException: _on_http_error, Exception: _on_fault}
    inner = Starlette(routes=routes, exception_handlers=handlers)
    inner.router.redirect_slashes = False
    paths = frozenset(route.path for route in routes)
    return Guard(inner, metrics, paths, token, is_local=is_local, head_bytes=limits.head_bytes)


class Guard:
    """Checks the Host header and the token, adds headers to every answer, and counts the answers."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: "Metrics",
        paths: frozenset[str],
        token: str | None,
        *,
        is_local: bool,
        head_bytes: int,
    ) -> None:
        self._app, self.metrics, self._paths = app, metrics, paths
        self._is_local, self._head_bytes = is_local, head_bytes
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
        """A web page can make another host name resolve to this machine, but cannot send our own name."""
        lengths = [len(name) + len(value) + 4 for name, value in scope["headers"]]
        if sum(lengths) + len(scope.get("raw_path", b"")) + len(scope["query_string"]) > self._head_bytes:
            return _error(
                431, f"path and headers have more than {self._head_bytes:,} bytes", {"connection": "close"}
            )
        headers: dict[bytes, bytes] = dict(scope["headers"])
        host = headers.get(b"host", b"")
        name = host if host.endswith(b"]") else host.rpartition(b":")[0] or host
        if self._is_local and not is_loopback(name.decode("latin-1").lower().strip("[]")):
            return _error(421, "this server answers to localhost alone; the Host header names another")
        if self._token is None or scope["path"] == "/healthz":
            return None
        if hmac.compare_digest(_given_token(headers.get(b"authorization", b"")), self._token):
            return None
        return _error(401, "a token is needed: Authorization: Bearer TOKEN", _CHALLENGE)


def _given_token(header: bytes) -> bytes:
    """From Bearer, or the password of Basic, for which browsers ask."""
    scheme, _, value = header.partition(b" ")
    if scheme.lower() == b"basic":
        with contextlib.suppress(binascii.Error, ValueError):
            return base64.b64decode(value, validate=True).partition(b":")[2]
    return value.strip() if scheme.lower() == b"bearer" else b""


class _Endpoints:
    """The paths that compute something. They do so in threads, so that other paths answer in the meantime."""

    def __init__(self, folder: Path, predictor: Predictor, metrics: "Metrics", limits: Limits):
        self._folder, self._predictor, self._metrics, self._limits = folder, predictor, metrics, limits
        # Large requests have a thread of their own, so that small ones need not wait for them.
        self._quick = _Queue(max(1, min(4, os.cpu_count() or 1) - 1), limits.waiting)
        self._slow = _Queue(1, limits.large_waiting)
        self._page: bytes | None = None

    async def page(self, request: Request) -> Response:
        if self._page is None:
            self._page = await self._slow.run(request, lambda _: _explorer(self._folder))
        return Response(self._page, media_type="text/html")

    async def predict(self, request: Request) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (JSON, NPZ):
            raise Refused(415, f"Content-Type is {kind[:60]!a}; expected {JSON} or {NPZ}")
        body = await _read_body(request, self._limits)
        shapes, limits = self._predictor.shapes, self._limits
        queue = self._quick if len(body) <= limits.small_bytes else self._slow
        asked = await queue.run(request, lambda _: read_request(body, kind, shapes, limits))
        queue = queue if asked.numbers <= limits.small_numbers else self._slow
        answer, points = await queue.run(request, lambda proceed: self._answer(asked, kind, proceed))
        self._metrics.points += points
        return Response(answer, media_type=kind)

    async def metrics(self, request: Request) -> Response:
        del request
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    def _answer(self, asked: Asked, kind: str, proceed: Proceed) -> tuple[bytes, int]:
        extrapolate = asked.extrapolate
        try:
            prediction = self._predictor(asked.inputs, asked.points, extrapolate=extrapolate, proceed=proceed)
        except DataError as error:
            raise Refused(422, str(error), code=OUTSIDE) from error
        samples, count = prediction.outputs.shape[:2]
        return write_answer(prediction, kind, proceed), samples * count


class _Queue:
    """Threads with a bounded queue. Requests whose client has gone are dropped."""

    def __init__(self, threads: int, waiting: int):
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "predict")
        self._free = threading.Semaphore(waiting)

    async def run(self, request: Request, compute: Callable[[Proceed], T]) -> T:
        """What `compute` returns. It calls its argument now and then, which ends it once the client has gone."""
        if not self._free.acquire(blocking=False):
            raise Refused(503, "too many predictions are waiting; try again", {"retry-after": "1"})
        is_abandoned = threading.Event()
        gone = Refused(400, "the client has closed the connection")

        def proceed() -> None:
            if is_abandoned.is_set():
                raise gone

        future = self._pool.submit(compute, proceed)
        future.add_done_callback(lambda _: self._free.release())
        answer, leaving = asyncio.wrap_future(future), asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait([answer, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise gone
            return answer.result()
        finally:
            leaving.cancel()
            is_abandoned.set()
            answer.cancel()


async def _disconnected(request: Request) -> None:
    """Wait until the client closes the connection."""
    while (await request.receive())["type"] != "http.disconnect":
        await asyncio.sleep(0)  # a server that repeats the end of the body must not stop all others


def _fixed(content: str) -> Callable[[Request], Any]:
    """An endpoint that always answers the same JSON."""

    async def endpoint(request: Request) -> Response:
        del request
        return Response(content, media_type=JSON)

    return endpoint


async def _read_body(request: Request, limits: Limits) -> bytes:
    """Read in chunks: never more than the limit is in memory, and not longer than the time limit."""
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
        message = f"the body did not arrive within {limits.body_seconds:g} s"
        raise Refused(408, message, {"connection": "close"}) from error
    except ClientDisconnect as error:
        raise Refused(400, "the connection ended before the body did") from error
    return bytes(body)


def _explorer(folder: Path) -> bytes:
    """The interactive explorer, or a page with the reason why there is none."""
    try:
        return explorer_page(folder)
    except TrunkfirstError as error:
        return (
            "<!doctype html><html lang=en><meta charset=utf-8><title>trunkfirst</title><h1>A trained operator</h1>"
            f"<p>There is no explorer for it: {html.escape(str(error))}"
            "<p>Predict by POST to /predict; see <a href=/openapi.json>/openapi.json</a>."
        ).encode()


# -- errors, as JSON


def _error(
    status: int, message: str, headers: dict[str, str] | None = None, *, code: str | None = None
) -> Response:
    content = {"error": message} | ({} if code is None else {"code": code})
    return Response(json.dumps(content), status, headers, media_type=JSON)


async def _on_refused(request: Request, error: Refused) -> Response:
    del request
    return _error(error.status, str(error), error.headers, code=error.code)


async def _on_http_error(request: Request, error: HTTPException) -> Response:
    del request
    return _error(error.status_code, error.detail, dict(error.headers or {}))


async def _on_fault(request: Request, error: Exception) -> Response:
    del request, error
    return _error(500, "internal error; see the log of the server")


# -- metrics


class Metrics:
    """Counts since the start. Changed by one thread, except for the compilations."""

    def __init__(self):
        self.requests: Counter[tuple[str, int]] = Counter()
        """By path and status."""
        self.points = 0
        """Predicted samples times points."""
        self.compilations = 0
        """By JAX, in this process; predictions need none."""
        self._seconds, self._in_bucket = 0.0, [0] * (len(_BOUNDS) + 1)
        jax.monitoring.register_event_duration_secs_listener(self._on_event)

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count an answer. Seconds are kept for predictions alone."""
        self.requests[path, status] += 1
        if path == "/predict":
            self._seconds += seconds
            self._in_bucket[sum(seconds > bound for bound in _BOUNDS)] += 1

    def text(self) -> str:
        """In Prometheus' text format."""
        totals = list(itertools.accumulate(self._in_bucket))
        buckets = [f'_bucket{{le="{bound}"}} {n}' for bound, n in zip((*_BOUNDS, "+Inf"), totals, strict=True)]
        seconds = [*buckets, f"_sum {self._seconds:.6f}", f"_count {totals[-1]}"]
        requests = [f'{{path="{p}",status="{s}"}} {n}' for (p, s), n in sorted(self.requests.items())]
        return (
            _block("requests_total", "counter", "Answers by path and status.", requests)
            + _block("points_predicted_total", "counter", "Samples times points.", [f" {self.points}"])
            + _block("compilations_total", "counter", "Compilations by JAX.", [f" {self.compilations}"])
            + _block("predict_seconds", "histogram", "Seconds from request to answer.", seconds)
        )

    def _on_event(self, event: str, duration_secs: float, **_: Any) -> None:
        del duration_secs
        self.compilations += event.endswith("backend_compile_duration")


def _block(name: str, kind: str, description: str, values: list[str]) -> str:
    name = f"trunkfirst_{name}"
    lines = [f"# HELP {name} {description}", f"# TYPE {name} {kind}", *(f"{name}{value}" for value in values)]
    return "\n".join(lines) + "\n"


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with a time limit for the head of a request and one for the whole request."""

    limits: Limits
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # asyncio does so only for sockets that were made with the protocol TCP; without it an answer takes 40 ms.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._cut_after(self.limits.head_seconds)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self._cut_after(self.limits.request_seconds)

    def on_response_complete(self) -> None:
        # The rest of the body of a refused request is read and dropped in this time, so that the client sees the
        # answer while it is still sending.
        self._cut_after(self.limits.head_seconds)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """For what is not HTTP. In the middle of a body the application is informed of the disconnection."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.abort()
        if self.cycle:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cut_after(None)
        super().connection_lost(exc)

    def _cut_after(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)


def protocol_with(limits: Limits) -> type[TimedProtocol]:
    """A class, because that is what uvicorn instantiates."""
    return type("TimedProtocol", (TimedProtocol,), {"limits": limits})
