"""Files of model and run folders: only regular files of a sensible size are read."""

import os
from pathlib import Path

import pytest

from mtcli.runtime import files
from mtcli.runtime.files import read_regular


def test_a_file_over_the_limit_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "info.json"
    path.write_bytes(b"12345")
    assert read_regular(path, most=5) == b"12345"

    class Unread:
        def __init__(self, path: Path) -> None:
            self.file = path.open("rb")

        def __enter__(self) -> "Unread":
            return self

        def __exit__(self, *error: object) -> None:
            self.file.close()

        def fileno(self) -> int:
            return self.file.fileno()

        def read(self, size: int) -> bytes:
            raise AssertionError("read")

    os.truncate(path, 2**40)  # sparse
    monkeypatch.setattr(files, "open_regular", Unread)
    with pytest.raises(OSError, match="larger than 5 bytes, the limit for such a file"):
        read_regular(path, most=5)


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "info.json"
    path.write_bytes(b"12345")
    size = os.stat_result((0o100644, 0, 0, 1, 0, 0, 3, 0, 0, 0))
    monkeypatch.setattr(files.os, "fstat", lambda descriptor: size)
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_regular(path, most=3)
