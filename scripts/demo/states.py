"""Templates with "to be": properties, places and owners of things and people."""

from __future__ import annotations

from demo.dealer import Dealer
from demo.grammar import (
    PEOPLE,
    PRONOUNS,
    NounPhrase,
    Pair,
    be,
    clause,
    described,
    direct,
    find_verb,
    name,
    noun_phrase,
    possession,
    sentence,
    words,
)
from demo.inflection import (
    agree,
    conjugate,
)
from demo.lexicon import (
    ADJECTIVES,
    NAMES,
    NOUNS,
    SENSATIONS,
    Noun,
    nouns,
)
from demo.parts import (
    DESCRIBING,
    PERSONS,
    POSSESSIVES,
    a_form,
    a_subject,
    named,
    person_determiner,
    someone,
    written,
)

ALL_ADJECTIVES = tuple(ADJECTIVES.values())
ALL_PRONOUNS = tuple(PRONOUNS.values())
_PERSONAL = tuple(
    adjective for adjective in ADJECTIVES.values() if NOUNS["king"] in adjective.describes and adjective.en != "famous"
)


_NEVER_VERY = ("open", "closed", "broken", "full", "empty", "delicious")


def description(deal: Dealer) -> Pair:
    """The house is big, la casa es grande; I am tired, estoy cansado."""
    negative, question = a_form(deal)
    past = deal.chance(0.2)
    if deal.chance(0.35):
        adjective = deal.deal(_PERSONAL)
        subject = a_subject(deal, deal.deal(PERSONS))
        past = past and subject.person in (2, 4)
    else:
        adjective = deal.deal(ALL_ADJECTIVES)
        noun = deal.deal(adjective.describes)
        plural = not noun.single and not noun.mass and deal.chance(0.5)
        if noun.category in PEOPLE:
            determiner = person_determiner(deal, noun, plural)
        elif noun.single:
            determiner = "the"
        else:
            several, one = ("the", "the", "these", "those", "my", "your"), ("the", "the", "this", "that", "my", "your")
            determiner = deal.choice(several if plural else one)
        if noun.category in ("land", "building", "nature") and determiner in POSSESSIVES and noun.en != "house":
            determiner = "the"
        subject = noun_phrase(determiner, noun, plural)
    very = not negative and adjective.en not in _NEVER_VERY and deal.chance(0.15)
    return written(deal, described(subject, adjective, past, negative, question, very), negative, question)


def profession(deal: Dealer) -> Pair:
    """She is a teacher, ella es maestra: no article in Spanish; the subject has the noun's gender."""
    noun = deal.deal(_PROFESSIONS)
    subjects: list[NounPhrase] = [PRONOUNS["I"], PRONOUNS["you"], PRONOUNS["he" if noun.gender == "m" else "she"]]
    kin = deal.choice([k for k in _KIN if k.gender == noun.gender])
    subjects.append(noun_phrase(deal.deal(POSSESSIVES), kin))
    subjects.append(name(*deal.choice([n for n in NAMES if n[1] == noun.gender])))
    subject = deal.choice(subjects)
    negative, question = a_form(deal)
    what = noun_phrase("a", noun).en
    en = (
        words(be(subject), subject.en, what)
        if question
        else words(subject.en, be(subject), "not" if negative else "", what)
    )
    es = words(subject.es, "no" if negative else "", conjugate("ser", "present", subject.person), noun.es)
    return written(deal, (en, es), negative, question)


_PROFESSIONS = nouns("@profession")
_KIN = nouns("@kin")


def sensation(deal: Dealer) -> Pair:
    """I am hungry, tengo hambre."""
    en_feeling, es_feeling = deal.deal(_FEELINGS)
    subject = a_subject(deal, deal.deal(PERSONS))
    negative, question = a_form(deal, subject.person)
    en = (
        words(be(subject), subject.en, en_feeling)
        if question
        else words(subject.en, be(subject), "not" if negative else "", en_feeling)
    )
    es = words(subject.es, "no" if negative else "", conjugate("tener", "present", subject.person), es_feeling)
    return written(deal, (en, es), negative, question)


_FEELINGS = tuple(SENSATIONS.items())
_NEAR = (
    ("near", "cerca de"), ("behind", "detrás de"), ("in front of", "delante de"), ("next to", "al lado de"),
)  # fmt: skip
_ON = (("on", "sobre"), ("under", "debajo de"), *_NEAR)
_SMALL = nouns("@text @thing @clothes @dishes dog cat guitar")
_SURFACES = nouns("table chair bed box")
_INSIDE = nouns("@room house bag box car school office")
_LANDMARKS = nouns("@building park river bridge tree lake")
_LARGE = nouns("car bicycle bus house hotel restaurant store school bank church museum dog cat horse park tree")


def _where(deal: Dealer) -> tuple[Noun, Pair]:
    """Return a thing or animal, and a place where it could be."""
    kind = deal.below(3)
    if kind == 0:
        noun, (en, es), place = deal.deal(_SMALL), deal.deal(_ON), deal.deal(_SURFACES)
    elif kind == 1:
        noun, (en, es), place = deal.deal(_SMALL), ("in", "en"), deal.deal(_INSIDE)
    else:
        noun, (en, es), place = deal.deal(_LARGE), deal.deal(_NEAR), deal.deal(_LANDMARKS)
    if noun is place:
        return _where(deal)
    where = noun_phrase(deal.choice(("the", "the", "the", "my", "your")) if kind < 2 else "the", place)
    return noun, (f"{en} {where.en}", f"{es} {where.es}")


