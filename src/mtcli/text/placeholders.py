"""Protected text: what a translation must contain exactly as its source does, such as `%s`, `{name}` or a URL.

A model trained with `text.placeholders` has ten tokens that stand for such text, see `with_tokens`. In a text, they are
ten private characters of Unicode, so that vocabularies, exports and alignments need no special case.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final
from zlib import crc32

from mtcli.text import symbols
from mtcli.text.numbers import FIGURE, LETTERED_FIGURE, LETTERED_MEASURE, MEASURE, is_alike

_CONVERSION = r"(?:hh?|ll?|[Lqjzt])?[diouxXeEfFgGaAcspn@]"
# The flags keep all zeros (`*+`): shared with the width, they would take quadratic time in `%0000`.
_PRINTF = (
    rf"%(?:\d+\$)?[-+#0']*+(?:\d+|\*(?:\d+\$)?)?(?:\.(?:\d+|\*(?:\d+\$)?)?)?{_CONVERSION}|"
    r"%[-+#0']*+\d*<PRI\w+>"
)
_PYTHON = r"%\([^()\s]+\)[-+#0]*+\d*(?:\.\d+)?[diouxXeEfFgGcrsa]"
_GO = r"%\[\d+\][-+# 0]*+\d*(?:\.\d+)?[A-Za-z]"
_QT = r"%L?(?:\d{1,2}|n)\b"
# Of dates and logs, such as `%m`; not the sign of percent in `5 %x`.
_LETTER = r"(?<!\d)(?<!\d[ \u00a0\u202f])%[-_^#]?[A-Za-z](?!\w)"
# Braces may contain braces: `{n, plural, one {# file} other {# files}}`.
_INNER_BRACES = r"\{[^{}]*+\}"
for _ in range(4):
    _INNER_BRACES = rf"\{{(?:[^{{}}]|{_INNER_BRACES})*+\}}"
_ICU = rf"\{{\s*[\w.]+\s*,\s*[A-Za-z]\w*\s*(?:,(?:[^{{}}]|{_INNER_BRACES})*+)?\}}"
_FIELD = (
    r"[$#%@]?!?\{\s?[$@#/^&>!.*-]{0,2}[\w.\[\]'-]*(?:\([^(){}]*\))?(?:,\s?-?\d+)?(?:![rsa])?"
    r"(?:\s?[:|?][^{}\n]{0,40})?\s?\}"
)
_TEMPLATE = (
    r"\{\{\{[^{}\n]*\}\}\}|[$#]?\{\{[^{}\n]*\}\}|\{\{[^\n]{0,300}?\}\}|\{%[^\n]{0,300}?%\}|\{#[^\n]{0,300}?#\}|"
    r"<%[^\n]{0,300}?%>|<\?[^\n]{0,300}?\?>|\{(?:\\[^{}\s\\]{1,40}){1,9}\}"
)
_OTHER_NAMES = (
    r"\[X\d+X\]|%\d{1,2}![^!\s]{1,20}!|\$\([A-Za-z_][\w.]*\)|\\\([\w.]{1,60}\)|(?<!\w)__[A-Za-z]\w{0,60}?__(?!\w)|"
    r"(?<![\w@/])@[A-Za-z_]\w{1,60}(?:[.-][a-z0-9_]\w{0,60}){0,5}(?![\w@])|"
    r"(?<![\w#&/])(?:#\w{0,80}[^\W\d]\w{0,80}){1,20}(?!\w)|(?<!\S)--[a-z][\w-]{0,60}\b|(?<!\w)@[A-Z_]{2,60}@(?!\w)"
)
# Names after a colon, as of Laravel, and `:smile:`; code between backticks, also with a role of reStructuredText.
_CODE = (
    r"(?:(?<![\w:`]):[A-Za-z][\w+-]{0,60}(?::[A-Za-z][\w+-]{0,60})?:)?"
    r"(?:(?<!`)``(?!`)(?:[^`\n']|'(?!')){1,200}``(?!`)|(?<![\w`])`(?!\s)[^`'\n]{0,100}(?<!\s)`(?![\w`]))|"
    r"(?<![\w:`/)\]}>.-]):[A-Za-z_]\w{1,60}(?:[+-]\w{1,60}){0,3}(?:\b|(?<=_)):?(?![\w:])"
)
# Escapes such as `\n`, also before a word that begins in upper case, and commands of TeX.
_BACKSLASH = r"(?<!\\)\\(?:[A-Za-z](?![a-z])|[A-Za-z]{2,30}\*?)"
_BBCODE_NAMES = "b|i|u|s|url|img|quote|code|color|size|font|center|list|spoiler|email|table|tr|td|li"
_BBCODE = rf"\[(?:/(?i:{_BBCODE_NAMES})|(?i:{_BBCODE_NAMES})(?:=[^\[\]\n]{{0,300}})?|\*)\]"
_IDENTIFIER = r"(?<![\w$%])[A-Za-z]\w{0,60}\(\)|(?<!\w)[A-Za-z][A-Za-z0-9]{0,60}(?:_[A-Za-z0-9]{1,60}){1,10}(?!\w)"
_CJK = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"
_URL_UNIT = rf"\([^\s()<>]{{0,60}}\)|\{{[\w.]{{0,40}}\}}|(?<=[/=_])[{_CJK}]+"
_URL_PART = rf"(?:[^\s<>\"'{{}}()“”„«»{_CJK}]|{_URL_UNIT}|(?<=\w)'(?=\w))*"
_URL_END = rf"(?:[^\s<>\"'{{}}()“”„«».,;:!?\[\]…{_CJK}]|{_URL_UNIT})/?"
_URL = (
    rf"(?:https?|ftps?|sftp|file|ssh|git|wss?|s3|tel|urn|data|magnet|doi):(?://)?(?=[\w/?+%\[]){_URL_PART}{_URL_END}|"
    rf"[a-z][a-z0-9+.-]{{1,20}}://{_URL_PART}{_URL_END}|"
    rf"www\.[\w-]+(?:\.[\w-]+)+(?:[/?#:]{_URL_PART}{_URL_END})?/?"
)
# At most 64 characters, as in RFC 5321: without a limit, the search takes quadratic time in `a.a.a.a`.
_EMAIL = r"(?:mailto:)?[\w.+'-]{1,64}@[\w-]++(?:\.[\w-]+)+(?:\?\w+=[\w%&=+.-]*\w|:[\w.-]{0,64}/[\w./-]*\w)?"
_SUFFIXES = (
    "html?|xhtml|php|aspx?|jsp|js|mjs|tsx?|jsx|py|txt|pdf|docx?|xlsx?|pptx?|odt|csv|tsv|json|xml|ya?ml|toml|zip|gz|tgz|"
    "tar|xz|exe|dll|msi|dmg|deb|rpm|apk|jar|png|jpe?g|gif|svg|webp|mp[34]|wav|cfg|conf|ini|log|sh|bat|css|cpp|hpp|java|"
    "md|sql|iso|srt|vtt|xliff|tmx"
)
_HOST_ENDS = "com|org|net|io|gov|edu|info|dev|app|ai|br|ch|cn|cz|de|eu|fr|jp|kr|nl|pl|ru|tv|uk"
_NAME = r"(?<![\w.@/\\-])(?:[\w.+-]{1,64}/){0,20}[\w-]{1,64}(?:\.[\w-]{1,64}){0,8}"
_FILE = (
    rf"{_NAME}\.(?:(?:{_SUFFIXES})(?![\w-])(?:[?#]{_URL_PART}{_URL_END})?|"
    rf"(?i:{_HOST_ENDS})(?![\w.-])(?:/{_URL_PART}{_URL_END})?/?)|"
    rf"(?<![\w.@/\\-])(?:[a-z\d-]{{2,64}}\.){{1,5}}[a-z]{{2,3}}/{_URL_PART}{_URL_END}"
)
_DRIVE = (
    r"(?<!\w)[A-Za-z]:(?:/[\w.+@*-]*[\w*])+|"
    r"(?<!\w)[A-Za-z]:\\(?:[\w.()$~-]+(?: [\w.()$~-]+){0,4}\\){0,40}(?:[\w.()$~*-]*[\w*])?"
)
_PATH = (
    r"\$(?:[A-Z_]{2,40}|\{[A-Z_]{2,40}\})(?:/[\w.+@*-]*[\w*])+|"
    r"(?<![\w\\])\\\\[\w.-]+(?:\\[\w.$-]*[\w$])+|%[A-Z_]{2,40}%(?:\\[\w.$-]*[\w$])+|"
    r"(?<![\w/<.~])(?:~|\.{1,2})?(?:/[\w.+@*-]*[\w*]){2,}/?|(?<![\w/<.~])(?:~|\.{1,2})(?:/[\w.+@*-]*[\w*])+/?|"
    r"(?<![\w/<])/[\w/-]{0,80}[#?][\w!#/?=&%.-]*\w"
)
_ENTITY = r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
_TAG = r"</?[A-Za-z][^<>]*>|</?\d{1,3} ?/?>|<!--[^<>]*-->"
TOKENS: Final = tuple(chr(0x10FF00 + number) for number in range(10))
"""The characters of the placeholder tokens."""
_TOKEN = f"[{TOKENS[0]}-{TOKENS[-1]}]"

_ORDERED = (
    # A sign of percent after a number, as in the German word `30%ige`, begins no placeholder.
    rf"(?<!\d)(?:{_PRINTF})|(?:{_PRINTF})(?!\w)"
)
# The first character decides which patterns are tried. Most places of a text are inside words, where none begins.
_NOT_IN_WORD = "(?<![A-Za-z0-9_])"
_PROTECTED = (
    rf"{_NOT_IN_WORD}(?=[^\W\d_])(?:{_URL}|{_EMAIL}|{_DRIVE}|{symbols.LETTERED_SYMBOL}|{_IDENTIFIER}|{_FILE}|"
    rf"(?P<number_of_letters>{LETTERED_MEASURE}|(?P<figure_of_letters>{LETTERED_FIGURE})))|"
    rf"{_NOT_IN_WORD}(?=\d)(?:{_EMAIL}|{symbols.NUMBERED_SYMBOL}|{_FILE}|(?P<number>{MEASURE}|(?P<figure>{FIGURE})))|"
    rf"(?=[^\w\s]|_)(?:{_TAG}|{_PATH}|{_TEMPLATE}|{_ICU}|{_FIELD}|{_PYTHON}|{_ORDERED}|{_OTHER_NAMES}|{_GO}|{_QT}|"
    rf"{symbols.SYMBOL}|%%|%[A-Z_]{{2,}}%|{_LETTER}|\$[A-Za-z_]\w*(?:\$(?!\w))?|{_CODE}|{_BBCODE}|{_BACKSLASH}|{_ENTITY}|{_TOKEN}|{_FILE}|"
    rf"(?P<signed_number>{MEASURE}|(?P<signed_figure>{FIGURE})))"
)
_START = re.compile(rf"{_NOT_IN_WORD}[^\W_]|[^\w\s]|_")
"""Where protected text may begin, as in `_PROTECTED`."""
_NUMBER_GROUPS = ("number", "number_of_letters", "signed_number")
_FIGURE_GROUPS = ("figure", "figure_of_letters", "signed_figure")
_IN_ORDER = re.compile(rf"(?:{_PRINTF})|\{{(?:![rsa])?(?::[^{{}}]*)?\}}")
_STATEMENT = re.compile(
    r"\{%.*|<%(?![=#-]).*|<\?(?!=).*|\{\{[-~]?\s*(?:[#/^]|(?:if|else|end|range|with|block|define)\b).*|"
    rf"{_BBCODE}",
    re.DOTALL,
)
_DIGIT = re.compile(r"\d")
_NUMBERED = re.compile(r"%\d+\$")

_SIGNS = rf"%$&{{<@`\[\d\\/_\u00bc-\u00be{symbols.ALWAYS}\U0010ff00-\U0010ffff"
# It begins with a set of characters, for which `re` searches fast.
_HINT = re.compile(
    rf"[{_SIGNS}.:({symbols.SOMETIMES}-](?:(?<=[{_SIGNS}])|(?<=[\w:][.:])(?=\w)|(?<=:)(?=[A-Za-z_])|(?<=--)(?=\w)|"
    rf"(?<=\w\()(?=\))|{symbols.AFTER_SOMETIMES})"
)
"""A text without any of these has nothing protected. This test takes a fraction of the time of the search."""

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


@cache
def _pattern() -> re.Pattern[str]:
    """Return the compiled pattern of protected text. Compiling takes a quarter of a second, which few texts need."""
    return re.compile(_PROTECTED)


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
    if not _HINT.search(text):
        return
    for match in _found(text):
        figure = any(match[name] is not None for name in _FIGURE_GROUPS)
        if not figure or is_alike(match[0], decimals=decimals):
            yield match


def _found(text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of the pattern of protected text.

    A search that finds nothing in megabytes of punctuation takes minutes, in which no other thread of the process runs.
    So a long text is searched place by place, with the same matches.
    """
    pattern = _pattern()
    if len(text) < LONG:
        yield from pattern.finditer(text)
        return
    end = 0
    for start in _START.finditer(text):
        if start.start() < end:
            continue
        match = pattern.match(text, start.start())
        if match:
            end = match.end()
            yield match


def is_statement(mark: str) -> bool:
    """Return True for protected text that begins, divides or ends a block, such as `{% if x %}` and `[b]`.

    Such marks must keep their order.
    """
    return _STATEMENT.fullmatch(mark) is not None


def _is_number(match: re.Match[str]) -> bool:
    return any(match[name] is not None for name in _NUMBER_GROUPS)


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
    while _HINT.search(text):
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
