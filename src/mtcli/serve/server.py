"""The HTTP server of `mtcli serve`: its socket, its signals, its shutdown, and the limits of its connections.

Limits: the number of connections, and the time that a client may keep one waiting. uvicorn limits neither the time in
which a client sends the head of a request nor the time in which it reads an answer. Its `limit_concurrency` refuses a
request only when the connection already has a file descriptor. So `Connection` wraps uvicorn's protocol and enforces
these limits. The ASGI middleware `Connections` reports the progress of each request to its connection.
"""

import asyncio
import logging
import math
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from mtcli.errors import UsageError

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1000
"""Maximum number of open connections. The limit of open files can lower it."""

OTHER_FILES = 32
"""File descriptors reserved for other uses than connections."""

MIN_READ = 2**16
"""Bytes of an answer that a client must read in `Connections.seconds`, unless fewer remain."""

LOG_INTERVAL = 60.0
"""Seconds between two warnings of too many connections."""

REQUEST_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"

SHUTTING_DOWN = JSONResponse({"error": "the server is shutting down"}, 503, {"Retry-After": "10"})

Addresses = tuple[Any, Any]
"""Host and port of the client and of the server. Both a transport and an ASGI scope identify a connection by them."""

BACKLOG = 512
"""Maximum number of connections that the kernel queues until they are accepted."""

FLUSH_SECONDS = 1.0
"""Time at the end of the shutdown for clients to read their answers."""


@dataclass(frozen=True)
class Capacity:
    """How many connections fit below the limit of open files."""

    connections: int
    """Connections that may be open at a time."""
    backlog: int
    """Connections that asyncio accepts in one iteration of its event loop.

    `connection_made` is called a few iterations after a connection is accepted, and only then another connection is
    closed to make room. Until then, up to four times this number of further connections can be open.
    """

    @classmethod
    def measured(cls) -> "Capacity":
        """Use half of the free descriptors for open connections and half for those that are being accepted."""
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
class Connections:
    """The open connections, and the ASGI middleware that reports the progress of their requests to them."""

    app: ASGIApp
    capacity: Capacity
    seconds: float
    """Time for a client to send the head of a request, and to read an answer or `MIN_READ` bytes of it."""
    open: dict[Addresses, "Connection"] = field(default_factory=dict)
    waiting: dict["Connection", None] = field(default_factory=dict)
    """The connections that wait for their client to send something, longest wait first."""
    unanswered: set["asyncio.Task[Any]"] = field(default_factory=set)
    """The tasks of the requests whose answer has not begun."""
    warned_at: float = -LOG_INTERVAL
    """When the last warning of too many connections was logged, by `time.monotonic`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, and report when all of it has arrived and when it is answered."""
        connection = self.open.get((scope.get("client"), scope.get("server")))
        if scope["type"] != "http" or connection is None:
            await self.app(scope, receive, send)
            return

        task = asyncio.current_task()
        assert task is not None

        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                connection.request_arrived()
            return message

        async def answered(message: Message) -> None:
            self.unanswered.discard(task)
            await send(message)

        connection.request_began(has_body=scope["method"] not in ("GET", "HEAD"))
        self.unanswered.add(task)
        try:
            await self.app(scope, received, answered)
        except asyncio.CancelledError:  # by `abandon_requests`
            if task not in self.unanswered:
                raise
            await SHUTTING_DOWN(scope, received, answered)
        finally:
            self.unanswered.discard(task)
            connection.request_answered()

    def abandon_requests(self) -> None:
        """Cancel the requests whose answer has not begun. They are answered with 503."""
        for task in self.unanswered:
            task.cancel()

    def abort_all(self) -> None:
        """Close all connections at once."""
        for connection in list(self.open.values()):
            connection.abort()

    def make_room(self) -> bool:
        """Close the connection that waits longest if there are too many. Return False if none can be closed."""
        if len(self.open) < self.capacity.connections:
            return True
        now = time.monotonic()
        if now - self.warned_at >= LOG_INTERVAL:
            self.warned_at = now
            log.warning(
                "%d connections are open, the most that the limit of open files allows (ulimit -n); those that wait "
                "longest for their client are closed",
                self.capacity.connections,
            )
        longest = next(iter(self.waiting), None)
        if longest is None:
            return False
        longest.abort()
        return True


