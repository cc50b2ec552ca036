"""Requests with a file: multipart forms."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from fastapi import Request
from pydantic import BaseModel, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser

from mtcli.serve.bodies import Bodies
from mtcli.serve.file_names import safe_name
from mtcli.serve.requests import RequestLimits, invalid

MAX_FIELDS = 20
"""Fields of a form with a file."""


class UploadFields(BaseModel):
    """The fields of a form, besides the file."""

    source: str = "auto"
    target: str = ""
    terms: str = ""
    api_key: str = ""


@dataclass(frozen=True)
class Upload:
    """A file to translate."""

    name: str
    """See `safe_name`."""
    content: bytes
    source: str
    target: str
    terms: str
    api_key: str


async def read_upload(request: Request, bodies: Bodies, limits: RequestLimits) -> Upload:
    """Read and parse a form with a file in the field `file`.

    Raises:
        HTTPException: 415 for another media type, 400 for a form that is not valid; see also `Bodies.receive`.
    """
    media_type, options = parse_options_header(request.headers.get("content-type", ""))
    if media_type != b"multipart/form-data":
        raise HTTPException(415, "send multipart/form-data with the file in the field `file`")
    if options.get(b"charset", b"utf-8").lower() != b"utf-8":  # some codecs of Python fail, or give half a character
        raise HTTPException(415, "send the form in UTF-8")
    body = await bodies.receive(request, limits.file_body)
    boundary = options.get(b"boundary", b"")
    is_complete = bool(boundary) and body.rstrip().endswith(b"--" + boundary + b"--")
    if not is_complete:
        raise HTTPException(400, "the form is incomplete, or its boundary is not the one that Content-Type names")

    async def whole_body() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(request.headers, whole_body(), max_files=1, max_fields=MAX_FIELDS)
    parser.spool_max_size = len(body)  # above this size, the parser would write the file to the disk
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise HTTPException(400, f"the form is not valid: {error.message}") from None
    try:
        return await _upload(form)
    finally:
        await form.close()


async def _upload(form: FormData) -> Upload:
    """Return the file and the fields of a form.

    Raises:
        HTTPException: 400: There is no file, or a field is not valid.
    """
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise HTTPException(400, "file: the form has no file in this field")
    name = safe_name(file.filename or "")
    try:
        fields = UploadFields.model_validate({key: value for key, value in form.items() if isinstance(value, str)})
    except ValidationError as error:
        raise invalid(error) from None
    return Upload(name, await file.read(), fields.source or "auto", fields.target, fields.terms, fields.api_key)
