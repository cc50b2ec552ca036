"""`mtcli train --corrections`: what is mixed and scored, which checkpoint becomes the model, and when training ends."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TOY_SETTINGS, toy_pairs, write_tsv
from helpers.toy import SEVERAL_PAIRS, several_toy

from mtcli.config.build import build
from mtcli.config.toml_file import load as load_config
from mtcli.corpus.cache.prepare import prepare, reopen
from mtcli.corpus.corrections import CORRECTED, REPLACED, read_corrections
from mtcli.corpus.held_out import read_split
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.errors import DataError, UsageError
from mtcli.report.run_record import read_run, score_rows
from mtcli.storage.events import best_of, read_events
from mtcli.storage.model_file import load_model, mean_parameters, parameters
from mtcli.text.languages import Direction
from mtcli.text.lines import Counts, Pair
from mtcli.training import corrections, evaluator
from mtcli.training.corrections import count_given
from mtcli.training.request import TrainingRequest, resolve
from mtcli.training.run import train
from mtcli.training.trainer import Trainer
from mtcli.training.validation import CorrectionFigures, PairsToScore, Validation
from mtcli.translate.translation import Options
from mtcli.translate.windows import Reading

Train = Callable[..., Path]

STEPS = ("train.max_steps=16", "train.valid_every=4", "train.save_every=4", "train.average=1", "train.engine=false")
HEADER = "source\ttranslation\tdate\tnote\n"


def corrections_file(path: Path, pairs: Sequence[Pair]) -> Path:
    """Write corrections as the server does."""
    lines = (f"{source}\t{translation}\t2026-11-25T10:00:00+00:00\t\n" for source, translation in pairs)
    path.write_text(HEADER + "".join(lines), encoding="utf-8")
    return path


def request(file: Path, out: Path, init: Path | None, *sets: str, **options: Any) -> TrainingRequest:
    settings = [text for text in TOY_SETTINGS if not text.startswith(("model.", "tokenizer."))]
    return resolve(None, {"data.corrections": str(file), **options}, [*settings, *sets], out=out, init=init)


def learn(file: Path, out: Path, init: Path | None, *sets: str, **options: Any) -> Path:
    """Train as `mtcli train --corrections FILE --init INIT --out OUT` does."""
    asked = request(file, out, init, *STEPS, *sets, **options)
    train(asked.config, asked.run, torch.device("cpu"), init=asked.init)
    return out


def events(run: Path, kind: str = "") -> list[dict[str, Any]]:
    found, damaged = read_events(run / "metrics.jsonl")
    assert not damaged
    return [event for event in found if kind in ("", event["event"])]


@pytest.fixture(scope="module")
def some() -> list[Pair]:
    """Corrections of the sources of three pairs of the toy, with other translations."""
    return [(source, f"{target} x") for source, target in toy_pairs()[:3]]


# ---- the pairs ----


def test_the_later_of_two_corrections_of_a_source_counts(tmp_path: Path) -> None:
    pairs = [("A dog.", "Un gato."), ("Rain.", "Lluvia."), ("A  dog.", "Un perro."), ("A DOG.", "UN PERRO.")]
    found = read_corrections(str(corrections_file(tmp_path / "c.tsv", pairs)), Direction("en", "es"))
    assert found.pairs == [("Rain.", "Lluvia."), ("A  dog.", "Un perro."), ("A DOG.", "UN PERRO.")]
    assert (found.counts.read, found.counts.used, found.counts.skipped) == (4, 3, {REPLACED: 1})
    assert found.has_source("a dog.")
    assert not found.has_source("A cat.")


def test_a_file_without_corrections_is_refused(tmp_path: Path, toy_run: Path) -> None:
    with pytest.raises(DataError, match="has no corrections"):
        learn(corrections_file(tmp_path / "c.tsv", []), tmp_path / "run", toy_run)
    assert not (tmp_path / "run").exists()


def test_the_pairs_of_a_run_are_those_that_it_was_trained_on(toy_run: Path) -> None:
    counts = Counts()
    training = list(read_pairs(str(toy_run), "en", "xx", counts=counts))
    held_out = [list(read_pairs(f"{toy_run}#{split}", "en", "xx")) for split in ("valid", "test")]
    assert held_out == [read_split(toy_run, "valid"), read_split(toy_run, "test")]
    assert sorted([*training, *held_out[0], *held_out[1]]) == sorted(toy_pairs())
    assert (counts.used, counts.skipped) == (len(training), {})


def test_the_pairs_of_a_run_keep_tags_bytes_and_the_direction(train_toy: Train, tmp_path: Path) -> None:
    pairs = toy_pairs(60)
    odd = [("Łódź 🐕 \u00ad", "a\u2028b"), ("<term> x", ">>xx<< y")]
    plain = write_tsv(tmp_path / "plain.en-xx.tsv", [*pairs, *odd])
    header = "source\ttarget\tlog_prob\tscore\n"
    (tmp_path / "synthetic.en-xx.tsv").write_text(
        header + "".join(f"<bt> {source} again\t{target}\t-1\t-1\n" for source, target in pairs)
    )
    both = resolve(
        None,
        {"data.train": [str(plain), str(tmp_path / "synthetic.en-xx.tsv"), str(plain)], "data.tgt": ["xx", "xx", "yy"],
         "data.src": ["en"]},
        [*TOY_SETTINGS, "train.max_steps=1", "train.engine=false"],
        out=tmp_path / "run",
    )  # fmt: skip
    train(both.config, both.run, torch.device("cpu"))
    of_xx = list(read_pairs(str(tmp_path / "run"), "en", "xx"))
    split = [*read_pairs(f"{tmp_path}/run#valid", "en", "xx"), *read_pairs(f"{tmp_path}/run#test", "en", "xx")]
    assert {*of_xx, *split} >= {*pairs, *odd}
    synthetic = [pair for pair in of_xx if pair[0].startswith("<bt> ")]
    assert len(synthetic) == len(pairs)
    assert len(list(read_pairs(str(tmp_path / "run"), "en", "yy"))) == len(of_xx) - len(synthetic)
    with pytest.raises(DataError, match="has pairs of en → xx, en → yy, not of en → zz"):
        list(read_pairs(str(tmp_path / "run"), "en", "zz"))
    with pytest.raises(DataError, match="a run has train, valid, test"):
        read_pairs(f"{tmp_path / 'run'}#dev", "en", "xx")


def test_corrections_are_mixed_with_the_pairs_of_the_models_run(
    toy_run: Path, tmp_path: Path, some: list[Pair]
) -> None:
    of_test = [(source, "another one") for source, _ in read_split(toy_run, "test")[:2]]
    own = list(read_pairs(str(toy_run), "en", "xx"))
    of_training = [(source.upper(), "x y z") for source, _ in own[:2]]
    corrections = [*of_test, *of_training]
    run = learn(corrections_file(tmp_path / "c.tsv", corrections), tmp_path / "run", toy_run, "data.corrections_mix=10")
    data = reopen(run)
    assert list(data.corrections) == corrections
    assert data.valid == read_split(toy_run, "valid")
    assert data.test == read_split(toy_run, "test")[2:]  # a corrected source is not scored, but the others are
    trained = list(read_pairs(str(run), "en", "xx"))
    assert trained == [*own[2:], *corrections]  # nothing contradicts a correction
    assert data.counts["skipped"] == {CORRECTED: 4}
    general, corrected = data.sources
    assert (corrected.pairs, corrected.weight) == (4, 1)
    assert general.share == pytest.approx(10 * corrected.share)


# ---- what becomes the model, and when training ends ----


class Stub:
    """Gives each validation a BLEU and a number of corrections, in place of measuring them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, bleu: Sequence[float], given: Sequence[int]) -> None:
        self._bleu = iter(bleu)
        self._given = iter(given)
        monkeypatch.setattr(evaluator.validation, "validate", self._validate)
        monkeypatch.setattr(corrections, "count_given", self._count)

    def _validate(self, _backend: object, pairs: PairsToScore, *_: object) -> Validation:
        return Validation(loss=1.0, bleu=next(self._bleu), chrf=50.0, samples=[], pairs=len(pairs), of=len(pairs))

    def _count(self, _backend: object, pairs: Sequence[Pair], _config: object) -> CorrectionFigures:
        return CorrectionFigures(next(self._given), len(pairs))


