"""What training minimises: the smoothed cross-entropy of a batch under the model, teacher forced."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn

from mtcli.data.batching import Batch
from mtcli.data.tokenizer import PAD
from mtcli.nn.loss import projected_loss
from mtcli.nn.transformer import Transformer


class Objective(nn.Module):
    """The loss as a module, so that several ranks can average its gradients."""

    def __init__(self, model: Transformer, smoothing: float, bf16: bool):
        super().__init__()
        self.model, self.smoothing, self.bf16 = model, smoothing, bf16

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Sums over the real target positions: smoothed cross-entropy, and negative log-likelihood."""
        with torch.autocast(batch.src.device.type, dtype=torch.bfloat16) if self.bf16 else nullcontext():
            hidden = self.model.decode(batch.tgt_in, *self.model.encode(batch.src))
            real = batch.tgt_out != PAD
            output = self.model.output
            return projected_loss(hidden[real], output.weight, batch.tgt_out[real], self.smoothing, bias=output.bias)
