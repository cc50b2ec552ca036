"""The rules of protected numbers: amounts, numbers with units, dates, times, versions, telephone numbers, codes."""

import re
from typing import Final, Literal

from mtcli.text.rule import Rule, Start

_CURRENCY = "$€£¥₹₽₩₫₴₺₪฿₦₱₲₡¢₿₸"
_CURRENCY_CODE = "USD|EUR|GBP|CHF|JPY|CAD|AUD|CNY|INR|BRL|MXN|SEK|NOK|DKK|PLN|CZK|RUB|KRW|TRY|ZAR"
# Not the decade `80s`, nor words after a year: `2010 s` in Czech, `2010 min` in Swedish.
_UNITS = (
    r"km/h|m/s²?|[kcmd]?m[²³]|[kcdmµμn]?m|[kmµμ]?g|t|[mcdh]?l|L|[mnµμ]s|(?<!\d0)(?<!\d\d\d\d )s|(?<!\d\d\d\d )min|h|"
    r"[kMGT]?Hz|[kMG]Wh|[kMGm]?W|[km]?V|mAh|mA|[kM]J|kcal|[hkM]?Pa|m?bar|°[CF]?|px|pt|dpi|ppi|"
    r"[kKMGTkmgt]i?[Bb](?:/s)?|[kMG]bit(?:/s)?|[kMG]?bps|fps|rpm|dB|mph|ft|lbs?|oz|yd|kr|zł|Kč|"
    rf"[%‰{_CURRENCY}]|{_CURRENCY_CODE}"
)
# After a space, these are words elsewhere: "in" in Portuguese, "my" in Spanish, "must" in Catalan.
_UNITS_WITHOUT_SPACE = "r?em|mi|cal"
# "Has" in Spanish and Italian, "and" in Guarani, which also writes ordinal numbers as `30ha`.
_UNITS_AFTER_FIXED_SPACE = "ha"
_UNIT = rf"[ \u00a0\u202f]?(?:{_UNITS})|{_UNITS_WITHOUT_SPACE}|[\u00a0\u202f]{_UNITS_AFTER_FIXED_SPACE}"
_SPACED = r"[1-9]\d{0,2}(?: \d{3}(?!\d)){1,6}+(?:[.,]\d++)?"
# At most 20 groups of digits: without a limit, the search takes quadratic time in `1'1'1'1`.
_GROUPS = rf"(?:{_SPACED}|\d++(?:[.,'’\u00a0\u202f]\d++){{0,20}}+)"
_SIGN = r"(?:(?<![^\s(\[\"'“„‘«])[+−±-])?"
_NUMBER = rf"{_SIGN}(?<![\w.,]){_GROUPS}(?:[–−×x-]{_GROUPS}){{0,3}}"
_CLOCK = r"\d{1,2}:[0-5]\d(?::(?:[0-5]\d|60)(?:[.,]\d{1,9})?)?"
_OFFSET = r"[+−-]\d{1,2}(?::?\d{2})?"
_ZONE = rf"(?:Z|[ \u00a0\u202f]?(?:(?:UTC|GMT|[CEMPW]ES?T|[ECMP][SD]T|BST|IST|JST|MSK)\b(?:{_OFFSET})?|{_OFFSET}))?"
_HALF_OF_DAY = r"[ \u00a0\u202f]?(?:[aApP]\.[mM]\.|[aApP][mM]\b)"
_HEX = "[0-9a-fA-F]"

_LETTER = (Start.LETTER,)
_DIGIT = (Start.DIGIT,)
_SIGN_OR_DIGIT = (Start.DIGIT, Start.SIGN)
_LETTER_OR_DIGIT = (Start.LETTER, Start.DIGIT)


def _number(name: str, kind: Literal["measure", "figure"], pattern: str, starts: tuple[Start, ...]) -> Rule:
    """Return a rule whose numbers may stand directly beside characters of scripts without spaces, as in `2024年`."""
    word = (
        r"[^\W\u0e00-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]"
    )
    pattern = re.sub(
        r"\(\?(<?!)\[\\w([^\]]+)\]\)", lambda found: f"(?{found[1]}{word})(?{found[1]}[{found[2]}])", pattern
    )
    pattern = re.sub(r"\(\?(<?!)\\w\)", lambda found: f"(?{found[1]}{word})", pattern)
    return Rule(name, pattern, starts, kind)


