"""Text of recipes: its usable lines, warnings about its language, which translations are kept, and files of pairs."""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from mtcli.corpus.held_out import source_key
from mtcli.corpus.quality.languages import MIN_FOUND, MIN_SAMPLE, SAMPLE, SURE
from mtcli.corpus.quality.rules import BIT, MIN_WORDS, REMOVES, num_words, rules, script
from mtcli.runtime.files import new_file
from mtcli.runtime.wording import counted
from mtcli.text.language_identifier import LanguageIdentifier
from mtcli.text.languages import Direction, base
from mtcli.text.lines import Counts, Pair, read_lines
from mtcli.text.repetitions import added_repetition
from mtcli.text.writing_systems import letter_runs, unspaced

log = logging.getLogger(__name__)

Record = Mapping[str, Any]
"""A line of a file of pairs: `translation` with a text for each language, and the scores of a synthetic pair."""

FREQUENT = 500
"""Number of the most frequent words of a language that are compared. Rare words are often names and borrowed words."""

MIN_SHARE = 0.2
"""If a smaller share of the words of a text is frequent, the text is probably in another language.

For 300 to 20,000 pairs of image captions and of Tatoeba in English, German and Spanish, the share was 0.31 or more for
text of the same language in the other domain, and 0.10 or less for text in another language.
"""

BLANK = "blank line"
DUPLICATE = "duplicate line"
REPETITION = "repetition"
WRONG_SCRIPT = "wrong script"
TOO_LONG = "too many tokens"

_TESTS = {rule.name: rule.test for rule in rules() if rule.test and BIT[rule.name] & REMOVES}
"""The rules of `data clean` by which a pair is removed."""


@dataclass(frozen=True)
class Text:
    """The usable lines of a monolingual text: those that are neither blank nor part of a held-out pair."""

    path: Path
    held_out: frozenset[str] = frozenset()
    """Keys of held-out sentences."""
    replace: bool = False
    """Read invalid UTF-8 as U+FFFD."""

    def usable(self, *, report: bool = False) -> Iterator[str]:
        """Yield the usable lines.

        Args:
            report: Log at the end how many other lines there are, by reason, and how many bytes were replaced.

        Raises:
            DataError: The text cannot be read.
        """
        dropped = Counter[str]()
        counts = Counts()
        for line in read_lines(self.path, replace=self.replace, counts=counts):
            if not line.strip():
                dropped["blank line"] += 1
            elif source_key(line) in self.held_out:
                dropped["held-out sentence"] += 1
            else:
                yield line
        if not report:
            return
        for reason, number in dropped.items():
            log.info("%s: dropped %s: %s", self.path, counted(number, "line"), reason)
        if counts.replaced:
            log.info("%s: read %s as U+FFFD", self.path, counted(counts.replaced, "invalid byte"))


def write_lines(lines: Iterable[str], path: Path) -> int:
    """Write lines, and return their number.

    Raises:
        StorageError: The file cannot be written.
    """
    number = 0
    with new_file(path) as file:
        for line in lines:
            file.write(line.encode() + b"\n")
            number += 1
    return number


def write_records(records: Iterable[Record], path: Path) -> int:
    """Write JSON objects, one on each line, and return their number. See `write_lines` for the error."""
    return write_lines((json.dumps(record, ensure_ascii=False) for record in records), path)


def write_pairs(path: Path, pairs: Iterable[Pair], direction: Direction) -> int:
    """Write pairs as JSON objects with a key for each language, and return their number. See `write_lines`."""
    return write_records(({"translation": dict(zip(direction, pair, strict=True))} for pair in pairs), path)


def warning_about(text: Sequence[str], own: Sequence[str], other: Sequence[str], language: str) -> str | None:
    """Return what is suspicious about the language of a text; None if nothing is.

    Args:
        text: Lines of the text.
        own: Sentences of the training pairs in the language that the text should have.
        other: The same sentences in the other language.
        language: The code of the right language.
    """
    script = main_script(text)
    own_script = main_script(own)
    if script and own_script and script != own_script:
        return f"most lines are in {script} script, while the {language} side of the pairs is in {own_script} script"
    in_own = _share_frequent(text, own)
    in_other = _share_frequent(text, other)
    if in_other > in_own and in_other >= MIN_SHARE:
        return (
            f"{in_other:.0%} of its words are frequent in the other side of the pairs, and only {in_own:.0%} in the "
            f"{language} side; are the two sides, or --mono-src and --mono-tgt, swapped?"
        )
    if in_own < MIN_SHARE:
        return f"only {in_own:.0%} of its words are frequent in the {language} side of the pairs; is it {language}?"
    return None


def _share_frequent(text: Sequence[str], sentences: Sequence[str]) -> float:
    """Return the share of the words of a text that are frequent in other sentences; 1 if it has no words.

    In languages that are written without spaces, characters are compared.
    """
    by_character = unspaced(text)
    counts = Counter(word for sentence in sentences for word in _words(sentence, by_character))
    frequent = {word for word, _ in counts.most_common(FREQUENT)}
    words = [word for line in text for word in _words(line, by_character)]
    if not words:
        return 1.0
    return sum(word in frequent for word in words) / len(words)


def _words(text: str, by_character: bool) -> list[str]:
    words = letter_runs(text.casefold())
    return list("".join(words)) if by_character else words


def main_script(texts: Iterable[str]) -> str:
    """Return the script of most texts; empty if they have no letters. See `rules.script`."""
    scripts = Counter("Latin" if name == "latin" else name for name in map(script, texts))
    del scripts[""]
    return max(scripts, key=lambda name: (scripts[name], name), default="")


def is_in_other_language(lines: Sequence[str], own: str, other: str) -> bool:
    """Return True if most lines are in the language `other` and not in `own`. Short lines decide nothing."""
    long_lines = (line for line in lines if num_words(line) >= MIN_WORDS)
    sample = list(islice(long_lines, SAMPLE))
    if len(sample) < MIN_SAMPLE or not (base(own) and base(other)):
        return False
    identifier = LanguageIdentifier((own, other))
    if len(identifier.codes) < 2:
        return False
    guesses = [guess for line in sample for guess in identifier.identify(line)[:1]]
    found = sum(guess.language == other and guess.probability >= SURE for guess in guesses)
    return found >= MIN_FOUND * len(sample)


def has_wrong_script(text: str, expected: str) -> bool:
    """Return True if a text is written in another script than expected. A few Latin words are right in any script."""
    found = script(text)
    return bool(expected) and found not in ("", "latin", expected)


def problem_of(line: str, translation: str, expected_script: str) -> str:
    """Return why a translation of a line is dropped; empty: it is kept.

    Args:
        line: The human text.
        translation: What a model made of it.
        expected_script: The script of most translations.
    """
    if not translation.strip():
        return "empty translation"
    for name, is_broken in _TESTS.items():
        if is_broken(line, translation):
            return name
    if has_wrong_script(translation, expected_script):
        return WRONG_SCRIPT
    if added_repetition(line, translation):
        return REPETITION
    return ""
