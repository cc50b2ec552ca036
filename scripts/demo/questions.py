"""Templates with a question word."""

from __future__ import annotations

from demo.dealer import Dealer
from demo.grammar import (
    PRONOUNS,
    Pair,
    clause,
    direct,
    do,
    find_verb,
    noun_phrase,
    sentence,
    words,
)
from demo.inflection import (
    agree,
    conjugate,
)
from demo.lexicon import (
    ADJECTIVES,
    TRANSITIVE,
    nouns,
)
from demo.parts import (
    COUNTED,
    PERSONS,
    a_subject,
    a_thing,
    someone,
)
from demo.states import OWNED

_WHAT = tuple(
    (find_verb(en), tense, person) for en in (
        "eat", "drink", "read", "write", "buy", "sell", "see", "want", "need", "look for", "cook", "learn", "bring",
        "lose", "say",
    )
    for tense in find_verb(en).tenses for person in PERSONS
)  # fmt: skip
_WHERE = tuple(
    (find_verb(en), tense, person) for en in ("live", "work", "sleep", "swim", "run", "eat", "study")
    for tense in find_verb(en).tenses for person in PERSONS
)  # fmt: skip
_WHEN = tuple(
    (find_verb(en), tense, person) for en in ("arrive", "return", "come", "travel", "work", "leave")
    for tense in find_verb(en).tenses for person in PERSONS
)  # fmt: skip
_WH = (("what", "qué", _WHAT), ("where", "dónde", _WHERE), ("when", "cuándo", _WHEN))


def question_word(deal: Dealer) -> Pair:
    """What does she eat? ¿Qué come ella? The Spanish subject follows its verb."""
    en_word, es_word, cards = deal.deal(_WH)
    verb, tense, person = deal.deal(cards)
    subject = a_subject(deal, person)
    en = words(en_word, do(subject, tense), subject.en, verb.en)
    return sentence((en, words(es_word, conjugate(verb.es, tense, person), subject.es)), "?")


_WHO = tuple((verb, tense) for verb in TRANSITIVE for tense in verb.tenses if verb.en not in ("love", "have"))


def who(deal: Dealer) -> Pair:
    """Who ate the bread? ¿Quién comió el pan?"""
    verb, tense = deal.deal(_WHO)
    if verb.en == "read" and tense == "past":
        tense = "present"
    rest = direct(verb, a_thing(deal, deal.deal(verb.objects), 0.1))
    en, es = clause(PRONOUNS["he"], verb, rest, tense)
    return sentence((f"who {en.removeprefix('he ')}", f"quién {es.removeprefix('él ')}"), "?")


_SMALL_QUESTIONS = ("much", "many", "many", "old", "color", "whose", "who", "how", "where", "where", "called")


def small_question(deal: Dealer) -> Pair:
    """How much, how many, how old, which color, whose, who and where is."""
    kind = deal.deal(_SMALL_QUESTIONS)
    noun = deal.deal(COUNTED)
    if kind == "much":
        noun, plural = deal.deal(_PRICED), deal.chance(0.4)
        thing = noun_phrase(deal.choice(("the", "these") if plural else ("the", "this")), noun, plural)
        es = words("cuánto", "cuestan" if plural else "cuesta", thing.es)
        return sentence((f"how much {'do' if plural else 'does'} {thing.en} cost", es), "?")
    if kind == "many":
        cuantos = agree("cuánto", noun.gender, True)
        if noun in OWNED and deal.chance(0.6):
            subject = a_subject(deal, deal.deal(PERSONS))
            return sentence(
                (
                    f"how many {noun.en_plural} {do(subject, 'present')} {subject.en} have",
                    words(cuantos, noun.es_plural, conjugate("tener", "present", subject.person), subject.es),
                ),
                "?",
            )
        return sentence((f"how many {noun.en_plural} are there", f"{cuantos} {noun.es_plural} hay"), "?")
    if kind == "color":
        thing = noun_phrase(deal.choice(("the", "my", "your", "his", "her", "our")), deal.deal(_COLORED))
        return sentence((f"what color is {thing.en}", f"de qué color es {thing.es}"), "?")
    if kind == "whose":
        noun = deal.deal(OWNED)
        return sentence((f"whose {noun.en} is this", f"de quién es {noun_phrase('this', noun).es}"), "?")
    if kind == "where":
        plural = deal.chance(0.3)
        thing = noun_phrase(deal.choice(("the", "my", "your")) if noun in OWNED else "the", noun, plural)
        return sentence(
            (f"where {'are' if plural else 'is'} {thing.en}", f"dónde {'están' if plural else 'está'} {thing.es}"), "?"
        )
    person = a_subject(deal, 2)
    if kind == "who":
        person = noun_phrase(deal.choice(("this", "that", "the")), deal.deal(_STRANGERS))
        return sentence((f"who is {person.en}", f"quién es {person.es}"), "?")
    if kind == "old":
        return sentence((f"how old is {person.en}", f"cuántos años tiene {person.es}"), "?")
    if kind == "how":
        return sentence((f"how is {person.en}", f"cómo está {person.es}"), "?")
    person = someone(deal)
    return sentence((f"what is {person.en}'s name", f"cómo se llama {person.es}"), "?")


_PRICED = nouns("@clothes @vehicle @food @instrument @thing book magazine newspaper")
_COLORED = tuple(noun for noun in ADJECTIVES["red"].describes if noun.category != "animal")
_STRANGERS = nouns("@profession man woman boy girl")
