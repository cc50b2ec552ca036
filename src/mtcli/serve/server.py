"""The HTTP server of `mtcli serve`: its socket, its signals and its shutdown."""

import asyncio
import math
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from mtcli.errors import UsageError
from mtcli.serve.connection import Capacity, Connection, Connections

BACKLOG = 512
"""Maximum number of connections that the kernel queues until they are accepted."""

FLUSH_SECONDS = 1.0
"""Time at the end of the shutdown for clients to read their answers."""


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


def server(app: FastAPI, seconds: float) -> uvicorn.Server:
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
