"""Names of languages: which codes are accepted, and which code a name such as `English` or `eng` stands for."""

from __future__ import annotations

import re

CODE = re.compile(r"[A-Za-z0-9]{1,16}(?:[-_][A-Za-z0-9]{1,16}){0,4}")
"""Any name that is safe in the name of a file or folder: `en`, `zh_CN`, `eng_Latn`, `English`, `src`."""

SOURCE_NAMES = frozenset({"src", "source", "original"})
TARGET_NAMES = frozenset({"tgt", "trg", "target", "translation"})
"""What a column is called where it does not name its language."""

# Two letters (ISO 639-1), three letters (639-2 or 639-3, several where there are), the English name, then others.
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

_CODE_OF = {name.casefold(): row.split()[0] for row in _TABLE.split("\n") for name in row.split()}


def checked(code: str) -> str:
    """The code itself.

    Raises:
        ValueError: It cannot name a language, or would lead outside of a folder.
    """
    if not CODE.fullmatch(code):
        raise ValueError("a language is named by letters and digits, with - or _ between them, as in en or zh_CN")
    return code


def known(name: str) -> str | None:
    """The two-letter code of a language's code or name, with its script or region if it has one; None: unknown.

    `English`, `eng`, `EN` and `English (United States)` are `en`, `zh-CN` and `zh_CN` are `zh_cn`.
    """
    language, *parts = re.sub(r"\s*\([^()]*\)$", "", name.strip()).casefold().replace("_", "-").split("-")
    code = _CODE_OF.get(language)
    if code is None or len(parts) > 2 or any(not re.fullmatch("[a-z]{4}|[a-z]{2}|[0-9]{3}", part) for part in parts):
        return None
    return "_".join([code, *parts])


def same(name: str, code: str) -> bool:
    """Return True if a name of a column stands for the language of this code."""
    name = name.strip()
    return name.casefold() == code.casefold() or (known(name) is not None and known(name) == known(code))


def base(name: str) -> str | None:
    """The two-letter code of a language's code or name without script or region; None: unknown."""
    found = known(name)
    return found.partition("_")[0] if found else None
