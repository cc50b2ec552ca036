"""Subtitles: .srt (SubRip) and .vtt (WebVTT).

The text of a cue is translated. Times, identifiers, settings, styles, regions and notes stay as they are. A cue of
several lines is one text: its translation has as many lines, of about the same length. Lines of a dialogue, which begin
with a dash, stay lines of their own. A sentence over several cues is one text, see `cue_sentences`.

The libraries `srt` and `webvtt-py` write a file in their own layout, so the cues are found here.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath

from mtcli.documents.formats.cue_sentences import Cue, sentences
from mtcli.documents.formats.encoding import decode
from mtcli.documents.formats.escapes import escape, references_of
from mtcli.documents.formats.format import ReadOptions
from mtcli.documents.formats.items import Item, make_span, text_items
from mtcli.documents.formats.slots import UNESCAPED, SlotDocument, Span
from mtcli.documents.formats.structure import Digest, Shape
from mtcli.documents.markup.inline import Inline, Tag
from mtcli.documents.markup.wrapping import balanced
from mtcli.errors import DataError

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


def read(content: bytes, options: ReadOptions) -> SlotDocument:
    """Read subtitles.

    Raises:
        DataError: See `encoding.decode`; or the file has text, but no times of a cue.
    """
    source = decode(content, options.name)
    is_vtt = _is_vtt(options)
    timings = list(_timings(source.text, is_vtt=is_vtt))
    has_no_cues = is_vtt and source.text.startswith("WEBVTT") and "-->" not in source.text
    if not timings and source.text.strip() and not has_no_cues:
        example = "00:01.000 --> 00:02.000" if is_vtt else "00:00:01,000 --> 00:00:02,000"
        raise DataError(f"{options.name}: no subtitles: no line gives the times of a cue, such as {example}")
    cues = [_cue(source.text, timing, blocks, has_references=is_vtt) for timing, blocks in timings]
    return SlotDocument(source, list(sentences(cues)))


def structure(content: bytes, options: ReadOptions) -> int:
    """Return a hash of the times of the cues and the tree of tags in each, see `format.Structure`."""
    text = decode(content, options.name).text
    digest = Digest()
    for timing, blocks in _timings(text, is_vtt=_is_vtt(options)):
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


def _is_vtt(options: ReadOptions) -> bool:
    return PurePath(options.name).suffix.lower() == ".vtt"


def _timings(text: str, *, is_vtt: bool) -> Iterator[tuple[re.Match[str], list[list[_Line]]]]:
    """Yield the match of the times of each cue, and the blocks of its text."""
    timing = _VTT_TIMING if is_vtt else _SRT_TIMING
    lines = [_Line(match.start(), match["text"]) for match in _LINE.finditer(text)]
    matches = ((number, timing.match(line.text)) for number, line in enumerate(lines))
    timings = [(number, match) for number, match in matches if match is not None]
    ends = [*(number for number, _ in timings), len(lines)][1:]
    for (number, match), end in zip(timings, ends, strict=True):
        yield match, list(_blocks(lines[number + 1 : end], ends_at_blank=is_vtt, before_cue=end < len(lines)))


def _cue(text: str, timing: re.Match[str], blocks: Sequence[Sequence[_Line]], *, has_references: bool) -> Cue:
    """Return a cue.

    Args:
        text: The file.
        timing: The match of its times.
        blocks: Its lines.
        has_references: `&amp;` stands for `&`.
    """
    groups = [group for block in blocks for group in _groups(block)]
    spans = [_span(text, group, has_references=has_references) for group in groups]
    is_whole = len(groups) == 1 and not _DIALOGUE.match(groups[0][0].text)
    found = [span for span in spans if span is not None]
    return Cue(_milliseconds(timing["start"]), _milliseconds(timing["end"]), found, is_whole)


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
    found = make_span(text, items, UNESCAPED)
    if found is None:
        return None
    content = text[found.start : found.end]
    references = references_of(content)
    encode = partial(escape, references) if has_references else str
    newline = "\r\n" if "\r\n" in content else "\n"
    render = partial(_rendered, encode=encode, num_lines=len(_LINE_BREAK.findall(content)) + 1, newline=newline)
    return Span(found.start, found.end, found.segment, render)


def _items(text: str, start: int, end: int, *, has_references: bool) -> Iterator[Item]:
    """Yield the text and the tags of a part of the file."""
    place = start
    for match in _TAG.finditer(text, start, end):
        yield from _text_items(text, place, match.start(), has_references=has_references)
        name = (match["name"] or "").lower()
        if not name:
            yield Item(*match.span(), "point")
        elif match["close"]:
            yield Item(*match.span(), "close", name=name)
        else:
            yield Item(*match.span(), "open", name=name)
        place = match.end()
    yield from _text_items(text, place, end, has_references=has_references)


def _text_items(text: str, start: int, end: int, *, has_references: bool) -> Iterator[Item]:
    if start < end and has_references:
        yield from text_items(text, start, end)
    elif start < end:
        yield Item(start, end, "text", text[start:end])


def _rendered(
    translation: Inline, _: Mapping[str, str], encode: Callable[[str], str], num_lines: int, newline: str
) -> str:
    """Return the translation of a text with its number of lines."""
    flat = tuple(part if isinstance(part, Tag) else _LINE_BREAK.sub(" ", part) for part in translation)
    lines = balanced(flat, num_lines)
    return "".join(part.raw if isinstance(part, Tag) else newline.join(map(encode, part.split("\n"))) for part in lines)
