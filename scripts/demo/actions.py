"""Templates with a main verb: somebody does, wants, gives or likes something."""

from __future__ import annotations

from demo.dealer import Dealer
from demo.grammar import (
    PEOPLE,
    Pair,
    and_,
    be,
    clause,
    direct,
    find_verb,
    noun_phrase,
    sentence,
    words,
)
from demo.inflection import (
    command,
    conjugate,
    english_ing,
    gerund,
)
from demo.lexicon import (
    DITRANSITIVE,
    MOTION,
    TRANSITIVE,
    Verb,
    nouns,
)
from demo.parts import (
    DOABLE,
    PERSONS,
    STATIVE,
    a_form,
    a_place,
    a_subject,
    a_thing,
    an_animal,
    an_infinitive,
    at_some_time,
    named,
    someone,
    then,
    written,
)

_PROGRESSIVE = tuple(verb for verb in DOABLE if verb.en not in ("see", "find", "lose", "say", "tell"))
_PLEASANT = tuple(verb for verb in DOABLE if verb.en not in ("find", "lose", "look for", "say"))
_MOVING = tuple(verb for verb in MOTION if verb.en not in ("go", "come"))

# One card for every verb in every tense and person, so that all Spanish forms are about equally frequent.
_ACTIONS = tuple((verb, tense, person) for verb in TRANSITIVE for tense in verb.tenses for person in PERSONS)
_OF_ANIMALS = ("eat", "drink", "see", "look for", "find", "wait for", "love")
_ANIMAL_VERBS = tuple(verb for verb in TRANSITIVE if verb.en in _OF_ANIMALS)
_ANIMAL_ACTIONS = tuple(
    (verb, tense, plural) for verb in _ANIMAL_VERBS for tense in verb.tenses for plural in (False, False, True)
)
_MOVES = tuple((verb, tense, person) for verb in MOTION for tense in verb.tenses for person in PERSONS)


def action(deal: Dealer) -> Pair:
    """Somebody does something to something: present, past, future; statement, negation, question."""
    verb, tense, person = deal.deal(_ACTIONS)
    negative, question = a_form(deal, person)
    when = ("", "")
    adverb = ("", "")
    if verb.en not in STATIVE:
        # "I read the book" is the present unless a time says otherwise.
        unclear = verb.en == "read" and tense == "past" and not negative and not question
        when = at_some_time(deal, tense, 1.0 if unclear else 0.25)
        if tense == "present" and not when[0] and not negative and not question and deal.chance(0.25):
            adverb = deal.choice((("always", "siempre"), ("never", "nunca")))
    known = verb.es in ("saber", "conocer", "decir")  # these verbs need a determiner: not "I know answers"
    thing = a_thing(deal, deal.deal(verb.objects), bare=not known, counted=not negative)
    rest = then(direct(verb, thing), when)
    pair = clause(a_subject(deal, person), verb, rest, tense, negative, question, adverb, deal.chance(0.3))
    return written(deal, pair, negative, question)


def animal_action(deal: Dealer) -> Pair:
    """The dog sees the cat, el perro ve al gato."""
    verb, tense, plural = deal.deal(_ANIMAL_ACTIONS)
    negative, question = a_form(deal)
    if verb.en in ("eat", "drink"):
        rest = direct(verb, a_thing(deal, deal.deal(verb.objects), 0.1, counted=not negative))
    else:
        rest = direct(verb, an_animal(deal, deal.chance(0.2)) if deal.chance(0.6) else someone(deal))
    if verb.en not in STATIVE:
        rest = then(rest, at_some_time(deal, tense, 0.15))
    pair = clause(an_animal(deal, plural), verb, rest, tense, negative, question, short=deal.chance(0.3))
    return written(deal, pair, negative, question)


def motion(deal: Dealer) -> Pair:
    """Somebody goes, lives, sleeps somewhere, perhaps with somebody."""
    verb, tense, person = deal.deal(_MOVES)
    negative, question = a_form(deal, person)
    rest = a_place(deal, verb)
    if deal.chance(0.2):
        companion = named(deal) if deal.chance(0.4) else someone(deal)
        rest = then(rest, (f"with {companion.en}", f"con {companion.es}"))
    elif verb.en != "live":
        rest = then(rest, at_some_time(deal, tense, 0.4))
    pair = clause(a_subject(deal, person), verb, rest, tense, negative, question, short=deal.chance(0.3))
    return written(deal, pair, negative, question)


