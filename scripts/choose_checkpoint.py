#!/usr/bin/env python
r"""Compare criteria that choose a checkpoint, by the test scores of the chosen one. See docs/results.md.

    scripts/choose_checkpoint.py split en-es.tsv.gz es        # es.train.tsv, es.valid.tsv and es.test.tsv
    mtcli train es.train.tsv --valid es.valid.tsv --src en --tgt es --max-steps 2000 --out runs/es \
        --set train.keep=100 --set train.save_every=100 --set train.patience=0
    scripts/choose_checkpoint.py measure runs/es es.valid.tsv es.test.tsv es.json
    scripts/choose_checkpoint.py compare es.json …

`compare` prints the regret of each criterion: how many points of test BLEU and chrF the chosen checkpoint is below the
best one. The candidates are all checkpoints and the mean of the last five, as at the end of training. Samples of the
validation pairs show how much the choice depends on the pairs.
"""

import argparse
import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sacrebleu.metrics import BLEU, CHRF

from mtcli.config.scores import combined_score
from mtcli.storage import checkpoint, model_file
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.scoring import likelihoods
from mtcli.translate.translation import Options
from mtcli.translate.translator import ModelTranslator
from mtcli.translate.windows import Reading

CRITERIA = ("loss", "greedy BLEU", "greedy chrF", "beam BLEU", "beam chrF", "mean of ranks", "majority", "combined")
SAMPLE_SIZES = (16, 32, 64, 100, 250, 500, 1000)
SAMPLES = 100
"""Samples of the validation pairs of each size, drawn with replacement."""

METRICS = {"BLEU": BLEU(force=True), "chrF": CHRF()}


def split(table: Path, name: str, num_train: int) -> None:
    """Write training, validation (1,000) and test pairs (1,000) of a table of English and another language.

    Each English sentence has one translation and at least three words, and each translation occurs once.
    """
    translations: dict[str, list[str]] = {}
    with gzip.open(table, "rt", encoding="utf-8") as lines:
        for line in lines:
            english, translation = line.rstrip("\n").split("\t")[:2]
            translations.setdefault(english, []).append(translation)
    sources = sorted(translations)
    random.Random(7).shuffle(sources)
    choose = random.Random(8).choice
    pairs: dict[str, str] = {}
    for source in sources:
        target = choose(translations[source])
        if len(source.split()) >= 3:
            pairs.setdefault(target, source)
    rows = [f"{source}\t{target}\n" for target, source in pairs.items()]
    parts = {"valid": rows[:1000], "test": rows[1000:2000], "train": rows[3000 : 3000 + num_train]}
    for part, lines_of_part in parts.items():
        Path(f"{name}.{part}.tsv").write_text("".join(lines_of_part), encoding="utf-8")


