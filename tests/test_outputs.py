"""The finished lines of an output are kept after an error, and the message names their file."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mtcli.errors import StorageError
from mtcli.runtime.outputs import partial_file


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
