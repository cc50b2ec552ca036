"""The connections of `mtcli serve`: how many there are, and how long a client may keep each of them waiting.

uvicorn speaks HTTP. It does not limit the time in which a client sends the head of a request or reads an answer, and
its `limit_concurrency` refuses a request when the connection already has its file descriptor. So its protocol is
wrapped in one that keeps these limits, and an ASGI middleware reports the progress of each request to that one.
"""

import asyncio
import logging
import resource
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1000
"""Open connections, where the limit of open files allows as many."""

OTHER_FILES = 32
"""File descriptors that are kept for other uses than connections."""

LOG_INTERVAL = 60.0
"""Seconds between two log lines about the same shortage."""

REQUEST_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

Addresses = tuple[Any, Any]
"""Host and port of the client, and of the server: as a transport and as an ASGI scope name a connection."""


@dataclass(frozen=True)
class Capacity:
    """How many connections fit below the limit of open files."""

    connections: int
    """Open at a time."""
    backlog: int
    """Connections that asyncio accepts in one iteration of its loop. The protocol learns of a connection, and the one
    that makes room for it is closed, a few iterations later: until then up to four times as many more are open."""

    @classmethod
    def measured(cls) -> "Capacity":
        """Half of the free descriptors for open connections, the other half for those that are being accepted."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit == resource.RLIM_INFINITY:
            limit = 1 << 20
        free = limit - _open_files() - OTHER_FILES
        return cls(connections=min(MAX_CONNECTIONS, max(1, free // 2)), backlog=min(512, max(1, free // 8)))


def _open_files() -> int:
    try:
        return len(list(Path("/dev/fd").iterdir()))
    except OSError:
        return 64


@dataclass
class _Warning:
    """A log line that appears at most once per LOG_INTERVAL."""

    text: str
    logged: float = -LOG_INTERVAL

    def log(self) -> None:
        now = time.monotonic()
        if now - self.logged >= LOG_INTERVAL:
            self.logged = now
            log.warning(self.text)


@dataclass
class Connections:
    """The open connections, and the ASGI middleware that reports the progress of their requests to them."""

    app: ASGIApp
    capacity: Capacity
    seconds: float
    """That a client may take to send the head of a request, and to read an answer."""
    open: dict[Addresses, "Connection"] = field(default_factory=dict)
    waiting: dict["Connection", None] = field(default_factory=dict)
    """Those whose client is to send something, in the order in which they began to wait."""

    def __post_init__(self) -> None:
        self.full = _Warning(
            f"{self.capacity.connections} connections are open, the most that the limit of open files allows "
            "(ulimit -n); those that wait longest for their client are closed"
        )
        self.exhausted = _Warning("no connection can be accepted: the system has no file descriptor or memory left")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and report when it has arrived whole and when it is answered."""
        connection = self.open.get((scope.get("client"), scope.get("server")))
        if scope["type"] != "http" or connection is None:
            await self.app(scope, receive, send)
            return

        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                connection.request_arrived()
            return message

        connection.request_began(has_body=scope["method"] not in ("GET", "HEAD"))
        try:
            await self.app(scope, received, send)
        finally:
            connection.request_answered()

    def make_room(self) -> bool:
        """Return True if another connection fits, after closing the one that waits longest where it does not."""
        if len(self.open) < self.capacity.connections:
            return True
        self.full.log()
        longest = next(iter(self.waiting), None)
        if longest is None:
            return False
        longest.abort()
        return True

    def handle_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of the event loop; in one line, where it fails to accept connections.

        asyncio reports that with a traceback for each connection, and tries again every second.
        """
        if isinstance(context.get("exception"), OSError) and "accept" in context.get("message", ""):
            self.exhausted.log()
        else:
            loop.default_exception_handler(context)


class Connection(asyncio.Protocol):
    """One connection: a protocol that speaks HTTP, and the times that its client may take.

    `Connections.seconds` is the limit of each of these: the time from the beginning, or from an answer, to the head of
    the next request; the time in which an answer is read; the time that a client keeps sending a request that was
    answered before its end (too large, say). The application limits the time of a request's body.
    """

    def __init__(self, http: asyncio.Protocol, connections: Connections):
        """Wrap the protocol that speaks HTTP."""
        self.http = http
        self.connections = connections
        self.requests = 0  # that are being answered: a client may send the next one before it has an answer
        self.whole = True  # the last request arrived whole: what the client sends next begins another one
        self.begun = True  # a request that has not begun is not answered with 408
        self.head_timer: asyncio.TimerHandle | None = None
        self.write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the head of a request; refuse the connection if there are too many."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.addresses = _addresses(transport)
        if self.addresses is None or not self.connections.make_room():
            transport.set_protocol(asyncio.Protocol())
            transport.write(UNAVAILABLE)
            transport.close()
            return
        transport.set_write_buffer_limits(0)  # `pause_writing` comes as soon as the client leaves anything unread
        self.connections.open[self.addresses] = self
        self._wait()
        self.http.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass on what the client sends."""
        if self.whole and not self.requests:
            self.begun = True
        self.http.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass on that the client sends nothing more."""
        return self.http.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._forget()
        _cancel(self.write_timer)
        self.http.connection_lost(exc)

    def pause_writing(self) -> None:
        """Give the client time to read."""
        _cancel(self.write_timer)
        self.write_timer = asyncio.get_running_loop().call_later(self.connections.seconds, self.transport.abort)
        self.http.pause_writing()

    def resume_writing(self) -> None:
        """Note that the client has read everything."""
        _cancel(self.write_timer)
        self.http.resume_writing()

    def request_began(self, *, has_body: bool) -> None:
        """Note that the head of a request is here."""
        self.requests += 1
        self.begun = False
        self.whole = not has_body
        _cancel(self.head_timer)
        self.connections.waiting.pop(self, None)
        if has_body:
            self.connections.waiting[self] = None

    def request_arrived(self) -> None:
        """Note that the rest of a request is here too."""
        self.whole = True
        self.connections.waiting.pop(self, None)

    def request_answered(self) -> None:
        """Begin to wait again, unless another request is being answered."""
        self.requests -= 1
        if not self.requests and not self.transport.is_closing():
            self._wait()

    def abort(self) -> None:
        """Close the connection at once."""
        self._forget()
        self.transport.abort()

    def _wait(self) -> None:
        self.connections.waiting.pop(self, None)
        self.connections.waiting[self] = None
        _cancel(self.head_timer)
        self.head_timer = asyncio.get_running_loop().call_later(self.connections.seconds, self._expire)

    def _expire(self) -> None:
        if self.begun:
            self.transport.write(REQUEST_TIMEOUT)
        self.transport.close()

    def _forget(self) -> None:
        _cancel(self.head_timer)
        self.connections.waiting.pop(self, None)
        if self.addresses is not None:
            self.connections.open.pop(self.addresses, None)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _addresses(transport: asyncio.Transport) -> Addresses | None:
    """Host and port of both ends; None: the client has left already."""
    ends: Iterable[Any] = (transport.get_extra_info("peername"), transport.get_extra_info("sockname"))
    client, server = (tuple(end[:2]) if end else None for end in ends)
    return (client, server) if client and server else None
