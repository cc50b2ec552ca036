"""Protected text: what a translation must contain exactly as its source does, such as `%s`, `{name}` or a URL.

A model trained with `text.placeholders` has ten tokens that stand for such text, see `with_tokens`. In a text, they are
ten private characters of Unicode, so that vocabularies, exports and alignments need no special case.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from mtcli.text import symbols
from mtcli.text.numbers import is_alike
from mtcli.text.protected_rules import BBCODE, HINT, PRINTF, START, pattern

TOKENS: Final = tuple(chr(0x10FF00 + number) for number in range(10))
"""The characters of the placeholder tokens."""

_IN_ORDER = re.compile(rf"(?:{PRINTF})|\{{(?:![rsa])?(?::[^{{}}]*)?\}}")
_STATEMENT = re.compile(
    r"\{%.*|<%(?![=#-]).*|<\?(?!=).*|\{\{[-~]?\s*(?:[#/^]|(?:if|else|end|range|with|block|define)\b).*|"
    rf"{BBCODE}",
    re.DOTALL,
)
_DIGIT = re.compile(r"\d")
_NUMBERED = re.compile(r"%\d+\$")

_COPIED_WORD = re.compile(r"(?<!\S)[\w-]*\w(?=[.,;:!?]?(?!\S))")
MIN_COPIED = 4
"""Characters of a word for which a placeholder token may stand if it is the same in both languages."""
REPLACED = 2
"""The protected text of one pair out of this many is replaced, so that the model also learns to copy it."""
COPIES = 3
"""Of the other pairs, copied words of one out of this many are replaced."""
ADDED = 16
"""One pair out of this many without any copied word gets a token at the beginning or the end of both sides."""

LONG = 2_000
"""Characters of a text from which the search lets other threads run, see `_found`."""

Offsets = tuple[int, int]
"""The start and the end of a part of a text."""


def find_protected(text: str, *, decimals: bool = False) -> list[Offsets]:
    """Return the spans of a text that must not be translated, in order. They do not overlap.

    They are URLs, e-mail addresses, paths and names of files, tags written as text, placeholders of common formats
    (`%s`, `%1$s`, `%(name)s`, `%1`, `{name}`, `{0:.2f}`, `{{x}}`, `${x}`, `$VAR`, ICU messages), `&entities;`,
    `@names`, `#tags`, symbols (see `symbols`), numbers with units, and numbers that languages write alike (see
    `numbers.is_alike`).

    Args:
        text: The text.
        decimals: Source and target write decimals alike, see `numbers.same_signs`.
    """
    return [match.span() for match in _matches(text, decimals=decimals)]


def without_symbols(text: str) -> str:
    """Return a text without the symbols in it, see `symbols`."""
    kept = []
    end = 0
    for start, next_end in find_protected(text):
        if symbols.is_symbol(text[start:next_end]):
            kept.append(text[end:start])
            end = next_end
    return "".join([*kept, text[end:]])


def is_part_of_protected(span: Offsets, protected: Iterable[Offsets]) -> bool:
    """Return True if a span has a part of a protected one, but not all of it."""
    start, end = span
    return any(
        other < end and start < other_end and (other < start or end < other_end) for other, other_end in protected
    )


def _matches(text: str, *, decimals: bool) -> Iterator[re.Match[str]]:
    """Yield the matches of protected text."""
    if not HINT.search(text):
        return
    for match in _found(text):
        is_figure = (match.lastgroup or "").startswith("figure")
        if not is_figure or is_alike(match[0], decimals=decimals):
            yield match


def _found(text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of the pattern of protected text.

    A search that finds nothing in megabytes of punctuation takes minutes, in which no other thread of the process runs.
    So a long text is searched place by place, with the same matches.
    """
    protected = pattern()
    if len(text) < LONG:
        yield from protected.finditer(text)
        return
    end = 0
    for start in START.finditer(text):
        if start.start() < end:
            continue
        match = protected.match(text, start.start())
        if match:
            end = match.end()
            yield match


def is_statement(mark: str) -> bool:
    """Return True for protected text that begins, divides or ends a block, such as `{% if x %}` and `[b]`.

    Such marks must keep their order.
    """
    return _STATEMENT.fullmatch(mark) is not None


def _is_number(match: re.Match[str]) -> bool:
    return match.lastgroup is not None


