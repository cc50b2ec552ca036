"""Training, translating, scoring and explaining on the simulated CUDA device, compared with the CPU."""

import copy
import io
import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from conftest import TOY_SETTINGS, toy_pairs, write_tsv
from helpers.toy import TorchTranslator, toy
from simulated_cuda import Counts, counting, needs_simulated_cuda, run

from mtcli.config.build import build
from mtcli.config.schema import ModelConfig
from mtcli.explain.as_json import to_dict
from mtcli.explain.explanation import explain
from mtcli.model.transformer import TABLE_LENGTH, Transformer
from mtcli.runtime.device import pick_device
from mtcli.training.request import InitialModel
from mtcli.training.run import train
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.loading import load
from mtcli.translate.scoring import likelihoods
from mtcli.translate.translation import Options
from mtcli.translate.windows import Reading

pytestmark = needs_simulated_cuda


OFTEN = ["train.valid_every=4", "train.save_every=4", "train.average=2"]
EXACT = ["model.dropout=0", "train.accumulate=2"]
"""Settings of trainings that are compared: in float32 and without random numbers."""


def train_toy(folder: Path, name: str, sets: Sequence[str], init: str | None = None) -> Counts:
    """Train on the best device of this process, in a folder that has `toy.tsv`."""
    values = {"data.train": [str(folder / "toy.tsv")], "data.src": "en", "data.tgt": "xx"}
    settings = [*TOY_SETTINGS, *OFTEN, "decode.max_extra=3", *sets]
    with counting() as counts:
        train(
            build(None, values, settings),
            folder / name,
            pick_device("auto"),
            init=InitialModel.load(folder / init) if init else None,
        )
    return counts


