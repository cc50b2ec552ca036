import os
from pathlib import Path
from typing import Any

import pytest
import torch

from mtcli.config.build import build
from mtcli.runtime.device import deterministic_algorithms
from mtcli.training import run as training_run


@pytest.fixture(autouse=True)
def no_workspace_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "restored at the end")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")


def test_the_settings_hold_in_the_block_only() -> None:
    memory: Any = torch.utils.deterministic
    with deterministic_algorithms(torch.device("cuda")):
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()  # attention is deterministic only without it
        assert torch.backends.cudnn.deterministic
        assert not memory.fill_uninitialized_memory
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.deterministic
    assert memory.fill_uninitialized_memory


def test_a_setting_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with deterministic_algorithms(torch.device("cuda")):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_a_cpu_needs_no_settings() -> None:
    with deterministic_algorithms(torch.device("cpu")):
        assert not torch.are_deterministic_algorithms_enabled()
        assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ


@pytest.mark.parametrize("wanted", [True, False])
def test_training_makes_the_settings_before_anything_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wanted: bool
) -> None:
    enabled: list[bool] = []

    class BegunError(Exception):
        pass

    def join(device: torch.device) -> None:
        enabled.append(torch.are_deterministic_algorithms_enabled())
        raise BegunError

    monkeypatch.setattr(training_run, "join", join)
    config = build(None, {"train.deterministic": wanted})
    with pytest.raises(BegunError):
        training_run.train(config, tmp_path / "run", torch.device("cuda"))
    assert enabled == [wanted]
