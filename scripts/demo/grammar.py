"""Build phrases and clauses in English and Spanish from the same parts.

Conventions make the translation unique: "you" is tú; "I", "you", "we" and "they" are masculine; the subject pronouns of
"I", "you" and "we" are dropped, and él, ella, ellos are kept; yes/no questions keep the subject first; the simple past
is the pretérito; "was" is era or estaba; a person as object takes the personal a, and so does an animal with verbs such
as "see" and "find".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from demo.inflection import (
    agree,
    article_a,
    conjugate,
    english_number,
    english_third,
    spanish_number,
)
from demo.lexicon import ADJECTIVES, NOUNS, VERBS, Adjective, Noun, Verb

Pair = tuple[str, str]
PEOPLE = ("kin", "profession", "person")


@dataclass(frozen=True)
class NounPhrase:
    """A subject or object in both languages, with the features that verbs and adjectives agree with."""

    en: str
    es: str
    gender: str
    plural: bool
    person: int  # 0 I, 1 you, 2 he/she, 3 we, 4 they
    being: str  # "person", "animal" or "thing": the first two may take the personal a


PRONOUNS = {
    "I": NounPhrase("I", "", "m", False, 0, "person"),
    "you": NounPhrase("you", "", "m", False, 1, "person"),
    "he": NounPhrase("he", "él", "m", False, 2, "person"),
    "she": NounPhrase("she", "ella", "f", False, 2, "person"),
    "we": NounPhrase("we", "", "m", True, 3, "person"),
    "they": NounPhrase("they", "ellos", "m", True, 4, "person"),
}

# English determiner: (Spanish m singular, f singular, m plural, f plural). "a" and "this" have their own plurals.
DETERMINERS = {
    "": ("", "", "", ""),
    "the": ("el", "la", "los", "las"),
    "a": ("un", "una", "", ""),
    "this": ("este", "esta", "", ""),
    "these": ("", "", "estos", "estas"),
    "that": ("ese", "esa", "", ""),
    "those": ("", "", "esos", "esas"),
    "many": ("", "", "muchos", "muchas"),
    "some": ("", "", "unos", "unas"),
    "my": ("mi", "mi", "mis", "mis"),
    "your": ("tu", "tu", "tus", "tus"),
    "his": ("su", "su", "sus", "sus"),
    "her": ("su", "su", "sus", "sus"),
    "their": ("su", "su", "sus", "sus"),
    "our": ("nuestro", "nuestra", "nuestros", "nuestras"),
}


def words(*parts: str) -> str:
    """Join the parts that are not empty with single spaces."""
    return " ".join(part for part in parts if part)


def noun_phrase(
    determiner: str | int, noun: str | Noun, plural: bool = False, adjective: str | Adjective = "", digits: bool = False
) -> NounPhrase:
    """Return a determiner (or a count), an adjective and a noun: "the red houses", "las casas rojas"."""
    noun = NOUNS[noun] if isinstance(noun, str) else noun
    if isinstance(adjective, str) and adjective:
        adjective = ADJECTIVES[adjective]
    if isinstance(determiner, int):
        plural = determiner != 1
    en_noun, es_noun = (noun.en_plural, noun.es_plural) if plural else (noun.en, noun.es)
    en_adjective = es_adjective = ""
    if isinstance(adjective, Adjective):
        en_adjective, es_adjective = adjective.en, agree(adjective.es, noun.gender, plural)
    if isinstance(determiner, int):
        en_determiner = str(determiner) if digits else english_number(determiner)
        es_determiner = str(determiner) if digits else spanish_number(determiner, noun.gender)
    else:
        en_determiner = article_a(en_adjective or en_noun) if determiner == "a" else determiner
        es_determiner = DETERMINERS[determiner][2 * plural + (noun.gender == "f")]
        # A feminine noun that starts with a stressed a takes the masculine article: el agua fría.
        if noun.es == "agua" and determiner in ("the", "a"):
            es_determiner = DETERMINERS[determiner][0]
    return NounPhrase(
        en=words(en_determiner, en_adjective, en_noun),
        es=words(es_determiner, es_noun, es_adjective),
        gender=noun.gender,
        plural=plural,
        person=4 if plural else 2,
        being="person" if noun.category in PEOPLE else "animal" if noun.category == "animal" else "thing",
    )


def name(text: str, gender: str) -> NounPhrase:
    """Return a person's name, the same in both languages."""
    return NounPhrase(text, text, gender, False, 2, "person")


