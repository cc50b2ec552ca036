"""The files in `configs/`: each loads, sets only what differs from the defaults, and plans a run if its data exists."""

import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import toy_pairs, write_tsv
from typer.testing import CliRunner

from mtcli.cli import app
from mtcli.config.build import build
from mtcli.config.schema import unset_settings
from mtcli.config.toml_file import load, to_toml
from mtcli.corpus import demo
from mtcli.errors import UsageError

FOLDER = Path(__file__).parents[1] / "configs"
TASKS = {path.stem: path for path in FOLDER.glob("*.toml")}


def given(file: dict[str, Any]) -> Iterator[str]:
    """The dotted names of the settings in a file."""
    for name, value in file.items():
        yield from (f"{name}.{key}" for key in value) if isinstance(value, dict) else [name]


def without(text: str, name: str) -> str:
    """A copy of the file without one setting."""
    section, _, key = name.rpartition(".")
    head, found, rest = text.partition(f"\n[{section}]") if section else ("", "", text)
    assert len(re.findall(rf"^{key} = .*\n", rest, re.MULTILINE))
    return head + found + re.sub(rf"^{key} = .*\n", "", rest, count=1, flags=re.MULTILINE)


def facts(path: Path) -> object:
    """The values, which of them the corpus is to decide, and which languages are given; nothing where it is refused."""
    with suppress(UsageError):
        config = build(path)
        return config.model_dump(), unset_settings(config), config.data.model_fields_set & {"src", "tgt"}
    return None


def test_there_is_a_file_for_each_task() -> None:
    assert TASKS.keys() == {"demo", "multi30k", "tatoeba", "iwslt14", "wmt14-base", "wmt14-big"}


@pytest.mark.parametrize("task", TASKS)
def test_a_file_sets_only_what_differs_from_the_defaults(task: str, tmp_path: Path) -> None:
    text, config, copy = TASKS[task].read_text(encoding="utf-8"), build(TASKS[task]), tmp_path / "config.toml"
    copy.write_text(to_toml(config), encoding="utf-8")
    assert load(copy).model_dump() == config.model_dump()
    assert f"mtcli train configs/{task}.toml" in text
    assert config.data.note or not config.data.train
    for name in given(tomllib.loads(text)):
        copy.write_text(without(text, name), encoding="utf-8")
        assert name not in given(tomllib.loads(copy.read_text(encoding="utf-8")))
        assert facts(copy) != facts(TASKS[task]), f"{name} goes without saying"


def test_a_redundant_setting_is_found(tmp_path: Path) -> None:
    more = TASKS["wmt14-base"].read_text(encoding="utf-8").replace("[model]", "[model]\nd_model = 512")
    assert facts(write(tmp_path, more)) == facts(TASKS["wmt14-base"])


def write(folder: Path, text: str) -> Path:
    (folder / "c.toml").write_text(text, encoding="utf-8")
    return folder / "c.toml"


def test_the_demo_file_shows_the_settings_of_the_demo(tmp_path: Path) -> None:
    text = TASKS["demo"].read_text(encoding="utf-8")
    shown = write(tmp_path, "\n".join(re.findall(r"^# (\[\w+\]|\w+ = .*)$", text, re.MULTILINE)))
    assert len([*given(tomllib.loads(shown.read_text(encoding="utf-8")))]) > 8
    assert build(shown).model_dump() == build(TASKS["demo"]).model_dump() == build().model_dump()


@pytest.mark.parametrize("task", ["demo", "tatoeba"])
def test_a_file_plans_a_run(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = toy_pairs()
    monkeypatch.setattr(demo, "load", lambda: demo.DemoCorpus(pairs[:200], pairs[200:250], pairs[250:]))
    monkeypatch.setattr("mtcli.training.dry_run.NUM_UNTIMED_STEPS", 0)
    monkeypatch.setattr("mtcli.training.dry_run.MAX_TIMED_STEPS", 1)
    monkeypatch.chdir(tmp_path)
    for source in build(TASKS[task]).data.train:  # put where the file says
        Path(source).parent.mkdir(parents=True)
        write_tsv(Path(source), pairs)
    smaller = ["--set", "tokenizer.vocab_size=320", "--device", "cpu"]
    done = CliRunner().invoke(app, ["train", str(TASKS[task]), *smaller, "--dry-run"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert re.search(r"^data .* (200|288) to train on", done.output, re.MULTILINE)
    assert re.search(r"^finish .* steps", done.output, re.MULTILINE)
