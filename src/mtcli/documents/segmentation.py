"""Split text into sentences, and long sentences into clauses. The parts always concatenate to the text."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice, pairwise

from mtcli.documents.markup.inline import Inline, Tag, merged, text_of, text_with_references
from mtcli.text import languages
from mtcli.text.list_marks import LIST_ON_ONE_LINE
from mtcli.text.placeholders import find_protected
from mtcli.text.recasing import NOUNS_WITH_CAPITALS
from mtcli.text.writing_systems import UNSPACED
from mtcli.translate.windows import MAX_LINE_TOKENS

_OTHER_SPACE = re.compile(r"[^\S\n\r\t ]")
"""White space that sentencex 1.0 does not expect: an initial after a no-break space stops it with an error."""

WINDOW = 10_000
"""Characters that sentencex reads at a time."""

MAX_QUOTES = 1_000
"""Quotation marks that sentencex reads at a time. Its time grows with the square of their number.

Prose has fewer in `WINDOW` characters, also where most of it is speech.
"""

_QUOTE = re.compile("[`'\"«»‘’‚“”‛„‟‹›《》「」]")
"""What sentencex takes for a quotation mark."""

_CLAUSE_END = re.compile(r"[,;:](?=\s)|\s[–—]+(?=\s)|—|[،؛]|[、，；：]")
"""Punctuation after which a long sentence is split. `1,000`, `10:30` and hyphens do not count."""

_TABS = re.compile(r"(?<!\s) *+\t[ \t]*+(?=\S)")

_SPACE = re.compile(r"\s+")

_CLOSING = "\"'”’»)）」』】》］]"
"""Signs that may follow the mark at the end of a sentence."""

_MOST_CLOSING = 20

_MARKS_WITHOUT_SPACE = "。！？｡．।॥။།՞։؟۔።"
"""Marks at the end of a sentence after which not all texts have a space."""

_LETTERS = "À-ÖØ-öø-ʯΆΈ-ΡΣ-ϿЀ-ҁҊ-ԯ"
"""Letters of scripts with spaces between words: Latin, Greek and Cyrillic."""

_MAY_END_INSIDE = re.compile(rf"[^\w\s,;\-/(\[{{<]\s+\S|[^\x00-\x7f{_LETTERS}]|\n")
"""A text without a match has one sentence. This test takes a fraction of the time of sentencex."""

_LOWER = "a-zß-öø-ÿά-ώа-џ"
_UPPER = "A-ZÀ-ÖØ-ÞΑ-ΫЀ-Я"
_UNSPACED_END = re.compile(
    rf"(?:(?<![.\w])[{_LOWER}'’]{{2,}}|(?:^|(?<=[.!?]\s))[{_UPPER}][{_LOWER}'’]+)[.!?]"
    rf"(?=[{_UPPER}][{_LOWER}]*(?:[.!?]?(?:\s|$)|,))|"
    rf"(?<=[A-Za-z{_LETTERS}])(?:\.{{3,}}|…)(?=[A-Za-z{_LETTERS}]{{2}})|"
    rf"(?<![.\w])[{_LOWER}'’]{{2,}}[!?]+(?=[{_LOWER}]{{2}})|"
    rf"(?<=[A-Za-z{_LETTERS}])[.!?…]+(?=[¿¡])"
)
"""The end of a sentence after which the space was forgotten, as in `is cooking.She is`, `wait...What` and `no!why?`.

