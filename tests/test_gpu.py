"""The claims about CUDA, on the simulated device, and with `-m gpu` on a real one."""

import signal
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import simulated_cuda
import torch
from conftest import TOY_SETTINGS, descend, toy_pairs, write_tsv
from helpers.harness import outcome

from mtcli.config.build import build as build_config
from mtcli.config.schema import ModelConfig, TrainConfig
from mtcli.errors import StoppedError
from mtcli.model.attention import fused_attention, reference_attention
from mtcli.model.loss import projected_loss, reference_loss
from mtcli.model.transformer import Transformer
from mtcli.search.beam import beam_search
from mtcli.search.constraints import Limits
from mtcli.search.greedy import greedy_search
from mtcli.text.special_tokens import BOS, EOS, PAD
from mtcli.training.optimizer import Adam
from mtcli.training.run import train
from mtcli.training.saving import Checkpoints

V = 60

Check = Callable[..., None]


def call(check: Check, *args: object) -> None:
    check(*args)


GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.fixture(
    params=[
        pytest.param(simulated_cuda.run, marks=simulated_cuda.needs_simulated_cuda, id="simulated"),
        pytest.param(call, marks=GPU, id="gpu"),
    ]
)
def on_cuda(request: pytest.FixtureRequest) -> Check:
    """Return a function that calls a function of this module where there is a CUDA device."""
    run: Check = request.param
    return run


def build() -> Transformer:
    torch.manual_seed(1)
    shape = ModelConfig(d_model=64, d_ff=128, num_heads=4, num_encoder_layers=2, num_decoder_layers=2)
    return Transformer(shape, V, V, joint=True)


def draw(rows: int = 40) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sources, targets shifted right, and targets, padded."""
    torch.manual_seed(2)
    bodies = [torch.randint(3, V, (1 + i % 13,)).tolist() for i in range(rows)]

    def pad(lines: list[list[int]]) -> torch.Tensor:
        width = max(map(len, lines))
        return torch.tensor([line + [PAD] * (width - len(line)) for line in lines])

    return pad([[*x, EOS] for x in bodies]), pad([[BOS, *x] for x in bodies]), pad([[*x, EOS] for x in bodies])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_fused_equals_reference_in_bf16(on_cuda: Check, padded: bool, causal: bool) -> None:
    on_cuda(check_attention, padded, causal)


def check_attention(padded: bool, causal: bool) -> None:
    torch.manual_seed(3)
    q, k, v = (torch.randn(3, 4, 33, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    lengths = torch.tensor([33, 20, 1], device="cuda")
    mask = (torch.arange(33, device="cuda") < lengths[:, None])[:, None, None] if padded else None
    fused = fused_attention(q, k, v, mask, causal)
    exact = reference_attention(q.float(), k.float(), v.float(), mask, causal)
    # bf16 keeps 8 bits: each of weights, products and output may be off by 2^-8 of values of the size of 1
    torch.testing.assert_close(fused.float(), exact, rtol=2e-2, atol=2e-2)
    direction = torch.randn_like(exact)
    actual = torch.autograd.grad(fused, (q, k, v), direction.bfloat16())
    for a, e in zip(actual, torch.autograd.grad(exact, (q, k, v), direction), strict=True):
        assert float((a.float() - e.float()).norm() / e.float().norm()) < 2e-2


def test_projected_loss_equals_reference_in_bf16(on_cuda: Check) -> None:
    on_cuda(check_loss)


def check_loss() -> None:
    torch.manual_seed(4)
    hidden = torch.randn(1500, 64, device="cuda", requires_grad=True)
    weight = torch.randn(V, 64, device="cuda", requires_grad=True)
    target = torch.randint(V, (1500,), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss, nll = projected_loss(hidden, weight, target, 0.1)
    expected, expected_nll = reference_loss(hidden @ weight.t(), target, 0.1)
    torch.testing.assert_close(loss, expected, rtol=1e-2, atol=0)
    torch.testing.assert_close(nll, expected_nll, rtol=1e-2, atol=0)
    actual, wanted = torch.autograd.grad(loss, (hidden, weight)), torch.autograd.grad(expected, (hidden, weight))
    for a, e in zip(actual, wanted, strict=True):
        assert float((a - e).norm() / e.norm()) < 2e-2


def test_training_in_bf16_lowers_the_loss(on_cuda: Check) -> None:
    on_cuda(check_training)


def check_training() -> None:
    model = build().cuda()
    src, tgt, out = (x.cuda() for x in draw())
    real = out != PAD
    optimizer = Adam(TrainConfig(), model.named_parameters())
    losses = []
    for _ in range(25):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            hidden = model.decode(tgt, *model.encode(src))
            loss, _ = projected_loss(hidden[real], model.output.weight, out[real], 0.1)
        (loss / real.sum()).backward()
        descend(optimizer, 3e-3)
        losses.append(loss.item() / int(real.sum()))
    assert losses[-1] < losses[0] - 1, losses
    assert all(p.dtype == torch.float32 and p.isfinite().all() for p in model.parameters())


def test_search_equals_the_cpu_s_up_to_near_ties(on_cuda: Check) -> None:
    on_cuda(check_search)


def check_search() -> None:
    model, src = build().eval(), draw(100)[0]
    bounds = Limits([20] * len(src), forbidden=(PAD, BOS))

    def search(device: str) -> list[list[tuple[list[int], float]]]:
        model.to(device)
        greedy = greedy_search(model, src.to(device), bounds)
        beams = beam_search(model, src.to(device), bounds, beam_size=4, alpha=0.6)
        return [[(h.ids, h.score) for h in (one, found[0])] for one, found in zip(greedy, beams, strict=True)]

    alike = 0
    for (greedy, beam), (cuda_greedy, cuda_beam) in zip(search("cpu"), search("cuda"), strict=True):
        assert beam[0] == cuda_beam[0] or beam[1] == pytest.approx(cuda_beam[1], abs=1e-3)
        alike += greedy[0] == cuda_greedy[0]
    assert alike >= 99  # of 100: a greedy search that parts at a near-tie may end anywhere


def test_a_resumed_deterministic_run_has_the_bits_of_an_uninterrupted_one(on_cuda: Check, tmp_path: Path) -> None:
    write_tsv(tmp_path / "toy.tsv", toy_pairs())
    on_cuda(check_resuming, tmp_path)
    assert outcome(tmp_path / "resumed") == outcome(tmp_path / "whole")


def check_resuming(folder: Path) -> None:
    """Train without interruption, and with an error just after a thread began to write the checkpoint of step 2."""
    sets = ["train.max_steps=4", "train.save_every=2", "train.accumulate=2", "decode.max_extra=1"]
    values = {"data.train": [str(folder / "toy.tsv")], "data.src": "en", "data.tgt": "xx"}
    config = build_config(
        None,
        values,
        [*TOY_SETTINGS, *sets, "train.deterministic=true", 'train.precision="auto"', "train.valid_every=4"],
    )
    train(config, folder / "whole", torch.device("cuda"))
    save = Checkpoints.save

    def save_and_fail(self: Checkpoints) -> None:
        save(self)
        if self.session.state.step == 2:
            raise StoppedError("stopped", signal.SIGTERM)

    with patch.object(Checkpoints, "save", save_and_fail), pytest.raises(StoppedError):
        train(config, folder / "resumed", torch.device("cuda"))
    train(config, folder / "resumed", torch.device("cuda"))
