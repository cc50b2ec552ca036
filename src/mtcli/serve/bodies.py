"""Receive the bodies of requests, with limits of their size, their time and their total memory."""

import asyncio
from dataclasses import dataclass

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect


@dataclass(eq=False)
class _Body:
    """A body that is being received."""

    deadline: asyncio.Timeout
    size: int = 0
    """Bytes that have arrived."""
    is_dropped: bool = False


class Bodies:
    """The bodies that are being received.

    The API key is in the body, so a client without it can send as much as one with it. If all bodies together become
    too large, the one that began first is dropped. A client that sends without pauses is not dropped for others that
    send slowly.

    Args:
        max_total: Bytes of all bodies together.
        seconds: Time for a body to arrive.
    """

    def __init__(self, max_total: int, seconds: float):
        self._max_total = max_total
        self._seconds = seconds
        self._open: dict[_Body, None] = {}
        """The one that began first is the first."""
        self._total = 0

    async def receive(self, request: Request, max_bytes: int) -> bytes:
        """Return the body of a request.

        Raises:
            HTTPException: 413 if it is too large, by its Content-Length or by what arrives; 408 if it is too slow; 503
                if all bodies together are too large; 400 if the client disconnects.
        """
        too_large = HTTPException(413, f"the request is larger than {max_bytes:,} bytes; send it in parts")
        if int(request.headers.get("content-length", 0)) > max_bytes:
            raise too_large
        content = bytearray()
        body = _Body(asyncio.timeout(self._seconds))
        self._open[body] = None
        try:
            async with body.deadline:
                async for chunk in request.stream():
                    content += chunk
                    if len(content) > max_bytes:
                        raise too_large
                    self._add(body, len(chunk))
        except TimeoutError:
            if body.is_dropped:
                raise HTTPException(503, "too many requests arrive; try again soon", {"Retry-After": "1"}) from None
            raise HTTPException(408, f"the request did not arrive within {self._seconds:g} seconds") from None
        except ClientDisconnect:
            raise HTTPException(400, "the connection was closed before the request was complete") from None
        finally:
            self._remove(body)
        return bytes(content)

    def _add(self, body: _Body, size: int) -> None:
        """Count bytes of a body, and drop those that began first if there are too many."""
        if body.is_dropped:
            return
        body.size += size
        self._total += size
        while self._total > self._max_total:
            first = next(iter(self._open))
            self._remove(first)
            first.is_dropped = True
            if not first.deadline.expired():  # otherwise its task is about to end
                first.deadline.reschedule(asyncio.get_running_loop().time())

    def _remove(self, body: _Body) -> None:
        if body in self._open:
            del self._open[body]
            self._total -= body.size
