"""Translators whose translations are known, for the tests of documents."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from mtcli.config.schema import DecodeConfig
from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.formats.format import ReadOptions
from mtcli.documents.formats.plain_text import read_text
from mtcli.documents.formats.registry import read_document
from mtcli.documents.markup.inline import Inline
from mtcli.documents.markup.sentences import Chunk, Preparation, Sentence, translate_sentences
from mtcli.documents.pipeline import translate_document, translate_segments
from mtcli.runtime.progress import Progress
from mtcli.storage.translation_info import TranslationInfo
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.backends.backend import Backend
from mtcli.translate.memory import Memory
from mtcli.translate.translation import Candidate, Options, Translation
from mtcli.translate.translator import ModelTranslator, Translator
from mtcli.translate.windows import Reading, SourceLine

READ = ReadOptions("in.txt", "en", "de")


@cache
def tokenizer() -> Tokenizer:
    return train_tokenizer([("one two three.", "eins zwei drei.")] * 3)


class Rule(Backend):
    """Translates each line by a function."""

    def __init__(self, rule: Callable[[str], str], longest_src: int):
        super().__init__(
            tokenizer(), TranslationInfo(decode=DecodeConfig(), src="en", tgt="de", longest_src=longest_src)
        )
        self.rule = rule

    def max_batch_tokens(self, options: Options) -> int:
        return 1000

    def search(self, sources: Sequence[SourceLine], options: Options) -> Any:
        return [[Candidate(self.rule(source.line), 0.0, 0.0)] for source in sources]


class ByRule(ModelTranslator):
    """Translates each line by a function, and records the lines."""

    def __init__(self, rule: Callable[[str], str], longest_src: int = 10_000):
        super().__init__(Rule(rule, longest_src))
        self.lines: list[str] = []

    def translate(self, lines: Any, options: Options, *_: Any) -> Iterator[Translation]:
        options = replace(options, alignments=options.alignments and self.aligns)
        for translation in super().translate(lines, options, Reading(warn=False, quiet=True)):
            self.lines.append(translation.source)
            yield translation


def identity(longest_src: int = 10_000) -> ByRule:
    """Return a translator that changes nothing."""
    translator = ByRule(lambda line: line, longest_src)
    translator.aligns = False
    return translator


def capitals(longest_src: int = 10_000) -> ByRule:
    """Return a translator that writes capitals."""
    return ByRule(str.upper, longest_src)


def translate_text(text: str, translator: Translator, options: Options, *, src: str, tgt: str = "") -> str:
    """Translate plain text of any number of paragraphs."""
    document = read_text(EncodedText(text))
    found = translate_segments(document.segments, translator, options, src=src, tgt=tgt, quiet=True)
    return document.text([segment.content() for segment in found])


def translate_bytes(
    content: bytes, read_options: ReadOptions, translator: Translator, options: Options, memory: Memory | None = None
) -> bytes:
    """Translate the content of a file."""
    document = read_document(content, read_options)
    src, tgt = read_options.src, read_options.tgt
    found = translate_document(document, translator, options, src=src, tgt=tgt, quiet=True, memory=memory)
    return document.write([segment.content() for segment in found])


def translate_inline(
    sentences: Iterable[Inline], translator: Translator, options: Options, *, warn: bool = True
) -> list[Inline]:
    """Return the best translation of each sentence with markup."""
    chunk = chunk_of(sentences, translator)
    with Progress("translating", quiet=True) as bar:
        (translated,) = translate_sentences([chunk], translator, options, bar, warn=warn)
    return [sentence.results[0].content for sentence in translated.sentences]


def chunk_of(sentences: Iterable[Inline], translator: Translator) -> Chunk:
    """Prepare sentences for a model, without recasing."""
    preparation = Preparation(use_tokens=translator.tokenizer.has_placeholders)
    return Chunk([Sentence(sentence, preparation) for sentence in sentences])
