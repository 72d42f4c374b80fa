"""Time limits for connections; uvicorn itself waits for slow heads and slow readers without end."""

import asyncio
import socket
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .requests import Limits


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