class Connection(asyncio.Protocol):
    """One connection: the protocol that parses HTTP, and the time limits of its client.

    `Connections.seconds` limits the time

    - from the start of the connection, or from an answer, to the head of the next request;
    - in which the client reads an answer or, of a large one such as a file, the next `MIN_READ` bytes;
    - in which the client continues to send a request that is already answered, because it was too large.

    The application limits the time in which the body of a request arrives.

    Args:
        http: The protocol that parses HTTP.
        connections: All connections of the server.
    """

    def __init__(self, http: asyncio.Protocol, connections: Connections):
        self.http = http
        self.connections = connections
        self.head_timer: asyncio.TimerHandle | None = None
        self.write_timer: asyncio.TimerHandle | None = None
        self.num_requests = 0
        """Requests that are being answered. A client can send the next one before it has an answer."""
        self.is_complete = True
        """The last request has arrived completely, so that the next data belong to another one."""
        self.answers_timeout = True
        """A timeout is answered with 408. False after an answer, until the client begins the next request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the head of a request, or refuse the connection if there are too many."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.addresses = _addresses(transport)
        if self.addresses is None or not self.connections.make_room():
            transport.set_protocol(asyncio.Protocol())
            transport.write(UNAVAILABLE)
            transport.close()
            return
        transport.set_write_buffer_limits(0)  # so `pause_writing` is called as soon as data are unread
        self.connections.open[self.addresses] = self
        self._wait()
        self.http.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Pass data of the client on."""
        if self.is_complete and not self.num_requests:
            self.answers_timeout = True
        self.http.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass on the end of the client's data."""
        return self.http.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the open ones."""
        self._forget()
        _cancel(self.write_timer)
        self.http.connection_lost(exc)

    def pause_writing(self) -> None:
        """Limit the time in which the client reads the answer."""
        self._limit_reading()
        self.http.pause_writing()

    def resume_writing(self) -> None:
        """End this limit: the client has read all data."""
        _cancel(self.write_timer)
        self.http.resume_writing()

    def request_began(self, *, has_body: bool) -> None:
        """Note that the head of a request has arrived."""
        self.num_requests += 1
        self.answers_timeout = False
        self.is_complete = not has_body
        _cancel(self.head_timer)
        self.connections.waiting.pop(self, None)
        if has_body:
            self.connections.waiting[self] = None

    def request_arrived(self) -> None:
        """Note that a request has arrived completely."""
        self.is_complete = True
        self.connections.waiting.pop(self, None)

    def request_answered(self) -> None:
        """Wait for the next request, unless another one is being answered."""
        self.num_requests -= 1
        if not self.num_requests and not self.transport.is_closing():
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

    def _limit_reading(self) -> None:
        _cancel(self.write_timer)
        unread = self.transport.get_write_buffer_size()
        self.write_timer = asyncio.get_running_loop().call_later(self.connections.seconds, self._check_reading, unread)

    def _check_reading(self, unread: int) -> None:
        """Close the connection if its client has read too little since this number of bytes was unread."""
        if unread - self.transport.get_write_buffer_size() < MIN_READ:
            self.transport.abort()
        else:
            self._limit_reading()

    def _expire(self) -> None:
        if self.answers_timeout:
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
    """Return host and port of both ends, or None if the client has already disconnected."""
    client = transport.get_extra_info("peername")
    server = transport.get_extra_info("sockname")
    if not client or not server:
        return None
    return tuple(client[:2]), tuple(server[:2])


def listen(host: str, port: int) -> socket.socket:
    """Open a socket that accepts connections.

    Args:
        host: Host name or address.
        port: Port number; 0: any free port.

    Raises:
        UsageError: The host does not exist, or the port is in use.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, TypeError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).partition(" (")[0]  # Python adds the address again
        raise UsageError(f"--host {host} --port {port}: {reason}; choose another") from None


class _Server(uvicorn.Server):
    """The server of uvicorn. SIGHUP ends it like SIGTERM, and a second Ctrl-C ends it at once, as in training.

    Args:
        config: The configuration of uvicorn.
        connections: The open connections.
        seconds: Time at the shutdown for the running requests to be answered; the others are answered with 503.
    """

    def __init__(self, config: uvicorn.Config, connections: Connections, seconds: float):
        super().__init__(config)
        self.connections = connections
        self.seconds = seconds

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal arrives. SIGTERM and SIGHUP end the process, Ctrl-C with exit code 130.

        The interpreter is not finalized: it can crash if the thread of an abandoned batch still runs the model.
        """
        try:
            super().run(sockets)
        except KeyboardInterrupt:
            os._exit(128 + signal.SIGINT)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGHUP too, unless it is ignored. On exit, uvicorn raises the received signals again."""
        with super().capture_signals():
            in_main = threading.current_thread() is threading.main_thread()
            if not in_main or signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
                yield
                return
            previous = signal.signal(signal.SIGHUP, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, previous)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept connections."""
        await super().startup(sockets)
        for listening in sockets or ():  # asyncio has set their backlog to `Config.backlog`
            listening.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, and wait until the running requests are answered, for a limited time."""
        loop = asyncio.get_running_loop()
        abandon = loop.call_later(self.seconds, self.connections.abandon_requests)
        abort = loop.call_later(self.seconds + FLUSH_SECONDS, self.connections.abort_all)
        try:
            await super().shutdown(sockets)
        finally:
            abandon.cancel()
            abort.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin the shutdown, or end the process at a second Ctrl-C."""
        if self.should_exit and sig == signal.SIGINT:
            os._exit(128 + sig)
        super().handle_exit(sig, frame)


def server(app: ASGIApp, seconds: float) -> uvicorn.Server:
    """Return a server for the application.

    Its `run(sockets=[…])` ends the process after SIGTERM, SIGHUP or Ctrl-C, when all requests are answered.

    Args:
        app: The application.
        seconds: See `requests.RequestLimits`. At the shutdown, requests that take longer are answered with 503.
    """
    connections = Connections(app, Capacity.measured(), seconds)

    class LimitedHttp(Connection):
        """The protocol that uvicorn creates for each connection, with its own arguments."""

        def __init__(self, **arguments: Any):
            super().__init__(H11Protocol(**arguments), connections)

    config = uvicorn.Config(
        connections,
        http=LimitedHttp,
        ws="none",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=connections.capacity.backlog,
        timeout_graceful_shutdown=math.ceil(seconds + 2 * FLUSH_SECONDS),  # `_Server.shutdown` acts before
    )
    return _Server(config, connections, seconds)
