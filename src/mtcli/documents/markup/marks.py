"""Sentences with markup: their text, and the tree of their *marks*, which are tags and protected texts.

A *piece* of a sentence is either text or a mark.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby, takewhile

from mtcli.documents.markup.inline import Inline, Kind, ProtectedText, Tag, merged, text_with_references
from mtcli.documents.markup.wrapping import unspaced_at_end, unspaced_at_start
from mtcli.text.placeholders import find_protected, is_kept, is_statement, protected_of
from mtcli.text.symbols import is_symbol

_SPACES = re.compile(r"[ \t\r\n\f\v\u2028\u2029\x1c-\x1e\x85]+")
_TAG_NAME = re.compile(r"<(?P<slash>/?)(?P<name>[A-Za-z][^\s<>/]*|\d+)[^<>]*?(?P<empty>/?)>")
_WORD_BREAK = re.compile(r"<wbr\b", re.IGNORECASE)
"""The tag of HTML for a place within a word where a line may end."""
_LINE_BREAK = re.compile(r"<br\b.*|(?:[\\\s>]|&#(?:0*1[03]|x0*[ad]);)+", re.IGNORECASE | re.DOTALL)
"""A line break of HTML, Word, XML or Markdown. In a quote of Markdown, it ends with the mark of the next line."""
_SEPARATE_SIGNS = re.compile(r"\s*[,;:.!?…)\]–—-]+(?=\s+\S)")
"""Signs between two words, with a space after them."""
_BRACKETS = {"(": ")", "[": "]", "{": "}", "（": "）"}
_MARKUP_SIGNS = frozenset('&<>"\\*_`[]#|~')
"""Characters that some formats write in another way than they are read."""
MAX_DEPTH = 50
"""Open tags around a tag that is written as text and has a partner. Each is a level of recursion."""
CLOSING = ".,;:!?…)]}»”’\"'、。，；：！？）」』"
"""Signs that belong to the word before them."""
OPENING = "([{«„“‘‚¿¡\"'（「『"
"""Signs that belong to the word after them."""


def join_references(sentence: Inline, *, decimals: bool = False) -> Inline:
    """Return a sentence in which protected text with references in it is one tag, such as `9:00&ndash;17:00`.

    For `decimals`, see `placeholders.find_protected`.
    """
    if not any(isinstance(part, Tag) and part.text for part in sentence):
        return sentence
    joined: list[str | Tag] = []
    for has_text, group in groupby(sentence, key=lambda part: isinstance(part, str) or part.text != ""):
        parts = tuple(group)
        joined += _with_joined_references(parts, decimals=decimals) if has_text else parts
    return merged(joined)


def _with_joined_references(parts: Inline, *, decimals: bool) -> list[str | Tag]:
    """Join the references of a part of a sentence without other tags."""
    units = [unit for part in parts for unit in ([part] if isinstance(part, Tag) else part)]
    lengths = [len(unit.text) if isinstance(unit, Tag) else 1 for unit in units]
    index_of = {offset: index for index, offset in enumerate(accumulate(lengths, initial=0))}
    text = text_with_references(parts)
    joined: list[str | Tag] = []
    end = 0
    for span in find_protected(text, decimals=decimals):
        first, last = index_of.get(span[0]), index_of.get(span[1])
        if first is None or last is None or last - first < 2:
            continue
        inside = units[first:last]
        if any(isinstance(unit, Tag) for unit in inside) and not _MARKUP_SIGNS.intersection(inside):
            raw = "".join(unit.raw if isinstance(unit, Tag) else unit for unit in inside)
            joined += [*units[end:first], Tag(raw, text=text[slice(*span)])]
            end = last
    return [*joined, *units[end:]]


def pieces_of(sentence: Inline, *, decimals: bool = False) -> list[str | Tag]:
    """Split a sentence into text and marks. For `decimals`, see `placeholders.find_protected`."""
    pieces: list[str | Tag] = []
    for part in merged(sentence):
        if isinstance(part, Tag):
            pieces.append(part)
            continue
        end = 0
        for start, next_end in find_protected(part, decimals=decimals):
            text = part[start:next_end]
            last = pieces[-1] if pieces and start == end else ""
            if start > end:
                pieces.append(part[end:start])
            elif isinstance(last, ProtectedText) and is_symbol(last.raw) and is_symbol(text):
                text = last.raw + text  # no space may come between them
                del pieces[-1]
            pieces.append(_protected(text))
            end = next_end
        if end < len(part):
            pieces.append(part[end:])
    return _with_unpaired_text_as_points(_with_brackets(pieces))


def _with_brackets(pieces: Sequence[str | Tag]) -> list[str | Tag]:
    """Add brackets around symbols to these, such as `(😀)`: empty brackets would be left for the model."""
    found = list(pieces)
    for before, piece, after in zip(range(len(pieces)), pieces[1:], pieces[2:], strict=False):
        head = found[before]
        if not isinstance(piece, ProtectedText) or not isinstance(head, str) or not isinstance(after, str):
            continue
        if head[-1:] in _BRACKETS and after[:1] == _BRACKETS[head[-1:]] and is_symbol(piece.raw):
            found[before : before + 3] = [head[:-1], ProtectedText(f"{head[-1:]}{piece.raw}{after[0]}"), after[1:]]
    return [piece for piece in found if piece != ""]


def with_joined_neighbors(pieces: Sequence[str | Tag]) -> list[str | Tag]:
    """Return pieces in which protected text without spaces between is one mark, such as `%d%%` and `%H:%M`."""
    joined: list[str | Tag] = []
    for piece in pieces:
        start = len(joined) - (2 if joined and _is_sign(joined[-1]) else 1)
        if start >= 0 and _is_placeholder(piece) and _is_placeholder(joined[start]):
            parts = [*joined[start:], piece]
            text = "".join(part.raw if isinstance(part, Tag) else part for part in parts)
            joined[start:] = [ProtectedText(text)]
        else:
            joined.append(piece)
    return joined


def _is_placeholder(piece: str | Tag) -> bool:
    """Return True for protected text that is no tag."""
    return isinstance(piece, ProtectedText) and not piece.is_markup


def _is_sign(piece: str | Tag) -> bool:
    """Return True for punctuation without spaces."""
    return isinstance(piece, str) and not any(character.isalnum() or character.isspace() for character in piece)


def _protected(text: str) -> ProtectedText:
    tag = _TAG_NAME.fullmatch(text)
    if tag is None:
        return ProtectedText(text)
    name = tag["name"].lower()
    if tag["empty"]:
        return ProtectedText(text, name=name)
    return ProtectedText(text, "close" if tag["slash"] else "open", name=name)


def _with_unpaired_text_as_points(pieces: Sequence[str | Tag]) -> list[str | Tag]:
    """Turn tags that are written as text and have no partner into points: a literal `<br>` needs none.

    So are tags inside of `MAX_DEPTH` others, as no text has them.
    """
    found = list(pieces)
    stack: list[int] = []
    unpaired: list[int] = []
    for index, piece in enumerate(pieces):
        if isinstance(piece, str) or piece.kind == "point":
            continue
        if piece.kind == "open":
            if len(stack) >= MAX_DEPTH and isinstance(piece, ProtectedText):
                unpaired.append(index)
            else:
                stack.append(index)
        elif not isinstance(piece, ProtectedText):
            while stack and _name_at(pieces, stack[-1]):
                unpaired.append(stack.pop())
            if stack:
                stack.pop()
        else:
            # a partner outside of an open tag of the file, which has no name, would cross it
            names = takewhile(bool, (_name_at(pieces, opened) for opened in reversed(stack)))
            if piece.name not in names:
                unpaired.append(index)
                continue
            while _name_at(pieces, stack[-1]) != piece.name:
                unpaired.append(stack.pop())
            stack.pop()
    unpaired += [index for index in stack if _name_at(pieces, index)]
    for index in unpaired:
        piece = found[index]
        assert isinstance(piece, ProtectedText)
        found[index] = replace(piece, kind="point")
    return found


def _name_at(pieces: Sequence[str | Tag], index: int) -> str:
    piece = pieces[index]
    return piece.name if isinstance(piece, ProtectedText) else ""


@dataclass(eq=False)
class Node:
    """A span between two tags, or a point. A span may begin or end in a neighboring sentence."""

    opened: Tag | None
    """The mark at its beginning, or the point itself. None: the span begins in a sentence before this one."""
    start: int
    """Offset in the text of the sentence."""
    closed: Tag | None = None
    """The mark at its end. None: the span ends in a later sentence, or is a point."""
    end: int = 0
    children: list["Node"] = field(default_factory=list)
    space_before: bool = True
    """Of a point: it follows a space."""
    space_after: bool = True
    """Of a point: a space follows it."""
    adds_space: bool = False
    """Of a point: a space that the source does not have follows it in the text, such as after `One<br>two`."""

    @property
    def is_point(self) -> bool:
        """It is no span."""
        return self.opened is not None and self.opened.kind == "point"

    @property
    def begins_earlier(self) -> bool:
        """It is a span that begins in a sentence before this one."""
        return self.opened is None

    @property
    def ends_later(self) -> bool:
        """It is a span that ends in a sentence after this one."""
        return self.closed is None and not self.is_point


@dataclass
class Marked:
    """The core of a sentence: its text, and the tree of its marks, with what stands before and after it."""

    before: list[str | Tag]
    text: str
    """One line without marks, except for the protected spans that the model is given."""
    root: Node
    after: list[str | Tag]


def mark_up(pieces: Sequence[str | Tag], written: Mapping[int, str]) -> Marked:
    """Separate the text of a sentence from its marks.

    White space, points and pairs of tags around the whole text stay outside of it, and so do signs after a point that
    stands for words, such as the colon of "`-x`: explains it", which a model may omit.

    Args:
        pieces: The sentence.
        written: What the model is given for some of the marks, by index. The other marks are not in the text.
    """
    first, last = _core(pieces)
    core = list(pieces[first:last])
    signs = _signs_after_content(pieces[first - 1], core[0]) if first and core else ""
    if signs:
        core[0] = _text_of(core[0]).removeprefix(signs)
    builder = _Builder()
    for index, piece in enumerate(core, first):
        if isinstance(piece, str):
            builder.add_text(piece)
        elif index in written:
            builder.add_text(written[index], exact=True)
        else:
            following = core[index - first + 1] if index + 1 < last else " "
            builder.add_mark(piece, _text_of(following))
    root = builder.finish()  # also trims the text
    head = _first_text(core, "open")
    tail = _first_text(core[::-1], "close")
    space_before = head[: len(head) - len(head.lstrip())]
    space_after = tail[len(tail.rstrip()) :]
    return Marked([*pieces[:first], signs, space_before], builder.text, root, [space_after, *pieces[last:]])


def _signs_after_content(before: str | Tag, piece: str | Tag) -> str:
    """Return the signs that a text after a point begins with, if the point stands for words."""
    if isinstance(piece, Tag) or not isinstance(before, Tag) or not before.is_content:
        return ""
    found = _SEPARATE_SIGNS.match(piece)
    return found[0] if found else ""


def _first_text(pieces: Sequence[str | Tag], kind: Kind) -> str:
    """Return the first text if only tags of one kind are before it, otherwise an empty text."""
    for piece in pieces:
        if isinstance(piece, str):
            return piece
        if piece.kind != kind:
            break
    return ""


def _text_of(piece: str | Tag) -> str:
    """Return the text of a piece where spaces around it count; a tag has none."""
    return piece if isinstance(piece, str) else "" if piece.is_markup else piece.raw


def _core(pieces: Sequence[str | Tag]) -> tuple[int, int]:
    """Return the range of pieces without those around the text that need not be moved with words."""
    partners = _partners_of(pieces)
    first, last = 0, len(pieces)
    while first < last:
        head, tail = pieces[first], pieces[last - 1]
        if _is_outside(head) or _is_alone(head, partners.get(first), "close"):
            first += 1
        elif _is_outside(tail) or _is_alone(tail, partners.get(last - 1), "open"):
            last -= 1
        elif _has_no_text(pieces, first, partners.get(first)):
            first = partners[first] + 1
        elif _has_no_text(pieces, partners.get(last - 1), last - 1):
            last = partners[last - 1]
        elif isinstance(head, Tag) and partners.get(first) == last - 1:
            first += 1
            last -= 1
        else:
            break
    return first, last


def _has_no_text(pieces: Sequence[str | Tag], opened: int | None, closed: int | None) -> bool:
    """Return True for a pair of tags without words, such as `<i class="icon"></i>` and `<a><img></a>`."""
    if opened is None or closed is None:
        return False
    return all(
        _is_outside(piece) or (isinstance(piece, Tag) and piece.kind != "point") for piece in pieces[opened:closed]
    )


def _is_outside(piece: str | Tag) -> bool:
    """Return True for white space, and for a point with no place in the grammar of a sentence."""
    if isinstance(piece, str):
        return not piece.strip()
    return piece.kind == "point" and (
        piece.is_markup or not any(map(str.isalnum, piece.raw)) or (not piece.is_joined and is_symbol(piece.raw))
    )


def _is_alone(piece: str | Tag, partner: int | None, kind: Kind) -> bool:
    return isinstance(piece, Tag) and piece.kind == kind and partner is None


def _partners_of(pieces: Sequence[str | Tag]) -> dict[int, int]:
    """Return the index of the partner of each tag that has one in the sentence."""
    partners: dict[int, int] = {}
    stack: list[int] = []
    for index, piece in enumerate(pieces):
        if isinstance(piece, str) or piece.kind == "point":
            continue
        if piece.kind == "open":
            stack.append(index)
        elif stack:
            partners[index] = stack.pop()
            partners[partners[index]] = index
    return partners


class _Builder:
    """The text and the tree of a sentence, built from left to right."""

    def __init__(self) -> None:
        self.text = ""
        self.root = Node(None, 0)
        self.stack = [self.root]
        self._last_point: Node | None = None
        """The last mark, if it is a point, or if only the tags of pairs follow it."""

    def add_text(self, text: str, *, exact: bool = False) -> None:
        """Add text. Runs of spaces become one space, except in a protected span."""
        if not exact:
            text = _SPACES.sub(" ", text)
        if not self.text or self.text[-1] == " ":
            text = text.lstrip(" ")
        if text:
            self._adjust_to_next(text)
            self.text += text
            self._last_point = None

    def _adjust_to_next(self, text: str) -> None:
        """Keep words around a point apart, and punctuation after a point beside the word before it."""
        last = self._last_point
        if last is None or not self.text:
            return
        if text[0] in CLOSING and self.text[-1] == " " and last.space_before and not last.space_after:
            self.text = self.text[:-1]
            _clip(self.root, len(self.text))
        elif not text[0].isspace() and not self.text[-1].isspace():
            markup = last.opened.raw if last.opened else ""
            is_unspaced = unspaced_at_end(self.text) and unspaced_at_start(text)
            if _LINE_BREAK.fullmatch(markup):
                last.adds_space = not is_unspaced
            elif _begins_word(text[0]) and _ends_word(self.text[-1]):
                last.adds_space = not (is_unspaced or _WORD_BREAK.match(markup))
            self.text += " " if last.adds_space else ""

    def add_mark(self, mark: Tag, next_text: str) -> None:
        """Add a mark that is followed by some text."""
        here = len(self.text)
        parent = self.stack[-1]
        if mark.kind == "point":
            before = not self.text or self.text[-1].isspace()
            node = Node(mark, here, end=here, space_before=before, space_after=next_text[:1].isspace())
            parent.children.append(node)
            self._last_point = node
        elif mark.kind == "open":
            node = Node(mark, here)
            parent.children.append(node)
            self.stack.append(node)
        elif len(self.stack) > 1:
            node = self.stack.pop()
            node.closed = mark
            node.end = here
        else:  # its partner is in an earlier sentence: everything so far is inside
            node = Node(None, 0, mark, here, children=self.root.children)
            self.root.children = [node]

    def finish(self) -> Node:
        """Return the root of the tree."""
        self.text = self.text.rstrip(" ")
        for node in self.stack:
            node.end = len(self.text)
        _clip(self.root, len(self.text))
        return self.root


def _begins_word(character: str) -> bool:
    """Return True for a character that a space separates from the word before it."""
    return character.isalnum() or (character in OPENING and character not in CLOSING)


def _ends_word(character: str) -> bool:
    """Return True for a character that a space separates from the word after it."""
    return character.isalnum() or (character in CLOSING and character not in OPENING)


def _clip(node: Node, length: int) -> None:
    """Move offsets behind the end of the text to its end."""
    node.start = min(node.start, length)
    node.end = min(node.end, length)
    for child in node.children:
        _clip(child, length)


TagTree = tuple[str, str, tuple["TagTree", ...]]
"""The tags of a span or point, and the shapes inside, sorted."""


def is_faithful(source: Inline, translation: Inline, *, decimals: bool = False) -> bool:
    """Return True if a translation has the marks of its source, each unchanged, and tags nested in the same way.

    Placeholders such as `%s`, which a program fills in the order in which they are written, are also in their order,
    and so are the statements of templates. For `decimals`, see `placeholders.find_protected`.
    """
    if shape_of(source) != shape_of(translation) or _statements(source) != _statements(translation):
        return False
    return is_kept(
        protected_of(_texts(source), decimals=decimals), protected_of(_texts(translation), decimals=decimals)
    )


def shape_of(sentence: Inline) -> TagTree:
    """Return how the tags of a sentence are nested. Neighbors may change places, as words do."""
    builder = _Builder()
    for piece in pieces_of(sentence):
        if isinstance(piece, Tag) and (piece.is_markup or piece.is_joined):
            builder.add_mark(piece, "")
    return _shape(builder.root)


def _statements(sentence: Inline) -> list[str]:
    """Return the marks that must keep their order: statements such as `{% if x %}`, and the variables beside them."""
    marks = [piece.raw for piece in pieces_of(sentence) if isinstance(piece, Tag)]
    if not any(map(is_statement, marks)):
        return []
    return [mark for mark in marks if is_statement(mark) or mark.startswith("{{")]


def _shape(node: Node) -> TagTree:
    opened = node.opened.raw if node.opened else ""
    closed = node.closed.raw if node.closed else ""
    return opened, closed, tuple(sorted(map(_shape, node.children)))


def _texts(sentence: Inline) -> list[str]:
    return [part for part in merged(sentence) if isinstance(part, str)]
