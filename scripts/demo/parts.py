"""Parts that the templates share: subjects, objects, times and places, negation and questions."""

from __future__ import annotations

from collections.abc import Sequence

from demo.dealer import Dealer
from demo.grammar import (
    PEOPLE,
    PRONOUNS,
    NounPhrase,
    Pair,
    at_place,
    direct,
    name,
    noun_phrase,
    possession,
    sentence,
    words,
)
from demo.lexicon import (
    ADJECTIVES,
    ADVERBIALS,
    CITIES,
    MOTION,
    NAMES,
    NOUNS,
    TRANSITIVE,
    Adjective,
    Noun,
    Verb,
)

_TO_A_CITY = ("go", "travel", "return", "live", "work", "sleep", "leave")
POSSESSIVES = ("my", "your", "his", "her", "our", "their")
PERSON_NOUNS = tuple(noun for noun in NOUNS.values() if noun.category in PEOPLE)
PERSON_PLURALS = tuple(noun for noun in PERSON_NOUNS if not noun.single)
COUNTED = tuple(
    noun for noun in NOUNS.values() if noun.category not in (*PEOPLE, "mind") and not noun.single and not noun.mass
)
_WITHOUT_OWNER = ("land", "nature", "building", "study")  # not "his river"
_OWNED_THINGS = ("text", "clothes", "thing", "vehicle", "saying")
ANIMALS = tuple(noun for noun in NOUNS.values() if noun.category == "animal")
PERSONS = (0, 1, 2, 3, 4)
DESCRIBING = {
    noun.en: tuple(adjective for adjective in ADJECTIVES.values() if noun in adjective.describes)
    for noun in NOUNS.values()
}
STATIVE = ("want", "have", "need", "know", "love")
DOABLE = tuple(verb for verb in TRANSITIVE if verb.en not in STATIVE)


def person_determiner(deal: Dealer, noun: Noun, plural: bool) -> str:
    """Return a determiner for a person; relatives take a possessive."""
    if noun.category == "kin":
        return deal.deal(POSSESSIVES)
    if noun.single:
        return "the"
    return deal.choice(("the", "the", "the", "these", "those") if plural else ("the", "the", "the", "this", "that"))


def someone(deal: Dealer, plural: bool = False) -> NounPhrase:
    """Return a person, or several of one kind."""
    noun = deal.deal(PERSON_PLURALS if plural else PERSON_NOUNS)
    if noun.category == "kin" and deal.chance(0.15):
        return possession(named(deal), noun, plural)
    return noun_phrase(person_determiner(deal, noun, plural), noun, plural, an_adjective(deal, noun, 0.2))


def an_animal(deal: Dealer, plural: bool = False) -> NounPhrase:
    """Return an animal, or several of one kind."""
    noun = deal.deal(ANIMALS)
    near_and_far = ("these", "those") if plural else ("this", "that")
    return noun_phrase(
        deal.choice(("the", "the", "the", *near_and_far, "my")), noun, plural, an_adjective(deal, noun, 0.25)
    )


def somebodys(deal: Dealer, noun: Noun) -> NounPhrase:
    """Return a thing with its owner: "the old king's name", "el nombre del rey viejo"."""
    return possession(named(deal) if deal.chance(0.3) else someone(deal), noun)


def named(deal: Dealer) -> NounPhrase:
    """Return a person's name as a phrase."""
    return name(*deal.deal(NAMES))


def a_subject(deal: Dealer, person: int) -> NounPhrase:
    """Return a subject of this grammatical person: a pronoun, a name or a person."""
    if person == 2:
        kind = deal.below(5)
        if kind < 2:
            return PRONOUNS[("he", "she")[kind]]
        return named(deal) if kind == 2 else someone(deal)
    if person == 4:
        return PRONOUNS["they"] if deal.chance(0.4) else someone(deal, plural=True)
    return PRONOUNS[("I", "you", "", "we")[person]]


def an_adjective(deal: Dealer, noun: Noun, probability: float) -> str | Adjective:
    """Return an adjective that can describe the noun, or an empty one."""
    suitable = DESCRIBING[noun.en]
    return deal.choice(suitable) if suitable and deal.chance(probability) else ""