def progressive(deal: Dealer) -> Pair:
    """I am eating an apple, estoy comiendo una manzana."""
    verb, rest = an_infinitive(deal, _PROGRESSIVE, _MOVING)
    subject = a_subject(deal, deal.deal(PERSONS))
    negative, question = a_form(deal, subject.person)
    if deal.chance(0.2):
        rest = then(rest, ("now", "ahora"))
    not_ = "not" if negative else ""
    doing = words(english_ing(verb.en), rest[0])
    en = words(be(subject), subject.en, doing) if question else words(subject.en, be(subject), not_, doing)
    estar = conjugate("estar", "present", subject.person)
    return written(
        deal, (en, words(subject.es, "no" if negative else "", estar, gerund(verb.es), rest[1])), negative, question
    )


# English modal, Spanish verb, what joins the Spanish infinitive to it.
_MODALS = (
    ("can", "poder", ""), ("want to", "querer", ""), ("have to", "tener", "que"), ("need to", "necesitar", ""),
    ("going to", "ir", "a"), ("must", "deber", ""),
)  # fmt: skip


def modal(deal: Dealer) -> Pair:
    """I can, want to, have to, am going to do something: an infinitive in Spanish."""
    en_modal, es_modal, link = deal.deal(_MODALS)
    verb, rest = an_infinitive(deal)
    subject = a_subject(deal, deal.deal(PERSONS))
    negative, question = a_form(deal, subject.person)
    base = words(verb.en, rest[0])
    not_ = "not" if negative else ""
    if en_modal in ("can", "must"):
        question = question and en_modal == "can"
        can = "cannot" if negative and en_modal == "can" else words(en_modal, not_)
        en = words("can", subject.en, base) if question else words(subject.en, can, base)
    elif en_modal == "going to":
        en = words(be(subject), subject.en) if question else words(subject.en, be(subject), not_)
        en = words(en, en_modal, base)
    else:
        pair = clause(subject, Verb(en_modal, "", "comer", (), ()), (base, ""), "present", negative, question)
        en = pair[0]
    es = words(
        subject.es, "no" if negative else "", conjugate(es_modal, "present", subject.person), link, verb.es, rest[1]
    )
    return written(deal, (en, es), negative, question)


_GIFTS = nouns("@text @thing @clothes @food guitar cup chair")
_CLITICS = (("me", "me"), ("you", "te"), ("him", "lo"), ("her", "la"), ("us", "nos"), ("them", "los"))
_PRONOUN_OBJECTS = tuple(
    (find_verb(en, es), clitic)
    for en, es in (
        ("see", ""), ("help", ""), ("visit", ""), ("look for", ""), ("find", ""), ("wait for", ""),
        ("listen to", ""), ("love", ""), ("know", "conocer"),
    )
    for clitic in _CLITICS
)  # fmt: skip
_SAME_PERSON = {"me": (0, 3), "us": (0, 3), "you": (1,)}


def pronoun_object(deal: Dealer) -> Pair:
    """I see her, la veo."""
    verb, (en_object, clitic) = deal.deal(_PRONOUN_OBJECTS)
    person = deal.choice([p for p in PERSONS if p not in _SAME_PERSON.get(en_object, ())])
    tense = deal.choice(verb.tenses)
    negative, question = a_form(deal, person)
    when = at_some_time(deal, tense, 0.3 if verb.en not in STATIVE else 0)
    # The clitic precedes the verb, as "always" and "never" do: "ella no la ve".
    pair = clause(a_subject(deal, person), verb, then((en_object, ""), when), tense, negative, question, ("", clitic))
    return written(deal, pair, negative, question)


