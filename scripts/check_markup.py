#!/usr/bin/env python3
"""Check that translation loses no tag and no placeholder, what this costs in BLEU, and where the tags go.

    python scripts/check_markup.py lines MODEL SOURCES REFERENCES [--count 10000] [--engine torch|ctranslate2]
    python scripts/check_markup.py places DEMO_MODEL [--seed 2] [--engine torch|ctranslate2] [--no-alignments]
    python scripts/check_markup.py words MODEL TRAIN_SOURCES TRAIN_TARGETS SOURCES [--count 300] [--no-alignments]
    python scripts/check_markup.py names DEMO_MODEL

`lines` puts nested tags and placeholders at random places of the lines of SOURCES, one sentence a line, and translates
them. Each line is used as often as `--count` needs. It prints

- the segments that lost, gained or changed a protected text, or whose tags are nested in another way;
- BLEU of the translations without their tags and placeholders, and of the translations of the plain lines.

`places` checks the places of the tags with a model of the built-in demo (`mtcli train` without arguments). The grammar
of the demo corpus gives the translation of each noun phrase, so the place of its tags is known wherever this phrase
occurs once in the translation. It prints the share of tags at this place. The rules for places were adjusted on the
held-out sentences of the demo. `--seed` generates other sentences, which are in no split of the demo.

`words` checks the places of tags around single words of any text, one tokenized sentence a line. Their translations
are those of which IBM Model 1, trained on TRAIN_SOURCES and TRAIN_TARGETS, is sure in both directions. The place is
known where both words occur once.

`names` replaces the names of people in the held-out sentences of the demo by placeholders. It prints how many
translations are those of the corpus with the same placeholders: with the placeholder tokens of a model that was trained
with `text.placeholders`, and without them.

The script exits with 1 if a protected text is lost, BLEU drops by more than 0.3, or less than 95% of the tags are at
their place.
"""

import argparse
import random
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from demo import generate, source_key
from demo.grammar import noun_phrase
from demo.lexicon import ADJECTIVES, NOUNS, Adjective
from ibm_model1 import sure_translations

from mtcli.corpus import demo
from mtcli.documents.markup.inline import Inline, Tag, merged, text_of
from mtcli.documents.markup.marks import shape_of
from mtcli.documents.markup.sentences import Chunk, Preparation, Sentence, translate_sentences
from mtcli.evaluation.metrics import score
from mtcli.runtime.progress import Progress
from mtcli.text.placeholders import protected_of
from mtcli.translate.loading import load
from mtcli.translate.translation import Options
from mtcli.translate.translator import Translator
from mtcli.translate.windows import Reading

MAX_BLEU_DROP = 0.3
MIN_AT_PLACE = 0.95
MIN_PROBABILITY = 0.5
"""Probability from which IBM Model 1 is sure of the translation of a word."""

PLACEHOLDERS = (
    "%s", "%d", "%1$s", "%(name)s", "{name}", "{0:.2f}", "{{ user }}", "${total}", "$HOME", "https://example.com/a?b=c#d",
    "www.example.org", "me@example.org", "3.5 km", "20 °C", "50%", "$5", "🎉", "👨‍👩‍👧", "&nbsp;", "&amp;",
    "{n, plural, one {# file} other {# files}}",
)  # fmt: skip
PAIRS = (
    ("<b>", "</b>"), ("<i>", "</i>"), ('<a href="https://example.com/">', "</a>"), ('<span class="x">', "</span>"),
    ('<g id="1">', "</g>"), ("**", "**"),
)  # fmt: skip
POINTS = ("<br>", '<img src="a.png"/>', '<x id="2"/>', "<code>x = 1</code>")


@dataclass(frozen=True)
class Segment:
    """A line with markup."""

    line: str
    marked: Inline
    placeholders: tuple[str, ...]


