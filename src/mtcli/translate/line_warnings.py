"""Warnings about lines that are probably translated badly, and about translations that repeat themselves."""

import logging
from collections.abc import Sequence

from mtcli.errors import UsageError
from mtcli.text.numbers import check_numbers
from mtcli.text.repetitions import added_repetition
from mtcli.text.tokenizer.tokenizer import LANGUAGE_TAG, Tokenizer
from mtcli.translate.translation import Options, Translation
from mtcli.translate.windows import MAX_LINE_TOKENS, Window

log = logging.getLogger(__name__)

UNSEEN = "most characters did not occur in training: the translation will be poor"

OTHER_NUMBERS = "the translation has other numbers than the line"

USEFUL_NGRAM = 3
"""The n-gram size that the warning about repetitions suggests first."""

MAX_LINES_NAMED = 10
"""Line numbers that one warning names."""

MAX_TAGS_NAMED = 10
"""Target languages that one warning names."""


def warn_about_lines(window: Window, tokenizer: Tokenizer, usual_src: int) -> None:
    """Warn about lines that are shortened, longer than nearly all in training, or mostly of unseen letters.

    Args:
        window: The lines, before they are shortened.
        tokenizer: The model's.
        usual_src: Tokens that nearly all sources in training had at most.
    """
    shortened = []
    long = []
    for number, ids in enumerate(window.ids, window.first + 1):
        if len(ids) > MAX_LINE_TOKENS:
            shortened.append(number)
        elif len(ids) > usual_src:
            long.append(number)
    if shortened:
        numbers = _line_numbers(shortened, max_named=len(shortened))
        log.warning("%s: too long; only the first %d tokens are translated", numbers, MAX_LINE_TOKENS)
    if long:
        log.warning("%s: %s", _line_numbers(long), longer_than_usual(usual_src))
    warn_about_characters(window, tokenizer)


def longer_than_usual(usual_src: int) -> str:
    """Return the end of a warning about a text that is longer than nearly all sources in training."""
    return f"longer than nearly all training sources ({usual_src:,} tokens): the translation may be poor"


def warn_about_long_sentences(numbers: Sequence[int], usual_src: int) -> None:
    """Warn about lines with a sentence that is longer than usual. Lines are numbered from 1."""
    if numbers:
        log.warning("%s: has a sentence %s", _line_numbers(numbers), longer_than_usual(usual_src))


def warn_about_characters(window: Window, tokenizer: Tokenizer) -> None:
    """Warn about lines whose letters did not occur in training, see `is_unseen`."""
    unknown = [
        number
        for number, (line, ids) in enumerate(zip(window.lines, window.ids, strict=True), window.first + 1)
        if is_unseen(line, ids, tokenizer)
    ]
    if unknown:
        log.warning("%s: %s", _line_numbers(unknown), UNSEEN)


def warnings_of(translation: Translation, tokenizer: Tokenizer) -> list[str]:
    """Return warnings about one line and its translation; see `is_unseen`, `added_repetition` and `check_numbers`."""
    found = []
    (ids,) = tokenizer.encode_src([translation.source])
    if is_unseen(translation.source, ids, tokenizer):
        found.append(UNSEEN)
    repetition = added_repetition(translation.source, translation.text)
    if repetition:
        found.append(f"the translation repeats itself ({repetition:.40s})")
    check = check_numbers(translation.source, translation.text)
    if check.differs:
        found.append(f"{OTHER_NUMBERS} ({check})")
    return found


def is_unseen(line: str, ids: Sequence[int], tokenizer: Tokenizer) -> bool:
    """Return True if most letters of a line did not occur in training. Emoji and other signs do not count.

    Args:
        line: The line.
        ids: Its ids.
        tokenizer: The model's.
    """
    if tokenizer.unknown not in ids and tokenizer.src_byte_of.keys().isdisjoint(ids):  # as in most lines
        return False
    num_letters = sum(map(str.isalpha, line))
    if not num_letters:
        return False
    if 2 * sum(token == tokenizer.unknown for token in ids) > len(ids):
        return True
    spelled = bytes(tokenizer.src_byte_of[token] for token in ids if token in tokenizer.src_byte_of)
    num_unseen = sum(map(str.isalpha, spelled.decode(errors="ignore")))
    return 2 * num_unseen > num_letters


