import gzip
import itertools
import random
import re
from collections import Counter
from importlib.resources import files

import pytest
from demo import generate, source_key
from demo.actions import action, modal, motion, progressive
from demo.dealer import Dealer
from demo.grammar import (
    PRONOUNS,
    NounPhrase,
    at_place,
    clause,
    contract,
    described,
    direct,
    find_verb,
    greeting,
    name,
    noun_phrase,
    possession,
    sentence,
)
from demo.inflection import agree, command, conjugate, gerund, spanish_number, spanish_plural
from demo.lexicon import NOUNS
from demo.phrases import greetings_of_the_world
from demo.states import description
from demo.templates import TEMPLATES
from make_demo import to_tsv

from mtcli.corpus.demo import DemoCorpus, Pair, load

ANA = name("Ana", "f")


@pytest.fixture(scope="module")
def corpus() -> DemoCorpus:
    return generate()


@pytest.fixture(scope="module")
def pairs(corpus: DemoCorpus) -> list[Pair]:
    return corpus.train + corpus.valid + corpus.test


def spoken(text: str) -> list[str]:
    return source_key(text).split()


# --- The corpus ---


def test_counts_and_no_duplicates(corpus: DemoCorpus, pairs: list[Pair]) -> None:
    assert len(corpus.train) >= 20_000
    assert len(corpus.valid) == len(corpus.test) == 500
    assert len({en for en, _ in pairs}) == len(pairs)


def test_the_packaged_file_is_what_the_generator_makes(corpus: DemoCorpus) -> None:
    """This process hashes strings in another way than that which made the file, so the order of a set would show."""
    packaged = (files("mtcli.corpus") / "demo.tsv.gz").read_bytes()
    assert gzip.decompress(packaged).decode() == to_tsv(corpus)
    assert load() == corpus


def test_another_seed_is_another_corpus(corpus: DemoCorpus) -> None:
    assert generate(2).test != corpus.test


def test_splits_share_no_sentence_in_any_writing(corpus: DemoCorpus) -> None:
    train, valid, test = ({source_key(en) for en, _ in split} for split in (corpus.train, corpus.valid, corpus.test))
    assert not train & valid
    assert not train & test
    assert not valid & test
    assert len(valid) == len(test) == 500


def test_source_key_ignores_case_punctuation_and_contraction() -> None:
    assert source_key("HELLO, World!") == source_key("hello world") == "hello world"
    assert source_key("I don't know.") == source_key("i do not know")


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_hello_world_is_never_shown_but_its_words_are(seed: int) -> None:
    made = generate(seed)
    for en, es in made.train + made.valid + made.test:
        assert "hello world" not in source_key(en)
        assert "hi world" not in source_key(en)
        assert "hola mundo" not in source_key(es)
    train = [en for en, _ in made.train]
    for word in ("Hello", "hello", "HELLO", "World", "world", "WORLD"):
        assert sum(word in re.findall(r"\w+", en) for en in train) >= 30, word


def test_one_sentence_has_one_translation(pairs: list[Pair]) -> None:
    meanings: dict[str, set[str]] = {}
    for en, es in pairs:
        meanings.setdefault(source_key(en), set()).add(source_key(es))
    assert not {en: es for en, es in meanings.items() if len(es) > 1}


def test_templates_never_contradict_each_other() -> None:
    deal = Dealer(7)
    meanings: dict[str, str] = {}
    for template, wanted in TEMPLATES:
        for _ in range(min(wanted, 600)):
            en, es = template(deal)
            assert meanings.setdefault(en, es) == es


def test_every_held_out_word_is_in_train_on_both_sides(corpus: DemoCorpus) -> None:
    for side in (0, 1):
        known = Counter(word for pair in corpus.train for word in spoken(pair[side]))
        for pair in corpus.valid + corpus.test:
            for word in spoken(pair[side]):
                assert known[word] >= 8, (word, pair)


def test_greetings_are_about_a_tenth(corpus: DemoCorpus) -> None:
    hello = sum(source_key(en).startswith("hello ") for en, _ in corpus.train)
    assert hello / len(corpus.train) > 0.03
    world = [en for en, _ in corpus.train if source_key(en).endswith(" world") and len(spoken(en)) <= 4]
    assert len(world) >= 250


