"""Inflect English and Spanish words: plurals, agreement, conjugation, numbers.

Rules give the regular forms, and tables the others. Persons are numbered 0 to 4: I, you (tú), he or she, we, they. The
demo has neither vosotros nor usted.
"""

from __future__ import annotations

_PLAIN_VOWEL = str.maketrans("áéíóú", "aeiou")
_DOUBLED = {"run", "swim"}  # running, swimming; the other verbs of the demo do not double the consonant


def english_plural(noun: str) -> str:
    """Return the regular English plural."""
    if noun.endswith(("s", "x", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def spanish_plural(word: str) -> str:
    """Return the plural of a Spanish noun or adjective."""
    if word in ("paraguas", "lunes", "martes", "miércoles", "jueves", "viernes"):
        return word
    if word == "joven":
        return "jóvenes"
    if word[-1] in "aeiouáéó":
        return word + "s"
    if word.endswith("z"):
        return word[:-1] + "ces"
    if word[-2] in "áéíóú" and word[-1] in "ns":  # the plural has no accent: lección, lecciones
        return word[:-2] + word[-2].translate(_PLAIN_VOWEL) + word[-1] + "es"
    return word + "es"


def agree(adjective: str, gender: str, plural: bool) -> str:
    """Return a Spanish adjective (given as masculine singular) in the gender and number of its noun."""
    if gender == "f" and adjective.endswith("o"):
        adjective = adjective[:-1] + "a"
    return spanish_plural(adjective) if plural else adjective


def english_third(verb: str) -> str:
    """Return the third person singular of the present: goes, has, looks for."""
    head, _, tail = verb.partition(" ")
    if head == "have":
        form = "has"
    elif head.endswith(("s", "sh", "ch", "o")):
        form = head + "es"
    elif head.endswith("y") and head[-2] not in "aeiou":
        form = head[:-1] + "ies"
    else:
        form = head + "s"
    return f"{form} {tail}".strip()


def english_ing(verb: str) -> str:
    """Return the -ing form: going, making, running, looking for."""
    head, _, tail = verb.partition(" ")
    if head in _DOUBLED:
        form = head + head[-1] + "ing"
    elif head.endswith("e") and not head.endswith("ee"):
        form = head[:-1] + "ing"
    else:
        form = head + "ing"
    return f"{form} {tail}".strip()


def article_a(following: str) -> str:
    """Return "a" or "an" for the word that follows."""
    return "an" if following[0].lower() in "aeiou" else "a"


_ENDINGS = {
    ("present", "ar"): "o as a amos an",
    ("present", "er"): "o es e emos en",
    ("present", "ir"): "o es e imos en",
    ("past", "ar"): "é aste ó amos aron",
    ("past", "er"): "í iste ió imos ieron",
    ("past", "ir"): "í iste ió imos ieron",
}
_FUTURE_ENDINGS = ["é", "ás", "á", "emos", "án"]

# Irregular paradigms, for the persons 0 to 4.
_IRREGULAR = {
    ("ser", "present"): "soy eres es somos son",
    ("ser", "imperfect"): "era eras era éramos eran",
    ("estar", "present"): "estoy estás está estamos están",
    ("estar", "imperfect"): "estaba estabas estaba estábamos estaban",
    ("tener", "present"): "tengo tienes tiene tenemos tienen",
    ("ir", "present"): "voy vas va vamos van",
    ("ir", "past"): "fui fuiste fue fuimos fueron",
    ("hacer", "present"): "hago haces hace hacemos hacen",
    ("hacer", "past"): "hice hiciste hizo hicimos hicieron",
    ("querer", "present"): "quiero quieres quiere queremos quieren",
    ("poder", "present"): "puedo puedes puede podemos pueden",
    ("ver", "present"): "veo ves ve vemos ven",
    ("ver", "past"): "vi viste vio vimos vieron",
    ("dar", "present"): "doy das da damos dan",
    ("dar", "past"): "di diste dio dimos dieron",
    ("venir", "present"): "vengo vienes viene venimos vienen",
    ("venir", "past"): "vine viniste vino vinimos vinieron",
    ("saber", "present"): "sé sabes sabe sabemos saben",
    ("decir", "present"): "digo dices dice decimos dicen",
    ("decir", "past"): "dije dijiste dijo dijimos dijeron",
    ("traer", "present"): "traigo traes trae traemos traen",
    ("traer", "past"): "traje trajiste trajo trajimos trajeron",
    ("conocer", "present"): "conozco conoces conoce conocemos conocen",
    ("leer", "past"): "leí leíste leyó leímos leyeron",
    ("cerrar", "present"): "cierro cierras cierra cerramos cierran",
    ("perder", "present"): "pierdo pierdes pierde perdemos pierden",
    ("encontrar", "present"): "encuentro encuentras encuentra encontramos encuentran",
    ("mostrar", "present"): "muestro muestras muestra mostramos muestran",
    ("volver", "present"): "vuelvo vuelves vuelve volvemos vuelven",
    ("dormir", "present"): "duermo duermes duerme dormimos duermen",
    ("dormir", "past"): "dormí dormiste durmió dormimos durmieron",
    ("salir", "present"): "salgo sales sale salimos salen",
}
_FUTURE_STEM = {
    "tener": "tendr", "hacer": "har", "querer": "querr", "poder": "podr", "venir": "vendr", "saber": "sabr",
    "decir": "dir", "salir": "saldr",
}  # fmt: skip
_GERUND = {
    "ir": "yendo", "leer": "leyendo", "decir": "diciendo", "venir": "viniendo", "dormir": "durmiendo",
    "traer": "trayendo",
}  # fmt: skip
_COMMAND = {"hacer": "haz", "decir": "di", "ir": "ve", "venir": "ven", "salir": "sal"}


def conjugate(infinitive: str, tense: str, person: int) -> str:
    """Return a Spanish verb in the present, past (pretérito), imperfect (ser, estar) or future."""
    if (infinitive, tense) in _IRREGULAR:
        return _IRREGULAR[infinitive, tense].split()[person]
    if tense == "future":
        return _FUTURE_STEM.get(infinitive, infinitive) + _FUTURE_ENDINGS[person]
    stem, ending = infinitive[:-2], infinitive[-2:]
    suffix = _ENDINGS[tense, ending].split()[person]
    return _spelled(stem, suffix) + suffix if ending == "ar" else stem + suffix


def _spelled(stem: str, suffix: str) -> str:
    """Return a stem with the spelling that keeps the sound of its final c or g before e: busqué, llegué."""
    if suffix[0] in "eé":
        if stem.endswith("c"):
            return stem[:-1] + "qu"
        if stem.endswith("g"):
            return stem + "u"
    return stem


def gerund(infinitive: str) -> str:
    """Return the Spanish gerund: comiendo."""
    if infinitive in _GERUND:
        return _GERUND[infinitive]
    return infinitive[:-2] + ("ando" if infinitive.endswith("ar") else "iendo")


def command(infinitive: str, negative: bool) -> str:
    """Return the imperative of tú: abre; with "no" the subjunctive: (no) abras."""
    if not negative:
        return _COMMAND.get(infinitive) or conjugate(infinitive, "present", 2)
    if infinitive == "ir":
        return "vayas"
    suffix = "es" if infinitive.endswith("ar") else "as"
    stem = conjugate(infinitive, "present", 0)[:-1]
    return (_spelled(stem, suffix) if suffix == "es" else stem) + suffix


_EN_UNITS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_EN_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()  # noqa: SIM905
_ES_UNITS = [
    "cero",
    "uno",
    "dos",
    "tres",
    "cuatro",
    "cinco",
    "seis",
    "siete",
    "ocho",
    "nueve",
    "diez",
    "once",
    "doce",
    "trece",
    "catorce",
    "quince",
    "dieciséis",
    "diecisiete",
    "dieciocho",
    "diecinueve",
    "veinte",
    "veintiuno",
    "veintidós",
    "veintitrés",
    "veinticuatro",
    "veinticinco",
    "veintiséis",
    "veintisiete",
    "veintiocho",
    "veintinueve",
]
_ES_TENS = "treinta cuarenta cincuenta sesenta setenta ochenta noventa".split()  # noqa: SIM905


def english_number(n: int) -> str:
    """Return 0 to 100 in English words."""
    if n == 100:
        return "one hundred"
    if n < 20:
        return _EN_UNITS[n]
    tens, unit = divmod(n, 10)
    return _EN_TENS[tens - 2] + (f"-{_EN_UNITS[unit]}" if unit else "")


def spanish_number(n: int, before: str = "") -> str:
    """Return 0 to 100 in Spanish words; `before` is the gender of the counted noun (veintiún, veintiuna)."""
    if n == 100:
        return "cien"
    tens, unit = divmod(n, 10)
    words = _ES_UNITS[n] if n < 30 else _ES_TENS[tens - 3] + (f" y {_ES_UNITS[unit]}" if unit else "")
    if before and words.endswith("uno"):
        if before == "f":
            return words[:-1] + "a"
        return "veintiún" if words == "veintiuno" else words[:-1]
    return words