def location(deal: Dealer) -> Pair:
    """The book is on the table, el libro está sobre la mesa."""
    negative, question = a_form(deal)
    if deal.chance(0.3):
        subject = a_subject(deal, deal.deal(PERSONS))
        place = noun_phrase("the", deal.deal(_BEING_IN))
        where = (f"in {place.en}", f"en {place.es}")
    else:
        noun, where = _where(deal)
        plural = deal.chance(0.3)
        determiners = ("the", "the", "these", "my", "your") if plural else ("the", "the", "this", "my", "your")
        subject = noun_phrase(
            "the" if noun.category in ("building", "land") else deal.choice(determiners), noun, plural
        )
    past = subject.person in (2, 4) and deal.chance(0.15)
    estar = conjugate("estar", "imperfect" if past else "present", subject.person)
    if question:
        en = words(be(subject, past), subject.en, where[0])
        # As in questions with an adjective: a pronoun stays first, a noun follows the verb.
        es = words(subject.es, estar, where[1]) if subject in ALL_PRONOUNS else words(estar, subject.es, where[1])
    else:
        en = words(subject.en, be(subject, past), "not" if negative else "", where[0])
        es = words(subject.es, "no" if negative else "", estar, where[1])
    return written(deal, (en, es), negative, question)


_BEING_IN = nouns("@building @room park city village forest")


_COUNTS: tuple[int | str, ...] = (2, 3, 4, 5, 6, 7, 8, "many")


_IN_TOWN = nouns("@building river park lake bridge tree street garden")
_TOWNS = nouns("city village")


def there_is(deal: Dealer) -> Pair:
    """There are three cats in the garden, hay tres gatos en el jardín."""
    noun, where = _where(deal)
    if deal.chance(0.3):
        noun, place = deal.deal(_IN_TOWN), noun_phrase(deal.choice(("the", "this", "that")), deal.deal(_TOWNS))
        where = (f"in {place.en}", f"en {place.es}")
    kind = deal.below(6)
    past = deal.chance(0.15)
    hay = "había" if past else "hay"
    if kind == 0:
        thing = noun_phrase("", noun, True)
        return sentence(
            (f"there {'were' if past else 'are'} no {thing.en} {where[0]}", f"no {hay} {thing.es} {where[1]}")
        )
    thing = noun_phrase("a", noun) if kind < 3 else noun_phrase(deal.choice(_COUNTS), noun, True)
    verb = ("were" if thing.plural else "was") if past else ("are" if thing.plural else "is")
    if kind in (2, 5):
        return sentence((f"{verb} there {thing.en} {where[0]}", f"{hay} {thing.es} {where[1]}"), "?")
    return sentence((f"there {verb} {thing.en} {where[0]}", f"{hay} {thing.es} {where[1]}"))


_COMPARED = tuple(adjective for adjective in ADJECTIVES.values() if adjective.comparative)


def _kind(noun: Noun) -> str:
    return "person" if noun.category in PEOPLE else noun.category


# Only nouns of one kind are compared: two people, two animals, two places.
_ALIKE = {
    adjective.en: [
        (one, two)
        for one in adjective.describes
        for two in adjective.describes
        if one is not two and _kind(one) == _kind(two)
    ]
    for adjective in _COMPARED
}


def comparison(deal: Dealer) -> Pair:
    """The bear is bigger than the dog, el oso es más grande que el perro; as tall as, tan alto como."""
    adjective = deal.deal(_COMPARED)
    first, second = deal.choice(_ALIKE[adjective.en])
    one, two = (noun_phrase(deal.deal(POSSESSIVES) if n.category == "kin" else "the", n) for n in (first, second))
    es_adjective = agree(adjective.es, one.gender, one.plural)
    if deal.chance(0.75):
        return sentence(
            (f"{one.en} is {adjective.comparative} than {two.en}", f"{one.es} es más {es_adjective} que {two.es}")
        )
    return sentence((f"{one.en} is as {adjective.en} as {two.en}", f"{one.es} es tan {es_adjective} como {two.es}"))


OWNED = nouns("@thing @clothes @text car bicycle boat guitar house dog cat horse computer")


def owner(deal: Dealer) -> Pair:
    """My brother's car is red, el coche de mi hermano es rojo."""
    noun = deal.deal(OWNED)
    who = named(deal) if deal.chance(0.3) else someone(deal)
    thing = possession(who, noun, plural=deal.chance(0.2))
    kind = deal.below(3)
    if kind == 0:
        verb = find_verb(deal.choice(("see", "look for", "find", "clean", "paint", "sell")))
        tense = deal.choice(verb.tenses)
        if noun in verb.objects:
            return sentence(clause(PRONOUNS[deal.choice(("I", "we", "you", "they"))], verb, direct(verb, thing), tense))
    suitable = DESCRIBING[noun.en]
    if kind == 1 and suitable:
        return sentence(described(thing, deal.choice(suitable)))
    is_ = "are" if thing.plural else "is"
    return sentence((f"where {is_} {thing.en}", f"dónde {'están' if thing.plural else 'está'} {thing.es}"), "?")