def possession(owner: NounPhrase, noun: str | Noun, plural: bool = False) -> NounPhrase:
    """Return a thing with its owner: "my brother's car", "el coche de mi hermano"."""
    owned = noun_phrase("the", noun, plural)
    ending = "'" if owner.plural and owner.en.endswith("s") else "'s"
    return NounPhrase(
        en=f"{owner.en}{ending} {owned.en.removeprefix('the ')}",
        es=f"{owned.es} de {owner.es}",
        gender=owned.gender,
        plural=plural,
        person=owned.person,
        being=owned.being,
    )


_MEETING = ("see", "look for", "find", "wait for", "listen to", "help", "love")


def direct(verb: Verb, thing: NounPhrase) -> Pair:
    """Return the phrase as a direct object. A person takes the personal a, and so does an animal with some verbs.

    "I see the dog", "veo al perro"; but "I have a brother", "tengo un hermano", and "I want a horse", "quiero un
    caballo".
    """
    personal = thing.being == "person" and verb.es != "tener"
    met = thing.being == "animal" and verb.en in _MEETING
    return thing.en, f"a {thing.es}" if personal or met else thing.es


def be(subject: NounPhrase, past: bool = False) -> str:
    """Return am, are, is, was or were."""
    if past:
        return "was" if subject.person in (0, 2) else "were"
    return ("am", "are", "is", "are", "are")[subject.person]


def do(subject: NounPhrase, tense: str) -> str:
    """Return the English auxiliary of negations and questions: do, does, did, will."""
    if tense == "present":
        return "does" if subject.person == 2 else "do"
    return {"past": "did", "future": "will"}[tense]


def finite(subject: NounPhrase, verb: Verb, tense: str) -> str:
    """Return the English verb of a statement: eat, eats, ate, will eat."""
    if tense == "present":
        return english_third(verb.en) if subject.person == 2 else verb.en
    return verb.past if tense == "past" else f"will {verb.en}"


def find_verb(en: str, es: str = "") -> Verb:
    """Return the verb of an English base form; `es` selects one of several with the same base form (know, love)."""
    return next(verb for (base, infinitive), verb in VERBS.items() if base == en and es in ("", infinitive))


def clause(
    subject: NounPhrase,
    verb: Verb,
    rest: Pair = ("", ""),
    tense: str = "present",
    negative: bool = False,
    question: bool = False,
    adverb: Pair = ("", ""),
    short: bool = False,
) -> Pair:
    """Return subject, verb and the rest (object, place, time) as a statement or a yes/no question.

    `adverb` stands before the verb (always, never); `short` writes don't, doesn't, didn't.
    """
    es_verb = conjugate(verb.es, tense, subject.person)
    es = words(subject.es, "no" if negative else "", adverb[1], es_verb, rest[1])
    auxiliary = do(subject, tense)
    not_ = "not" if negative else ""
    if negative and short and auxiliary != "will":
        auxiliary, not_ = f"{auxiliary}n't", ""
    if question:
        en = words(auxiliary, subject.en, not_, adverb[0], verb.en, rest[0])
    elif negative:
        en = words(subject.en, auxiliary, not_, adverb[0], verb.en, rest[0])
    elif tense == "future":
        en = words(subject.en, "will", adverb[0], verb.en, rest[0])
    else:
        en = words(subject.en, adverb[0], finite(subject, verb, tense), rest[0])
    return en, es


