"""Uploaded files: multipart forms with a document; the names of files that clients send, and of their translations."""

from pathlib import PurePath
from urllib.parse import quote

from fastapi import Request
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from mtcli.serve.requests import Bodies, RequestFields, RequestLimits, parse_multipart

MAX_FIELDS = 20
"""Fields of a form with a file."""


class Upload(RequestFields):
    """A file to translate, and the other fields of its form."""

    name: str
    """See `safe_name`."""
    content: bytes
    source: str = "auto"
    target: str = ""
    terms: str = ""


async def read_upload(request: Request, bodies: Bodies, limits: RequestLimits) -> Upload:
    """Read and parse a form with a file in the field `file`. The key may also be in the header `Authorization`.

    Raises:
        HTTPException: 415 for another media type, 400 for a form that is not valid; see also `Bodies.receive`.
    """
    media_type, options = parse_options_header(request.headers.get("content-type", ""))
    if media_type != b"multipart/form-data":
        raise HTTPException(415, "send multipart/form-data with the file in the field `file`")
    body = await bodies.receive(request, limits.file_body)
    form = await parse_multipart(request, body, options, max_fields=MAX_FIELDS, max_files=1)
    try:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise HTTPException(400, "file: the form has no file in this field")
        fields = {key: value for key, value in form.items() if isinstance(value, str)}
        content = await file.read()
        upload = Upload.model_validate({**fields, "name": safe_name(file.filename or ""), "content": content})
    finally:
        await form.close()
    return upload.with_key_of(request)


MAX_NAME_BYTES = 200
"""Bytes of a file name in UTF-8. File systems allow 255, and a browser may add a number."""

MAX_SUFFIX = 20
"""Characters of a suffix. No type of document has a longer one."""

BROWSER_ESCAPES = {"%22": '"', "%0D": "\r", "%0A": "\n"}
"""The characters of file names that browsers escape in forms, and no others (HTML standard, section 4.10.21.8)."""

_UNSAFE = str.maketrans(dict.fromkeys('?"\\%', "_"))
"""Characters that have a meaning in a quoted string of a header, and `?`, which stands for any other character."""


def safe_name(name: str) -> str:
    """Return the last part of a file name, without invisible characters such as line breaks and marks of direction.

    A name that is only a suffix, such as `.txt`, becomes `file.txt`.

    Raises:
        HTTPException: 400: The file has no name.
    """
    for escape, character in BROWSER_ESCAPES.items():
        name = name.replace(escape, character)
    last = name.replace("\\", "/").rpartition("/")[2]
    spaced = (" " if character.isspace() else character for character in last)
    visible = "".join(character for character in spaced if character.isprintable()).strip()
    bare = visible.lstrip(". ")
    if not bare:
        raise HTTPException(400, "file: the file has no name; its suffix says what type it is")
    return f"file.{bare}" if visible.startswith(".") and "." not in bare else bare


def translated_name(name: str, target: str) -> str:
    """Return the name of a translated file: `page_de.html` for `page.html`. A long name is cut.

    Args:
        name: See `safe_name`.
        target: Code of the target language.
    """
    path = PurePath(name)
    ending = f"_{target}{path.suffix[:MAX_SUFFIX]}"
    room = MAX_NAME_BYTES - len(ending.encode())
    return path.stem.encode()[:room].decode(errors="ignore") + ending


def attachment(name: str) -> str:
    """Return a Content-Disposition header that saves a file under a name (RFC 6266).

    Programs that do not read `filename*` save the file with `_` for each character outside ASCII.
    """
    ascii_name = name.encode("ascii", "replace").decode().translate(_UNSAFE)
    return f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe='')}"
