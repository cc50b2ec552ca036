#!/usr/bin/env python3
"""Measure what terms do to translations: how many are used, BLEU, and the speed.

    python scripts/check_terms.py MODEL [--baseline MODEL] [--lines 1000] [--rounds 5]

MODEL is the run folder of a model, for soft terms one trained with `data.terms=true`. `--baseline` names a run trained
on the same pairs without terms. For soft terms, this is a small study with the pairs of Tatoeba:

    mtcli train --train en-de.tsv.gz --src en --tgt de --preset tiny --max-steps 2000 --set tokenizer.vocab_size=6000 \\
        --set model.num_encoder_layers=2 --set model.num_decoder_layers=2 --set data.terms=true --out runs/terms
    mtcli train …the same without data.terms… --out runs/plain
    python scripts/check_terms.py runs/terms --baseline runs/plain

The terms are words of the run's own test pairs that translate each other, as in training
(see `mtcli.terms.annotation`), and that training never annotated. Each line has its own terms, because a
reference is only evidence for its own line; of test pairs with the same source, the first is used.

For the lines with terms, the script prints the share of the terms that are used and BLEU: without terms, with soft
terms, with soft terms that are required where they are lacking (`auto`), and with hard terms; and the significance of
the difference to BLEU without terms. For a model trained with terms, it prints how many tokens of random translations
the model copies if the target up to each of them is given. It also prints BLEU of all lines against the baseline, both
without terms, and the speed with soft terms as a share of that without: CPU time with one thread, the two alternating,
as the median of the ratios.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import cast

import numpy as np
import torch

from mtcli.config.schema import DataConfig
from mtcli.config.toml_file import load as load_config
from mtcli.corpus.batching import Batch, BatchPlan
from mtcli.corpus.cache.prepare import reopen
from mtcli.corpus.held_out import HELD_OUT_SPLITS, read_directions, read_split, source_key
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.corpus.readers.sources import parse_source
from mtcli.evaluation.comparison import compare
from mtcli.storage.events import Metrics
from mtcli.terms.annotation import TermAnnotator, TermInventor, places_of, translations
from mtcli.terms.terms import Match, Term, Terms, uses
from mtcli.text.lines import Pair
from mtcli.text.tokenizer.tokenizer import Annotation, Tokenizer, marker_id
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.loading import load, load_with_pytorch
from mtcli.translate.translation import Options, Translation
from mtcli.translate.translator import ModelTranslator, Translator
from mtcli.translate.windows import Reading

MOST_TERMS = 2
"""Terms of a line, at most."""

Key = tuple[str, str]
"""A term and its translation, without case."""


class TermsByLine:
    """Terms that each belong to one line."""

    def __init__(self, annotations: dict[str, list[Annotation]]) -> None:
        self.annotations = annotations

    def matches(self, line: str) -> list[Match]:
        """Return the terms of a line; see `Terms.matches`."""
        found = []
        for term in self.annotations.get(line, ()):
            source = line[term.start : term.end]
            found.append(Match(Term(source, (term.target,)), term.start, term.end, (term.target,)))
        return found


def main() -> int:
    """Measure, and print the figures. Return 1 if a term of the hard mode is not used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--baseline", type=Path)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    backend = load_with_pytorch([arguments.model], "cpu")
    options = backend.default_options
    translator = ModelTranslator(backend)
    first_of_source = {src: (src, tgt) for src, tgt in reversed(read_split(arguments.model, "test"))}
    test = list(reversed(first_of_source.values()))[: arguments.lines]
    annotator, annotated = training_terms(arguments.model)
    by_line = held_out_terms(annotator, annotated, test)
    pairs = [pair for pair in test if pair[0] in by_line]
    number = sum(map(len, by_line.values()))
    print(f"{len(test)} test pairs, {len(pairs)} with terms that training never annotated, {number} terms")
    terms = cast(Terms, TermsByLine(by_line))

    plain = translated(translator, pairs, replace(options, terms=terms, terms_mode="soft"), used_only=True)
    hard = translated(translator, pairs, translator.with_terms(options, terms, "hard"))
    print("lines with terms        used      BLEU")
    show("without terms", plain, plain, pairs)
    if backend.info.terms:
        for mode in ("soft", "auto"):
            show(mode, translated(translator, pairs, translator.with_terms(options, terms, mode)), plain, pairs)
    show("hard", hard, plain, pairs)
    if arguments.baseline:
        baseline, baseline_options, _ = load([arguments.baseline], "cpu", "torch")
        others = translated(baseline, pairs, baseline.with_terms(baseline_options, terms, "hard"))
        show("hard, baseline", others, plain, pairs)
        print("all lines without terms")
        ours = translated(translator, test, options)
        show("baseline", translated(baseline, test, baseline_options), ours, test)
        show("this model", ours, ours, test)
    if not backend.info.terms:
        return int(share_used(hard) < 1)
    print(f"tokens of invented translations that are copied: {share_copied(backend, annotator, test):.1%}")
    ratios = speed_ratios(translator, [src for src, _ in pairs], options, terms, arguments.rounds)
    print(
        f"speed with soft terms: {statistics.median(ratios):.3f} of that without ({min(ratios):.3f}–{max(ratios):.3f})"
    )
    return int(share_used(hard) < 1)


def training_pairs(run: Path, data: DataConfig) -> list[Pair]:
    """Read the training pairs of a run without those that it holds out. Sources with placeholders are not replaced."""
    held_out = {
        source_key(src)
        for name in HELD_OUT_SPLITS
        for pairs in read_directions(run, name, empty_ok=True).values()
        for src, _ in pairs
    }
    corpora = [parse_source(spec).path for spec in data.train]
    pairs = [pair for corpus in corpora for pair in read_pairs(corpus, data.src, data.tgt, swap=data.swap)]
    return [(src, tgt) for src, tgt in pairs if source_key(src) not in held_out]