def test_spanish_marks_come_in_pairs(pairs: list[Pair]) -> None:
    for en, es in pairs:
        assert (es.count("¿"), es.count("¡")) == (es.count("?"), es.count("!")), (en, es)
        if en.endswith(("?", "!", ".")):
            assert es.endswith(en[-1]), (en, es)


def test_text_is_tidy(pairs: list[Pair]) -> None:
    for pair in pairs:
        for text in pair:
            assert text == " ".join(text.split())
            assert text
            assert text.isprintable()
            assert len(text.split()) <= 14
        assert not re.search(r"\b(a|de) el\b", pair[1].lower()), pair
        # a before a consonant, an before a vowel; all our words are regular in this
        assert not re.search(r"\ba [aeiou]|\ban [^aeiou\W]", pair[0].lower()), pair


def test_casing_is_mirrored(pairs: list[Pair]) -> None:
    for en, es in pairs:
        if len(en) > 3:
            assert en.isupper() == es.isupper(), (en, es)
        if en[0].isalpha() and not en.startswith("I "):
            first = next(letter for letter in es if letter.isalpha())
            assert en[0].isupper() == first.isupper(), (en, es)


# --- Agreement ---

_ARTICLES = {"el": "m", "la": "f", "los": "m", "las": "f", "un": "m", "una": "f", "este": "m", "esta": "f",
             "estos": "m", "estas": "f", "ese": "m", "esa": "f", "esos": "m", "esas": "f"}  # fmt: skip


def test_articles_agree_with_their_nouns_throughout(pairs: list[Pair]) -> None:
    gender = {form: noun.gender for noun in NOUNS.values() for form in (noun.es, noun.es_plural)}
    plural = {noun.es_plural for noun in NOUNS.values()} - {noun.es for noun in NOUNS.values()}
    seen = 0
    for _, es in pairs:
        spoken_es = re.findall(r"\w+", es.lower())
        for article, noun in itertools.pairwise(spoken_es):
            if article in _ARTICLES and noun in gender and noun != "agua":
                assert _ARTICLES[article] == gender[noun], es
                # Not "un", "una": they end a number, treinta y un libros.
                assert not (article in ("el", "la") and noun in plural), es
                seen += 1
    assert seen > 5000


def test_water_takes_the_masculine_article_only_next_to_it() -> None:
    assert noun_phrase("the", "water", adjective="cold").es == "el agua fría"
    assert noun_phrase("this", "water").es == "esta agua"


@pytest.mark.parametrize(
    ("adjective", "gender", "plural", "expected"),
    [
        ("rojo", "f", True, "rojas"),
        ("grande", "f", False, "grande"),
        ("azul", "m", True, "azules"),
        ("joven", "f", True, "jóvenes"),
        ("difícil", "f", True, "difíciles"),
    ],
)
def test_adjectives(adjective: str, gender: str, plural: bool, expected: str) -> None:
    assert agree(adjective, gender, plural) == expected


@pytest.mark.parametrize(
    ("singular", "plural"),
    [("lección", "lecciones"), ("autobús", "autobuses"), ("lápiz", "lápices"), ("café", "cafés"), ("reloj", "relojes"),
     ("árbol", "árboles"), ("paraguas", "paraguas"), ("león", "leones"), ("jardín", "jardines")],
)  # fmt: skip
def test_plurals(singular: str, plural: str) -> None:
    assert spanish_plural(singular) == plural


@pytest.mark.parametrize(
    ("infinitive", "tense", "forms"),
    [
        ("comer", "present", "como comes come comemos comen"),
        ("buscar", "past", "busqué buscaste buscó buscamos buscaron"),
        ("llegar", "past", "llegué llegaste llegó llegamos llegaron"),
        ("tener", "future", "tendré tendrás tendrá tendremos tendrán"),
        ("decir", "past", "dije dijiste dijo dijimos dijeron"),
        ("leer", "past", "leí leíste leyó leímos leyeron"),
        ("vivir", "present", "vivo vives vive vivimos viven"),
        ("salir", "future", "saldré saldrás saldrá saldremos saldrán"),
        ("estar", "imperfect", "estaba estabas estaba estábamos estaban"),
    ],
)
def test_conjugation(infinitive: str, tense: str, forms: str) -> None:
    assert [conjugate(infinitive, tense, person) for person in range(5)] == forms.split()


