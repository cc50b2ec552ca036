"""A server in this process, a client for it, and translators whose answers are known."""

import json
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.types import ASGIApp

from helpers.processes import HANGS
from helpers.toy import toy
from mtcli.errors import DataError, NotFiniteError
from mtcli.serve.app import ServerSettings, create_app
from mtcli.serve.models import ServedModel
from mtcli.serve.requests import RequestLimits
from mtcli.serve.server import listen, server
from mtcli.translate.translation import Candidate, Options, Translation
from mtcli.translate.translator import ModelTranslator, Translator

BOUNDARY = "limit"
OPTIONS = Options()


def until(condition: Callable[[], bool]) -> None:
    """Wait until another thread or process makes a condition true."""
    end = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < end, "the condition was never true"
        time.sleep(0.001)


def multipart(name: str, content: bytes, **fields: str) -> bytes:
    """Return a form with fields and a file."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    return b"".join([*parts, head, content, f"\r\n--{BOUNDARY}--\r\n".encode()])


class Site:
    """A running server, and methods that send requests to it."""

    def __init__(self, port: int):
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def send(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
        """Send a request. Return status, JSON or text, and headers of the answer."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, body, names), timeout=HANGS) as answer:
                status = answer.status
                text = answer.read()
                found = dict(answer.headers)
        except urllib.error.HTTPError as error:
            status = error.code
            text = error.read()
            found = dict(error.headers)
        return status, json.loads(text) if "json" in found.get("content-type", "") else text.decode(), found

    def json(self, path: str, **fields: Any) -> tuple[int, Any, dict[str, str]]:
        return self.send(path, json.dumps(fields).encode(), content_type="application/json")

    def upload(self, name: str, content: bytes, **fields: str) -> tuple[int, Any, dict[str, str]]:
        body = multipart(name, content, **fields)
        return self.send("/translate_file", body, content_type=f"multipart/form-data; boundary={BOUNDARY}")

    def until_waiting(self, lines: int) -> None:
        """Wait until this number of lines waits for the model."""
        until(lambda: self.send("/health")[1]["waiting"] == lines)

    def form(self, **fields: Any) -> tuple[int, Any, dict[str, str]]:
        return self.send("/translate", urllib.parse.urlencode(fields, doseq=True).encode())


@contextmanager
def started(app: ASGIApp, seconds: float = 60.0) -> Iterator[Site]:
    listening = listen("127.0.0.1", 0)
    serving = server(app, seconds)
    thread = threading.Thread(target=serving.run, args=([listening],))
    thread.start()
    try:
        yield Site(listening.getsockname()[1])
    finally:
        serving.should_exit = True
        thread.join()


class Gated(ModelTranslator):
    """A translator that returns its input in capitals when `gate` is released, and records its calls."""

    def __init__(self) -> None:
        super().__init__(toy().backend)
        self.calls: list[list[str]] = []
        self.begun = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)

    def translate(self, lines: Iterable[str], options: Options, *_: Any) -> Iterator[Translation]:
        self.calls.append(list(lines))
        self.begun.release()
        assert self.gate.acquire(timeout=HANGS)
        if "bad" in self.calls[-1]:
            raise DataError("a bad line")
        if "broken" in self.calls[-1]:
            raise NotFiniteError
        if "worse" in self.calls[-1]:
            raise ValueError("worse")
        yield from [Translation(line, (Candidate(line.upper(), 0.0, 0.0),)) for line in self.calls[-1]]


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@contextmanager
def serving(
    *models: tuple[Translator, str, str], limits: RequestLimits | None = None, api_key: str | None = None
) -> Iterator[Site]:
    served = [ServedModel(translator, OPTIONS, src, (tgt,)) for translator, src, tgt in models]
    with started(create_app(served, ServerSettings(limits or RequestLimits(), api_key))) as site:
        yield site


def upload(site: Site, name: str, content: bytes, **fields: str) -> tuple[int, Any]:
    return site.upload(name, content, **fields)[:2]


def translated(site: Site, name: str, content: bytes, to: str = "de", **fields: str) -> tuple[str, str]:
    """Return the name and the text of a translated file."""
    status, answer = upload(site, name, content, **{"source": "en", "target": to, **fields})
    assert status == 200, answer
    url = answer["translatedFileUrl"]
    assert url.startswith(f"{site.url}/download_file/")
    status, text, headers = site.send(url.removeprefix(site.url))
    assert status == 200
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"].startswith("attachment; ")
    assert headers["x-content-type-options"] == "nosniff"
    return urllib.parse.unquote(url.rpartition("/")[2]), text
