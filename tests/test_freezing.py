"""Frozen parameters (`train.freeze`): no gradient, no optimizer state, and not one bit changed by training."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TOY_SETTINGS
from helpers.ranks import run_ranks
from safetensors import safe_open
from torch import Tensor
from typer.testing import CliRunner

from mtcli.cli import app
from mtcli.config.build import build
from mtcli.config.schema import Config, Freeze, ModelConfig
from mtcli.corpus.batching import Batch
from mtcli.errors import ModelError, UsageError
from mtcli.model.freezing import freeze_parameters
from mtcli.model.transformer import Transformer
from mtcli.report.memory_estimate import check_model_memory, count_parameters
from mtcli.report.run_record import read_run
from mtcli.runtime.distributed import Group
from mtcli.storage import checkpoint, model_file
from mtcli.training.defaults.speed import cost_share
from mtcli.training.dry_run import dry_run
from mtcli.training.gradients import Objective
from mtcli.training.learner import Learner
from mtcli.training.optimizer import clip_norm_
from mtcli.training.request import InitialModel
from mtcli.training.trainer import Trainer

Train = Callable[..., Path]
CPU = torch.device("cpu")
FROZEN: tuple[Freeze, ...] = ("embeddings", "encoder", "all-but-top")
DEEP = ("model.num_encoder_layers=2", "model.num_decoder_layers=2")
SHAPE = {"d_model": 8, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 3, "num_decoder_layers": 3}


@pytest.fixture(scope="module")
def deep_run(train_toy: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of a few steps of a model with two layers on each side."""
    return train_toy(tmp_path_factory.mktemp("runs") / "deep", *DEEP, "train.max_steps=10", "train.average=1")


def weights(path: Path) -> dict[str, Tensor]:
    return model_file.parameters(model_file.load_model(path)[0])


def model_of(freeze: Freeze, **settings: object) -> Transformer:
    torch.manual_seed(1)
    config = ModelConfig.model_validate({**SHAPE, **settings})
    model = Transformer(config, 20, 20, joint=config.tie_embeddings)
    freeze_parameters(model, freeze)
    return model


def frozen_names(model: Transformer) -> set[str]:
    return {name for name, parameter in model.named_parameters() if not parameter.requires_grad}


def names_below(model: Transformer, *prefixes: str) -> set[str]:
    return {name for name, _ in model.named_parameters() if name.startswith(prefixes)}


# ---- the model ----


@pytest.mark.parametrize(
    ("freeze", "prefixes"),
    [
        ("none", ()),
        ("embeddings", ("tgt_embedding", "src_embedding", "output")),
        ("encoder", ("tgt_embedding", "src_embedding", "output", "encoder")),
        ("all-but-top", ("tgt_embedding", "src_embedding", "output", "encoder", "decoder.0.", "decoder.1.")),
    ],
)
@pytest.mark.parametrize("settings", [{}, {"norm": "pre", "positions": "learned", "output_bias": True}])
def test_each_value_freezes_its_part(freeze: Freeze, prefixes: tuple[str, ...], settings: dict[str, object]) -> None:
    model = model_of(freeze, **settings)
    expected = names_below(model, *prefixes) if prefixes else set()
    assert frozen_names(model) == expected
    assert "decoder.2.feed_forward.w_2.weight" not in expected


def test_an_untied_output_projection_is_trained() -> None:
    model = model_of("all-but-top", tie_embeddings=False, output_bias=True)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {"output.weight", "output.bias"} <= trained
    assert {"tgt_embedding.tokens.weight", "src_embedding.tokens.weight"} <= frozen_names(model)


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("freeze", FROZEN)
def test_only_trainable_parameters_get_a_gradient_and_it_is_the_same(freeze: Freeze, bf16: bool) -> None:
    torch.manual_seed(2)
    src = torch.randint(4, 20, (3, 5))
    tgt = torch.randint(4, 20, (3, 6))
    batch = Batch(src, tgt, tgt.flatten(), torch.arange(tgt.numel()))
    gradients = []
    for value in (freeze, "none"):
        model = model_of(value, dropout=0.0, output_bias=True)
        Objective(model, 0.1, bf16)(batch)[0].backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
        assert gradients[-1].keys() == {name for name, p in model.named_parameters() if p.requires_grad}
    found, complete = gradients
    assert len(found) < len(complete)
    for name, gradient in found.items():
        assert torch.equal(gradient, complete[name]), name