def check_target(tokenizer: Tokenizer, to: str) -> None:
    """Check the target language of a text whose lines do not begin with tags.

    Args:
        tokenizer: The model's.
        to: The target language; empty: there is none.

    Raises:
        UsageError: The model does not have it, or has several and there is none.
    """
    if to:
        tokenizer.tag_of(to)
    elif tokenizer.tags:
        targets = ", ".join(sorted(tokenizer.tags)[:MAX_TAGS_NAMED])
        raise UsageError(f"this model has several target languages ({targets}): give one with --to")


def check_tags(lines: Sequence[str], first: int, tokenizer: Tokenizer, to: str) -> None:
    """Check that lines have a target language which the model knows.

    An imported model may be used without one, see `warn_about_missing_tags`.

    Args:
        lines: The lines.
        first: The number of the first one, from 0.
        tokenizer: The model's.
        to: The language of lines without a tag; empty: they have none.

    Raises:
        UsageError: A line begins with a tag that the model does not have, or has none although the model needs one.
    """
    if not tokenizer.tags:
        return
    choices = ", ".join(sorted(tokenizer.tags)[:MAX_TAGS_NAMED])
    for number, line in enumerate(lines, first + 1):
        tag = LANGUAGE_TAG.match(line)
        if tag is not None and tag[1] not in tokenizer.tags:
            raise UsageError(f"line {number}: the model has no target language {tag[0]}; choose from {choices}")
        if tag is None and not to and line.strip() and not tokenizer.sentencepiece:
            raise UsageError(
                f"line {number}: no target language, and this model has several ({choices}): give one with --to, or "
                f"begin the line with its tag, such as >>{min(tokenizer.tags)}<<"
            )


def warn_about_missing_tags(window: Window, tokenizer: Tokenizer) -> None:
    """Warn about lines that do not begin with the tag of a target language, if the model has several languages."""
    tags = set(tokenizer.tags.values())
    if not tags:
        return
    numbers = []
    for number, (line, ids) in enumerate(zip(window.lines, window.ids, strict=True), window.first + 1):
        if line.strip() and ids and ids[0] not in tags:
            numbers.append(number)
    if numbers:
        languages = ", ".join(sorted(tokenizer.tags)[:MAX_TAGS_NAMED])
        message = "%s: no target language, and this model has several (%s): give one with --to"
        log.warning(message, _line_numbers(numbers), languages)


def warn_about_repetitions(translations: Sequence[Translation], first: int, options: Options) -> None:
    """Warn about translations that repeat themselves although their source does not.

    Args:
        translations: Translations of consecutive lines.
        first: The number of the first of these lines, from 0.
        options: The options of the search.
    """
    numbers = []
    examples = []
    for number, translation in enumerate(translations, first + 1):
        repetition = added_repetition(translation.source, translation.text)
        if repetition:
            numbers.append(number)
            examples.append(repetition)
    if not numbers:
        return
    message = f"{_line_numbers(numbers)}: the translation repeats itself ({examples[0]:.40s})"
    smaller = (options.no_repeat_ngram or USEFUL_NGRAM + 1) - 1
    if smaller and not options.repair:
        message += f"; --no-repeat-ngram {smaller} may prevent that"
    log.warning("%s", message)


def warn_about_divided_lines(numbers: Sequence[int], longest_src: int) -> None:
    """Warn about lines with a sentence that is translated in parts. Lines are numbered from 1."""
    if numbers:
        message = "%s: a sentence has more tokens than any in training (%d): translated in parts"
        log.warning(message, _line_numbers(numbers), longest_src)


def warn_about_numbers(translations: Sequence[Translation], first: int) -> None:
    """Warn about translations that lack numbers of their line or have others, see `check_numbers`.

    Args:
        translations: Translations of consecutive lines.
        first: The number of the first of these lines, from 0.
    """
    checks = [check_numbers(translation.source, translation.text) for translation in translations]
    numbers = [number for number, check in enumerate(checks, first + 1) if check.differs]
    if numbers:
        log.warning("%s: %s (%s)", _line_numbers(numbers), OTHER_NUMBERS, checks[numbers[0] - first - 1])


def _line_numbers(numbers: Sequence[int], max_named: int | None = None) -> str:
    """Write line numbers for a message: `line 7`, or `lines 7, 8 and 12 more`."""
    max_named = max_named or MAX_LINES_NAMED
    noun = "line" if len(numbers) == 1 else "lines"
    named = ", ".join(str(number) for number in numbers[:max_named])
    others = f" and {len(numbers) - max_named} more" if len(numbers) > max_named else ""
    return f"{noun} {named}{others}"
