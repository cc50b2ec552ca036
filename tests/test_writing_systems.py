"""Training to report with targets in three writing systems, two of them without spaces between words."""

import json
from pathlib import Path

import pytest
import torch
from conftest import write_tsv
from helpers.command import call

from mtcli.config.build import build
from mtcli.config.scores import SELECTION_NAMES
from mtcli.corpus.cache.prepare import prepare
from mtcli.corpus.held_out import read_split
from mtcli.report.info import summary
from mtcli.storage import checkpoint, model_file
from mtcli.storage.events import best_of
from mtcli.storage.state import State, figures_of, score_of
from mtcli.training.averaging import average_run
from mtcli.training.run import train
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.translation import Options
from mtcli.translate.translator import ModelTranslator
from mtcli.translate.windows import Reading

ENGLISH = [
    "The cat sleeps on the chair.",
    "I drink tea every morning.",
    "The children play football in the park.",
    "She wrote her mother a long letter.",
    "The weather is very good today.",
    "The train leaves the station at eight.",
    "The teacher opens the window and looks at the rain.",
    "Tomorrow we will walk in the mountains.",
]
TARGETS = {
    "zh": [
        "猫在椅子上睡觉。",
        "我每天早上喝茶。",
        "孩子们在公园里踢足球。",
        "她给母亲写了一封长信。",
        "今天的天气非常好。",
        "火车八点钟离开车站。",
        "老师打开窗户看着雨。",
        "我们明天去山里散步。",
    ],
    "ar": [
        "القطة تنام على الكرسي.",
        "أشرب الشاي كل صباح.",
        "يلعب الأطفال كرة القدم في الحديقة.",
        "كتبت رسالة طويلة إلى أمها.",
        "الطقس جميل جدا هذا اليوم.",
        "يغادر القطار المحطة في الساعة الثامنة.",
        "يفتح المعلم النافذة وينظر إلى المطر.",
        "سوف نمشي غدا في الجبال.",
    ],
    "th_TH": [
        "แมวนอนหลับอยู่บนเก้าอี้",
        "ฉันดื่มชาทุกเช้า",
        "เด็กๆเล่นฟุตบอลในสวนสาธารณะ",
        "เธอเขียนจดหมายยาวถึงแม่ของเธอ",
        "วันนี้อากาศดีมาก",
        "รถไฟออกจากสถานีตอนแปดโมง",
        "ครูเปิดหน้าต่างและมองดูฝน",
        "พรุ่งนี้เราจะเดินเล่นบนภูเขา",
    ],
}
SETTINGS = [
    "model.d_model=32",
    "model.d_ff=64",
    "model.num_heads=2",
    "model.num_encoder_layers=1",
    "model.num_decoder_layers=1",
    "model.dropout=0.0",
    'train.precision="fp32"',
    "train.max_steps=100",
    "train.warmup_steps=20",
    "train.valid_every=20",
    "train.save_every=20",
    "train.keep=5",
    "train.average=2",
    "train.lr=0.02",
]
SELECTED_BY = {"zh": ("chrf", "zh"), "ar": ("combined", "13a"), "th_TH": ("chrf", "char")}


