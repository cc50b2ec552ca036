"""Requests: their limits, their fields, and how they are read from JSON, from a form, or from a form with a file."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import parse_qs

from fastapi import Request
from pydantic import BaseModel, Field, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

MAX_ALTERNATIVES = 9

MAX_FORM_FIELDS = 1000

MAX_UPLOAD_FIELDS = 20
"""Fields of a form with a file."""

MAX_NAME_CHARACTERS = 200
"""Characters of the name of a file."""


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
    """Files that are received and translated at a time. While there are so many, further ones are refused."""


class TranslationRequest(BaseModel):
    """The fields of a request. Other fields are ignored, as clients of LibreTranslate expect."""

    q: str | list[str]
    source: str = "auto"
    target: str = ""
    """Empty: the target language of the model, unless it has several."""
    format: str = "text"
    alternatives: int = Field(default=0, ge=0, le=MAX_ALTERNATIVES)
    terms: str | list[str] = ""
    """Lines of a file of terms."""
    api_key: str = ""

    @property
    def texts(self) -> list[str]:
        """The texts to translate: `q` itself, or its elements if it is a list."""
        return [self.q] if isinstance(self.q, str) else self.q

    @property
    def is_list(self) -> bool:
        """True if `q` is a list, so that the fields of the answer are lists too."""
        return not isinstance(self.q, str)


class DetectionRequest(BaseModel):
    """The fields of a request for the language of a text."""

    q: str
    api_key: str = ""


class UploadFields(BaseModel):
    """The fields of a request with a file, besides the file."""

    source: str = "auto"
    target: str = ""
    terms: str = ""
    api_key: str = ""


@dataclass(frozen=True)
class Upload:
    """A file to translate."""

    name: str
    content: bytes
    source: str
    target: str
    terms: str
    api_key: str


Fields = TypeVar("Fields", bound=BaseModel)


async def read_request(request: Request, limits: RequestLimits, fields: type[Fields]) -> Fields:
    """Read and parse a request with the given fields.

    Raises:
        HTTPException: 400, 408, 413 or 415, with the reason.
    """
    body = await _body(request, limits.body, limits.seconds)
    return _parse(request.headers.get("content-type", ""), body, fields)


async def read_upload(request: Request, limits: RequestLimits) -> Upload:
    """Read and parse a form with a file in the field `file`.

    Raises:
        HTTPException: 400, 408, 413 or 415, with the reason.
    """
    media_type, options = parse_options_header(request.headers.get("content-type", ""))
    if media_type != b"multipart/form-data":
        raise HTTPException(415, "send multipart/form-data with the file in the field `file`")
    if options.get(b"charset", b"utf-8").lower() != b"utf-8":  # some codecs of Python fail, or give half a character
        raise HTTPException(415, "send the form in UTF-8")
    body = await _body(request, limits.file_body, limits.seconds)
    boundary = options.get(b"boundary", b"")
    is_complete = bool(boundary) and body.rstrip().endswith(b"--" + boundary + b"--")
    if not is_complete:
        raise HTTPException(400, "the form is incomplete, or its boundary is not the one that Content-Type names")

    async def whole_body() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(request.headers, whole_body(), max_files=1, max_fields=MAX_UPLOAD_FIELDS)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise HTTPException(400, f"the form is not valid: {error.message}") from None
    try:
        return await _upload(form)
    finally:
        await form.close()


async def _upload(form: FormData) -> Upload:
    """Return the file and the fields of a form."""
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise HTTPException(400, "file: the form has no file in this field")
    name = safe_name(file.filename or "")
    try:
        fields = UploadFields.model_validate({key: value for key, value in form.items() if isinstance(value, str)})
    except ValidationError as error:
        raise _invalid(error) from None
    return Upload(name, await file.read(), fields.source or "auto", fields.target, fields.terms, fields.api_key)


def safe_name(name: str) -> str:
    """Return the last part of a file name.

    Raises:
        HTTPException: 400: there is none, or it has control characters or half a surrogate pair.
    """
    last = name.replace("\\", "/").rpartition("/")[2].strip()
    if last.strip(".") == "":
        raise HTTPException(400, "file: the file has no name; its suffix says what type it is")
    if not last.isprintable() or len(last) > MAX_NAME_CHARACTERS:
        limit = f"more than {MAX_NAME_CHARACTERS} characters"
        raise HTTPException(400, f"file: its name has control characters, such as NUL, or {limit}")
    return last


async def _body(request: Request, max_bytes: int, seconds: float) -> bytes:
    """Return the body of a request.

    Raises:
        HTTPException: The body is too large, by its Content-Length or by what arrives, too slow, or incomplete.
    """
    too_large = HTTPException(413, f"the request is larger than {max_bytes:,} bytes; send the text in parts")
    if int(request.headers.get("content-length", 0)) > max_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise too_large
    except TimeoutError:
        raise HTTPException(408, f"the request did not arrive within {seconds:g} seconds") from None
    except ClientDisconnect:
        raise HTTPException(400, "the connection was closed before the request was complete") from None
    return bytes(body)


def _parse(content_type: str, body: bytes, fields: type[Fields]) -> Fields:
    media_type = content_type.partition(";")[0].strip().lower()
    try:
        if media_type == "application/json":
            return fields.model_validate_json(body)
        if media_type == "application/x-www-form-urlencoded":
            return fields.model_validate(_form_fields(body))
    except ValidationError as error:
        raise _invalid(error) from None
    except ValueError as error:
        raise HTTPException(400, f"the request is not a valid form: {error}") from None
    raise HTTPException(415, "send application/json or application/x-www-form-urlencoded")


def _invalid(error: ValidationError) -> HTTPException:
    problem = error.errors()[0]
    field = ".".join(map(str, problem["loc"][:1])) or "the request"
    return HTTPException(400, f"{field}: {problem['msg']}")


def _form_fields(body: bytes) -> dict[str, str | list[str]]:
    """Return the fields of a form. A field that occurs several times is a list.

    Raises:
        ValueError: The body is not UTF-8, or has too many fields.
    """
    fields = parse_qs(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS)
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
