import resource
from pathlib import Path

import pytest

from mtcli.errors import StorageError
from mtcli.runtime import memory
from mtcli.runtime.memory import available, require


def test_available_memory_is_less_than_all_memory() -> None:
    free = available()
    assert free is not None
    assert 0 < free < 2**50
    require(free / 2, "this", "do that")
    with pytest.raises(StorageError, match=r"^this needs about 1,000,000.0 GB of memory, .* GB are free; do that$"):
        require(1e15, "this", "do that")


def test_the_limit_of_a_container_counts_without_its_file_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    before = available()
    assert before is not None
    (tmp_path / "memory.max").write_text("9000000\n")
    (tmp_path / "memory.current").write_text("8000000\n")
    (tmp_path / "memory.stat").write_text("anon 5000000\nfile 3000000\n")
    assert available() == 4_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available() != 4_000_000


def test_the_limit_of_the_address_space_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1_000_000, 1_000_000))
    assert available() == 0
