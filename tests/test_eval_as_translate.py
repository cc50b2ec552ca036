"""`mtcli eval --as-translate` scores the translations that `mtcli translate` writes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.command import call
from helpers.toy import PAIRS, SEVERAL_PAIRS, disturbed, save_run, save_toy, several_toy, toy

from mtcli.corpus.held_out import write_split
from mtcli.errors import UsageError
from mtcli.evaluation import metrics
from mtcli.evaluation.evaluate import AS_TRANSLATE
from mtcli.exchange.export import export
from mtcli.translate import loading, translator

SOURCES = [
    "one red dog.",
    "ONE BIG CAT.",
    "one red dog. big cat sees.",
    "- one cat sees: 🙂",
    "",
    "Sees {name} One",
    *(src for src, _ in PAIRS[::5]),
]


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The translations that are scored, of each call."""
    found: list[list[str]] = []
    original = metrics.score

    def noted(hypotheses: Sequence[str], *arguments: Any, **options: Any) -> list[metrics.Score]:
        found.append([*hypotheses])
        return original(hypotheses, *arguments, **options)

    monkeypatch.setattr(metrics, "score", noted)
    return found


@pytest.fixture
def files(tmp_path: Path) -> tuple[object, ...]:
    """The options that name sources and references, and the file of the sources."""
    (tmp_path / "src").write_text("".join(f"{line}\n" for line in SOURCES))
    (tmp_path / "ref").write_text("".join(f"{line or 'uno'}\n" for line in SOURCES))
    return ("--src-file", tmp_path / "src", "--ref-file", tmp_path / "ref")


def translated(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    """Return the lines that `mtcli translate` writes."""
    return call(capsys, "translate", *arguments).removesuffix("\n").split("\n")


@pytest.mark.parametrize("kind", ["good", "weak", "exported"])
@pytest.mark.parametrize("search", [(), ("-b", 1)], ids=["beam", "greedy"])
def test_the_lines_that_translate_writes_are_scored(
    kind: str,
    search: tuple[object, ...],
    files: tuple[object, ...],
    scored: list[list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = save_run(tmp_path / "run", disturbed(toy(), 5) if kind == "weak" else toy())
    if kind == "exported":
        export(run, "ctranslate2", tmp_path / "exported")
        run = tmp_path / "exported"
    lines = translated(capsys, "--model", run, "-i", files[1], *search)
    shown = call(capsys, "eval", "--model", run, *files, *search, "--as-translate")
    assert scored == [lines]
    assert shown.endswith(f"\n{AS_TRANSLATE}\n")
    shown = call(capsys, "eval", "--model", run, *files, *search)
    assert scored[1] != lines, "nothing that only translate does"
    assert AS_TRANSLATE not in shown


def test_a_weak_translation_is_searched_again(
    files: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = save_run(tmp_path / "run", toy())
    searched = []
    monkeypatch.setattr(translator, "is_usable", lambda line, text: False)
    monkeypatch.setattr(translator, "further_searches", lambda options: searched.append(options) or ())
    call(capsys, "eval", "--model", run, *files)
    assert not searched
    call(capsys, "eval", "--model", run, *files, "--as-translate")
    assert searched


def test_each_direction_is_translated_as_with_its_target(
    scored: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    (run / "data").mkdir(parents=True)
    save_toy(run, several_toy(), directions=list(SEVERAL_PAIRS))
    sources = [line for line in SOURCES if line]
    write_split(run, "test", {direction: [(line, line) for line in sources] for direction in SEVERAL_PAIRS})
    write_split(run, "valid", SEVERAL_PAIRS)
    (tmp_path / "src").write_text("".join(f"{line}\n" for line in sources))
    expected = [translated(capsys, "--model", run, "--to", to, "-i", tmp_path / "src") for to in ("es", "xx")]
    shown = json.loads(call(capsys, "eval", "--model", run, "--json", "--as-translate"))
    assert scored == expected
    assert shown["as_translate"] is True
    shown = json.loads(call(capsys, "eval", "--model", run, "--json", "--chrf", "--to", "xx", "--as-translate"))
    assert scored[2:] == expected[1:]
    assert shown["as_translate"] is True


def test_both_models_of_a_comparison_translate_as_translate_does(
    files: tuple[object, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, other = save_run(tmp_path / "run", toy()), save_run(tmp_path / "other", disturbed(toy(), 5))
    expected = [translated(capsys, "--model", model, "-i", files[1]) for model in (run, other)]
    found = json.loads(call(capsys, "eval", "--model", run, "--compare", other, *files, "--as-translate", "--json"))
    assert found["as_translate"] is True
    changed = {change["line"]: (change["a"], change["b"]) for change in found["changes"]}
    assert changed
    for line, texts in changed.items():
        assert texts == tuple(lines[line - 1] for lines in expected)


def test_reranking_and_terms_are_those_of_translate(
    files: tuple[object, ...], scored: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = save_run(tmp_path / "run", toy())
    (tmp_path / "reverse").mkdir()
    reverse = save_toy(tmp_path / "reverse", disturbed(toy(), 2), "es", "en")
    (tmp_path / "terms").write_text("cat\tvino\n")
    plain = translated(capsys, "--model", run, "-i", files[1])
    expected = []
    for options in (("--terms", tmp_path / "terms"), ("--rerank", reverse, "--rerank-weight", 5)):
        expected.append(translated(capsys, "--model", run, *options, "-i", files[1]))
        assert expected[-1] != plain
        call(capsys, "eval", "--model", run, *options, *files, "--as-translate")
    assert scored == expected


def test_the_engine_of_the_run_translates_if_translate_uses_it(
    files: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = save_run(tmp_path / "run", toy())
    asked: list[Path] = []
    monkeypatch.setattr(loading, "load_run_engine", lambda folder, *_: asked.append(folder))
    call(capsys, "eval", "--model", run, *files)
    call(capsys, "eval", "--model", run, *files, "--as-translate", "--engine", "torch")
    assert not asked
    call(capsys, "eval", "--model", run, *files, "--as-translate")
    assert asked == [run]


@pytest.mark.parametrize("arguments", [(), ("--compare", "ref")])
def test_finished_translations_are_not_translated(
    arguments: tuple[str, ...], files: tuple[object, ...], capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(Path(str(files[1])).parent)
    with pytest.raises(UsageError, match="--as-translate: only with a model that translates"):
        call(capsys, "eval", "--hyp-file", "ref", "--ref-file", "ref", *arguments, "--as-translate")
