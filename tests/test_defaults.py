import dataclasses
import math
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from conftest import TOY_SETTINGS, toy_pairs, write_tsv
from hypothesis import given, settings
from hypothesis import strategies as st

from mtcli.config.build import build
from mtcli.config.presets import PRESETS, Preset
from mtcli.config.schema import CHOSEN_IF_UNSET, LENGTH_PENALTY, MAX_STEPS, SHAPE, Config, unset_settings, value_of
from mtcli.config.toml_file import load, to_toml
from mtcli.corpus.cache.prepare import prepare
from mtcli.errors import UsageError
from mtcli.model.transformer import Transformer
from mtcli.storage.run_folder import differences
from mtcli.training.defaults.choose import with_defaults
from mtcli.training.defaults.describe import describe_choice
from mtcli.training.defaults.intervals import MAX_VALIDATION_SHARE
from mtcli.training.defaults.speed import preset_weights
from mtcli.training.defaults.workload import CORPUS_SIZES, Workload
from mtcli.training.dry_run import dry_run
from mtcli.training.optimizer import learning_rate
from mtcli.training.run import train
from mtcli.training.time.budget import SAVES, TOKENS_PER_PAIR

CONFIGS = Path(__file__).parents[1] / "configs"
CPU = torch.device("cpu")
LOOKS = {"train.valid_every", "train.save_every"}
PACE = {"train.warmup_steps", *LOOKS}
"""Options that are chosen again for a new budget."""

DEVICES = st.sampled_from(["cpu", "cuda", "mps"])
BOUNDS = [int(size.below) + n for size in CORPUS_SIZES[:-1] for n in (-1, 0)]
PAIRS = st.one_of(st.integers(1, 10**8), st.sampled_from(BOUNDS))
BUDGETS = st.fixed_dictionaries(
    {
        "train.time": st.none() | st.floats(1, 10**6),
        "train.max_steps": st.none() | st.integers(1, 10**6),
    }
)


def workload(pairs: int, length: float = 15.0, device: str = "cpu", ranks: int = 1) -> Workload:
    return Workload(pairs, math.ceil(pairs * length), device, ranks)


def asked(*sets: str, **options: object) -> Config:
    return build(None, {"data.train": ["x.tsv"], **options}, sets)


def rank(config: Config) -> int:
    return get_args(Preset).index(config.preset)


# ---- what is counted ----


def test_a_workload_counts_each_pair_by_the_weight_of_its_corpus(tmp_path: Path) -> None:
    few = write_tsv(tmp_path / "few.tsv", toy_pairs(30, seed=1))
    many = write_tsv(tmp_path / "many.tsv", toy_pairs(200, seed=2))
    config = build(None, {"data.train": [f"{few}@10", f"{many}@0.5"], "data.src": "en", "data.tgt": "xx"}, TOY_SETTINGS)
    data = prepare(config, tmp_path / "run")
    _, src, tgt = data.train.lengths()
    widths = np.maximum(src, tgt) + 1
    num_few = data.weights[0][0]
    found = Workload.of(data, CPU, ranks=1)
    assert found.epoch_tokens == round(10 * widths[:num_few].sum() + 0.5 * widths[num_few:].sum())
    assert found.pairs == len(widths)


@pytest.mark.parametrize("both", [False, True])
def test_a_pair_that_is_trained_in_both_directions_counts_once(both: bool, tmp_path: Path) -> None:
    tsv = write_tsv(tmp_path / "pairs.tsv", toy_pairs(100))
    values = {"data.train": [str(tsv)], "data.src": "en", "data.tgt": "xx", "data.both_directions": both}
    data = prepare(build(None, values, TOY_SETTINGS), tmp_path / "run")
    found = Workload.of(data, CPU, ranks=1)
    once = found.pairs // 2 if both else found.pairs
    assert (found.texts, found.fewest_real_pairs) == (once, once)


def test_synthetic_pairs_do_not_change_the_length_penalty(tmp_path: Path) -> None:
    """Otherwise the models that `improve` compares would differ in it."""
    tsv = write_tsv(tmp_path / "pairs.tsv", toy_pairs(100))
    synthetic = tmp_path / "synthetic.tsv"
    lines = ["src\ttgt\tlog_prob\tscore", *(f"{src}\t{tgt}\t-1\t-0.1" for src, tgt in toy_pairs(300, seed=3))]
    synthetic.write_text("\n".join(lines) + "\n")
    values = {"data.train": [str(tsv), str(synthetic)], "data.src": "en", "data.tgt": "xx"}
    found = Workload.of(prepare(build(None, values, TOY_SETTINGS), tmp_path / "run"), CPU, ranks=1)
    assert found.fewest_real_pairs is not None
    assert found.fewest_real_pairs < 100 < found.pairs


