"""Bytes of a text file to text, and back in the same encoding."""

import codecs
from dataclasses import dataclass

from mtcli.errors import DataError
from mtcli.text.lines import TO_UTF8

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte-order marks and their encodings."""
MAX_LINES = 2_000_000
"""Lines of a text file. Each takes about 200 bytes of memory."""


@dataclass(frozen=True)
class EncodedText:
    """Text, and how it is written to bytes. Line ends are kept as they are."""

    text: str
    encoding: str = "utf-8"
    mark: bytes = b""
    """The byte-order mark of the file."""

    def encode(self, text: str, errors: str = "strict") -> bytes:
        """Return another text in the encoding of this one; `errors` is that of `str.encode`."""
        return self.mark + text.encode(self.encoding, errors)


def decode(content: bytes, name: str) -> EncodedText:
    """Decode UTF-8, or UTF-16 or UTF-32 with a byte-order mark.

    Args:
        content: The file.
        name: Its name, for messages.

    Raises:
        DataError: The bytes are not valid; the message gives the line and the byte within it, both counted from 1.
            See also `check_lines`.
    """
    mark, encoding = next((marked for marked in _MARKS if content.startswith(marked[0])), (b"", "utf-8"))
    body = content[len(mark) :]
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        before = body[: error.start].decode(encoding)
        line = before.count("\n") + 1
        begin = len(before[: before.rfind("\n") + 1].encode(encoding))
        byte = error.start - begin + 1 + (len(mark) if line == 1 else 0)
        standard_name = "UTF-8" if encoding == "utf-8" else encoding[:6].upper()
        remedy = f"convert it ({TO_UTF8})"
        raise DataError(f"{name}:{line}: byte {byte} is not {standard_name} ({error.reason}); {remedy}") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{name}:{line}: contains NUL, which is not text; if it is UTF-16, convert it to UTF-8")
    check_lines(text, name)
    return EncodedText(text, encoding, mark)


def check_lines(text: str, name: str) -> None:
    """Check the number of lines of a file.

    Raises:
        DataError: There are more than `MAX_LINES`.
    """
    if text.count("\n") + text.count("\r") - text.count("\r\n") > MAX_LINES:
        raise DataError(f"{name}: more than {MAX_LINES:,} lines, the limit; split the file")
