"""Distillation: the size of the student, the commands of the stages, interruptions, and the comparison."""

import json
import logging
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from helpers.harness import mtcli
from helpers.toy import PAIRS, SEVERAL_PAIRS, TorchTranslator, save_toy, several_toy, toy

from mtcli.cli import app
from mtcli.config.schema import ModelConfig
from mtcli.corpus.held_out import write_split
from mtcli.errors import DataError, MtcliError, StageError, UsageError
from mtcli.exchange.export import export
from mtcli.model.transformer import Transformer
from mtcli.recipes import recipe as module
from mtcli.recipes.distill import student_shape
from mtcli.recipes.distill.request import Request, check
from mtcli.recipes.distill.run import SystemComparison, SystemFigures, distill, distillation_of, plan
from mtcli.recipes.distill.stages import STUDENT
from mtcli.recipes.distill.student_shape import (
    Usage,
    Vocabulary,
    largest,
    latency,
    nearest_preset,
    student_shapes,
    within_latency,
    within_parameters,
)
from mtcli.recipes.recipe import STATE, Stage
from mtcli.report.memory_estimate import count_parameters
from mtcli.storage.model_file import load_model
from mtcli.text.languages import Direction
from mtcli.text.tokenizer.learning import train_tokenizer, train_tokenizer_on_lines
from mtcli.text.tokenizer.tokenizer import Tokenizer

SMALL = (
    "model.d_model=16", "model.d_ff=16", "model.num_heads=2", "model.num_encoder_layers=1",
    "model.num_decoder_layers=1", "train.batch_tokens=512", "train.warmup_steps=5", "train.valid_every=20",
    "train.save_every=20", "train.engine=false", 'train.precision="fp32"',
)  # fmt: skip
VOCABULARY = Vocabulary(1000, 1000, joint=True)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    (folder / "data").mkdir()
    write_split(folder, "valid", {Direction("en", "es"): PAIRS[:20]})
    write_split(folder, "test", {Direction("en", "es"): PAIRS[20:50]})
    return save_toy(folder)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("".join(f"{src}\t{tgt}\n" for src, tgt in PAIRS), encoding="utf-8")
    return path


def run_here(stage: Stage, while_waiting: object = None) -> str:
    """Run a command in this process, in which PyTorch is imported already."""
    app(list(stage.arguments), standalone_mode=False)
    return ""


def run_and_fail_at(name: str) -> object:
    def run(stage: Stage, while_waiting: object = None) -> str:
        if stage.name == name:
            raise KeyboardInterrupt
        return run_here(stage)

    return run


def test_the_largest_student_within_a_number_of_parameters() -> None:
    sizes = [count_parameters(shape, 1000, 1000, joint=True) for shape in student_shapes()]
    assert sizes == sorted(set(sizes))
    for number in (1, 4):
        assert within_parameters(sizes[number], VOCABULARY) == student_shapes()[number]
        assert within_parameters(sizes[number] - 1, VOCABULARY) == student_shapes()[number - 1]
    with pytest.raises(UsageError, match=rf"the smallest student has {sizes[0]:,}"):
        within_parameters(sizes[0] - 1, VOCABULARY)


def test_the_largest_student_within_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[ModelConfig] = []

    def seconds(shape: ModelConfig, vocabulary: Vocabulary, usage: Usage) -> float:
        measured.append(shape)
        return shape.d_model / 1000

    monkeypatch.setattr(student_shape, "latency", seconds)
    usage = Usage(10, 10, 1)
    assert within_latency(0.2, VOCABULARY, usage).d_model == 192
    assert len(measured) < len(student_shapes()) / 2
    with pytest.raises(UsageError, match="--latency 5ms: the smallest student takes longer"):
        within_latency(0.005, VOCABULARY, usage)


@pytest.mark.parametrize("last", range(-1, 7))
def test_largest_finds_the_last_that_meets_a_condition(last: int) -> None:
    shapes = student_shapes()[:7]
    found = largest(shapes, lambda shape: shapes.index(shape) <= last)
    assert found == (shapes[last] if last >= 0 else None)


def test_the_latency_of_a_shape_is_measured() -> None:
    assert latency(student_shapes()[0], Vocabulary(300, 320, joint=False), Usage(5, 6, 1)) > 0


