"""The matrix products of the loss, one chunk of positions at a time: logits, and the gradients of both factors.

Shapes: N target positions, C positions of one chunk, D d_model, V vocabulary.
"""

import torch
from torch import Tensor

from mtcli.model.fast.cpu_kernels import linear, onednn_is_faster


class LossProducts:
    """The products logits = hidden @ weightᵀ, and the gradients of `hidden` and `weight` from that of the logits.

    Args:
        hidden: (N, D).
        weight: (V, D).
        chunk: Positions of a chunk. The last chunk may be smaller.
        needs_grad: Compute the gradient of `hidden`; of `weight`.
        hidden_grad_offset: Added to the gradient of each position, (D,).
        weight_grad_offset: Added to the gradient of each row of `weight`, (D,), in float32 or float64.
    """

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        chunk: int,
        needs_grad: tuple[bool, bool],
        hidden_grad_offset: Tensor,
        weight_grad_offset: Tensor,
    ):
        self.hidden = hidden
        self.weight = weight
        self.chunk = chunk
        self.hidden_grad_offset = hidden_grad_offset.to(hidden.dtype)
        hidden_needs_grad, weight_needs_grad = needs_grad
        self._grad_hidden = torch.empty_like(hidden) if hidden_needs_grad else None
        self._grad_weight = self._initial_weight_grad(weight_grad_offset) if weight_needs_grad else None
        # Each chunk overwrites the logits. On a CPU, allocating new memory would take as long as the softmax.
        self._logits = hidden.new_empty(min(chunk, len(hidden)), len(weight))

    def _initial_weight_grad(self, row: Tensor) -> Tensor:
        return row.repeat(len(self.weight), 1)

    def logits(self, first: int) -> Tensor:
        """Return the logits of the chunk that starts at position `first`, (C, V). The next call overwrites them."""
        h = self.hidden[first : first + self.chunk]
        return torch.mm(h, self.weight.t(), out=self._logits[: len(h)])

    def accumulate(self, first: int, error: Tensor) -> None:
        """Accumulate both gradients, from the gradient of the logits of one chunk.

        Args:
            first: The first position of the chunk.
            error: The gradient of its logits, (C, V), in their type.
        """
        chunk = slice(first, first + self.chunk)
        if self._grad_hidden is not None:
            torch.addmm(self.hidden_grad_offset, error, self.weight, out=self._grad_hidden[chunk])
        if self._grad_weight is None:
            return
        if self._grad_weight.dtype == error.dtype:
            self._grad_weight.addmm_(error.t(), self.hidden[chunk])
        else:
            self._grad_weight += error.t() @ self.hidden[chunk]

    def gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients of `hidden`, (N, D), and `weight`, (V, D); None for those that are not needed."""
        return self._grad_hidden, self._grad_weight


class OneDnnProducts(LossProducts):
    """The same products by oneDNN, in float32 on a CPU. The last chunk is left to the base class: see `linear`."""

    def _initial_weight_grad(self, row: Tensor) -> Tensor:
        # oneDNN computes the transposed gradient faster, so this is the transposed view of (D, V).
        return row[:, None].repeat(1, len(self.weight)).t()

    def logits(self, first: int) -> Tensor:
        """Return the logits of the chunk that starts at position `first`, (C, V)."""
        h = self.hidden[first : first + self.chunk]
        return linear(h, self.weight) if len(h) == self.chunk else super().logits(first)

    def accumulate(self, first: int, error: Tensor) -> None:
        """Accumulate both gradients, as the base class does."""
        if len(error) < self.chunk:
            super().accumulate(first, error)
            return
        chunk = slice(first, first + self.chunk)
        if self._grad_hidden is not None:
            self._grad_hidden[chunk] = linear(error, self.weight.t(), self.hidden_grad_offset)
        if self._grad_weight is not None:
            self._grad_weight.t().add_(linear(self.hidden[chunk].t(), error.t()))

    def gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients of `hidden`, (N, D), and `weight`, (V, D); None for those that are not needed."""
        grad_weight = None if self._grad_weight is None else self._grad_weight.contiguous()
        return self._grad_hidden, grad_weight


def products_class(hidden: Tensor) -> type[LossProducts]:
    """Return the faster class for hidden states of this device and type."""
    return OneDnnProducts if onednn_is_faster(hidden) else LossProducts
