"""`mtcli improve`: which models are trained on what, what is held out, and interruptions."""

import errno
import hashlib
import json
import logging
import os
import random
import re
import shlex
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from conftest import toy_pairs, write_tsv
from helpers import harness
from helpers.processes import HANGS

from mtcli.cli import app
from mtcli.config.schema import Config
from mtcli.config.toml_file import to_toml
from mtcli.corpus.cache.training_sources import is_synthetic
from mtcli.corpus.readers.sources import parse_source
from mtcli.errors import DataError, LockedError, StorageError, UsageError
from mtcli.recipes import recipe as module
from mtcli.recipes.improve.budget import SharedBudget, number_of_teachers, planned_rounds, useful_lines, weight_of_pairs
from mtcli.recipes.improve.material import is_chosen, merge
from mtcli.recipes.improve.method import CandidateModel, ImproveResult, Method
from mtcli.recipes.improve.plan import PLAIN
from mtcli.recipes.improve.request import ImproveRequest, resolve_request
from mtcli.recipes.improve.run import improve, plan, summary
from mtcli.recipes.improve.stages import Scores, Stages, Training
from mtcli.recipes.monolingual import warning_about, write_pairs
from mtcli.recipes.recipe import STATE, Stage
from mtcli.text.languages import Direction
from mtcli.text.tokenizer.learning import train_tokenizer_on_lines
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG

BLEU = {"plain": 20.0, "plain, extended": 20.5, "improved-1": 25.0, "improved-2": 24.0, "ensemble": 26.0}
"""The scores of the simulated models, by stage."""


LINES_PER_SECOND = 10
SCORING_SECONDS = 10


class Simulation:
    """Runs stages without models: each file is a function of the command and of the files that it reads.

    Args:
        bleu: Scores by stage.
        steps: The steps after which each training finds no improvement, by stage. A step takes a second.
        languages: Source and target of the request.
    """

    def __init__(
        self, bleu: dict[str, float] | None = None, steps: dict[str, int] | None = None, languages: str = "en xx"
    ):
        self.bleu = BLEU if bleu is None else bleu
        self.languages = languages.split()
        self.seconds = 0.0
        """Time that the stages have taken."""
        self.steps = steps or {}
        self.commands: dict[str, tuple[str, ...]] = {}

    def __call__(self, stage: Stage, while_waiting: Callable[[], None]) -> str:
        self.commands[stage.name] = stage.arguments
        command, *words = stage.arguments
        while_waiting()
        return str(getattr(self, command)(stage.name, words))

    def train(self, stage: str, words: list[str]) -> str:
        folder = Path(value_of(words, "--out"))
        wanted = int(words[-1].removesuffix("s"))
        steps = min(wanted, self.steps.get(stage, wanted))
        self.seconds += steps
        folder.mkdir(exist_ok=True)
        content = b"".join(Path(path.partition("@")[0]).read_bytes() for path in values_of(words, "--train"))
        digest = hashlib.sha256(repr(words).encode() + content).hexdigest()
        (folder / "model.safetensors").write_text(digest)
        (folder / "tokenizer.json").write_text(str(len(content)))
        checkpoint = folder / "checkpoints" / f"step-{steps:08}"
        checkpoint.mkdir(parents=True, exist_ok=True)
        (checkpoint / "state.json").write_text(digest)
        budget = "time" if words[-1].endswith("s") else "max_steps"
        (folder / "config.toml").write_text(to_toml(Config.model_validate({"train": {budget: wanted}})))
        reason = "budget used" if steps == wanted else "cut short, as nothing improved"
        events = [
            {"event": "plan", "step": 0, "format": 2, "batches": 1},
            {"event": "end", "step": steps, "seconds": float(steps), "reason": reason},
        ]
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
        return ""

    def tokenizer(self, stage: str, words: list[str]) -> str:
        texts = words[1 : words.index("-o")]
        content = b"".join(Path(path).read_bytes() for path in texts)
        Path(value_of(words, "-o")).write_text(hashlib.sha256(repr(words).encode() + content).hexdigest())
        return ""

    def augment(self, stage: str, words: list[str]) -> str:
        model = (Path(value_of(words, "--model")) / "model.safetensors").read_text()
        rows = []
        lines = Path(value_of(words, "-i")).read_text().splitlines()
        self.seconds += len(lines) / LINES_PER_SECOND
        for line in lines:
            translation = f"{model[:4]} {line[::-1]}"
            tag = BACK_TRANSLATION_TAG if "--tag" in words else ""
            forward = "--forward" in words
            default = self.languages if forward else self.languages[::-1]
            src, tgt = [*values_of(words, "--from"), *values_of(words, "--to")] or default
            pair = {src: line, tgt: translation} if forward else {src: line, tgt: tag + translation}
            rows.append({"translation": pair, "log_prob": 0.0, "score": 0.0})
        Path(value_of(words, "-o")).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return ""

    def eval(self, stage: str, words: list[str]) -> str:
        self.seconds += SCORING_SECONDS
        has_several = "--split" in words
        if "--compare" in words:
            estimate = {"score": 20.0, "p_value": 0.01}
            found = {"differences": [{"name": "BLEU", "a": estimate, "b": {**estimate, "score": 21.0}}]}
            each = [{"src": "en", "tgt": tgt, "pairs": 6, **found} for tgt in ("xx", "yy")]
            return json.dumps({"directions": each, "mean": {"BLEU": 1.0}} if has_several else found)
        score = self.bleu.get(stage.removesuffix(", validation"), 0.0)
        if has_several:
            return json.dumps({"mean": {"BLEU": score, "chrF2": score}})
        return json.dumps([{"name": "BLEU", "score": score}, {"name": "chrF2", "score": score}])


def values_of(words: list[str], option: str) -> list[str]:
    return [words[place + 1] for place, word in enumerate(words) if word == option]


