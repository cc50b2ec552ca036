"""Which text is protected: the table of rules, and one pattern of all of them.

`placeholders` finds the text and compares translations with their sources. Each rule has examples in
`tests/test_protected_rules.py`, which fails for a rule without any.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from mtcli.text import symbols
from mtcli.text.number_rules import NUMBER_RULES
from mtcli.text.rule import Rule, Start
from mtcli.text.symbols import SYMBOL_RULES

_LETTER = (Start.LETTER,)
_EVERYWHERE = (Start.LETTER, Start.DIGIT, Start.SIGN)

# ---- parts of several rules ----

_TYPE = r"(?:hh?|ll?|[Lqjzt])?[diouxXeEfFgGaAcspn@]"
# The flags keep all zeros (`*+`): shared with the width, they would take quadratic time in `%0000`.
_CONVERSION = rf"%(?:\d+\$)?[-+#0']*+(?:\d+|\*(?:\d+\$)?)?(?:\.(?:\d+|\*(?:\d+\$)?)?)?{_TYPE}"
_MACRO_CONVERSION = r"%[-+#0']*+\d*<PRI\w+>"
PRINTF: Final = f"{_CONVERSION}|{_MACRO_CONVERSION}"
"""Pattern of a conversion of `printf`, which takes the next argument unless it has a number."""


def _not_of_a_percentage(pattern: str) -> str:
    """Return a pattern without the sign of percent after a number, as in the German words `30%ige` and `30 %ige`."""
    return rf"(?<!\d)(?<!\d[ \u00a0\u202f]){pattern}|{pattern}(?!\w)"


# Braces may contain braces: `{n, plural, one {# file} other {# files}}`.
_INNER_BRACES = r"\{[^{}]*+\}"
for _ in range(4):
    _INNER_BRACES = rf"\{{(?:[^{{}}]|{_INNER_BRACES})*+\}}"

_ROLE = r"(?:(?<![\w:`]):[A-Za-z][\w+-]{0,60}(?::[A-Za-z][\w+-]{0,60})?:)?"
"""The role of code in reStructuredText, such as `:py:func:`."""

_BBCODE_NAMES = "b|i|u|s|url|img|quote|code|color|size|font|center|list|spoiler|email|table|tr|td|li"
# A tag of one letter before a letter in lower case needs its end: `colo[u]r` and `[i]n` have none.
_LETTER_IN_BRACKETS = "|".join(
    rf"\[(?i:{letter})\](?=[^\W\d_A-Z])(?![^\n]{{0,300}}?\[/(?i:{letter})\])" for letter in "bius"
)
BBCODE: Final = (
    rf"(?!{_LETTER_IN_BRACKETS})"
    rf"\[(?:/(?i:{_BBCODE_NAMES})|(?i:{_BBCODE_NAMES})(?:=[^\[\]\n]{{0,300}})?|\*)\]"
)
"""Pattern of a tag of BBCode."""

# Scripts in which no space ends an address. Their characters are part of one only after `/`, `=` and `_`.
_CJK = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef"
_URL_UNIT = rf"\([^\s()<>]{{0,60}}\)|\{{[\w.]{{0,40}}\}}|(?<=[/=_])[{_CJK}]+"
_URL_PART = rf"(?:[^\s<>\"'{{}}()“”„«»{_CJK}]|{_URL_UNIT}|(?<=\w)'(?=\w))*"
_URL_END = rf"(?:[^\s<>\"'{{}}()“”„«».,;:!?\[\]…{_CJK}]|{_URL_UNIT})/?"
"""The last character of an address is no mark of the sentence."""

_SUFFIXES = (
    "html?|xhtml|php|aspx?|jsp|js|mjs|tsx?|jsx|py|txt|pdf|docx?|xlsx?|pptx?|odt|csv|tsv|json|xml|ya?ml|toml|zip|gz|tgz|"
    "tar|xz|exe|dll|msi|dmg|deb|rpm|apk|jar|png|jpe?g|gif|svg|webp|mp[34]|wav|cfg|conf|ini|log|sh|bat|css|cpp|hpp|java|"
    "md|sql|iso|srt|vtt|xliff|tmx"
)
_HOST_ENDS = "com|org|net|io|gov|edu|info|dev|app|ai|br|ch|cn|cz|de|eu|fr|jp|kr|nl|pl|ru|tv|uk"
_FILE_NAME = r"(?<![\w.@/\\-])(?:[\w.+-]{1,64}/){0,20}[\w-]{1,64}(?:\.[\w-]{1,64}){0,8}"

RULES: Final = (
    # ---- addresses that begin with a letter ----
    # `https://a.b/c?d=e`, `tel:+49301234`, `urn:isbn:0451450523`; not `data: one`, which has a space.
    Rule(
        "address of a known scheme",
        r"(?:https?|ftps?|sftp|file|ssh|git|wss?|s3|tel|urn|data|magnet|doi):(?://)?(?=[\w/?+%\[])"
        rf"{_URL_PART}{_URL_END}",
        _LETTER,
    ),
    # `myapp://open/1`: any scheme before `//`.
    Rule("address of any scheme", rf"[a-z][a-z0-9+.-]{{1,20}}://{_URL_PART}{_URL_END}", _LETTER),
    # `www.example.org/a`.
    Rule("address after www", rf"www\.[\w-]+(?:\.[\w-]+)+(?:[/?#:]{_URL_PART}{_URL_END})?/?", _LETTER),
    # `me@example.org`, `mailto:a@b.co?subject=x`, and repositories: `git@github.com:a/b.git`.
    # At most 64 characters, as in RFC 5321: without a limit, the search takes quadratic time in `a.a.a.a`.
    Rule(
        "e-mail address",
        r"(?:mailto:)?[\w.+'-]{1,64}@[\w-]++(?:\.[\w-]+)+(?:\?\w+=[\w%&=+.-]*\w|:[\w.-]{0,64}/[\w./-]*\w)?",
        (Start.LETTER, Start.DIGIT),
    ),
    # `C:/Users/me`; not `a: b`.
    Rule("path on a drive", r"(?<!\w)[A-Za-z]:(?:/[\w.+@*-]*[\w*])+", _LETTER),
    # `C:\Users\Me\x.txt`, `C:\Program Files\App\a.exe`: names of folders may have spaces.
    Rule(
        "path of Windows on a drive",
        r"(?<!\w)[A-Za-z]:\\(?:[\w.()$~-]+(?: [\w.()$~-]+){0,4}\\){0,40}(?:[\w.()$~*-]*[\w*])?",
        _LETTER,
    ),
    # ---- tags that are written as text ----
    # `<b>`, `</b>`, `<a title="Hi. You, there">`; not `3 < 5 > 2`.
    Rule("tag", r"</?[A-Za-z][^<>]*>"),
    # `<0>`, `<12/>`: tags of React components in catalogs of messages.
    Rule("tag with a number", r"</?\d{1,3} ?/?>"),
    # `<!-- note -->`.
    Rule("comment of HTML", r"<!--[^<>]*-->"),
    # ---- paths ----
    # `$HOME/bin`, `${HOME}/bin/x`.
    Rule("path after a variable", r"\$(?:[A-Z_]{2,40}|\{[A-Z_]{2,40}\})(?:/[\w.+@*-]*[\w*])+"),
    # `\\server\share\x`.
    Rule("network path", r"(?<![\w\\])\\\\[\w.-]+(?:\\[\w.$-]*[\w$])+"),
    # `%APPDATA%\foo`.
    Rule("path after a variable of Windows", r"%[A-Z_]{2,40}%(?:\\[\w.$-]*[\w$])+"),
    # `/usr/bin`: two names or more, because `/he` may follow a word: `she /he`.
    Rule("path", r"(?<![\w/<.~])(?:/[\w.+@*-]*[\w*]){2,}/?"),
    # `~/x`, `./a`, `../b`: one name suffices.
    Rule("relative path", r"(?<![\w/<.~])(?:~|\.{1,2})(?:/[\w.+@*-]*[\w*])+/?"),
    # `/#!Home`, `/search?q=x`.
    Rule("path of a page", r"(?<![\w/<])/[\w/-]{0,80}[#?][\w!#/?=&%.-]*\w"),
    # ---- templates: Handlebars, Jinja, Vue, PHP and others ----
    # `{{{html}}}`.
    Rule("three braces", r"\{\{\{[^{}\n]*\}\}\}"),
    # `{{ name }}`, `${{ x }}` of GitHub.
    Rule("two braces", r"[$#]?\{\{[^{}\n]*\}\}"),
    # `{{ a | default("{}") }}`: with braces inside, up to the first end.
    Rule("two braces around others", r"\{\{[^\n]{0,300}?\}\}"),
    # `{% if x %}`.
    Rule("statement of a template", r"\{%[^\n]{0,300}?%\}"),
    # `{# note #}`.
    Rule("comment of a template", r"\{#[^\n]{0,300}?#\}"),
    # `<%= a < b %>`: its content may have `<` and `>`.
    Rule("tag of a template", r"<%[^\n]{0,300}?%>"),
    # `<?php echo 1 ?>`.
    Rule("tag of PHP", r"<\?[^\n]{0,300}?\?>"),
    # `{\i1}`, `{\an8\b1}` of subtitles.
    Rule("style of subtitles", r"\{(?:\\[^{}\s\\]{1,40}){1,9}\}"),
    # ---- fields in braces ----
    # `{n, plural, one {# file} other {# files}}`: whole, because its forms depend on the target language.
    Rule("message of ICU", rf"\{{\s*[\w.]+\s*,\s*[A-Za-z]\w*\s*(?:,(?:[^{{}}]|{_INNER_BRACES})*+)?\}}"),
    # `{}`, `{name}`, `{0:.2f}`, `{x!r}`, `{0,10:N2}`, `{Name?Default}`, `${x}`, `#{x}`, `%{x}`, `@{x}`, `!{x}`.
    # In braces is one name: `{two words}` is text.
    Rule(
        "field",
        r"[$#%@]?!?\{\s?[$@#/^&>!.*-]{0,2}[\w.\[\]'-]*(?:\([^(){}]*\))?(?:,\s?-?\d+)?(?:![rsa])?"
        r"(?:\s?[:|?][^{}\n]{0,40})?\s?\}",
    ),
    # ---- conversions after a sign of percent ----
    # `%(name)s` of Python.
    Rule("conversion with a name", r"%\([^()\s]+\)[-+#0]*+\d*(?:\.\d+)?[diouxXeEfFgGcrsa]"),
    # `%USER%` of Windows, `%count%` of Symfony; not in `%ld%%` and `%dx%d`. Before the next rule, which takes `%c`.
    Rule("name between percent", r"(?<!\d)(?<!\d[ \u00a0\u202f])%[A-Za-z_]\w{1,60}%(?![\w%])"),
    # `%s`, `%1$s`, `%-5.2f`, `%.*s`, `%@` of C, Java, PHP and Apple; not the space as a flag, which is in `5 % of`.
    Rule("conversion", _not_of_a_percentage(_CONVERSION)),
    # `%<PRIu64>`, as gettext writes a macro of C.
    Rule("conversion with a macro", _not_of_a_percentage(_MACRO_CONVERSION)),
    # ---- other names ----
    # `[X11X]`: what documentation tools put in place of tags.
    Rule("number between X", r"\[X\d+X\]"),
    # `%1!s!` of Windows.
    Rule("conversion of Windows", r"%\d{1,2}![^!\s]{1,20}!"),
    # `$(VAR)` of make.
    Rule("variable in parentheses", r"\$\([A-Za-z_][\w.]*\)"),
    # `\(name)` of Swift.
    Rule("interpolation of Swift", r"\\\([\w.]{1,60}\)"),
    # `__init__`, `__NAME__`.
    Rule("name between underscores", r"(?<!\w)__[A-Za-z]\w{0,60}?__(?!\w)"),
    # `@ana`, `@ana.bob`; not the address `x@y.z`.
    Rule("name after @", r"(?<![\w@/])@[A-Za-z_]\w{1,60}(?:[.-][a-z0-9_]\w{0,60}){0,5}(?![\w@])"),
    # `#sunset`, `#sun#sea`: with a letter, because `#1` is a number.
    Rule("tag after #", r"(?<![\w#&/])(?:#\w{0,80}[^\W\d]\w{0,80}){1,20}(?!\w)"),
    # `--all`: after a space only, because `word--word` has a dash.
    Rule("option", r"(?<!\S)--[a-z][\w-]{0,60}\b"),
    # `@VERSION@` of autoconf.
    Rule("name between @", r"(?<!\w)@[A-Z_]{2,60}@(?!\w)"),
    # ---- more conversions ----
    # `%[2]d` of Go.
    Rule("conversion of Go", r"%\[\d+\][-+# 0]*+\d*(?:\.\d+)?[A-Za-z]"),
    # `%1`, `%L1` of Qt. Its `%n` is a conversion above.
    Rule("argument of Qt", r"%L?\d{1,2}\b"),
    *SYMBOL_RULES,
    # `%%`: a sign of percent in a format.
    Rule("two signs of percent", r"%%"),
    # Of dates and logs, such as `%m`; not the sign of percent in `5 %x`.
    Rule("letter after percent", r"(?<!\d)(?<!\d[ \u00a0\u202f])%[-_^#]?[A-Za-z](?!\w)"),
    # `$x`, `$NAME$`.
    Rule("variable", r"\$[A-Za-z_]\w*(?:\$(?!\w))?"),
    # ---- code ----
    # ``a 'b' c``, also with a role; not the quotation ``one''.
    Rule("code between two backticks", rf"{_ROLE}(?<!`)``(?!`)(?:[^`\n']|'(?!')){{1,200}}``(?!`)"),
    # `npm run build`, also with a role: ":ref:`the title`"; not the quotation `one'.
    Rule("code between backticks", rf"{_ROLE}(?<![\w`])`(?!\s)[^`'\n]{{0,100}}(?<!\s)`(?![\w`])"),
    # `:user_name` of Laravel, `:smile:`; not after a word: `note:a`.
    Rule(
        "name after a colon",
        r"(?<![\w:`/)\]}>.-]):[A-Za-z_]\w{1,60}(?:[+-]\w{1,60}){0,3}(?:\b|(?<=_)):?(?![\w:])",
    ),
    # `[b]`, `[/url]`, `[url=https://a.b]`, `[*]`.
    Rule("tag of BBCode", BBCODE),
    # `\n`, `\t`, also directly before a word that begins in upper case: `\nNext`.
    Rule("escape", r"(?<!\\)\\[A-Za-z](?![a-z])"),
    # `\alpha`, `\section*` of TeX.
    Rule("command of TeX", r"(?<!\\)\\[A-Za-z]{2,30}\*?"),
    # `&nbsp;`, `&#8217;`, `&#x2019;`.
    Rule("character reference", r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"),
    # One of `placeholders.TOKENS`: the model knows them as names of protected text.
    Rule("placeholder token", "[\U0010ff00-\U0010ff09]"),
    # `main()`.
    Rule("function", r"(?<![\w$%])[A-Za-z]\w{0,60}\(\)", _LETTER),
    # `foo_bar`: words have no underscores inside, except German ones for all genders: `Lehrer_innen`.
    Rule(
        "identifier",
        r"(?<!\w)(?![A-Z][a-z]+_in(?:nen)?(?!\w))[A-Za-z][A-Za-z0-9]{0,60}(?:_[A-Za-z0-9]{1,60}){1,10}(?!\w)",
        _LETTER,
    ),
    # `report.pdf`, `src/a.py`, `page.aspx?ID=5`, `github.com`, `example.com/a/b`, and other short hosts before a path:
    # `co.de/x`. One rule, because both begin with the same names: `foo.html.com` is a host.
    Rule(
        "file or host",
        rf"{_FILE_NAME}\.(?:(?:{_SUFFIXES})(?![\w-])(?:[?#]{_URL_PART}{_URL_END})?|"
        rf"(?i:{_HOST_ENDS})(?![\w.-])(?:/{_URL_PART}{_URL_END})?/?)",
        _EVERYWHERE,
    ),
    # `youtu.be/abc`: hosts of any end, before a path.
    Rule(
        "host before a path",
        rf"(?<![\w.@/\\-])(?:[a-z\d-]{{2,64}}\.){{1,5}}[a-z]{{2,3}}/{_URL_PART}{_URL_END}",
        _EVERYWHERE,
    ),
    *NUMBER_RULES,
)
"""All rules. Where several match, the first one wins; the search continues behind what it matched."""


def joined(rules: Iterable[Rule]) -> str:
    """Return one pattern of rules, in their order. A named group of it says which kind of number matched."""
    rules = tuple(rules)
    return "|".join(_beginning(start, [rule for rule in rules if start in rule.starts]) for start in Start)


def _beginning(start: Start, rules: list[Rule]) -> str:
    """Return the pattern of the rules that begin with one kind of character."""
    alternatives = [rule.pattern for rule in rules if rule.kind == "text"]
    for kind in ("measure", "figure"):
        numbers = "|".join(rule.pattern for rule in rules if rule.kind == kind)
        alternatives.append(f"(?P<{kind}_{start.name}>{numbers})")
    return f"{start.value}(?:{'|'.join(alternatives)})"


@cache
def pattern() -> re.Pattern[str]:
    """Return the compiled pattern of protected text. Compiling takes a fifth of a second, which few texts need.

    At most one of its groups takes part in a match: `lastgroup` begins with `measure` or `figure`, or is None for any
    other text.
    """
    return re.compile(joined(RULES))


START: Final = re.compile(r"(?<![A-Za-z0-9_])[^\W_]|[^\w\s]|_")
"""Where protected text may begin: the places of `Start`, in a form that `re` searches fast."""

_SIGNS = rf"%$&{{<@`\[\d\\/_\u00bc-\u00be{symbols.ALWAYS}\U0010ff00-\U0010ffff"
# It begins with a set of characters, for which `re` searches fast.
HINT: Final = re.compile(
    rf"[{_SIGNS}.:({symbols.SOMETIMES}-](?:(?<=[{_SIGNS}])|(?<=[\w:][.:])(?=\w)|(?<=:)(?=[A-Za-z_])|(?<=--)(?=\w)|"
    rf"(?<=\w\()(?=\))|{symbols.AFTER_SOMETIMES})"
)
"""A text without any of these has nothing protected. This test takes a fraction of the time of the search."""