@pytest.fixture
def three(tmp_path: Path, some: list[Pair]) -> Path:
    """A file of three corrections."""
    return corrections_file(tmp_path / "corrections.tsv", some)


def test_corrections_are_learned_exactly_unless_the_settings_say_otherwise(
    toy_run: Path, three: Path, tmp_path: Path
) -> None:
    learn(three, tmp_path / "exact", toy_run, "train.max_steps=1")
    config = load_config(tmp_path / "exact" / "config.toml")
    assert (config.model.dropout, config.train.label_smoothing) == (0.0, 0.0)
    learn(three, tmp_path / "exact", None, "train.max_steps=2")
    resumed = load_config(tmp_path / "exact" / "config.toml")
    assert (resumed.model.dropout, resumed.train.label_smoothing, resumed.train.max_steps) == (0.0, 0.0, 2)
    sets = ("model.dropout=0.2", "train.label_smoothing=0.05")
    learn(three, tmp_path / "given", toy_run, "train.max_steps=1", *sets)
    given = load_config(tmp_path / "given" / "config.toml")
    assert (given.model.dropout, given.train.label_smoothing) == (0.2, 0.05)
    given = request(three, tmp_path / "given", None, *STEPS, "train.max_steps=2").config
    assert given.train.label_smoothing == 0.05


