"""The line of the log that lists the settings which the user gave."""

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import TOY_SETTINGS

from mtcli.config.build import build
from mtcli.config.schema import Config
from mtcli.training.defaults.choose import with_defaults
from mtcli.training.defaults.describe import MAX_SETTINGS, describe_given
from mtcli.training.defaults.workload import Workload

Train = Callable[..., Path]

CONFIGS = Path(__file__).parents[1] / "configs"

IMPORTED = {
    "model.d_model": 512,
    "model.d_ff": 2048,
    "model.num_heads": 8,
    "model.num_encoder_layers": 6,
    "model.num_decoder_layers": 6,
    "model.activation": "swish",
    "tokenizer.type": "sentencepiece",
    "decode.beam_size": 6,
    "decode.length_normalization": "power",
}
"""Values of an imported model."""


def completed(config: Config, *, fine_tunes: bool = False) -> Config:
    """Return a configuration with the settings that training chooses."""
    return with_defaults(config, Workload(29_000, 435_000, "cpu", fine_tunes=fine_tunes))


def given(*sets: str, **options: object) -> str:
    config = build(None, {"data.train": ["x.tsv"], **options}, sets)
    return describe_given(completed(config), fine_tunes=False)


def given_in_fine_tuning(*sets: str, is_model_known: bool) -> str:
    config = build(None, {"data.train": ["x.tsv"]}, sets, initial=IMPORTED)
    initial = IMPORTED if is_model_known else None
    return describe_given(completed(config, fine_tunes=True), fine_tunes=True, initial=initial)


def test_settings_are_listed_with_those_of_the_preset() -> None:
    sets = ("train.lr=0.0005", "train.seed=7", "train.betas=[0.9,0.999]", "model.tie_embeddings=false")
    assert given(*sets, preset="small") == (
        "model.tie_embeddings = false (default: true), train.lr = 0.0005 (preset: 0.001), "
        "train.betas = [0.9, 0.999] (default: [0.9, 0.98]), train.seed = 7 (default: 1)"
    )
    assert given("model.dropout=0.1", preset="big") == "model.dropout = 0.1 (preset: 0.3)"


def test_settings_that_training_would_choose_are_listed_as_such() -> None:
    assert given("model.dropout=0.3", "train.batch_tokens=2048", "tokenizer.vocab_size=8000") == (
        "tokenizer.vocab_size = 8000 (default: automatic), model.dropout = 0.3 (default: automatic), "
        "train.batch_tokens = 2048 (default: automatic)"
    )


def test_the_preset_of_a_given_width_is_the_measure() -> None:
    assert given("model.d_model=96") == "model.d_model = 96 (preset: 128)"


def test_the_built_in_demo_has_its_own_defaults() -> None:
    assert describe_given(completed(build()), fine_tunes=False) == ""
    config = build(None, {}, ["model.dropout=0.2", "train.lr=0.001"])
    assert describe_given(completed(config), fine_tunes=False) == (
        "model.dropout = 0.2 (default: 0.05), train.lr = 0.001 (preset: 0.003)"
    )


@pytest.mark.parametrize("preset", [None, "tiny", "small", "base", "big"])
def test_pairs_languages_budget_and_unchanged_settings_are_not_listed(preset: str | None) -> None:
    paths = {"data.valid": "v.tsv", "data.test": "t.tsv", "data.src": "de", "data.tgt": "fr"}
    assert given("train.seed=1", preset=preset, **paths, **{"train.time": "1h", "train.max_steps": 9}) == ""


def test_the_settings_of_a_file_are_listed() -> None:
    config = completed(build(CONFIGS / "multi30k.toml"))
    text = describe_given(config, fine_tunes=False)
    assert "model.dropout = 0.2 (default: automatic)" in text
    assert "data." not in text


def test_a_long_list_is_cut_and_the_rest_counted() -> None:
    sets = [
        "model.d_ff=64", "model.dropout=0.2", 'model.norm="pre"', "model.tie_embeddings=false", "train.accumulate=2",
        "train.seed=2", "train.lr=1e-4", "train.eps=1e-8", "train.keep=1", "train.average=1", "decode.beam_size=2",
        "decode.length_penalty=1", "decode.max_extra=9",
    ]  # fmt: skip
    text = given(*sets, preset="tiny")
    assert text.count(" = ") == MAX_SETTINGS
    assert text.endswith(", and 3 more; see config.toml")
    assert "more; see" not in given(*sets[:MAX_SETTINGS], preset="tiny")


@pytest.mark.parametrize("is_model_known", [True, False])
def test_what_fine_tuning_takes_from_the_model_is_not_listed(is_model_known: bool) -> None:
    assert given_in_fine_tuning(is_model_known=is_model_known) == ""
    text = given_in_fine_tuning("train.lr=1e-4", "train.patience=3", is_model_known=is_model_known)
    assert text == "train.lr = 0.0001 (default: automatic), train.patience = 3 (default: automatic)"


def test_a_search_other_than_that_of_the_model_is_listed() -> None:
    assert given_in_fine_tuning("decode.beam_size=8", is_model_known=True) == "decode.beam_size = 8 (default: 6)"


def test_a_new_and_a_resumed_run_log_them(train_toy: Train, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "mtcli")
    for steps in (2, 4):
        caplog.clear()
        run = train_toy(tmp_path / "run", f"train.max_steps={steps}", "train.lr=0.002")
        (line,) = [message for message in caplog.messages if message.startswith("given: ")]
        assert "model.d_model = 16 (preset: 128)" in line
        assert line.endswith(f"and {len(TOY_SETTINGS) + 1 - MAX_SETTINGS} more; see config.toml")
    caplog.clear()
    train_toy(tmp_path / "tuned", "train.max_steps=2", init=run)
    (line,) = [message for message in caplog.messages if message.startswith("given: ")]
    assert "d_model" not in line
    assert "model.dropout = 0.2 (default: automatic)" in line


def test_a_run_without_given_settings_logs_no_such_line(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "mtcli")
    monkeypatch.setattr("mtcli.training.run.describe_given", lambda *_, **__: "")
    train_toy(tmp_path / "run", "train.max_steps=2")
    assert not [message for message in caplog.messages if message.startswith("given:")]
