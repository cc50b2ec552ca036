"""Outputs: finished lines are kept after an error, folders are replaced whole, and names are checked."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mtcli.corpus.quality.clean import clean
from mtcli.corpus.quality.corpus import Corpus
from mtcli.errors import LockedError, StorageError, UsageError
from mtcli.runtime.outputs import check_folder, check_replaceable, folder_beside, is_special, partial_file, whole_folder


def failure(output: Path, lines: str, fail: Callable[[], None]) -> str:
    """Write lines, call `fail`, and return the message of the error."""

    def write() -> None:
        with partial_file(output) as file:
            file.write(lines)
            fail()

    with pytest.raises(StorageError) as found:
        write()
    return str(found.value)


@pytest.mark.parametrize(
    ("lines", "message"),
    [("one\n", "the first line of the output is in"), ("one\ntwo\n", "the first 2 lines of the output are in")],
)
def test_finished_lines_are_kept_beside_the_output(tmp_path: Path, lines: str, message: str) -> None:
    def fail() -> None:
        raise StorageError("broken")

    partial = tmp_path / "out.partial"
    assert failure(tmp_path / "out", lines, fail) == f"broken; {message} {partial}"
    assert partial.read_text() == lines


@pytest.mark.parametrize("lines", ["", "one\ntwo\n"])
def test_a_deleted_folder_is_named_instead_of_the_partial_file(tmp_path: Path, lines: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    message = failure(folder / "out", lines, lambda: shutil.rmtree(folder))
    assert message.endswith(f"; the folder {folder} was deleted, and the output with it")


def test_a_deleted_partial_file_is_named(tmp_path: Path) -> None:
    partial = tmp_path / "out.partial"
    assert failure(tmp_path / "out", "one\n", partial.unlink).endswith(
        f"; {partial} was deleted, and the output with it"
    )


def write_model(folder: Path) -> None:
    """Write a folder of one file, `model`, as a command does that replaces a folder."""
    check_folder(folder)
    check_replaceable(folder, "example", "model", {"model"}.__contains__)
    with whole_folder(folder) as new:
        (new / "model").write_text("new")


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        with whole_folder(folder) as new:
            (new / "model").write_text("half")
            raise StorageError("broken")

    folder = tmp_path / "folder"
    write_model(folder)
    with pytest.raises(StorageError, match="broken"):
        fail(folder)
    assert (folder / "model").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_the_files_of_a_folder_are_synced_before_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    folder = tmp_path / "folder"
    with whole_folder(folder) as new:
        (new / "data").mkdir()
        (new / "data" / "model").write_text("new")
    paths = (folder / "data" / "model", folder / "data", folder, tmp_path)
    assert synced == [path.stat().st_ino for path in paths]


def test_a_folder_stays_if_the_new_one_cannot_take_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, target: Path) -> Path:
        if path.name == ".folder.tmp":
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    rename = Path.rename
    folder = tmp_path / "folder"
    write_model(folder)
    (folder / "model").write_text("old")
    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(StorageError, match="Input/output error"):
        write_model(folder)
    assert (folder / "model").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_link_stays_and_its_folder_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "model").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_model(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "model").read_text() == "new"


def test_a_name_of_the_greatest_length_is_written(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 255)
    write_model(folder)
    assert (folder / "model").read_text() == "new"


@pytest.mark.parametrize("name", [".", "..", "../here", "inner/.."])
def test_the_current_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    here = tmp_path / "here"
    (here / "inner").mkdir(parents=True)
    monkeypatch.chdir(here)
    with pytest.raises(UsageError, match="is or contains the current folder"):
        write_model(Path(name))
    assert here.is_dir()


@pytest.mark.parametrize(
    ("folder", "beside"),
    [
        (".", "../here-average"),
        ("..", "{parent}-average"),
        ("inner", "inner-average"),
        ("inner/..", "../here-average"),
        ("link", "inner-average"),
        ("/", "/-average"),
    ],
)
def test_the_name_of_a_folder_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, beside: str
) -> None:
    here = tmp_path / "here"
    (here / "inner").mkdir(parents=True)
    (here / "link").symlink_to("inner")
    monkeypatch.chdir(here)
    expected = Path(beside.format(parent=tmp_path)).resolve()
    assert folder_beside(Path(folder), "average").resolve() == expected


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (".", "is a folder"),
        ("folder", "is a folder"),
        (".gz", "has no name before its suffix"),
        (".tsv", "has no name before its suffix"),
        (".TSV.gz", "has no name before its suffix"),
        ("out.xlsx", "pairs are not written as .xlsx"),
        ("out.TXT", "pairs are not written as .txt"),
        ("/dev/null", "is a device or pipe"),
    ],
)
def test_clean_refuses_names_without_a_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "pairs.tsv").write_text("one\tuno\n")
    with pytest.raises(UsageError, match=f"{reason}.*name the output x.tsv, x.csv or x.jsonl"):
        clean(Corpus(["pairs.tsv"], "en", "es"), Path(name))
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "pairs.tsv"}


def test_suffixes_in_capitals_tell_the_form(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("one\tuno\n")
    pairs = Corpus([str(tmp_path / "pairs.tsv")], "en", "es")
    clean(pairs, tmp_path / "clean.CSV")
    assert (tmp_path / "clean.CSV").read_text() == "en,es\none,uno\n"
    clean(pairs, tmp_path / "both.GZ")
    assert {path.name for path in tmp_path.glob("both*")} == {"both.en.GZ", "both.es.GZ"}


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="files in memory, on Linux")
def test_a_link_among_files_in_memory_is_no_device() -> None:
    with TemporaryDirectory(dir="/dev/shm") as folder:
        link = Path(folder) / "link"
        link.symlink_to("out")
        (Path(folder) / "out").write_text("old")
        assert not is_special(link)
    assert is_special(Path("/dev/stdout"))


def test_two_commands_do_not_write_a_folder_at_the_same_time(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with whole_folder(out) as first:
        (first / "a").write_text("first")
        message = f"out: process {os.getpid()} is writing it; wait for it, or choose another"
        with pytest.raises(LockedError, match=message), whole_folder(out):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with whole_folder(out) as second:
        (second / "b").write_text("second")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == ["out", "out/b"]
