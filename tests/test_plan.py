import json
import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import TOY_SETTINGS
from helpers.ranks import LAUNCHED
from typer.testing import CliRunner

from mtcli.cli import app
from mtcli.config.build import build
from mtcli.config.schema import Config, Freeze, ModelConfig
from mtcli.corpus.batching import BatchPlan
from mtcli.corpus.cache import prepare
from mtcli.errors import DataError, StorageError, UsageError
from mtcli.model.freezing import freeze_parameters
from mtcli.model.loss import CPU_CHUNK, projected_loss
from mtcli.model.transformer import Transformer
from mtcli.report.memory_estimate import activation_bytes, count_parameters
from mtcli.report.plan import Plan, describe_counts, size
from mtcli.report.run_record import read_run
from mtcli.storage import checkpoint, model_file
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.training.defaults import speed
from mtcli.training.dry_run import dry_run
from mtcli.training.request import InitialModel
from mtcli.training.run import train

Train = Callable[..., Path]
CPU = torch.device("cpu")


def kept_for_backward(config: ModelConfig, batch: tuple[int, int, int], V: int, freeze: Freeze = "none") -> int:
    """Return the bytes that autograd keeps after a forward pass, without the parameters."""
    B, S, T = batch
    model = Transformer(config, V, V, joint=True).train()
    freeze_parameters(model, freeze)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    held: dict[int, torch.Tensor] = {}  # keeps the tensors alive, so that no address is used twice

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            held[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    src, tgt = torch.randint(10, V, (B, S)), torch.randint(10, V, (B, T))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        hidden = model.decode(tgt, *model.encode(src))
        projected_loss(hidden.flatten(0, 1), model.output.weight, tgt.flatten(), 0.1)
    return sum(tensor.untyped_storage().nbytes() for tensor in held.values())


@pytest.mark.parametrize(
    ("settings", "batch"),
    [
        ({}, (64, 20, 24)),
        ({"dropout": 0.0, "num_decoder_layers": 1}, (16, 60, 30)),
        ({"num_heads": 2, "d_k": 16, "d_v": 48, "d_ff": 640}, (64, 12, 9)),
        ({}, (4, 160, 170)),  # long enough for the fused kernel
        ({"attention": "reference", "num_heads": 8}, (4, 160, 170)),
        ({"activation": "swish", "d_ff": 512}, (64, 20, 24)),
        ({"activation": "gelu", "d_ff": 512}, (64, 20, 24)),
    ],
)
def test_activation_bytes_agree_with_what_autograd_keeps(
    settings: dict[str, float], batch: tuple[int, int, int]
) -> None:
    config = ModelConfig.model_validate(settings)
    blocks = 8 * 500 * min(batch[0] * batch[2], CPU_CHUNK)  # logits, which are freed by then
    estimate = activation_bytes(config, batch, 500, bf16=False, on_cpu=True) - blocks
    assert estimate == pytest.approx(kept_for_backward(config, batch, 500), rel=0.03)


@pytest.mark.parametrize("freeze", ["embeddings", "encoder", "all-but-top"])
def test_activation_bytes_of_frozen_layers_agree_with_what_autograd_keeps(freeze: Freeze) -> None:
    batch = (64, 20, 24)
    blocks = 8 * 500 * CPU_CHUNK
    estimate = activation_bytes(ModelConfig(), batch, 500, bf16=False, on_cpu=True, freeze=freeze) - blocks
    assert estimate == pytest.approx(kept_for_backward(ModelConfig(), batch, 500, freeze), rel=0.05)


def settings_of(tsv: Path, *sets: str) -> Config:
    values = {"data.train": [str(tsv)], "data.src": "en", "data.tgt": "xx"}
    return build(None, values, [*TOY_SETTINGS, "train.max_steps=20", *sets])


def test_the_plan_agrees_with_training(toy_run: Path, toy_tsv: Path) -> None:
    config = settings_of(toy_tsv, "train.accumulate=2")
    data = prepare.prepared(config, toy_run)
    assert data
    batches = BatchPlan.of(config, data)
    plan = Plan.of(config, data, batches, CPU, ranks=3)
    model, info, _ = model_file.load_model(toy_run)
    assert (plan.parameters, plan.src_vocab) == (sum(p.numel() for p in model.parameters()), info.src_vocab)
    assert (plan.pairs, plan.batches) == (len(data.train), len(batches.block(0, 0).batches))
    assert plan.steps(config.train.accumulate) == plan.batches / 6
    assert plan.target_tokens == sum(data.train.lengths()[2] + 1)
    B, S, T = plan.largest
    assert B * max(S, T) <= config.train.batch_tokens
    assert plan.memory(config).moments == 8 * plan.parameters

    (path,) = checkpoint.steps(toy_run / "checkpoints")[-1:]
    on_disk = sum((path / name).stat().st_size for name in ("model.safetensors", "optimizer.safetensors"))
    assert 12 * plan.parameters < on_disk < 12 * plan.parameters + 20_000  # names, shapes and step counts
    assert json.loads(json.dumps(vars(plan)))["parameters"] == plan.parameters


def test_bf16_halves_the_memory_of_products_but_not_of_sums() -> None:
    config, batch = ModelConfig(dropout=0), (64, 20, 24)
    whole, half = (activation_bytes(config, batch, 500, bf16=bf16, on_cpu=False) for bf16 in (False, True))
    assert 0.5 * whole < half < 0.7 * whole


def test_a_dry_run_names_obstacles_to_export_and_a_finished_run(toy_run: Path, toy_tsv: Path, tmp_path: Path) -> None:
    rows = dict(dry_run(settings_of(toy_tsv, "model.norm=pre"), tmp_path / "run", CPU))
    assert rows["can go to"] == (
        "ctranslate2: yes; huggingface: no (model.norm = pre: the Marian architecture is post-norm); argos: yes"
    )
    rows = dict(dry_run(settings_of(toy_tsv), toy_run, CPU))
    larger = "a larger --time or --max-steps continues training"
    assert f"finished at step 20 (budget used): {larger}, --overwrite starts over" in rows["run folder"]
    assert rows["finish"] == f"it is finished; {larger}"
    from_scratch = dry_run(settings_of(toy_tsv), toy_run, CPU, overwrite=True)
    assert next(from_scratch)[1] == f"{toy_run} (holds a run, which --overwrite deletes)"


def test_a_dry_run_from_scratch_warns_of_few_pairs(
    toy_run: Path, toy_tsv: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings_of(toy_tsv)
    for run, init in ((toy_run, None), (tmp_path / "tuned", InitialModel.load(toy_run))):  # resumed; fine-tuned
        next(dry_run(config, run, CPU, init=init))
    assert caplog.messages == []
    next(dry_run(config, tmp_path / "new", CPU))
    (message,) = caplog.messages
    assert "far too few for a usable translator" in message


def test_a_dry_run_of_fine_tuning_describes_the_tokenizer_of_the_initial_model(
    train_toy: Train, toy_tsv: Path, tmp_path: Path
) -> None:
    sets = ("train.max_steps=1", "tokenizer.type=word", "tokenizer.joint=false", "tokenizer.vocab_size=290")
    initial = train_toy(tmp_path / "initial", *sets)
    rows = dict(dry_run(settings_of(toy_tsv), tmp_path / "run", CPU, init=InitialModel.load(initial)))
    tokenizer = Tokenizer.load(initial / "tokenizer.json")
    assert rows["vocabulary"] == f"{tokenizer.src_size} and {tokenizer.tgt_size} tokens (word, separate)"
    assert "huggingface: no (tokenizer.joint = false" in rows["can go to"]
    assert "argos: no (tokenizer.type = word" in rows["can go to"]


def test_the_disk_space_of_fine_tuning_includes_the_initial_model(
    train_toy: Train, toy_run: Path, toy_tsv: Path, tmp_path: Path
) -> None:
    sets = ("train.keep=1", "train.average=1")
    text = dict(dry_run(settings_of(toy_tsv, *sets), tmp_path / "new", CPU, init=InitialModel.load(toy_run)))["disk"]
    run = train_toy(tmp_path / "run", *sets, "train.max_steps=2", init=toy_run)
    plan = read_run(run, "").plan
    assert plan
    on_disk = sum(path.stat().st_size for path in (run / "checkpoints" / "step-00000000").iterdir())
    initial = 4 * plan.parameters
    assert initial < on_disk < initial + 20_000
    assert text == (
        f"model {size(initial)}; a checkpoint {size(3 * initial)}, at most 2 of them {size(6 * initial)}; "
        f"checkpoint 0, the initial model, {size(initial)}"
    )


def test_a_dry_run_prints_the_plan_and_writes_nothing(toy_tsv: Path, tmp_path: Path) -> None:
    sets = [part for setting in TOY_SETTINGS for part in ("--set", setting)]
    line = ["train", "--train", str(toy_tsv), "--src", "en", "--tgt", "xx", "--out", str(tmp_path / "run"), *sets]
    done = CliRunner().invoke(app, [*line, "--max-steps", "40", "--dry-run", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    names = [line[:12].strip() for line in done.stdout.splitlines()]
    assert names[:4] == ["run folder", "data", "settings", "model"]
    assert names[-2:] == ["speed", "finish"]
    assert "40 steps" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_dry_run_uses_the_data_of_an_existing_run_and_changes_nothing(
    train_toy: Train, toy_tsv: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = train_toy(tmp_path / "run", "train.max_steps=5", "train.warmup_steps=50")
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*")}
    caplog.clear()
    config = settings_of(toy_tsv, "train.time=1h", "train.warmup_steps=50")
    rows = dict(dry_run(config, run, CPU))
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*")} == before
    assert "finished at step 5 (budget used): the same command resumes it" in rows["run folder"]
    assert "about 20 steps in all" in rows["finish"]
    assert "with 2 validations" in rows["finish"]
    assert "the warm-up alone is 50 steps" in rows["finish"]  # of 20
    assert "to prepare" not in caplog.text
    assert rows["data"] == "300 pairs read: 288 to train on, 6 validation, 6 test"
    assert "20 steps" in rows["budget"]
    assert "1:00:00" in rows["budget"]


def test_a_dry_run_refuses_what_training_would(
    toy_tsv: Path, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match=r"nowhere\.tsv"):
        next(dry_run(settings_of(tmp_path / "nowhere.tsv"), tmp_path / "run", CPU))
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="without torchrun"):
        next(dry_run(settings_of(toy_tsv), tmp_path / "run", CPU))
    monkeypatch.delenv("WORLD_SIZE")
    with pytest.raises(UsageError, match=r"another configuration \(model\.dropout"):
        next(dry_run(settings_of(toy_tsv, "model.dropout=0.3"), toy_run, CPU))
    assert next(dry_run(settings_of(toy_tsv, "model.dropout=0.3"), toy_run, CPU, overwrite=True))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    for overwrite in (False, True):
        with pytest.raises(UsageError, match=r"photos: holds cat\.jpg, which is not part of an mtcli run"):
            next(dry_run(settings_of(toy_tsv), tmp_path / "photos", CPU, overwrite=overwrite))


def test_counts_and_sizes_in_words() -> None:
    counts = {"read": 1204, "train": 1000, "valid": 100, "test": 100, "skipped": {"one side empty": 4}}
    assert describe_counts(counts) == (
        "1,204 pairs read: 1,000 to train on, 100 validation, 100 test; 4 skipped: one side empty"
    )
    assert [size(n) for n in (7, 6.58e6, 999_600, 2.179e9)] == ["7 bytes", "6.58 MB", "1 MB", "2.18 GB"]


@pytest.mark.parametrize("settings", [{}, {"norm": "pre", "positions": "learned"}, {"tie_embeddings": False}])
@pytest.mark.parametrize("joint", [True, False])
def test_parameters_are_counted_without_building_every_layer(settings: dict[str, object], joint: bool) -> None:
    shape = {"d_model": 16, "d_ff": 24, "num_heads": 2, "num_encoder_layers": 3, "num_decoder_layers": 5}
    config = ModelConfig.model_validate(shape | settings)
    model = Transformer(config, 30, 30 if joint else 40, joint=joint)
    counted = count_parameters(config, 30, 30 if joint else 40, joint=joint)
    assert counted == sum(p.numel() for p in model.parameters())


def test_a_model_that_cannot_fit_is_refused_before_it_is_built(toy_tsv: Path, tmp_path: Path) -> None:
    widest = ("model.d_model=65536", "model.num_encoder_layers=1000", "model.num_decoder_layers=1000")
    rows = dry_run(settings_of(toy_tsv, *widest), tmp_path / "run", CPU)
    with pytest.raises(StorageError, match=r"needs about .* GB of memory, .* GB are free"):
        list(rows)
    with pytest.raises(StorageError, match=r"a model of [0-9,]+ parameters needs about .* GB of memory"):
        train(settings_of(toy_tsv, *widest), tmp_path / "run", CPU)


def test_one_step_and_one_core_are_named_in_the_singular(
    toy_tsv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtcli.training.dry_run.MAX_TIMED_STEPS", 1)
    monkeypatch.setattr("mtcli.runtime.device.usable_cores", lambda: 1)
    rows = dict(dry_run(settings_of(toy_tsv), tmp_path / "run", CPU))
    assert rows["speed"].endswith(": 1 step of a throwaway model on cpu (1 core)")


def test_a_slow_step_is_timed_on_less_data_or_estimated(
    toy_tsv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtcli.training.dry_run.MAX_TIMED_STEPS", 2)
    monkeypatch.setattr("mtcli.training.dry_run.MAX_TIMED_SECONDS", math.inf)
    config = settings_of(toy_tsv, "train.accumulate=100000", "train.max_steps=1000000000")
    rows = dict(dry_run(config, tmp_path / "run", CPU))
    timed = re.search(r"2 steps of a throwaway model with (\d+) tokens each", rows["speed"])
    assert timed is not None
    assert 128 < int(timed[1]) <= 256  # one full batch of many
    assert rows["finish"].startswith("in more than 10 years: about 1,000,000,000 steps")
    monkeypatch.setitem(speed.SPEED, "cpu", 1e3)
    rows = dict(dry_run(config, tmp_path / "run", CPU))
    assert "an estimate from the number of parameters" in rows["speed"]