def give(deal: Dealer) -> Pair:
    """I give the book to the teacher, le doy el libro a la maestra; he shows me a photo, él me muestra una foto."""
    verb = deal.deal(DITRANSITIVE)
    tense = deal.choice(verb.tenses)
    negative, question = a_form(deal)
    thing = a_thing(deal, deal.deal(_GIFTS), 0.1, counted=not negative)
    if deal.chance(0.6):
        receiver = someone(deal, plural=deal.chance(0.3))
        person = deal.deal(PERSONS)
        rest = (words(thing.en, "to", receiver.en), words(thing.es, "a", receiver.es))
        clitic = "les" if receiver.plural else "le"
    else:
        en_receiver, clitic = deal.choice((("me", "me"), ("you", "te"), ("us", "nos")))
        person = deal.choice([p for p in PERSONS if p not in _SAME_PERSON[en_receiver]])
        rest = (words(en_receiver, thing.en), thing.es)
    return written(
        deal,
        clause(a_subject(deal, person), verb, rest, tense, negative, question, ("", clitic)),
        negative,
        question,
    )


_LIKED = nouns("@food @dish @drink @text @animal @language @instrument flower music song beach mountain museum")
_LIKE_PRONOUN = ("me", "te", "le", "nos", "les")


def like(deal: Dealer) -> Pair:
    """I like apples, me gustan las manzanas: the thing liked is the Spanish subject."""
    subject = a_subject(deal, deal.deal(PERSONS))
    negative, question = a_form(deal, subject.person)
    if deal.chance(0.3):
        verb, rest = an_infinitive(deal, _PLEASANT)
        en_liked, es_liked, many = words("to", verb.en, rest[0]), words(verb.es, rest[1]), False
    else:
        noun = deal.deal(_LIKED)
        many = not noun.mass
        if many and deal.chance(0.4):
            some = deal.chance(0.5)
            thing = noun_phrase(deal.choice(("these", "those", "my") if some else ("this", "that", "the")), noun, some)
            en_liked, es_liked, many = thing.en, thing.es, thing.plural
        else:
            en_liked, es_liked = noun_phrase("", noun, many).en, noun_phrase("the", noun, many).es
    en = clause(
        subject, Verb("like", "liked", "comer", (), ()), (en_liked, ""), "present", negative, question,
        short=deal.chance(0.3),
    )[0]  # fmt: skip
    who = f"a {subject.es}" if subject.es else ""
    gusta = "gustan" if many else "gusta"
    es = words(who, "no" if negative else "", _LIKE_PRONOUN[subject.person], gusta, es_liked)
    return written(deal, (en, es), negative, question)


_ORDERS = tuple(
    find_verb(en) for en in (
        "eat", "drink", "read", "write", "buy", "sell", "open", "close", "clean", "look for", "make", "cook",
        "help", "visit", "wait for", "listen to", "study", "learn", "bring", "paint",
    )
)  # fmt: skip


def order(deal: Dealer) -> Pair:
    """Open the door! Do not open the door, please."""
    verb = deal.deal(_ORDERS)
    negative = deal.chance(0.45)
    thing = a_thing(deal, deal.deal(verb.objects), 0.15)
    if thing.es.startswith(("tu ", "tus ")) and deal.chance(0.7):
        thing = noun_phrase("the", deal.deal(verb.objects))
    rest = direct(verb, thing)
    en = words("do not" if negative else "", verb.en, rest[0])
    es = words("no" if negative else "", command(verb.es, negative), rest[1])
    if deal.chance(0.3):
        en, es = f"{en}, please", f"{es}, por favor"
    return sentence((en, es), deal.choice((".", "!")))


_SHARED = tuple(find_verb(en) for en in ("eat", "buy", "see", "sell", "want", "look for"))


def two_things(deal: Dealer) -> Pair:
    """I buy bread and milk, compro pan y leche."""
    verb = deal.deal(_SHARED)
    second = deal.deal(verb.objects)
    others = [noun for noun in verb.objects if noun is not second]
    first = deal.choice([noun for noun in others if noun.category == second.category] or others)
    things = []
    for noun in (first, second):
        bare = noun.category not in PEOPLE and not noun.single and verb.en in ("eat", "buy", "sell", "want")
        things.append(noun_phrase("", noun, not noun.mass) if bare else a_thing(deal, noun, 0, bare=False))
    one, two = (direct(verb, thing) for thing in things)
    joined = deal.choice(((f"{one[0]} and {two[0]}", and_(one[1], two[1])), one))
    tense = deal.choice(verb.tenses)
    return sentence(clause(a_subject(deal, deal.deal(PERSONS)), verb, joined, tense))