def and_(first: str, second: str) -> str:
    """Join two Spanish phrases: y, but e before the sound i (padre e hijo)."""
    return f"{first} {'e' if second.startswith(('i', 'hi')) else 'y'} {second}"


def at_place(verb: Verb, place: NounPhrase) -> Pair:
    """Return the preposition and place of a verb of motion or living: "to the park", "al parque"."""
    return words(verb.preposition[0], place.en), words(verb.preposition[1], place.es)


def described(
    subject: NounPhrase,
    adjective: str | Adjective,
    past: bool = False,
    negative: bool = False,
    question: bool = False,
    very: bool = False,
) -> Pair:
    """Return "the house is big", "la casa es grande"; in a question the noun comes last in Spanish."""
    adjective = ADJECTIVES[adjective] if isinstance(adjective, str) else adjective
    es_verb = conjugate(adjective.copula, "imperfect" if past else "present", subject.person)
    es_adjective = words("muy" if very else "", agree(adjective.es, subject.gender, subject.plural))
    en_adjective = words("very" if very else "", adjective.en)
    if question:
        # Pronouns stay first, as in the other questions: ¿Ella está cansada? but ¿Está cansada la maestra?
        first, last = (subject.es, "") if subject in PRONOUNS.values() else ("", subject.es)
        return words(be(subject, past), subject.en, en_adjective), words(first, es_verb, es_adjective, last)
    en = words(subject.en, be(subject, past), "not" if negative else "", en_adjective)
    return en, words(subject.es, "no" if negative else "", es_verb, es_adjective)


_CONTRACTIONS = ((re.compile(r"\ba el\b"), "al"), (re.compile(r"\bde el\b"), "del"))


def contract(es: str) -> str:
    """Write a el as al and de el as del."""
    for pattern, contracted in _CONTRACTIONS:
        es = pattern.sub(contracted, es)
    return es


def capital(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def sentence(pair: Pair, mark: str = ".", opening: Pair = ("", "")) -> Pair:
    """Return a written sentence: contractions, capital letter, marks; `opening` is a word such as "yes" or "no"."""
    en, es = pair[0], contract(pair[1])
    if mark in ("?", "!"):
        inner = es if opening[1] else capital(es)
        es = {"?": "¿", "!": "¡"}[mark] + inner + mark
    else:
        es = es + mark
    if opening[0]:
        return capital(f"{opening[0]}, {en}{mark}"), capital(f"{opening[1]}, {es}")
    return capital(en) + mark, capital(es)


CASINGS = ("title", "lower", "sentence", "upper")


def cased(pair: Pair, casing: str) -> Pair:
    """Return the pair in one of four capitalizations: Hello World, hello world, Hello world, HELLO WORLD."""
    if casing == "upper":
        return pair[0].upper(), pair[1].upper()
    if casing == "lower":
        return pair[0].lower(), pair[1].lower()
    # A single English word is the same in title and sentence case, so "Please" must not also be "Por Favor".
    if casing == "sentence" or " " not in pair[0]:
        return capital(pair[0]), capital(pair[1])
    en, es = (" ".join(capital(word) for word in text.split(" ")) for text in pair)
    return en, es


# Between a greeting and its addressee, and after them: (separator, mark).
GREETING_STYLES = ((" ", ""), (" ", "!"), (", ", "!"), (", ", ""), (", ", "."), (" ", "."))


def greeting(words_: Pair, vocative: Pair, casing: str, style: tuple[str, str]) -> Pair:
    """Return a greeting and its addressee, capitalized alike: "Good Night, Moon!", "¡Buenas Noches, Luna!"."""
    separator, mark = style
    pair = words_[0] + separator + vocative[0], words_[1] + separator + vocative[1]
    return exclaimed(cased(pair, casing), mark)


def exclaimed(pair: Pair, mark: str) -> Pair:
    """Return the pair with a final mark, and ¡ or ¿ before the Spanish where it needs one."""
    return pair[0] + mark, {"!": "¡", "?": "¿"}.get(mark, "") + pair[1] + mark
