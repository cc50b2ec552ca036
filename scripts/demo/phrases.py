"""Templates in all capitalizations: greetings, captions, set phrases; also the sentences to memorize."""

from __future__ import annotations

import re

from demo.dealer import Dealer
from demo.grammar import (
    CASINGS,
    GREETING_STYLES,
    Pair,
    cased,
    contract,
    exclaimed,
    greeting,
    noun_phrase,
    sentence,
)
from demo.inflection import (
    agree,
)
from demo.lexicon import (
    ADJECTIVES,
    FIXED_SENTENCES,
    GREETINGS,
    NAMES,
    NOUNS,
    SET_PHRASES,
    nouns,
)
from demo.parts import (
    a_thing,
    an_adjective,
)

_STRIKING = tuple(
    adjective for adjective in ADJECTIVES.values()
    if adjective.comparative or adjective.en in ("delicious", "dirty", "clean", "happy", "sad", "cold")
)  # fmt: skip


def exclamation(deal: Dealer) -> Pair:
    """What a beautiful house! ¡Qué casa tan bonita!"""
    adjective = deal.deal(_STRIKING)
    noun = deal.deal(adjective.describes)
    plural = not noun.mass and not noun.single and deal.chance(0.3)
    phrase = noun_phrase("" if plural or noun.mass else "a", noun, plural, adjective)
    es = noun_phrase("", noun, plural).es
    return sentence((f"what {phrase.en}", f"qué {es} tan {agree(adjective.es, noun.gender, plural)}"), "!")


def caption(deal: Dealer) -> Pair:
    """A noun phrase by itself, capitalized in one of four ways: The Red House, LA CASA ROJA."""
    noun = deal.deal(_CAPTIONED)
    casing = deal.deal(CASINGS)
    phrase = a_thing(deal, noun, 0.6)
    if noun.single:
        phrase = noun_phrase(
            deal.choice(("the", "a", "my", "our")) if noun.en == "world" else "the",
            noun,
            False,
            an_adjective(deal, noun, 0.5),
        )
    return cased((phrase.en, contract(phrase.es)), casing)


_CAPTIONED = tuple(noun for noun in NOUNS.values() if noun.category not in ("mind", "language"))


def set_phrase(deal: Dealer) -> Pair:
    """Thank you, good morning and the like, in every capitalization, with or without a mark."""
    phrase = deal.deal(_SET_PHRASES)
    casing = deal.deal(CASINGS)
    return exclaimed(cased(phrase, casing), deal.choice(("", "", ".", "!")))


_SET_PHRASES = tuple(SET_PHRASES.items())


def fixed_sentence(deal: Dealer) -> Pair:
    """Whole sentences to memorize: How are you? ¿Cómo estás? Also in lower case without marks, or in upper case."""
    en, es = deal.deal(FIXED_SENTENCES)
    writing = deal.below(4)
    if writing == 2:
        return en.upper(), es.upper()
    if writing == 3:
        return en.lower().rstrip("?!."), re.sub("[¿?¡!.]", "", es.lower())
    return en, es


Vocative = tuple[str, str, str, bool]


def _vocatives() -> tuple[Vocative, ...]:
    single = [
        (noun.en, noun.es, noun.gender, False)
        for noun in nouns("@kin @profession @person @animal @nature @land house school library music flower coffee")
    ]
    plural = [
        (noun.en_plural, noun.es_plural, noun.gender, True)
        for noun in nouns("friend neighbor student teacher doctor brother sister boy girl bird star tree")
    ]
    others = [("love", "amor", "m", False), ("mom", "mamá", "f", False), ("dad", "papá", "m", False),
        ("baby", "bebé", "m", False), ("Spain", "España", "f", False), ("Mexico", "México", "m", False)]  # fmt: skip
    names = [(en, en, gender, False) for en, gender in NAMES]
    return (*single, *plural, *others, *names)


VOCATIVES = _vocatives()
_WORLD = next(vocative for vocative in VOCATIVES if vocative[0] == "world")
_GREETING_PAIRS = tuple(GREETINGS.items())
_CASINGS_AND_STYLES = tuple((casing, style) for casing in CASINGS for style in GREETING_STYLES)
# Many greetings have no comma and no mark, as people type them.
_PLAIN = tuple((casing, GREETING_STYLES[0]) for casing in CASINGS)


def greet(words_: Pair, vocative: Vocative, casing: str, style: tuple[str, str]) -> Pair:
    """Return a greeting and its addressee; only "welcome" agrees with the addressee (bienvenida, bienvenidos)."""
    en, es, gender, plural = vocative
    if words_[0] == "welcome":
        words_ = (words_[0], agree(words_[1], gender, plural))
    return greeting(words_, (en, es), casing, style)


def hello_somebody(deal: Dealer) -> Pair:
    """Hello Teacher, Hola Maestra: greet anyone except the world (see `greetings_of_the_world`)."""
    words_ = ("hello", "hola") if deal.chance(0.45) else deal.deal(_GREETING_PAIRS)
    vocative = deal.deal(VOCATIVES)
    while vocative is _WORLD:
        vocative = deal.deal(VOCATIVES)
    casing, style = deal.deal(_PLAIN) if deal.chance(0.4) else deal.deal(_CASINGS_AND_STYLES)
    return greet(words_, vocative, casing, style)


def greetings_of_the_world() -> list[Pair]:
    """Return all greetings of the world except those with "hello" and "hi".

    "Hello World" is what a new user types first, and the model should compose it rather than remember it. Therefore
    neither the English nor its Spanish, "hola mundo", occurs in the corpus.
    """
    return [
        greet(words_, _WORLD, casing, style)
        for words_ in _GREETING_PAIRS
        if words_[1] != "hola"
        for casing, style in _CASINGS_AND_STYLES
    ]