def value_of(words: list[str], option: str) -> str:
    (value,) = values_of(words, option)
    return value


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write 300 pairs and text in both languages, of which 50 lines are also in the pairs."""
    monkeypatch.chdir(tmp_path)
    pairs = toy_pairs(400)
    write_tsv(tmp_path / "pairs.tsv", pairs[:300])
    for name, side in (("mono.en", 0), ("mono.xx", 1)):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs[250:]) + "\n")
    return tmp_path


def request_for(out: str = "out", **options: Any) -> ImproveRequest:
    sets = options.pop("sets", ())
    texts = {name: options.pop(name, None) for name in ("mono_tgt", "mono_src")}
    init = options.pop("init", None)
    values = {"data.train": ["pairs.tsv"], "data.src": "en", "data.tgt": "xx", "train.max_steps": 400, **options}
    paths = {name: Path(file) if file else None for name, file in texts.items()}
    return resolve_request(values, sets, out=Path(out), device="auto", init=init, **paths)


def run(
    request: ImproveRequest, monkeypatch: pytest.MonkeyPatch, simulation: Simulation | None = None
) -> tuple[ImproveResult, Stages, Simulation]:
    simulation = simulation or Simulation()
    monkeypatch.setattr(module, "run_command", simulation)
    result, stages = improve(request)
    return result, stages, simulation


def pairs_in(path: Path) -> list[tuple[str, str]]:
    rows = [json.loads(line)["translation"] for line in path.read_text().splitlines()]
    return [(row["en"], row["xx"]) for row in rows]


def test_back_translation_trains_on_both_texts(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, stages, simulation = run(request_for(mono_tgt="mono.xx", mono_src="mono.en"), monkeypatch)
    assert list(simulation.commands) == [
        "tokenizer",
        "plain",
        "plain, validation",
        "synthetic-1/forward-1",
        "reverse-1",
        "synthetic-1/back-1",
        "improved-1",
        "improved-1, validation",
        "comparison",
        "ensemble, validation",
    ]
    steps = {name: int(words[-1]) for name, words in simulation.commands.items() if words[0] == "train"}
    assert steps["plain"] == 100
    assert sum(steps.values()) == 400
    assert result.best == "improved-1"
    assert (files / "out" / "model.safetensors").read_text() == (files / "out/improved-1/model.safetensors").read_text()
    assert [path.name for path in (files / "out" / "checkpoints").iterdir()] == ["step-00000219"]
    assert value_of(list(simulation.commands["comparison"]), "--pairs") == "out/pairs/test.jsonl"
    shown = summary(result, stages)
    assert "trained on the same pairs for 25% of the budget. The same training for the whole budget was not" in shown


def test_a_difference_on_a_few_test_pairs_is_not_called_significant(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, stages, _ = run(request_for("few", mono_tgt="mono.xx"), monkeypatch)
    shown = summary(result, stages)
    assert "improved-1 against plain, on 6 test pairs: BLEU +1.0. 6 test pairs are too few for" in shown
    assert "significant" not in shown
    write_tsv(files / "test.tsv", toy_pairs(30, seed=9))
    result, stages, _ = run(request_for("more", mono_tgt="mono.xx", **{"data.test": "test.tsv"}), monkeypatch)
    expected = "on 30 test pairs, by paired bootstrap: BLEU +1.0 (p = 0.010, significant)\n"
    assert expected in summary(result, stages)


def test_all_models_share_a_tokenizer_and_are_scored_together(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_for(mono_tgt="mono.xx", sets=("tokenizer.vocab_size=400", "train.label_smoothing=0"))
    result, stages, simulation = run(request, monkeypatch)
    words = list(simulation.commands["tokenizer"])
    assert words[:2] == ["tokenizer", "train"]
    assert words[2 : words.index("-o")] == [f"out/pairs/{name}.txt" for name in ("train.en", "train.xx", "text.xx")]
    assert value_of(words, "--vocab-size") == "400"
    for command in simulation.commands.values():
        if command[0] == "train":
            settings = [text for text in values_of(list(command), "--set") if not text.startswith("train.")]
            assert settings == ["tokenizer.file=out/pairs/tokenizer.json"]
    models = "--model out/improved-1 --model out/plain"
    assert " ".join(simulation.commands["ensemble, validation"]).startswith(f"eval {models} --pairs")
    shown = summary(result, stages)
    assert re.search(r"^all together +26\.0 +26\.0$", shown, re.MULTILINE)
    assert f"mtcli translate {models}" in shown


def test_all_models_together_are_recommended_only_if_they_are_better(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(bleu=BLEU | {"ensemble": 25.0})
    result, stages, _ = run(request_for(mono_tgt="mono.xx"), monkeypatch, simulation)
    shown = summary(result, stages)
    assert re.search(r"^all together +25\.0 +25\.0$", shown, re.MULTILINE)
    assert "mtcli translate" not in shown


def test_the_text_of_the_tokenizer_has_no_held_out_sentence(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{number} eert." for number in range(2000)]
    (files / "long.en").write_text("".join(f"{line}\n" for line in lines))
    run(request_for(mono_tgt="mono.xx", mono_src="long.en"), monkeypatch)
    pairs = files / "out" / "pairs"
    held_out = {text for name in ("valid", "test") for pair in pairs_in(pairs / f"{name}.jsonl") for text in pair}
    assert len(held_out & {line.strip() for line in (files / "mono.xx").read_text().splitlines()}) > 3
    texts = {path.name: path.read_text().splitlines() for path in pairs.glob("*.txt")}
    assert sorted(texts) == ["text.en.txt", "text.xx.txt", "train.en.txt", "train.xx.txt"]
    assert not held_out & {line for text in texts.values() for line in text}
    assert len(texts["text.en.txt"]) == 2 * len(texts["train.en.txt"])
    assert len(texts["text.xx.txt"]) > 100


def test_a_given_tokenizer_replaces_the_stage_that_trains_one(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = [text for pair in toy_pairs(50) for text in pair]
    train_tokenizer_on_lines(text).save(files / "given.json")
    _, _, simulation = run(request_for(mono_tgt="mono.xx", sets=("tokenizer.file=given.json",)), monkeypatch)
    assert "tokenizer" not in simulation.commands
    assert "tokenizer.file=given.json" in simulation.commands["reverse-1"]
    assert "ensemble, validation" in simulation.commands
    train_tokenizer_on_lines(text, vocab_size=300).save(files / "given.json")
    with pytest.raises(UsageError, match=r"SHA-256 of given\.json.*, or choose .*, or start over with --overwrite$"):
        improve(request_for(mono_tgt="mono.xx", sets=("tokenizer.file=given.json",)))


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of en → de."""
    folder = tmp_path_factory.mktemp("parent")
    pairs = write_tsv(folder / "en-de.tsv", toy_pairs(60, seed=7))
    sets = [word for setting in (*SMALL, "data.variants=off", "train.engine=false") for word in ("--set", setting)]
    words = ["train", str(pairs), "--src", "en", "--tgt", "de", *sets, "--max-steps", "2", "--out", str(folder / "run")]
    done = harness.run(*words, cwd=folder)
    assert done.code == 0, done.err
    return folder / "run"


def test_every_model_starts_from_a_parent_and_has_the_tokenizer_of_the_plain_one(
    files: Path, parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"mono_tgt": "mono.xx", "sets": ("tokenizer.vocab_size=400",), "data.tgt": "gn"}
    result, _, simulation = run(request_for(**options, init=parent), monkeypatch, Simulation(languages="en gn"))
    assert "tokenizer" not in simulation.commands
    settings = {}
    for name, words in simulation.commands.items():
        if words[0] == "train":
            assert value_of([*words], "--init") == str(parent)
            settings[name] = [text for text in values_of([*words], "--set") if text.startswith("tokenizer")]
    own = ["tokenizer.vocab_size=400"]
    assert settings == {"plain": own, "reverse-1": own, "improved-1": ["tokenizer.file=out/plain"]}
    assert result.ensemble is not None
    with pytest.raises(UsageError, match="differs in --init "):
        improve(request_for(**options))


