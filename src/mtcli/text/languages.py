"""Language codes: which ones are accepted, and which code a name such as `English` or `eng` stands for."""

from __future__ import annotations

import re
from typing import NamedTuple

CODE = re.compile(r"[A-Za-z0-9]{1,16}(?:[-_][A-Za-z0-9]{1,16}){0,4}")
"""Accepted language codes. All are safe in file names: `en`, `zh_CN`, `eng_Latn`, `English`, `src`."""

SOURCE_NAMES = frozenset(
    {"src", "source", "source text", "original"}
    | {"quelle", "quelltext", "ausgangstext"}
    | {"fuente", "texto original", "origine", "texte source", "fonte", "origem", "原文"}
)
TARGET_NAMES = frozenset(
    {"tgt", "trg", "target", "target text", "translation"}
    | {"ziel", "zieltext", "übersetzung"}
    | {"destino", "traducción", "cible", "texte cible", "traduction", "traduzione", "tradução", "译文", "訳文"}
)
"""Names of columns that give the side instead of the language, in lower case."""

# Each row: the two-letter code (ISO 639-1), three-letter codes (639-2 and 639-3), the English name, other names.
# The English name is the first that begins with a capital letter.
_TABLE = """
af afr Afrikaans
am amh Amharic
ar ara arb Arabic العربية
as asm Assamese
az aze Azerbaijani
be bel Belarusian
bg bul Bulgarian български
bn ben Bengali Bangla বাংলা
bo bod tib Tibetan
br bre Breton
bs bos Bosnian
ca cat Catalan català
cs ces cze Czech čeština
cy cym wel Welsh cymraeg
da dan Danish dansk
de deu ger German deutsch
el ell gre Greek ελληνικά
en eng English inglés englisch anglais inglese inglês
eo epo Esperanto
es spa Spanish español spanisch espagnol castellano
et est Estonian eesti
eu eus baq Basque euskara
fa fas per pes Persian Farsi فارسی
fi fin Finnish suomi
fr fra fre French français französisch francés
ga gle Irish gaeilge
gl glg Galician galego
gu guj Gujarati
ha hau Hausa
he heb Hebrew עברית
hi hin Hindi हिन्दी
hr hrv Croatian hrvatski
hu hun Hungarian magyar
hy hye arm Armenian
id ind Indonesian
ig ibo Igbo
is isl ice Icelandic
it ita Italian italiano italienisch
ja jpn Japanese 日本語
jv jav Javanese
ka kat geo Georgian
kk kaz Kazakh
km khm Khmer
kn kan Kannada
ko kor Korean 한국어
ku kur Kurdish
ky kir Kyrgyz
la lat Latin
lb ltz Luxembourgish
lo lao Lao
lt lit Lithuanian
lv lav lvs Latvian
mg mlg Malagasy
mi mri mao Maori
mk mkd mac Macedonian
ml mal Malayalam
mn mon Mongolian
mr mar Marathi
ms msa may zsm Malay
mt mlt Maltese
my mya bur Burmese
nb nob Bokmål
ne nep npi Nepali
nl nld dut Dutch nederlands
nn nno Nynorsk
no nor Norwegian norsk
oc oci Occitan
or ori ory Odia
pa pan Punjabi
pl pol Polish polski
ps pus Pashto
pt por Portuguese português
qu que Quechua
ro ron rum Romanian română
ru rus Russian русский
rw kin Kinyarwanda
sa san Sanskrit
sd snd Sindhi
si sin Sinhala
sk slk slo Slovak slovenčina
sl slv Slovenian Slovene slovenščina
sn sna Shona
so som Somali
sq sqi alb Albanian
sr srp Serbian српски
st sot Sotho
su sun Sundanese
sv swe Swedish svenska
sw swa swh Swahili
ta tam Tamil
te tel Telugu
tg tgk Tajik
th tha Thai ไทย
ti tir Tigrinya
tk tuk Turkmen
tl tgl Tagalog Filipino
tr tur Turkish türkçe
tt tat Tatar
ug uig Uyghur
uk ukr Ukrainian українська
ur urd Urdu
uz uzb Uzbek
vi vie Vietnamese
wo wol Wolof
xh xho Xhosa
yi yid Yiddish
yo yor Yoruba
zh zho chi cmn Chinese Mandarin 中文
zu zul Zulu
"""