def events(run_folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run_folder / "metrics.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def log_probs(folder: Path, name: str) -> tuple[str, list[float]]:
    """Return the device that `auto` chooses for a run, and the log-probabilities of three pairs under its model."""
    translator, _, _ = load([folder / name], "auto")
    assert isinstance(translator.backend, PyTorchBackend)
    found = likelihoods(translator.backend, toy_pairs(3), quiet=True)
    return translator.backend.device.type, [likelihood.log_prob for likelihood in found if likelihood]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of 8 steps, each of two batches: `simulated` and `cpu`, in float32 without dropout."""
    folder = tmp_path_factory.mktemp("cuda")
    write_tsv(folder / "toy.tsv", toy_pairs())
    shorter = [*EXACT, "train.max_steps=8"]
    run(train_toy, folder, "simulated", shorter)
    train_toy(folder, "cpu", shorter)
    return folder


def test_training_equals_that_on_the_cpu(folder: Path) -> None:
    on_device, on_cpu = (events(folder / name, "valid") for name in ("simulated", "cpu"))
    assert [event["step"] for event in on_device] == [4, 8]
    assert [event["loss"] for event in on_device] == pytest.approx([event["loss"] for event in on_cpu], rel=1e-5)
    (cuda, found), (cpu, expected) = run(log_probs, folder, "simulated"), log_probs(folder, "cpu")
    assert (cuda, cpu) == ("cuda", "cpu")
    assert found == pytest.approx(expected, rel=1e-4)


def test_resuming_equals_that_on_the_cpu(folder: Path) -> None:
    longer = [*EXACT, "train.max_steps=12"]
    run(train_toy, folder, "simulated", longer)
    train_toy(folder, "cpu", longer)
    on_device, on_cpu = (events(folder / name, "valid") for name in ("simulated", "cpu"))
    assert [event["step"] for event in on_device] == [4, 8, 12]
    assert [event["loss"] for event in on_device] == pytest.approx([event["loss"] for event in on_cpu], rel=1e-5)


def test_fine_tuning_in_bf16(folder: Path) -> None:
    """A model of the CPU is trained further on the device, with the defaults for a GPU."""
    counts = run(train_toy, folder, "tuned", ['train.precision="auto"', "train.max_steps=4"], init="cpu")
    first, last = (event["loss"] for event in events(folder / "tuned", "valid"))
    assert last < first
    assert {kernel.split()[1] for kernel in counts.attention} == {"bfloat16"}  # training and translating


BEAM = Options(max_length=12, precision="fp32")
SEARCHES = {
    "beam": BEAM,
    "wide beam": replace(BEAM, beam_size=9, n_best=3),  # its hypotheses do not share rows of the cache
    "greedy": replace(BEAM, beam_size=1),
    "prefix": replace(BEAM, prefix="uno rojo"),
    "greedy with a prefix": replace(BEAM, beam_size=1, prefix="uno", no_repeat_ngram=2),
    "n-grams": replace(BEAM, no_repeat_ngram=2),
    "sampling": replace(BEAM, sample=True, top_k=5, n_best=2),
    "sampling from all": replace(BEAM, sample=True, temperature=0.7),
    "alignments": replace(BEAM, alignments=True),
    "no early stopping": replace(BEAM, early_stopping=False, length_penalty=1.5),
    "minimum length": replace(BEAM, min_length=8),
    "shorter than any translation": replace(BEAM, max_length=2),
    "length in the source": replace(BEAM, max_length=None, max_extra=3),
}
LINES = ["red dog sees.", "", "big cat one sees red dog.", "one one one one one.", "cat.", "a word ☃ it does not know"]

Translated = list[list[tuple[str, float, Any]]]
"""Text, log-probability and alignment of each candidate of each line."""


def translated(translator: TorchTranslator, options: Options) -> Translated:
    translations = translator.translate(LINES, options, Reading(warn=False, quiet=True))
    return [[(c.text, c.log_prob, c.alignment) for c in found.candidates] for found in translations]


def translate_on_both() -> dict[str, tuple[Translated, Translated]]:
    """Return what each search finds on the device and on the CPU."""
    on_device = on_cuda(toy())
    found = {name: (translated(on_device, options), translated(toy(), options)) for name, options in SEARCHES.items()}
    ensembles = [ensemble_of(each) for each in (on_device, toy())]
    found["ensemble"] = (translated(ensembles[0], BEAM), translated(ensembles[1], BEAM))
    return found


def on_cuda(translator: TorchTranslator) -> TorchTranslator:
    return TorchTranslator(copy.deepcopy(translator.model).to("cuda"), translator.tokenizer, translator.longest_src)


def ensemble_of(translator: TorchTranslator) -> TorchTranslator:
    """Return an ensemble of a model and one with other weights."""
    other = copy.deepcopy(translator.model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter *= 1.05
    return TorchTranslator(translator.model, translator.tokenizer, translator.longest_src, others=[other])


def test_every_search_finds_the_translations_of_the_cpu() -> None:
    for name, (found, expected) in run(translate_on_both).items():
        for ours, theirs in zip(found, expected, strict=True):
            assert [(text, links) for text, _, links in ours] == [(text, links) for text, _, links in theirs], name
            assert [p for _, p, _ in ours] == pytest.approx([p for _, p, _ in theirs], abs=1e-4), name


def hidden_states(positions: Literal["sinusoidal", "learned"], length: int, device: str) -> torch.Tensor:
    """Return the decoder states of a model with random weights and 8 positions in its table."""
    torch.manual_seed(1)
    shape = ModelConfig(
        d_model=8, d_ff=8, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, positions=positions, max_positions=8
    )
    model = Transformer(shape, 10, 10, joint=True).eval()
    ids = torch.arange(2 * length).view(2, length) % 9 + 1
    with torch.no_grad():
        return model.to(device).hidden_states(ids.to(device), ids.to(device)).cpu()


def position_errors() -> list[float]:
    """Return the largest differences between the device and the CPU for kinds of positions."""
    beyond_the_table = TABLE_LENGTH + 2
    cases: list[tuple[Literal["sinusoidal", "learned"], int]] = [("learned", 12), ("sinusoidal", beyond_the_table)]
    pairs = [(hidden_states(*case, "cuda"), hidden_states(*case, "cpu")) for case in cases]
    return [float((found - expected).abs().max()) for found, expected in pairs]


def test_all_kinds_of_positions_equal_those_on_the_cpu() -> None:
    assert run(position_errors) == pytest.approx([0, 0], abs=1e-5)


def explain_on_both() -> list[dict[str, Any]]:
    """Explain a translation on the device and on the CPU."""
    return [
        to_dict(explain(each.backend, LINES[0], Options(), neighbours=True), 1, 1) for each in (on_cuda(toy()), toy())
    ]


def test_explaining_equals_that_on_the_cpu() -> None:
    found, expected = run(explain_on_both)
    assert found.keys() == expected.keys()
    assert found["translation"] == expected["translation"]


def bench_gpu() -> list[str]:
    """Run scripts/bench_gpu.py at a tiny size, and return what it prints."""
    from bench_gpu import main  # a script: only this test needs it

    output = io.StringIO()
    with redirect_stdout(output):
        main(["--tiny"])
    return output.getvalue().splitlines()


def test_the_benchmark_for_gpus_measures_all_its_parts() -> None:
    *text, last = run(bench_gpu)
    found = json.loads(last)
    assert set(found["step"]) == {"collate", "copy", "forward", "loss", "backward", "clip", "optimizer", "all"}
    assert found["training"]["base"] > 0
    assert found["training"]["big"] > 0
    assert set(found["decoding"]) == {"greedy", "beam 4"}
    assert found["attention"]["8 padding"]["flash"] is None  # flash attention takes no mask
    assert found["attention"]["8 padding"]["efficient"] > 0
    assert any("of the goal" in line for line in text)


def test_the_simulated_device_is_not_seen_here() -> None:
    assert not torch.cuda.is_available()