def test_fine_tuned_models_have_the_tokenizer_of_their_model(
    files: Path, parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for(mono_tgt="mono.xx", init=parent, **{"data.tgt": "de"})
    _, _, simulation = run(request, monkeypatch, Simulation(languages="en de"))
    assert not any("tokenizer" in word for words in simulation.commands.values() for word in words)


def test_a_shape_beside_init_is_refused(files: Path, parent: Path) -> None:
    with pytest.raises(UsageError, match="--preset: --init brings the shape of its model"):
        request_for(init=parent, preset="tiny")


def test_models_with_separate_vocabularies_are_not_combined(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result, _, simulation = run(request_for(mono_tgt="mono.xx", sets=("tokenizer.joint=false",)), monkeypatch)
    assert not {"tokenizer", "ensemble, validation"} & {*simulation.commands}
    assert result.ensemble is None
    assert "tokenizer.joint=false" in simulation.commands["plain"]


def test_time_is_divided_by_measured_speeds(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{number} eert." for number in range(6000)]
    (files / "long.xx").write_text("".join(f"{line}\n" for line in lines))
    simulation = Simulation()
    monkeypatch.setattr(module.Recipe, "elapsed", lambda recipe: simulation.seconds)
    request = request_for(mono_tgt="long.xx", **{"train.max_steps": None, "train.time": "1h"})
    run(request, monkeypatch, simulation)
    chosen = [(files / "out" / "synthetic-1" / f"back-{part}.txt").read_text().splitlines() for part in (1, 2)]
    assert len(chosen[0]) == 2000
    for_round = 3600 - 900 - 6 * SCORING_SECONDS
    assert len({*chosen[0], *chosen[1]}) == len(chosen[0]) + len(chosen[1]) == int(0.2 * for_round * LINES_PER_SECOND)
    numbers = sorted(int(line.split()[0]) for line in (*chosen[0], *chosen[1]))
    assert {b - a for a, b in pairwise(numbers)} == {1, 2}
    assert 3500 < simulation.seconds < 3600


def test_nothing_that_is_held_out_is_trained_on(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(request_for(mono_tgt="mono.xx", mono_src="mono.en"), monkeypatch)
    pairs = files / "out" / "pairs"
    held_out = {text for name in ("valid", "test") for pair in pairs_in(pairs / f"{name}.jsonl") for text in pair}
    assert len(pairs_in(pairs / "valid.jsonl")) == 30
    train = pairs_in(pairs / "train-1.jsonl")
    synthetic = pairs_in(files / "out/synthetic-1/pairs.jsonl")
    assert len(train) + 36 == 300
    assert len(synthetic) > 250
    assert not held_out & {text for pair in (*train, *synthetic) for text in pair}


def test_no_pairs_are_held_out_of_a_synthetic_corpus(
    files: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run(request_for("alone"), monkeypatch)
    rows = [f"{BACK_TRANSLATION_TAG}{src}\t{tgt} machine\t-0.5\t0.5" for src, tgt in toy_pairs(300)]
    (files / "synthetic.tsv").write_text("\n".join(["en\txx\tlog_prob\tscore", *rows]) + "\n")
    with caplog.at_level(logging.INFO):
        run(request_for("both", **{"data.train": ["pairs.tsv", "synthetic.tsv@0.5"]}), monkeypatch)
    for name in ("valid", "test", "train-1"):
        file = f"pairs/{name}.jsonl"
        assert (files / "both" / file).read_text() == (files / "alone" / file).read_text()
    assert "skipped 36 pairs: synthetic, with a held-out source" in caplog.text
    assert len(pairs_in(files / "both/pairs/train-2.jsonl")) == 300 - 36


@pytest.mark.parametrize("text", [None, "mono.xx"])
def test_a_model_of_the_opposite_direction_learns_no_tags(
    files: Path, text: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{BACK_TRANSLATION_TAG}{src}\t{tgt} machine\t-0.5\t0.5" for src, tgt in toy_pairs(300)]
    (files / "synthetic.tsv").write_text("\n".join(["en\txx\tlog_prob\tscore", *rows]) + "\n")
    request = request_for(mono_tgt=text, **{"data.train": ["pairs.tsv", "synthetic.tsv@0.5"]})
    _, _, simulation = run(request, monkeypatch)
    plain, reverse = (values_of(list(simulation.commands[name]), "--train") for name in ("plain", "reverse-1"))
    assert plain == ["out/pairs/train-1.jsonl", "out/pairs/train-2.jsonl@0.5"]
    assert reverse == ["out/pairs/train-1.jsonl", "out/pairs/train-2-untagged.jsonl@0.5"]
    tagged, untagged = (pairs_in(files / "out/pairs" / f"{name}.jsonl") for name in ("train-2", "train-2-untagged"))
    assert untagged == [(src.removeprefix(BACK_TRANSLATION_TAG), tgt) for src, tgt in tagged]
    assert all(src.startswith(BACK_TRANSLATION_TAG) for src, _ in tagged)
    assert BACK_TRANSLATION_TAG not in (files / "out/pairs/train.en.txt").read_text()


def test_synthetic_pairs_are_balanced_with_the_pairs_that_an_epoch_draws(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for(mono_tgt="mono.xx", **{"data.train": ["pairs.tsv@0.005"]})
    result, _, simulation = run(request, monkeypatch)
    plain, improved = result.candidates["plain"], result.candidates["improved-1"]
    drawn = 0.005 * plain.pairs
    num_synthetic = improved.pairs - plain.pairs
    assert 2 * drawn < num_synthetic <= useful_lines(improved.training.steps * drawn)
    real, synthetic = values_of(list(simulation.commands["improved-1"]), "--train")
    assert parse_source(real).weight * plain.pairs == pytest.approx(num_synthetic / 2, rel=0.01)
    assert parse_source(synthetic).weight == 1


def test_an_unknown_device_is_refused_before_the_folder_records_it(files: Path) -> None:
    request = replace(request_for(), device="gpu")
    with pytest.raises(UsageError, match="--device gpu: choose from"):
        improve(request)
    assert not (files / "out").exists()


def test_diversification_adds_translations_by_models_of_both_directions(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulation = Simulation(steps={"plain": 50})
    result, _, _ = run(request_for(), monkeypatch, simulation)
    names = [name for name, words in simulation.commands.items() if words[0] == "train"]
    assert names == ["plain", "reverse-1", "forward-2", "reverse-2", "improved-1"]
    seeds = [values_of(list(simulation.commands[name]), "--set")[1] for name in names[1:4]]
    assert seeds == ["train.seed=1", "train.seed=2", "train.seed=2"]
    assert result.candidates["improved-1"].pairs == 5 * 264
    assert int(simulation.commands["improved-1"][-1]) == 200


def test_the_plain_model_gets_the_rest_if_nothing_is_better(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(bleu=BLEU | {"improved-1": 19.0}, steps={"improved-1": 100})
    result, stages, _ = run(request_for(mono_tgt="mono.xx"), monkeypatch, simulation)
    assert result.best == "plain"
    extended = simulation.commands["plain, extended"]
    assert extended[:-1] == simulation.commands["plain"][:-1]
    assert extended[-1] == str(400 - 81 - 100)
    assert "The plain model is the best of 2 models on 30 validation pairs." in summary(result, stages)


def test_a_second_round_follows_if_the_first_one_pays(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(steps={"improved-1": 100})
    result, _, _ = run(request_for(mono_tgt="mono.xx"), monkeypatch, simulation)
    assert "--train" in simulation.commands["reverse-2"]
    assert len(values_of(list(simulation.commands["reverse-2"]), "--train")) == 2
    assert result.best == "improved-1"
    assert "improved-2" in result.candidates
    assert "improved-3" not in result.candidates


def test_more_pairs_do_not_help_if_there_is_no_time_for_those_that_exist(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Simulation.train

    def large_epochs(self: Simulation, stage: str, words: list[str]) -> str:
        train(self, stage, words)
        metrics = Path(value_of(words, "--out")) / "metrics.jsonl"
        metrics.write_text(metrics.read_text().replace('"batches": 1', '"batches": 100'))
        return ""

    monkeypatch.setattr(Simulation, "train", large_epochs)
    result, _, simulation = run(request_for(mono_tgt="mono.xx"), monkeypatch)
    assert list(result.candidates) == ["plain"]
    assert simulation.commands["plain, extended"][-1] == "400"


def steps_of(simulation: Simulation) -> dict[str, int]:
    """Return the steps of each training, and of each stage that extended one."""
    return {name: int(words[-1]) for name, words in simulation.commands.items() if words[0] == "train"}


def test_a_larger_budget_is_used_for_another_round(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(bleu=BLEU | {"improved-2": 27.0})
    run(request_for(mono_tgt="mono.xx"), monkeypatch, simulation)
    before = steps_of(simulation)
    result, _, _ = run(request_for(mono_tgt="mono.xx", **{"train.max_steps": 800}), monkeypatch, simulation)
    after = steps_of(simulation)
    assert {name: after[name] for name in before} == before
    assert [*after][len(before) :] == ["reverse-2", "improved-2"]
    assert sum(after.values()) == 800
    assert result.best == "improved-2"
    assert "comparison, part 2" in simulation.commands
    assert "ensemble, part 2, validation" in simulation.commands
    assert [path.name for path in (files / "out/checkpoints").iterdir()] == [f"step-{after['improved-2']:08}"]
    assert (files / "out/model.safetensors").read_text() == (files / "out/improved-2/model.safetensors").read_text()


def test_a_slightly_larger_budget_extends_the_best_model(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, simulation = run(request_for(), monkeypatch)
    before = steps_of(simulation)
    run(request_for(**{"train.max_steps": 420}), monkeypatch, simulation)
    extended = simulation.commands["improved-1, extended, part 2"]
    assert extended[:-1] == simulation.commands["improved-1"][:-1]
    assert int(extended[-1]) == before["improved-1"] + 20


def test_a_model_that_further_training_makes_worse_is_kept(
    files: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    extended = "improved-1, extended"
    simulation = Simulation(BLEU | {f"{extended}, part 2": 24.9, f"{extended}, part 3": 25.0})
    run(request_for(), monkeypatch, simulation)
    first = (files / "out/model.safetensors").read_text()
    steps = steps_of(simulation)["improved-1"]

    result, _, _ = run(request_for(**{"train.max_steps": 420}), monkeypatch, simulation)
    best = result.candidates[result.best]
    assert (result.best, best.scores.bleu, best.training.steps) == ("improved-1", 25.0, steps)
    assert best.training.folder == f"out/improved-1-{steps}-steps"
    assert (files / "out/model.safetensors").read_text() == first
    assert (files / "out/improved-1/model.safetensors").read_text() != first
    assert "improved-1: 20 more training steps did not help: BLEU 24.9 instead of 25.0 on the valid" in caplog.text
    assert best.training.folder in simulation.commands["comparison, part 2"]
    assert best.training.folder in simulation.commands["ensemble, part 2, validation"]

    result, _, _ = run(request_for(**{"train.max_steps": 430}), monkeypatch, simulation)
    assert int(simulation.commands[f"{extended}, part 3"][-1]) == steps + 30
    best = result.candidates[result.best]
    assert (best.training.folder, best.scores.bleu, best.training.steps) == ("out/improved-1", 25.0, steps + 30)
    assert (files / "out/model.safetensors").read_text() == (files / "out/improved-1/model.safetensors").read_text()


def test_a_model_that_stopped_improving_is_trained_further_only_beyond_its_earlier_limit(
    files: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    simulation = Simulation(steps={"improved-1": 150})
    result, _, _ = run(request_for(), monkeypatch, simulation)
    limit = steps_of(simulation)["improved-1"]
    rest = limit - 150
    assert "improved-1, extended" not in simulation.commands
    assert f"improved-1 ended because nothing improved, so the rest of the budget is not used: {rest} " in caplog.text
    assert result.candidates["improved-1"].training.steps == 150
    run(request_for(**{"train.max_steps": 410}), monkeypatch, simulation)
    assert int(simulation.commands["improved-1, extended, part 2"][-1]) == limit + 10


def test_a_larger_budget_that_was_used_already_is_reported(
    files: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    simulation = Simulation()
    monkeypatch.setattr(module.Recipe, "elapsed", lambda recipe: simulation.seconds)
    request = request_for(mono_tgt="mono.xx", **{"train.max_steps": None, "train.time": "1h"})
    run(request, monkeypatch, simulation)
    simulation.seconds = 3700
    simulation.commands.clear()
    request = request_for(mono_tgt="mono.xx", **{"train.max_steps": None, "train.time": "61m"})
    run(request, monkeypatch, simulation)
    assert not steps_of(simulation)
    assert "nothing is trained" in caplog.text


def test_the_result_is_described_as_that_of_the_recipe(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "runs").mkdir()
    (files / "runs/latest").symlink_to("earlier")
    simulation = Simulation()
    links = []

    def noted(stage: Stage, while_waiting: Callable[[], None]) -> str:
        links.append((files / "runs/latest").readlink())
        return simulation(stage, while_waiting)

    monkeypatch.setattr(module, "run_command", noted)
    command = ["improve", "--train", "pairs.tsv", "--src", "en", "--tgt", "xx", "--mono-tgt", "mono.xx"]
    app([*command, "--max-steps", "400"], standalone_mode=False)
    assert set(links) == {Path("earlier")}
    assert (files / "runs/latest").readlink() == Path("pairs-en-xx-improved")
    card = (files / "runs/latest/README.md").read_text()
    assert "\n# pairs-en-xx-improved: " in card
    assert "`mtcli improve` trained these models within 400 training steps, and chose improved-1" in card
    assert "| improved-1 |" in card
    assert "\nmtcli augment --model runs/pairs-en-xx-improved/reverse-1 " in card


def test_the_folder_of_another_recipe_is_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(request_for(), monkeypatch)
    with (
        pytest.raises(UsageError, match="out: was begun by mtcli improve, not by mtcli distill"),
        module.open_recipe(Path("out"), "distill", {}),
    ):
        pass


def outcome(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != STATE}


def test_a_second_command_in_the_same_folder_is_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation()
    refused = []

    def with_another(stage: Stage, while_waiting: Callable[[], None]) -> str:
        before = {**outcome(files / "out"), STATE: (files / "out" / STATE).read_bytes()}
        for overwrite in (False, True):
            with pytest.raises(LockedError, match=r"out: process \d+ works in this folder; wait for it, or") as error:
                improve(request_for(mono_tgt="mono.xx"), overwrite=overwrite)
            refused.append(error.value.exit_code)
        assert {**outcome(files / "out"), STATE: (files / "out" / STATE).read_bytes()} == before
        return simulation(stage, while_waiting)

    monkeypatch.setattr(module, "run_command", with_another)
    improve(request_for(mono_tgt="mono.xx"))
    assert set(refused) == {7}


def test_a_text_that_changes_while_the_command_runs_is_reported(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = Simulation()
    run(request_for("expected", mono_tgt="mono.xx"), monkeypatch, expected)
    text = (files / "mono.xx").read_text()
    simulation = Simulation()

    def changed(stage: Stage, while_waiting: Callable[[], None]) -> str:
        (files / "mono.xx").write_text(text.upper())
        return simulation(stage, while_waiting)

    monkeypatch.setattr(module, "run_command", changed)
    with pytest.raises(DataError, match=r"mono\.xx: was changed while this command runs"):
        improve(request_for(mono_tgt="mono.xx"))
    (files / "mono.xx").write_text(text)
    run(request_for(mono_tgt="mono.xx"), monkeypatch, simulation)
    assert set(simulation.commands) == set(expected.commands)
    for pairs in ("synthetic-1/back-1.txt", "synthetic-1/pairs.jsonl", "pairs/text.xx.txt"):
        assert (files / "out" / pairs).read_bytes().count(b"\n") == (files / "expected" / pairs).read_bytes().count(
            b"\n"
        )


def test_a_budget_that_the_stages_use_causes_no_warning(
    files: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for out, options in (("steps", {}), ("time", {"train.max_steps": None, "train.time": 1000.0})):
        caplog.clear()
        run(request_for(out, mono_tgt="mono.xx", **options), monkeypatch)
        assert " left" not in caplog.text


def test_the_link_moves_once_per_new_model(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = files / "runs/latest"
    simulation = Simulation()
    run(request_for(mono_tgt="mono.xx"), monkeypatch, simulation)
    assert link.resolve() == files / "out"
    (files / "other").mkdir()
    link.unlink()
    link.symlink_to(files / "other")
    run(request_for(mono_tgt="mono.xx"), monkeypatch, simulation)
    assert link.resolve() == files / "other"
    worse = Simulation({**BLEU, "improved-1, part 2": 1.0, "improved-1, extended": 1.0})
    run(request_for(mono_tgt="mono.xx", **{"train.max_steps": 410}), monkeypatch, worse)
    assert link.resolve() == files / "other"
    better = Simulation({**BLEU, "improved-2": 30.0})
    run(request_for(mono_tgt="mono.xx", **{"train.max_steps": 1600}), monkeypatch, better)
    assert link.resolve() == files / "out"


def test_a_result_that_was_trained_further_is_not_replaced(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(request_for(mono_tgt="mono.xx"), monkeypatch)
    model = files / "out/model.safetensors"
    model.write_text("trained further")
    for steps in (800, 800):
        with pytest.raises(UsageError, match=r"model\.safetensors: was changed after this command wrote it"):
            run(request_for(mono_tgt="mono.xx", **{"train.max_steps": steps}), monkeypatch)
    assert model.read_text() == "trained further"
    model.unlink()
    run(request_for(mono_tgt="mono.xx", **{"train.max_steps": 800}), monkeypatch)
    assert model.exists()


def test_an_interrupted_command_gives_the_same_bytes(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"mono_tgt": "mono.xx", "mono_src": "mono.en"}
    requests = [request_for(**texts, **{"train.max_steps": steps}) for steps in (400, 700, 720)]
    for request in requests:
        run(request, monkeypatch)
    (files / "out").rename(files / "whole")
    save = module.Recipe._save
    rng = random.Random(3)
    simulation = Simulation()
    monkeypatch.setattr(module, "run_command", simulation)
    interruptions = 0

    def unsafe_save(recipe: module.Recipe) -> None:
        if rng.random() < 0.1:
            raise KeyboardInterrupt
        save(recipe)
        if rng.random() < 0.1:
            raise KeyboardInterrupt

    monkeypatch.setattr(module.Recipe, "_save", unsafe_save)
    while requests:
        try:
            improve(requests[0])
            requests.pop(0)
        except KeyboardInterrupt:
            interruptions += 1
    assert interruptions > 6
    assert [*(files / "out").glob("improved-1-*-steps")], "the best model was not extended"
    assert outcome(files / "out") == outcome(files / "whole")


def test_other_data_or_options_are_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, simulation = run(request_for(mono_tgt="mono.xx"), monkeypatch)
    simulation.commands.clear()
    run(request_for(mono_tgt="mono.xx"), monkeypatch, simulation)
    assert not simulation.commands
    smaller = {"train.max_steps": 300}
    with pytest.raises(UsageError, match=r"--max-steps \(400 → 300\), --preset \(not set → tiny\); .*\(a larger --max"):
        improve(request_for(mono_tgt="mono.xx", preset="tiny", **smaller))
    (files / "mono.xx").write_text("der eert.\n")
    with pytest.raises(UsageError, match=r"SHA-256 of mono\.xx"):
        improve(request_for(mono_tgt="mono.xx"))
    improve(request_for(mono_tgt="mono.xx"), overwrite=True)
    assert simulation.commands["synthetic-1/back-1"]


def test_a_folder_that_cannot_be_created_is_reported(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(path: Path, *args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    request = request_for(mono_tgt="mono.xx")
    monkeypatch.setattr(Path, "mkdir", full_disk)
    with pytest.raises(StorageError, match="out: No space left"):
        improve(request)


def test_a_disk_that_is_full_again_and_again_changes_no_result(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_for("whole", mono_tgt="mono.xx", mono_src="mono.en")
    run(request, monkeypatch)
    expected = outcome(files / "whole")
    shutil.rmtree(files / "whole")
    num_calls = 0
    sync = os.fsync

    def full_at_times(file: int) -> None:
        nonlocal num_calls
        num_calls += 1
        if num_calls % 23 == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(file)

    errors = []
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_at_times)
        while True:
            try:
                improve(request)
                break
            except StorageError as error:
                errors.append(str(error))
    assert len(errors) > 3
    assert all("No space left on device; free some space" in error for error in errors)
    improve(request)  # writes the report and the model card if they could not be written
    assert outcome(files / "whole") == expected


@pytest.mark.parametrize("other", ["notes.txt", "student"])
def test_nothing_is_overwritten_beside_files_of_others(
    files: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    run(request_for(mono_tgt="mono.xx"), monkeypatch)
    (files / "out" / other).write_text("of another command")
    before = outcome(files / "out")
    with pytest.raises(UsageError, match=f"holds {other}, which is not of this command"):
        improve(request_for(mono_tgt="mono.xx"), overwrite=True)
    assert outcome(files / "out") == before


def test_files_that_the_command_reads_are_not_deleted(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(request_for(mono_tgt="mono.xx"), monkeypatch)
    before = outcome(files / "out")
    for options in (
        {"data.train": ["out/pairs/train-1.jsonl"]},
        {"mono_src": "out/pairs/train.en.txt"},
        {"data.valid": "out/pairs/valid.jsonl"},
    ):
        with pytest.raises(UsageError, match=r"^out/pairs/\S+: is read, and --overwrite would delete it"):
            improve(request_for(**options), overwrite=True)
        assert outcome(files / "out") == before


def test_models_stay_if_the_pairs_were_deleted(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(request_for(mono_tgt="mono.xx"), monkeypatch)
    for name in ("pairs", "plain"):
        shutil.rmtree(files / "out" / name)
    before = outcome(files / "out")
    with pytest.raises(DataError, match=r"out/pairs/valid\.jsonl: no such file"):
        run(request_for(mono_tgt="mono.xx"), monkeypatch)
    assert outcome(files / "out") == before


def test_one_line_of_text_makes_one_pair(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "one.xx").write_text("der nus revir.\n")
    result, _, _ = run(request_for(mono_tgt="one.xx"), monkeypatch)
    assert result.candidates["improved-1"].pairs == 265


def test_without_synthetic_pairs_the_plain_model_is_the_result(
    files: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Simulation, "augment", lambda self, stage, words: Path(value_of(words, "-o")).touch() or "")
    result, _, simulation = run(request_for(mono_tgt="mono.xx"), monkeypatch)
    assert list(result.candidates) == ["plain"]
    assert "no synthetic pairs are left" in caplog.text
    assert simulation.commands["plain, extended"][-1] == str(400 - 81)


@pytest.mark.parametrize(
    ("content", "message"),
    [("\n \n", "has no usable line"), ("eulb.\0\n", "NUL")],
)
def test_useless_text_is_refused_before_anything_is_trained(
    files: Path, monkeypatch: pytest.MonkeyPatch, content: str, message: str
) -> None:
    (files / "bad.xx").write_text(content)
    with pytest.raises(DataError, match=message):
        run(request_for(mono_tgt="bad.xx"), monkeypatch)
    assert not (files / "out").exists()


def test_too_few_pairs_are_refused(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tsv(files / "pairs.tsv", toy_pairs(10))
    with pytest.raises(DataError, match="10 pairs are too few to hold out validation pairs; name some with --valid"):
        run(request_for(), monkeypatch)
    few = request_for(**{"data.valid": "pairs.tsv"})
    for refuse in (partial(run, few, monkeypatch), partial(plan, few)):
        with pytest.raises(DataError, match=r"pairs\.tsv: no test pairs; name some with --test"):
            refuse()


def test_a_setting_with_an_option_of_its_own_is_refused(files: Path) -> None:
    with pytest.raises(UsageError, match=r"--set train\.time=5m: give train\.time by the option"):
        resolve_request(
            {"data.train": ["pairs.tsv"]}, ["train.time=5m"], out=None, mono_tgt=None, mono_src=None, device=""
        )


def test_text_in_another_language_is_reported() -> None:
    german = ["ein mann sitzt auf einem stuhl", "eine frau liest ein buch"] * 3
    english = ["a man sits on a chair", "a woman reads a book"] * 3
    assert warning_about(german, german, english, "de") is None
    assert "swapped?" in (warning_about(english, german, english, "de") or "")
    assert "is it de?" in (warning_about(["un homme lit le journal"], german, english, "de") or "")
    spanish = ["un hombre lee un libro y pasea a su perro por la calle", "la mujer a ciegas canta"]
    assert "is it de?" in (warning_about(spanish, german, english, "de") or "")
    assert "Cyrillic" in (warning_about(["мужчина читает газету"], german, english, "de") or "")


def test_repeated_and_real_pairs_are_dropped(tmp_path: Path) -> None:
    first = tmp_path / "first.jsonl"
    real = tmp_path / "real.jsonl"
    write_pairs(first, [("a", "b"), (f"{BACK_TRANSLATION_TAG}a", "b"), ("c", "d"), ("e", "Held")], XX)
    write_pairs(real, [("c", "d")], XX)
    written, dropped = merge([first], [real], tmp_path / "out.jsonl", "en", "xx", frozenset({"held"}))
    assert written == 1
    assert dropped == {"repeated or real pair": 2, "held-out sentence": 1}
    assert pairs_in(tmp_path / "out.jsonl") == [("a", "b")]


def test_merged_pairs_are_still_known_to_be_synthetic(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(request_for(mono_tgt="mono.xx"), monkeypatch)
    assert is_synthetic("out/synthetic-1/pairs.jsonl", "en", "xx")
    assert not is_synthetic("out/pairs/train-1.jsonl", "en", "xx")


def test_items_are_chosen_at_even_distances() -> None:
    chosen = [index for index in range(100) if is_chosen(index, 7, 100)]
    assert len(chosen) == 7
    assert {b - a for a, b in pairwise(chosen)} == {14, 15}


@pytest.mark.parametrize(("others", "best", "reserved"), [(0, PLAIN, 1), (1, PLAIN, 3), (1, "improved-1", 5)])
def test_only_the_scoring_that_follows_is_reserved_for_a_longer_training(others: int, best: str, reserved: int) -> None:
    method = Method.__new__(Method)
    method.budget = SharedBudget(480.0, "seconds")
    method.stages = Mock(remaining=lambda: 300.0)
    training = Training("plain", 9, 120.0, 9.0, "budget used", 120.0)
    method.result = ImproveResult({PLAIN: CandidateModel(training, 9, Scores(0.0, 1.0, 59.0))}, best)
    for _ in range(others):
        method.result.candidates["improved-1"] = CandidateModel(training, 9, Scores(1.0, 1.0, 20.0))
    assert method._spendable(extending=True) == 300.0 - reserved * (20.0 if others else 59.0)


def test_shares_of_the_budget() -> None:
    assert SharedBudget(90.9, "seconds").options(90.9) == ["--time", "90s"]
    assert [planned_rounds(75, 25), planned_rounds(95, 5), planned_rounds(90, 9)] == [1, 3, 2]
    assert [number_of_teachers(100, used, 2) for used in (25, 12, 8, 1)] == [1, 2, 3, 3]
    assert [weight_of_pairs(100, synthetic) for synthetic in (50, 500)] == [1.0, 2.5]
    assert useful_lines(3000) == 1000


@pytest.mark.parametrize("texts", [{"mono_tgt": "mono.xx"}, {"mono_tgt": "mono.xx", "mono_src": "mono.en"}, {}])
def test_the_plan_shows_the_stages_that_run_with_their_shares_and_writes_nothing(
    files: Path, texts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for(**texts)
    shown = plan(request)
    assert not (files / "out").exists()
    lines = shown.splitlines()
    stages = [line.partition(":")[0] for line in lines if re.match(r"[a-z]\S+( \(.*\)|, \w+)?: ", line)]
    _, _, simulation = run(request, monkeypatch)
    steps = {name: int(words[-1]) for name, words in simulation.commands.items() if words[0] == "train"}
    expected = []
    for name in simulation.commands:
        if name in steps:
            expected.append(f"{name} ({steps[name] / 4:.0f}% of the budget)")
        elif name.startswith("synthetic-"):
            expected.append(name.removesuffix("-1"))  # with a time, there are two parts
        elif name != "improved-1, validation":  # all models are scored as the plain one
            expected.append(name)
    assert stages == expected
    commands = {shlex.join(["mtcli", *words]) for words in simulation.commands.values()}
    known = [line.strip() for line in lines if line.startswith("  ")]
    assert len(known) == 4
    assert set(known) <= commands


def test_the_plan_divides_a_time_among_trainings_and_translations(files: Path) -> None:
    times = {"train.max_steps": None, "train.time": "1h"}
    for texts in ({"mono_tgt": "mono.xx"}, {"mono_tgt": "mono.xx", "mono_src": "mono.en"}, {"mono_src": "mono.en"}, {}):
        shown = plan(request_for(**texts, **times))
        assert sum(map(int, re.findall(r"\((\d+)% of the budget\)", shown))) in range(98, 103)  # each is rounded
        assert shown.startswith("The stages within 1:00:00.")


def test_the_command_prints_its_plan_and_refuses_wrong_options(files: Path) -> None:
    command = ["improve", "--train", "pairs.tsv", "--src", "en", "--tgt", "xx", "--mono-tgt", "mono.xx"]
    done = harness.run(*command, "--dry-run", cwd=files)
    assert done.code == 0, done.err
    assert "plain (25% of the budget): trains" in done.out
    assert "\n  mtcli train --train runs/pairs-en-xx-improved/pairs/train-1.jsonl" in done.out
    assert "--time 2700s\n" in done.out
    other = [*command[:-1], "mono.en"]
    assert harness.run(*other, "--dry-run", cwd=files).err.count("words are frequent") == 1
    harness.refused(harness.run(*command, "--time", "1h", "--max-steps", "9", cwd=files), 2, "--max-steps", "--time")
    harness.refused(harness.run(*command, "--mono-src", "none", cwd=files), 3, "none", "No such file")
    assert not (files / "runs").exists()


SMALL = [
    "model.d_model=16", "model.d_ff=32", "model.num_heads=2", "model.num_encoder_layers=1",
    "model.num_decoder_layers=1", "train.batch_tokens=512", "train.lr=0.02", "train.warmup_steps=10",
    "train.valid_every=20", "train.save_every=10", "train.precision=fp32", "train.engine=false",
    "tokenizer.vocab_size=320",
]  # fmt: skip

MINUTES = 6 * HANGS
"""Limit of a command that starts ten processes in turn, on a busy machine."""


XX = Direction("en", "xx")
YY = Direction("en", "yy")


@pytest.fixture
def several(files: Path) -> Path:
    """Write pairs and text of a second target language too, in which each word is doubled."""
    pairs = [(src, " ".join(f"{word}{word}" for word in src.split())) for src, _ in toy_pairs(260, seed=4)]
    write_tsv(files / "more.tsv", pairs[:160])
    (files / "mono.yy").write_text("".join(f"{tgt}\n" for _, tgt in pairs[130:]))
    return files


def several_request(out: str = "out", mono: Sequence[str] = ("xx=mono.xx", "yy=mono.yy"), **options: Any) -> Any:
    values = {"data.train": ["pairs.tsv", "more.tsv@2"], "data.src": "en", "data.tgt": ["xx", "yy"]}
    values |= {"train.max_steps": 400, **options}
    return resolve_request(values, (), out=Path(out), mono_tgt=None, mono_src=None, device="auto", mono=mono)


def corpora_of(words: Sequence[str]) -> list[tuple[str, Direction]]:
    """Return the training pairs of a stage, each with its direction."""
    directions = map(Direction, values_of([*words], "--src"), values_of([*words], "--tgt"))
    return list(zip(values_of([*words], "--train"), directions, strict=True))


def rows_in(path: Path, direction: Direction) -> list[tuple[str, str]]:
    rows = [json.loads(line)["translation"] for line in path.read_text().splitlines()]
    assert all(set(row) == {*direction} for row in rows)
    return [(row[direction.src], row[direction.tgt]) for row in rows]


def test_one_reverse_model_translates_the_text_of_all_directions_back(
    several: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, stages, simulation = run(several_request(), monkeypatch)
    assert list(simulation.commands) == [
        "tokenizer",
        "plain",
        "plain, validation",
        "reverse-1",
        "synthetic-1/back.en-xx-1",
        "synthetic-1/back.en-yy-1",
        "improved-1",
        "improved-1, validation",
        "comparison",
        "ensemble, validation",
    ]
    assert corpora_of(simulation.commands["plain"]) == [
        ("out/pairs/train-1.jsonl", XX),
        ("out/pairs/train-2.jsonl@2", YY),
    ]
    assert corpora_of(simulation.commands["reverse-1"]) == [
        ("out/pairs/train-1.jsonl", XX.reversed()),
        ("out/pairs/train-2.jsonl@2", YY.reversed()),
    ]
    assert values_of([*simulation.commands["tokenizer"]], "--target-language") == ["en", "xx", "yy"]
    *real, last, more = corpora_of(simulation.commands["improved-1"])
    assert [direction for _, direction in real] == [XX, YY]
    assert [last, more] == [("out/synthetic-1/pairs.en-xx.jsonl", XX), ("out/synthetic-1/pairs.en-yy.jsonl", YY)]
    for direction in (XX, YY):
        name = f"{direction.src}-{direction.tgt}"
        words = [*simulation.commands[f"synthetic-1/back.{name}-1"]]
        assert (value_of(words, "--from"), value_of(words, "--to")) == direction.reversed()
        assert value_of(words, "--model") == "out/reverse-1"
        text = (several / f"mono.{direction.tgt}").read_text().splitlines()
        made = rows_in(several / f"out/synthetic-1/pairs.{name}.jsonl", direction)
        assert {tgt for _, tgt in made} <= {*text}
        assert result.candidates["improved-1"].synthetic[direction] == len(made) > 50
    numbers = result.candidates["improved-1"].synthetic
    assert f"Synthetic pairs of improved-1: en → xx {numbers[XX]}, en → yy {numbers[YY]}." in summary(result, stages)
    compared = (
        "improved-1 against plain: BLEU +1.0 (mean of 2 directions). en → xx, on 6 test pairs: BLEU +1.0. en → yy"
    )
    assert compared in summary(result, stages)
    assert summary(result, stages).count("too few for") == 1


def test_both_directions_need_no_reverse_model(several: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mono = ("xx=mono.xx", "en=mono.en")
    _, _, simulation = run(several_request(mono=mono, **{"data.both_directions": True}), monkeypatch)
    assert "reverse-1" not in simulation.commands
    back = [name for name in simulation.commands if name.startswith("synthetic-1/")]
    assert back == [f"synthetic-1/back.{name}-1" for name in ("en-xx", "xx-en", "yy-en")]
    for name in back:
        assert value_of([*simulation.commands[name]], "--model") == "out/plain"
    trained = corpora_of(simulation.commands["plain"])
    assert [direction for _, direction in trained] == [XX, XX.reversed(), YY, YY.reversed()]
    valid = dict(zip(trained, values_of([*simulation.commands["plain"]], "--valid"), strict=True))
    assert {file for (_, direction), file in valid.items() if {*direction} == {*XX}} == {"out/pairs/valid.en-xx.jsonl"}
    assert values_of([*simulation.commands["plain"]], "--both-directions") == []
    held_out = rows_in(several / "out/pairs/valid.en-xx.jsonl", XX)
    for number, direction in ((1, XX), (2, XX.reversed())):
        pairs = rows_in(several / f"out/pairs/train-{number}.jsonl", direction)
        sources = {pair[0] if direction == XX else pair[1] for pair in held_out}
        assert not sources & {src for src, _ in pairs}


def test_text_in_a_common_target_language_is_translated_into_each_source_language(
    several: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    languages = {"data.src": ["xx", "yy"], "data.tgt": "en", "data.swap": True}
    _, _, simulation = run(several_request(mono=["en=mono.en"], **languages), monkeypatch)
    for direction in (XX, YY):
        name = f"{direction.tgt}-{direction.src}"
        words = [*simulation.commands[f"synthetic-1/back.{name}-1"]]
        assert (value_of(words, "--model"), value_of(words, "--to")) == ("out/reverse-1", direction.tgt)
        made = rows_in(several / f"out/synthetic-1/pairs.{name}.jsonl", direction.reversed())
        assert {tgt for _, tgt in made} <= {*(several / "mono.en").read_text().splitlines()}
        assert made


def test_real_pairs_are_weighted_by_the_synthetic_pairs_of_their_direction(
    several: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"data.train": ["pairs.tsv@0.005", "more.tsv@2"]}
    result, _, simulation = run(several_request(mono=["xx=mono.xx"], **few), monkeypatch)
    (xx, _), (yy, _), (synthetic, direction) = corpora_of(simulation.commands["improved-1"])
    assert direction == XX
    assert result.candidates["improved-1"].synthetic == {XX: len(rows_in(several / synthetic, XX))}
    num_real = len(rows_in(several / "out/pairs/train-1.jsonl", XX))
    num_synthetic = result.candidates["improved-1"].synthetic[XX]
    assert parse_source(xx).weight * num_real == pytest.approx(num_synthetic / 2, rel=0.01)
    assert parse_source(yy).weight == 2


@pytest.mark.parametrize("both", [False, True])
def test_diversification_of_several_directions_keeps_each_pair_in_its_own(
    both: bool, several: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = several_request(mono=(), **{"data.both_directions": both or None})
    _, _, simulation = run(request, monkeypatch)
    assert ("reverse-1" in simulation.commands) is not both
    for spec, direction in corpora_of(simulation.commands["improved-1"]):
        if not spec.startswith("out/synthetic-1/pairs."):
            continue
        real = [
            row
            for number, own in enumerate(request.config.data.directed, 1)
            if own.direction == direction
            for row in rows_in(several / f"out/pairs/train-{number}.jsonl", direction)
        ]
        made = rows_in(several / spec, direction)
        sources = {src for src, _ in real}
        targets = {tgt for _, tgt in real}
        assert all((src in sources) != (tgt in targets) for src, tgt in made)
        assert {src in sources for src, _ in made} == {True, False}, "translations by only one order"


@pytest.mark.parametrize(
    ("mono", "both"),
    [(("xx=mono.xx",), False), (("xx=mono.xx", "yy=mono.yy", "en=mono.en"), True), ((), False), ((), True)],
)
def test_the_plan_of_several_directions_shows_the_stages_that_run(
    mono: Sequence[str], both: bool, several: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = several_request(mono=mono, **{"data.both_directions": both or None})
    shown = plan(request)
    assert not (several / "out").exists()
    _, _, simulation = run(request, monkeypatch)
    expected = [
        name.removesuffix("-1") if name.startswith("synthetic-") else name
        for name in simulation.commands
        if not re.fullmatch(r"(improved|forward)-\d, validation", name)  # all models are scored as the plain one
    ]
    lines = [line for line in shown.splitlines() if re.match(r"[a-z]\S+( \(.*\)|, \w+)?: ", line)]
    assert [re.sub(r" \(\d+% of the budget\)$", "", line.partition(": ")[0]) for line in lines] == expected
    commands = {shlex.join(["mtcli", *words]) for words in simulation.commands.values()}
    assert {line.strip() for line in shown.splitlines() if line.startswith("  ")} <= commands


def test_text_in_a_language_that_is_no_target_is_refused(several: Path) -> None:
    for mono, words in (
        (["en=mono.en"], "no direction has the target language en.*xx, yy.*--both-directions"),
        (["zz=mono.xx"], "--mono zz=mono.xx: no pairs of zz; choose from xx, yy"),
        (["mono.xx"], "write LANGUAGE=FILE, such as xx=FILE"),
        (["xx="], "names no file"),
        (["xx=mono.xx", "xx=mono.yy"], "a second text in xx"),
    ):
        with pytest.raises(UsageError, match=words):
            several_request(mono=mono)
    values = {"data.train": ["pairs.tsv", "more.tsv"], "data.src": "en", "data.tgt": ["xx", "yy"]}
    with pytest.raises(UsageError, match=r"--mono-tgt mono.xx: for one pair of languages.*--mono LANGUAGE=FILE"):
        resolve_request(values, (), out=None, mono_tgt=Path("mono.xx"), mono_src=None, device="auto")
    pairs = ("--train", "pairs.tsv", "--tgt", "xx", "--train", "more.tsv", "--tgt", "yy", "--src", "en")
    missing = harness.run("improve", *pairs, "--mono", "xx=none.xx", cwd=several)
    harness.refused(missing, 3, "none.xx", "No such file")
    (several / "empty.xx").write_text("\n")
    with pytest.raises(DataError, match=r"--mono xx empty.xx: has no usable line"):
        improve(several_request(mono=["xx=empty.xx"]))


def test_text_of_one_pair_can_be_given_by_its_language(files: Path) -> None:
    values = {"data.train": ["pairs.tsv"], "data.src": "en", "data.tgt": "xx"}
    request = resolve_request(
        values, (), out=Path("out"), mono_tgt=None, mono_src=None, device="auto", mono=["xx=mono.xx"]
    )
    named = request_for(mono_tgt="mono.xx", **{"train.max_steps": None})
    assert request.identity() == named.identity()


def test_an_interrupted_command_of_several_directions_gives_the_same_bytes(
    several: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = several_request()
    run(request, monkeypatch)
    (several / "out").rename(several / "whole")
    rng = random.Random(8)
    save = module.Recipe._save
    interruptions = 0

    def unsafe_save(recipe: module.Recipe) -> None:
        if rng.random() < 0.2:
            raise KeyboardInterrupt
        save(recipe)

    monkeypatch.setattr(module.Recipe, "_save", unsafe_save)
    while True:
        try:
            improve(request)
            break
        except KeyboardInterrupt:
            interruptions += 1
    assert interruptions > 3
    assert outcome(several / "out") == outcome(several / "whole")


def test_the_stages_of_several_directions_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = toy_pairs(110)
    write_tsv(tmp_path / "pairs.tsv", pairs[:60])
    write_tsv(tmp_path / "more.tsv", [(src, src.upper()) for src, _ in pairs[30:80]])
    (tmp_path / "mono.xx").write_text("".join(f"{tgt}\n" for _, tgt in pairs[80:]))
    (tmp_path / "mono.yy").write_text("".join(f"{src.upper()}\n" for src, _ in pairs[80:]))

    def run_in_fork(stage: Stage, while_waiting: Callable[[], None]) -> str:
        done = harness.run(*stage.arguments, cwd=tmp_path, env={"OMP_NUM_THREADS": "1"})
        assert done.code == 0, done.err
        return done.out if stage.is_captured else ""

    monkeypatch.setattr(module, "run_command", run_in_fork)
    options = {"data.train": ["pairs.tsv", "more.tsv"], "data.src": "en", "data.tgt": ["xx", "yy"]}
    sets = (*SMALL, "train.average=1", "data.variants=off", "decode.beam_size=1", "decode.max_extra=2")
    request = resolve_request(
        {**options, "train.max_steps": 40}, sets, out=Path("out"), mono_tgt=None, mono_src=None, device="cpu",
        mono=["xx=mono.xx", "yy=mono.yy"],
    )  # fmt: skip
    result, stages = improve(request)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "from en to xx, from en to yy" in card
    assert "reverse-1" in stages.trainings
    for direction in (XX, YY):
        folder = tmp_path / "out" / "synthetic-1"
        made = rows_in(folder / f"back.{direction.src}-{direction.tgt}-1.jsonl", direction)
        assert {tgt for _, tgt in made} <= {*(tmp_path / f"mono.{direction.tgt}").read_text().splitlines()}
        assert made
    info = json.loads((tmp_path / "out/improved-1/data/info.json").read_text())
    assert [source["synthetic"] for source in info["sources"]] == [False, False, True, True]
    assert [number for number, _ in info["weights"]][2:] == [*result.candidates["improved-1"].synthetic.values()]


def test_the_trainings_of_several_directions_start_from_a_parent(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The later models have the tokenizer of the plain one; a reverse model has one of its own."""
    monkeypatch.chdir(tmp_path)
    write_tsv(tmp_path / "pairs.tsv", toy_pairs(60))
    write_tsv(tmp_path / "more.tsv", [(src, src.upper()) for src, _ in toy_pairs(60, seed=2)])
    options = {"data.train": ["pairs.tsv", "more.tsv"], "data.src": "en", "data.tgt": ["gn", "nah"]}
    sets = (*SMALL, "train.average=1", "data.variants=off")
    request = resolve_request(
        {**options, "train.max_steps": 40}, sets, out=Path("out"), mono_tgt=None, mono_src=None, device="cpu",
        init=parent,
    )  # fmt: skip
    _, _, simulation = run(request, monkeypatch)
    tokenizers = []
    for name, choice in (("plain", "extend"), ("improved-1", "file"), ("reverse-1", "extend")):
        shutil.rmtree(tmp_path / "out" / name)  # what the simulation wrote
        done = harness.run(*simulation.commands[name][:-1], "1", cwd=tmp_path)
        assert done.code == 0, done.err
        assert json.loads((tmp_path / "out" / name / "data/info.json").read_text())["transfer"]["choice"] == choice
        tokenizers.append((tmp_path / "out" / name / "tokenizer.json").read_bytes())
    assert tokenizers[0] == tokenizers[1] != tokenizers[2]


@pytest.mark.slow
@pytest.mark.parametrize("texts", [("--mono-tgt", "mono.xx", "--mono-src", "mono.en"), ()], ids=["texts", "no texts"])
def test_ten_kills_at_random_give_the_same_bytes(files: Path, texts: tuple[str, ...]) -> None:
    command = ["improve", "--train", "pairs.tsv", "--src", "en", "--tgt", "xx", *texts, "--max-steps", "100"]
    command += [word for setting in SMALL for word in ("--set", setting)]
    where = {"cwd": files, "env": {"OMP_NUM_THREADS": "1"}}
    started = time.monotonic()
    done = harness.run(*command, seconds=MINUTES, **where)
    assert done.code == 0, done.err
    seconds = time.monotonic() - started
    folder = files / "runs" / "pairs-en-xx-improved"
    folder.rename(files / "whole")
    rng = random.Random(5)
    kills = 0
    while kills < 10:
        child = harness.start(*command, **where)
        child.process.join(rng.uniform(0, seconds / 4))
        kills += child.process.is_alive()
        child.send(signal.SIGKILL)
        result = child.wait()
        assert result.code in (0, -signal.SIGKILL), result.err
    done = harness.run(*command, seconds=MINUTES, **where)
    assert done.code == 0, done.err
    ended = harness.outcome(folder, but=STATE)
    whole = harness.outcome(files / "whole", but=STATE)
    assert {name for name in ended | whole if ended.get(name) != whole.get(name)} == set()