def read_table(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


def measure(run: Path, valid: Path, test: Path, output: Path) -> None:
    """Write the loss and the translations of each checkpoint of a run, and of the mean of the last five."""
    valid_pairs = read_table(valid)
    test_pairs = read_table(test)
    paths = checkpoint.steps(run / "checkpoints")
    candidates = {str(checkpoint.step_of(path)): [path] for path in paths}
    candidates["mean of the last five"] = paths[-5:]
    models = {}
    for name, members in candidates.items():
        model, info, tokenizer = model_file.load_model(members[-1])
        model_file.set_parameters(model, model_file.mean_parameters(members), members[0])
        backend = PyTorchBackend(model.eval(), tokenizer, info)
        models[name] = measure_model(backend, Options.of(info.decode), valid_pairs, test_pairs)
        print(name, flush=True)
    output.write_text(json.dumps({"valid": valid_pairs, "test": test_pairs, "models": models}))


def measure_model(
    backend: PyTorchBackend, options: Options, valid: list[list[str]], test: list[list[str]]
) -> dict[str, Any]:
    """Return the loss (nats, tokens) of each validation pair, and the translations."""
    greedy = replace(options, beam_size=1)
    scored = likelihoods(backend, ((src, tgt) for src, tgt in valid), quiet=True)

    def translate(pairs: list[list[str]], how: Options) -> list[str]:
        sources = [src for src, _ in pairs]
        return [
            found.text for found in ModelTranslator(backend).translate(sources, how, Reading(warn=False, quiet=True))
        ]

    return {
        "loss": [[-one.log_prob, one.tokens] for one in scored if one is not None],
        "greedy": translate(valid, greedy),
        "beam": translate(valid, options),
        "test": translate(test, options),
    }


def statistics(metric: str, hypotheses: list[str], pairs: list[list[str]]) -> np.ndarray:
    """Return the counts of each sentence, from whose sum the score follows: (sentences, counts)."""
    references = [[tgt for _, tgt in pairs]]
    return np.array(METRICS[metric]._extract_corpus_statistics(hypotheses, references), dtype=float)


def score(metric: str, counts: np.ndarray) -> float:
    return float(METRICS[metric]._compute_score_from_stats(list(counts.sum(axis=0))).score)


def figures(found: dict[str, Any], rows: np.ndarray) -> np.ndarray:
    """Return the figures of each candidate on some validation pairs: (candidates, criteria). Higher is better."""
    table = []
    for model in found["models"].values():
        nats, tokens = np.array(model["loss"])[rows].sum(axis=0)
        row = [-nats / tokens]
        row += [score(metric, model["counts"][how, metric][rows]) for how in ("greedy", "beam") for metric in METRICS]
        table.append(row)
    values = np.array(table)
    ranks = values[:, :3].argsort(axis=0).argsort(axis=0).mean(axis=1)  # of the loss, greedy BLEU and greedy chrF
    return np.column_stack([values, ranks + 1e-6 * values[:, 2]])  # of equal ranks, the higher chrF


def choices(found: dict[str, Any], rows: np.ndarray) -> np.ndarray:
    """Return the candidate that each criterion chooses on some validation pairs: (criteria,)."""
    values = figures(found, rows)
    combined = np.array([combined_score(bleu, chrf, -negative_loss) for negative_loss, bleu, chrf in values[:, :3]])
    return np.array([*values.argmax(axis=0), majority(values[:, :3]), combined.argmax()])


def majority(values: np.ndarray) -> int:
    """Return the candidate that version 0.2.0 chose: each one replaces the best before it if more figures are better.

    This is not transitive, so it depends on the order of the candidates.

    Args:
        values: The loss, greedy BLEU and greedy chrF of each candidate, (candidates, 3). Higher is better.
    """
    best = 0
    for candidate in range(1, len(values)):
        if np.sign(values[candidate] - values[best]).sum() > 0:
            best = candidate
    return best


def load(path: Path) -> dict[str, Any]:
    """Read what `measure` wrote, and add the counts of each sentence and the test scores."""
    found: dict[str, Any] = json.loads(path.read_text())
    for model in found["models"].values():
        model["counts"] = {
            (how, metric): statistics(metric, model[how], found["test" if how == "test" else "valid"])
            for how in ("greedy", "beam", "test")
            for metric in METRICS
        }
        model["test"] = [score(metric, model["counts"]["test", metric]) for metric in METRICS]
    return found


def compare(path: Path) -> np.ndarray:
    """Print the figures of a run and the regret of each criterion.

    Returns:
        The mean regret, (sample sizes, criteria, metrics).
    """
    found = load(path)
    test = np.array([model["test"] for model in found["models"].values()])
    regret = test.max(axis=0) - test
    all_rows = np.arange(len(found["valid"]))
    print(path)
    whole = figures(found, all_rows)
    for name, row, (bleu, chrf) in zip(found["models"], whole, test, strict=True):
        shown = f"loss {-row[0]:.3f}, greedy {row[1]:.2f} {row[2]:.2f}, beam {row[3]:.2f} {row[4]:.2f}"
        print(f"  {name:>22}: {shown}, test {bleu:.2f} {chrf:.2f}")
    print("  chosen by all pairs:")
    for criterion, best in zip(CRITERIA, choices(found, all_rows), strict=True):
        print(f"  {criterion:>22}: {list(found['models'])[best]}, regret {regret[best][0]:.2f} {regret[best][1]:.2f}")
    draw = np.random.default_rng(1).choice
    return np.array(
        [
            np.mean([regret[choices(found, draw(all_rows, size))] for _ in range(SAMPLES)], axis=0)
            for size in SAMPLE_SIZES
        ]
    )


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    splitting = commands.add_parser("split")
    splitting.add_argument("table", type=Path)
    splitting.add_argument("name")
    splitting.add_argument("--train", type=int, default=20_000)
    measuring = commands.add_parser("measure")
    for name in ("run", "valid", "test", "output"):
        measuring.add_argument(name, type=Path)
    comparing = commands.add_parser("compare")
    comparing.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    if given.command == "split":
        split(given.table, given.name, given.train)
    elif given.command == "measure":
        measure(given.run, given.valid, given.test, given.output)
    else:
        mean = np.mean([compare(path) for path in given.files], axis=0)
        print("mean regret in BLEU / chrF, by number of validation pairs")
        for size, row in zip(SAMPLE_SIZES, mean, strict=True):
            cells = (
                f"{criterion} {bleu:.2f} / {chrf:.2f}" for criterion, (bleu, chrf) in zip(CRITERIA, row, strict=True)
            )
            print(f"  {size:>4}: {', '.join(cells)}")


if __name__ == "__main__":
    main()
