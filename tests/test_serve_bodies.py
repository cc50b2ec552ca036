import asyncio
from collections.abc import AsyncIterator

import pytest
from fastapi import Request
from starlette.exceptions import HTTPException

from mtcli.serve.requests import Bodies


class Sending(Request):
    """A request whose body arrives from a generator."""

    def __init__(self, chunks: AsyncIterator[bytes]):
        super().__init__({"type": "http", "headers": []})
        self.chunks = chunks

    async def stream(self) -> AsyncIterator[bytes]:
        async for chunk in self.chunks:
            yield chunk


def test_a_body_is_received_while_another_that_must_go_runs_out_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline of the first has passed, and its task does not know it yet, when the second needs its room."""
    deadlines: list[asyncio.Timeout] = []

    def timeout(seconds: float) -> asyncio.Timeout:
        deadlines.append(asyncio.Timeout(asyncio.get_running_loop().time() + seconds))
        return deadlines[-1]

    monkeypatch.setattr("mtcli.serve.requests.asyncio.timeout", timeout)

    async def silent() -> AsyncIterator[bytes]:
        yield b"first "
        await asyncio.Event().wait()

    async def large() -> AsyncIterator[bytes]:
        deadlines[0].reschedule(0.0)
        await asyncio.sleep(0)
        assert deadlines[0].expired()
        yield b"second"

    async def receive_both() -> tuple[bytes | BaseException, bytes | BaseException]:
        bodies = Bodies(max_total=10, seconds=600)
        first, second = (bodies.receive(Sending(chunks), max_bytes=10) for chunks in (silent(), large()))
        return await asyncio.gather(first, second, return_exceptions=True)

    dropped, received = asyncio.run(receive_both())
    assert received == b"second"
    assert isinstance(dropped, HTTPException)
    assert dropped.status_code == 503
