"""What a pass through the model computes on its way, kept: nothing here computes anything of its own.

The model is not written twice to be looked at. `recording` listens to every module of the very model that
translates, and takes the place of the function it attends with, since the fused kernel never stores its weights.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn

from mtcli.attention import attention_scores
from mtcli.model import MultiHeadAttention


@dataclass(frozen=True)
class Attended:
    """One attention: B batch, H heads, T queries, S keys, K size of a head."""

    q: Tensor
    """(B, H, T, d_k)."""
    k: Tensor
    """(B, H, S, d_k)."""
    v: Tensor
    """(B, H, S, d_v)."""
    scores: Tensor
    """QKᵀ / √d_k, −∞ where a query may not look, (B, H, T, S)."""
    weights: Tensor
    """Their softmax, (B, H, T, S)."""
    heads: Tensor
    """The weights times V, (B, H, T, d_v)."""


@contextmanager
def attending(modules: Iterable[MultiHeadAttention]) -> Iterator[dict[nn.Module, Attended]]:
    """While it lasts, these modules attend by the equation as written, and what they last saw is in the dictionary."""
    found: dict[nn.Module, Attended] = {}
    before = {module: module.attend for module in modules}

    def watch(module: MultiHeadAttention) -> None:
        def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
            scores = attention_scores(q, k, mask, causal)
            weights = scores.softmax(dim=-1)
            found[module] = Attended(q, k, v, scores, weights, weights @ v)
            return found[module].heads

        module.attend = attend

    try:
        for module in before:
            watch(module)
        yield found
    finally:
        for module, attend in before.items():
            module.attend = attend


@dataclass(frozen=True)
class Call:
    """One call of a module: its first argument, and what it gave back."""

    input: Tensor
    output: Tensor


@dataclass(frozen=True)
class Record:
    """Everything a pass computed, by the module that computed it."""

    attended: dict[nn.Module, Attended]
    calls: dict[nn.Module, list[Call]]
    """In their order: the embedding that source and target share is called twice."""


@contextmanager
def recording(model: nn.Module) -> Iterator[Record]:
    """Record every module and every attention of the passes made meanwhile; the model is as before afterwards."""
    calls: dict[nn.Module, list[Call]] = {}

    def keep(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls.setdefault(module, []).append(Call(inputs[0], output))

    hooks = [module.register_forward_hook(keep) for module in model.modules()]
    try:
        with attending(m for m in model.modules() if isinstance(m, MultiHeadAttention)) as attended:
            yield Record(attended, calls)
    finally:
        for hook in hooks:
            hook.remove()