def test_other_verb_forms() -> None:
    assert [gerund(verb) for verb in ("comer", "leer", "dormir")] == ["comiendo", "leyendo", "durmiendo"]
    assert [command(verb, False) for verb in ("abrir", "hacer", "cerrar")] == ["abre", "haz", "cierra"]
    assert [command(verb, True) for verb in ("abrir", "hacer", "buscar")] == ["abras", "hagas", "busques"]


def test_numbers() -> None:
    assert [spanish_number(n) for n in (0, 16, 21, 22, 31, 40, 100)] == [
        "cero", "dieciséis", "veintiuno", "veintidós", "treinta y uno", "cuarenta", "cien",
    ]  # fmt: skip
    assert [spanish_number(n, "m") for n in (21, 31)] == ["veintiún", "treinta y un"]
    assert [spanish_number(n, "f") for n in (21, 31)] == ["veintiuna", "treinta y una"]


# --- Sentences checked by hand ---


def who(text: str) -> NounPhrase:
    if text in PRONOUNS:
        return PRONOUNS[text]
    if text == "Ana":
        return ANA
    determiner, noun = text.split()
    return thing(determiner, noun)


def thing(determiner: str | int, noun: str, adjective: str = "") -> NounPhrase:
    singular = {n.en_plural: n.en for n in NOUNS.values() if not n.mass and not n.single}
    return noun_phrase(determiner, singular.get(noun, noun), noun in singular, adjective)


def does(subject: str, verb: str, done: NounPhrase, mark: str = ".", es: str = "", **options: object) -> Pair:
    found = find_verb(verb, es)
    return sentence(clause(who(subject), found, direct(found, done), question=mark == "?", **options), mark)  # type: ignore[arg-type]


def goes(subject: str, verb: str, place: NounPhrase, mark: str = ".", **options: object) -> Pair:
    found = find_verb(verb)
    return sentence(clause(who(subject), found, at_place(found, place), question=mark == "?", **options), mark)  # type: ignore[arg-type]


def states(subject: NounPhrase, adjective: str, mark: str = ".", **options: bool) -> Pair:
    return sentence(described(subject, adjective, question=mark == "?", **options), mark)


