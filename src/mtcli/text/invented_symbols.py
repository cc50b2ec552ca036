"""Symbols that stay as they are in a translation, such as emoji and URLs, made up in great variety.

A model that sees each of them once learns to copy what it does not know, and not a list.
"""

from random import Random
from typing import Final

from mtcli.text.languages import base
from mtcli.text.numbers import same_signs

_RESERVED = frozenset([*range(0x1F3FB, 0x1F400), 0x26CE])
"""Modifiers of skin tones, which do not stand alone, and a code point that was assigned late."""


def _code_points(*ranges: tuple[int, int]) -> str:
    """Return the characters of ranges, both ends included."""
    return "".join(chr(code) for start, end in ranges for code in range(start, end + 1) if code not in _RESERVED)


_FACES: Final = _code_points((0x1F600, 0x1F64F), (0x1F910, 0x1F92F), (0x1F970, 0x1F97A))
_PICTURES: Final = _code_points(
    (0x1F300, 0x1F5FF), (0x1F680, 0x1F6C5), (0x1F6E0, 0x1F6EC), (0x1F7E0, 0x1F7EB), (0x1F90C, 0x1F9FF),
    (0x1FA70, 0x1FA74), (0x1FA80, 0x1FA86), (0x1FA90, 0x1FAAC), (0x1FAB0, 0x1FABA), (0x1FAE0, 0x1FAE7),
)  # fmt: skip
_TEXT_PICTURES: Final = _code_points((0x2600, 0x2604), (0x2614, 0x2615), (0x2648, 0x2653), (0x26A0, 0x26FF))
"""Pictures that often have a variation selector after them."""
_USUAL_SIGNS: Final = "★☆♥♡→←↑↓⇒•·™®©°§№✓✗✔✘♪♫†‡¶※◆◇■□▪▶◀●○◎△▲▼♠♣♦✦✧❤❥➜➤"
_SIGNS: Final = _code_points(
    (0x2190, 0x21FF), (0x2200, 0x22FF), (0x25A0, 0x25FF), (0x2701, 0x27BF), (0x20A0, 0x20BF)
)  # fmt: skip
_TONES: Final = "\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
_HANDS: Final = "👍👎👋🙏👏💪🙌👌✌☝🤞🤝👊✊🤷🤦🏃🚶🙋🙆💁"
_PEOPLE: Final = "👩👨🧑"
_CHILDREN: Final = "👦👧👶"
_OBJECTS: Final = "💻🔬🎓🍳🚀🚒🎨🏫🌾🔧💼🎤✈⚖⚕"
_JOINER: Final = "\u200d"
_AS_PICTURE: Final = "\ufe0f"

_SMILEYS: Final = (
    "<3", "</3", "^^", "^_^", "-_-", "o_O", "O_o", "T_T", ";_;", ">_<", "*_*", "\\o/", "(y)", "xD", "XD", "xd", ":'(",
    ":'-)", "(:", "(;", "):", "D:", ">:(", ">:)", "¯\\_(ツ)_/¯", "(^_^)", "(o_o)", "(╯°□°)╯", "ʕ•ᴥ•ʔ", "._.", "u_u",
    ":3", "<(^^)>", "\\m/", ":-/", ":/", ":\\", "8)", "B-)",
)  # fmt: skip
_EYES: Final = ":;=8"
_NOSES: Final = ("", "", "-", "o", "^")
_MOUTHS: Final = ")(DPp|]*O3>"

_CONSONANTS: Final = "bcdfghjklmnpqrstvwxz"
_VOWELS: Final = "aeiouy"
_TOP_DOMAINS: Final = (
    "com", "org", "net", "de", "es", "fr", "it", "uk", "eu", "io", "dev", "app", "co", "info", "edu", "gov", "ru",
    "cn", "jp", "br", "me", "tv", "ai",
)  # fmt: skip
_SUFFIXES: Final = ("html", "php", "pdf", "jpg", "png", "aspx", "txt", "zip")
_OWN_UNITS: Final = frozenset({"ar", "be", "bg", "fa", "kk", "ky", "mk", "mn", "ru", "sr", "tg", "uk"})
"""Languages that write units in letters of their own: `5 км`."""
_UNITS: Final = (
    "km", "m", "cm", "mm", "kg", "g", "mg", "l", "ml", "GB", "MB", "TB", "KB", "GHz", "MHz", "kHz", "Hz", "W", "kW",
    "kWh", "V", "mV", "A", "Pa", "hPa", "°C", "°F", "K", "dB", "px", "ha",
)  # fmt: skip


def symbol(languages: tuple[str, str], random: Random) -> str:
    """Return a symbol that is written alike in two languages.

    It is an emoji or several, a smiley, a sign such as `★` or `™`, a URL, an e-mail address, a name such as `@ana`, a
    tag such as `#sun`, or a number with a unit.
    """
    kind = random.random()
    if kind < 0.42:
        return _emoji(random)
    if kind < 0.56:
        return _smiley(random)
    if kind < 0.70:
        return random.choice(_USUAL_SIGNS if random.random() < 0.5 else _SIGNS)
    return _word_symbol(languages, random)


