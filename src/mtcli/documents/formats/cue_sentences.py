"""Sentences over several cues of subtitles: joined for the model, and divided again.

Adjacent cues are one text if the first has no mark of a sentence's end and the second continues it: it begins with a
lower-case letter, or the first ends with a comma. Cues with a pause between them, dialogues and songs stay texts of
their own, and so do long runs of such cues, which are captions without punctuation.

Between the cues, the text has a point like `<br>`, which goes to the place that the word alignment gives. Where this
leaves a cue without text or with far more than its share, the words are divided in proportion to the source.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mtcli.documents.formats.slots import Copy, Edit, Span
from mtcli.documents.markup.inline import Inline, Tag, merged, text_of
from mtcli.documents.markup.marks import OPENING
from mtcli.documents.markup.wrapping import SEPARATE_CLOSING, cells, units, unspaced_at_end, unspaced_at_start

MAX_PAUSE = 2000
"""Milliseconds between two cues of one sentence."""

MAX_OVERLAP = 200
"""Milliseconds that both of two cues of one sentence are shown: times are rounded."""

MAX_CUES = 6
"""Cues of one sentence. Longer runs have no punctuation at all."""

MAX_SHARE = 2.0
"""Share of the translation that a cue may have, relative to its share of the source."""

CUE_END = Tag("\n\n")
"""The end of a cue within a sentence. No tag of a file looks like this."""

_QUOTES = "\"'”’»」』"
_SENTENCE_END = frozenset(".!?…:;。！？：；।؟])）】")
_COMMA = frozenset(",،、，")
_CLOSING = re.compile(rf"{SEPARATE_CLOSING}|[、。，．；：！？）」』】》]+")
_SONG = re.compile("[♪♫#]")


@dataclass(frozen=True, slots=True)
class Cue:
    """A cue with the texts to translate."""

    start: int
    """In milliseconds."""
    end: int
    """In milliseconds."""
    spans: Sequence[Span]
    """One text, or several of different speakers or blocks."""
    is_whole: bool
    """All lines of the cue are one text of one speaker."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """The texts of cues that are one sentence, or a single text; see `slots.Slot`."""

    spans: Sequence[Span]

    @property
    def segment(self) -> Inline:
        """The texts, joined."""
        return joined([span.segment for span in self.spans])

    def edits(self, translation: Inline, copy: Copy) -> Sequence[Edit]:
        """See `Slot.edits`."""
        texts = divided(translation, [span.segment for span in self.spans])
        return [edit for span, text in zip(self.spans, texts, strict=True) for edit in span.edits(text, copy)]


def sentences(cues: Sequence[Cue]) -> Iterator[Sentence]:
    """Yield the texts of the cues."""
    run = list(cues[:1])
    for cue, following in pairwise(cues):
        if not _continues(cue, following):
            yield from _sentences_of_run(run)
            run = []
        run.append(following)
    yield from _sentences_of_run(run)


def _sentences_of_run(run: Sequence[Cue]) -> Iterator[Sentence]:
    """Yield the texts of a run of cues, each of which continues the one before it."""
    if 1 < len(run) <= MAX_CUES:
        yield Sentence([cue.spans[0] for cue in run])
    else:
        yield from (Sentence([span]) for cue in run for span in cue.spans)


def _continues(cue: Cue, following: Cue) -> bool:
    """Return True if the following cue continues the text of a cue."""
    if not -MAX_OVERLAP <= following.start - cue.end <= MAX_PAUSE:
        return False
    if not (_can_be_joined(cue) and _can_be_joined(following)):
        return False
    last = text_of(cue.spans[0].segment).rstrip().rstrip(_QUOTES)[-1:]
    next_text = text_of(following.spans[0].segment).lstrip(f" {OPENING}")
    if last in _SENTENCE_END or not next_text[:1].isalnum():
        return False
    return next_text[0].islower() or last in _COMMA


def _can_be_joined(cue: Cue) -> bool:
    """Return True if the text of a cue may be a part of a sentence, and has no markup that belongs to its times."""
    if not cue.is_whole or len(cue.spans) != 1:
        return False
    segment = cue.spans[0].segment
    has_point = any(isinstance(part, Tag) and part.kind == "point" for part in segment)
    return not has_point and not _SONG.search(text_of(segment))


def joined(segments: Sequence[Inline]) -> Inline:
    """Return the segments of one sentence as one, with `CUE_END` between them."""
    parts: list[str | Tag] = list(segments[0])
    for segment, following in pairwise(segments):
        without_space = unspaced_at_end(text_of(segment)) and unspaced_at_start(text_of(following))
        space = "" if without_space else " "
        parts += [space, CUE_END, space, *following]
    return merged(parts)


def divided(translation: Inline, sources: Sequence[Inline]) -> list[Inline]:
    """Divide the translation of joined segments.

    Args:
        translation: The translation of `joined(sources)`.
        sources: The segments.

    Returns:
        The translation of each segment. If there are fewer words than segments, each has the whole translation.
    """
    if len(sources) == 1:
        return [translation]
    if translation == joined(sources):
        return list(sources)
    parts = _with_closing_punctuation([_trimmed(part) for part in _parts(translation)])
    widths = [cells(text_of(source)) for source in sources]
    if len(parts) == len(sources) and _is_balanced(parts, widths):
        return parts
    whole = joined([part for part in parts if part] or [()])
    return _in_proportion(tuple(part for part in whole if part != CUE_END), widths)


def _parts(translation: Inline) -> Iterator[Inline]:
    """Yield the parts between the ends of cues."""
    part: list[str | Tag] = []
    for piece in translation:
        if piece == CUE_END:
            yield tuple(part)
            part = []
        else:
            part.append(piece)
    yield tuple(part)


def _with_closing_punctuation(parts: Sequence[Inline]) -> list[Inline]:
    """Move punctuation at the beginning of a part to the end of the part before it."""
    moved: list[Inline] = list(parts[:1])
    for part in parts[1:]:
        first = part[0] if part and isinstance(part[0], str) else ""
        found = _CLOSING.match(first)
        if found and text_of(moved[-1]):
            space = "" if unspaced_at_start(found[0]) else " "
            moved[-1] = merged([*moved[-1], space + found[0]])
            part = _trimmed((first[found.end() :], *part[1:]))
        moved.append(part)
    return moved


def _is_balanced(parts: Sequence[Inline], widths: Sequence[int]) -> bool:
    """Return True if each part has text, and none has far more than its share."""
    own_widths = [cells(text_of(part)) for part in parts]
    scale = MAX_SHARE * sum(own_widths) / sum(widths)
    return all(0 < own <= scale * width for own, width in zip(own_widths, widths, strict=True))


def _in_proportion(translation: Sequence[str | Tag], widths: Sequence[int]) -> list[Inline]:
    """Divide a translation at word boundaries outside of tags, in proportion to the widths of the source.

    Returns:
        The parts, each with text. If there are too few words, each part is the whole translation.
    """
    whole = _trimmed(merged(translation))
    words = list(_words(whole))
    if len(words) < len(widths):
        return [whole for _ in widths]
    total = sum(cells(text_of(word)) for word in words)
    parts: list[Inline] = []
    first = 0
    wanted = 0.0
    used = 0
    for number, width in enumerate(widths):
        wanted += total * width / sum(widths)
        last = len(words) - (len(widths) - number - 1)  # leaves a word for each of the other parts
        end = first + 1
        used += cells(text_of(words[first]))
        while end < last and (number == len(widths) - 1 or used + cells(text_of(words[end])) / 2 <= wanted):
            used += cells(text_of(words[end]))
            end += 1
        parts.append(_trimmed(merged(part for word in words[first:end] for part in word)))
        first = end
    return parts


def _words(translation: Inline) -> Iterator[Inline]:
    """Yield the words of a translation with the space before them. Text in a pair of tags belongs to one word."""
    open_tags = 0
    word: list[str | Tag] = []
    for part in translation:
        if isinstance(part, Tag) or open_tags:
            word.append(part)
            if isinstance(part, Tag):
                open_tags += {"open": 1, "close": -1, "point": 0}[part.kind]
            continue
        end = 0
        for _, start, next_end in units(part):
            if word and start:
                yield tuple(word)
                word = []
            word.append(part[end:next_end])
            end = next_end
        if end < len(part):
            if word:
                yield tuple(word)
            word = [part[end:]]
    if word:
        yield tuple(word)


def _trimmed(segment: Inline) -> Inline:
    """Return a segment without white space at its ends."""
    parts = list(merged(segment))
    if parts and isinstance(parts[0], str):
        parts[0] = parts[0].lstrip()
    if parts and isinstance(parts[-1], str):
        parts[-1] = parts[-1].rstrip()
    return merged(parts)
