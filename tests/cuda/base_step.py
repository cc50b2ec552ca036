"""One training step of the paper's models on the simulated device, at an eighth of their size.

With an eighth of the width, of the vocabulary and of the tokens, all products of two of them have a 64th of their size,
and those of three a 512th. So the bytes × 64 and the FLOPs × 512 are those of the real step; the launches are the same.
"""

from dataclasses import dataclass

import numpy as np
import torch
from simulated_cuda import Counts, counting

from mtcli.config.schema import ModelConfig, TrainConfig
from mtcli.corpus.batching import Batch
from mtcli.model.fast.logit_gradient import logit_gradient_kernel
from mtcli.model.transformer import Transformer
from mtcli.runtime.device import pick_device
from mtcli.training.defaults.speed import BANDWIDTH_SHARE, FLOPS_SHARE, LAUNCH_SECONDS
from mtcli.training.gradients import Objective
from mtcli.training.optimizer import Adam, clip_norm_

SCALE = 8
VOCABULARY = 37_000
ROWS, WIDTH = 65, 48
"""Pairs of the small batch, and its padded width: an eighth of 25,000 tokens."""

SHAPES = {
    "base": {"d_model": 512, "d_ff": 2048, "num_heads": 8, "dropout": 0.1},
    "big": {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
}
GPUS = {"H200": (989e12, 4.8e12), "H100": (989e12, 3.35e12)}
"""FLOP per second in bf16, and bytes per second, as the manufacturer states them."""


FUSED = 0.5
"""Share of the memory traffic of encoder and decoder that a compiler is assumed to save."""

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")


@dataclass(frozen=True)
class Step:
    """A step of about 25,000 tokens of the real model."""

    launches: int
    syncs: int
    flops: int
    """Of matrix products and attention."""
    product_bytes: int
    """Bytes that matrix products read and write while they compute."""
    other_bytes: int
    """Bytes of all other operations, which do little but move them."""
    body_bytes: int
    """Those of them in encoder and decoder, which `torch.compile` fuses."""
    tokens: int
    """Target tokens without padding."""

    @property
    def compiled_bytes(self) -> float:
        """`other_bytes`, if `torch.compile` saves FUSED of the traffic of encoder and decoder."""
        return self.other_bytes - FUSED * self.body_bytes

    def seconds(self, gpu: str, compiled: bool = False) -> float:
        """Predict the time of the step: that of the products, and that of the other memory traffic.

        The host launches kernels at the same time. It needs more time than the GPU only for small batches.

        Args:
            gpu: A name of GPUS.
            compiled: See `compiled_bytes`.
        """
        flops, bandwidth = GPUS[gpu]
        num_bytes = self.compiled_bytes if compiled else self.other_bytes
        device = self.flops / (FLOPS_SHARE * flops) + num_bytes / (BANDWIDTH_SHARE * bandwidth)
        return max(device, self.launches * LAUNCH_SECONDS)


def base_step(name: str = "base") -> Step:
    """Count a step of the small model in bf16. Call it with `run`."""
    torch.manual_seed(1)
    device = pick_device("auto")
    objective = Objective(small_model(name), 0.1, bf16=True)
    optimizer = Adam(TrainConfig(), objective.named_parameters())
    batch = small_batch()
    optimizer.step([torch.zeros_like(parameter) for parameter in optimizer.parameters], 1e-4)  # creates its state
    logit_gradient_kernel(objective.model.output.weight.device)  # compares the kernel with its reference, once
    with counting() as counts:
        with counting() as passes:
            loss, _ = objective(batch.to(device))
            (loss / batch.tokens).backward()
        gradients = [parameter.grad for parameter in optimizer.parameters]
        clip_norm_(gradients, 1.0)
        optimizer.step(gradients, 1e-4)
    return Step(
        launches=counts.num_launches,
        syncs=counts.num_syncs,
        flops=counts.num_flops * SCALE**3,
        product_bytes=(counts.num_bytes - other_bytes(counts)) * SCALE**2,
        other_bytes=other_bytes(counts) * SCALE**2,
        body_bytes=(other_bytes(passes) - passes.bytes["logit_gradient_"]) * SCALE**2,
        tokens=batch.tokens * SCALE,
    )


def other_bytes(counts: Counts) -> int:
    """Return the bytes that operations other than matrix products move."""
    return counts.num_bytes - sum(counts.bytes[product] for product in PRODUCTS)


def small_model(name: str) -> Transformer:
    shape = SHAPES[name]
    config = ModelConfig(
        d_model=int(shape["d_model"]) // SCALE,
        d_ff=int(shape["d_ff"]) // SCALE,
        num_heads=int(shape["num_heads"]),
        dropout=shape["dropout"],
        num_encoder_layers=6,
        num_decoder_layers=6,
    )
    V = VOCABULARY // SCALE
    return Transformer(config, V, V, joint=True).to("cuda").train()


def small_batch() -> Batch:
    """Return a batch whose rows fill 92% of it, as those of a sorted corpus do."""
    random = np.random.default_rng(1)

    def side() -> list[list[int]]:
        lengths = random.integers(int(0.84 * WIDTH), WIDTH, ROWS)
        lengths[0] = WIDTH - 1
        return [random.integers(4, VOCABULARY // SCALE, length).tolist() for length in lengths]

    return Batch.of(side(), side())