def _measure(name: str, pattern: str, starts: tuple[Start, ...]) -> Rule:
    return _number(name, "measure", pattern, starts)


def _figure(name: str, pattern: str, starts: tuple[Start, ...]) -> Rule:
    return _number(name, "figure", pattern, starts)


NUMBER_RULES: Final = (
    # ---- amounts and measures ----
    # `US$5`, `A$ 20`: letters of the country before the sign.
    _measure(
        "amount after a sign with letters", rf"(?<!\w)[A-Z]{{1,3}}[{_CURRENCY}][ \u00a0\u202f]?{_GROUPS}", _LETTER
    ),
    # `EUR 20`, with a space: `EUR20` is a code.
    _measure("amount after a code", rf"(?<!\w)(?:{_CURRENCY_CODE})[ \u00a0\u202f]{_GROUPS}", _LETTER),
    # `3.5 km`, `-5 °C`, `20-30%`, `1920x1080 px`, `5 €`; not `5 m(...)`, which is a function, nor the French `5 l'été`.
    _measure("number with a unit", rf"{_NUMBER}(?:{_UNIT})(?![\w(])(?!['’]\w)", _SIGN_OR_DIGIT),
    # `$5`, `-€ 20`, `£1,000.50`.
    _measure("amount after a sign", rf"{_SIGN}[{_CURRENCY}][ \u00a0\u202f]?[−-]?{_GROUPS}", (Start.SIGN,)),
    # ---- what machines are called by ----
    # `2001:db8::1`, `::1`, `2001:db8::1/64`, and of hardware: `00:1A:2B:3C:4D:5E`. Times such as `10:30:15` are below.
    _figure(
        "IPv6 or hardware address",
        rf"(?<![\w:])(?!{_CLOCK}(?![\w:]))(?:{_HEX}{{0,4}}:){{2,7}}{_HEX}{{1,4}}(?:/\d+)?(?![\w:])",
        (Start.LETTER, Start.DIGIT, Start.SIGN),
    ),
    # `550e8400-e29b-41d4-a716-446655440000`.
    _figure("UUID", rf"(?<![\w-]){_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}(?![\w-])", _LETTER_OR_DIGIT),
    # `3f2a9c1`, as of Git, from seven characters on: with a digit and a letter, it is neither a word nor a number.
    _figure("hash", r"(?<!\w)(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,128}(?!\w)", _LETTER_OR_DIGIT),
    # The same in upper case: `3F2A9C1`.
    _figure("hash in capitals", r"(?<!\w)(?=[A-F]*\d)(?=\d*[A-F])[0-9A-F]{7,128}(?!\w)", _LETTER_OR_DIGIT),
    # `00-1A-2B-3C-4D-5E`.
    _figure("hardware address with hyphens", rf"(?<![\w-])(?:{_HEX}{{2}}-){{5}}{_HEX}{{2}}(?![\w-])", _LETTER_OR_DIGIT),
    # `DE89 3704 0044 0532 0130 00`, in groups of four.
    _figure("IBAN", r"(?<!\w)[A-Z]{2}\d{2}(?: [A-Z\d]{4}){2,7}(?: [A-Z\d]{1,3})?(?!\w)", _LETTER),
    # `SKU-12345`, `CVE-2024-12345`, `B2B2024`: capitals with three digits or more. `MP3` and `COVID-19` are words.
    _figure(
        "code of capitals and digits",
        r"(?<![\w-])(?=[A-Z_-]{1,30}\d[A-Z_-]{0,9}\d[A-Z_-]{0,9}\d)[A-Z][A-Z0-9]{0,19}(?:[_-][A-Z0-9]{1,20}){0,5}(?![\w-])",
        _LETTER,
    ),
    # ---- versions and fractions ----
    # `2.0.0-rc.1+build.5f8`, also after `v`. Before the next rule, which would take only the beginning.
    _figure(
        "version with a build",
        r"(?<![\w.,])v?\d++(?:\.\d++)++(?:-[A-Za-z0-9.-]{1,40})?\+[A-Za-z0-9]++(?:\.[A-Za-z0-9]++)*+(?!\w)",
        _LETTER_OR_DIGIT,
    ),
    # `v2`, `v2.1`, `v2.1.0-rc.1`.
    _figure(
        "version after v",
        r"(?<![\w.])v\d++(?:\.\d++)*+(?:[-+.]?(?:alpha|beta|rc|dev|post|pre)[.\d-]*(?<=\w))?(?!\w)",
        _LETTER,
    ),
    # `½`, `1½`.
    _figure("fraction", r"(?<![\w.,])\d{0,9}[¼½¾⅐-⅞](?!\w)", _LETTER_OR_DIGIT),
    # ---- dates and times ----
    # `2024-12-25T10:00:00+01:00`.
    _figure("date with a time", rf"(?<![\w.,:])\d{{4}}-\d{{2}}-\d{{2}}[T ]{_CLOCK}{_ZONE}(?!\w)", _DIGIT),
    # `10:30`, `10:30 pm`, `10:00–22:00`, `18:00 GMT+2`.
    _figure(
        "time",
        rf"(?<![\w.,:]){_CLOCK}(?:{_HALF_OF_DAY})?(?:[–−-]{_CLOCK})?(?:{_HALF_OF_DAY})?{_ZONE}(?![\w:])",
        _DIGIT,
    ),
    # `2024-W52`, `2024-W52-1`.
    _figure("week", r"(?<![\w.,])\d{4}-W\d{2}(?:-\d)?(?!\w)", _DIGIT),
    # ---- other numbers with letters ----
    # `1.2.0rc1`, `1.0.0-beta`.
    _figure(
        "version before a release",
        r"(?<![\w.,])\d++(?:\.\d++)++[-+.]?(?:alpha|beta|rc|dev|post|pre|a|b)(?:[.-]?\d++)*+(?!\w)",
        _DIGIT,
    ),
    # `4111 1111 1111 1111`.
    _figure("card number", r"(?<!\w)\d{4}(?: \d{4}){2,4}(?!\w)", _DIGIT),
    # `0x7fff`, `0b101`, `0o755`.
    _figure("number in another base", rf"(?<!\w)0(?:[xX]{_HEX}{{1,64}}|b[01]{{1,64}}|o[0-7]{{1,64}})(?!\w)", _DIGIT),
    # `1080p`, of videos.
    _figure("lines of a video", r"(?<!\w)\d{3,4}[pi](?!\w)", _DIGIT),
    # `#123` of an issue, `#ff8800` of a color.
    _figure("number after #", rf"(?<![\w&])#(?:{_HEX}{{6}}|\d{{1,10}})(?!\w)", (Start.SIGN,)),
    # ---- telephone numbers ----
    # `+49 30 123456`, `+49 (0)30 1234-5678`.
    _figure(
        "international telephone number",
        r"(?<!\w)\+\d++(?:[ \u00a0./-]?\(\d{1,5}\) ?\d*+|[ \u00a0./-]\d++){1,8}+(?!\w)",
        (Start.SIGN,),
    ),
    # `(555) 123-4567`.
    _figure(
        "telephone number with parentheses",
        r"(?<!\w)\(\d{2,5}\)[ \u00a0]?\d{3,}+(?:[ \u00a0-]\d++){0,4}+(?!\w)",
        (Start.SIGN,),
    ),
    # `030 123 456`: no other number begins with 0 and has spaces.
    _figure("telephone number with 0", r"(?<![\w.,])0\d{1,4}[ \u00a0]\d++(?:[ \u00a0-]\d++){0,4}+(?!\w)", _DIGIT),
    # ---- all other numbers ----
    # `6.02e23`, `-1E+5`.
    _figure("power of ten", rf"{_SIGN}(?<![\w.,])\d++(?:\.\d++)?[eE][+−-]?\d++(?!\w)", _SIGN_OR_DIGIT),
    # `10 000`, `-1 234,5`: groups of three digits after spaces.
    _figure("number with spaces", rf"{_SIGN}(?<![\w.,]){_SPACED}(?!\w)", _SIGN_OR_DIGIT),
    # `2024`, `-5`, `12/25/2024`, `2019–2021`, `16:9`, `192.168.0.1`. At most 41 parts, as above.
    _figure("number", rf"{_SIGN}(?<![\w.,])\d++(?:[.,'’\u00a0\u202f/:×x–−-]\d++){{0,40}}+(?!\w)", _SIGN_OR_DIGIT),
)
