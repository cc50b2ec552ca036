"""The README and docs/ are correct: their commands run on a small file of pairs, and their tables name what exists."""

import http.client
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from conftest import toy_pairs, write_tsv
from helpers.documentation import COMMANDS, DOCUMENTATION, PAGES, PROJECT, README, ROOT, SHOWN, commands, parse
from helpers.processes import HANGS

from mtcli.cli import app

VERSIONS = re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))


def test_links_lead_to_files() -> None:
    for name in re.findall(r"\]\((docs/[^)#]+)", README):
        assert (ROOT / name).exists(), name
    assert {f"docs/{name}" for name in PAGES} <= set(re.findall(r"\]\((docs/[^)#]+)", README))


def anchors(page: str) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", page, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_links_between_pages_lead_to_headings(name: str) -> None:
    for page, anchor in re.findall(r"\]\(([\w-]+\.md)?(?:#([\w-]+))?\)", PAGES[name]):
        assert not anchor or anchor in anchors(PAGES[page or name]), f"{page}#{anchor}"
        assert not page or page in PAGES


def test_the_readme_is_at_most_two_pages() -> None:
    assert len(README.splitlines()) <= 200


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 30
    assert "mtcli train" in COMMANDS
    assert 'mtcli translate "Hello World"' in COMMANDS


@pytest.mark.parametrize("line", COMMANDS)
def test_a_shown_command_parses(line: str) -> None:
    parse(line)
    for word in shlex.split(line):
        if word.startswith("configs/"):
            assert (ROOT / word).exists()


@pytest.mark.parametrize("line", ["mtcli train --no-such-option", "mtcli nonsense", "mtcli eval --bleu extra"])
def test_a_wrong_command_does_not_parse(line: str) -> None:
    with pytest.raises((KeyError, typer.BadParameter.__base__)):  # no such command, option or argument
        parse(line)


@pytest.mark.parametrize("extra", ["nonsense", "export,nonsense", "--help"])
def test_setup_refuses_what_is_no_extra(extra: str) -> None:
    done = subprocess.run([ROOT / "scripts" / "setup", extra], capture_output=True, text=True)
    assert done.returncode == 2
    assert "'nonsense' is not one of the extras: documents export serve" in done.stderr or extra == "--help"


def test_setup_knows_the_extras_of_the_documentation() -> None:
    shown = set(re.findall(r"scripts/setup ([a-z,]+)", DOCUMENTATION))
    assert {"export,serve", "dev"} <= shown
    assert {name for extras in shown for name in extras.split(",")} <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("version", [*VERSIONS, "3.14"])
def test_setup_finds_each_python(version: str, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "dirname", "sed", "tr", "cat", "find", "grep"):
        found = shutil.which(name)
        assert found
        (programs / name).symlink_to(found)
    python = programs / f"python{version}"
    python.write_text('#!/bin/sh\n[ "$1" != -m ] || { echo "$@"; exit 3; }\n')  # its only failure: to make .venv
    python.chmod(0o755)
    (tmp_path / "scripts").mkdir()
    for file in ("scripts/setup", "pyproject.toml"):
        shutil.copy(ROOT / file, tmp_path / file)
    done = subprocess.run([tmp_path / "scripts" / "setup"], capture_output=True, text=True, env={"PATH": str(programs)})
    assert (done.returncode, done.stdout) == (3, "-m venv .venv\n"), done.stderr


def test_files_named_in_the_documentation_exist() -> None:
    for name in re.findall(r"`((?:configs|tests|scripts)/[\w./-]+)`", DOCUMENTATION):
        assert (ROOT / name).exists(), name
    package = ROOT / "src" / "mtcli"
    modules = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", DOCUMENTATION))
    assert {name for name in named if not name.startswith(("tests/", "scripts/"))} <= modules


def test_scripts_shown_without_an_interpreter_are_executable() -> None:
    shown = set(re.findall(r"(?<!python )(?<!\w/)(scripts/\w+(?:\.py)?)", DOCUMENTATION))
    files = {ROOT / name for name in shown if (ROOT / name).is_file()}
    assert ROOT / "scripts" / "check_markup.py" in files
    for path in sorted(files):
        assert os.access(path, os.X_OK), path
        assert path.read_bytes().startswith(b"#!"), path


# ---- from a TSV to a served translator ----

WALK, ASKED = (
    block.strip().splitlines()
    for block in re.findall(r"```sh\n(.*?)```", README.partition("## From a TSV")[2], flags=re.DOTALL)[:2]
)
BUDGET = ["--max-steps", "50", "--device", "cpu"]  # instead of a time
SMALL = {
    "model.d_model": 16, "model.d_ff": 16, "train.batch_tokens": 256, "tokenizer.vocab_size": 340,
    "train.valid_every": 25, "train.save_every": 10, "decode.max_extra": 2, "model.num_encoder_layers": 1,
    "train.precision": "fp32",
}  # fmt: skip


