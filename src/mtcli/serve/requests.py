"""Requests: their limits, their fields, and how they are received and read from JSON or from a form.

Bodies are received with limits of their size, their time and their total memory.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, Field, ValidationError, model_validator
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

MAX_ALTERNATIVES = 9

MAX_FORM_FIELDS = 1000

KEY_SCHEMES = ("bearer", "deepl-auth-key")
"""What may stand before the key in the header `Authorization`."""

KEY_FIELDS = ("api_key", "auth_key")
"""Names of the field with the key: LibreTranslate's, and DeepL's."""

LARGEST_REQUESTS = 4
"""Requests of the largest size that the server receives, or translates, at a time. Of smaller ones it takes more."""


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


@dataclass(frozen=True)
class RequestLimits:
    """Limits of the requests that the server accepts."""

    body: int = 1_000_000
    """Bytes of a request."""
    lines: int = 500
    """Lines of a request, over all its texts."""
    tokens: int = 512
    """Tokens of a sentence."""
    waiting: int = 2_000
    """Lines that wait for the model. While so many wait, new requests are refused. A text has no more sentences."""
    seconds: float = 60.0
    """Time for a request to arrive, and again for its translation."""
    file_body: int = 10_000_000
    """Bytes of a request with a file."""
    file_seconds: float = 3600.0
    """Time for the translation of a file."""
    files: int = 4
    """Files that are translated at a time. While there are so many, further ones are refused."""
    segments: int = 100_000
    """Paragraphs of a file."""
    key_in_query: bool = False
    """The key may be in the query of the address."""

    @property
    def sentences(self) -> int:
        """Sentences of a request with texts."""
        return max(self.lines, self.waiting)

    @property
    def all_bodies(self) -> int:
        """Bytes of all requests that are arriving."""
        return LARGEST_REQUESTS * max(self.body, self.file_body)

    @property
    def all_characters(self) -> int:
        """Characters of all texts in progress, without files.

        A character takes up to 260 bytes while it is translated, in HTML that is nothing but tags.
        """
        return LARGEST_REQUESTS * self.body


class RequestFields(BaseModel):
    """Fields of a request. Other fields are ignored, as clients of LibreTranslate expect."""

    api_key: str = ""

    @model_validator(mode="before")
    @classmethod
    def _without_unset(cls, fields: Any) -> Any:
        """Drop the fields that are null or empty: clients without a key or a source language send them like this."""
        if not isinstance(fields, dict):
            return fields
        return {name: value for name, value in fields.items() if value not in (None, "") or name == "q"}

    def with_key_of(self, request: Request) -> Self:
        """Return the fields, with the key in the header `Authorization` if they have none."""
        return self if self.api_key else self.model_copy(update={"api_key": header_key(request)})


class TranslationRequest(RequestFields):
    """The fields of a request for translation."""

    q: str | list[str]
    source: str = "auto"
    target: str = ""
    """Empty: the target language of the model, unless it has several."""
    format: str = "text"
    alternatives: int = Field(default=0, ge=0, le=MAX_ALTERNATIVES)
    terms: str | list[str] = ""
    """Lines of a file of terms."""

    @property
    def texts(self) -> list[str]:
        """The texts to translate: `q` itself, or its elements if it is a list."""
        return [self.q] if isinstance(self.q, str) else self.q

    @property
    def num_characters(self) -> int:
        """The number of characters of all texts."""
        return sum(map(len, self.texts))

    @property
    def is_list(self) -> bool:
        """True if `q` is a list, so that the fields of the answer are lists too."""
        return not isinstance(self.q, str)


class CorrectionRequest(RequestFields):
    """The fields of a correction, which LibreTranslate calls a suggestion."""

    q: str
    """The text."""
    s: str
    """Its corrected translation, see `corrections.corrected_pairs`."""
    source: str = "auto"
    target: str = ""
    note: str = ""


class DetectionRequest(RequestFields):
    """The fields of a request for the language of a text."""

    q: str


Fields = TypeVar("Fields", bound=RequestFields)


async def read_request(
    request: Request, bodies: Bodies, limits: RequestLimits, fields: type[Fields], *, may_be_empty: bool = False
) -> Fields:
    """Read and parse a request with the given fields: JSON, a form of either kind, or the query of the address.

    The fields of a form come before those of the query. With JSON, the query is ignored. The key may also be in the
    header `Authorization`.

    Args:
        request: The request.
        bodies: Receive its body.
        limits: Limits of its size.
        fields: Its fields.
        may_be_empty: It may have neither a body nor a query.

    Raises:
        HTTPException: 415 for another media type, 403 for a key in the query, 400 for a body or a query that is not
            valid; see also `Bodies.receive`.
    """
    body = await bodies.receive(request, limits.body)
    media_type, options = parse_options_header(request.headers.get("content-type", ""))
    try:
        if media_type == b"application/json":
            found = fields.model_validate_json(body)
        else:
            in_query = query_fields(request, key_in_query=limits.key_in_query)
            has_form = bool(body) or not (in_query or may_be_empty)
            in_form = await _form_fields(request, body, media_type, options) if has_form else {}
            found = fields.model_validate({**in_query, **in_form})
        return found.with_key_of(request)
    except ValidationError as error:
        raise invalid(error) from None
    except ValueError as error:
        raise HTTPException(400, f"the request is not a valid form: {error}") from None


async def _form_fields(
    request: Request, body: bytes, media_type: bytes, options: Mapping[bytes, bytes]
) -> dict[str, str | list[str]]:
    """Return the fields of a form.

    Raises:
        HTTPException: 415 for another media type, 400 for a form that is not valid.
        ValueError: The form is not valid.
    """
    if media_type == b"application/x-www-form-urlencoded":
        return _parsed(body.decode())
    if media_type == b"multipart/form-data":
        form = await parse_multipart(request, body, options, max_fields=MAX_FORM_FIELDS)
        return _joined(form.multi_items())
    kinds = "application/x-www-form-urlencoded or multipart/form-data"
    raise HTTPException(415, f"send application/json, {kinds}")


def header_key(request: Request) -> str:
    """Return the key in the header `Authorization`; empty: there is none."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() in KEY_SCHEMES else ""