def a_thing(deal: Dealer, noun: Noun, adjective: float = 0.2, bare: bool = True, counted: bool = True) -> NounPhrase:
    """Return a noun as an object, with a determiner that suits it.

    `adjective` is the probability of an adjective. `bare` allows to omit the determiner (bread, apples), `counted` a
    number or quantity.
    """
    if noun.category in PEOPLE:
        return noun_phrase(person_determiner(deal, noun, False), noun)
    if noun.category == "language":
        return noun_phrase("", noun)
    if noun.single:
        return noun_phrase("the", noun)
    if noun.category in _OWNED_THINGS and deal.chance(0.5 if noun.en == "name" else 0.08):
        return somebodys(deal, noun)
    if noun.mass:
        determiner = deal.choice(("", "", "the", "the", "this", "my") if bare else ("the", "the", "this", "my", "your"))
        return noun_phrase(determiner, noun, False, an_adjective(deal, noun, adjective) if determiner else "")
    described_as = an_adjective(deal, noun, adjective)
    whose = "the" if noun.category in _WITHOUT_OWNER else deal.deal(POSSESSIVES)
    if deal.chance(0.62):
        determiner = deal.choice(("the", "the", "the", "a", "a", "this", "that", whose))
        return noun_phrase(determiner, noun, False, described_as)
    number = ("some", "many", 2, 3, 4, 5, 6) if counted and noun.category != "instrument" else ()
    many = deal.choice(("the", "the", "these", "those", whose, *(("", "", *number) if bare else ())))
    return noun_phrase(many, noun, True, "" if isinstance(many, int) else described_as)


def at_some_time(deal: Dealer, tense: str, probability: float) -> Pair:
    """Return, with this probability, a time that fits the tense."""
    return deal.deal(ADVERBIALS[tense]) if deal.chance(probability) else ("", "")


def then(first: Pair, second: Pair) -> Pair:
    """Return one phrase after the other, in both languages."""
    return words(first[0], second[0]), words(first[1], second[1])


def a_place(deal: Dealer, verb: Verb) -> Pair:
    """Return a place for a verb of motion or living, with its preposition."""
    if verb.en in _TO_A_CITY and deal.chance(0.15):
        en, es = deal.deal(CITIES)
        return words(verb.preposition[0], en), words(verb.preposition[1], es)
    noun = deal.deal(verb.objects)
    determiner = (
        "the" if noun.single else deal.choice(("the", "the", "the", "this", "that", "a", deal.deal(POSSESSIVES)))
    )
    if noun.category in ("land", "building") and determiner in POSSESSIVES and noun.en not in ("house", "school"):
        determiner = "the"
    return at_place(verb, noun_phrase(determiner, noun))


def an_infinitive(
    deal: Dealer, transitive: Sequence[Verb] = DOABLE, motion: Sequence[Verb] = MOTION
) -> tuple[Verb, Pair]:
    """Return a verb and what follows it."""
    if deal.chance(0.65):
        verb = deal.deal(transitive)
        return verb, direct(verb, a_thing(deal, deal.deal(verb.objects), 0.1))
    verb = deal.deal(motion)
    return verb, a_place(deal, verb)


def written(deal: Dealer, pair: Pair, negative: bool, question: bool) -> Pair:
    """Return the clause as a sentence; sometimes without its full stop, or as an answer: "Yes, ..."."""
    if question:
        return sentence(pair, "?")
    mark = "" if deal.chance(0.06) else "."
    if deal.chance(0.04):
        return sentence(pair, mark, ("no", "no") if negative else ("yes", "sí"))
    return sentence(pair, mark)


_FORMS = ("statement",) * 5 + ("negative",) * 2 + ("question",) * 2


def a_form(deal: Dealer, person: int = 2) -> tuple[bool, bool]:
    """Return (negative, question) of a statement, a negation or a question. The person "I" gets no questions."""
    form = deal.deal(_FORMS)
    return form == "negative", form == "question" and person != 0
