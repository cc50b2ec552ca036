"""Templates of counting, age, time and names."""

from __future__ import annotations

from demo.dealer import Dealer
from demo.grammar import (
    CASINGS,
    Pair,
    be,
    cased,
    clause,
    direct,
    find_verb,
    noun_phrase,
    sentence,
    words,
)
from demo.inflection import (
    conjugate,
    english_number,
    spanish_number,
)
from demo.lexicon import (
    DAYS,
    MONTHS,
    NAMES,
    nouns,
)
from demo.parts import (
    PERSON_NOUNS,
    PERSONS,
    a_subject,
    at_some_time,
    person_determiner,
    someone,
    then,
)

# Numbers that end in one agree with the gender of the noun, so they are more frequent.
_NUMBERS = (*range(101), 0, 21, 21, 21, 31, 41, 51, 100)
_AGES = tuple(range(18, 82))
_MEASURED = nouns(
    "@text @clothes @dishes @animal @food chair table window door key pencil photo flower ticket house tree star song"
)


def number(deal: Dealer) -> Pair:
    """Twenty-one, veintiuno; also twenty-one houses, veintiuna casas, and small sums."""
    n = deal.deal(_NUMBERS)
    kind = deal.below(5)
    if kind == 0:
        casing = deal.deal(CASINGS)
        return cased((english_number(n), spanish_number(n)), casing)
    if kind == 1:
        other = deal.deal(_SMALL_NUMBERS)
        first = n % 60
        total = first + other
        son = "es" if total == 1 else "son"
        en = f"{english_number(first)} plus {english_number(other)} is {english_number(total)}"
        return sentence((en, f"{spanish_number(first)} más {spanish_number(other)} {son} {spanish_number(total)}"))
    noun = deal.deal(_MEASURED)
    digits = kind == 4
    phrase = noun_phrase(2 + n % 29 if digits else max(n, 2), noun, digits=digits)
    if kind == 2:
        return phrase.en, phrase.es
    subject = a_subject(deal, deal.deal(PERSONS))
    verb = find_verb(deal.choice(("see", "have", "need", "buy", "find")))
    if noun not in verb.objects:
        verb = find_verb("see") if noun.category == "animal" or noun.en in ("tree", "star") else find_verb("have")
    if noun not in verb.objects:
        return sentence((f"there are {phrase.en}", f"hay {phrase.es}"))
    return sentence(clause(subject, verb, direct(verb, phrase), deal.choice(verb.tenses)))


_SMALL_NUMBERS = tuple(range(1, 21))


def age(deal: Dealer) -> Pair:
    """I am thirty-one years old, tengo treinta y un años."""
    n = deal.deal(_AGES)
    digits = deal.chance(0.4)
    subject = a_subject(deal, deal.deal(PERSONS))
    if subject.en.endswith(("boy", "boys", "girl", "girls")):
        n = 2 + n % 12
    if digits:
        n = 10 + n % 21  # a few numerals are enough to learn that they are copied
    en_n, es_n = (str(n), str(n)) if digits else (english_number(n), spanish_number(n, "m"))
    tener = conjugate("tener", "present", subject.person)
    return sentence((f"{subject.en} {be(subject)} {en_n} years old", words(subject.es, tener, es_n, "años")))


_HOURS = tuple(range(1, 13))
_MINUTES = (
    ("{} o'clock", ""), ("half past {}", "y media"), ("a quarter past {}", "y cuarto"), ("ten past {}", "y diez"),
    ("twenty past {}", "y veinte"), ("a quarter to {}", "menos cuarto"), ("ten to {}", "menos diez"),
)  # fmt: skip
_DAY_NAMES = tuple(DAYS.items())
_MONTH_NAMES = tuple(MONTHS.items())
_AT_TIMES = tuple(
    (find_verb(en), tense) for en in ("eat", "arrive", "return", "leave", "work", "sleep", "swim")
    for tense in ("present", "past", "future")
)  # fmt: skip


def time_and_day(deal: Dealer) -> Pair:
    """It is half past three, son las tres y media; at three; days and dates."""
    kind = deal.below(10)
    hour = deal.deal(_HOURS)
    en_minutes, es_minutes = deal.deal(_MINUTES)
    article = "la" if hour == 1 else "las"
    en_time = en_minutes.format(english_number(hour))
    es_time = words(article, spanish_number(hour, "f"), es_minutes)
    if kind < 3:
        return sentence((f"it is {en_time}", f"{'es' if hour == 1 else 'son'} {es_time}"))
    if kind < 7:
        verb, tense = deal.deal(_AT_TIMES)
        rest = then((f"at {en_time}", f"a {es_time}"), at_some_time(deal, tense, 0.3 if tense != "present" else 0))
        subject = a_subject(deal, deal.deal(PERSONS))
        if verb.en == "arrive" and deal.chance(0.5):
            subject = noun_phrase("the", deal.choice(("train", "bus", "plane", "boat")))
        return sentence(clause(subject, verb, rest, tense))
    if kind == 7:
        en_day, es_day = deal.deal(_DAY_NAMES)
        en_when, es_when = deal.choice(
            (("today is", "hoy es"), ("tomorrow is", "mañana es"), ("yesterday was", "ayer fue"))
        )
        return sentence((f"{en_when} {en_day}", f"{es_when} {es_day}"))
    en_month, es_month = deal.deal(_MONTH_NAMES)
    day = 1 + deal.below(30)
    if kind == 8 or day == 1:
        who_ = someone(deal)
        return sentence((f"{who_.en}'s birthday is in {en_month}", f"el cumpleaños de {who_.es} es en {es_month}"))
    return sentence((f"today is {en_month} {day}", f"hoy es {day} de {es_month}"))


def called(deal: Dealer) -> Pair:
    """My name is Ana, me llamo Ana."""
    who_, gender = deal.deal(NAMES)
    kind = deal.below(6)
    opening = deal.choice(
        (("", ""), ("hello", "hola"), ("good morning", "buenos días"), ("good afternoon", "buenas tardes"))
    )
    if kind == 0:
        return sentence((f"my name is {who_}", f"me llamo {who_}"), ".", opening)
    if kind == 1:
        return sentence((f"I am {who_}", f"soy {who_}"), ".", opening)
    if kind == 2:
        en, es = ("he", "él") if gender == "m" else ("she", "ella")
        return sentence((f"{en} is {who_}", f"{es} es {who_}"))
    person = deal.choice([noun for noun in PERSON_NOUNS if noun.gender == gender])
    phrase = noun_phrase(person_determiner(deal, person, False), person)
    return sentence((f"{phrase.en}'s name is {who_}", f"{phrase.es} se llama {who_}"))
