import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from helpers.harness import run

from mtcli.corpus import demo
from mtcli.corpus.held_out import write_split
from mtcli.errors import ModelError, StorageError, UsageError
from mtcli.evaluation.evaluate import EvaluationRequest, evaluate, warnings_about
from mtcli.exchange.export import export
from mtcli.recipes.distill.request import Request, check
from mtcli.storage import checkpoint
from mtcli.storage.checkpoint import path_of
from mtcli.storage.model_file import load_model, mean_parameters, parameters
from mtcli.storage.tensors import Tensors, read_tensors
from mtcli.text.languages import Direction
from mtcli.training import averaging, validation
from mtcli.training.averaging import average_run
from mtcli.training.evaluator import Evaluator
from mtcli.translate.backends.pytorch import PyTorchBackend

Train = Callable[..., Path]


def events(run: Path, kind: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [event for event in found if event["event"] == kind]


def weights(folder: Path) -> Tensors:
    return read_tensors(folder / "model.safetensors")[0]


def test_mean_of_checkpoints(toy_run: Path) -> None:
    paths = checkpoint.steps(toy_run / "checkpoints")
    found = mean_parameters(paths)
    for name, tensor in found.items():
        expected = torch.stack([weights(path)[name].double() for path in paths]).mean(dim=0).float()
        torch.testing.assert_close(tensor, expected, rtol=1e-7, atol=0)
        assert tensor.dtype == weights(paths[0])[name].dtype
    for name, tensor in mean_parameters(paths[:1]).items():
        assert torch.equal(tensor, weights(paths[0])[name])


def test_average_run_makes_a_model(toy_run: Path, tmp_path: Path) -> None:
    steps = average_run(toy_run, tmp_path / "out", 2)
    assert steps == [15, 20]
    model, info, _ = load_model(tmp_path / "out")
    assert info.averaged == tuple(steps)
    assert info.step == steps[-1]
    expected = mean_parameters([path_of(toy_run / "checkpoints", step) for step in steps])
    assert all(torch.equal(tensor, expected[name]) for name, tensor in parameters(model).items())
    assert average_run(toy_run, tmp_path / "out", 2) == steps  # it may overwrite its own output


def test_the_best_checkpoints_are_those_of_the_best_validations(toy_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(toy_run, tmp_path / "run")
    assert [checkpoint.step_of(path) for path in checkpoint.steps(run / "checkpoints")] == [5, 10, 15, 20]

    def best(metric: str, n: int, *figures: tuple[float, float, float]) -> list[int]:
        """Average the best n checkpoints. The first ones have validations with these figures: BLEU, chrF and loss."""
        lines = [
            {"event": "valid", "step": step, "format": 2, "pairs": 200, "of": 200, "metric": metric}
            | {"bleu": bleu, "chrf": chrf, "loss": loss}
            for step, (bleu, chrf, loss) in zip((5, 10, 15), figures, strict=False)
        ]
        (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return average_run(run, tmp_path / "best", n, best=True)

    figures = ((20.0, 60.0, 1.0), (30.0, 50.0, 2.0), (10.0, 40.0, 3.0))
    assert best("combined", 1, *figures) == [5]  # the second is better by BLEU only
    assert best("combined", 2, *figures) == [5, 10]
    assert best("combined", 1, (20.0, 20.0, 2.0), (30.0, 30.0, 1.0), (10.0, 10.0, 3.0)) == [10]
    assert best("bleu", 1, *figures) == [10]
    assert best("loss", 1, (0.0, 0.0, 2.0), (0.0, 0.0, 1.0), (0.0, 0.0, 1.0)) == [15]  # of equal ones, the later
    with pytest.raises(ModelError, match="has 3 validated, whole checkpoints, and 4 are needed"):
        best("combined", 4, *figures)


def test_all_checkpoints_are_averaged_if_there_are_few(toy_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(toy_run, tmp_path / "run")
    steps = [checkpoint.step_of(path) for path in checkpoint.steps(run / "checkpoints")]
    assert 2 <= len(steps) < 5
    shutil.copytree(path_of(run / "checkpoints", 5), path_of(run / "checkpoints", 0))  # as fine-tuning has it
    assert average_run(run, tmp_path / "all") == steps
    for step in steps[:-1]:
        shutil.rmtree(path_of(run / "checkpoints", step))
    with pytest.raises(ModelError, match="has 1 whole checkpoint, and 2 are needed"):
        average_run(run, tmp_path / "one")
    with pytest.raises(ModelError, match="no run here"):
        average_run(tmp_path / "all", tmp_path / "none")


def test_average_run_refuses(toy_run: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="whole checkpoints, and 50 are needed"):
        average_run(toy_run, tmp_path / "out", 50)
    assert not (tmp_path / "out").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("dear")
    with pytest.raises(UsageError, match="holds no averaged model"):
        average_run(toy_run, tmp_path / "mine", 2)


def test_only_an_average_is_replaced(toy_run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "data").mkdir(parents=True)
    (mine / "data" / "test.jsonl").write_text("dear")
    with pytest.raises(UsageError, match="holds no averaged model"):
        average_run(toy_run, mine, 2)
    for name in ("model.safetensors", "tokenizer.json"):
        shutil.copy(toy_run / name, mine / name)
    with pytest.raises(UsageError, match="holds a model that is not an average"):
        average_run(toy_run, mine, 2)
    assert (mine / "data" / "test.jsonl").read_text() == "dear"
    (tmp_path / "average").mkdir()
    average_run(toy_run, tmp_path / "average", 2)
    assert average_run(toy_run, tmp_path / "average", 2)


def test_an_average_is_written_completely_or_not_at_all(
    toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> bytes:
        raise StorageError("the disk is full")

    out = tmp_path / "average"
    with monkeypatch.context() as context:
        context.setattr(averaging, "averaged_bytes", full)
        with pytest.raises(StorageError, match="full"):
            average_run(toy_run, out, 2)
    assert not out.exists()
    average_run(toy_run, out, 2)


def test_the_command_writes_a_model_that_eval_can_use(toy_run: Path, tmp_path: Path) -> None:
    done = run("average", toy_run, "-n", "2", "-o", "mean", cwd=tmp_path)
    assert (done.code, done.out) == (0, "")
    assert done.err.splitlines() == [
        "averaged 2 checkpoints (steps 15, 20) into mean",
        f"compare: mtcli eval --model {toy_run} --compare mean",
    ]
    assert run("eval", "--model", "mean", "--bleu", "-b", "1", cwd=tmp_path).out.startswith("BLEU = ")


def test_a_model_outside_of_its_run_is_scored_with_the_tokenizer_of_the_run(
    train_toy: Train, toy_run: Path, tmp_path: Path
) -> None:
    run = train_toy(tmp_path / "run", "train.max_steps=10", "train.bleu_tokenizer=char")
    average = tmp_path / "average"
    average_run(run, average)
    exported = tmp_path / "exported"
    export(average, "ctranslate2", exported)
    pairs = str(run / "data" / "test.jsonl")
    translations = tmp_path / "out.xx"
    translations.write_text("der\n")
    for model in (average, exported):
        request = EvaluationRequest((model,), model_is_named=True)
        finished = replace(request, hyp_file=str(translations), ref_files=(str(translations),))
        compared = replace(finished, other_file=str(translations))
        for each in (replace(request, pairs=pairs), finished, compared):
            (found,) = evaluate(each).directions
            (figure,) = found.comparison.differences if found.comparison else found.scores
            assert "|tok:char|" in figure.signature
    assert check(Request((average,), (pairs,))).bleu_tokenizer == "char"
    assert load_model(toy_run)[1].bleu_tokenizer is None


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set by how much the average, and then other models, are better, in BLEU and in tenths of the loss."""
    take_average = Evaluator.average
    validate = validation.validate
    gains = [(0.0, 0.0)]
    inside: list[bool] = []

    def average(self: Evaluator) -> None:
        inside.append(True)
        take_average(self)
        inside.clear()

    def measured(*arguments: object, **options: object) -> validation.Validation:
        found = validate(*arguments, **options)  # type: ignore[arg-type]
        better = gains[-1][0 if inside else 1]
        return replace(found, bleu=50.0 + better, loss=2.0 - 0.1 * better)

    monkeypatch.setattr(Evaluator, "average", average)
    monkeypatch.setattr(validation, "validate", measured)
    return lambda average, others=0.0: gains.append((average, others))


def test_a_better_mean_is_published_and_a_longer_run_must_beat_it(
    train_toy: Train, tmp_path: Path, scored: Callable[..., None]
) -> None:
    scored(+1.0)
    settings = ["train.average=3", "train.keep=1"]
    run = train_toy(tmp_path / "run", "train.max_steps=22", *settings)
    (event,) = events(run, "average")
    assert event["steps"] == [15, 20, 22]
    assert event["kept"] is True
    expected = mean_parameters([path_of(run / "checkpoints", step) for step in (15, 20, 22)])
    assert all(torch.equal(tensor, expected[name]) for name, tensor in weights(run).items())
    assert load_model(run)[1].averaged == (15, 20, 22)
    last = weights(path_of(run / "checkpoints", 22))
    assert any(
        not torch.equal(last[name], tensor) for name, tensor in expected.items()
    )  # training continued from its own weights, not from the mean

    (run / "model.safetensors").unlink()  # as if killed just before it was published
    train_toy(run, "train.max_steps=22", *settings)
    assert load_model(run)[1].averaged == (15, 20, 22)

    before = (run / "model.safetensors").read_bytes()
    scored(-1.0)
    train_toy(run, "train.max_steps=44", *settings)
    assert events(run, "average")[-1]["kept"] is False
    assert (run / "model.safetensors").read_bytes() == before
    train_toy(run, "train.max_steps=44", *settings)
    assert (run / "model.safetensors").read_bytes() == before

    scored(-1.0, +2.0)
    train_toy(run, "train.max_steps=50", *settings)
    assert load_model(run)[1].averaged == ()
    assert load_model(run)[1].step == 50


def test_a_mean_that_is_published_is_scored_on_the_test_pairs(
    train_toy: Train, tmp_path: Path, scored: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the best checkpoint is that of the last step, whose weights the model has."""
    found: list[Tensors] = []
    score_test = validation.score_test

    def noted(backend: PyTorchBackend, *more: object) -> validation.TestScores:
        found.append({name: tensor.clone() for name, tensor in parameters(backend.model).items()})
        return score_test(backend, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(validation, "score_test", noted)
    scored(+1.0)
    run = train_toy(tmp_path / "run", "train.max_steps=10", "train.average=2")
    assert load_model(run)[1].averaged == (5, 10)
    assert events(run, "end")[-1]["best_step"] == 10
    (tensors,) = found
    assert all(torch.equal(tensors[name], tensor) for name, tensor in weights(run).items())


def test_a_worse_mean_is_not_published(train_toy: Train, tmp_path: Path, scored: Callable[..., None]) -> None:
    scored(-1.0)
    run = train_toy(tmp_path / "run", "train.max_steps=20", "train.average=3")
    assert events(run, "average")[-1]["kept"] is False
    assert load_model(run)[1].averaged == ()
    assert events(run, "end")[-1]["averaged"] == []


def test_one_checkpoint_is_not_averaged(train_toy: Train, tmp_path: Path) -> None:
    run = train_toy(tmp_path / "run", "train.max_steps=10", "train.average=1")
    assert events(run, "average") == []


def test_eval_makes_no_remark_on_the_demo_s_pairs_whatever_folder_they_are_in(toy_run: Path, tmp_path: Path) -> None:
    """The folder of an average, like an export, does not say what its model was trained on."""
    out = tmp_path / "average"
    average_run(toy_run, out)
    request = EvaluationRequest((out,), model_is_named=True)
    few, low = warnings_about(evaluate(request))
    assert few.startswith("6 test pairs are too few")
    assert low.startswith("BLEU below 5")
    write_split(out, "test", {Direction("en", "xx"): demo.load().test[:30]})
    assert warnings_about(evaluate(request)) == []
