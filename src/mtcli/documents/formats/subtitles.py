"""Subtitles: .srt (SubRip) and .vtt (WebVTT).

The text of a cue is translated. Times, identifiers, settings, styles, regions and notes stay as they are. A cue of
several lines is one text: its translation has as many lines, of about the same length. Lines of a dialogue, which begin
with a dash, stay lines of their own. The libraries `srt` and `webvtt-py` write a file in their own layout, so the cues
are found here.

A sentence over several cues is one text for the model, and divided again. Adjacent cues are one text if the first has
no mark of a sentence's end and the second continues it: it begins with a lower-case letter, or the first ends with a
comma. Cues with a pause between them, dialogues and songs stay texts of their own, and so do long runs of such cues,
which are captions without punctuation.

Between the cues, the text has a point like `<br>`, which goes to the place that the word alignment gives. Where this
leaves a cue without text or with far more than its share, the words are divided in proportion to the source.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from rich.cells import cell_len

from mtcli.documents.formats.encoding import decode
from mtcli.documents.formats.escapes import escape, references_of
from mtcli.documents.formats.format import ReadOptions
from mtcli.documents.formats.items import Item, make_span, text_items, texts_and_matches
from mtcli.documents.formats.slots import UNESCAPED, Copy, Edit, SlotDocument, Span
from mtcli.documents.formats.structure import Digest, Shape
from mtcli.documents.markup.inline import Inline, Tag, merged, text_of
from mtcli.documents.markup.marks import OPENING
from mtcli.documents.markup.wrapping import SEPARATE_CLOSING, balanced, units, unspaced_at_end, unspaced_at_start
from mtcli.errors import DataError

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
_LINE = re.compile(r"(?P<text>[^\r\n]*)(?:\r\n|\n|\r|\Z)")
_LINE_BREAK = re.compile(r"(?:(?<![ \t])[ \t]++)?(?:\r\n|\n|\r)[ \t]*+")
_SRT_TIME = r"\d{1,3}:\d{1,2}:\d{1,2}(?:[,.:]\d{1,3})?"
_SRT_TIMING = re.compile(rf"\s*(?P<start>{_SRT_TIME})\s*-->\s*(?P<end>{_SRT_TIME})")
_VTT_TIME = r"(?:\d{1,}:)?\d{2}:\d{2}\.\d{3}"
_VTT_TIMING = re.compile(rf"\s*(?P<start>{_VTT_TIME})\s*-->\s*(?P<end>{_VTT_TIME})")
_CLOCK = re.compile(r"(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d+)(?:[,.:](?P<fraction>\d+))?")
_TAG = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z]\w*+)[^<>]*+>|<[\d:.]+>|\{\\[^{}]*\}")
_DIALOGUE = re.compile(r"\s*+(?:<[^<>]*+>|\{\\[^{}]*+\})*+\s*+[-–—‐](?!\s*\d)\s*")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line without its end."""

    start: int
    text: str

    @property
    def end(self) -> int:
        """Offset after its last character."""
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class _Cue:
    """A cue with the texts to translate."""

    start: int
    """In milliseconds."""
    end: int
    """In milliseconds."""
    spans: Sequence[Span]
    """One text, or several of different speakers or blocks."""
    is_whole: bool
    """All lines of the cue are one text of one speaker."""


def read(content: bytes, options: ReadOptions) -> SlotDocument:
    """Read subtitles.

    Raises:
        DataError: See `encoding.decode`; or the file has text, but no times of a cue.
    """
    source = decode(content, options.name)
    is_vtt = options.suffix == ".vtt"
    timings = list(_timings(source.text, is_vtt=is_vtt))
    has_no_cues = is_vtt and source.text.startswith("WEBVTT") and "-->" not in source.text
    if not timings and source.text.strip() and not has_no_cues:
        example = "00:01.000 --> 00:02.000" if is_vtt else "00:00:01,000 --> 00:00:02,000"
        raise DataError(f"{options.name}: no subtitles: no line gives the times of a cue, such as {example}")
    cues = [_cue(source.text, timing, blocks, has_references=is_vtt) for timing, blocks in timings]
    return SlotDocument(source, list(_sentences(cues)))


def structure(content: bytes, options: ReadOptions) -> int:
    """Return a hash of the times of the cues and the tree of tags in each, see `format.Structure`."""
    text = decode(content, options.name).text
    digest = Digest()
    for timing, blocks in _timings(text, is_vtt=options.suffix == ".vtt"):
        digest.add(timing.string)
        for block in blocks:
            digest.add(len(block))
            shape = Shape()
            for tag in _TAG.finditer(text, block[0].start, block[-1].end):
                name = (tag["name"] or "").lower()
                if not name:
                    shape.point(tag[0])
                elif tag["close"]:
                    shape.close(name)
                else:
                    shape.open(name, tag[0])
            digest.add(shape.finish())
    return digest.value


def _timings(text: str, *, is_vtt: bool) -> Iterator[tuple[re.Match[str], list[list[_Line]]]]:
    """Yield the match of the times of each cue, and the blocks of its text."""
    timing = _VTT_TIMING if is_vtt else _SRT_TIMING
    lines = [_Line(match.start(), match["text"]) for match in _LINE.finditer(text)]
    matches = ((number, timing.match(line.text)) for number, line in enumerate(lines))
    timings = [(number, match) for number, match in matches if match is not None]
    ends = [*(number for number, _ in timings), len(lines)][1:]
    for (number, match), end in zip(timings, ends, strict=True):
        yield match, list(_blocks(lines[number + 1 : end], ends_at_blank=is_vtt, before_cue=end < len(lines)))


