#!/usr/bin/env python3
"""Compare libraries that split text into sentences: accuracy and speed.

    scripts/compare_segmenters.py PAIRS.tsv.gz:en:de... [--paragraphs 4000]

The sentences of a file of pairs are joined with spaces, 2 to 8 at a time, into paragraphs that the libraries split
again. A second set of difficult sentences in ten languages is in this file. Needs `pip install sentencex pysbd
blingfire`; pysbd and blingfire are for this comparison only.

Prints for each language: boundaries found, boundaries that are right (F1 in brackets), paragraphs without any error.
Then the CPU time for the same text, the libraries taking turns, as the median of several runs.
"""

import argparse
import random
import re
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, islice

from mtcli.documents.segmentation import split_sentences
from mtcli.text.lines import read_lines

Splitter = Callable[[str, str], list[int]]
"""Returns the offsets at which sentences end, given a text and its language."""

ENDS = (".", "!", "?", "…", "。", "！", "？", "।", "؟", '"', "»", "“", "”", ")")
SPEED_RUNS = 5
DIFFICULT: dict[str, list[list[str]]] = {
    "en": [
        ["Dr. Smith met Mr. Jones at 5 p.m. on Main St. in Washington.", "They talked."],
        ["It costs $3.50, i.e. less than before.", "Is that o.k.?", "Yes!"],
        ["See Fig. 3 and Sec. 2.1 for details.", "No. 5 is alive."],
        ['"Stop!" he cried.', "Nobody moved."],
        ["I live in the U.S. and work for J. K. Rowling.", "Do you?"],
        ["Visit www.example.com today.", "Version 2.0 is out..."],
    ],
    "de": [
        ["Das ist z. B. am 3. Oktober so.", "Dr. Meier kam um ca. 5 Uhr."],
        ["Er wohnt in der Goethestr. 12 bzw. nebenan.", "Wirklich?", "Ja!"],
        ["Im 19. Jahrhundert war das u. a. üblich.", "Heute nicht."],
        ["„Halt!“, rief sie.", "Niemand kam."],
        ["Die Fa. Müller GmbH & Co. KG hat rd. 1.000 Mitarbeiter.", "Das sind viele."],
    ],
    "es": [
        ["El Sr. García y la Sra. López viven en EE. UU. desde 1990.", "¿De verdad?", "¡Sí!"],
        ["Véase la pág. 5 del vol. 2.", "No hay más."],
        ["La Dra. Ruiz llegó a las 3.30 p. m. con su hijo.", "Comieron."],
    ],
    "fr": [
        ["M. Dupont et Mme Martin habitent av. Foch.", "Vraiment ?", "Oui !"],
        ["Cf. p. 12, art. 3 du code.", "C'est tout."],
        ["« Arrêtez ! » cria-t-il.", "Personne ne bougea."],
    ],
    "ru": [
        ["Он родился в 1980 г. в г. Москве на ул. Ленина.", "Сейчас он живёт там же."],
        ["Это А. С. Пушкин, т. е. великий поэт.", "Правда?", "Да!"],
        ["Население — 5 млн. чел. и т. д.", "Это много."],
    ],
    "zh": [
        ["你好。", "今天天气很好！", "你去哪儿？"],
        ["他说：“我不去。”", "然后他走了。"],
        ["价格是3.50元。", "便宜吗？"],
    ],
    "ja": [
        ["こんにちは。", "今日は良い天気ですね！", "どこへ行きますか？"],
        ["彼は「行かない。」と言った。", "そして帰った。"],
        ["バージョン2.0です。", "便利です。"],
    ],
    "ar": [
        ["مرحبا بك.", "كيف حالك؟", "أنا بخير!"],
        ["السعر 3.50 دولار.", "هل هو رخيص؟"],
    ],
    "hi": [
        ["नमस्ते।", "आप कैसे हैं?", "मैं ठीक हूँ।"],
        ["डॉ. शर्मा ने 3.50 रुपये दिए।", "क्या यह सही है?"],
    ],
    "it": [
        ["Il dott. Rossi e il sig. Bianchi abitano a Roma.", "Davvero?", "Sì!"],
        ["Vedi pag. 5, cap. 2, ecc. per altro.", "È tutto."],
    ],
}
"""Paragraphs as their sentences. Chinese and Japanese sentences are joined without a space."""


