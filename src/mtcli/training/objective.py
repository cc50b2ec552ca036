"""The training objective: label-smoothed cross-entropy with teacher forcing (§5.4)."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn

from mtcli.data.batching import Batch
from mtcli.nn.loss import projected_loss
from mtcli.nn.transformer import Transformer


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

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the smoothed cross-entropy and the negative log-likelihood, in nats, summed over the target tokens.

        Padding does not count. Only the first sum has a gradient.
        """
        with torch.autocast(batch.src.device.type, dtype=torch.bfloat16) if self.bf16 else nullcontext():
            hidden = self.model.decode(batch.tgt_in, *self.model.encode(batch.src))
            output = self.model.output
            return projected_loss(
                batch.at_targets(hidden), output.weight, batch.target, self.smoothing, bias=output.bias
            )
