"""What the tests of document formats share."""

from mtcli.documents.formats.format import Reader, ReadOptions
from mtcli.documents.markup.inline import Inline

OPTIONS = ReadOptions("file", "en", "de")


def shout(segment: Inline) -> Inline:
    """Translate into upper case, which shows what a writer does with text that changes."""
    return tuple(part.upper() if isinstance(part, str) else part for part in segment)


def shouted(read: Reader, content: str | bytes, options: ReadOptions = OPTIONS) -> str:
    """Return a file with its segments in upper case, after a check that the segments themselves give the file back."""
    raw = content.encode() if isinstance(content, str) else content
    document = read(raw, options)
    assert document.write(document.segments) == raw
    return document.write([shout(segment) for segment in document.segments]).decode()


def shown(read: Reader, content: str | bytes, options: ReadOptions = OPTIONS) -> list[str]:
    """Return the segments with their tags in square brackets: `["Click [<b>]here[</b>]"]`."""
    raw = content.encode() if isinstance(content, str) else content
    return [
        "".join(part if isinstance(part, str) else f"[{part.raw}]" for part in segment)
        for segment in read(raw, options).segments
    ]
