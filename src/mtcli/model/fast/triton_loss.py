"""`logit_gradient_` as a Triton kernel for NVIDIA GPUs. Importing this module needs `triton`.

PyTorch for CUDA on Linux includes Triton. With TRITON_INTERPRET=1 the kernel runs on CPU tensors. The tests use this to
compare it with `reference_logit_gradient_`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 8192
"""Tokens of the vocabulary that a program has in its registers at a time: 8 for each of its threads."""

NUM_WARPS = 32
"""Warps of a program. With 1,024 threads, two programs run on one multiprocessor, so few rows are in use at a time."""


def logit_gradient_(logits: Tensor, target: Tensor, smoothing: float, write_gradient: bool) -> tuple[Tensor, Tensor]:
    """Compute the loss of each position, and overwrite its logits with their gradient. See `LogitGradient`.

    The kernel reads each logit twice and writes it once. The second time, a logit is still in the cache of the GPU: for
    V = 37,000 in bf16 a row takes 74 KB, so the 264 rows that an H100 works on take 20 MB of its 50 MB.
    """
    C, V = logits.shape
    loss = torch.empty(C, dtype=torch.float32, device=logits.device)
    nll = torch.empty_like(loss)
    _kernel[(C,)](
        logits, target, loss, nll, V, logits.stride(0), smoothing,
        WRITE_GRADIENT=write_gradient, BLOCK=BLOCK, num_warps=NUM_WARPS,
    )  # fmt: skip
    return loss, nll


@triton.jit  # type: ignore[untyped-decorator]
def _kernel(
    logits: tl.tensor,
    target: tl.tensor,
    loss: tl.tensor,
    nll: tl.tensor,
    V: tl.tensor,
    row_stride: tl.tensor,
    smoothing: tl.tensor,
    WRITE_GRADIENT: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Process one position: program i reads and writes row i. All arithmetic is in float32.

    Loads and stores include the padding between V and the row stride. If the stride is a multiple of 16, the compiler
    then moves 16 bytes at a time, which it could not with V as the bound.
    """
    position = tl.program_id(0).to(tl.int64)  # an offset may exceed 32 bits
    row = logits + position * row_stride
    target_token = tl.load(target + position)
    target_logit = tl.load(row + target_token).to(tl.float32)

    # The maximum, the sum of exponentials relative to it, and the sum of the logits, in one pass. When a block has a
    # larger maximum, the sum so far is rescaled.
    maximum = float("-inf")
    exp_sum = 0.0
    logit_sum = 0.0
    for first in range(0, V, BLOCK):
        token = first + tl.arange(0, BLOCK)
        x = tl.load(row + token, mask=token < row_stride, other=0.0, eviction_policy="evict_last").to(tl.float32)
        logit_sum += tl.sum(tl.where(token < V, x, 0.0), axis=0)
        x = tl.where(token < V, x, float("-inf"))
        new_maximum = tl.maximum(maximum, tl.max(x, axis=0))
        exp_sum = exp_sum * tl.exp(maximum - new_maximum) + tl.sum(tl.exp(x - new_maximum), axis=0)
        maximum = new_maximum
    log_normaliser = maximum + tl.log(exp_sum)
    tl.store(nll + position, log_normaliser - target_logit)
    tl.store(loss + position, log_normaliser - (1 - smoothing) * target_logit - smoothing * (logit_sum / V))

    if WRITE_GRADIENT:
        for first in range(0, V, BLOCK):
            token = first + tl.arange(0, BLOCK)
            in_row = token < row_stride
            x = tl.load(row + token, mask=in_row, other=0.0, eviction_policy="evict_first").to(tl.float32)
            gradient = tl.exp(x - maximum) / exp_sum - smoothing / V
            gradient = tl.where(token == target_token, gradient - (1 - smoothing), gradient)
            tl.store(row + token, gradient, mask=in_row)
