"""The server process: one operator over HTTP, for this machine alone unless a token is set."""

import importlib.util
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtraError, UsageError, ValueRangeError
from .requests import Limits, is_loopback

if TYPE_CHECKING:
    import uvicorn

_SHORTEST_TOKEN = 16


def serve(
    folder: Path | str,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    limits: Limits | None = None,
    on_start: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve the operator of a run folder until SIGINT or SIGTERM; `on_start` is called with the address.

    Port 0 takes a free one. Any host except a loopback address needs a token of at least 16 characters.

    Raises `UsageError` for a host, port or token that cannot be used, and `MissingExtraError` without Starlette.
    """
    if not all(map(importlib.util.find_spec, ("starlette", "uvicorn"))):
        raise MissingExtraError("the server", "starlette and uvicorn", "serve")
    limits = limits or Limits()
    is_local = is_loopback(host)
    _check(host, token, limits, is_local=is_local)
    with _listen(host, port) as listening:
        from .app import make_app

        app = make_app(Path(folder), limits=limits, token=token, is_local=is_local)
        # uvicorn raises the signal again after the shutdown.
        signal.signal(signal.SIGTERM, _end)
        on_start(_url(listening))
        make_server(app, limits).run(sockets=[listening])


def make_server(app: Any, limits: Limits) -> "uvicorn.Server":
    """uvicorn with these limits; it logs errors alone, on standard error."""
    import uvicorn

    from .app import protocol_with

    config = uvicorn.Config(
        app,
        http=protocol_with(limits),
        ws="none",
        loop="asyncio",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=limits.connections,
        timeout_graceful_shutdown=limits.stop_seconds,
    )
    return uvicorn.Server(config)


def _end(*_: object) -> None:
    raise SystemExit(0)


def _check(host: str, token: str | None, limits: Limits, *, is_local: bool) -> None:
    if limits.bytes < 1:
        raise ValueRangeError(f"the limit of a body is {limits.bytes} bytes; expected at least 1")
    if token is None and not is_local:
        raise UsageError(f"other machines can reach {host}; give a --token that clients must send")
    if token is not None and (len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable()):
        raise UsageError(f"the token needs at least {_SHORTEST_TOKEN} printable ASCII characters")
    if token is not None and token != token.strip():
        raise UsageError("the token begins or ends with a space")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise UsageError(f"cannot listen on {host}, port {port}: {error}") from error


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
