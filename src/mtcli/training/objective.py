"""The training objective: label-smoothed cross-entropy with teacher forcing (§5.4)."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from mtcli.corpus.batching import Batch
from mtcli.model.loss import projected_loss
from mtcli.model.transformer import Transformer


class Objective(nn.Module):
    """The loss of a batch. It is a module, so that DDP can average its gradients over the ranks.

    Args:
        model: The model.
        smoothing: ε of label smoothing.
        bf16: Compute matrix products in bf16.
    """

    def __init__(self, model: Transformer, smoothing: float, bf16: bool):
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.bf16 = bf16
        self.hidden_states: Callable[[Tensor, Tensor], Tensor] = model.hidden_states
        """The model's function, or `CompiledBody`, which computes the same."""

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """Return the context of a forward pass, which chooses the precision of matrix products."""
        if not self.bf16:
            return nullcontext()
        # On a CPU, threads share the parameters: each must have converted copies of its own, for its own graph.
        return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=device.type != "cpu")

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the smoothed cross-entropy and the negative log-likelihood, in nats, summed over the target tokens.

        Padding does not count. Only the first sum has a gradient.
        """
        with self.autocast(batch.src.device):
            hidden = self.hidden_states(batch.src, batch.tgt_in)
            output = self.model.output
            return projected_loss(
                batch.at_targets(hidden), output.weight, batch.target, self.smoothing, bias=output.bias
            )