def test_the_nearest_preset_decides_the_learning_rate() -> None:
    assert [nearest_preset(ModelConfig(d_model=width)) for width in (64, 160, 256, 448, 1024)] == [
        "tiny", "tiny", "small", "base", "big",
    ]  # fmt: skip


def test_the_commands_of_the_stages(teacher: Path, pairs: Path, tmp_path: Path) -> None:
    mono = tmp_path / "mono.en"
    mono.write_text("one dog.\n")
    request = Request(
        (teacher, teacher), (f"{pairs}@2", str(pairs)), mono_src=mono, keep_pairs=True, parameters=1_000_000,
        max_steps=20, sets=("train.seed=2",), out=tmp_path / "out", device="cpu",
    )  # fmt: skip
    found = plan(request)
    names = "clean 1, translate 1, clean 2, translate 2, translate text, student, export, export teacher 1, "
    assert ", ".join(stage.name for stage in found) == names + "export teacher 2"
    _, translate, _, _, text, student, *_ = found
    out = tmp_path / "out"
    assert translate.arguments[:6] == ("augment", "--model", str(teacher), "--model", str(teacher), "--forward")
    assert translate.arguments[6:10] == ("-i", f"{out}/pairs-1.en", "-o", f"{out}/translated-1.tsv")
    assert text.arguments[6:8] == ("-i", f"{out}/text.en")
    corpora = [student.arguments[i + 1] for i, word in enumerate(student.arguments) if word == "--train"]
    assert corpora == [
        f"{out}/translated-1.tsv@2", f"{out}/pairs-1@2", f"{out}/translated-2.tsv", f"{out}/pairs-2",
        f"{out}/translated-text.tsv",
    ]  # fmt: skip
    assert {"model.d_model=64", "decode.beam_size=1", "train.seed=2"} <= set(student.arguments)
    assert str(teacher / "data" / "valid.jsonl") in student.arguments
    assert not out.exists()


def student_of(request: Request) -> tuple[list[str], ModelConfig | None]:
    """Return the settings of the tokenizer in the student's training, and the student's shape."""
    distillation = distillation_of(request, check(request), Path("out"), None)
    student = next(stage for stage in distillation.stages() if stage.name == "student")
    return [word for word in student.arguments if word.startswith("tokenizer.")], distillation.shape


def test_the_student_has_the_tokenizer_of_its_teacher(teacher: Path, pairs: Path, tmp_path: Path) -> None:
    size = Tokenizer.load(teacher / "tokenizer.json").tgt_size
    fits = within_parameters(300_000, Vocabulary(size, size, joint=True))
    settings, shape = student_of(Request((teacher,), (str(pairs),), parameters=300_000))
    assert settings == [f"tokenizer.file={teacher / 'tokenizer.json'}"]
    assert shape == fits
    given = tmp_path / "given.json"
    words = ["".join(letters) for letters in product("abcdefghijklmno", repeat=3)]
    train_tokenizer_on_lines(words * 2, kind="word", vocab_size=3000).save(given)
    sets = (f"tokenizer.file={given}",)
    settings, shape = student_of(Request((teacher,), (str(pairs),), parameters=300_000, sets=sets))
    assert settings == [*sets]
    assert shape == within_parameters(300_000, Vocabulary(3000, 3000, joint=True))
    assert shape != fits


@pytest.mark.parametrize("setting", ["tokenizer.vocab_size=3000", "tokenizer.type=word", "data.placeholders=true"])
def test_the_student_trains_a_tokenizer_if_it_needs_another_one(teacher: Path, pairs: Path, setting: str) -> None:
    size = Tokenizer.load(teacher / "tokenizer.json").tgt_size
    settings, shape = student_of(Request((teacher,), (str(pairs),), parameters=300_000, sets=(setting,)))
    wanted = 3000 if "vocab_size" in setting else size
    assert settings[:3] == [f"tokenizer.vocab_size={size}", "tokenizer.type=bpe", "tokenizer.joint=true"]
    assert settings[3:] == [setting][: setting.startswith("tokenizer.")]
    assert shape == within_parameters(300_000, Vocabulary(wanted, wanted, joint=True))


