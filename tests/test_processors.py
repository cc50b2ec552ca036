"""`scripts/test --processors`, and what its variants change."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from conftest import NUM_CORES, PLAIN, TESTS, is_numeric

from mtcli.runtime.cores import all_cores

SCRIPT = PLAIN.with_name("test")
STUB = """#!/bin/sh
# Writes what it is called with, and fails for one of the variants.
[ "$1" = scripts/setup ] && exit
env | grep ^MTCLI_TEST_ >> calls
echo "$@" >> calls
[ "${MTCLI_TEST_CPU-}" != "${FAILS-default}" ]
"""
VARIANTS = [
    "CPU=default", "CPU=avx2", "CBWR=COMPATIBLE", "CORES=3", "SEED=1", "SEED=2", "SEED=3", "SEED=4",
]  # fmt: skip


def run_script(folder: Path, *arguments: str, **variables: str) -> tuple["subprocess.CompletedProcess[str]", list[str]]:
    """Run scripts/test in a repository whose commands are stubs. Return how it ended, and their calls."""
    (folder / "scripts").mkdir()
    shutil.copy(SCRIPT, folder / "scripts")
    (folder / "scripts" / "plain").write_text(STUB)
    (folder / "scripts" / "plain").chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MTCLI_TEST_")}
    done = subprocess.run(
        [folder / "scripts" / "test", *arguments],
        env=environment | {"TMPDIR": str(folder)} | variables, capture_output=True, text=True,
    )  # fmt: skip
    return done, (folder / "calls").read_text().splitlines()


def test_all_variants_run_although_one_fails(tmp_path: Path) -> None:
    done, calls = run_script(tmp_path, "--processors", "-k", "beam or greedy")
    assert done.returncode == 1
    assert calls[::2] == [f"MTCLI_TEST_{variant}" for variant in VARIANTS]
    (command,) = set(calls[1::2])
    assert " -m numeric and not slow and not gpu and not network " in command
    assert command.endswith(" -k beam or greedy")
    results = [f"{variant} {'FAILED' if variant == 'CPU=default' else 'passed'}" for variant in VARIANTS]
    assert done.stdout.splitlines()[-len(VARIANTS) :] == results


def test_the_script_succeeds_if_all_variants_do(tmp_path: Path) -> None:
    done, _ = run_script(tmp_path, "--processors", FAILS="none")
    assert done.returncode == 0
    assert "FAILED" not in done.stdout


def test_without_the_option_all_checks_run(tmp_path: Path) -> None:
    done, calls = run_script(tmp_path, "-k", "beam", FAILS="none")
    assert done.returncode == 0
    assert [call.split()[2] for call in calls] == ["ruff", "ruff", "mypy", "pytest"]
    assert calls[-1].endswith("-k beam")


def test_the_variables_of_a_variant_reach_pytorch() -> None:
    assert all_cores().size == NUM_CORES
    assert torch.get_num_threads() == 1
    wanted = os.environ.get("MTCLI_TEST_CPU")
    if wanted:
        assert torch.backends.cpu.get_cpu_capability() == wanted.upper()


@pytest.mark.parametrize("name", ["attention", "cpu_kernels", "export", "loss", "marian_import", "search", "train"])
def test_files_that_compute_are_numeric(name: str) -> None:
    assert is_numeric(TESTS / f"test_{name}.py")
    assert not is_numeric(TESTS / "test_po.py")
