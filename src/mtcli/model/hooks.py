"""Hooks that record what a forward pass computes, without a second implementation of the model.

`record_attention` records the attention of given modules, `record_forward` also the input and output of every module:

    with record_forward(model) as recording:
        model(src, tgt)
    recording.attention[model.decoder[-1].cross_attention].weights
    recording.output(model.encoder_norm)

The model must be the one that translates, so that the numbers shown are the numbers used.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

from mtcli.model.attention import attention_scores
from mtcli.model.multi_head import MultiHeadAttention


@dataclass(frozen=True)
class AttentionRecord:
    """Scaled dot-product attention (§3.2.1) of one module: B batch, H heads, T queries, S keys."""

    q: Tensor
    """Queries (B, H, T, d_k)."""
    k: Tensor
    """Keys (B, H, S, d_k)."""
    v: Tensor
    """Values (B, H, S, d_v)."""
    scores: Tensor
    """QKᵀ / √d_k (B, H, T, S); −∞ at masked positions."""
    weights: Tensor
    """softmax(scores) (B, H, T, S); each row sums to 1."""
    output: Tensor
    """weights · V (B, H, T, d_v)."""


@dataclass(frozen=True)
class Call:
    """One call of a module."""

    input: Tensor
    """The first argument."""
    output: Tensor


@dataclass(frozen=True)
class Recording:
    """The intermediate results of a forward pass, by module."""

    attention: dict[nn.Module, AttentionRecord]
    calls: dict[nn.Module, list[Call]]
    """The calls of each module in order. An embedding table shared by source and target is called twice."""

    def input(self, module: nn.Module) -> Tensor:
        """Return the input of the module's last call."""
        return self.calls[module][-1].input

    def output(self, module: nn.Module) -> Tensor:
        """Return the output of the module's last call."""
        return self.calls[module][-1].output


@contextmanager
def record_attention(modules: Iterable[MultiHeadAttention]) -> Iterator[dict[nn.Module, AttentionRecord]]:
    """Record the attention of these modules while the context is open; a later pass replaces an earlier one.

    Inside the context the modules compute attention by equation 1 as written, because the fused kernel never stores
    its weights. Their own function is restored on exit.
    """
    records: dict[nn.Module, AttentionRecord] = {}
    originals = {module: module.attend for module in modules}
    try:
        for module in originals:
            module.attend = _RecordingAttention(module, records)
        yield records
    finally:
        for module, attend in originals.items():
            module.attend = attend


class _RecordingAttention:
    """An `Attention` function that stores its intermediate results in `records`."""

    def __init__(self, module: MultiHeadAttention, records: dict[nn.Module, AttentionRecord]):
        self.module = module
        self.records = records

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        scores = attention_scores(q, k, mask, causal)
        weights = scores.softmax(dim=-1)
        output = weights @ v
        self.records[self.module] = AttentionRecord(q, k, v, scores, weights, output)
        return output


@contextmanager
def record_forward(model: nn.Module) -> Iterator[Recording]:
    """Record every module call and every attention of `model` while the context is open."""
    calls: dict[nn.Module, list[Call]] = {}

    def record_call(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls.setdefault(module, []).append(Call(inputs[0], output))

    attentions = [module for module in model.modules() if isinstance(module, MultiHeadAttention)]
    hooks = [module.register_forward_hook(record_call) for module in model.modules()]
    try:
        with record_attention(attentions) as attention:
            yield Recording(attention, calls)
    finally:
        for hook in hooks:
            hook.remove()