def segment_of(line: str, rng: random.Random) -> Segment:
    """Put up to three pairs of tags, two points and two placeholders into a line; few tags lack their partner."""
    words = line.split()
    before: list[list[str | Tag]] = [[] for _ in range(len(words) + 1)]
    after: list[list[str | Tag]] = [[] for _ in range(len(words) + 1)]
    span = (0, len(words))
    for _ in range(rng.randrange(4)):
        first = rng.randrange(span[0], span[1])
        span = (first, rng.randint(first + 1, span[1]))
        opening, closing = rng.choice(PAIRS)
        before[span[0]].append(Tag(opening, "open"))
        after[span[1] - 1].insert(0, Tag(closing, "close"))
    if rng.random() < 0.05:
        before[0].insert(0, Tag("<p>", "open"))
    for _ in range(rng.randrange(3) // 2 * 2):
        before[rng.randrange(len(words))].append(Tag(rng.choice(POINTS)))
    chosen = tuple(rng.choice(PLACEHOLDERS) for _ in range(rng.choice((0, 0, 1, 2))))
    for placeholder in chosen:
        before[rng.randrange(len(words))].append(f"{placeholder} ")
    parts: list[str | Tag] = []
    for word, tags_before, tags_after in zip(words, before, after, strict=False):
        parts += [" " if parts else "", *tags_before, word, *tags_after]
    return Segment(line, merged(parts), chosen)


def plain_text(translation: Inline, placeholders: Sequence[str]) -> str:
    """Return a translation without tags and without the placeholders that were put in."""
    text = "".join(part for part in translation if isinstance(part, str))
    for placeholder in sorted(placeholders, key=len, reverse=True):
        text = text.replace(placeholder, " ", 1)
    return " ".join(text.split())


def faults_of(source: Inline, translation: Inline) -> list[str]:
    """Return what is wrong with a translation. The counts do not use the code that is checked."""
    faults = []
    tags = [Counter(part for part in each if isinstance(part, Tag)) for each in (source, translation)]
    if tags[0] != tags[1]:
        faults.append("tags lost or added")
    elif shape_of(source) != shape_of(translation):
        faults.append("nested in another way")
    texts = [[part for part in each if isinstance(part, str)] for each in (source, translation)]
    if protected_of(texts[0]).counts != protected_of(texts[1]).counts:
        faults.append("placeholders lost, added or changed")
    return faults


def translate_inline(sentences: Sequence[Inline], translator: Translator, options: Options) -> list[Inline]:
    """Return the best translation of each sentence."""
    preparation = Preparation(use_tokens=translator.tokenizer.has_placeholders)
    chunk = Chunk([Sentence(sentence, preparation) for sentence in sentences])
    with Progress("translating", total=chunk.num_asked, unit="sentences") as bar:
        (translated,) = translate_sentences([chunk], translator, options, bar)
    return [sentence.results[0].content for sentence in translated.sentences]


def check_lines(arguments: argparse.Namespace, translator: Translator, options: Options) -> bool:
    """Translate generated segments; return True if all is well."""
    lines = arguments.sources.read_text().splitlines()
    references = arguments.references.read_text().splitlines()
    rng = random.Random(arguments.seed)
    segments = [segment_of(line, rng) for line in islice(cycle(lines), arguments.count)]
    began = time.process_time()
    translations = translate_inline([segment.marked for segment in segments], translator, options)
    seconds = time.process_time() - began
    faults: Counter[str] = Counter()
    for segment, translation in zip(segments, translations, strict=True):
        faults.update(faults_of(segment.marked, translation))
    num_tags = sum(isinstance(part, Tag) for segment in segments for part in segment.marked)
    num_placeholders = sum(len(segment.placeholders) for segment in segments)
    unchanged = sum(segment.marked == found for segment, found in zip(segments, translations, strict=True))
    print(
        f"{len(segments):,} segments, {num_tags:,} tags, {num_placeholders:,} placeholders, {seconds:.0f} s of CPU time"
    )
    print(f"faults: {dict(faults) or 'none'}; segments returned as they were: {unchanged}")

    plain = [found.text for found in translator.translate(lines, options, Reading(warn=False))]
    groups = {
        "all": segments,
        "with tags only": [segment for segment in segments if not segment.placeholders],
        "with placeholders": [segment for segment in segments if segment.placeholders],
    }
    text_by_segment = {
        id(segment): plain_text(translation, segment.placeholders)
        for segment, translation in zip(segments, translations, strict=True)
    }
    number_of = {line: number for number, line in enumerate(lines)}
    is_close = True
    for name, group in groups.items():
        if not group:
            continue
        numbers = [number_of[segment.line] for segment in group]
        wanted = [references[number] for number in numbers]
        marked_bleu = score([text_by_segment[id(segment)] for segment in group], [wanted], tokenize="none")[0].value
        plain_bleu = score([plain[number] for number in numbers], [wanted], tokenize="none")[0].value
        print(f"BLEU, {name} ({len(group):,}): {marked_bleu:.2f}; plain text: {plain_bleu:.2f}")
        is_close = is_close and marked_bleu >= plain_bleu - MAX_BLEU_DROP
    return is_close and not faults


@dataclass(frozen=True)
class Phrase:
    """A noun phrase in both languages."""

    en: str
    es: str


def phrases() -> dict[str, str]:
    """Return the Spanish form of noun phrases of the demo: determiner or none, adjective or none, and noun."""
    found: dict[str, str] = {}
    ambiguous = set()
    for noun in NOUNS.values():
        for plural in (False, True):
            determiners = ("", "the", "my", "your", "our") + (("those", "these") if plural else ("a", "this", "that"))
            adjectives: list[str | Adjective] = ["", *(each for each in ADJECTIVES.values() if noun in each.describes)]
            for adjective in adjectives:
                for determiner in determiners:
                    phrase = noun_phrase(determiner, noun, plural, adjective)
                    if found.setdefault(phrase.en, phrase.es) != phrase.es:
                        ambiguous.add(phrase.en)
    return {en: es for en, es in found.items() if en not in ambiguous}


def tagged_phrases(line: str, known: dict[str, str]) -> Iterator[tuple[Inline, str]]:
    """Yield the line with a noun phrase in tags, and the Spanish form of this phrase."""
    words = [match.span() for match in re.finditer(r"[\w']+", line)]
    for first in range(len(words)):
        for last in range(first, min(first + 4, len(words))):
            start, end = words[first][0], words[last][1]
            phrase = line[start:end]
            es = known.get(phrase) or known.get(phrase[:1].lower() + phrase[1:])
            if es:
                marked = (line[:start], Tag("<b>", "open"), phrase, Tag("</b>", "close"), line[end:])
                yield merged(marked), es


def sentences_of_grammar(seed: int | None) -> list[str]:
    """Return the held-out English sentences of the demo, or 1,000 others that its grammar generates with a seed."""
    corpus = demo.load()
    if seed is None:
        return [en for en, _ in [*corpus.valid, *corpus.test]]
    known = {source_key(en) for en, _ in [*corpus.train, *corpus.valid, *corpus.test]}
    generated = generate(seed)
    new = [en for en, _ in [*generated.valid, *generated.test, *generated.train] if source_key(en) not in known]
    return new[:1000]


def check_places(arguments: argparse.Namespace, translator: Translator, options: Options) -> bool:
    """Check the tags around known phrases of the demo; return True if enough of them are at their place."""
    known = phrases()
    sources = []
    wanted = []
    for en in sentences_of_grammar(arguments.seed):
        for marked, es in tagged_phrases(en, known):
            sources.append(marked)
            wanted.append(es)
    return count_places(sources, wanted, translator, options)


def check_words(arguments: argparse.Namespace, translator: Translator, options: Options) -> bool:
    """Check the tags around words with a sure translation; return True if enough of them are at their place."""
    src, tgt = ([line.split() for line in path.read_text().splitlines()] for path in arguments.train)
    of_word: dict[str, list[str]] = defaultdict(list)
    for src_word, tgt_word in sure_translations(src, tgt, MIN_PROBABILITY):
        of_word[src_word].append(tgt_word)
    sources: list[Inline] = []
    wanted = []
    for line in islice(arguments.sources.read_text().splitlines(), arguments.count):
        words = line.split()
        for number, word in enumerate(words):
            if word.isalpha() and words.count(word) == 1 and len(of_word[word]) == 1:
                before = "".join(f"{each} " for each in words[:number])
                after = "".join(f" {each}" for each in words[number + 1 :])
                sources.append(merged((before, Tag("<b>", "open"), word, Tag("</b>", "close"), after)))
                wanted.append(of_word[word][0])
    return count_places(sources, wanted, translator, options)


def count_places(sources: Sequence[Inline], wanted: Sequence[str], translator: Translator, options: Options) -> bool:
    """Translate sentences with one pair of tags each, and count the tags that are around the wanted text.

    Args:
        sources: The sentences.
        wanted: The translation of the text in the tags of each sentence. The sentence is skipped if its translation
            does not have it exactly once.
        translator: The model.
        options: Options of the search.

    Returns:
        True if at least `MIN_AT_PLACE` are.
    """
    right = {"open": 0, "close": 0}
    checked = 0
    misplaced = []
    for source, phrase, found in zip(sources, wanted, translate_inline(sources, translator, options), strict=True):
        text = text_of(found)
        places = [match.span() for match in re.finditer(rf"\b{re.escape(phrase)}\b", text, re.IGNORECASE)]
        if len(places) != 1:
            continue  # the model translated the phrase in another way, so its place is not known
        checked += 1
        position = 0
        for part in found:
            if isinstance(part, str):
                position += len(part)
            elif position == places[0][part.kind == "close"]:
                right[part.kind] += 1
            else:
                misplaced.append((source, found))
    share = sum(right.values()) / (2 * checked)
    print(f"{len(sources):,} phrases in tags, {checked:,} with a known place; tags at their place: {share:.1%} {right}")
    for source, found in misplaced[:: max(1, len(misplaced) // 15)]:
        print("   ", written(source), "→", written(found))
    return share >= MIN_AT_PLACE


NAME = re.compile(r"\b(?!Hello|Hola)[A-Z][a-z]{2,}\b")


def check_names(translator: Translator, options: Options) -> bool:
    """Count the translations with placeholders that equal those of the corpus; return True if none has a fault."""
    sources = []
    wanted = []
    corpus = demo.load()
    for number, (en, es) in enumerate([*corpus.valid, *corpus.test]):
        names = [name for name in NAME.findall(en) if en.count(name) == 1 and es.count(name) == 1]
        if names:
            placeholder = PLACEHOLDERS[number % len(PLACEHOLDERS)]
            sources.append(en.replace(names[0], placeholder))
            wanted.append(es.replace(names[0], placeholder))
    is_well = True
    for use_tokens in (True, False):
        if use_tokens and not translator.tokenizer.has_placeholders:
            continue
        translator.tokenizer.has_placeholders = use_tokens
        found = [written(each) for each in translate_inline([(source,) for source in sources], translator, options)]
        equal = sum(text == reference for text, reference in zip(found, wanted, strict=True))
        print(f"placeholder tokens: {use_tokens}; {equal:,} of {len(found):,} translations as in the corpus")
        for source, text, reference in list(zip(sources, found, wanted, strict=True))[:: len(sources) // 12]:
            print("   ", source, "→", text, "" if text == reference else f"(wanted: {reference})")
        is_well = is_well and not any(faults_of((a,), (b,)) for a, b in zip(sources, found, strict=True))
    return is_well


def written(sentence: Inline) -> str:
    """Return a sentence with its tags as text."""
    return "".join(part.raw if isinstance(part, Tag) else part for part in sentence)


def main() -> int:
    """Run one of the checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    lines = commands.add_parser("lines")
    places = commands.add_parser("places")
    words = commands.add_parser("words")
    names = commands.add_parser("names")
    for command in (lines, places, words, names):
        command.add_argument("model", type=Path)
        command.add_argument("--engine", default="torch")
    for command in (places, words):
        command.add_argument("--no-alignments", action="store_true")
    places.add_argument("--seed", type=int)
    words.add_argument("train", type=Path, nargs=2)
    words.add_argument("sources", type=Path)
    words.add_argument("--count", type=int, default=300)
    lines.add_argument("sources", type=Path)
    lines.add_argument("references", type=Path)
    lines.add_argument("--count", type=int, default=10_000)
    lines.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    translator, options, _ = load([arguments.model], engine=arguments.engine)
    if getattr(arguments, "no_alignments", False):
        translator.aligns = False
    if arguments.command == "lines":
        is_well = check_lines(arguments, translator, options)
    elif arguments.command == "places":
        is_well = check_places(arguments, translator, options)
    elif arguments.command == "words":
        is_well = check_words(arguments, translator, options)
    else:
        is_well = check_names(translator, options)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
