#!/usr/bin/env python3
"""Measure how far the confidence of a model can be trusted, on pairs that it has not seen, and what it costs.

    python scripts/check_confidence.py RUN [--pairs PAIRS] [--other FILE]... [-b N] [--rounds 5]

RUN is a run, an import or an export with a confidence. The pairs are the test pairs of the run, or those of `--pairs`.

The script prints

- for each tenth of the pairs by confidence, the lowest first, its mean and the mean chrF of the translations;
- chrF of all translations, and without the fifth with the lowest confidence;
- for lines that are no sentences of the source language, or in capitals, how well the confidence tells them from the
  pairs: the probability that one of them has less confidence than a pair (the area under the ROC curve). The other
  languages are the target language, and that of each file of `--other`, one sentence a line;
- the CPU time of computing the confidence, as a share of that of translating, as the median of the rounds.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mtcli.corpus.held_out import read_split
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.documents.lines import BySentence
from mtcli.evaluation.confidence import noisy_pairs, reliability
from mtcli.evaluation.metrics import sacrebleu_metrics, score
from mtcli.runtime.cores import usable_cores
from mtcli.text.letter_case import upper
from mtcli.text.lines import Pair
from mtcli.translate.loading import load
from mtcli.translate.translation import Candidate, Options
from mtcli.translate.translator import ModelTranslator, Translator
from mtcli.translate.windows import Reading

MOST_LINES = 300
"""Lines of each kind that are compared with the pairs."""

Rated = list[tuple[Candidate, float]]
"""Translations with their confidence."""


def rated(translator: Translator, options: Options, lines: Sequence[str]) -> Rated:
    """Translate lines. Raise SystemExit if the model has no confidence."""
    found = []
    for translation in translator.translate(lines, options, Reading(warn=False)):
        best = translation.candidates[0]
        if best.confidence is None and translation.source.strip():
            raise SystemExit("the model has no confidence: calibrate it with mtcli train or mtcli import --calibrate")
        found.append((best, best.confidence or 0.0))
    return found


def print_tenths(found: Rated, references: Sequence[str]) -> None:
    """Print the tenths, and the gain of leaving out the lowest fifth."""
    (metric,) = sacrebleu_metrics(("chrf",), False, None)
    scores = [metric.sentence_score(best.text, [ref]).score for (best, _), ref in zip(found, references, strict=True)]
    confidences = [confidence for _, confidence in found]
    tenths = reliability(list(zip(confidences, scores, strict=True)))
    print(f"{'tenth':>5} {'confidence':>10} {'chrF2':>6} {'difference':>10}")
    for number, tenth in enumerate(tenths, 1):
        print(f"{number:>5} {tenth.confidence:>10.1f} {tenth.chrf:>6.1f} {tenth.confidence - tenth.chrf:>+10.1f}")
    differences = [abs(tenth.confidence - tenth.chrf) for tenth in tenths]
    mean = sum(differences) / len(differences)
    print(f"mean difference {mean:.1f}, largest {max(differences):.1f}")
    correlation = float(np.corrcoef(confidences, scores)[0, 1])
    print(f"correlation of confidence and sentence chrF2: {correlation:.2f}")
    order = sorted(range(len(found)), key=lambda row: confidences[row])
    for name, rows in (("all", order), ("without the lowest fifth", order[len(order) // 5 :])):
        texts = [found[row][0].text for row in rows]
        (whole,) = score(texts, [[references[row] for row in rows]], metrics=("chrf",))
        average = statistics.mean(scores[row] for row in rows)
        print(f"{name}: chrF2 {whole.value:.1f} ({len(rows):,} lines), mean of the sentences {average:.1f}")


def area(usual: Rated, others: Rated) -> float:
    """Return the probability that one of the others has less confidence than a usual line; a tie counts half."""
    high = np.array([confidence for _, confidence in usual])[:, None]
    low = np.array([confidence for _, confidence in others])[None, :]
    return float(((high > low) + 0.5 * (high == low)).mean())


def print_areas(
    translator: Translator,
    options: Options,
    languages: tuple[str, str],
    usual: Rated,
    pairs: Sequence[Pair],
    others: Sequence[Path],
) -> None:
    """Print how well the confidence tells other lines from the pairs, and the chrF where there is a reference."""
    noisy = noisy_pairs(pairs[:MOST_LINES], languages, number=MOST_LINES)
    in_capitals = [(upper(src, languages[0]), upper(tgt, languages[1])) for src, tgt in pairs[:MOST_LINES]]
    kinds: dict[str, tuple[Translator, Sequence[Pair]]] = {
        "random letters": (translator, noisy["letters"]),
        "shuffled characters": (translator, noisy["characters"]),
        "capitals, --as-is": (translator, in_capitals),
        "capitals": (BySentence(translator, *languages), in_capitals),
        f"another language ({languages[1]})": (translator, [(tgt, "") for _, tgt in pairs[:MOST_LINES]]),
    }
    for path in others:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        kinds[f"another language ({path.name})"] = (translator, [(line, "") for line in lines[:MOST_LINES]])
    print(f"{'lines unlike the pairs':32} {'lines':>5} {'AUC':>6} {'confidence':>10} {'chrF2':>6}")
    for name, (chosen, lines_of_kind) in kinds.items():
        found = rated(chosen, options, [src for src, _ in lines_of_kind])
        references = [tgt for _, tgt in lines_of_kind]
        mean = statistics.mean(confidence for _, confidence in found)
        chrf = ""
        if all(references):
            (metric,) = sacrebleu_metrics(("chrf",), False, None)
            texts = [best.text for best, _ in found]
            scores = [metric.sentence_score(text, [ref]).score for text, ref in zip(texts, references, strict=True)]
            chrf = f"{statistics.mean(scores):.1f}"
        print(f"{name:32} {len(found):>5} {area(usual, found):>6.3f} {mean:>10.1f} {chrf:>6}")


def print_cost(translator: ModelTranslator, options: Options, lines: Sequence[str], rounds: int) -> None:
    """Print the CPU time of computing the confidence of translations, as a share of that of finding them."""
    confidence = translator.confidence
    assert confidence is not None
    ids = translator.tokenizer.encode_src(list(lines))
    shares = []
    for _ in range(rounds):
        started_at = time.process_time()
        found = list(translator.translate(lines, options, Reading(warn=False, quiet=True)))
        translating = time.process_time() - started_at
        started_at = time.process_time()
        for translation, row in zip(found, ids, strict=True):
            confidence.rated(translation.candidates, len(row))
        shares.append((time.process_time() - started_at) / translating)
    seconds = f"{translating:.2f} CPU seconds for {len(lines):,} lines"
    print(f"cost: {statistics.median(shares):.2%} of translating ({seconds}, {usable_cores()} cores)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--pairs", help="pairs in any form that --train takes; default: the test pairs of the run")
    parser.add_argument("--other", type=Path, action="append", default=[], help="sentences of another language")
    parser.add_argument("-b", "--beam-size", type=int, help="default: that of the model")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    translator, options, languages = load([arguments.model], "cpu", "auto")
    if arguments.beam_size:
        options = replace(options, beam_size=arguments.beam_size)
    options = replace(options, repair=True)
    pairs = list(read_pairs(arguments.pairs, *languages)) if arguments.pairs else read_split(arguments.model, "test")
    sources = [src for src, _ in pairs]
    print(f"{len(pairs):,} pairs, beam {options.beam_size}, {type(translator.backend).__name__}")
    usual = rated(translator, options, sources)
    print_tenths(usual, [tgt for _, tgt in pairs])
    print_areas(translator, options, languages, usual, pairs, arguments.other)
    print_cost(translator, options, sources, arguments.rounds)


if __name__ == "__main__":
    main()
