"""Send a server requests that are too large, malformed, slow or endless: it refuses them and keeps serving."""

import json
import re
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from helpers.harness import Child, limit, run, start, until
from helpers.processes import HANGS
from helpers.toy import PAIRS, save_toy, toy

from faults.conftest import Case
from faults.inputs import failed
from mtcli.translate.translation import Options
from mtcli.translate.windows import Reading

BODY = 100_000
SECONDS = 6
"""The limits of the server."""

HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
ASKED = [source for source, _ in PAIRS[::40]]


@dataclass
class Site:
    """A server in a process of its own."""

    port: int
    child: Child

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=HANGS)

    def send(self, parts: Iterator[bytes], pause: float = 0.0) -> tuple[int, bytes]:
        """Send parts of a request, which may never end, while reading. Return status and text of the answer."""
        answer = b""
        with self.connect() as connection:
            connection.settimeout(pause or 0.001)
            end = time.monotonic() + HANGS
            while b"\r\n\r\n" not in answer:
                assert time.monotonic() < end, "no answer"
                try:
                    if part := next(parts, b""):
                        connection.sendall(part)
                    answer += connection.recv(65536)
                except TimeoutError:
                    continue
        return int(answer.split()[1]), answer

    def closes(self, parts: Iterator[bytes]) -> bool:
        """Return True if the server closes a connection on which these parts arrive, with or without an answer."""
        with self.connect() as connection:
            connection.settimeout(0.05)
            end = time.monotonic() + HANGS
            while time.monotonic() < end:
                try:
                    connection.sendall(next(parts, b""))
                    if connection.recv(65536) == b"":
                        return True
                except TimeoutError:
                    continue
                except OSError:
                    return True
        return False

    def sockets(self) -> int:
        """Return the number of open sockets of the server."""
        found = 0
        for descriptor in Path(f"/proc/{self.child.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found += str(descriptor.readlink()).startswith("socket:")
        return found

    def serves(self) -> None:
        """Assert that a request gets the right answer."""
        body = json.dumps({"q": ASKED, "source": "en"}).encode()
        request = Request(f"http://127.0.0.1:{self.port}/translate", body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=HANGS) as answer:
            assert json.load(answer)["translatedText"] == [
                t.text for t in toy().translate(ASKED, Options(), Reading(warn=False))
            ]


@contextmanager
def serving(folder: Path, within: Sequence[Callable[[], Any]] = (), warnings: Sequence[str] = ()) -> Iterator[Site]:
    """Run a server. It must print only its address and these warnings on stderr, and end at SIGTERM."""
    limits = ["--max-body", str(BODY), "--timeout", str(SECONDS)]
    words = ["serve", "--model", save_toy(folder), "--port", "0", "--device", "cpu", *limits]
    child = start(*words, within=within)
    said = child.folder / "err"
    until(lambda: said.exists() and "\n" in said.read_text(), child)
    site = Site(int(re.findall(r":(\d+)/", said.read_text())[0]), child)
    try:
        site.serves()
        yield site
        site.serves()
    finally:
        child.send(signal.SIGTERM)
        result = child.wait()
    assert result.code == -signal.SIGTERM
    said_since = result.err.splitlines()[1:]
    assert len(said_since) == len(warnings), result.err
    assert all(warning in line for warning, line in zip(warnings, said_since, strict=True))


def with_length(n: int, sent: int) -> Callable[[], Iterator[bytes]]:
    """Return a request with Content-Length `n`, of which only `sent` bytes are sent."""
    return lambda: iter([HEAD + b"Content-Length: %d\r\n\r\n" % n, b"x" * sent])


def endless_chunks() -> Iterator[bytes]:
    yield HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    yield from repeat(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")


def whole(body: bytes) -> Callable[[], Iterator[bytes]]:
    return lambda: iter([HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body])


def trickle(start: bytes, rest: bytes) -> Callable[[], Iterator[bytes]]:
    def parts() -> Iterator[bytes]:
        yield start
        yield from repeat(rest)

    return parts


FAULTS = {
    "large": (413, with_length(BODY + 1, BODY + 1)),
    "large, nothing sent": (413, with_length(10**12, 0)),
    "chunked": (413, endless_chunks),
    "no JSON": (400, whole(b'{"q": "one')),
    "deep JSON": (400, whole(b"[" * 50_000)),
    "no UTF-8": (400, whole(b'{"q": "\xff\xfe"}')),
    "no HTTP": (400, lambda: iter([b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n"])),
    "no length": (400, lambda: iter([HEAD + b"Content-Length: -1\r\n\r\n"])),
    "no chunk": (400, lambda: iter([HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"])),
    "head without end": (400, trickle(HEAD, b"X: " + b"y" * 1000 + b"\r\n")),
}

SLOW = {
    "body, stopped": with_length(100, 10),
    "head, stopped": lambda: iter([HEAD[:20]]),
    "body": trickle(HEAD + b"Content-Length: 90000\r\n\r\n", b" "),
    "chunks": trickle(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "head": trickle(HEAD + b"X: ", b"y"),
    "nothing": lambda: iter([]),
}


def test_71_rest_large_or_malformed(case: Case, tmp_path: Path, count: Callable[[int, int], int]) -> None:
    with serving(tmp_path) as site:
        for _ in range(count(5, 1)):
            for name, (status, parts) in FAULTS.items():
                with case.fault():
                    found, answer = site.send(parts())
                    assert (name, found) == (name, status)
                    assert b"Traceback" not in answer
                    site.serves()


def test_71_rest_slow(case: Case, tmp_path: Path, count: Callable[[int, int], int]) -> None:
    """Clients that send slowly or stop, and many that stay silent."""
    with serving(tmp_path) as site, ThreadPoolExecutor() as pool:
        for _ in range(count(5, 1)):
            silent = [site.connect() for _ in range(count(40, 50))]
            with case.fault(len(SLOW) + len(silent)):
                found = [pool.submit(site.send, parts(), 0.02) for parts in SLOW.values()]
                site.serves()
                assert {name: one.result()[0] for name, one in zip(SLOW, found, strict=True)} == dict.fromkeys(
                    SLOW, 408
                )
                for connection in silent:
                    assert b" 408 " in connection.recv(100)
                    connection.close()
                site.serves()


@pytest.mark.slow
def test_71_rest_never_ending(case: Case, tmp_path: Path) -> None:
    """The server answers while the client keeps sending: the connection is closed anyway."""
    with serving(tmp_path) as site, ThreadPoolExecutor() as pool, case.fault(2):
        assert all(pool.map(site.closes, (endless_chunks(), SLOW["chunks"]())))
        site.serves()


def test_71_rest_leaving(case: Case, tmp_path: Path, count: Callable[[int, int], int]) -> None:
    """Clients that disconnect in the head, in the body or before the answer."""
    with serving(tmp_path) as site:
        for _ in range(count(50, 5)):
            for sent in (HEAD[:30], HEAD + b"Content-Length: 99\r\n\r\n{", b"".join(whole(b'{"q": "one red"}')())):
                with case.fault():
                    site.connect().sendall(sent)
        site.serves()


FILES = 128
"""The limit of open files of a server that must run out of them."""


@pytest.mark.parametrize("sent", [b"", HEAD[:20], HEAD + b"Content-Length: 99\r\n\r\n{"])
def test_90_more_connections_than_files(
    case: Case, tmp_path: Path, sent: bytes, count: Callable[[int, int], int]
) -> None:
    """Clients that stay connected and send nothing, half a head or half a body: others are still served."""
    few = partial(limit, resource.RLIMIT_NOFILE, FILES)
    warning = "connections are open, the most that the limit of open files allows"
    with serving(tmp_path, [few], [warning]) as site, ExitStack() as stay:
        for _ in range(count(10, 2)):
            with case.fault(FILES):
                for _ in range(FILES):
                    stay.enter_context(site.connect()).sendall(sent)
                site.serves()


def test_91_answer_never_read(case: Case, tmp_path: Path, count: Callable[[int, int], int]) -> None:
    """A client that requests more than the system buffers and never reads is disconnected."""
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(tmp_path) as site, ExitStack() as stay:
        before = site.sockets()
        clients = count(20, 2)
        with case.fault(clients):
            for _ in range(clients):
                stay.enter_context(site.connect()).sendall(1000 * request)
            until(lambda: site.sockets() == before + clients, site.child)
            site.serves()
            until(lambda: site.sockets() == before, site.child)


def test_92_server_left_open(case: Case, tmp_path: Path) -> None:
    """Empty keys and an empty host are refused."""
    save_toy(tmp_path)
    for words in (["--api-key", ""], ["--api-key", " \t"], ["--host", ""], ["--host", " "]):
        with case.fault():
            failed(run("serve", "--model", tmp_path, "--port", "0", *words), 2, words[0], "empty")
    for key in ("", "\n"):
        with case.fault():
            failed(run("serve", "--model", tmp_path, "--port", "0", env={"MTCLI_API_KEY": key}), 2, "MTCLI_API_KEY")


FOREIGN = {
    b"Host: localhost\r\nOrigin: https://example.org": 403,
    b"Host: localhost\r\nOrigin: null": 403,
    b"Host: localhost\r\nSec-Fetch-Site: cross-site": 403,
    b"Host: example.org": 421,
    b"Host: 127.0.0.1.example.org": 421,
    b"Host:": 421,
}


def test_93_requests_of_other_sites(case: Case, tmp_path: Path) -> None:
    """Requests from a page of another site, by its origin or by a host name that resolves to this machine."""
    with serving(tmp_path) as site:
        for path in (b"/translate", b"/api/translate", b"/none"):
            for headers, status in FOREIGN.items():
                lines = b"POST %b HTTP/1.1\r\n%b\r\nContent-Type: application/x-www-form-urlencoded\r\n" % (
                    path,
                    headers,
                )
                with case.fault():
                    found, answer = site.send(iter([lines + b"Content-Length: 5\r\n\r\nq=one"]))
                    assert (path, headers, found) == (path, headers, status)
                    assert b"uno" not in answer
