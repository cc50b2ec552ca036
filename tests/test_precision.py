"""The choice of the precision on a GPU. The choice on a CPU is tested in test_loss.py."""

import pytest
import torch

from mtcli.config.schema import TrainConfig
from mtcli.model.precision import uses_bf16, warn_of_emulated_bf16
from mtcli.runtime.device import pick_device

CUDA = torch.device("cuda")


def simulate_gpu(monkeypatch: pytest.MonkeyPatch, *, has_bf16: bool) -> None:
    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return has_bf16 or including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", is_bf16_supported)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")


def test_a_gpu_uses_bf16_if_it_does_not_only_emulate_it(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_gpu(monkeypatch, has_bf16=True)
    assert uses_bf16(TrainConfig(precision="auto"), CUDA)
    assert not uses_bf16(TrainConfig(precision="fp32"), CUDA)
    simulate_gpu(monkeypatch, has_bf16=False)
    assert not uses_bf16(TrainConfig(precision="auto"), CUDA)
    assert uses_bf16(TrainConfig(precision="bf16"), CUDA)


@pytest.mark.parametrize(
    ("precision", "has_bf16", "warns"), [("bf16", False, True), ("bf16", True, False), ("auto", False, False)]
)
def test_bf16_that_is_only_emulated_causes_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, precision: str, has_bf16: bool, warns: bool
) -> None:
    simulate_gpu(monkeypatch, has_bf16=has_bf16)
    config = TrainConfig.model_validate({"precision": precision})
    warn_of_emulated_bf16(config, CUDA)
    warn_of_emulated_bf16(config, torch.device("cpu"))
    assert ("Tesla T4 only emulates bf16" in caplog.text) is warns


def test_a_gpu_chosen_by_number_becomes_the_current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert pick_device("cuda:1") == torch.device("cuda:1")
    assert chosen == [torch.device("cuda:1")]
