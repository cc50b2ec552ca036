"""Plain text: paragraphs, lines and hard-wrapped lines."""

from mtcli.documents.encoding import EncodedText, decode
from mtcli.documents.format import ReadOptions
from mtcli.documents.spans import Span, SpanDocument


def read(content: bytes, options: ReadOptions) -> SpanDocument:
    """Read a file of plain text.

    Raises:
        DataError: See `encoding.decode`.
    """
    return read_text(decode(content, options.name))


def read_text(source: EncodedText) -> SpanDocument:
    """Divide a text into segments. Each line is one."""
    spans = []
    start = 0
    for line in source.text.split("\n"):
        content = line.strip()
        if content:
            begin = start + line.index(content)
            spans.append(Span(begin, begin + len(content), (content,)))
        start += len(line) + 1
    return SpanDocument(source, spans)