# The two-letter codes (ISO 639-1) of the languages that are not in the table.
_OTHERS = """
aa ab ae ak an av ay ba bh bi bm ce ch co cr cu cv dv dz ee ff fj fo fy gd gn gv ho ht hz ia ie ii ik io iu kg ki kj kl
kr ks kv kw lg li ln lu mh na nd ng nr nv ny oj om os pi rm rn sc se sg sh sm ss tn to ts tw ty ve vo wa za
"""
_OTHER_CODES = frozenset(_OTHERS.split())

_CODE_OF = {name.casefold(): row.split()[0] for row in _TABLE.split("\n") for name in row.split()}
"""The two-letter code by any name in the table."""

_ENGLISH_NAMES = {
    code: next(name for name in names if name[0].isupper())
    for code, *names in (row.split() for row in _TABLE.strip().split("\n"))
}
"""The English name by two-letter code."""

_PARENTHESES = re.compile(r"\s*\([^()]*\)$")
_SUBTAG = re.compile("[a-z]{4}|[a-z]{2}|[0-9]{3}")
"""A script (`latn`) or a region (`us`, `419`)."""


class Direction(NamedTuple):
    """A source and a target language, by their codes."""

    src: str
    tgt: str

    def __str__(self) -> str:
        return f"{self.src} → {self.tgt}"

    def reversed(self) -> Direction:
        """Return the direction back."""
        return Direction(self.tgt, self.src)


def checked(code: str) -> str:
    """Return the code if it is an accepted one.

    Raises:
        ValueError: It cannot name a language, or could lead out of a folder as part of a path.
    """
    if not CODE.fullmatch(code):
        raise ValueError("a language is named by letters and digits, with - or _ between them, as in en or zh_CN")
    return code


def known(name: str) -> str | None:
    """Return the two-letter code of a language's code or name, with its script or region if it has one.

    `English`, `eng`, `EN` and `English (United States)` are `en`; `zh-CN` and `zh_CN` are `zh_cn`.

    Returns:
        The code, or None if the language is unknown.
    """
    without_parentheses = _PARENTHESES.sub("", name.strip())
    language, *subtags = without_parentheses.casefold().replace("_", "-").split("-")
    code = _CODE_OF.get(language)
    if code is None or len(subtags) > 2 or not all(_SUBTAG.fullmatch(subtag) for subtag in subtags):
        return None
    return "_".join([code, *subtags])


def code_of_name(text: str) -> str:
    """Return the code of a language that is given by its name, such as `English` or `deutsch`.

    Any other text is returned as it is: a code, also one of three letters such as `eng`, or an unknown name.
    """
    code = known(text)
    is_code = re.fullmatch(r"[A-Za-z]{2,3}([-_].*)?", text.strip()) is not None
    return text if code is None or is_code else code


def is_plausible(code: str) -> bool:
    """Return False if a code or name is probably an error: two letters that are no code, or an unknown name.

    There are thousands of codes of three letters, and any may be right. Names of sides, such as `src`, are right too.
    """
    language = re.split("[-_]", code, maxsplit=1)[0].casefold()
    if known(code) or code.casefold() in SOURCE_NAMES | TARGET_NAMES:
        return True
    return language in _OTHER_CODES if len(language) == 2 else len(language) == 3


def same(name: str, code: str) -> bool:
    """Return True if a column of this name holds the language of this code."""
    name = name.strip()
    if name.casefold() == code.casefold():
        return True
    found = known(name)
    return found is not None and found == known(code)


def base(name: str) -> str | None:
    """Return the two-letter code of a language's code or name, without script or region; None if it is unknown."""
    found = known(name)
    return found.partition("_")[0] if found else None


def without_region(code: str) -> str:
    """Return the code of a language without script or region: `fr` for `fra`, and `gn` for `gn-PY`."""
    return base(code) or re.split("[-_]", code.strip().casefold())[0]


def are_different(code: str, other: str) -> bool:
    """Return True if two codes are of different languages. A code that is no language's, such as `src`, is any."""
    bases = [base(code), base(other)]
    if None not in bases:
        return bases[0] != bases[1]
    folded = [code.casefold(), other.casefold()]
    if not all(is_plausible(name) and name not in SOURCE_NAMES | TARGET_NAMES for name in folded):
        return False
    languages = [re.split("[-_]", name, maxsplit=1)[0] for name in folded]
    return languages[0] != languages[1]


def english_name(code: str) -> str:
    """Return the English name of a two- or three-letter code, or the code itself if it is another one."""
    return _ENGLISH_NAMES.get(known(code) or code, code)
