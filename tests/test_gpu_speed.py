"""Predictions of the speed on CUDA, and the share of validations and checkpoints that follows from them."""

from types import SimpleNamespace

import pytest
import torch

from mtcli.config.build import build
from mtcli.config.presets import Preset
from mtcli.config.schema import Config
from mtcli.runtime.device import UNKNOWN_GPU, Gpu, gpu_of
from mtcli.training.defaults.choose import with_defaults
from mtcli.training.defaults.speed import LAUNCH_SECONDS, LAUNCHES_PER_LAYER, steps_per_second
from mtcli.training.defaults.workload import Workload

H200 = Gpu(989e12, 4.8e12)
H100 = Gpu(989e12, 3.35e12)
A100 = Gpu(312e12, 1.555e12)
T4 = Gpu(8.1e12, 320e9)


def workload(gpu: Gpu, pairs: int = 4_500_000, valid: int = 3000, vocabulary: int = 37_000) -> Workload:
    return Workload(pairs, 30 * pairs, "cuda", valid=valid, tgt_vocab=vocabulary, gpu=gpu)


def asked(*sets: str, **options: object) -> Config:
    return build(None, {"data.train": ["x.tsv"], **options}, sets)


def tokens_per_second(preset: Preset, gpu: Gpu, batch_tokens: int = 25_000) -> float:
    config = asked(f"train.batch_tokens={batch_tokens}", preset=preset)
    return batch_tokens * steps_per_second(config, workload(gpu), config.model)


@pytest.mark.parametrize(
    ("preset", "gpu", "predicted"),
    [("base", H200, 440e3), ("base", H100, 440e3), ("big", H200, 245e3), ("big", H100, 210e3)],
    ids=["base on H200", "base on H100", "big on H200", "big on H100"],
)
def test_speeds_are_those_that_the_operations_of_a_step_predict(preset: Preset, gpu: Gpu, predicted: float) -> None:
    """Compare with the predictions of tests/cuda/predict.py, in target tokens without padding."""
    without_padding = 0.92
    assert without_padding * tokens_per_second(preset, gpu) == pytest.approx(predicted, rel=0.06)


def test_slower_gpus_are_expected_to_be_slower() -> None:
    speeds = [tokens_per_second("base", gpu) for gpu in (H200, H100, A100, UNKNOWN_GPU, T4)]
    assert speeds == sorted(speeds, reverse=True)
    assert 5e3 < speeds[-1] < 20e3


def test_a_small_batch_takes_the_time_of_its_launches() -> None:
    floor = 12 * LAUNCHES_PER_LAYER * LAUNCH_SECONDS
    assert tokens_per_second("base", H200, 1000) == pytest.approx(1000 / floor)
    assert tokens_per_second("big", H200, 12_500) < 0.95 * tokens_per_second("big", H200)  # docs/distributed.md


@pytest.mark.parametrize(
    ("major", "minor", "processors", "clock", "memory_clock", "width", "expected"),
    [
        (9, 0, 132, 1830, 3125, 6144, H200),
        (8, 0, 108, 1410, 1215, 5120, A100),
        (8, 6, 82, 1695, 9751, 384, Gpu(71e12, 936e9)),
        (7, 5, 40, 1590, 5001, 256, T4),
        (7, 0, 80, 1530, 877, 4096, Gpu(15.7e12, 900e9)),
    ],
    ids=["H200", "A100", "RTX 3090", "T4", "V100"],
)
def test_limits_are_those_of_the_data_sheets(
    monkeypatch: pytest.MonkeyPatch,
    major: int,
    minor: int,
    processors: int,
    clock: int,
    memory_clock: int,
    width: int,
    expected: Gpu,
) -> None:
    properties = SimpleNamespace(
        major=major,
        minor=minor,
        multi_processor_count=processors,
        clock_rate=1000 * clock,
        memory_clock_rate=1000 * memory_clock,
        memory_bus_width=width,
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert gpu_of(torch.device("cuda")) == pytest.approx(expected, rel=0.02)
    properties.major = 99
    assert gpu_of(torch.device("cuda")) == UNKNOWN_GPU


def test_a_gpu_without_reported_clocks_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert gpu_of(torch.device("cuda")) == UNKNOWN_GPU


VALIDATION_SECONDS = 7.0
"""A validation of 3,000 pairs on a GPU, as `GPU_VALIDATION_SECONDS` and `GPU_PAIR_SECONDS` predict it."""

SAVE_SECONDS = 0.2
"""The part of a save that stops the training of base: twice the predicted time."""


@pytest.mark.parametrize("faster", [1 / 3, 1.0, 3.0])
@pytest.mark.parametrize("max_steps", [60_000, 100_000, 300_000])
@pytest.mark.parametrize("preset", ["base", "big"])
def test_intervals_of_a_budget_of_steps_cost_less_than_5_percent(preset: Preset, max_steps: int, faster: float) -> None:
    known = workload(H200)
    config = with_defaults(asked(f"train.max_steps={max_steps}", preset=preset), known)
    seconds = max_steps / (faster * steps_per_second(config, known, config.model))
    cost = max_steps // config.train.valid_every * VALIDATION_SECONDS
    cost += max_steps // config.train.save_every * SAVE_SECONDS
    assert cost < 0.05 * (seconds + cost)
    assert max_steps // config.train.valid_every >= 2


def test_intervals_are_those_of_the_shape_that_is_trained() -> None:
    known = workload(H200)
    steps = "train.max_steps=300000"
    layers = ("model.num_encoder_layers=1", "model.num_decoder_layers=1")
    shallow = with_defaults(asked(steps, *layers, preset="base"), known)
    whole = with_defaults(asked(steps, preset="base"), known)
    assert shallow.train.save_every > whole.train.save_every  # its steps are faster


def test_a_run_of_minutes_is_validated_several_times_all_the_same() -> None:
    known = workload(H200, pairs=29_000, valid=1000, vocabulary=10_000)
    config = with_defaults(asked(), known)
    assert config.preset == "tiny"
    assert config.train.max_steps
    assert config.train.max_steps / steps_per_second(config, known, config.model) < 600
    assert 5 <= config.train.max_steps // config.train.valid_every <= 11
    assert config.train.max_steps // config.train.save_every >= 20