SENTENCES = [
    (does("I", "eat", thing("a", "apple")), "I eat an apple.", "Como una manzana."),
    (does("I", "eat", thing("a", "apple"), tense="past"), "I ate an apple.", "Comí una manzana."),
    (does("I", "eat", thing("a", "apple"), tense="future"), "I will eat an apple.", "Comeré una manzana."),
    (does("she", "eat", thing("", "bread")), "She eats bread.", "Ella come pan."),
    (does("I", "eat", thing("", "meat"), negative=True), "I do not eat meat.", "No como carne."),
    (does("he", "eat", thing("", "meat"), negative=True), "He does not eat meat.", "Él no come carne."),
    (does("he", "eat", thing("", "meat"), negative=True, short=True), "He doesn't eat meat.", "Él no come carne."),
    (does("we", "eat", thing("the", "fish"), tense="past", negative=True),
     "We did not eat the fish.", "No comimos el pescado."),
    (does("you", "drink", thing("", "coffee"), "?"), "Do you drink coffee?", "¿Bebes café?"),
    (does("she", "drink", thing("the", "milk"), "?", tense="past"), "Did she drink the milk?", "¿Ella bebió la leche?"),
    (does("they", "drink", thing("the", "water"), tense="future"),
     "They will drink the water.", "Ellos beberán el agua."),
    (does("the teacher", "read", thing("a", "book", "long")),
     "The teacher reads a long book.", "La maestra lee un libro largo."),
    (does("the boys", "write", thing("", "letters"), tense="past"),
     "The boys wrote letters.", "Los niños escribieron cartas."),
    (does("my mother", "buy", thing("", "flowers"), tense="past"),
     "My mother bought flowers.", "Mi madre compró flores."),
    (does("I", "see", thing("the", "teacher")), "I see the teacher.", "Veo a la maestra."),
    (does("I", "see", thing("the", "doctor")), "I see the doctor.", "Veo al médico."),
    (does("I", "see", ANA, tense="past"), "I saw Ana.", "Vi a Ana."),
    (does("we", "see", thing("the", "moon")), "We see the moon.", "Vemos la luna."),
    (does("he", "open", thing("the", "door"), tense="past"), "He opened the door.", "Él abrió la puerta."),
    (does("you", "close", thing("the", "windows")), "You close the windows.", "Cierras las ventanas."),
    (does("I", "look for", thing("my", "keys"), tense="past"), "I looked for my keys.", "Busqué mis llaves."),
    (does("she", "look for", thing("her", "brother")), "She looks for her brother.", "Ella busca a su hermano."),
    (does("they", "find", thing("the", "answer"), tense="past"),
     "They found the answer.", "Ellos encontraron la respuesta."),
    (does("I", "make", thing("a", "cake"), tense="past"), "I made a cake.", "Hice un pastel."),
    (does("we", "make", thing("", "soup"), tense="future"), "We will make soup.", "Haremos sopa."),
    (does("I", "help", thing("my", "sister")), "I help my sister.", "Ayudo a mi hermana."),
    (does("the girl", "listen to", thing("", "music")), "The girl listens to music.", "La niña escucha música."),
    (does("you", "have", thing("a", "dog"), "?"), "Do you have a dog?", "¿Tienes un perro?"),
    (does("she", "have", thing(2, "brothers")), "She has two brothers.", "Ella tiene dos hermanos."),
    (does("I", "want", thing("a", "bicycle", "red")), "I want a red bicycle.", "Quiero una bicicleta roja."),
    (does("I", "love", thing("my", "mother")), "I love my mother.", "Quiero a mi madre."),
    (does("I", "know", thing("the", "answer"), es="saber"), "I know the answer.", "Sé la respuesta."),
    (does("I", "know", thing("your", "uncle"), es="conocer"), "I know your uncle.", "Conozco a tu tío."),
    (does("you", "tell", thing("the", "truth"), tense="past"), "You told the truth.", "Dijiste la verdad."),
    (does("we", "bring", thing("these", "gifts")), "We bring these gifts.", "Traemos estos regalos."),
    (does("she", "play", thing("the", "piano")), "She plays the piano.", "Ella toca el piano."),
    (does("I", "study", thing("", "Spanish"), adverb=("always", "siempre")),
     "I always study Spanish.", "Siempre estudio español."),
    (does("Ana", "eat", thing("", "cheese"), adverb=("never", "nunca")),
     "Ana never eats cheese.", "Ana nunca come queso."),
    (goes("I", "go", thing("the", "market")), "I go to the market.", "Voy al mercado."),
    (goes("we", "go", thing("the", "beach"), tense="past"), "We went to the beach.", "Fuimos a la playa."),
    (goes("you", "go", thing("the", "school"), "?", tense="future"),
     "Will you go to the school?", "¿Irás a la escuela?"),
    (goes("he", "come", thing("my", "house"), tense="past"), "He came to my house.", "Él vino a mi casa."),
    (goes("they", "leave", thing("the", "hospital"), tense="past"),
     "They left the hospital.", "Ellos salieron del hospital."),
    (goes("the train", "arrive", thing("the", "station")),
     "The train arrives at the station.", "El tren llega a la estación."),
    (goes("my friends", "live", thing("this", "city")),
     "My friends live in this city.", "Mis amigos viven en esta ciudad."),
    (goes("the students", "sleep", thing("a", "hotel"), tense="past"),
     "The students slept in a hotel.", "Los estudiantes durmieron en un hotel."),
    (states(thing("the", "house"), "big"), "The house is big.", "La casa es grande."),
    (states(thing("the", "houses"), "white"), "The houses are white.", "Las casas son blancas."),
    (states(thing("the", "house"), "big", "?"), "Is the house big?", "¿Es grande la casa?"),
    (states(who("I"), "tired"), "I am tired.", "Estoy cansado."),
    (states(who("she"), "happy", negative=True), "She is not happy.", "Ella no está contenta."),
    (states(who("she"), "tired", "?"), "Is she tired?", "¿Ella está cansada?"),
    (states(thing("those", "windows"), "open"), "Those windows are open.", "Esas ventanas están abiertas."),
    (states(thing("our", "teacher"), "tall", very=True), "Our teacher is very tall.", "Nuestra maestra es muy alta."),
    (states(thing("the", "soup"), "cold", past=True), "The soup was cold.", "La sopa estaba fría."),
    (states(thing("the", "lessons"), "easy", past=True), "The lessons were easy.", "Las lecciones eran fáciles."),
    (states(possession(thing("my", "brother"), "car"), "new"),
     "My brother's car is new.", "El coche de mi hermano es nuevo."),
    (states(possession(thing("the", "doctor"), "bag"), "black"),
     "The doctor's bag is black.", "La bolsa del médico es negra."),
    (states(possession(thing("the", "girls"), "dress", True), "red"),
     "The girls' dresses are red.", "Los vestidos de las niñas son rojos."),
]  # fmt: skip


