"""Multi-head attention (§3.2.2), and its projections W^Q, W^K and W^V as one product.

Shapes: B batch, S source length, T target length, D d_model, H heads, K head size (d_k or d_v).
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtcli.config.schema import ModelConfig
from mtcli.model.attention import Attention, KeysValues, fused_attention, reference_attention


class JointProjection(NamedTuple):
    """Several projections of one input as one product.

    A GPU launches a third of the kernels, and autocast converts the input once. The parameters of the model stay
    separate, as in the paper and in model files. Joining them copies 3 · D² numbers, much less than a batch has.
    """

    weight: Tensor
    """The weights below each other, (sum of sizes, D)."""
    bias: Tensor
    """The biases, (sum of sizes,)."""
    sizes: list[int]
    """The output size of each projection."""

    @classmethod
    def of(cls, *projections: nn.Linear) -> "JointProjection":
        """Join projections. The result is differentiable with respect to their parameters."""
        weight = torch.cat([projection.weight for projection in projections])
        bias = torch.cat([projection.bias for projection in projections])
        return cls(weight, bias, [projection.out_features for projection in projections])

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """Apply each projection: (B, T, D) → (B, T, size) each."""
        return torch.split(F.linear(x, self.weight, self.bias), self.sizes, dim=-1)


class MultiHeadAttention(nn.Module):
    """Multi-head attention (§3.2.2): MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O.

    head_i = Attention(QW_i^Q, KW_i^K, VW_i^V). `nn.Linear` stores the transpose of W and adds a bias, which the paper
    does not mention.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.num_heads = config.num_heads
        d_k = config.d_k or config.d_model // config.num_heads
        d_v = config.d_v or config.d_model // config.num_heads
        self.w_q = nn.Linear(config.d_model, config.num_heads * d_k)  # W_1^Q, …, W_h^Q side by side
        self.w_k = nn.Linear(config.d_model, config.num_heads * d_k)
        self.w_v = nn.Linear(config.d_model, config.num_heads * d_v)
        self.w_o = nn.Linear(config.num_heads * d_v, config.d_model)
        self.attend: Attention = fused_attention if config.attention == "fused" else reference_attention  # equation 1

    def split_heads(self, projected: Tensor) -> Tensor:
        """Split a projection into heads: (B, T, H · K) → (B, H, T, K)."""
        B, T, size = projected.shape
        H = self.num_heads
        return projected.view(B, T, H, size // H).transpose(1, 2)

    def joint_qkv(self) -> JointProjection:
        """Return W^Q, W^K and W^V as one projection. A search keeps it, and does not join them in every step."""
        return JointProjection.of(self.w_q, self.w_k, self.w_v)

    def keys_values(self, x: Tensor) -> KeysValues:
        """Return keys and values of all heads from one product: (B, S, D) → (B, H, S, d_k) and (B, H, S, d_v)."""
        k, v = JointProjection.of(self.w_k, self.w_v)(x)
        return self.split_heads(k), self.split_heads(v)

    def combine(self, q: Tensor, kv: KeysValues, mask: Tensor | None, causal: bool = False) -> Tensor:
        """Attend in each head, concatenate the heads and apply W^O: (B, H, T, d_k) → (B, T, D)."""
        heads = self.attend(q, *kv, mask, causal)
        concatenated = heads.transpose(1, 2).flatten(2)
        output: Tensor = self.w_o(concatenated)
        return output

    def from_self(self, x: Tensor, mask: Tensor | None, causal: bool = False) -> Tensor:
        """Self-attention: queries, keys and values all come from `x`, (B, T, D) → (B, T, D)."""
        q, k, v = map(self.split_heads, self.joint_qkv()(x))
        return self.combine(q, (k, v), mask, causal)

    def from_memory(self, x: Tensor, memory_kv: KeysValues, mask: Tensor | None) -> Tensor:
        """Cross-attention: queries come from `x`, keys and values from the memory; (B, T, D) → (B, T, D)."""
        return self.combine(self.split_heads(self.w_q(x)), memory_kv, mask)