A word with a capital inside a sentence may be a name, such as `System.Out`, so only the first word may have one.
"""

_INITIALS = re.compile(r"(?<!\w)(?:\w\.[ -]?)*[^\W\d_]\.\s*\Z")
"""Initials of names and abbreviations of single letters at the end of a text: `J.-C. `, `M. `, `p.m. `."""

_TITLE = re.compile(
    r"(?<!\w)(?:Dr|Dra|Prof|Sr|Sra|Srta|Sta|Sto|Dña|Exmo|Exma|Fam|Mme|Mlle|Mw|Dhr|págs?|pp|nr|núm|approx)\.\s*\Z",
    re.IGNORECASE,
)
"""Abbreviations at the end of a text that stand before a name or a number, also where sentencex does not know them."""

_ORDINAL = re.compile(r"(?<=\w\s)\d{1,2}\.\s*\Z")
"""A number with a point at the end of a text, behind a word."""

_WITH_ORDINALS = (
    "bs", "cs", "da", "de", "et", "eu", "fi", "fo", "hr", "hu", "is", "lb", "lv", "nb", "nn", "no", "pl", "se", "sk",
    "sl", "sr", "tr",
)  # fmt: skip
"""Languages that write ordinals with a point: `19. Jahrhundert`."""

_SPEAKER = re.compile(rf"\s*(?:[-–—]\s*)?[{_UPPER}][{_UPPER}.' -]{{1,30}}:\s+(?=\S)")
"""The name of a speaker, or a label: `ANA: Hello.`, `NOTE: Do not touch.`"""

_CAPTION = re.compile(rf"\s*(?:[-–—]\s*)?(?:\[([^\[\]\n]{{2,60}})\]|\(([^()\n]{{2,60}})\)):?\s+(?=([{_UPPER}¿¡])?\S)")
"""A text in brackets before a sentence, such as a sound in subtitles: `[music] Hello.`, `(LAUGHS) Hello.`"""

_LONGEST_LABEL = 100
"""Characters of the longest label with the spaces around it."""

_LONGEST_ABBREVIATION = 40
"""Characters before and after a mark that decide whether it ends a sentence or an abbreviation."""

_BULLET = re.compile(r"(?<=\S)\s+(?=(?:[•●▪◦‣|→⇒↔⇔➔➜]|[-=]+>|<[-=]+>)\s+\S)")
"""The space before an item of a list on one line, and before a bar or an arrow between two clauses."""
_BRACKETS = re.compile(r"(?<=[.!?…][)\]])\s+(?=[(\[])")
"""The space between two sentences in brackets."""
_SHOUTED = re.compile(r"(?<=[!?])[!?]+\s+(?=\w)")
"""The end of a sentence with several marks, also before a word in lower case."""
_NUMBERED_LIST = re.compile(r"\s*(?:1([.)])\s+\S.*\s2\1|a\)\s+\S.*\sb\))\s+\S")
"""The beginning of a line with several numbered items: `1. one 2. two`, `a) one b) two`."""
_ITEM_NUMBER = re.compile(r"(?<!\S)(?:\d{1,2}[.)]|[a-z]\))\s+(?=\S)")
"""The number of an item of such a list."""

_ITEM = {"*": re.compile(r"(?<=\S)\s+(?=\*\s+\S)"), "-": re.compile(r"(?<=\S)\s+(?=-\s+\S)")}
"""The space before an item of a list whose first mark is this one, see `LIST_ON_ONE_LINE`."""

_WORD = rf"[A-Za-z{_LETTERS}]++(?:['’-][A-Za-z{_LETTERS}]++)*+"
_PLAIN = re.compile(rf"{_WORD}(?:,? {_WORD})*+[.!?]?")

MAX_MARKS = 200
"""Tags and protected texts of a sentence. The time to place them grows with the square of their number, and each
level of nested tags takes one level of recursion.
"""


def is_plain(segment: Inline) -> bool:
    """Return True for one sentence of words, commas and single spaces, without tags and protected text.

    Most lines of most texts are such. They need none of the work of this module.
    """
    return len(segment) == 1 and isinstance(segment[0], str) and _PLAIN.fullmatch(segment[0]) is not None


def split_sentences(text: str, language: str) -> list[str]:
    """Split text into sentences. The spaces between two sentences belong to the first one.

    A sentence ends only before a space, after a mark of a script without spaces, or where the space was forgotten, and
    never inside protected text (see `placeholders.find_protected`). So `ASP.NET` and `page.aspx?ID=5` stay whole. An
    item of a list on one line is a sentence.

    Args:
        text: Any text.
        language: Its language, as a code or a name. Languages without rules of their own have those of English.

    Raises:
        ModuleNotFoundError: sentencex is not installed.
    """
    unspaced = [
        match.end()
        for match in _UNSPACED_END.finditer(text)
        if match[0][-1] != "." or _is_end(text, match.end(), language)
    ]
    items = LIST_ON_ONE_LINE.match(text)
    if len(text) <= WINDOW and not (unspaced or items or _MAY_END_INSIDE.search(text)):
        return [text] if text else []
    blocked = _Blocked(text)
    ends = [end for end, is_forced in _proposed_ends(text, language) if is_forced or _may_end(text, end, language)]
    ends += unspaced
    ends += [match.end() for pattern in (_BULLET, _BRACKETS, _SHOUTED) for match in pattern.finditer(text)]
    if items:
        ends += [match.end() for match in _ITEM[items[1]].finditer(text)]
    if _NUMBERED_LIST.match(text):
        for number in _ITEM_NUMBER.finditer(text):
            ends.append(number.start())
            if not any(map(str.isalpha, number[0])):
                ends.append(number.end())
    ends += [start + _length_of_label(text[start : start + _LONGEST_LABEL], language) for start in [0, *ends]]
    return _cut(text, [end for end in ends if end not in blocked])


def _is_end(text: str, end: int, language: str) -> bool:
    """Return True if a sentence would end before an offset if there were a space, as it would not in `Mr.Smith`."""
    from sentencex import segment

    code = languages.base(language) or language
    before = text[max(0, end - _LONGEST_ABBREVIATION) : end]
    after = text[end : end + _LONGEST_ABBREVIATION]
    spaced = _OTHER_SPACE.sub(" ", f"{before} {after}")
    ends = accumulate(map(len, segment(code, spaced)))
    return any(len(before) <= found <= len(before) + 1 for found in ends)


def _proposed_ends(text: str, language: str) -> Iterator[tuple[int, bool]]:
    """Yield the offsets after the sentences that sentencex finds, and True where a very long one must be divided."""
    from sentencex import segment

    code = languages.base(language) or language
    plain = _OTHER_SPACE.sub(" ", text)  # has the same length
    start = 0
    while start < len(text):
        end = _end_of_window(plain, start)
        found = segment(code, plain[start:end])
        is_forced = False
        if end < len(text):
            last = found.pop()  # the window ends inside of it
            if not found:
                found = [_whole_words(last)]
                is_forced = True
        for sentence in found:
            start += len(sentence)
            yield start, is_forced


def _end_of_window(text: str, start: int) -> int:
    """Return the end of what sentencex reads at a time, see `WINDOW` and `MAX_QUOTES`."""
    end = start + WINDOW
    quotes = _QUOTE.finditer(text, start, end)
    first_beyond = next(islice(quotes, MAX_QUOTES, None), None)
    return first_beyond.start() if first_beyond else end


def _length_of_label(text: str, language: str) -> int:
    """Return the length of the name of a speaker, or of the text in brackets, before the first sentence of a text."""
    speaker = _SPEAKER.match(text)
    if speaker:
        return speaker.end()
    caption = _CAPTION.match(text)
    if caption is None:
        return 0
    words = caption[1] or caption[2]
    # A word with a capital begins a sentence, but not where nouns have one: `(alte) Häuser`.
    is_before_capital = caption[3] is not None and languages.base(language) not in NOUNS_WITH_CAPITALS
    is_label = words.isupper() or (words[0].islower() and is_before_capital)
    return caption.end() if is_label else 0


def _may_end(text: str, end: int, language: str) -> bool:
    """Return True if a sentence may end before this offset."""
    if end == len(text):
        return True
    if _ends_with_abbreviation(text[max(0, end - _LONGEST_ABBREVIATION) : end], text[end], language):
        return False
    if text[end - 1].isspace():
        return True
    before = text[max(0, end - _MOST_CLOSING - 1) : end].rstrip(_CLOSING)[-1:]
    return UNSPACED.match(text, end) is not None or (before in _MARKS_WITHOUT_SPACE and before != "")


def _ends_with_abbreviation(text: str, following: str, language: str) -> bool:
    """Return True if the full stop at the end of a text ends no sentence.

    Where a full stop may be either, as in `J. Smith` and `vitamin C. It`, it ends none: a model translates two
    sentences together better than half of one.

    Args:
        text: The text, with the space behind it.
        following: The character behind that.
        language: Its language.
    """
    code = languages.base(language)
    if _TITLE.search(text):
        return True
    if code in _WITH_ORDINALS and _ORDINAL.search(text):
        return True
    initials = _INITIALS.search(text)
    if initials is None:
        return False
    return following.islower() or (code != "en" and initials[0].isupper())  # sentencex knows those of English names


class _Blocked:
    """The offsets inside protected text, where a text is never divided."""

    def __init__(self, text: str) -> None:
        spans = find_protected(text, decimals=True)
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]

    def around(self, offset: int) -> tuple[int, int] | None:
        """Return the protected span that an offset is inside of; None: in none."""
        number = bisect_left(self._starts, offset) - 1
        if number < 0 or offset >= self._ends[number]:
            return None
        return self._starts[number], self._ends[number]

    def __contains__(self, offset: int) -> bool:
        return self.around(offset) is not None


def _cut(text: str, ends: Iterable[int]) -> list[str]:
    """Cut a text at offsets. No part is empty."""
    places = sorted({0, *ends, len(text)})
    return [text[start:end] for start, end in pairwise(places)]


def _whole_words(part: str) -> str:
    """Return a part of a text without the word at its end, unless it is the only one."""
    spaces = list(_SPACE.finditer(part.rstrip()))
    return part[: spaces[-1].end()] if spaces and spaces[-1].start() else part


def split_segment(segment: Inline, language: str) -> list[Inline]:
    """Split a segment with markup into sentences, and at tabs, which separate columns, or a menu item from its key.

    A closing tag between two sentences belongs to the first one, other tags there belong to the second.

    Raises:
        ModuleNotFoundError: sentencex is not installed.
    """
    text = text_with_references(segment)
    ends = [*accumulate(map(len, split_sentences(text, language)))]
    tabs = [match.end() for match in _TABS.finditer(text)]
    if tabs:
        blocked = _Blocked(text)
        ends += [tab for tab in tabs if tab not in blocked]
    return _split_at(segment, _lengths_of_text(segment, [len(part) for part in _cut(text, ends)]))


def _lengths_of_text(segment: Inline, lengths: Sequence[int]) -> list[int]:
    """Return the lengths of the parts of a text without the characters of references, which are in `lengths`."""
    places = []
    place = 0
    for part in segment:
        text = part.text if isinstance(part, Tag) else part
        if isinstance(part, Tag) and text:
            places.append(place)
        place += len(text)
    found = []
    end = 0
    for length in lengths:
        start = end
        end += length
        found.append(length - bisect_left(places, end) + bisect_left(places, start))
    return [length for length in found if length]


def split_long(sentence: Inline, num_tokens: Callable[[str], int], longest: int) -> list[Inline]:
    """Split a sentence into parts of at most `longest` tokens: at clause marks, otherwise at spaces.

    A part with neither stays longer, but has at most `MAX_LINE_TOKENS` tokens, beyond which a translator would cut it.
    Protected text (see `placeholders.find_protected`) is never split, so a part may be longer because of it.

    Args:
        sentence: The sentence.
        num_tokens: Returns the number of tokens of a text.
        longest: The most tokens of a part.
    """
    longest = min(longest, MAX_LINE_TOKENS)
    text = text_of(sentence)
    if len(text.encode(errors="replace")) < longest:  # a token has at least one byte
        return [sentence]
    if num_tokens(text) <= longest:
        return [sentence]
    ends = _part_ends(text, (0, len(text)), _Blocked(text), num_tokens, longest)
    return _split_at(sentence, [len(part) for part in _cut(text, ends)])


def split_marks(sentence: Inline) -> list[Inline]:
    """Split a sentence into parts of at most `MAX_MARKS` tags and protected texts, such as tags that are text.

    No text has so many, but broken and hostile files do.
    """
    parts: list[list[str | Tag]] = [[]]
    num_marks = 0
    for piece, is_mark in _texts_and_marks(sentence):
        if is_mark:
            if num_marks == MAX_MARKS:
                parts.append([])
                num_marks = 0
            num_marks += 1
        parts[-1].append(piece)
    return [merged(part) for part in parts]


def _texts_and_marks(sentence: Inline) -> Iterator[tuple[str | Tag, bool]]:
    """Yield the texts, tags and protected texts of a sentence in order, and False for each text."""
    for part in sentence:
        if isinstance(part, Tag):
            yield part, True
            continue
        end = 0
        for start, next_end in find_protected(part):
            yield part[end:start], False
            yield part[start:next_end], True
            end = next_end
        yield part[end:], False


def _part_ends(
    text: str, span: tuple[int, int], blocked: _Blocked, num_tokens: Callable[[str], int], longest: int
) -> Iterator[int]:
    """Yield the ends of the parts of a span of a text, see `split_long`."""
    start, end = span
    number = num_tokens(text[start:end])
    middle = None if number <= longest else _middle(text, span, blocked)
    if middle is None and number > MAX_LINE_TOKENS:
        middle = _any_middle(span, blocked)
    if middle is None:
        yield end
        return
    yield from _part_ends(text, (start, middle), blocked, num_tokens, longest)
    yield from _part_ends(text, (middle, end), blocked, num_tokens, longest)


def _middle(text: str, span: tuple[int, int], blocked: _Blocked) -> int | None:
    """Return the offset after the clause mark, or otherwise the space, that divides a span of a text most evenly.

    Without spaces, a text may be divided after any character of a script that has none between words.

    Returns:
        None if there is no place where both parts have text.
    """
    content = text[slice(*span)]
    first = span[0] + len(content) - len(content.lstrip())
    last = span[0] + len(content.rstrip())
    for pattern in (_CLAUSE_END, _SPACE, UNSPACED):
        places = [match.end() for match in pattern.finditer(text, first, last)]
        inside = [place for place in places if first < place < last and place not in blocked]
        if inside:
            return min(inside, key=lambda place: abs(2 * place - first - last))
    return None


def _any_middle(span: tuple[int, int], blocked: _Blocked) -> int | None:
    """Return the offset nearest to the middle of a span that is not inside protected text; None: there is none."""
    start, end = span
    middle = (start + end) // 2
    places = blocked.around(middle) or (middle,)
    inside = [place for place in places if start < place < end]
    return min(inside, key=lambda place: abs(place - middle), default=None)


def _split_at(segment: Inline, lengths: Sequence[int]) -> list[Inline]:
    """Split a segment into parts whose texts have these lengths."""
    if len(lengths) < 2:
        return [segment]
    pieces: list[list[str | Tag]] = [[]]
    remaining = list(lengths[::-1])
    for part in segment:
        if isinstance(part, Tag):
            if not remaining[-1] and part.kind != "close" and len(remaining) > 1:
                remaining.pop()
                pieces.append([])
            pieces[-1].append(part)
            continue
        start = 0
        while start < len(part):
            if not remaining[-1]:
                remaining.pop()
                pieces.append([])
            end = min(len(part), start + remaining[-1])
            pieces[-1].append(part[start:end])
            remaining[-1] -= end - start
            start = end
    return [tuple(piece) for piece in pieces]