# ---- what is chosen ----


def test_measured_corpora_get_the_measured_defaults() -> None:
    multi30k = build(CONFIGS / "multi30k.toml", {"train.time": "20m"})
    ours = with_defaults(asked(**{"train.time": "20m"}), workload(29_000))
    other = [name for name in CHOSEN_IF_UNSET if value_of(ours, name) != value_of(multi30k, name)]
    assert other == ["train.micro_batches", "train.valid_every", "train.save_every"]
    assert with_defaults(asked(**{"train.time": "30m"}), workload(29_000)).model.dropout == 0.3
    few = [with_defaults(asked(**{"train.time": "20m"}), workload(n)).train for n in (1000, 9999, 10_000)]
    assert [(train.batch_tokens, train.lr) for train in few] == [(1024, 3e-3), (1024, 3e-3), (2048, 4e-3)]
    tatoeba = with_defaults(asked(**{"train.time": "30m"}), workload(117_000, 8.5))
    assert (tatoeba.preset, tatoeba.train.batch_tokens, tatoeba.model.dropout) == ("tiny", 4096, 0.1)
    assert (tatoeba.train.lr, tatoeba.train.warmup_steps) == (3e-3, 500)


def test_dropout_has_no_cliff_between_the_sizes_of_corpora() -> None:
    """A long run of tiny on 50,000 pairs overfits about as one on 49,999."""
    sizes = (49_000, 51_000)
    found = [with_defaults(asked("train.max_steps=50000", "preset=tiny"), workload(n)).model.dropout for n in sizes]
    assert found == [0.3, 0.2]


def test_small_corpora_get_a_higher_length_penalty() -> None:
    def alpha(pairs: int, *sets: str, **traits: int) -> float:
        known = dataclasses.replace(workload(pairs), **traits)
        config = with_defaults(asked("train.max_steps=1000", *sets), known)
        assert (LENGTH_PENALTY in config.chosen) == ("decode.length_penalty=0.9" not in sets)
        return config.decode.length_penalty

    assert [alpha(n) for n in (1, 3000, 9999, 10_000, 4_500_000)] == [1.5, 1.5, 1.5, 0.6, 0.6]
    assert alpha(3000, "decode.length_penalty=0.9") == 0.9
    assert alpha(3000, 'decode.length_normalization="power"') == 0.6  # n^1.5 would be another preference
    assert alpha(3000, fine_tunes=True, has_parent=True) == 1.5
    settled = with_defaults(asked("train.max_steps=9"), workload(3000))
    assert "length penalty 1.5" in describe_choice(settled, workload(3000), resumed=False)


@pytest.mark.parametrize(
    ("preset", "batch_tokens", "expected"),
    [
        ("tiny", 100, 1), ("tiny", 511, 1), ("tiny", 512, 2), ("tiny", 4096, 2), ("tiny", 8192, 4), ("small", 2048, 2),
        ("small", 4096, 4), ("base", 25_000, 24),
    ],
)  # fmt: skip
def test_micro_batches_follow_from_the_batch_and_the_width(preset: str, batch_tokens: int, expected: int) -> None:
    """And not from the machine, so that a run has the same bits on any number of cores."""
    config = asked(preset=preset, **{"train.batch_tokens": batch_tokens})
    assert with_defaults(config, workload(29_000)).train.micro_batches == expected
    assert with_defaults(config, workload(29_000, device="cuda")).train.micro_batches == 1


def test_a_run_of_an_earlier_version_gets_the_micro_batches_of_a_new_one() -> None:
    given = asked(preset="tiny", **{"train.max_steps": 10})
    began = with_defaults(given, workload(29_000))
    values = began.model_dump()
    del values["train"]["micro_batches"]
    values["chosen"] = [name for name in began.chosen if name != "train.micro_batches"]
    earlier = type(began).model_validate(values)
    resumed = with_defaults(given, workload(29_000), earlier)
    assert resumed == began
    assert not differences(earlier, resumed)


def test_a_short_time_on_a_cpu_is_used_for_more_and_smaller_batches() -> None:
    def batch(device: str = "cpu", **options: object) -> tuple[int, float]:
        given = {f"train.{name}": value for name, value in options.items()}
        chosen = with_defaults(asked(**given), workload(117_000, 8.5, device)).train
        return chosen.batch_tokens, chosen.lr

    assert batch(time="18m") == (2048, 4e-3)
    assert batch(time="30m") == (4096, 3e-3)
    assert batch(time="18m", max_steps=1000) == batch(max_steps=1000) == (4096, 3e-3)
    assert batch("cuda", time="10s")[0] > 4096
    assert batch(time="18m", batch_tokens=4096) == (4096, 3e-3)


