"""What is built from the repository: the wheel, the source archive, and the documentation site with its notebook."""

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request
import venv
import zipfile
from email.message import Message
from pathlib import Path

import pytest
from helpers.documentation import CELLS, NOTEBOOK, PROJECT, ROOT
from helpers.toy import PAIRS, save_run, toy
from packaging.requirements import Requirement

from mtcli import __version__
from mtcli.exchange.export import export


def python(*arguments: object, cwd: Path = ROOT, interpreter: Path | str = sys.executable) -> str:
    """Run `python …` and return its output, of which a failed test shows the end."""
    done = subprocess.run([interpreter, *map(str, arguments)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("built")
    python("-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (wheel,) = built.glob("*.whl")
    return wheel


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        return email.message_from_string(archive.read(f"mtcli-{__version__}.dist-info/METADATA").decode())


def test_the_wheel_has_the_files_of_the_package_and_no_others(wheel: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode != 0:
        pytest.skip("not a git repository")
    files = {name.removeprefix("src/") for name in tracked.stdout.splitlines() if (ROOT / name).is_file()}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        entry_points = archive.read(f"mtcli-{__version__}.dist-info/entry_points.txt").decode()
    assert files <= packed
    assert all(Path(name).parts[0] == "mtcli" and "__pycache__" not in name for name in packed)
    assert "mtcli = mtcli.cli:main" in entry_points


def test_the_metadata_is_that_of_the_project(wheel: Path) -> None:
    found = metadata(wheel)
    assert (found["Name"], found["Version"]) == ("mtcli", __version__)
    assert found["Requires-Python"] == PROJECT["requires-python"]
    assert found["License-Expression"] == "MIT"
    assert found["License-File"] == "LICENSE"
    assert found["Description-Content-Type"] == "text/markdown"
    assert found.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    required = found.get_all("Requires-Dist") or []
    always = {Requirement(one) for one in required if "extra ==" not in one}
    assert always == {Requirement(one) for one in PROJECT["dependencies"]}
    assert set(found.get_all("Provides-Extra") or []) == set(PROJECT["optional-dependencies"])


def test_the_source_archive_has_no_data_but_the_demo(built: Path) -> None:
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        sizes = {member.name.partition("/")[2]: member.size for member in opened.getmembers() if member.isfile()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"} <= sizes.keys()
    tests = {Path(name).suffix for name in sizes if name.startswith("tests/")}
    assert tests <= {".py", ".cpp", ".md"}
    largest = max(sizes, key=sizes.__getitem__)
    assert largest == "src/mtcli/corpus/demo.tsv.gz"


def test_the_citation_names_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (\S+)$", citation, re.MULTILINE) == [__version__]
    assert PROJECT["description"].replace('"', "'") in citation


def test_the_changelog_begins_with_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (\S+)", changelog, re.MULTILINE)
    assert __version__ in headings[:2]
    assert headings[0] in ("Unreleased", __version__)


def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    """MkDocs checks every link and anchor between the pages, and that each page is in the navigation."""
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages == {path.parent.name for path in (tmp_path / "site").glob("*/index.html")}
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="https?://', page), "loads from another server"


def test_the_notebook_holds_no_output() -> None:
    assert NOTEBOOK["nbformat"] == 4
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in NOTEBOOK["cells"])


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Jupyter runs it: a line that begins with `!` in a shell, everything else in one Python."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    names: dict[str, object] = {}
    for cell in CELLS:
        if not cell.startswith("!"):
            exec(cell, names)
            continue
        done = subprocess.run(cell[1:], shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, f"{cell}\n{done.stdout[-4000:]}"
        assert done.stdout.strip(), cell
    assert (tmp_path / "runs" / "first" / "report.html").is_file()


@pytest.mark.slow
def test_the_wheel_in_a_new_environment(wheel: Path, tmp_path: Path) -> None:
    """Installed with pip, it trains, translates and scores outside the repository."""
    venv.create(tmp_path / "environment", with_pip=True)
    programs = tmp_path / "environment" / "bin"
    python("-m", "pip", "install", "--quiet", wheel, interpreter=programs / "python", cwd=tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    settings = ["--set", "train.precision=fp32"]
    for arguments in (
        ["--version"],
        ["train", "--max-steps", "60", *settings],
        ["translate", "Hello World"],
        ["eval", "--bleu"],
    ):
        command = [programs / "mtcli", *arguments]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
        assert done.returncode == 0, done.stderr[-4000:]
        assert done.stdout.strip() or arguments[0] == "train"
    assert (work / "runs" / "latest" / "model.safetensors").is_file()
    shutil.rmtree(tmp_path / "environment")


def small_requirements() -> list[str]:
    """Return the packages that the documentation installs to serve an exported model without PyTorch."""
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"small/bin/pip install (ctranslate2 .*)", page)
    return line.split()


def test_a_small_server_needs_requirements_of_the_project_only() -> None:
    extras = PROJECT["optional-dependencies"]
    known = [*PROJECT["dependencies"], *extras["serve"], *extras["export"], *extras["documents"]]
    names = {Requirement(each).name for each in known}
    assert set(small_requirements()) <= names
    assert not {"torch", "datasets"} & set(small_requirements())


def stages() -> list[list[tuple[str, str]]]:
    """Return the instructions of each stage of the Dockerfile: pairs of a name and its arguments."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    found: list[list[tuple[str, str]]] = []
    for line in lines:
        if not line or line.startswith("#"):
            continue
        name, _, arguments = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append((name, arguments))
    return found


def test_the_dockerfile_installs_what_the_documentation_says() -> None:
    build, served = stages()
    known = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "ENTRYPOINT"}
    assert {name for name, _ in build + served} <= known
    installs = [arguments.split() for name, arguments in build if name == "RUN" and " install " in arguments]
    assert installs[0][-2:] == ["--no-deps", "."]
    assert installs[1][-len(small_requirements()) :] == small_requirements()
    copied = [source for name, arguments in build if name == "COPY" for source in arguments.split()[:-1]]
    assert all((ROOT / source).exists() for source in copied)
    commands = [json.loads(arguments) for name, arguments in served if name == "ENTRYPOINT"]
    assert commands[0][:2] == ["/opt/mtcli/bin/mtcli", "serve"]
    assert ("USER", "mtcli") in served, "the server does not need root"


@pytest.mark.slow
def test_a_small_server_in_a_new_environment(tmp_path: Path) -> None:
    """The steps of the Dockerfile, outside of Docker, make an environment that serves an exported model."""
    run = tmp_path / "run"
    export(save_run(run, toy()), "ctranslate2", tmp_path / "exported")
    programs = tmp_path / "small" / "bin"
    build, served = stages()
    for name, arguments in build:
        if name == "RUN":
            step = arguments.replace("/opt/mtcli", str(tmp_path / "small"))
            done = subprocess.run(step, shell=True, cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[-4000:]
    assert not list((tmp_path / "small").rglob("site-packages/torch"))
    (entry,) = [json.loads(arguments) for name, arguments in served if name == "ENTRYPOINT"]
    command = [programs / "mtcli", *entry[1:]]
    command[command.index("/model")] = "exported"
    command[command.index("5000")] = "0"
    command[command.index("0.0.0.0")] = "127.0.0.1"
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            found = re.search(r":(\d+)/", server.stderr.readline())
            assert found
            body = urllib.parse.urlencode({"q": PAIRS[7][0]}).encode()
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/translate", body) as answer:
                assert json.load(answer)["translatedText"] == PAIRS[7][1]
        finally:
            server.kill()
    shutil.rmtree(tmp_path / "small")
