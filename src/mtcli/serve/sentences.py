"""Translate lines of any length for the page: sentence by sentence, with candidates and word alignments."""

from collections.abc import Sequence
from itertools import islice

from mtcli.documents.segmentation import split_sentences
from mtcli.inference.translation import Candidate, Options, Translation
from mtcli.serve.waiting_translator import WaitingTranslator


def translate_lines(
    lines: Sequence[str], translator: WaitingTranslator, options: Options, src: str
) -> list[Translation]:
    """Translate lines.

    The nth candidate of a line joins the nth candidate of every sentence. A sentence with fewer candidates repeats its
    last one.

    Args:
        lines: The lines.
        translator: The translator of the request.
        options: Options of the search.
        src: Source language.

    Raises:
        AbandonedError, TooLongError, FullError: See `WaitingTranslator.translate`.
    """
    with translator.preparation():
        translator.check(lines, src)
        sentences_of = [_sentences(line, src) for line in lines]
    found = iter(translator.all_candidates([one for sentences in sentences_of for one in sentences], options))
    return [
        _line(line, list(islice(found, len(sentences)))) for line, sentences in zip(lines, sentences_of, strict=True)
    ]


def _sentences(line: str, src: str) -> list[str]:
    """Split a line into sentences. A line with one sentence or none stays as it is."""
    sentences = [sentence.strip() for sentence in split_sentences(line, src) if sentence.strip()]
    return sentences if len(sentences) > 1 else [line]


def _line(line: str, translations: Sequence[Translation]) -> Translation:
    """Join the translations of the sentences of a line."""
    if len(translations) == 1:
        return translations[0]
    num_candidates = max(len(translation.candidates) for translation in translations)
    return Translation(line, tuple(_joined(translations, number) for number in range(num_candidates)))


def _joined(translations: Sequence[Translation], number: int) -> Candidate:
    """Join one candidate of each sentence: the texts with spaces, the sums of their scores, the alignments in a row."""
    chosen = [found.candidates[min(number, len(found.candidates) - 1)] for found in translations]
    links: list[tuple[int, int]] = []
    src_words = 0
    tgt_words = 0
    for translation, candidate in zip(translations, chosen, strict=True):
        links += [(src + src_words, tgt + tgt_words) for src, tgt in candidate.alignment]
        src_words += len(translation.source.split())
        tgt_words += len(candidate.text.split())
    return Candidate(
        text=" ".join(candidate.text for candidate in chosen),
        log_prob=sum(candidate.log_prob for candidate in chosen),
        score=sum(candidate.score for candidate in chosen),
        alignment=tuple(links),
    )
