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
    monkeypatch.setattr(memory, "OWN_CGROUP", tmp_path / "none")
    write_limit(tmp_path, "9000000", used=8_000_000, caches=3_000_000)
    assert available() == 4_000_000
    write_limit(tmp_path, "max", used=8_000_000, caches=3_000_000)
    assert available() != 4_000_000


def test_the_limit_of_a_job_of_a_cluster_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is in a group within that of the job, as under SLURM."""
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    monkeypatch.setattr(memory, "OWN_CGROUP", tmp_path / "self")
    (tmp_path / "self").write_text("9:name=systemd:/other\n0::/slurm/job_7/step_0\n")
    task = tmp_path / "slurm" / "job_7" / "step_0"
    task.mkdir(parents=True)
    write_limit(task, "max", used=1_000_000)
    write_limit(task.parent, "5000000", used=2_000_000)
    write_limit(task.parent.parent, "9000000", used=2_000_000)
    assert available() == 3_000_000


def write_limit(group: Path, limit: str, used: int, caches: int = 0) -> None:
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon {used - caches}\nfile {caches}\n")


def test_the_limit_of_the_address_space_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1_000_000, 1_000_000))
    assert available() == 0