def test_preset_grows_with_pairs_device_and_budget() -> None:
    def preset(pairs: int, device: str, time: str | None) -> str:
        return with_defaults(asked(**{"train.time": time}), workload(pairs, device=device)).preset

    assert [preset(n, "cuda", None) for n in (29_000, 150_000, 4_500_000, 40_000_000)] == list(get_args(Preset))
    assert {preset(40_000_000, "cpu", time) for time in ("1m", "30m", None)} == {"tiny"}
    assert [preset(4_500_000, "cpu", time) for time in ("4h", "8h", "100h")] == ["tiny", "small", "base"]


@given(PAIRS, PAIRS, st.floats(1, 200), DEVICES, BUDGETS)
@settings(max_examples=100, deadline=None)
def test_more_pairs_never_give_a_smaller_preset_or_more_dropout(
    some: int, more: int, length: float, device: str, budget: dict[str, float]
) -> None:
    few, many = (with_defaults(asked(**budget), workload(n, length, device)) for n in sorted((some, more)))
    assert rank(few) <= rank(many)
    assert few.model.dropout >= many.model.dropout
    assert few.train.batch_tokens <= many.train.batch_tokens


@given(PAIRS, DEVICES, st.floats(1, 10**6), st.floats(1, 10**6))
@settings(max_examples=40, deadline=None)
def test_more_time_never_gives_a_smaller_preset(pairs: int, device: str, some: float, more: float) -> None:
    short, long = (
        with_defaults(asked(**{"train.time": t}), workload(pairs, device=device)) for t in sorted((some, more))
    )
    assert rank(short) <= rank(long)


