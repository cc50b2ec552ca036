"""Requests for translation: their limits, their fields, and how they are read from JSON or from a form."""

import asyncio
from dataclasses import dataclass
from urllib.parse import parse_qs

from fastapi import Request
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

MAX_ALTERNATIVES = 9

MAX_FORM_FIELDS = 1000


@dataclass(frozen=True)
class RequestLimits:
    """Limits of the requests that the server accepts."""

    body: int = 1_000_000
    """Bytes of a request."""
    lines: int = 500
    """Lines of a request, over all its texts."""
    tokens: int = 512
    """Tokens of a line."""
    waiting: int = 2_000
    """Lines that wait for the model. While so many wait, new requests are refused."""
    seconds: float = 60.0
    """Time for a request to arrive, and again for its translation."""


class TranslationRequest(BaseModel):
    """The fields of a request. Other fields are ignored, as clients of LibreTranslate expect."""

    q: str | list[str]
    source: str = "auto"
    target: str = ""
    """Empty: the target language of the model, unless it has several."""
    format: str = "text"
    alternatives: int = Field(default=0, ge=0, le=MAX_ALTERNATIVES)
    api_key: str = ""

    @property
    def texts(self) -> list[str]:
        """The texts to translate: `q` itself, or its elements if it is a list."""
        return [self.q] if isinstance(self.q, str) else self.q

    @property
    def is_list(self) -> bool:
        """True if `q` is a list, so that the fields of the answer are lists too."""
        return not isinstance(self.q, str)


async def read_request(request: Request, limits: RequestLimits) -> TranslationRequest:
    """Read and parse a request.

    Raises:
        HTTPException: 400, 408, 413 or 415, with the reason.
    """
    body = await _body(request, limits)
    return _parse(request.headers.get("content-type", ""), body)


async def _body(request: Request, limits: RequestLimits) -> bytes:
    """Return the body of a request.

    Raises:
        HTTPException: The body is too large, by its Content-Length or by what arrives, too slow, or incomplete.
    """
    too_large = HTTPException(413, f"the request is larger than {limits.body:,} bytes; send the text in parts")
    if int(request.headers.get("content-length", 0)) > limits.body:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.body:
                    raise too_large
    except TimeoutError:
        raise HTTPException(408, f"the request did not arrive within {limits.seconds:g} seconds") from None
    except ClientDisconnect:
        raise HTTPException(400, "the connection was closed before the request was complete") from None
    return bytes(body)


def _parse(content_type: str, body: bytes) -> TranslationRequest:
    media_type = content_type.partition(";")[0].strip().lower()
    try:
        if media_type == "application/json":
            return TranslationRequest.model_validate_json(body)
        if media_type == "application/x-www-form-urlencoded":
            return TranslationRequest.model_validate(_form_fields(body))
    except ValidationError as error:
        problem = error.errors()[0]
        field = ".".join(map(str, problem["loc"][:1])) or "the request"
        raise HTTPException(400, f"{field}: {problem['msg']}") from None
    except ValueError as error:
        raise HTTPException(400, f"the request is not a valid form: {error}") from None
    raise HTTPException(415, "send application/json or application/x-www-form-urlencoded")


def _form_fields(body: bytes) -> dict[str, str | list[str]]:
    """Return the fields of a form. A field that occurs several times is a list.

    Raises:
        ValueError: The body is not UTF-8, or has too many fields.
    """
    fields = parse_qs(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_FIELDS)
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