def test_the_size_of_a_student_follows_from_its_other_settings(teacher: Path, pairs: Path) -> None:
    size = Tokenizer.load(teacher / "tokenizer.json").tgt_size
    tied, untied = (ModelConfig(tie_embeddings=tie) for tie in (True, False))
    smallest = count_parameters(student_shapes(untied)[0], size, size, joint=True)
    assert smallest < count_parameters(student_shapes(tied)[1], size, size, joint=True)
    sets = ("model.tie_embeddings=false",)
    _, shape = student_of(Request((teacher,), (str(pairs),), parameters=smallest, sets=sets))
    assert shape == student_shapes(untied)[0]
    with pytest.raises(UsageError, match=f"the smallest student has {smallest:,}"):
        student_of(Request((teacher,), (str(pairs),), parameters=smallest - 1, sets=sets))


@pytest.mark.parametrize("number", [1, 2])
def test_a_student_larger_than_its_teachers_causes_a_warning(
    teacher: Path, pairs: Path, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(student_shape, "latency", lambda *_: 0.0)
    weights = count_parameters(toy().model.config, toy().tokenizer.src_size, toy().tokenizer.tgt_size, joint=True)
    request = Request((teacher,) * number, (str(pairs),), sets=SMALL)
    student_of(request)
    assert "more than" not in caplog.text
    student_of(replace(request, sets=(), latency=1.0))
    name = "its teacher" if number == 1 else "its teachers together"
    assert f"parameters, more than {name} ({number * weights:,}); --parameters N" in caplog.text
    caplog.clear()
    student_of(replace(request, sets=(), preset="base"))
    assert f"more than {name}" in caplog.text


def test_the_student_learns_the_placeholders_of_its_teacher(teacher: Path, pairs: Path, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(PAIRS, placeholders=True)
    model = Transformer(toy().model.config, tokenizer.src_size, tokenizer.tgt_size, joint=True)
    with_tokens = save_toy(shutil.copytree(teacher, tmp_path / "teacher"), TorchTranslator(model.eval(), tokenizer, 64))
    for folder, sets, expected in (
        (teacher, (), []),
        (with_tokens, (), ["data.placeholders=true"]),
        (with_tokens, ("data.placeholders=false",), ["data.placeholders=true", "data.placeholders=false"]),
    ):
        found = plan(Request((folder,), (str(pairs),), sets=sets))
        student = next(stage for stage in found if stage.name == "student")
        assert [word for word in student.arguments if word.startswith("data.")] == expected


def test_the_link_to_the_run_trained_last_is_no_teacher(
    teacher: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    Path("runs/latest").symlink_to("ende")
    Path("runs/ende").symlink_to(teacher)
    with pytest.raises(UsageError, match="name the run: --teacher runs/ende"):
        plan(Request((Path("runs/latest"),), (str(pairs),)))
    assert plan(Request((Path("runs/ende"),), (str(pairs),)))


def test_a_checkpoint_is_a_teacher_with_the_files_of_its_run(teacher: Path, pairs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    step = run / "checkpoints" / "step-00000020"
    step.mkdir(parents=True)
    (step / "manifest.json").write_text("{}")
    shutil.copy(teacher / "model.safetensors", step)
    shutil.copy(teacher / "tokenizer.json", run)
    shutil.copytree(teacher / "data", run / "data")
    (run / "config.toml").write_text('train.bleu_tokenizer = "char"\n')
    found = check(Request((step,), (str(pairs),)))
    assert found.bleu_tokenizer == "char"
    assert found.tokenizer_file == run / "tokenizer.json"
    assert found.data.test == str(run / "data" / "test.jsonl")


def test_other_files_near_a_teacher_are_not_those_of_its_run(
    teacher: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(teacher / "data", "data")
    Path("runs/model").mkdir(parents=True)
    model = save_toy(Path("runs/model"))
    with pytest.raises(UsageError, match="--valid: there are no valid pairs beside"):
        check(Request((model,), (str(pairs),)))


def test_an_exported_teacher_is_measured_as_it_is(
    teacher: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = tmp_path / "exported"
    export(teacher, "ctranslate2", exported)
    monkeypatch.chdir(tmp_path)
    held_out = (str(teacher / "data" / "valid.jsonl"),)
    request = Request((exported,), (str(pairs),), held_out, held_out, sets=("train.bleu_tokenizer=char",))
    found = plan(request)
    assert [stage.name for stage in found] == ["clean 1", "translate 1", "student", "export"]
    assert "train.bleu_tokenizer=char" in found[2].arguments
    distillation = distillation_of(request, check(request), Path("out"), None)
    assert [system.models for system in distillation.systems()] == [(exported,), (Path("out/student-int8"),)]


def test_an_exported_teacher_translates_the_pairs(
    teacher: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = tmp_path / "exported"
    export(teacher, "ctranslate2", exported)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "run_command", run_and_fail_at("student"))
    held_out = (str(teacher / "data" / "valid.jsonl"),)
    for number, model in enumerate((teacher, exported)):
        with pytest.raises(KeyboardInterrupt):
            distill(Request((model,), (str(pairs),), held_out, held_out, out=Path(f"out-{number}")))
    texts = [Path(f"out-{number}/translated-1.tsv").read_text(encoding="utf-8") for number in range(2)]
    rows = [[line.split("\t")[:2] for line in text.splitlines()] for text in texts]
    assert len(rows[0]) > 20
    assert rows[0] == rows[1]
    about = json.loads((exported / "mtcli.json").read_text())
    about["model"]["decode"]["beam_size"] = 2
    (exported / "mtcli.json").write_text(json.dumps(about))
    with pytest.raises(UsageError, match="differs in --teacher"):
        distill(Request((exported,), (str(pairs),), held_out, held_out, out=Path("out-1")))


def test_pairs_that_change_while_the_command_runs_are_reported(
    teacher: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(pairs, "more.tsv")
    shutil.copy(teacher / "data" / "valid.jsonl", "valid.jsonl")
    Path("text.en").write_text("one dog.\n")
    request = Request((teacher,), (str(pairs), "more.tsv"), ("valid.jsonl",), mono_src=Path("text.en"), sets=SMALL)
    monkeypatch.setattr(module, "run_command", run_and_fail_at("student"))
    with pytest.raises(KeyboardInterrupt):
        distill(replace(request, out=Path("expected")))

    def run(stage: Stage, while_waiting: object = None) -> str:
        if stage.name == "translate 1":
            changed.write_bytes(content.replace(b"dog", b"cat"))
        return run_and_fail_at("student")(stage)

    for changed in (Path("more.tsv"), Path("valid.jsonl"), Path("text.en")):
        content = changed.read_bytes()
        monkeypatch.setattr(module, "run_command", run)
        with pytest.raises(DataError, match=rf"^{changed}: was changed while this command runs; restore it"):
            distill(replace(request, out=Path("out")))
        changed.write_bytes(content)
        monkeypatch.setattr(module, "run_command", run_and_fail_at("student"))
        with pytest.raises(KeyboardInterrupt):
            distill(replace(request, out=Path("out")))
        results = [path.relative_to("expected") for path in Path("expected").rglob("*.*") if path.name != STATE]
        assert len(results) > 5
        assert all((Path("out") / path).read_bytes() == (Path("expected") / path).read_bytes() for path in results)
        shutil.rmtree("out")


def test_a_report_that_could_not_be_written_is_written_by_the_next_command(
    teacher: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request((teacher,), (str(pairs),), max_steps=20, sets=SMALL, out=tmp_path / "out")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "run_command", run_here)
    with monkeypatch.context() as patched:
        patched.setattr("mtcli.recipes.distill.run.write_report", lambda *_: False)
        distill(request)
    card = tmp_path / "out" / "student" / "README.md"
    assert "mtcli distill" not in card.read_text()
    distill(request)
    assert "mtcli distill" in card.read_text()
    card.unlink()
    distill(request)
    assert not card.exists()


def test_wrong_requests_are_refused_before_any_work(teacher: Path, pairs: Path, tmp_path: Path) -> None:
    train = (str(pairs),)
    out = tmp_path / "out"
    bare = tmp_path / "bare"
    bare.mkdir()
    wrong: list[tuple[Request, type[MtcliError], str]] = [
        (Request((teacher,), train, preset="tiny", parameters=9, out=out), UsageError, "--preset and --parameters"),
        (Request((teacher,), train, sets=("model.width=9",), out=out), UsageError, "model.width"),
        (Request((teacher,), train, parameters=9, out=out / "new"), UsageError, "the smallest student has"),
        (Request((save_toy(bare),), train, out=out), UsageError, "--valid: there are no valid pairs"),
        (Request((teacher,), (str(tmp_path / "none.tsv"),), out=out), DataError, "none.tsv"),
        (Request((teacher,), train, out=teacher), UsageError, "belongs to"),
        (Request((teacher,), train, out=out, device="gpu"), UsageError, "--device gpu: choose from"),
        (Request((teacher,), train, sets=("train.max_steps=9",), out=out), UsageError, "give train.max_steps by the"),
        (Request((teacher,), train, sets=("data.src=de",), out=out), UsageError, "languages are those of the teacher"),
        (Request((teacher,), train, sets=("model.d_k=16",), out=out), UsageError, "cannot be exported to CTranslate2"),
        (Request((teacher,), train, parameters=10**6, sets=("model.d_ff=512",), out=out), UsageError, "--parameters c"),
        (Request((teacher,), train, latency=0.01, sets=("model.d_k=32",), out=out), UsageError, "--latency chooses"),
    ]
    for request, kind, message in wrong:
        with pytest.raises(kind, match=message):
            distill(request)
    assert not out.exists()
    with pytest.raises(DataError, match=r"none\.tsv: no such file"):
        plan(Request((teacher,), (str(tmp_path / "none.tsv"),), out=out))


def test_an_interrupted_distillation_gives_the_same_student(
    teacher: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    weights = []
    for name, interrupted_at in (("whole", []), ("parts", ["translate 1", "student", "export"])):
        request = Request((teacher,), (str(pairs),), max_steps=20, sets=SMALL, out=Path(name))
        for stage in interrupted_at:
            monkeypatch.setattr(module, "run_command", run_and_fail_at(stage))
            with pytest.raises(KeyboardInterrupt):
                distill(request)
        monkeypatch.setattr(module, "run_command", run_here)
        found, student = distill(request)
        assert student == Path(name, "student")
        weights.append(Path(name, "student", "model.safetensors").read_bytes())
        assert found.pairs == 30
        assert [result.name for result in found.results] == [f"teacher {teacher}, int8", "student, int8"]
        assert found.results[0].bytes > found.results[1].bytes
        assert Path(name, "student", "tokenizer.json").read_bytes() == (teacher / "tokenizer.json").read_bytes()
    assert weights[0] == weights[1]
    sources = {line.split("\t")[0] for line in Path("whole/translated-1.tsv").read_text().splitlines()[1:]}
    assert not sources & {src for src, _ in PAIRS[:50]}
    assert distill(request)[0] == found  # nothing runs again
    assert Path("runs/latest").resolve() == Path("parts/student").resolve()
    card = Path("whole/student/README.md").read_text(encoding="utf-8")
    assert "# whole: en → es\n" in card
    assert f"`mtcli distill` trained this student on translations by `{teacher}`." in card
    assert re.search(r"^- `whole/translated-1\.tsv`: .*, 100% of an epoch, synthetic$", card, re.MULTILINE)
    assert f"\nmtcli augment --model {teacher} --forward " in card
    sets = [word for setting in SMALL for word in ("--set", setting)]
    command = ["distill", "--teacher", str(teacher), "--train", str(pairs), "--max-steps", "20", *sets]
    app([*command, "--out", "whole"], standalone_mode=False)
    assert Path("runs/latest").resolve() == Path("parts/student").resolve()  # there is no new model
    assert json.loads(Path("whole", STATE).read_text())["stages"]["student"]["seconds"] > 0


def test_a_teacher_whose_translations_are_all_dropped_is_reported(
    teacher: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(stage: Stage, while_waiting: object = None) -> str:
        arguments = list(stage.arguments)
        if stage.name.startswith("translate"):
            arguments += ["--keep", "0"]
        app(arguments, standalone_mode=False)
        return ""

    monkeypatch.setattr(module, "run_command", run)
    (tmp_path / "mono.en").write_text("one bird sings.\n")
    request = Request((teacher,), (str(pairs),), mono_src=tmp_path / "mono.en", out=tmp_path / "out")
    for _ in range(2):  # again when the stages that translate have ended
        with pytest.raises(DataError, match=r"translated-1\.tsv, \S+/translated-text\.tsv: no pair for the student"):
            distill(request)
    assert not (tmp_path / "out" / "student").exists()


def test_a_student_with_other_options_is_to_be_deleted_first(
    teacher: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def run(stage: Stage, while_waiting: object = None) -> str:
        if stage.name == STUDENT:
            Path("out/student").mkdir(parents=True, exist_ok=True)
            raise StageError(stage.name, UsageError.exit_code)
        return run_here(stage)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "run_command", run)
    with pytest.raises(StageError):
        distill(Request((teacher,), (str(pairs),), max_steps=20, sets=SMALL, out=Path("out")))
    assert "out/student: to train the student with other options, delete this folder first" in caplog.text


def test_a_larger_budget_trains_the_student_further(
    teacher: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_names: list[str] = []

    def run(stage: Stage, while_waiting: object = None) -> str:
        run_names.append(stage.name)
        return run_here(stage)

    monkeypatch.setattr(module, "run_command", run)
    requests = [
        Request((teacher,), (str(pairs),), max_steps=steps, sets=SMALL, out=Path("out")) for steps in (20, 40, 30)
    ]
    distill(requests[0])
    before = Path("out/student-int8/model.bin").read_bytes()
    run_names.clear()
    monkeypatch.setattr(module, "run_command", run_and_fail_at("export"))
    with pytest.raises(KeyboardInterrupt):
        distill(requests[1])
    monkeypatch.setattr(module, "run_command", run)
    distill(requests[1])
    assert run_names == ["export"]
    assert Path("out/student-int8/model.bin").read_bytes() != before
    card = Path("out/student/README.md").read_text(encoding="utf-8")
    assert "--max-steps 40" in card
    assert "--max-steps 20" not in card
    with pytest.raises(UsageError, match=r"differs in --max-steps \(40 → 30\); .* \(a larger --max-steps extends it\)"):
        distill(requests[2])


def test_invalid_text_is_read_on_request(
    teacher: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "run_command", run_and_fail_at("clean 1"))
    text = tmp_path / "mono.en"
    text.write_bytes(b"one bird sings.\na caf\xe9.\n")
    out = tmp_path / "out"
    with pytest.raises(DataError, match=r"mono\.en:2: byte 6 is not UTF-8 .*, or use --replace"):
        distill(Request((teacher,), (str(pairs),), mono_src=text, out=out))
    request = Request((teacher,), (str(pairs),), mono_src=text, replace=True, out=out)
    with caplog.at_level(logging.INFO), pytest.raises(KeyboardInterrupt):
        distill(request)
    assert (out / "text.en").read_text(encoding="utf-8") == "one bird sings.\na caf\ufffd.\n"
    assert "mono.en: read 1 invalid byte as U+FFFD" in caplog.text
    student = next(stage for stage in plan(request) if stage.name == "student")
    assert "--replace" in student.arguments


def test_each_teacher_is_loaded_once_to_plan_its_export(
    teacher: Path, pairs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Path] = []

    def can_be_exported(folder: Path) -> bool:
        loaded.append(folder)
        return True

    monkeypatch.setattr("mtcli.recipes.distill.stages._can_be_exported", can_be_exported)
    request = Request((teacher,), (str(pairs),), out=Path("out"))
    distillation = distillation_of(request, check(request), Path("out"), None)
    assert distillation.stages()
    assert distillation.systems()
    assert loaded == [teacher]


def test_swap_applies_to_the_held_out_pairs_too(teacher: Path, tmp_path: Path) -> None:
    swapped = tmp_path / "swapped.tsv"
    swapped.write_text("".join(f"{tgt}\t{src}\n" for src, tgt in PAIRS), encoding="utf-8")
    file = str(swapped)
    request = Request((teacher,), (file,), valid=(file,), test=(file,), swap=True, out=tmp_path / "out")
    teachers = check(request)
    assert teachers.held_out["test"][Direction("en", "es")][0] == PAIRS[0]
    clean, _, student, *_ = plan(request)
    assert "--swap" in clean.arguments
    assert "--swap" in student.arguments
    without_languages = tmp_path / "teacher"
    (without_languages / "data").mkdir(parents=True)
    save_toy(without_languages, src="src", tgt="tgt")
    with pytest.raises(UsageError, match="languages are src and tgt"):
        check(Request((without_languages,), (file,), valid=(file,), test=(file,), swap=True))


def test_held_out_sources_in_a_text_are_not_translated(
    teacher: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "run_command", run_and_fail_at("clean 1"))
    text = tmp_path / "mono.en"
    (valid, _), (test, _) = PAIRS[0], PAIRS[20]
    text.write_text(f"{valid}\none bird sings.\n\n  {test.upper()}\n", encoding="utf-8")
    request = Request((teacher,), (str(pairs),), mono_src=text, out=tmp_path / "out")
    with caplog.at_level(logging.INFO), pytest.raises(KeyboardInterrupt):
        distill(request)
    assert (tmp_path / "out" / "text.en").read_text() == "one bird sings.\n"
    assert "dropped 2 lines: held-out sentence" in caplog.text
    text.write_text(f"{valid}\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no usable line"):
        distill(Request((teacher,), (str(pairs),), mono_src=text, out=tmp_path / "other"))


def test_names_that_begin_with_a_dash_are_no_options(
    teacher: Path, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(pairs, "-pairs.tsv")
    shutil.copytree(teacher, "-teacher")
    request = Request((Path("-teacher"),), ("-pairs.tsv",), out=Path("-out"))
    monkeypatch.setattr(module, "run_command", run_and_fail_at("student"))
    with pytest.raises(KeyboardInterrupt):
        distill(request)
    assert Path("-out/translated-1.tsv").exists()
    exports = [stage.arguments[1] for stage in plan(request) if stage.name.startswith("export")]
    assert exports == ["./-out/student", "./-teacher"]


def test_the_comparison_in_words() -> None:
    teacher = SystemFigures("teacher a, int8", 4, 40.0, 60.0, 100.0, 3_000_000)
    student = SystemFigures("student, int8", 1, 39.2, 59.5, 450.0, 1_000_000)
    found = SystemComparison(1000, "BLEU|x", (teacher, student))
    assert SystemComparison.of(json.loads(json.dumps(found.to_dict()))) == found
    assert str(found).splitlines()[-1] == (
        "the student has 98.0% of the BLEU of teacher a, int8, at 4.5 times its speed"
    )


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--parameters", "2X", "not a number of parameters"),
        ("--latency", "10", "not a time of a sentence"),
        ("--mono-src", "-", "--mono-src -: the text is read several times; name a file"),
    ],
)
def test_sizes_are_checked(tmp_path: Path, option: str, value: str, message: str) -> None:
    done = mtcli("distill", "--teacher", tmp_path, "--train", "x.tsv", option, value, cwd=tmp_path)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.decode().split())


@pytest.fixture(scope="module")
def teacher_of_several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    (folder / "data").mkdir()
    for name, part in (("valid", slice(20)), ("test", slice(20, 50))):
        write_split(folder, name, {direction: own[part] for direction, own in SEVERAL_PAIRS.items()})
    return save_toy(folder, several_toy(), directions=list(SEVERAL_PAIRS))


@pytest.fixture
def corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Pairs of each direction of the teacher of several, in the working folder."""
    monkeypatch.chdir(tmp_path)
    for direction, own in SEVERAL_PAIRS.items():
        rows = "".join(f"{src}\t{tgt}\n" for src, tgt in own[:150])
        Path(f"{direction.src}-{direction.tgt}.tsv").write_text(rows)
    return ("en-es.tsv", "en-xx.tsv@2")


def values_of(words: Sequence[str], option: str) -> list[str]:
    return [words[place + 1] for place, word in enumerate(words) if word == option]


def test_the_sources_of_each_direction_are_translated_with_its_tag(
    teacher_of_several: Path, corpora: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "mono.en").write_text("one dog.\n")
    request = Request(
        (teacher_of_several,), corpora, tgt=("es", "xx"), src=("en",), mono_src=Path("mono.en"), keep_pairs=True,
        max_steps=20, out=Path("out"),
    )  # fmt: skip
    stages = {stage.name: stage.arguments for stage in plan(request)}
    assert list(stages)[:6] == [
        "clean 1", "translate 1", "clean 2", "translate 2", "translate text to es", "translate text to xx",
    ]  # fmt: skip
    for name, tgt in (("translate 1", "es"), ("translate 2", "xx"), ("translate text to xx", "xx")):
        words = stages[name]
        assert (values_of(words, "--from"), values_of(words, "--to")) == (["en"], [tgt])
    student = stages["student"]
    assert list(zip(values_of(student, "--train"), values_of(student, "--tgt"), strict=True)) == [
        ("out/translated-1.tsv", "es"), ("out/pairs-1", "es"), ("out/translated-2.tsv@2", "xx"),
        ("out/pairs-2@2", "xx"), ("out/translated-text.es.tsv", "es"), ("out/translated-text.xx.tsv", "xx"),
    ]  # fmt: skip
    assert values_of(student, "--valid")[1:3] == ["out/held-out/valid.en-es.jsonl", "out/held-out/valid.en-xx.jsonl"]
    assert not Path("out").exists()
    refused = [
        (replace(request, tgt=("es", "de")), "pairs of en → de, and the teacher translates en → es, en → xx; choose"),
        (replace(request, both_directions=True), "pairs of es → en, and the teacher translates"),
    ]
    for wrong, message in refused:
        with pytest.raises(UsageError, match=re.escape(message)):
            plan(wrong)


def test_opposite_directions_are_cleaned_by_their_own_sources(corpora: tuple[str, ...]) -> None:
    translator = several_toy()
    both = [direction for own in SEVERAL_PAIRS for direction in (own, own.reversed())]
    Path("teacher/data").mkdir(parents=True)
    pieces = train_tokenizer(PAIRS, target_languages=("en", "es", "xx"))
    model = Transformer(translator.model.config, pieces.src_size, pieces.tgt_size, joint=True)
    save_toy(Path("teacher"), TorchTranslator(model, pieces, longest_src=64), directions=both)
    for name in ("valid", "test"):
        write_split(Path("teacher"), name, {own: pairs[:9] for own, pairs in SEVERAL_PAIRS.items()})
    request = Request((Path("teacher"),), corpora, both_directions=True, src=("en",), tgt=("es", "xx"), out=Path("out"))
    stages = {stage.name: stage.arguments for stage in plan(request)}
    assert stages["clean 2"][2:] == (
        "out/pairs-1", "-o", "out/pairs-2", "--src", "es", "--tgt", "en", "--valid", "out/held-out/valid.en-es.jsonl",
        "--test", "out/held-out/test.en-es.jsonl", "--force",
    )  # fmt: skip
    assert values_of(stages["translate 2"], "--from") == ["es"]
    found = check(request).held_out["test"]
    assert found[Direction("es", "en")] == [pair[::-1] for pair in found[Direction("en", "es")]]
    with pytest.raises(UsageError, match=r"--mono-src mono.en: for one source language, and these are en, es, xx"):
        check(replace(request, mono_src=Path("mono.en")))


def test_a_student_of_several_directions_is_trained_and_compared(
    teacher_of_several: Path, corpora: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "run_command", run_here)
    sets = (*SMALL, "train.average=1", "data.variants=off", "decode.max_extra=2")
    request = Request(
        (teacher_of_several,), corpora, src=("en",), tgt=("es", "xx"), max_steps=2, sets=sets, out=Path("out"),
        device="cpu",
    )  # fmt: skip
    comparison, student = distill(request)
    assert comparison.directions == 2
    assert comparison.results[0].chrf > 80  # the teacher knows its pairs
    assert str(comparison).startswith(f"{comparison.pairs} test pairs, mean of 2 directions, ")
    _, info, tokenizer = load_model(student)
    assert info.directions == tuple(SEVERAL_PAIRS)
    assert tokenizer.digest() == several_toy().tokenizer.digest()
    for number, (direction, own) in enumerate(SEVERAL_PAIRS.items(), 1):
        known = dict(own)
        header, *rows = Path(f"out/translated-{number}.tsv").read_text().splitlines()
        assert header.startswith(f"{direction.src}\t{direction.tgt}\t")
        pairs = [tuple(row.split("\t")[:2]) for row in rows]
        assert sum(known[src] == tgt for src, tgt in pairs) > 0.8 * len(pairs) > 0