def test_training_ends_early_when_every_correction_is_given(
    toy_run: Path, three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mtcli")
    Stub(monkeypatch, bleu=[30] * 9, given=[0, 1, 3, 3, 3, 3])
    run = learn(three, tmp_path / "run", toy_run, "train.max_steps=400")
    (end,) = events(run, "end")
    assert end["reason"] == "every correction is given"
    assert end["step"] < 12  # the cool-down after step 8
    assert end["best_step"] == 8
    assert "corrections: the model gave 0 of 3 before, and gives 3 now" in caplog.text


def test_a_model_that_gives_every_correction_already_is_trained_until_the_next_validation(
    toy_run: Path, three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Stub(monkeypatch, bleu=[30, *[29.8] * 9], given=[3] * 10)
    run = learn(three, tmp_path / "run", toy_run)
    (end,) = events(run, "end")
    assert (end["reason"], end["best_step"]) == ("every correction is given", 0)


def test_a_checkpoint_that_forgets_too_much_never_becomes_the_model(
    toy_run: Path, three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Stub(monkeypatch, bleu=[30, 29.6, 29.4, 29.4, 29.4], given=[0, 1, 2, 3, 3])
    run = learn(three, tmp_path / "run", toy_run)
    assert events(run, "end")[0]["best_step"] == 4
    best = best_of(events(run))
    assert best is not None
    assert (best["step"], best["corrections"]["given"], best["corrections"]["forgets"]) == (4, 1, False)


def test_the_limit_is_a_setting(toy_run: Path, three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Stub(monkeypatch, bleu=[30, 29.6, 29.4, 29.4, 29.4], given=[0, 1, 2, 2, 2])
    run = learn(three, tmp_path / "run", toy_run, "train.corrections_limit=1")
    assert events(run, "end")[0]["best_step"] == 8


def test_a_model_that_only_forgets_stays_as_it_was(
    toy_run: Path, three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Stub(monkeypatch, bleu=[30, *[20] * 9], given=[0, *[3] * 9])
    run = learn(three, tmp_path / "run", toy_run)
    assert events(run, "end")[0]["best_step"] == 0
    assert read_run(run, "cpu").start_is_best


def test_a_mean_that_forgets_too_much_gets_a_larger_share_of_the_model_before(
    toy_run: Path, three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Stub(monkeypatch, bleu=[30, 29, 29, 29, 29, 29, 29.4, 29.6], given=[0, 3, 2, 2, 2, 3, 3, 2])
    run = learn(three, tmp_path / "run", toy_run, "train.average=3", "train.patience=0")
    means = events(run, "average")
    assert [event["kept"] for event in means] == [False, False, True]
    assert [event["steps"] for event in means] == [[8, 12, 16], [0, 8, 12, 16], [0, 0, 8, 12, 16]]
    (end,) = events(run, "end")
    assert (end["averaged"], end["reason"]) == (means[-1]["steps"], "budget used")
    folders = [run / "checkpoints" / f"step-{step:08}" for step in end["averaged"]]
    model, _, _ = load_model(run)
    expected = mean_parameters(folders)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in parameters(model).items())
    assert read_run(run, "cpu").test is not None
    assert "mean of 3 checkpoints and, with a share of 40%, the model before" in (run / "README.md").read_text()


# ---- a real training ----


@pytest.fixture(scope="module")
def learned(toy_run: Path, tmp_path_factory: pytest.TempPathFactory, some: list[Pair]) -> tuple[Path, Path]:
    """A file of corrections, and a run that learned them, with the scores not limited."""
    folder = tmp_path_factory.mktemp("learned")
    file = corrections_file(folder / "corrections.tsv", some)
    sets = ("train.max_steps=200", "train.valid_every=100", "train.lr=1e-2", "data.corrections_mix=1")
    free = ("model.dropout=0", "train.corrections_limit=100", "train.patience=0")
    return file, learn(file, folder / "run", toy_run, *sets, *free)


def test_corrections_are_learned_counted_and_reported(learned: tuple[Path, Path]) -> None:
    _, run = learned
    first, *later = (event["corrections"] for event in events(run, "valid"))
    assert first["given"] == 0
    assert [other["ref"] for other in first["others"]] == [target for _, target in reopen(run).corrections]
    given = max(each["given"] for each in later)
    assert given >= 1
    record = read_run(run, "cpu")
    rows = {(row.metric, row.split): row for row in score_rows(record)}
    assert rows["corrections given", "training"].value == str(given)
    assert rows["corrections given", "training"].measured.startswith("of 3; 0 before training")
    assert ("BLEU", "test before training") in rows
    assert ("BLEU", "test") in rows
    assert "corrections given" in (run / "README.md").read_text()
    assert "corrections given" in (run / "report.html").read_text()


def test_the_test_scores_before_are_those_of_the_model(learned: tuple[Path, Path], toy_run: Path) -> None:
    (before,) = events(learned[1], "start_test")
    of_model = events(toy_run, "test")[-1]
    corrected = {source for source, _ in reopen(learned[1]).corrections}
    if not corrected & {source for source, _ in read_split(toy_run, "test")}:
        assert before["scores"] == of_model["scores"]
    assert before["pairs"] == len(reopen(learned[1]).test)


def test_a_run_that_was_interrupted_ends_like_an_undisturbed_one(
    toy_run: Path, three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = learn(three, tmp_path / "straight", toy_run)
    step = Trainer.step

    def interrupted(self: Trainer, batches: Iterator[Any]) -> None:
        step(self, batches)
        if self.session.state.step == 7:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            learn(three, tmp_path / "run", toy_run)
    run = learn(three, tmp_path / "run", None)  # resuming needs no --init
    assert (run / "model.safetensors").read_bytes() == (straight / "model.safetensors").read_bytes()
    timeless = [
        [{key: value for key, value in event.items() if key != "seconds"} for event in events(folder)]
        for folder in (run, straight)
    ]
    assert timeless[0] == timeless[1]


def test_later_corrections_are_learned_by_the_model_that_learned_the_earlier_ones(
    learned: tuple[Path, Path], tmp_path: Path, some: list[Pair]
) -> None:
    source, _ = some[0]
    file = corrections_file(tmp_path / "c.tsv", [(source, "changed")])
    run = learn(file, tmp_path / "run", learned[1])
    pairs = list(read_pairs(str(run), "en", "xx"))
    assert [target for each, target in pairs if each == source] == ["changed"]
    assert set(some[1:]) <= set(pairs)


def test_a_model_is_not_reminded_of_the_pairs_that_show_what_it_forgets(
    toy_run: Path, toy_tsv: Path, three: Path, tmp_path: Path
) -> None:
    asked = request(three, tmp_path / "run", toy_run, **{"data.train": [str(toy_tsv)]})
    assert asked.init is not None
    data = prepare(asked.config, tmp_path / "run", init=asked.init.parent)
    trained_on = set(data.tokenizer.decode_src([data.train[row][0].tolist() for row in range(len(data.train))]))
    held_out = {source for name in ("valid", "test") for source, _ in read_split(toy_run, name)}
    assert held_out
    assert len(trained_on) > 100
    assert trained_on.isdisjoint(held_out)


def test_corrections_are_counted_with_the_tag_of_their_language() -> None:
    translator = several_toy()
    sources = [source for source, _ in SEVERAL_PAIRS[Direction("en", "es")]][:5]
    config = build(None, {"data.train": ["x.tsv"], "data.src": "en", "data.tgt": "es"}, ["decode.beam_size=1"])
    options = replace(Options.of(config.decode), to="es")
    given = [(each.source, each.text) for each in translator.translate(sources, options, Reading(quiet=True))]
    assert count_given(translator.backend, given, config).given == len(sources)


# ---- what is refused ----


def test_what_cannot_be_done_is_refused(
    toy_run: Path, toy_tsv: Path, three: Path, tmp_path: Path, train_toy: Train
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        (bare / name).write_bytes((toy_run / name).read_bytes())
    out = tmp_path / "run"
    with pytest.raises(UsageError, match="name the model with --init"):
        request(three, out, None)
    with pytest.raises(UsageError, match="limit it with --max-steps"):
        request(three, out, toy_run, **{"train.time": "5m"})
    with pytest.raises(UsageError, match="omit --src and --tgt"):
        request(three, out, toy_run, **{"data.src": "es"})
    with pytest.raises(UsageError, match=r"has no training pairs to mix them with.*`mtcli augment`"):
        request(three, out, bare)
    asked = request(three, out, bare, **{"data.train": [str(toy_tsv)]})
    assert (asked.config.data.train, asked.config.data.valid) == ((str(toy_tsv),), None)
    assert not out.exists()


def test_without_validation_pairs_nothing_would_show_what_is_forgotten(
    train_toy: Train, three: Path, tmp_path: Path
) -> None:
    few = write_tsv(tmp_path / "few.tsv", toy_pairs(15))
    init = train_toy(tmp_path / "init", "train.max_steps=1", spec=few)
    with pytest.raises(UsageError, match="no validation pairs"):
        learn(three, tmp_path / "run", init)
    assert not (tmp_path / "run").exists()