@pytest.mark.parametrize("settings", [{}, {"norm": "pre", "positions": "learned"}, {"tie_embeddings": False}])
@pytest.mark.parametrize("freeze", FROZEN)
def test_trainable_parameters_are_counted_without_building_every_layer(
    freeze: Freeze, settings: dict[str, object]
) -> None:
    model = model_of(freeze, **settings)
    joint = model.config.tie_embeddings
    counted = count_parameters(model.config, 20, 20, joint=joint, freeze=freeze)
    assert counted == sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_the_cost_of_a_step_counts_its_matrix_products() -> None:
    model = ModelConfig.model_validate(SHAPE)
    encoder = 3 * (4 * 64 + 2 * 8 * 16)
    decoder = 3 * (8 * 64 + 2 * 8 * 16)
    output = 20 * 8
    whole = 3 * (encoder + decoder + output)
    shares = {
        "none": 1.0,
        "embeddings": (3 * encoder + 3 * decoder + 2 * output) / whole,
        "encoder": (encoder + 3 * decoder + 2 * output) / whole,
        "all-but-top": (encoder + decoder + 2 * decoder / 3 + 2 * output) / whole,
    }
    for freeze, share in shares.items():
        assert cost_share(model, 20, freeze) == pytest.approx(share)  # type: ignore[arg-type]


