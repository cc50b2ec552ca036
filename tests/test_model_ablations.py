"""Why each part is there: the broken variants, which only these tests can build, and what becomes of them."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mtcli.config.schema import ModelConfig
from mtcli.model.attention import attention_weights
from mtcli.model.loss import reference_loss
from mtcli.model.transformer import DecoderLayer, EncoderLayer, Transformer
from mtcli.text.special_tokens import BOS, EOS


class Bare(nn.Module):
    """In place of `Residual`: no sum, no norm."""

    def before(self, x: Tensor) -> Tensor:
        return x

    def after(self, x: Tensor, sublayer: Tensor) -> Tensor:
        return sublayer


def stack(config: ModelConfig, std: float | None = None) -> list[EncoderLayer]:
    """Six encoder layers; with `std`, weights of the post's kind: normal, and not scaled by any width."""
    torch.manual_seed(0)
    layers = [EncoderLayer(config) for _ in range(6)]
    for layer in layers:
        for module in layer.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=std) if std else nn.init.xavier_uniform_(module.weight)
                nn.init.normal_(module.bias, std=std) if std else nn.init.zeros_(module.bias)
    return layers


def without_residuals_and_norms(layers: list[EncoderLayer]) -> list[EncoderLayer]:
    for layer in layers:
        layer.self_residual, layer.ffn_residual = Bare(), Bare()  # type: ignore[assignment]
    return layers


@torch.no_grad()
def outputs(layers: list[EncoderLayer], x: Tensor) -> Iterator[Tensor]:
    for layer in layers:
        x = layer(x, None)
        yield x


def overflowing_softmax(scores: Tensor, dim: int) -> Tensor:
    """The formula as the post types it."""
    power = scores.exp()
    return power / power.sum(dim, keepdim=True)


