"""The words of the demo corpus, as tables: English, Spanish, and what the grammar needs to know about them.

Every noun has one gender and every adjective one copula (ser or estar), so that an English sentence has exactly one
translation. Every verb has a list of possible objects, so that sentences make sense.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from demo.inflection import english_plural, spanish_plural

Gender = Literal["m", "f"]
Copula = Literal["ser", "estar"]


@dataclass(frozen=True)
class Noun:
    """A noun in both languages. `mass`: it has no plural; `single`: it is used in the singular only (the sun)."""

    en: str
    es: str
    gender: Gender
    category: str
    en_plural: str
    es_plural: str
    mass: bool = False
    single: bool = False


@dataclass(frozen=True)
class Adjective:
    """An adjective (Spanish masculine singular), its copula, its comparative and the nouns it can describe."""

    en: str
    es: str
    copula: Copula
    comparative: str
    describes: tuple[Noun, ...]


@dataclass(frozen=True)
class Verb:
    """A verb: English base and past, Spanish infinitive, its tenses in the demo, and its possible objects or places."""

    en: str
    past: str
    es: str
    objects: tuple[Noun, ...]
    tenses: tuple[str, ...]
    preposition: tuple[str, str] = ("", "")  # before a place: ("to", "a")


# category: "english[/plural] spanish gender [mass|single], ..."
_NOUN_TABLE = {
    "kin": """brother hermano m, sister hermana f, mother madre f single, father padre m single, son hijo m,
        daughter hija f, grandmother abuela f single, grandfather abuelo m single, uncle tío m, aunt tía f,
        cousin primo m, friend amigo m, neighbor vecino m""",
    "profession": """teacher maestra f, doctor médico m, student estudiante m, nurse enfermera f, writer escritora f,
        lawyer abogada f, engineer ingeniero m, singer cantante f, baker panadero m, waiter camarero m,
        dancer bailarina f, painter pintor m""",
    "person": """man/men hombre m, woman/women mujer f, boy niño m, girl niña f, king rey m single,
        queen reina f single""",
    "animal": """dog perro m, cat gato m, bird pájaro m, horse caballo m, cow vaca f, rabbit conejo m,
        mouse/mice ratón m, bear oso m, lion león m, duck pato m, elephant elefante m, butterfly mariposa f""",
    "food": """apple manzana f, orange naranja f, egg huevo m, potato/potatoes patata f, tomato/tomatoes tomate m,
        cake pastel m, sandwich bocadillo m, lemon limón m, cookie galleta f, banana plátano m""",
    "dish": """bread pan m mass, cheese queso m mass, meat carne f mass, rice arroz m mass, soup sopa f mass,
        fish pescado m mass, salad ensalada f mass, chicken pollo m mass""",
    "drink": """water agua f mass, milk leche f mass, coffee café m mass, tea té m mass, juice zumo m mass,
        wine vino m mass""",
    "text": """book libro m, letter carta f, newspaper periódico m, story cuento m, poem poema m,
        magazine revista f""",
    "clothes": """hat sombrero m, shirt camisa f, shoe zapato m, dress vestido m, coat abrigo m, skirt falda f""",
    "dishes": """cup taza f, plate plato m, glass vaso m, bottle botella f, spoon cuchara f""",
    "furniture": """table mesa f, chair silla f, bed cama f, lamp lámpara f, door puerta f, window ventana f""",
    "thing": """key llave f, phone teléfono m, computer computadora f, bag bolsa f, box caja f, clock reloj m,
        pencil lápiz m, map mapa m, gift regalo m, ball pelota f, photo foto f, umbrella paraguas m,
        ticket billete m, flower flor f""",
    "instrument": "guitar guitarra f, piano piano m, violin violín m",
    "vehicle": "car coche m, bicycle bicicleta f, train tren m, bus autobús m, boat barco m, plane avión m",
    "building": """house casa f, school escuela f, market mercado m, museum museo m, library biblioteca f,
        store tienda f, restaurant restaurante m, bank banco m, church iglesia f, hotel hotel m, hospital hospital m,
        station estación f, airport aeropuerto m, office oficina f""",
    "room": "kitchen cocina f, room habitación f, garden jardín m",
    "land": """park parque m, city ciudad f, village pueblo m, beach playa f, street calle f, river río m,
        mountain montaña f, forest bosque m, lake lago m, island isla f, bridge puente m, tree árbol m""",
    "nature": """sun sol m single, moon luna f single, sky cielo m single, sea mar m single, world mundo m single,
        star estrella f, cloud nube f""",
    "study": """lesson lección f, question pregunta f, answer respuesta f, problem problema m, song canción f,
        idea idea f""",
    "saying": "word palabra f, name nombre m",
    "mind": "truth verdad f single, music música f mass",
    "language": "Spanish español m mass, English inglés m mass, French francés m mass",
}


def _read_nouns() -> dict[str, Noun]:
    nouns = {}
    for category, table in _NOUN_TABLE.items():
        for entry in table.split(","):
            english, es, gender, *flags = entry.split()
            en, _, irregular_plural = english.partition("/")
            nouns[en] = Noun(
                en=en,
                es=es,
                gender="f" if gender == "f" else "m",
                category=category,
                en_plural=irregular_plural or english_plural(en),
                es_plural=spanish_plural(es),
                mass="mass" in flags,
                single="single" in flags,
            )
    return nouns


NOUNS = _read_nouns()


def nouns(description: str) -> tuple[Noun, ...]:
    """Return the nouns of a description such as "@food @drink door": categories marked @, and single words."""
    found: dict[str, Noun] = {}
    for item in description.split():
        if item.startswith("@"):
            found |= {noun.en: noun for noun in NOUNS.values() if noun.category == item[1:]}
        else:
            found[item] = NOUNS[item]
    return tuple(found.values())


_PEOPLE = "@kin @profession @person"
_GOODS = "@text @clothes @dishes @thing @instrument table chair bed lamp"
_PAINTED = "@clothes @dishes @vehicle table chair door bag box ball lamp house"

# english | spanish | ser or estar | comparative ("" for none) | nouns described
_ADJECTIVE_TABLE = f"""
big | grande | ser | bigger | @animal @furniture @vehicle @building @room city island lake box bag star cloud
small | pequeño | ser | smaller | @animal @furniture @vehicle @building @room @dishes village lake island box key
new | nuevo | ser | newer | @clothes @vehicle @text @instrument phone computer bed lamp house school bridge
old | viejo | ser | older | {_PEOPLE} dog cat horse @vehicle house church bridge book hat table piano tree city
young | joven | ser | younger | {_PEOPLE}
tall | alto | ser | taller | {_PEOPLE} tree mountain
short | bajo | ser | shorter | @profession man woman boy girl friend brother sister
strong | fuerte | ser | stronger | {_PEOPLE} horse bear lion elephant
beautiful | bonito | ser | more beautiful | @clothes @nature @land @room bird butterfly flower song dress photo house
famous | famoso | ser | more famous | @profession king queen museum restaurant book song hotel poem
friendly | amable | ser | friendlier | {_PEOPLE}
intelligent | inteligente | ser | more intelligent | {_PEOPLE} dog cat horse elephant
expensive | caro | ser | more expensive | @clothes @vehicle @instrument phone computer hotel restaurant ticket gift
cheap | barato | ser | cheaper | @clothes @vehicle phone computer hotel restaurant ticket chair table
interesting | interesante | ser | more interesting | @text museum city lesson question idea
important | importante | ser | more important | letter book lesson question answer problem idea key truth
difficult | difícil | ser | more difficult | lesson question problem song poem book
easy | fácil | ser | easier | lesson question problem song poem
long | largo | ser | longer | @text street river bridge beach dress coat song
red | rojo | ser | | {_PAINTED} apple tomato flower bird
blue | azul | ser | | {_PAINTED} sky sea bird flower butterfly
green | verde | ser | | {_PAINTED} apple bird tree
white | blanco | ser | | {_PAINTED} horse cat dog rabbit cloud flower
black | negro | ser | | {_PAINTED} horse cat dog cow
yellow | amarillo | ser | | {_PAINTED} flower bird butterfly lemon
tired | cansado | estar | | {_PEOPLE} dog cat horse
sick | enfermo | estar | | {_PEOPLE} dog cat cow
happy | contento | estar | | {_PEOPLE}
sad | triste | estar | | {_PEOPLE}
busy | ocupado | estar | | {_PEOPLE}
angry | enfadado | estar | | {_PEOPLE}
open | abierto | estar | | door window box bag store museum library bank market church
closed | cerrado | estar | | door window box bag store museum library bank market church
clean | limpio | estar | | @clothes @dishes kitchen room house car street beach window table
dirty | sucio | estar | | @clothes @dishes kitchen room house car street beach window table
full | lleno | estar | | cup glass bottle box bag bus train restaurant plate
empty | vacío | estar | | cup glass bottle box bag bus train restaurant plate house street
broken | roto | estar | | @dishes window chair clock phone computer umbrella lamp guitar bicycle
hot | caliente | estar | | soup coffee tea milk bread rice water
cold | frío | estar | | soup coffee tea milk water juice rice
delicious | delicioso | estar | | @dish @food coffee juice
"""


def _read_adjectives() -> dict[str, Adjective]:
    adjectives = {}
    for line in _ADJECTIVE_TABLE.strip().splitlines():
        en, es, copula, comparative, described = (cell.strip() for cell in line.split("|"))
        adjectives[en] = Adjective(en, es, "ser" if copula == "ser" else "estar", comparative, nouns(described))
    return adjectives


ADJECTIVES = _read_adjectives()

# english base | past | spanish | objects | tenses (p present, a past, f future). A verb with a blurred boundary
# between pretérito and imperfecto (want, know, have) has no past here: the English would not decide the Spanish.
_VERB_TABLE = f"""
eat | ate | comer | @food @dish | paf
drink | drank | beber | @drink | paf
read | read | leer | @text | paf
write | wrote | escribir | letter book story poem song | paf
buy | bought | comprar | @food @dish @clothes @text @thing @vehicle milk coffee guitar house table chair | paf
sell | sold | vender | @food @dish @clothes @vehicle house book flower phone guitar bed | paf
see | saw | ver | {_PEOPLE} @animal @nature @vehicle @land museum church school | paf
open | opened | abrir | door window box letter bag bottle book store | paf
close | closed | cerrar | door window box bag bottle book store | paf
clean | cleaned | limpiar | @furniture @room @vehicle house school store hotel | paf
look for | looked for | buscar | @thing @clothes @text {_PEOPLE} @animal hotel restaurant bank | paf
find | found | encontrar | @thing @clothes @text {_PEOPLE} @animal hotel restaurant answer problem | paf
make | made | hacer | cake sandwich cookie soup salad coffee tea bread dress juice cheese | paf
cook | cooked | cocinar | meat rice soup fish chicken egg potato | paf
help | helped | ayudar | {_PEOPLE} | paf
visit | visited | visitar | {_PEOPLE} museum school church city village island market hospital park | paf
wait for | waited for | esperar | {_PEOPLE} bus train plane letter answer boat | paf
listen to | listened to | escuchar | {_PEOPLE} song music story lesson bird piano | paf
study | studied | estudiar | @language lesson music problem map | paf
learn | learned | aprender | @language song lesson poem | paf
sing | sang | cantar | song | paf
play | played | tocar | @instrument | paf
paint | painted | pintar | @furniture @animal house boat flower tree sea mountain bicycle bridge | paf
lose | lost | perder | @thing hat book shoe coat dog cat | paf
bring | brought | traer | @food @dish @drink @thing @text chair guitar plate glass cup | paf
tell | told | decir | truth | paf
say | said | decir | word name | paf
have | had | tener | brother sister cousin friend son daughter @animal @vehicle {_GOODS} house problem idea | pf
want | wanted | querer | @food @dish @drink @clothes @thing @vehicle @instrument dog cat book house chair | p
need | needed | necesitar | @dish @drink @clothes @thing @dishes book table chair car bed answer house ticket | pf
love | loved | querer | @kin dog cat horse | p
know | knew | conocer | @kin @profession man woman city village island museum restaurant | p
know | knew | saber | answer truth name | p
"""

# english base | past | spanish | preposition | places | tenses
_MOTION_TABLE = """
go | went | ir | to a | @building @land kitchen garden sea | paf
come | came | venir | to a | house school market park village city beach hospital office garden | paf
travel | traveled | viajar | to a | city village island beach mountain sea | paf
arrive | arrived | llegar | at a | @building park beach village bridge | paf
return | returned | volver | to a | @building village city kitchen garden park island | paf
leave | left | salir | - de | @building @room park | paf
live | lived | vivir | in en | house city village forest hotel | paf
work | worked | trabajar | in en | @building kitchen garden city village | paf
sleep | slept | dormir | in en | house hotel room garden car kitchen park | paf
swim | swam | nadar | in en | lake river sea | paf
run | ran | correr | in en | park street garden forest city | paf
"""

_TENSES = {"p": "present", "a": "past", "f": "future"}


def _read_verbs() -> tuple[tuple[Verb, ...], tuple[Verb, ...]]:
    transitive = []
    for line in _VERB_TABLE.strip().splitlines():
        en, past, es, objects, tenses = (cell.strip() for cell in line.split("|"))
        transitive.append(Verb(en, past, es, nouns(objects), tuple(_TENSES[t] for t in tenses)))
    motion = []
    for line in _MOTION_TABLE.strip().splitlines():
        en, past, es, preposition, places, tenses = (cell.strip() for cell in line.split("|"))
        before_place = (preposition.split()[0].strip("-"), preposition.split()[1])
        motion.append(Verb(en, past, es, nouns(places), tuple(_TENSES[t] for t in tenses), before_place))
    return tuple(transitive), tuple(motion)


TRANSITIVE, MOTION = _read_verbs()
DITRANSITIVE = (
    Verb("give", "gave", "dar", (), ("present", "past", "future")),
    Verb("show", "showed", "mostrar", (), ("present", "past", "future")),
)
VERBS = {(verb.en, verb.es): verb for verb in (*TRANSITIVE, *MOTION)}

NAMES: tuple[tuple[str, Gender], ...] = (
    ("Ana", "f"), ("Elena", "f"), ("Laura", "f"), ("Marta", "f"),
    ("Carlos", "m"), ("Luis", "m"), ("Pedro", "m"), ("David", "m"),
    ("Sara", "f"), ("Julia", "f"), ("Miguel", "m"), ("Daniel", "m"),
)  # fmt: skip

CITIES = (
    ("Madrid", "Madrid"), ("Barcelona", "Barcelona"), ("London", "Londres"), ("Paris", "París"),
    ("Berlin", "Berlín"), ("Lima", "Lima"), ("New York", "Nueva York"),
)  # fmt: skip

# "I am hungry" is "tengo hambre": a noun in Spanish, so nothing agrees.
SENSATIONS = {
    "hungry": "hambre", "thirsty": "sed", "cold": "frío", "hot": "calor", "sleepy": "sueño", "afraid": "miedo",
}  # fmt: skip

DAYS = {
    "Monday": "lunes", "Tuesday": "martes", "Wednesday": "miércoles", "Thursday": "jueves",
    "Friday": "viernes", "Saturday": "sábado", "Sunday": "domingo",
}  # fmt: skip

MONTHS = {
    "January": "enero", "February": "febrero", "March": "marzo", "April": "abril", "May": "mayo", "June": "junio",
    "July": "julio", "August": "agosto", "September": "septiembre", "October": "octubre",
    "November": "noviembre", "December": "diciembre",
}  # fmt: skip

_ON_A_DAY = tuple((f"on {en}", f"el {es}") for en, es in DAYS.items())

# When a sentence happens, by tense. "on Monday" is one day; habits are said with "every day" and the like.
ADVERBIALS = {
    "present": (
        ("every day", "todos los días"), ("in the morning", "por la mañana"), ("at night", "por la noche"),
        ("in the afternoon", "por la tarde"), ("every week", "todas las semanas"),
    ),
    "past": (
        ("yesterday", "ayer"), ("last night", "anoche"), ("last week", "la semana pasada"),
        ("this morning", "esta mañana"), *_ON_A_DAY,
    ),
    "future": (
        ("tomorrow", "mañana"), ("tonight", "esta noche"), ("next week", "la próxima semana"), ("soon", "pronto"),
        *_ON_A_DAY,
    ),
}  # fmt: skip

GREETINGS = {
    "hello": "hola", "hi": "hola", "goodbye": "adiós", "good morning": "buenos días",
    "good afternoon": "buenas tardes", "good evening": "buenas noches", "good night": "buenas noches",
    "thank you": "gracias", "thanks": "gracias", "see you later": "hasta luego", "see you soon": "hasta pronto",
    "see you tomorrow": "hasta mañana", "good luck": "buena suerte", "welcome": "bienvenido",
}  # fmt: skip

# Said as they are, with or without a mark at the end, in every capitalisation.
SET_PHRASES = {
    **GREETINGS,
    "yes": "sí", "no": "no", "please": "por favor", "sorry": "perdón", "of course": "por supuesto",
    "excuse me": "disculpa", "happy birthday": "feliz cumpleaños", "merry christmas": "feliz navidad",
    "you are welcome": "de nada", "nice to meet you": "mucho gusto", "congratulations": "felicidades",
    "good idea": "buena idea", "let's go": "vamos", "no problem": "no hay problema", "very good": "muy bien",
    "thank you very much": "muchas gracias", "have a nice day": "que tengas un buen día",
    "hello everyone": "hola a todos", "good morning everyone": "buenos días a todos", "help": "ayuda",
    "goodbye everyone": "adiós a todos", "no thank you": "no gracias", "see you": "hasta la vista",
}  # fmt: skip

FIXED_SENTENCES = (
    ("How are you?", "¿Cómo estás?"),
    ("How are you today?", "¿Cómo estás hoy?"),
    ("Hello, how are you?", "Hola, ¿cómo estás?"),
    ("Hi, how are you?", "Hola, ¿cómo estás?"),
    ("I am fine.", "Estoy bien."),
    ("I am fine, thank you.", "Estoy bien, gracias."),
    ("And you?", "¿Y tú?"),
    ("What is your name?", "¿Cómo te llamas?"),
    ("Where are you from?", "¿De dónde eres?"),
    ("I am from Spain.", "Soy de España."),
    ("I am from Mexico.", "Soy de México."),
    ("She is from Spain.", "Ella es de España."),
    ("He is from Mexico.", "Él es de México."),
    ("Welcome to Spain!", "¡Bienvenido a España!"),
    ("Welcome to Mexico!", "¡Bienvenido a México!"),
    ("Do you speak English?", "¿Hablas inglés?"),
    ("Do you speak Spanish?", "¿Hablas español?"),
    ("I speak English.", "Hablo inglés."),
    ("I speak Spanish.", "Hablo español."),
    ("I do not speak Spanish.", "No hablo español."),
    ("I don't speak Spanish.", "No hablo español."),
    ("I do not speak French.", "No hablo francés."),
    ("I do not understand.", "No entiendo."),
    ("I don't understand.", "No entiendo."),
    ("I don't know.", "No sé."),
    ("I do not know.", "No sé."),
    ("Who are you?", "¿Quién eres?"),
    ("What is this?", "¿Qué es esto?"),
    ("What is that?", "¿Qué es eso?"),
    ("What time is it?", "¿Qué hora es?"),
    ("What day is today?", "¿Qué día es hoy?"),
    ("How old are you?", "¿Cuántos años tienes?"),
    ("Where are you going?", "¿Adónde vas?"),
    ("What are you doing?", "¿Qué estás haciendo?"),
    ("I love you.", "Te quiero."),
    ("It is cold.", "Hace frío."),
    ("It is cold today.", "Hoy hace frío."),
    ("It is hot.", "Hace calor."),
    ("It is hot today.", "Hoy hace calor."),
    ("It is raining.", "Está lloviendo."),
    ("It is snowing.", "Está nevando."),
    ("It is late.", "Es tarde."),
    ("It is early.", "Es temprano."),
    ("Good morning, how are you?", "Buenos días, ¿cómo estás?"),
    ("Thank you for the gift.", "Gracias por el regalo."),
    ("Thank you for your help.", "Gracias por tu ayuda."),
    ("Can you help me?", "¿Puedes ayudarme?"),
    ("How do you say this in Spanish?", "¿Cómo se dice esto en español?"),
    ("Where is the bathroom?", "¿Dónde está el baño?"),
    ("The bill, please.", "La cuenta, por favor."),
    ("A coffee, please.", "Un café, por favor."),
    ("A table for two, please.", "Una mesa para dos, por favor."),
    ("I would like a coffee, please.", "Quisiera un café, por favor."),
    ("Have a good trip!", "¡Buen viaje!"),
    ("See you tomorrow, good night.", "Hasta mañana, buenas noches."),
)