def run(line: str, *more: str, stdin: str = os.devnull) -> str:
    """Run a command of the README in this process, with a file as standard input, and return what it prints."""
    words = [word for word in shlex.split(line, comments=True)[1:] if word != "…"]
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    broken_pipe = signal.getsignal(signal.SIGPIPE)
    with pytest.MonkeyPatch.context() as patch, Path(stdin).open(encoding="utf-8") as typed:
        patch.setattr(sys, "stdin", typed)
        patch.setattr(sys, "stdout", out)
        try:
            code = app([*words, *more], prog_name="mtcli", standalone_mode=False)
        except SystemExit as end:
            code = end.code
        finally:
            signal.signal(signal.SIGPIPE, broken_pipe)
    assert not code
    return out.buffer.getvalue().decode()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working folder after the second line. All six lines share one training."""
    where = tmp_path_factory.mktemp("walk")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        patch.delenv("MTCLI_MODEL", raising=False)
        write_tsv(where / "pairs.tsv", toy_pairs())
        _, train, *_ = WALK
        sets = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
        assert "--time 30m" in train
        run(train.replace("--time 30m", ""), *BUDGET, *sets)
        yield where


def test_the_walkthrough_has_six_lines_and_a_request() -> None:
    assert [line.split()[1] for line in WALK] == ["data", "train", "translate", "eval", "export", "serve"]
    assert all("pairs.tsv" in line for line in WALK[:2])
    assert len(ASKED) == 1


def test_check_train_translate_and_score(folder: Path) -> None:
    check, _, translate, score, *_ = WALK
    assert "300 pairs" in run(check)
    assert (folder / "runs" / "latest").readlink() == Path("pairs-en-es")
    assert run(translate).count("\n") == 1
    assert re.match(r"BLEU = .*\n.*tok:13a.*\nchrF2 = ", run(score))


@pytest.fixture(scope="module")
def exported(folder: Path) -> str:
    """The output of the fifth line."""
    return run(WALK[4])


def test_export_serve_and_ask(folder: Path, exported: str) -> None:
    assert "equal" in exported
    serve = WALK[5]
    command = [sys.executable, "-m", *shlex.split(serve, comments=True), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, encoding="utf-8", cwd=folder) as server:
        try:
            assert server.stderr
            said = re.search(r"en → es at http://127\.0\.0\.1:(\d+)/ ", server.stderr.readline())
            assert said
            answer = json.loads(ask(ASKED[0], said[1]))
        finally:
            server.terminate()
    assert answer["translatedText"]


def ask(line: str, port: str) -> str:
    """Return what curl prints; if curl is missing, the same request by `http.client`."""
    if shutil.which("curl"):
        words = shlex.split(line.replace(":5000", f":{port}"))
        return subprocess.run([*words, "--silent"], capture_output=True, text=True, check=True, timeout=HANGS).stdout
    words = re.fullmatch(r"curl -d '?(q=.*)' localhost:5000(/\S+)", line.replace("q='", "'q="))
    assert words
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=HANGS)
    connection.request("POST", words[2], words[1], {"Content-Type": "application/x-www-form-urlencoded"})
    return connection.getresponse().read().decode()


# ---- the other commands, with the same model; those that train, import, serve or need others are only parsed ----

OTHERS = {
    re.sub(r'"[^"]*"| runs/demo(?!-)', "", line): line
    for line in sorted({*SHOWN} - {*commands(f"```sh\n{chr(10).join(WALK)}\n```")})
    if (not re.match(r"mtcli (train|improve|distill|serve|import|--)|.* --(to huggingface|pivot)|.*opus-mt", line)
    and "--compare runs/es-nah" not in line)
    or line == "mtcli --version"
}  # fmt: skip
"""One of the commands that differ only in the text, or in the name of the last model."""


DOCUMENTS = {
    "film.srt": "1\n00:00:01,000 --> 00:00:02,000\nred tree.\n",
    "messages.po": 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "red tree."\nmsgstr ""\n',
    "page.html": "<html><body><p>red tree.</p></body></html>\n",
    "products.csv": "title,description\nred tree.,blue house.\n",
    "terms.tsv": "tree\teert\n",
    "memory.tsv": "red tree.\teert der.\n",
    "corrections.tsv": "source\ttranslation\tdate\tnote\nred tree.\teert der.\t2026-11-25\t\n",
    "old.tmx": '<tmx version="1.4"><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>house</seg></tuv>'
    '<tuv xml:lang="es"><seg>esuoh</seg></tuv></tu></body></tmx>',
}
"""The documents, the terms and the memories that the README names, each with a sentence of the toy pairs."""


@pytest.fixture(scope="module")
def place(folder: Path, exported: str) -> Path:
    """The working folder with the other files and runs that the README names."""
    pairs = toy_pairs()
    for name, part in {"train": pairs[:200], "valid": pairs[200:250], "test": pairs[250:]}.items():
        for n, language in enumerate(("en", "de")):
            path = folder / "data" / f"{name}.{language}"
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(f"{pair[n]}\n" for pair in part))
    (folder / "test.csv").write_text("English,Spanish\n" + "".join(f"{src},{tgt}\n" for src, tgt in pairs[:5]))
    files = {
        "in.en": 0,
        "mono.de": 0,
        "input.txt": 0,
        "letter.txt": 0,
        "ref.es": 1,
        "out.es": 1,
        "test_2016_flickr.en": 0,
        "test_2016_flickr.de": 1,
    }
    short = [pair for pair in pairs if "42" not in pair[0] and len(pair[0].split()) < 5][:5]  # with little to repair
    for name, n in files.items():
        (folder / name).write_text("".join(f"{pair[n]}\n" for pair in short))
    for name, text in DOCUMENTS.items():
        (folder / name).write_text(text)
    for name in ("short", "demo", "a", "b", "child", "NAME", "deen"):
        (folder / "runs" / name).symlink_to("pairs-en-es")
    (folder / "runs" / "demo-ctranslate2").symlink_to("pairs-en-es-ctranslate2")
    latest = (folder / "runs" / "latest").readlink()
    for name in ("es-gn", "es-nah"):
        write_tsv(folder / f"{name}.tsv", toy_pairs(100))
    (several,) = (line for line in SHOWN if line.startswith("mtcli train") and "--time 60m --out runs/both" in line)
    sets = [word for name, value in SMALL.items() for word in ("--set", f"{name}={value}")]
    run(several.replace("--time 60m", ""), *sets, "--max-steps", "2", "--device", "cpu")
    (folder / "runs" / "latest").unlink()
    (folder / "runs" / "latest").symlink_to(latest)
    return folder


@pytest.mark.parametrize("line", OTHERS.values())
def test_a_shown_command_runs(line: str, place: Path) -> None:
    run(line, stdin="in.en")
    for word in shlex.split(line):
        if word.endswith((".html", "clean.tsv", ".jsonl")):
            assert (place / word).exists()


def test_mtcli_model_names_the_model_if_no_option_does(
    folder: Path, exported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("mtcli info").startswith("run ")
    monkeypatch.setenv("MTCLI_MODEL", str(folder / "runs" / "pairs-en-es-ctranslate2"))
    assert run("mtcli info").startswith("exported ")
    assert run("mtcli info runs/latest").startswith("run ")


# ---- tables ----


def test_the_functions_and_classes_of_the_paper_are_in_the_files_beside_them() -> None:
    package = ROOT / "src" / "mtcli"
    num_names = 0
    for row in re.findall(r"^\|.*\.py`.*\|$", PAGES["paper.md"], re.MULTILINE):
        quoted = re.findall(r"`([\w./]+)`", row)
        names = [text for text in quoted if re.fullmatch(r"[A-Za-z_][\w.]*", text) and not text.endswith(".py")]
        files = [package / text for text in quoted if text.endswith(".py")]
        for dotted in names:
            module, _, _ = dotted.partition(".")
            where = [*files, *package.rglob(f"{module}.py")]
            code = "\n".join(file.read_text(encoding="utf-8") for file in where)
            for part in dotted.split("."):
                defined = re.search(rf"\b(?:def|class) {part}\b", code) or any(file.stem == part for file in where)
                assert defined, f"{dotted}: {row}"
                num_names += 1
    assert num_names > 10


def test_the_table_of_events_names_every_key(folder: Path) -> None:
    table = re.findall(r"^\| ?(`\w+`|every|) ?\| (`.*?) \| .* \|$", PAGES["files.md"], re.MULTILINE)
    told: dict[str, set[str]] = {}
    event = ""
    for name, keys in table:
        event = name.strip("`") or event
        told.setdefault(event, set()).update(re.findall(r"`(\w+)`", keys))
    common = told.pop("every")
    assert told.pop("start") == {"kept"} | told["average"] - {"steps"}  # only where --init was given
    written: dict[str, set[str]] = {}
    for line in map(json.loads, (folder / "runs/latest/metrics.jsonl").read_text().splitlines()):
        written.setdefault(line["event"], set()).update(line.keys())
    assert {name: keys - common for name, keys in written.items()} == told
    assert all(common <= keys for keys in written.values())


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_installed_and_completes_commands(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = typer.main.get_command
    monkeypatch.setattr(typer.main, "get_command", built.__wrapped__)  # the variables below change what it makes
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # which would find pytest's
    assert f"{shell} completion installed" in run("mtcli --install-completion", shell)
    assert any("_MTCLI_COMPLETE" in path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    for name, value in {
        "_MTCLI_COMPLETE": f"complete_{shell}", "COMP_WORDS": "mtcli tra", "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "mtcli tra", "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    found = run("mtcli")
    assert "train" in found
    assert "translate" in found
    assert "score" not in found.replace("score it", "")
