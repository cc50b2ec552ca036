"""`mtcli COMMAND --help`: panels, defaults and examples; completion by the Tab key; `mtcli train --list-settings`."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
from helpers.documentation import DOCUMENTATION, IN_CONFIGS
from helpers.imports import HEAVY, loaded
from sacrebleu.metrics import BLEU
from typer.main import get_command
from typer.testing import CliRunner

from mtcli.cli import app, completion, panels
from mtcli.cli.export import TARGETS
from mtcli.config.build import build
from mtcli.config.presets import Preset
from mtcli.config.schema import NAMES, SECTIONS
from mtcli.config.settings import sections, settings, to_text
from mtcli.exchange.ctranslate2_model import QUANTIZATIONS
from mtcli.exchange.export import TARGETS as EXPORT_TARGETS

ROOT = Path(__file__).parents[1]


def commands(command: Any, name: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that has no commands of its own."""
    inner = getattr(command, "commands", {})
    if not inner:
        yield name, command
    for part, each in inner.items():
        yield from commands(each, (*name, part))


COMMANDS = dict(commands(get_command(app)))
PANELS = {value for name, value in vars(panels).items() if name.isupper()}


def help_of(command: tuple[str, ...], width: int) -> str:
    """The help of a command in a terminal of this width."""
    result = CliRunner().invoke(app, [*command, "--help"], prog_name="mtcli", env={"COLUMNS": str(width)})
    assert result.exit_code == 0, result.output
    return result.output


# ---- panels, defaults, examples ----


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_options_are_in_panels_and_show_their_defaults(command: tuple[str, ...]) -> None:
    for parameter in COMMANDS[command].params:
        where = f"{' '.join(command)}: {parameter.name}"
        if parameter.param_type_name == "option":
            assert parameter.rich_help_panel in PANELS, where
        if getattr(parameter, "is_flag", False) or parameter.required:
            continue
        has_default = parameter.default not in (None, "", [])
        assert isinstance(parameter.show_default, str) or (parameter.show_default and has_default), where


def test_the_same_option_is_in_the_same_panel_in_every_command() -> None:
    panel_of: dict[tuple[str, str], str] = {}
    for command in COMMANDS.values():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                key = (parameter.name, parameter.help)
                assert panel_of.setdefault(key, parameter.rich_help_panel) == parameter.rich_help_panel, key


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("width", [80, 120])
def test_help_fits_and_shows_an_example(command: tuple[str, ...], width: int) -> None:
    text = help_of(command, width)
    assert max(map(len, text.splitlines())) <= width
    assert re.search(rf"^ *Examples? *\n *\n *mtcli {' '.join(command)}", text, re.MULTILINE)
    assert "<=" not in text
    titles = re.findall(r"╭─ (\w+) ─", text)
    assert titles[-1] == panels.OTHER
    assert len(titles) == len(set(titles))


# ---- completion ----