def query_fields(request: Request, *, key_in_query: bool) -> dict[str, str | list[str]]:
    """Return the fields in the query of the address of a request.

    Raises:
        HTTPException: 403: There is a key, which proxies and browsers would write to their logs.
        ValueError: The query is not valid.
    """
    found = _parsed(request.url.query)
    if any(found.get(name) for name in KEY_FIELDS) and not key_in_query:
        raise key_in_query_refused()
    return found


def key_in_query_refused() -> HTTPException:
    """Return the answer to a request whose key would be in the query of the address."""
    message = "a key in the address is refused, because addresses are logged; send it in the body or the header "
    return HTTPException(403, f"{message}Authorization, or start the server with --key-in-query")


def _parsed(text: str) -> dict[str, str | list[str]]:
    """Parse an url-encoded form.

    Raises:
        ValueError: It is not valid.
    """
    return _joined(parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS))


def _joined(items: Iterable[tuple[str, Any]]) -> dict[str, str | list[str]]:
    """Return the fields of a form by their names. A name that occurs several times is that of a list."""
    found: dict[str, list[str]] = {}
    for name, value in items:
        found.setdefault(name, []).append(value)
    return {name: each[0] if len(each) == 1 else each for name, each in found.items()}


async def parse_multipart(
    request: Request, body: bytes, options: Mapping[bytes, bytes], *, max_fields: int, max_files: int = 0
) -> FormData:
    """Parse a multipart form. Its files stay in memory.

    Args:
        request: The request.
        body: Its body.
        options: The parameters of its media type.
        max_fields: Limit of the fields without a file.
        max_files: Limit of the fields with a file.

    Raises:
        HTTPException: 415 for another encoding than UTF-8; 400 if the form is not valid.
    """
    if options.get(b"charset", b"utf-8").lower() != b"utf-8":  # some codecs of Python fail, or give half a character
        raise HTTPException(415, "send the form in UTF-8")
    boundary = options.get(b"boundary", b"")
    is_complete = bool(boundary) and body.rstrip().endswith(b"--" + boundary + b"--")
    if not is_complete:
        raise HTTPException(400, "the form is incomplete, or its boundary is not the one that Content-Type names")

    async def whole_body() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(request.headers, whole_body(), max_files=max_files, max_fields=max_fields)
    parser.spool_max_size = len(body)  # above this size, the parser would write the file to the disk
    parser.max_part_size = len(body)  # the size of the body is limited
    try:
        return await parser.parse()
    except MultiPartException as error:
        raise HTTPException(400, f"the form is not valid: {error.message}") from None


def invalid(error: ValidationError) -> HTTPException:
    """Return the answer to a request with fields that are missing or not valid: it names the first of them."""
    problem = error.errors()[0]
    field = ".".join(map(str, problem["loc"][:1])) or "the request"
    return HTTPException(400, f"{field}: {problem['msg']}")