def _word_symbol(languages: tuple[str, str], random: Random) -> str:
    """Return a symbol that has letters or digits, and so is written with spaces around it: a URL, or `5 km`."""
    kind = random.random()
    if kind < 0.35:
        return _url(random)
    if kind < 0.50:
        return f"{_name(random)}@{_host(random)}"
    if kind < 0.65:
        return f"@{_name(random)}"
    if kind < 0.80:
        return f"#{_tag(random)}"
    return _measure(languages, random)


def _emoji(random: Random) -> str:
    """Return one emoji, or up to three that are equal or different."""
    kind = random.random()
    if kind < 0.6:
        return _one_emoji(random)
    if kind < 0.8:
        return _one_emoji(random) * random.randint(2, 3)
    return _one_emoji(random) + _one_emoji(random)


def _one_emoji(random: Random) -> str:
    kind = random.random()
    if kind < 0.3:
        return random.choice(_FACES)
    if kind < 0.7:
        return random.choice(_PICTURES)
    if kind < 0.78:
        return random.choice(_TEXT_PICTURES) + random.choice(("", _AS_PICTURE))
    if kind < 0.82:
        return random.choice(("❤️", "❤", "💔", "💕", "❤️‍🔥", "🏳️‍🌈", "🏴‍☠️", "♥️", "‼️", "⁉️", "✨", "⭐", "⚡", "☀️"))
    if kind < 0.88:
        return random.choice(_HANDS) + random.choice(_TONES)
    if kind < 0.92:
        return _person(random)
    if kind < 0.96:
        return _flag(random)
    return random.choice("0123456789#*") + _AS_PICTURE + "\u20e3"


def _person(random: Random) -> str:
    """Return a family, or a person with a profession, joined of several emoji."""
    first = random.choice(_PEOPLE)
    if random.random() < 0.4:
        return _JOINER.join([first, random.choice(_PEOPLE), random.choice(_CHILDREN)])
    tone = random.choice(_TONES) if random.random() < 0.8 else ""
    return first + tone + _JOINER + random.choice(_OBJECTS)


def _flag(random: Random) -> str:
    return chr(0x1F1E6 + random.randrange(26)) + chr(0x1F1E6 + random.randrange(26))


def _smiley(random: Random) -> str:
    if random.random() < 0.3:
        return random.choice(_SMILEYS)
    mouth = random.choice(_MOUTHS)
    return random.choice(_EYES) + random.choice(_NOSES) + mouth * random.choice((1, 1, 1, 1, 2, 3))


def _syllables(random: Random) -> str:
    """Return a word of two to four syllables that hardly any language has."""
    return "".join(random.choice(_CONSONANTS) + random.choice(_VOWELS) for _ in range(random.randint(2, 4)))


def _name(random: Random) -> str:
    name = _syllables(random)
    kind = random.random()
    if kind < 0.3:
        return name + str(random.randrange(1, 2030))
    if kind < 0.5:
        return f"{name}{random.choice('._-')}{_syllables(random)}"
    return name.capitalize() if kind < 0.6 else name


def _tag(random: Random) -> str:
    if random.random() < 0.3:
        return _syllables(random).capitalize() + _syllables(random).capitalize()
    return _name(random).replace(".", "_").replace("-", "_")


def _host(random: Random) -> str:
    separator = random.choice(("", "", "", "-", "."))
    start = _syllables(random) + separator + (_syllables(random) if separator else "")
    return f"{start}.{random.choice(_TOP_DOMAINS)}"


def _url(random: Random) -> str:
    url = random.choice(("https://", "https://", "https://www.", "http://", "www.", "")) + _host(random)
    for _ in range(random.choice((0, 0, 1, 2))):
        url += f"/{_name(random)}"
    kind = random.random()
    if kind < 0.1:
        return f"{url}/{_name(random)}.{random.choice(_SUFFIXES)}"
    if kind < 0.2:
        return f"{url}/?{random.choice('abcdqvxt')}={random.randrange(10_000)}"
    if kind < 0.25:
        return f"{url}/#{_syllables(random)}"
    return url


def _measure(languages: tuple[str, str], random: Random) -> str:
    """Return a number with a unit, or a time of day.

    A number has decimals only if both languages write them with a point.
    """
    if random.random() < 0.2 or not _OWN_UNITS.isdisjoint(map(base, languages)):
        return f"{random.randrange(1, 24)}:{random.randrange(60):02}"
    number = str(random.randrange(1, random.choice((10, 100, 1000))))
    if random.random() < 0.3 and same_signs("en", languages[0]) and same_signs("en", languages[1]):
        number += f".{random.randrange(1, 10)}"
    return number + random.choice((" ", " ", "")) + random.choice(_UNITS)