def training_terms(run: Path) -> tuple[TermAnnotator, set[Key]]:
    """Return what finds terms in the pairs of a run, and the terms that its training annotated.

    The epochs are drawn again. A run without terms has annotated none.
    """
    config = load_config(run / "config.toml")
    data = reopen(run)
    if data.terms is None:
        return TermAnnotator.learn(training_pairs(run, config.data)), set()
    events, _ = Metrics(run).read()
    epochs = 1 + max(event["epoch"] for event in events if event["event"] == "train")
    plan = BatchPlan.of(config, data)
    annotated: set[Key] = set()
    for epoch in range(epochs):
        for number in range(plan.blocks):
            block = plan.block(epoch, number)
            (ids, lengths), _ = block.pairs.gather(block.rows[block.rows >= len(data.train)])
            for src in np.split(ids, lengths.cumsum())[:-1]:
                annotated |= annotated_terms(src.tolist(), data.tokenizer)
    return data.terms[data.directions[0]], annotated


def annotated_terms(src: Sequence[int], tokenizer: Tokenizer) -> set[Key]:
    """Return the terms of an encoded source, with their translations."""
    begin, middle, end = (marker_id(name) for name in ("<term>", "<translation>", "</term>"))
    found = set()
    for start, (first, last) in zip(
        (i for i, token in enumerate(src) if token == begin), translations(src), strict=True
    ):
        (term,) = tokenizer.decode_src([src[start + 1 : first - 1]])
        (target,) = tokenizer.decode([src[first:last]])
        assert (src[first - 1], src[last]) == (middle, end)
        found.add(key(term, target))
    return found


def held_out_terms(annotator: TermAnnotator, annotated: set[Key], test: Sequence[Pair]) -> dict[str, list[Annotation]]:
    """Return the terms of test sources that training never annotated."""
    found: dict[str, list[Annotation]] = {}
    for src, tgt in test:
        terms = [
            term
            for term in annotator.terms((src, tgt))
            if key(src[term.start : term.end], term.target) not in annotated
        ]
        if terms:
            found[src] = terms[:MOST_TERMS]
    return found


def share_copied(backend: PyTorchBackend, annotator: TermAnnotator, test: Sequence[Pair]) -> float:
    """Return how often the model predicts the next token of an invented translation after its first one.

    All terms of the test pairs are annotated with random tokens. The target with these tokens is given up to each of
    them, so a model that has learnt to copy predicts nearly all.
    """
    tokenizer = backend.tokenizer
    inventor = TermInventor(tokenizer, share=1)
    random = Random(1)
    sources = tokenizer.encode_annotated([src for src, _ in test], [annotator.terms(pair) for pair in test])
    targets = tokenizer.encode_tgt([tgt for _, tgt in test])
    num_copied = 0
    num_tokens = 0
    for src, tgt in zip(sources, targets, strict=True):
        new_src, new_tgt = inventor.replaced(src, tgt, random)
        batch = Batch.of([new_src], [new_tgt])
        with torch.inference_mode():
            predicted = backend.model(batch.src, batch.tgt_in).argmax(dim=-1)[0].tolist()
        for start, end in translations(new_src):
            places = places_of(new_src[start:end], new_tgt)
            if len(places) != 1:
                continue  # it is not invented: its place in the target was not certain
            for i in range(places[0] + 1, places[0] + end - start):
                num_copied += predicted[i] == new_tgt[i]
                num_tokens += 1
    return num_copied / num_tokens


def key(source: str, target: str) -> Key:
    """Return a term and its translation, without case."""
    return source.lower(), target.lower()


def translated(
    translator: Translator, pairs: Sequence[Pair], options: Options, *, used_only: bool = False
) -> list[Translation]:
    """Translate the sources of pairs.

    Args:
        translator: The model.
        pairs: The pairs.
        options: Options of the search.
        used_only: Do not write the terms into the sources: only see which of them the translations have anyway.
    """
    lines = [src for src, _ in pairs]
    if not used_only:
        return list(translator.translate(lines, options, Reading(warn=False)))
    found = translator.translate(lines, replace(options, terms=None), Reading(warn=False))
    assert options.terms is not None
    return [replace(one, terms=tuple(uses(options.terms.matches(one.source), one.text))) for one in found]


def share_used(translations: Sequence[Translation]) -> float:
    """Return the share of the terms that the translations use."""
    used = [use.form is not None for translation in translations for use in translation.terms]
    return sum(used) / len(used)


def show(name: str, system: Sequence[Translation], other: Sequence[Translation], pairs: Sequence[Pair]) -> None:
    """Print the figures of one system, and its BLEU against that of another one."""
    texts, other_texts = ([translation.text for translation in translations] for translations in (system, other))
    comparison = compare(other_texts, texts, [[tgt for _, tgt in pairs]], metrics=("bleu",))
    used = f"{share_used(system):.1%}" if system[0].terms else ""
    print(f"{name:20} {used:>8}      {comparison.differences[0]}")


def speed_ratios(
    translator: Translator, lines: Sequence[str], options: Options, terms: Terms, rounds: int
) -> list[float]:
    """Return the CPU time without terms divided by that with soft terms, of several rounds."""
    soft = translator.with_terms(options, terms, "soft")
    ratios = []
    for round_number in range(rounds + 1):
        seconds = []
        for each in (options, soft):
            started = time.process_time()
            for _ in translator.translate(lines, each, Reading(warn=False, quiet=True)):
                pass
            seconds.append(time.process_time() - started)
        if round_number:  # the first one warms up
            ratios.append(seconds[0] / seconds[1])
    return ratios


if __name__ == "__main__":
    sys.exit(main())