def test_less_memory_is_needed(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[float] = []
    monkeypatch.setattr("mtcli.report.memory_estimate.require", lambda n, *_: wanted.append(n))
    _, info, _ = model_file.load_model(toy_run)
    for freeze in ("none", *FROZEN):
        check_model_memory(info, CPU, freeze)
    parameters = sum(tensor.numel() for tensor in weights(toy_run).values())
    assert wanted[0] == 16 * parameters
    assert wanted == sorted(wanted, reverse=True)
    assert wanted[-1] > 4 * parameters


# ---- training ----


@pytest.mark.parametrize("freeze", FROZEN)
def test_training_leaves_frozen_parameters_bit_for_bit_as_they_were(
    freeze: Freeze, train_toy: Train, deep_run: Path, tmp_path: Path
) -> None:
    sets = (*DEEP, f"train.freeze={freeze}", "train.max_steps=15", "train.lr=1e-2", "train.weight_decay=0.1")
    run = train_toy(tmp_path / "run", *sets, "train.average=3", init=deep_run)
    before = weights(deep_run)
    model, _, _ = model_file.load_model(run)
    freeze_parameters(model, freeze)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    last = checkpoint.steps(run / "checkpoints")[-1]
    for folder in (run, last):
        changed = {name for name, tensor in weights(folder).items() if not torch.equal(tensor, before[name])}
        assert changed == trained
    with safe_open(last / "optimizer.safetensors", framework="pt") as file:
        assert {name.rpartition("/")[0] for name in file.keys()} == trained  # noqa: SIM118 - no mapping


def test_the_mean_of_checkpoints_has_the_frozen_parameters(train_toy: Train, deep_run: Path, tmp_path: Path) -> None:
    run = train_toy(tmp_path / "run", *DEEP, "train.freeze=encoder", "train.max_steps=15", init=deep_run)
    done = CliRunner().invoke(app, ["average", str(run), "-n", "3", "-o", str(tmp_path / "mean")])
    assert done.exit_code == 0, done.output
    before = weights(deep_run)
    mean = weights(tmp_path / "mean")
    for name in ("tgt_embedding.tokens.weight", "encoder.0.feed_forward.w_1.weight"):
        assert torch.equal(mean[name], before[name])
    assert not torch.equal(mean["decoder.0.feed_forward.w_1.weight"], before["decoder.0.feed_forward.w_1.weight"])


def test_a_resumed_run_ends_with_the_same_bits(
    train_toy: Train, deep_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = (*DEEP, "train.freeze=encoder", "train.max_steps=12", "train.average=1")
    straight = train_toy(tmp_path / "straight", *sets, init=deep_run)
    take_step = Trainer.step

    def killed(trainer: Trainer, *arguments: Any) -> Any:
        if trainer.session.state.step == 8:
            raise KeyboardInterrupt
        return take_step(trainer, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", killed)
        with pytest.raises(KeyboardInterrupt):
            train_toy(tmp_path / "run", *sets, init=deep_run)
    run = train_toy(tmp_path / "run", *sets)  # a resumed run needs no --init
    for name in ("model.safetensors", "optimizer.safetensors"):
        path = Path("checkpoints/step-00000012") / name
        assert (run / path).read_bytes() == (straight / path).read_bytes()


def test_the_norm_for_clipping_is_that_of_the_trainable_gradients(
    train_toy: Train, deep_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    norms = []

    def clipped(gradients: list[Tensor], *args: Any) -> Tensor:
        model, _, _ = model_file.load_model(deep_run)
        freeze_parameters(model, "all-but-top")
        assert [g.shape for g in gradients] == [p.shape for p in model.parameters() if p.requires_grad]
        expected = math.sqrt(sum(float(gradient.pow(2).sum()) for gradient in gradients))
        norm = clip_norm_(gradients, *args)
        norms.append((float(norm), expected))
        return norm

    monkeypatch.setattr("mtcli.training.learner.clip_norm_", clipped)
    train_toy(tmp_path / "run", *DEEP, "train.freeze=all-but-top", "train.max_steps=2", init=deep_run)
    assert len(norms) == 2
    for norm, expected in norms:
        assert norm == pytest.approx(expected, rel=1e-5)


def test_two_ranks_equal_one_that_accumulates_two_batches(
    toy_tsv: Path, train_toy: Train, toy_run: Path, tmp_path: Path
) -> None:
    settings = ("train.freeze=encoder", "train.lr=1e-3", "train.max_steps=6")
    one = train_toy(tmp_path / "one", *settings, "train.accumulate=2", init=toy_run)
    sets = [word for setting in (*TOY_SETTINGS, *settings) for word in ("--set", setting)]
    files = ["--train", str(toy_tsv), "--src", "en", "--tgt", "xx", "--out", str(tmp_path / "two")]
    results = run_ranks(2, "train", *files, "--init", str(toy_run), *sets)
    assert [result.code for result in results] == [0, 0], results
    ours = weights(tmp_path / "two/checkpoints/step-00000006")
    for name, tensor in weights(one / "checkpoints/step-00000006").items():
        assert torch.equal(ours[name], tensor), name


# ---- what is refused ----


def settings_of(tsv: Path, *sets: str) -> Config:
    values = {"data.train": [str(tsv)], "data.src": "en", "data.tgt": "xx", "train.max_steps": 20}
    return build(None, values, [*TOY_SETTINGS, *sets])


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_freezing_a_new_model_is_refused(toy_tsv: Path, tmp_path: Path, more: tuple[str, ...]) -> None:
    run = tmp_path / "run"
    line = ["train", "--train", str(toy_tsv), "--src", "en", "--tgt", "xx", "--out", str(run), "--device", "cpu"]
    done = CliRunner().invoke(app, [*line, "--set", "train.freeze=encoder", *more])
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == (
        "train.freeze = encoder: is for fine-tuning, and a new model needs all its parameters trained; "
        "name the model to start from with --init, or omit train.freeze"
    )
    assert not run.exists()


def test_an_unknown_value_is_refused_by_name(toy_tsv: Path) -> None:
    with pytest.raises(UsageError, match=r"train\.freeze = 'decoder'.*'encoder' or 'all-but-top'"):
        settings_of(toy_tsv, "train.freeze=decoder")


def test_starting_over_without_a_model_deletes_nothing(train_toy: Train, toy_run: Path, tmp_path: Path) -> None:
    run = train_toy(tmp_path / "run", "train.freeze=embeddings", "train.max_steps=5", init=toy_run)
    before = weights(run)
    with pytest.raises(UsageError, match="name the model to start from with --init"):
        train_toy(run, "train.freeze=embeddings", "train.max_steps=5", overwrite=True)
    assert weights(run).keys() == before.keys()


def test_another_value_is_refused_when_a_run_is_resumed(train_toy: Train, toy_run: Path, tmp_path: Path) -> None:
    run = train_toy(tmp_path / "run", "train.freeze=embeddings", "train.max_steps=5", init=toy_run)
    with pytest.raises(UsageError, match=r"another configuration \(train\.freeze: embeddings → encoder\)"):
        train_toy(run, "train.freeze=encoder", "train.max_steps=10")
    with pytest.raises(UsageError, match=r"another configuration \(train\.freeze: embeddings → none\)"):
        train_toy(run, "train.max_steps=10")


def test_moments_of_a_frozen_parameter_are_refused(toy_tsv: Path, toy_run: Path) -> None:
    complete = checkpoint.load(checkpoint.steps(toy_run / "checkpoints")[-1]).optimizer
    _, info, _ = model_file.load_model(toy_run)
    learner = Learner(settings_of(toy_tsv, "train.freeze=embeddings"), info, None, CPU, Group())  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"the optimizer's tgt_embedding\.tokens\.weight/exp_avg is not of this model"):
        learner.optimizer.set_state(complete)


# ---- the plan and the reports ----


def test_the_plan_and_the_reports_show_what_is_trained(train_toy: Train, toy_run: Path, tmp_path: Path) -> None:
    run = train_toy(tmp_path / "run", "train.freeze=encoder", "train.max_steps=5", init=toy_run)
    model, _, _ = model_file.load_model(run)
    freeze_parameters(model, "encoder")
    parameters = sum(p.numel() for p in model.parameters())
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    said = f"{parameters:,} parameters ({trainable:,} of them trained); 1 encoder"
    for name in ("README.md", "report.html"):
        text = (run / name).read_text()
        assert said in text
        assert "; the embeddings and the encoder are frozen" in text
    plan = read_run(run, "cpu").plan
    assert plan is not None
    assert (plan.parameters, plan.trainable) == (parameters, trainable)
    (path,) = checkpoint.steps(run / "checkpoints")[-1:]
    on_disk = sum((path / name).stat().st_size for name in ("model.safetensors", "optimizer.safetensors"))
    expected = 4 * parameters + 8 * trainable
    assert expected < on_disk < expected + 20_000  # names, shapes and step counts


def test_a_dry_run_estimates_the_frozen_training(toy_tsv: Path, toy_run: Path, tmp_path: Path) -> None:
    frozen = dict(
        dry_run(
            settings_of(toy_tsv, "train.freeze=all-but-top"), tmp_path / "run", CPU, init=InitialModel.load(toy_run)
        )
    )
    assert "of them trained); 1 encoder" in frozen["model"]
    assert frozen["model"].endswith("; all but the last decoder layer is frozen")
    complete = dict(dry_run(settings_of(toy_tsv), tmp_path / "run", CPU, init=InitialModel.load(toy_run)))
    assert "trained" not in complete["model"]
    assert "frozen" not in complete["model"]
    assert frozen["memory"] != complete["memory"]
    assert frozen["disk"] != complete["disk"]