@pytest.mark.parametrize(("pair", "en", "es"), SENTENCES, ids=[en for _, en, _ in SENTENCES])
def test_sentence(pair: Pair, en: str, es: str) -> None:
    assert pair == (en, es)


# Whole templates at work: these sentences must come out of their template, as written here.
GENERATED = {
    "I am hungry.": "Tengo hambre.",
    "She is thirsty.": "Ella tiene sed.",
    "He is a doctor.": "Él es médico.",
    "Are you a teacher?": "¿Eres maestra?",
    "It is one o'clock.": "Es la una.",
    "It is half past three.": "Son las tres y media.",
    "It is a quarter to six.": "Son las seis menos cuarto.",
    "Today is Monday.": "Hoy es lunes.",
    "Tomorrow is Friday.": "Mañana es viernes.",
    "twenty-one": "veintiuno",
    "I love him.": "Lo quiero.",
    "They love us.": "Ellos nos quieren.",
    "My name is Ana.": "Me llamo Ana.",
    "How are you?": "¿Cómo estás?",
    "Where does she live?": "¿Dónde vive ella?",
    "What did you buy?": "¿Qué compraste?",
    "When will they arrive?": "¿Cuándo llegarán ellos?",
    "Thank you": "Gracias",
    "THANK YOU": "GRACIAS",
    "Good Morning": "Buenos Días",
    "I like music.": "Me gusta la música.",
    "We like apples.": "Nos gustan las manzanas.",
    "Goodbye World": "Adiós Mundo",
    "WELCOME WORLD": "BIENVENIDO MUNDO",
    "Hello Teacher": "Hola Maestra",
    "hello moon": "hola luna",
}


def test_templates_make_these_sentences() -> None:
    deal = Dealer(1)
    made = dict(greetings_of_the_world())
    for template, _ in TEMPLATES:
        if template not in (action, motion, modal, progressive, description):  # their sentences are above
            made |= dict(template(deal) for _ in range(4000))
    assert {en: made.get(en) for en in GENERATED} == GENERATED


@pytest.mark.parametrize(
    ("casing", "style", "en", "es"),
    [
        ("title", (" ", ""), "Good Night Moon", "Buenas Noches Luna"),
        ("lower", (" ", "!"), "good night moon!", "¡buenas noches luna!"),
        ("sentence", (", ", "."), "Good night, moon.", "Buenas noches, luna."),
        ("upper", (", ", "!"), "GOOD NIGHT, MOON!", "¡BUENAS NOCHES, LUNA!"),
    ],
)
def test_greeting_capitalisations(casing: str, style: tuple[str, str], en: str, es: str) -> None:
    assert greeting(("good night", "buenas noches"), ("moon", "luna"), casing, style) == (en, es)


def test_contractions_leave_the_pronoun_alone() -> None:
    assert contract("voy a el parque de el rey") == "voy al parque del rey"
    assert contract("a él le gusta el coche de él") == "a él le gusta el coche de él"


def test_a_deck_deals_every_card_before_any_again() -> None:
    deal = Dealer(3)
    cards = tuple(range(20))
    assert sorted(deal.deal(cards) for _ in range(20)) == list(cards)
    assert sorted(deal.shuffled(cards)) == list(cards)
    first = random.Random(3).random()
    assert Dealer(3).below(1000) == int(first * 1000)
