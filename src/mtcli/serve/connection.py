"""The HTTP server under `mtcli serve`: its socket, its connections, its end."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from mtcli.errors import UsageError


class _Connection(H11Protocol):
    """uvicorn's HTTP/1.1, with a limit on two waits that it has none for.

    They are those for the head of a request, and for the rest of one that has its answer (it was too large, say).
    """

    seconds: float

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop()

    def _watch(self) -> None:
        answered = self.cycle is not None and self.cycle.response_complete
        if self.conn.their_state is not h11.IDLE and not answered:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.seconds, self._expire)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        if self.conn.our_state is h11.IDLE:
            self.transport.write(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections; port 0: a free one.

    Raises:
        UsageError: There is no such host, or the port is taken.
    """
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=512
        )
    except (OSError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).partition(" (")[
            0
        ]  # what Python adds repeats the address
        raise UsageError(f"--host {host} --port {port}: {reason}; choose another") from None


class _Server(uvicorn.Server):
    """uvicorn's, which a closed terminal ends as SIGTERM does, and a second Ctrl-C at once, as it ends training."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Hear SIGHUP too, unless it is ignored; uvicorn raises what it heard again at the end."""
        with super().capture_signals():
            in_main = threading.current_thread() is threading.main_thread()
            if not in_main or signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
                yield
                return
            before = signal.signal(signal.SIGHUP, self.handle_exit)
            try:
                yield
            finally:
                signal.signal(signal.SIGHUP, before)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit and sig == signal.SIGINT:
            os._exit(128 + sig)
        super().handle_exit(sig, frame)


def server(app: FastAPI, seconds: float) -> uvicorn.Server:
    """What serves the application; `run(sockets=[…])` returns after SIGTERM, SIGHUP or Ctrl-C, when all is answered.

    Args:
        app: The application.
        seconds: See `app.RequestLimits`; what takes longer to answer at the end is cut off.
    """
    config = uvicorn.Config(
        app,
        http=type("Connection", (_Connection,), {"seconds": seconds}),
        ws="none",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(seconds)),
    )
    return _Server(config)