def completed(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What bash offers when the Tab key is pressed at the end of a line."""
    words = line.split(" ")
    monkeypatch.setenv("_MTCLI_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        app(prog_name="mtcli")
    assert not end.value.code
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mtcli train --preset ", ["tiny", "small", "base", "big"]),
        ("mtcli train --preset b", ["base", "big"]),
        ("mtcli --version tr", ["train", "translate"]),
        ("mtcli train --device c", ["cpu", "cuda"]),
        ("mtcli train --tokenize ja", ["ja-mecab"]),
        ("mtcli train --set model.po", ["model.positions=sinusoidal", "model.positions=learned"]),
        ("mtcli train --set model.tie", ["model.tie_embeddings=true", "model.tie_embeddings=false"]),
        ("mtcli train --set train.cl", ["train.clip_norm="]),
        ("mtcli translate --format ", ["text", "json", "nbest"]),
        ("mtcli translate --engine c", ["ctranslate2"]),
        ("mtcli eval --split v", ["valid"]),
        ("mtcli eval --tokenize spm", ["spm"]),
        ("mtcli export --to h", ["huggingface"]),
        ("mtcli export --quantization int1", ["int16"]),
        ("mtcli tokenizer train --type ", ["bpe", "word", "char"]),
    ],
)
def test_values_are_completed(
    line: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completed(line, monkeypatch, capsys) == expected


@pytest.mark.parametrize(
    "line",
    [
        "mtcli translate --model ",
        "mtcli eval --compare ",
        "mtcli train --init ",
        "mtcli train --out ",
        "mtcli data check --model ",
        "mtcli info ",
        "mtcli export ",
        "mtcli average ",
    ],
)
def test_runs_and_models_are_completed(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert completed(line, monkeypatch, capsys) == [""]  # the shell then completes names of files
    for name in ("runs/demo/model.safetensors", "runs/begun/config.toml", "runs/ct2/mtcli.json", "runs/other/x"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    (tmp_path / "runs/my run").mkdir()  # a shell would need quotation marks
    (tmp_path / "runs/my run/config.toml").touch()
    (tmp_path / "runs/latest").symlink_to("demo")
    assert completed(line, monkeypatch, capsys) == ["runs/begun", "runs/ct2", "runs/demo", "runs/latest"]
    assert completed(f"{line}runs/d", monkeypatch, capsys) == ["runs/demo"]


def test_the_words_that_are_completed_are_those_that_commands_take() -> None:
    assert get_args(Preset) == completion.PRESETS
    assert sorted(completion.BLEU_TOKENIZERS, key=str.lower) == sorted(BLEU.TOKENIZERS, key=str.lower)
    assert completion.QUANTIZATIONS == QUANTIZATIONS
    assert TARGETS == EXPORT_TARGETS


def test_completion_loads_nothing_heavy() -> None:
    code = """
import os
os.environ |= {{"_MTCLI_COMPLETE": "complete_bash", "COMP_WORDS": "mtcli train {0}", "COMP_CWORD": "3"}}
from mtcli.cli import main
sys.argv = ["mtcli"]
try:
    main()
except SystemExit as end:
    assert not end.code
"""
    assert not loaded(code.format("--preset b")) & (HEAVY - {"pydantic"})
    assert not loaded(code.format("--set train.")) & (HEAVY - {"pydantic"})


# ---- settings ----


def test_every_setting_has_a_type_a_default_and_a_meaning() -> None:
    found = list(settings())
    assert [setting.name for setting in found] == list(NAMES)
    for setting in found:
        assert re.fullmatch(r"[A-Z`].*[.]", setting.meaning), setting.name
        assert setting.type, setting.name
        assert setting.default, setting.name
    assert [section.name for section in sections()] == ["general", *SECTIONS]


def test_a_default_is_what_set_takes() -> None:
    data = {"data.train": ["x.tsv"]}
    given = [
        f"{setting.name}={setting.default}" for setting in settings() if setting.default not in ("automatic", "not set")
    ]
    assert len(given) > 20
    assert build(None, data, given).model_dump() == build(None, data).model_dump()


def test_a_setting_takes_each_of_its_values() -> None:
    for setting in settings():
        for value in setting.choices:
            build(None, {"data.train": ["x.tsv"]}, [f"{setting.name}={value}"])


def test_settings_are_listed_one_per_line_in_a_pipe() -> None:
    result = CliRunner().invoke(app, ["train", "--list-settings"], env={"COLUMNS": "40"})
    assert result.exit_code == 0, result.output
    assert result.output == to_text()
    lines = {line.split()[0]: line.strip() for line in result.output.splitlines() if line.startswith("  ")}
    assert lines.keys() == set(NAMES)
    fields = re.split(r"  +", lines["model.norm"])
    assert fields[:3] == ["model.norm", "post, pre", "post"]
    assert re.split(r"  +", lines["train.lr"])[1:3] == ["number", "automatic"]
    assert re.split(r"  +", lines["train.time"])[1:3] == ["duration", "not set"]
    assert re.split(r"  +", lines["train.betas"])[1:3] == ["list of 2 numbers", "[0.9, 0.98]"]


def test_settings_are_a_table_on_a_terminal() -> None:
    reader, writer = pty.openpty()
    command = [sys.executable, "-m", "mtcli", "train", "--list-settings"]
    with subprocess.Popen(command, stdout=writer, env=os.environ | {"COLUMNS": "100", "TERM": "xterm"}) as process:
        os.close(writer)
        shown = b"".join(read_to_the_end(reader)).decode()
    os.close(reader)
    assert process.returncode == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown).replace("\r", "")
    assert max(map(len, plain.splitlines())) <= 100
    assert set(NAMES) <= set(re.findall(r"^ *(\S+)", plain, re.MULTILINE))


def read_to_the_end(descriptor: int) -> Iterator[bytes]:
    """What comes from a terminal until its other end is closed, which Linux reports as an error."""
    with suppress(OSError):
        while part := os.read(descriptor, 1 << 16):
            yield part


def test_the_documentation_names_settings_that_exist() -> None:
    keys = "|".join(SECTIONS)
    named = set(re.findall(rf"(?<![\w/.-])((?:{keys})\.\w+)(?=[=`\s])", "\n".join([DOCUMENTATION, *IN_CONFIGS])))
    assert len(named) > 8
    files = {"model.safetensors", "tokenizer.json", "train.en", "train.de"}
    assert named - set(NAMES) - files == set()
