"""Translate the texts of a request: plain text or HTML."""

from collections.abc import Sequence

from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.formats.format import Document
from mtcli.documents.formats.html import html_spans, html_structure
from mtcli.documents.formats.plain_text import read_text
from mtcli.documents.formats.slots import SlotDocument
from mtcli.documents.formats.structure import VerifiedDocument
from mtcli.documents.lines import by_sentence
from mtcli.documents.markup.inline import Inline, text_of
from mtcli.documents.pipeline import translate_segments
from mtcli.errors import DataError
from mtcli.serve.models import ServedModel
from mtcli.serve.requests import TranslationRequest
from mtcli.serve.waiting_translator import TooLongError, WaitingTranslator
from mtcli.terms.terms import Terms, parse_terms
from mtcli.translate.translation import Translation

MAX_TERMS = 1000
"""Lines of the terms of a request."""


def translate_texts(
    translator: WaitingTranslator, model: ServedModel, fields: TranslationRequest, max_segments: int
) -> list[list[str]]:
    """Return the different translations of each text, best first.

    The nth translation of a text has the nth candidate of every sentence. A sentence with fewer candidates repeats its
    last one.

    Args:
        translator: The translator of the request.
        model: Its model.
        fields: The request.
        max_segments: Limit of the paragraphs of all texts.

    Raises:
        TooLongError: There are more paragraphs, or too many sentences.
        DataError: The terms are malformed, or too many.
        AbandonedError, FullError: See `WaitingTranslator.translate`.
    """
    documents = [document_of(text, fields.format) for text in fields.texts]
    segments = [segment for document in documents for segment in document.segments]
    if len(segments) > max_segments:
        raise TooLongError(f"{len(segments):,} paragraphs; this server takes {max_segments:,} in a request")
    options = model.options_to(fields.target, terms=parse_request_terms(fields.terms))
    src, tgt = model.src, model.target_of(fields.target)
    found: list[dict[str, None]] = [{} for _ in documents]
    for number in range(fields.alternatives + 1):
        translator.choice = number
        with translator.preparation():
            if number == 0:
                translator.check(map(text_of, segments), model.src)
            translations = translate_segments(segments, translator, options, src=src, tgt=tgt, quiet=True, warn=False)
        for texts, text in zip(found, _written(documents, translations), strict=True):
            texts[text] = None
    return [list(texts) for texts in found]


def translate_lines(translator: WaitingTranslator, model: ServedModel, fields: TranslationRequest) -> list[Translation]:
    """Translate the lines of all texts, with all candidates, and word alignments if the model has them.

    The nth candidate of a line has the nth candidate of every sentence.

    Args:
        translator: The translator of the request.
        model: Its model.
        fields: The request.

    Raises:
        DataError: The terms are malformed, or too many.
        AbandonedError, TooLongError, FullError: See `WaitingTranslator.translate`.
    """
    lines = [line for text in fields.texts for line in split_lines(text)]
    terms = parse_request_terms(fields.terms)
    options = model.options_to(fields.target, alignments=model.translator.aligns, terms=terms)
    translator.choice = None
    by_line = by_sentence(translator, model.src, model.target_of(fields.target))
    with translator.preparation():
        translator.check(lines, model.src)
        return list(by_line.translate(lines, options, warn=False, quiet=True))


def parse_request_terms(field: str | list[str]) -> Terms | None:
    """Parse the terms of a request; None: it has none.

    Raises:
        DataError: They are malformed, or too many.
    """
    text = field if isinstance(field, str) else "\n".join(field)
    if not text.strip():
        return None
    lines = split_lines(text)
    if len(lines) > MAX_TERMS:
        raise DataError(f"terms: {len(lines):,} lines; this server takes {MAX_TERMS:,}")
    return parse_terms(lines, "terms")


def document_of(text: str, form: str) -> Document:
    """Divide a text of a request into segments. HTML is written with the structure of its source, as a page is."""
    source = EncodedText(text)
    if form != "html":
        return read_text(source)
    marked = SlotDocument(source, html_spans(text, "q"))
    return VerifiedDocument(marked, text.encode(), lambda written: html_structure(written.decode()), "q")


def _written(documents: Sequence[Document], translations: Sequence[Inline]) -> list[str]:
    """Return the translated texts of documents, given the translations of all their segments."""
    texts = []
    start = 0
    for document in documents:
        end = start + len(document.segments)
        texts.append(document.write(translations[start:end]).decode())
        start = end
    return texts


def split_lines(text: str) -> list[str]:
    """Split a text at LF or CRLF. An empty text has one line."""
    return [line.removesuffix("\r") for line in text.split("\n")]
