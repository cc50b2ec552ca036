"""The report and the model card show what the run folder holds, and never end a training."""

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mtcli.corpus.held_out import read_split
from mtcli.errors import StorageError
from mtcli.evaluation import metrics
from mtcli.report import run_report
from mtcli.report.chart import Series, chart, thinned, ticks
from mtcli.report.info import summary
from mtcli.report.run_record import RunRecord, read_run, score_rows, speeds
from mtcli.report.run_report import differences_marked, to_card, to_html, write_report
from mtcli.runtime.page_template import STYLE_MARKER, page_template
from mtcli.storage import model_file
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.translation import Options
from mtcli.translate.translator import ModelTranslator
from mtcli.translate.windows import Reading

Train = Callable[..., Path]


class Page(HTMLParser):
    """A parsed page: its open tags, texts, and links."""

    def __init__(self, page: str):
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href", "srcset", "action")]
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def events(run: Path, kind: str) -> list[dict[str, object]]:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [event for event in found if event["event"] == kind]


@pytest.fixture(scope="module")
def finished(train_toy: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, long enough for `train` events, several validations and an average."""
    return train_toy(tmp_path_factory.mktemp("report") / "run", "train.max_steps=120", "train.valid_every=30")


def test_the_page_is_complete_and_self_contained(finished: Path) -> None:
    page = (finished / "report.html").read_text(encoding="utf-8")
    found = Page(page)
    assert found.open == []
    assert found.tags.count("figure") == 5
    assert found.tags.count("polyline") == 6
    assert found.addresses == ["data:,"]
    assert "script" not in found.tags
    assert not re.search(r"https?://|url\(|@import", page)


@pytest.mark.parametrize("package", ["mtcli.report", "mtcli.explain", "mtcli.serve"])
def test_pages_share_their_style(package: str) -> None:
    template = page_template(package)
    assert STYLE_MARKER not in template
    assert template.count("--ground: #fbfbfa") == 1
    assert template.count("<style>") == 1  # the server's Content-Security-Policy has the hash of one


def test_report_and_model_card_show_data_and_scores(finished: Path) -> None:
    text = " ".join(Page((finished / "report.html").read_text(encoding="utf-8")).texts)
    card = (finished / "README.md").read_text(encoding="utf-8")
    (test,) = events(finished, "test")
    last = events(finished, "valid")[-1]
    for shown in (text, card):
        assert "300 pairs read: 288 to train on, 6 validation, 6 test" in shown
        assert "finished at step 120" in shown
        for score in test["scores"]:  # type: ignore[attr-defined]
            assert f"{score['score']:.1f}" in shown
            assert score["signature"] in shown.replace("\\|", "|")
        assert "6 test pairs, beam 4; too few pairs for the score to mean anything" in shown
    assert "6 test pairs are too few" in text
    assert "±" not in text
    assert "±" not in card
    for sample in last["samples"]:  # type: ignore[attr-defined]
        assert sample["ref"] in text
    assert "max_steps = 120" in text
    assert '- "en"\n- "xx"\n' in card
    assert card.count("to be filled in") == 2
    usual = model_file.load_model(finished)[1].usual_src
    for shown in (text, card):
        assert f"99% at most {usual} tokens (about " in shown


def test_training_and_eval_compute_the_same_test_scores(finished: Path) -> None:
    (test,) = events(finished, "test")
    model, info, tokenizer = model_file.load_model(finished)
    translator = ModelTranslator(PyTorchBackend(model, tokenizer, info))
    options = Options.of(info.decode)
    pairs = read_split(finished, "test")
    hypotheses = [t.text for t in translator.translate([s for s, _ in pairs], options, Reading(warn=False))]
    wanted = metrics.score(hypotheses, [[t for _, t in pairs]], metrics=("bleu", "chrf"), confidence=True)
    found: list[dict[str, object]] = test["scores"]  # type: ignore[assignment]
    assert [(s["name"], s["score"], s["signature"]) for s in found] == [(w.name, w.value, w.signature) for w in wanted]
    assert test["pairs"] == len(pairs)
    (end,) = events(finished, "end")
    assert test["steps"] == (end["averaged"] or [end["best_step"]])


def test_a_report_that_cannot_be_written_does_not_end_training(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise StorageError(f"{path}: No space left on device")

    monkeypatch.setattr(run_report.files, "replace_file", replacing(full))
    run = train_toy(tmp_path / "run", "train.max_steps=10")
    assert events(run, "end")
    assert "the report could not be written" in caplog.text
    assert not (run / "report.html").exists()
    monkeypatch.undo()
    train_toy(run, "train.max_steps=20")
    assert (run / "report.html").exists()
    assert (run / "README.md").exists()


def replacing(full: Callable[[Path, bytes], None]) -> Callable[[Path, bytes], None]:
    original = run_report.files.replace_file
    return lambda path, content: (full if path.name == "report.html" else original)(path, content)


def test_overwrite_replaces_the_report(train_toy: Train, tmp_path: Path) -> None:
    run = train_toy(tmp_path / "run", "train.max_steps=10")
    (run / "report.html").write_text("old")
    train_toy(run, "train.max_steps=5", "train.lr=0.01", overwrite=True)
    assert "finished at step 5" in (run / "report.html").read_text()


def test_a_continued_run_shows_no_scores_of_its_earlier_end(finished: Path, tmp_path: Path) -> None:
    """It shows that it is in training."""
    for name in ("config.toml", "metrics.jsonl"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(events(finished, "train")[0] | {"step": 150}) + "\n")
    found = read_run(tmp_path, "cpu")
    assert (found.test, found.end) == (None, None)
    assert found.status.startswith("in training: ")
    assert {row.split for row in score_rows(found)} == {"validation"}
    assert "scored once, at the end" in to_html(found)


def test_the_average_of_an_earlier_end_stays_the_best_until_it_is_beaten(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes((finished / "config.toml").read_bytes())
    last = events(finished, "valid")[-1]
    kept = last | {"event": "average", "steps": [60, 90, 120], "kept": True, "bleu": 99.0, "loss": 0.3}
    later = [last | {"step": 240, "loss": 0.5}, kept | {"step": 240, "steps": [180, 240], "kept": False, "loss": 0.4}]
    better = last | {"bleu": 99.5, "loss": 0.1}
    for lines, best in (([kept], kept), ([kept, *later], kept), ([kept, *later, better], better)):
        content = (finished / "metrics.jsonl").read_bytes() + b'{"event": "val\n'  # the last line is damaged
        (tmp_path / "metrics.jsonl").write_bytes(content + "".join(f"{json.dumps(e)}\n" for e in lines).encode())
        found = read_run(tmp_path, "cpu").best
        assert found == best
        assert dict(summary(tmp_path))["best"].startswith(f"BLEU {found and found['bleu']}")


def test_text_of_the_data_is_escaped(finished: Path, tmp_path: Path) -> None:
    for name in ("config.toml", "metrics.jsonl"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    nasty = "<script>alert(1)</script> $title & \u202eabc"
    event = events(finished, "valid")[0] | {"step": 130, "samples": [{"src": nasty, "ref": nasty, "hyp": nasty}] * 3}
    with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(event, ensure_ascii=False) + "\n")
    page = Page(to_html(read_run(tmp_path, "<b>cpu</b>")))
    assert "script" not in page.tags
    assert "<b>cpu</b>" in page.texts
    assert any(nasty in text for text in page.texts)


def test_a_sample_is_shown_with_the_translations_of_its_own_source(finished: Path, tmp_path: Path) -> None:
    for name in ("config.toml", "metrics.jsonl"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    event = events(finished, "valid")[0]
    with (tmp_path / "metrics.jsonl").open("a", encoding="utf-8") as file:
        for step, hypothesis in ((130, "of another sentence"), (140, "of this sentence")):
            source = f"source of step {step}"
            sample = {"src": source, "ref": "a reference", "hyp": hypothesis}
            file.write(json.dumps(event | {"step": step, "samples": [sample]}) + "\n")
    text = " ".join(Page(to_html(read_run(tmp_path, "cpu"))).texts)
    assert "of this sentence" in text
    assert "of another sentence" not in text


def test_a_run_without_validations_has_a_report(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes((finished / "config.toml").read_bytes())
    lines = (finished / "metrics.jsonl").read_text().splitlines(keepends=True)
    for n in (1, 2):
        (tmp_path / "metrics.jsonl").write_text("".join(lines[:n]))
        write_report(tmp_path, "cpu")
        assert Page((tmp_path / "report.html").read_text()).open == []
    found: RunRecord = read_run(tmp_path, "cpu")
    assert "None yet." in to_card(found)


def test_speed_excludes_validations() -> None:
    lines = [
        {"event": "train", "step": 50, "tokens": 900, "seconds": 10.0},
        {"event": "valid", "step": 50, "seconds": 17.0},
        {"event": "train", "step": 100, "tokens": 900, "seconds": 26.0},
        {"event": "valid", "step": 120, "seconds": 33.0},  # between two train events: the speed includes it
        {"event": "train", "step": 150, "tokens": 900, "seconds": 44.0},
    ]
    assert speeds(lines) == [(100, 100.0), (150, 50.0)]


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [(0, 200, [0, 50, 100, 150, 200]), (1.59, 6.71, [0, 2, 4, 6, 8]), (0, 0, [0, 0.2])],
)
def test_ticks_are_round_and_cover_the_values(low: float, high: float, wanted: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(wanted)


@pytest.mark.parametrize("scale", [1e-7, 0.003, 1, 37, 999, 1e6])
def test_ticks_of_any_scale(scale: float) -> None:
    for low in (0.0, 0.3 * scale, scale):
        found = ticks(low, scale)
        assert found[0] <= low + 1e-9 * scale
        assert found[-1] >= scale * (1 - 1e-9)
        assert 2 <= len(found) <= 8


def test_a_thinned_line_keeps_its_last_point() -> None:
    points = [(float(i), float(i % 7)) for i in range(20_001)]
    found = thinned(points)
    assert 150 < len(found) <= 300
    assert found[-1] == points[-1]
    assert [a for a, _ in found] == sorted(a for a, _ in found)
    assert thinned(points[:300]) == points[:300]


def test_a_chart_draws_finite_values_only() -> None:
    lines = [Series("a", [(1, 2.0), (2, float("inf")), (3, 1.0)]), Series("b", [])]
    found = Page(chart("Loss", "nats", lines, unit="nats"))
    assert found.open == []
    assert found.tags.count("polyline") == 1
    assert "Nothing measured yet." in chart("Loss", "nats", [Series("a", [])], unit="nats", from_zero=True)


def numbers_of_the_y_axis(figure: str) -> list[float]:
    return [float(text) for text in re.findall(r'text-anchor="end">([0-9.]+)</text>', figure) if float(text) < 100]


def test_the_axis_shows_late_changes() -> None:
    falling = [(float(step), 9.0 if step < 300 else 2.0 - step / 10_000) for step in range(100, 1000, 100)]
    rising = [(300.0, 2.0), (600.0, 1.9), (900.0, 2.1)]
    figure = chart("Loss", "", [Series("training", falling), Series("validation", rising, marks=True)], unit="nats")
    found = numbers_of_the_y_axis(figure)
    assert 1.8 <= min(found) <= 1.9
    assert 2.1 <= max(found) <= 2.2
    assert "The first values are outside of the axis." in figure
    assert figure.count("<circle") == 3


def test_the_axis_does_not_magnify_noise() -> None:
    line = Series("BLEU", [(100.0, 34.0), (200.0, 34.1)], marks=True)
    found = numbers_of_the_y_axis(chart("BLEU", "", [line], unit="BLEU", min_span=2.0))
    assert max(found) - min(found) >= 2
    nothing_right = Series("BLEU", [(100.0, 0.0)], marks=True)
    assert min(numbers_of_the_y_axis(chart("BLEU", "", [nothing_right], unit="BLEU", min_span=2.0))) == 0


def test_a_chart_has_the_exact_values_of_the_last_step_and_of_each_validation() -> None:
    training = Series("training", [(float(step), step / 7) for step in range(50, 10_001, 50)])
    validation = Series("validation", [(5000.0, 1.25), (10_000.0, 1.125)], marks=True)
    figure = chart("Loss", "", [training, validation], unit="nats")
    assert ">step 10,000: training 1,429, validation 1.125</text>" in figure
    assert "validation 1.25<" in figure
    assert figure.count('class="reading"') <= 42


@pytest.mark.parametrize(
    ("text", "reference", "marked"),
    [
        ("El perro ve al gato.", "El perro ve al gato.", "El perro ve al gato."),
        ("El perro ve un gato.", "El perro ve al gato.", "El perro ve <mark>un</mark> gato."),
        ("El ve al gato.", "El perro ve al gato.", "El <del>perro</del> ve al gato."),
        ("El perro <b>", "El perro", "El perro <mark>&lt;b&gt;</mark>"),
        ("我喜欢猫", "我喜欢狗", "我喜欢<mark>猫</mark>"),
    ],
)
def test_differences_to_the_reference_are_marked(text: str, reference: str, marked: str) -> None:
    assert differences_marked(text, reference) == marked


def test_the_page_names_the_next_commands_once_there_is_a_model(finished: Path, tmp_path: Path) -> None:
    page = (finished / "report.html").read_text(encoding="utf-8")
    for name in ("translate", "eval", "serve", "explain"):
        assert f"mtcli {name} --model {finished}" in page
    for name in ("config.toml", "metrics.jsonl"):
        (tmp_path / name).write_bytes((finished / name).read_bytes())
    lines = (finished / "metrics.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_text("".join(lines[:2]))
    assert "Available after the first validation" in to_html(read_run(tmp_path, "cpu"))


def test_the_test_score_is_the_headline(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_bytes((finished / "config.toml").read_bytes())
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    (test,) = (line for line in lines if line["event"] == "test")
    test["pairs"] = 300  # with the six of this run, there would be no interval
    score = test["scores"][0]
    score["confidence"] = [score["score"], 1.25]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    page = to_html(read_run(tmp_path, "cpu"))
    headline = page.split('<p class="headline">')[1].split("</p>")[0]
    assert f"<b>{score['score']:.1f}</b>" in headline
    assert "± 1.2" in headline
    assert f'<p class="signature">{score["signature"]}</p>' in page