def test_without_residuals_and_norms_the_post_s_stack_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sizes (d_model 4, two heads of 3, d_ff 8), normal weights, float64 and its softmax: NaN within six layers."""
    config = ModelConfig(d_model=4, d_ff=8, num_heads=2, d_k=3, d_v=3, dropout=0, attention="reference")
    x = torch.tensor([[[1, 3, 3, 5], [2.84, 3.99, 4, 6]]], dtype=torch.float64)

    def last(layers: list[EncoderLayer]) -> Tensor:
        return list(outputs([layer.double() for layer in layers], x))[-1]

    assert last(stack(config, std=1)).isfinite().all()
    assert last(without_residuals_and_norms(stack(config, std=1))).isfinite().all()  # ours subtracts the largest score
    monkeypatch.setattr(Tensor, "softmax", overflowing_softmax)
    assert last(stack(config, std=1)).isfinite().all()
    assert last(without_residuals_and_norms(stack(config, std=1))).isnan().any()


def test_without_residuals_and_norms_the_base_model_overflows() -> None:
    """At d_model 512 not even a stable softmax helps: QKᵀ itself leaves float32, and ∞ − ∞ is NaN."""
    config = ModelConfig(d_model=512, d_ff=2048, num_heads=8, dropout=0, attention="reference")
    x, layers = torch.randn(1, 10, 512, generator=torch.Generator().manual_seed(0)), stack(config, std=1)
    sound = [float(y.abs().max()) for y in outputs(layers, x)]
    assert max(sound) < 10  # each layer ends in a norm
    broken = [y.abs().max() for y in outputs(without_residuals_and_norms(layers), x)]
    assert broken[2] > 1e4 * broken[1] > 1e8 * broken[0]
    assert broken[-1].isnan()


def test_without_residuals_all_positions_become_one() -> None:
    """Xavier keeps the numbers small, but each layer averages: after three, every position holds the same vector."""
    config = ModelConfig(d_model=512, d_ff=2048, num_heads=8, dropout=0)
    x, layers = torch.randn(1, 10, 512, generator=torch.Generator().manual_seed(0)), stack(config)

    def spread(y: Tensor) -> float:
        """How much positions differ, in parts of how large they are."""
        return float((y - y.mean(1, keepdim=True)).norm() / y.norm())

    assert min(spread(y) for y in outputs(layers, x)) > 0.2
    assert list(map(spread, outputs(without_residuals_and_norms(layers), x)))[2] < 1e-2


@pytest.mark.parametrize("d_k", [64, 512])
def test_without_the_root_of_d_k_softmax_saturates(d_k: int) -> None:
    """§3.2.1: one key gets nearly everything, and the gradient to the scores dies."""
    torch.manual_seed(1)
    q, k = torch.randn(1, 1, 500, d_k), torch.randn(1, 1, 32, d_k)

    def entropy_and_slope(weights: Tensor) -> tuple[float, float]:
        entropy = -(weights * weights.clamp(min=1e-30).log()).sum(-1).mean()
        return float(entropy), float((weights * (1 - weights)).sum(-1).mean())  # Σ ∂softmax_s / ∂score_s

    entropy, slope = entropy_and_slope(attention_weights(q, k))
    broken_entropy, broken_slope = entropy_and_slope(attention_weights(q * math.sqrt(d_k), k))
    assert entropy > 0.8 * math.log(32)  # scaled: near the even distribution over 32 keys
    assert slope > 0.9
    assert broken_entropy < 0.25 * math.log(32)
    assert broken_slope < 0.4
    if d_k == 512:
        assert broken_entropy < 0.1 * math.log(32)
        assert broken_slope < 0.15


def small(**changes: Any) -> ModelConfig:
    shape = {"d_model": 32, "d_ff": 64, "num_heads": 2, "num_encoder_layers": 2, "num_decoder_layers": 1, "dropout": 0}
    return ModelConfig(**{**shape, **changes})


@torch.no_grad()
def test_without_positions_a_shuffled_source_gives_the_same_memory() -> None:
    torch.manual_seed(1)
    model = Transformer(small(), 50, 50, joint=True).double()
    src, order = torch.randint(3, 50, (1, 9)), torch.tensor([4, 8, 0, 6, 2, 7, 1, 5, 3])

    def moved() -> float:
        """The largest change of any piece's vector when the sentence is shuffled."""
        return float((model.encode(src[:, order])[0] - model.encode(src)[0][:, order]).abs().max())

    assert moved() > 0.1
    model.src_embedding.table.zero_()
    assert moved() < 1e-12  # float64: sums over the source are taken in another order
    # and so a decoder could not tell "dog bites man" from "man bites dog"
    tgt = torch.tensor([[BOS, 7, 8]])
    torch.testing.assert_close(model(src[:, order], tgt), model(src, tgt), rtol=0, atol=1e-12)


class Unmasked(DecoderLayer):
    """A decoder layer whose self-attention sees the whole target, the piece to be predicted included."""

    def forward(self, y: Tensor, memory: Any, mask: Tensor | None) -> Tensor:
        y = self.self_residual.after(y, self.self_attention.from_self(self.self_residual.before(y), None, causal=False))
        return self.attend_and_transform(y, memory, mask)


def test_without_the_mask_the_loss_cheats() -> None:
    """Targets drawn at random, new ones each step: nothing can be learnt, and log V is the best honest loss."""
    V, B, T, pieces = 16, 64, 4, 13

    def final_loss(layer: type[DecoderLayer]) -> float:
        torch.manual_seed(0)
        model = Transformer(small(norm="pre", num_encoder_layers=1), V, V, joint=True)
        model.decoder = nn.ModuleList(layer(model.config) for _ in range(1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.98))
        losses = []
        for _ in range(150):
            tgt = torch.randint(3, V, (B, T + 1))
            tgt_in = torch.cat((torch.full((B, 1), BOS), tgt[:, :-1]), dim=1)
            logits = model(torch.full((B, 1), EOS), tgt_in)[:, :-1]  # what follows the last input is nowhere to be seen
            loss = reference_loss(logits.flatten(0, 1), tgt[:, :-1].flatten(), 0.0)[0] / (B * T)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return sum(losses[-20:]) / 20

    assert final_loss(DecoderLayer) == pytest.approx(math.log(pieces), abs=0.1)
    assert final_loss(Unmasked) < 0.1