@pytest.mark.parametrize("language", TARGETS)
def test_from_training_to_the_report(
    language: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("mtcli.config.scores.find_spec", lambda name: None)  # as without sacrebleu's extras
    metric, tokenizer = SELECTED_BY[language]
    pairs = list(zip(ENGLISH, TARGETS[language], strict=True))
    spec = write_tsv(tmp_path / "pairs.tsv", pairs)
    run = tmp_path / "run"
    valid = write_tsv(tmp_path / "valid.tsv", pairs * 4)  # with fewer than 30 pairs, the loss would select the model
    given = {"data.train": [str(spec)], "data.valid": str(valid), "data.test": str(spec), "data.tgt": language}
    train(build(None, given, SETTINGS), run, torch.device("cpu"))

    # The checkpoint that is published is the better one, by the score that means something for this language.
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    validations = [event for event in events if event["event"] in ("valid", "average")]
    assert {(event["metric"], event["tokenize"]) for event in validations} == {(metric, tokenizer)}
    best = best_of(events)
    assert best is not None
    score, highest = (
        max(score_of(figures_of(event, metric), metric) for event in some) for some in ([best], validations)
    )
    assert score == highest
    assert best["bleu"] > 50  # which 13a makes 0 where there are no spaces
    state = State.of(checkpoint.steps(run / "checkpoints")[-1])
    scores_of_best = (best["bleu"], best["chrf"]) if metric == "combined" else (best[metric],)
    assert (state.metric, state.best) == (metric, (*scores_of_best, -best["loss"]))
    first = checkpoint.steps(run / "checkpoints")[0]
    texts = {folder: translated(folder) for folder in (run, first)}
    assert sum(a == b for a, b in zip(texts[run], TARGETS[language], strict=True)) >= 6
    assert texts[first] != texts[run]

    # Good and bad translations score far apart, by the tokenizer of the model's language.
    (tmp_path / "ref").write_text("".join(f"{text}\n" for text in TARGETS[language]))
    scores = []
    for folder, found in texts.items():
        (tmp_path / "hyp").write_text("".join(f"{text}\n" for text in found))
        files = ("--hyp-file", tmp_path / "hyp", "--ref-file", tmp_path / "ref")
        result = json.loads(call(capsys, "eval", "--model", folder, *files, *tokenize(folder, tokenizer), "--json"))
        assert result["signature"].split("|")[3] == f"tok:{tokenizer}"
        scores.append(result["score"])
    assert scores[0] > 70
    assert scores[1] < scores[0] / 2

    # It is scored on what it was trained on, which is said before training and with the score.
    assert f"{spec}: 8 of 8 test sources are also in the training data" in caplog.text
    assert "without spaces" not in caplog.text
    caplog.clear()

    # Every other command takes such a model.
    assert f"tok:{tokenizer}" in call(capsys, "eval", "--model", run, "-b", 1, "--by-length")
    assert f"{run}: 8 of 8 test sources are in this model's training data" in caplog.text
    assert f"tok:{tokenizer}" in call(capsys, "eval", "--model", run, "-b", 1, "--compare", run)
    assert dict(summary(run))["best"].endswith(f"selected by {SELECTION_NAMES[metric]}")
    for page in ("report.html", "README.md"):
        text = (run / page).read_text()
        assert f"tok:{tokenizer}" in text
        assert f"tokenizer {tokenizer}" in text
        assert "selects the best model" in text
    assert TARGETS[language][0] in (run / "report.html").read_text()
    explained = call(capsys, "explain", ENGLISH[0], "--model", run, "--html", tmp_path / "page.html")
    assert explained == "" or ENGLISH[0].split()[1] in explained
    assert call(capsys, "translate", ENGLISH[0], "--model", run, "--alignments").strip()
    steps = average_run(run, tmp_path / "mean", 2, best=True)
    if metric == "chrf":  # `test_averaging` has the order by several figures
        valid_events = (event for event in validations if event["event"] == "valid")
        ranked = sorted(valid_events, key=lambda e: (e["chrf"], -e["loss"], e["step"]))
        assert steps == sorted(e["step"] for e in ranked[-2:])
    assert read_split(tmp_path / "mean", "test") == pairs


def test_text_without_spaces_in_another_language_gives_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ref").write_text("".join(f"{text}\n" for text in TARGETS["zh"]))
    files = ("--hyp-file", tmp_path / "ref", "--ref-file", tmp_path / "ref")
    assert call(capsys, "eval", *files, "--ter").startswith("TER = ")
    assert "TER counts words between spaces" in caplog.text
    assert "tok:13a" in call(capsys, "eval", *files)
    assert "the references are written without spaces" in caplog.text
    assert "use zh (--tokenize)" in caplog.text
    caplog.clear()
    assert call(capsys, "eval", *files, "--tokenize", "zh").startswith("BLEU = 100.0")
    assert "spaces" not in caplog.text
    spec = write_tsv(tmp_path / "pairs.tsv", [*zip(ENGLISH, TARGETS["zh"], strict=True)])
    given = {"data.train": [str(spec)], "data.test": str(spec), "data.tgt": "target"}
    prepare(build(None, given, ['tokenizer.type="char"']), tmp_path / "run")
    assert "the targets are written without spaces" in caplog.text
    assert "use zh; give the language by --tgt" in caplog.text


def tokenize(folder: Path, tokenizer: str) -> tuple[str, ...]:
    """A checkpoint has no configuration, which says the language of translations in a file."""
    return () if (folder / "config.toml").exists() else ("--tokenize", tokenizer)


def translated(folder: Path) -> list[str]:
    model, info, pieces = model_file.load_model(folder)
    translator = ModelTranslator(PyTorchBackend(model, pieces, info))
    return [t.text for t in translator.translate(ENGLISH, Options(beam_size=1, max_extra=20), Reading(warn=False))]


def test_a_run_is_selected_by_one_score_only() -> None:
    def steps_taken(metric: str) -> list[bool]:
        state = State(metric=metric)
        figures = [(1.0, 20.0, 2.0), (3.0, 10.0, 1.0), (0.0, 30.0, 3.0), (0.0, 30.0, 2.0)]
        return [
            state.record_if_best({"bleu": bleu, "chrf": chrf, "loss": loss, "pairs": 9, "of": 9})
            for bleu, chrf, loss in figures
        ]

    assert steps_taken("bleu") == [True, True, False, False]
    assert steps_taken("chrf") == [True, False, True, True]  # of equal scores, the lower loss


def test_the_best_validation_is_the_one_that_training_chose() -> None:
    def valid(step: int, bleu: float, pairs: int) -> dict[str, object]:
        return {"event": "valid", "step": step, "metric": "bleu", "bleu": bleu, "loss": 1.0, "pairs": pairs, "of": 500}

    first, second, third = valid(10, 9.0, 200), valid(20, 7.0, 500), valid(30, 6.0, 500)
    assert best_of([first, second, third]) == second  # the first had other pairs, so its score is not comparable
    mean = {**third, "event": "average", "bleu": 8.0, "kept": True}
    assert best_of([first, second, mean]) == mean
    assert best_of([first, second, {**mean, "kept": False}]) == second


FEW_PAIRS = [(32, 40, False), (19, 40, True), (100, 900, False), (99, 900, True)]


@pytest.mark.parametrize(("pairs", "of", "is_few"), FEW_PAIRS)
def test_the_loss_compares_validations_on_few_pairs(pairs: int, of: int, is_few: bool) -> None:
    first = {"event": "valid", "step": 1, "bleu": 9.0, "loss": 1.0, "pairs": pairs, "of": of}
    worse = {**first, "step": 2, "bleu": 5.0, "loss": 1.1}
    lower_loss = {**first, "step": 3, "bleu": 5.0, "loss": 0.9}
    state = State(metric="bleu")
    events = []
    for event in (first, worse, lower_loss):
        is_best = state.record_if_best(event)
        assert is_best is (event is first or (is_few and event is lower_loss))
        events.append({**event, "metric": state.selection_metric})
    assert state.metric_name == ("validation loss" if is_few else "BLEU")
    best = best_of(events)
    assert best is not None
    assert best["step"] == (3 if is_few else 1)


@pytest.mark.parametrize(("loss", "kept"), [(1.1, False), (1.0, False), (0.9, True)])
def test_an_average_on_few_pairs_is_kept_only_if_its_loss_is_lower(loss: float, kept: bool) -> None:
    state = State(metric="bleu")
    assert state.record_if_best({"bleu": 30.0, "loss": 1.0, "pairs": 16, "of": 1000})
    assert state.record_if_better({"bleu": 31.0, "loss": loss, "pairs": 16, "of": 1000}) is kept
    assert state.best == ((31.0, -0.9) if kept else (30.0, -1.0))