@given(PAIRS, DEVICES, st.sampled_from(["4m", "30m", "3h", "48h", None]), st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_number_of_validations_and_checkpoints_is_reasonable(
    pairs: int, device: str, time: str | None, ranks: int
) -> None:
    config = with_defaults(asked(**{"train.time": time}), workload(pairs, device=device, ranks=ranks)).train
    assert config.valid_every % config.save_every == 0
    if config.max_steps:
        assert 7 <= config.max_steps / config.valid_every <= 60
        assert config.average * config.save_every <= 1.1 * config.cooldown * config.max_steps or config.max_steps < 100
    if time == "4m" and device == "cpu":
        steps = 7000 * 240 / config.batch_tokens
        assert steps / config.valid_every >= 5
        assert steps / config.save_every >= SAVES * 0.8
    assert config.warmup_steps <= 4000


# ---- what is given ----

GIVEN = {
    "preset=small": ("preset", "small"),
    "model.dropout=0.15": ("model.dropout", 0.15),
    "model.num_heads=2": ("model.num_heads", 2),
    "train.batch_tokens=777": ("train.batch_tokens", 777),
    "train.lr=0.002": ("train.lr", 0.002),
    "train.warmup_steps=77": ("train.warmup_steps", 77),
    "train.max_steps=777": ("train.max_steps", 777),
    "train.valid_every=33": ("train.valid_every", 33),
    "train.save_every=11": ("train.save_every", 11),
    "train.time=7m": ("train.time", 420),
}


@given(st.sets(st.sampled_from(sorted(GIVEN))), PAIRS, DEVICES)
@settings(max_examples=60, deadline=None)
def test_given_options_are_kept_and_all_others_chosen(given: set[str], pairs: int, device: str) -> None:
    config = asked(*given)
    settled = with_defaults(config, workload(pairs, device=device))
    for name, value in (GIVEN[text] for text in given):
        assert value_of(settled, name) == value
        assert name not in settled.chosen
    assert {*settled.chosen} == unset_settings(config)
    assert {
        n for n in CHOSEN_IF_UNSET if n not in settled.chosen and value_of(settled, n) != value_of(config, n)
    } == set()
    assert settled.train.max_steps or settled.train.time
    assert (MAX_STEPS in settled.chosen) == (not {"train.max_steps=777", "train.time=7m"} & given)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_named_preset_keeps_its_values(preset: Preset) -> None:
    settled = with_defaults(asked(preset=preset), workload(29_000))
    for section, values in PRESETS[preset].items():
        assert values.items() <= getattr(settled, section).model_dump().items()


@pytest.mark.parametrize("preset", ["base", "big"])
def test_the_paper_s_configurations_set_every_option(preset: str) -> None:
    (file,) = CONFIGS.glob(f"*-{preset}.toml")
    assert with_defaults(build(file), workload(4_500_000, device="cuda")) == build(file)


def test_the_demo_sets_every_option() -> None:
    assert unset_settings(build()) == set()
    assert with_defaults(build(), workload(10_000)) == build()
    assert unset_settings(build(None, {"preset": "small", "train.time": "1m"})) == PACE
    assert unset_settings(build(None, {"train.max_steps": 5})) == PACE


def test_warm_up_of_a_named_preset_fits_the_budget() -> None:
    short = with_defaults(asked(preset="small", **{"train.max_steps": 50}), workload(29_000))
    assert (short.train.warmup_steps, short.train.lr) == (17, 1e-3)
    long = with_defaults(asked(preset="small", **{"train.max_steps": 100_000}), workload(29_000))
    assert long.train.warmup_steps == PRESETS["small"]["train"]["warmup_steps"]
    given = with_defaults(asked("train.warmup_steps=40", preset="small", **{"train.max_steps": 50}), workload(29_000))
    assert given.train.warmup_steps == 40
    paper = with_defaults(asked('train.schedule="paper"', preset="base", **{"train.max_steps": 50}), workload(29_000))
    assert paper.train.warmup_steps == 4000  # a shorter one would raise its peak
    timed = with_defaults(asked(preset="small", **{"train.time": "3m"}), workload(29_000))
    assert timed.train.warmup_steps == 2000  # an upper limit: the budget measures what it can afford
    assert "at most 2,000 warm-up steps, validated and saved as the time allows" in describe_choice(
        timed, workload(29_000), resumed=False
    )


@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_the_factor_of_the_papers_schedule_is_1_unless_it_is_set(preset: Preset | None) -> None:
    known = workload(29_000)
    paper = with_defaults(asked('train.schedule="paper"', preset=preset, **{"train.max_steps": 50}), known)
    assert paper.train.lr == 1.0  # and not the peak of the preset, with which the model would learn nothing
    rates = [learning_rate(paper.train, paper.model.d_model, step, 0.0) for step in range(1, 9000)]
    assert max(rates) == pytest.approx(paper.peak_learning_rate)
    peak = f"peak learning rate {paper.peak_learning_rate:.3g}"
    assert peak in describe_choice(paper, known, resumed=False)
    given = with_defaults(asked('train.schedule="paper"', "train.lr=2", preset=preset), known)
    assert given.train.lr == 2.0
    other = with_defaults(asked('train.schedule="cosine"', preset=preset), known)
    assert other.peak_learning_rate == other.train.lr < 0.01


@given(st.integers(1, 10**6), PAIRS, st.integers(0, 10**5))
@settings(max_examples=100, deadline=None)
def test_a_budget_of_steps_fits_its_warm_up_and_validations(steps: int, pairs: int, valid: int) -> None:
    known = Workload(pairs, 15 * pairs, "cpu", valid=valid)
    train = with_defaults(asked(**{"train.max_steps": steps}), known).train
    assert train.warmup_steps <= math.ceil(0.34 * steps)
    assert train.warmup_steps >= min(100, steps // 4)
    validations = steps // train.valid_every
    cost = validations * valid * TOKENS_PER_PAIR
    assert (
        validations <= 1 or cost <= 2 * MAX_VALIDATION_SHARE * steps * train.batch_tokens
    )  # 2: rounded to multiples of save_every
    if valid <= 10:
        assert validations >= min(steps, 5)


def test_five_steps_are_validated_once() -> None:
    train = with_defaults(asked(**{"train.max_steps": 5}), Workload(29_000, 450_000, "cpu", valid=1014)).train
    assert (train.warmup_steps, train.valid_every) == (1, 5)
    train = with_defaults(asked(**{"train.max_steps": 1000}), Workload(29_000, 450_000, "cpu", valid=1014)).train
    assert (train.warmup_steps, train.valid_every) == (200, 126)


def test_preset_follows_from_the_width_of_the_model() -> None:
    wide = asked("model.d_model=512", "model.num_heads=4")
    assert (wide.preset, wide.model.d_ff, wide.model.num_heads, wide.train.lr) == ("base", 2048, 4, 7e-4)
    chosen = {"model.dropout", "train.batch_tokens", "train.micro_batches", MAX_STEPS, LENGTH_PENALTY, *LOOKS}
    assert unset_settings(wide) == chosen
    initial = build(None, {"data.train": ["x"]}, initial={"model.d_model": 512, "model.num_heads": 4})
    assert initial.model == wide.model
    # Fine-tuning has a learning rate and a warm-up of its own.
    assert unset_settings(initial) == {*unset_settings(wide), "train.lr", "train.warmup_steps"}
    assert [asked(f"model.d_model={d}").preset for d in (16, 128, 132, 1024, 2048)] == (
        ["tiny", "tiny", "small", "big", "big"]
    )
    assert asked("preset=tiny", "model.d_model=512").model.d_ff == 256


# ---- what a run keeps ----


@given(PAIRS, st.lists(BUDGETS, min_size=2, max_size=4), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_resumed_run_keeps_its_defaults_with_any_budget(
    pairs: int, budgets: list[dict[str, float]], on_gpu_later: bool
) -> None:
    known, later = workload(pairs), workload(pairs, device="cuda" if on_gpu_later else "cpu")
    first = began = with_defaults(asked(**budgets[0]), known)
    for budget in budgets:
        config = asked(**budget)
        assert differences(began, config) == []
        settled = with_defaults(config, later, began)
        for name in {*first.chosen} - {MAX_STEPS, *PACE}:
            assert value_of(settled, name) == value_of(first, name)
        assert settled.train.max_steps or settled.train.time
        assert settled.train.time == budget["train.time"]
        assert with_defaults(config, known, settled) == settled  # the same command again changes nothing
        began = settled
    assert unset_settings(settled) == set()


def test_differences_to_chosen_values() -> None:
    began = with_defaults(asked(**{"train.time": "30m"}), workload(29_000))
    assert (
        differences(began, asked("model.dropout=0.3", "preset=tiny", "train.lr=4e-3", "train.warmup_steps=400")) == []
    )
    assert differences(began, asked("model.dropout=0.2")) == ["model.dropout: 0.3 → 0.2"]
    assert differences(with_defaults(asked("model.dropout=0.2"), workload(29_000)), asked()) == [
        "model.dropout: 0.2 → 0.1"
    ]


def test_config_toml_of_a_run_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    settled = with_defaults(asked(), workload(29_000))
    path.write_text(to_toml(settled))
    assert load(path) == settled
    assert unset_settings(load(path)) == set()
    assert settled.chosen == CHOSEN_IF_UNSET
    again = with_defaults(build(path), workload(29_000))  # as the configuration of another run: every option is set
    assert (again.chosen, to_toml(again)) == (
        (),
        "".join(s for s in to_toml(settled).splitlines(True) if "chosen" not in s),
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_weights_of_each_preset(preset: Preset) -> None:
    with torch.device("meta"):
        model = Transformer(with_defaults(asked(preset=preset), workload(1)).model, 10_000, 10_000, joint=True)
    assert preset_weights(preset) == sum(p.numel() for p in model.parameters() if p.dim() > 1)


SMALL = (
    "tokenizer.vocab_size=320", "model.num_encoder_layers=1", "model.num_decoder_layers=1", "decode.max_extra=1",
    "train.average=1", "train.valid_every=9", 'data.variants="off"',
)  # fmt: skip


def test_training_chooses_logs_and_keeps_defaults(
    toy_tsv: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def config(*sets: str, **options: object) -> Config:
        values = {"data.train": [str(toy_tsv)], "data.src": "en", "data.tgt": "xx", **options}
        return build(None, values, [*SMALL, *sets])

    run = tmp_path / "run"
    caplog.set_level("INFO")
    wanted = config(**{"train.max_steps": 2})
    logged = next(text for name, text in dry_run(wanted, run, CPU) if name == "settings")  # before any step is timed
    assert logged.startswith(
        "288 pairs, 2 steps, CPU, about 0.58 epochs: preset tiny, dropout 0.1, batches of 1,024 tokens"
    )
    train(wanted, run, CPU)
    assert logged in caplog.messages
    first = load(run / "config.toml")
    assert {*first.chosen} == unset_settings(wanted) > {"preset", "model.d_model", "train.lr"}
    train(config(**{"train.max_steps": 3}), run, CPU)
    assert [
        name
        for name in (*SHAPE, *CHOSEN_IF_UNSET)
        if value_of(load(run / "config.toml"), name) != value_of(first, name)
    ] == [MAX_STEPS]
    assert any("as chosen when the run began, preset tiny" in message for message in caplog.messages)
    with pytest.raises(UsageError, match=r"model\.dropout: 0\.1 → 0\.25"):
        train(config("model.dropout=0.25"), run, CPU)


def test_epochs_are_not_estimated_before_the_speed_is_measured() -> None:
    timed = with_defaults(asked("train.time=240"), workload(60))
    assert "epochs" not in describe_choice(timed, workload(60), resumed=False)
    counted = with_defaults(asked("train.max_steps=100"), workload(60))
    assert "epochs" in describe_choice(counted, workload(60), resumed=False)
