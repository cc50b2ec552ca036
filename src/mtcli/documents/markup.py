"""Translate sentences with inline markup."""

from collections.abc import Iterable, Iterator

from mtcli.documents.inline import Inline, text_of
from mtcli.inference.line_translator import LineTranslator
from mtcli.inference.translation import Options


def translate_inline(
    sentences: Iterable[Inline],
    translator: LineTranslator,
    options: Options,
    *,
    total: int | None = None,
    quiet: bool = False,
) -> Iterator[Inline]:
    """Translate sentences, in their order.

    Args:
        sentences: They may be in different paragraphs, and one tag of a pair may be in another sentence.
        translator: The model. All sentences are translated in one stream, so that batches are full.
        options: Options of the search.
        total: Number of sentences, for the progress bar.
        quiet: Show no progress bar.
    """
    lines = (text_of(sentence) for sentence in sentences)
    for translation in translator.translate(lines, options, total=total, quiet=quiet):
        yield (translation.text,)