def with_tokens(src: str, tgt: str) -> tuple[str, str]:
    """Return a training pair in which placeholder tokens stand for some text that is the same on both sides.

    This is protected text and, because few corpora have much of it, words such as names and numbers. Only text that
    occurs once on each side is replaced. Some other pairs get a token at one end. The choice and the numbers of the
    tokens depend on the pair alone.
    """
    key = crc32(f"{src}\t{tgt}".encode("utf-8", "replace"))
    tokens = [TOKENS[(key // 7 + number) % len(TOKENS)] for number in range(len(TOKENS))]
    protected = _shared(_protected_texts(src), _protected_texts(tgt))
    words = _shared(_words(src), _words(tgt))[:2]
    replaced: list[str] = []
    if protected:
        replaced = protected if key % REPLACED == 0 else []
    elif words:
        replaced = words if key % COPIES == 0 else []
    elif key % (2 * ADDED) == 0:
        return f"{tokens[0]} {src}", f"{tokens[0]} {tgt}"
    elif key % (2 * ADDED) == 1:
        return f"{src} {tokens[0]}", f"{tgt} {tokens[0]}"
    for text, token in zip(replaced, tokens, strict=False):
        if src.count(text) == 1 and tgt.count(text) == 1:
            src = src.replace(text, token)
            tgt = tgt.replace(text, token)
    return src, tgt


def _protected_texts(text: str) -> list[str]:
    return [text[start:end] for start, end in find_protected(text)]


def _words(text: str) -> list[str]:
    return [word for word in _COPIED_WORD.findall(text) if len(word) >= MIN_COPIED]


def _shared(src: Sequence[str], tgt: Sequence[str]) -> list[str]:
    """Return what occurs once on both sides, in the order of the source."""
    return [text for text in src if src.count(text) == 1 and tgt.count(text) == 1]


@dataclass(frozen=True)
class Protected:
    """The protected spans of a text."""

    counts: Counter[str]
    """How often each span occurs."""
    numbers: frozenset[str]
    """Those that are numbers."""
    in_order: tuple[str, ...]
    """Placeholders that a program fills in the order in which they are written, such as `%s` and `{}`."""
    has_free_numbers: bool
    """There are digits outside of the spans, or no number at all, so a translation may have other numbers."""


def protected_of(texts: Iterable[str], *, decimals: bool = False) -> Protected:
    """Return the protected spans of the texts of one sentence; see `find_protected`."""
    counts: Counter[str] = Counter()
    numbers = set()
    in_order = []
    has_free_digits = False
    for text in texts:
        end = 0
        for match in _matches(text, decimals=decimals):
            has_free_digits = has_free_digits or _DIGIT.search(text, end, match.start()) is not None
            end = match.end()
            counts[match[0]] += 1
            if _is_number(match):
                numbers.add(match[0])
            elif _IN_ORDER.fullmatch(match[0]) and not _NUMBERED.match(match[0]):
                in_order.append(match[0])
        has_free_digits = has_free_digits or _DIGIT.search(text, end) is not None
    return Protected(counts, frozenset(numbers), tuple(in_order), has_free_digits or not numbers)


def is_kept(source: Protected, translation: Protected) -> bool:
    """Return True if a translation has exactly the protected spans of its source, and no wrong order.

    A source with numbers that are not protected, or without any, may have a translation with new numbers: "three
    kilometres" is "3 km" elsewhere.
    """
    found = translation.counts
    if source.has_free_numbers:
        new = translation.numbers - source.counts.keys()
        found = Counter({text: number for text, number in found.items() if text not in new})
    return found == source.counts and translation.in_order == source.in_order


def without_added(
    text: str, allowed: Counter[str], *, numbers: bool, source: Collection[str] = (), decimals: bool = False
) -> str:
    """Delete the protected spans of a text that are not allowed, or that occur more often than allowed.

    Args:
        text: A translation.
        allowed: How often each span may occur.
        numbers: Delete all such numbers. Otherwise, only those that the source has.
        source: Spans of the source.
        decimals: See `find_protected`.
    """
    while HINT.search(text):
        remaining = allowed.copy()
        kept = []
        end = 0
        for match in _matches(text, decimals=decimals):
            if _is_number(match) and not numbers and match[0] not in source:
                continue
            if remaining[match[0]] > 0:
                remaining[match[0]] -= 1
                continue
            kept.append(text[end : match.start()])
            end = match.end()
        if not kept:
            return text
        # The parts that remain may form another span together, so they are searched again.
        text = "".join([*kept, text[end:]])
    return text