def _cue(text: str, timing: re.Match[str], blocks: Sequence[Sequence[_Line]], *, has_references: bool) -> _Cue:
    """Return a cue, given the match of its times and its lines. With references, `&amp;` stands for `&`."""
    groups = [group for block in blocks for group in _groups(block)]
    spans = [_span(text, group, has_references=has_references) for group in groups]
    is_whole = len(groups) == 1 and not _DIALOGUE.match(groups[0][0].text)
    found = [span for span in spans if span is not None]
    return _Cue(_milliseconds(timing["start"]), _milliseconds(timing["end"]), found, is_whole)


def _milliseconds(time: str) -> int:
    """Return a time of a cue, such as `00:01:02,500`, in milliseconds."""
    match = _CLOCK.fullmatch(time)
    assert match is not None
    hours = int((match["hours"] or "0")[-9:])  # int() refuses thousands of digits
    seconds = 60 * (60 * hours + int(match["minutes"])) + int(match["seconds"])
    return 1000 * seconds + int((match["fraction"] or "0").ljust(3, "0"))


def _blocks(lines: Sequence[_Line], *, ends_at_blank: bool, before_cue: bool) -> Iterator[list[_Line]]:
    """Yield the blocks of text between the times of a cue and those of the next.

    Args:
        lines: The lines between.
        ends_at_blank: A blank line ends the cue. In .srt files, it is sometimes part of the text.
        before_cue: Another cue follows; its number, which is the last line, is not text.
    """
    if before_cue and not ends_at_blank and lines and lines[-1].text.strip().isdecimal():
        lines = lines[:-1]
    block: list[_Line] = []
    for line in lines:
        if line.text.strip():
            block.append(line)
            continue
        if block:
            yield block
        block = []
        if ends_at_blank:
            return
    if block:
        yield block


def _groups(block: Sequence[_Line]) -> Iterator[list[_Line]]:
    """Yield the lines of each speaker, who begins with a dash."""
    group: list[_Line] = []
    for line in block:
        if group and _DIALOGUE.match(line.text):
            yield group
            group = []
        group.append(line)
    yield group


def _span(text: str, group: Sequence[_Line], *, has_references: bool) -> Span | None:
    """Return the span of lines that are one text, or None if they have no letter."""
    dash = _DIALOGUE.match(group[0].text)
    start = group[0].start + (dash.end() if dash else 0)
    items = list(_items(text, start, group[-1].end, has_references=has_references))
    span = make_span(text, items, UNESCAPED)
    if span is None:
        return None
    content = text[span.start : span.end]
    encode = partial(escape, references=references_of(content)) if has_references else str
    newline = "\r\n" if "\r\n" in content else "\n"
    render = partial(_rendered, encode=encode, num_lines=len(_LINE_BREAK.findall(content)) + 1, newline=newline)
    return replace(span, render=render)


def _items(text: str, start: int, end: int, *, has_references: bool) -> Iterator[Item]:
    """Yield the text and the tags of a part of the file."""
    for first, last, tag in texts_and_matches(_TAG.finditer(text, start, end), start, end):
        name = (tag["name"] or "").lower() if tag else ""
        if name:
            yield Item(first, last, "close" if tag and tag["close"] else "open", name=name)
        elif tag:
            yield Item(first, last, "point")
        elif has_references:
            yield from text_items(text, first, last)
        else:
            yield Item(first, last, "text", text[first:last])


def _rendered(
    translation: Inline, _: Mapping[str, str], encode: Callable[[str], str], num_lines: int, newline: str
) -> str:
    """Return the translation of a text with its number of lines."""
    flat = tuple(part if isinstance(part, Tag) else _LINE_BREAK.sub(" ", part) for part in translation)
    lines = balanced(flat, num_lines)
    return "".join(part.raw if isinstance(part, Tag) else newline.join(map(encode, part.split("\n"))) for part in lines)


@dataclass(frozen=True, slots=True)
class _Sentence:
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


def _sentences(cues: Sequence[_Cue]) -> Iterator[_Sentence]:
    """Yield the texts of the cues. Those of a run of cues, each of which continues the one before it, are one."""
    runs: list[list[_Cue]] = []
    for cue in cues:
        if runs and _continues(runs[-1][-1], cue):
            runs[-1].append(cue)
        else:
            runs.append([cue])
    for run in runs:
        if 1 < len(run) <= MAX_CUES:
            yield _Sentence([cue.spans[0] for cue in run])
        else:
            yield from (_Sentence([span]) for cue in run for span in cue.spans)


def _continues(cue: _Cue, following: _Cue) -> bool:
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


def _can_be_joined(cue: _Cue) -> bool:
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
    widths = [cell_len(text_of(source)) for source in sources]
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
    own_widths = [cell_len(text_of(part)) for part in parts]
    scale = MAX_SHARE * sum(own_widths) / sum(widths)
    return all(0 < own <= scale * width for own, width in zip(own_widths, widths, strict=True))


def _in_proportion(translation: Sequence[str | Tag], widths: Sequence[int]) -> list[Inline]:
    """Divide a translation at word boundaries outside of tags, in proportion to the widths of the source.

    With too few words, each part is the whole translation.
    """
    whole = _trimmed(merged(translation))
    words = list(_words(whole))
    if len(words) < len(widths):
        return [whole for _ in widths]
    total = sum(cell_len(text_of(word)) for word in words)
    parts: list[Inline] = []
    first = 0
    wanted = 0.0
    used = 0
    for number, width in enumerate(widths):
        wanted += total * width / sum(widths)
        last = len(words) - (len(widths) - number - 1)  # leaves a word for each of the other parts
        end = first + 1
        used += cell_len(text_of(words[first]))
        while end < last and (number == len(widths) - 1 or used + cell_len(text_of(words[end])) / 2 <= wanted):
            used += cell_len(text_of(words[end]))
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