def by_sentencex(text: str, language: str) -> list[int]:
    return list(accumulate(map(len, split_sentences(text, language))))


def by_pysbd() -> Splitter:
    import pysbd

    segmenters = {}

    def split(text: str, language: str) -> list[int]:
        if language not in segmenters:
            segmenters[language] = pysbd.Segmenter(language=language, clean=False, char_span=True)
        return [span.end for span in segmenters[language].segment(text)]

    return split


def by_blingfire() -> Splitter:
    import blingfire

    def split(text: str, language: str) -> list[int]:
        _, offsets = blingfire.text_to_sentences_and_offsets(text)
        return [end for _, end in offsets]

    return split


def joined(sentences: Sequence[str], language: str) -> tuple[str, set[int]]:
    """Return a paragraph of sentences, and the offsets at which they end, after the space."""
    space = "" if language in ("zh", "ja") else " "
    text = space.join(sentences)
    ends = list(accumulate(len(sentence) + len(space) for sentence in sentences))
    return text, set(ends[:-1])


def boundaries(split: Splitter, text: str, language: str) -> set[int]:
    """Return the offsets between sentences; the space after a sentence belongs to it."""
    found = set()
    for end in split(text, language):
        space = re.match(r"\s*", text[end:])
        found.add(end + (space.end() if space else 0))
    return found - {len(text), 0}


def paragraphs(sentences: Iterable[str], number: int) -> list[list[str]]:
    """Group sentences into paragraphs. Only those count that end like a sentence."""
    rng = random.Random(5)
    kept = (sentence for sentence in sentences if sentence.endswith(ENDS))
    return [list(islice(kept, rng.randint(2, 8))) for _ in range(number)]


def accuracy(split: Splitter, groups: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return precision, recall, F1 and the share of paragraphs without an error. Each group has its language."""
    right = found = expected = perfect = 0
    for language, group in groups:
        text, ends = joined(group, language)
        answer = boundaries(split, text, language)
        right += len(answer & ends)
        found += len(answer)
        expected += len(ends)
        perfect += answer == ends
    precision, recall = right / max(1, found), right / max(1, expected)
    f1 = 2 * right / max(1, found + expected)
    return f"{precision:.1%} · {recall:.1%} ({f1:.1%}) · {perfect / len(groups):.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="*", help="PATH:LANGUAGE:LANGUAGE, tab-separated pairs")
    parser.add_argument("--paragraphs", type=int, default=4000)
    given = parser.parse_args()
    splitters = {"sentencex": by_sentencex, "pysbd": by_pysbd(), "blingfire": by_blingfire()}
    sets: list[tuple[str, list[tuple[str, list[str]]]]] = []
    for spec in given.pairs:
        path, *languages = spec.split(":")
        for column, language in enumerate(languages):
            sentences = (line.split("\t")[column].strip() for line in read_lines(path))
            unique = dict.fromkeys(sentences)
            shuffled = random.Random(4).sample(list(unique), len(unique))
            groups = paragraphs(shuffled, given.paragraphs)
            sets.append((f"{path.rpartition('/')[2]} {language}", [(language, group) for group in groups]))
    difficult = [(language, group) for language, groups in DIFFICULT.items() for group in groups]
    sets.append((f"difficult, {len(DIFFICULT)} languages", difficult))
    sets += [
        (f"difficult {language}", [(language, group) for group in groups]) for language, groups in DIFFICULT.items()
    ]
    print("| text | " + " | ".join(splitters) + " |\n|" + "---|" * (len(splitters) + 1))
    for name, groups_of_set in sets:
        cells = [accuracy(split, groups_of_set) for split in splitters.values()]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    name, groups_of_set = sets[0]
    texts = [(joined(group, language)[0], language) for language, group in groups_of_set[:400]]
    seconds: dict[str, list[float]] = {splitter: [] for splitter in splitters}
    for _ in range(SPEED_RUNS):
        for splitter, split in splitters.items():
            start = time.process_time()
            for text, language in texts:
                split(text, language)
            seconds[splitter].append(time.process_time() - start)
    size = sum(len(text) for text, _ in texts)
    cells = [f"{size / statistics.median(times) / 1e6:.2f}" for times in seconds.values()]
    print(f"| speed, million characters/s ({name}) | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
