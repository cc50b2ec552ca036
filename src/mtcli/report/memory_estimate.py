"""Estimates of the memory that training takes, and checks that it is free."""

from dataclasses import dataclass

import torch
from torch import nn

from mtcli.config.schema import ModelConfig
from mtcli.nn.attention import MAX_UNFUSED_SIZE
from mtcli.nn.loss import CPU_CHUNK, GPU_CHUNK
from mtcli.nn.transformer import Transformer
from mtcli.runtime.memory import require
from mtcli.storage.model_file import ModelInfo


@dataclass(frozen=True)
class Memory:
    """Peak memory of a training, in bytes. PyTorch itself needs some hundred megabytes more."""

    parameters: int
    gradients: int
    moments: int
    """Adam's two moments, in float32."""
    activations: int
    """What the forward pass of the largest batch keeps for the backward pass, and the loss's blocks of logits."""

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return self.parameters + self.gradients + self.moments + self.activations


def count_parameters(model: ModelConfig, src_vocab: int, tgt_vocab: int, *, joint: bool) -> int:
    """Return the number of parameters of a model.

    Only one layer of each kind is built, without memory for its weights: all layers of a kind have the same size.

    Args:
        model: The shape.
        src_vocab: Size of the source vocabulary.
        tgt_vocab: Size of the target vocabulary.
        joint: Both are one vocabulary.
    """
    shallow = model.model_copy(update={"num_encoder_layers": 1, "num_decoder_layers": 1})
    with torch.device("meta"):
        built = Transformer(shallow, src_vocab, tgt_vocab, joint=joint)
    more_encoder_layers = (model.num_encoder_layers - 1) * _num_parameters(built.encoder)
    more_decoder_layers = (model.num_decoder_layers - 1) * _num_parameters(built.decoder)
    return _num_parameters(built) + more_encoder_layers + more_decoder_layers


def _num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def check_model_memory(info: ModelInfo, device: torch.device) -> None:
    """Check that there is enough memory to train a model of this size: on a CPU, with gradients and Adam's moments.

    Raises:
        StorageError: There is too little memory.
    """
    n = count_parameters(info.model, info.src_vocab, info.tgt_vocab, joint=info.joint)
    copies = 4 if device.type == "cpu" else 1
    require(4 * n * copies, f"a model of {n:,} parameters", "choose a smaller --preset or smaller model settings")


def activation_bytes(
    model: ModelConfig, batch: tuple[int, int, int], tgt_vocab: int, *, bf16: bool, on_cpu: bool
) -> int:
    """Return the bytes that a forward pass keeps for the backward pass and the loss.

    With D = d_model, F = d_ff, H heads, Q = H·d_k and V = H·d_v, each position takes in each layer

        self-attention    D (its input) + 2Q + V (q, k, v) + V (heads)                  × a   + (m + 4)·D
        cross-attention   D + Q + V for a target position, Q + V for a source position  × a   + (m + 4)·D
        feed-forward      D + F, or D + 2F with another activation than ReLU            × a   + (m + 4)·D

    where a is the size of a number, 4 bytes, or 2 with bf16; m is the size of a number in a dropout mask, 4 bytes on a
    CPU, 1 elsewhere, and 0 without dropout; and 4·D is the float32 sum that the norm reads. The reference attention
    also keeps its weights, H·a for each pair of query and key; the fused kernel does not. Each embedding keeps a mask.
    The loss keeps the decoder's output, its gradient, the gradient of the output matrix, and two blocks of logits.

    Args:
        model: Shape of the model.
        batch: Rows, source positions and target positions.
        tgt_vocab: Size of the target vocabulary.
        bf16: Matrix products are in bf16.
        on_cpu: The model is trained on a CPU.
    """
    rows, num_src, num_tgt = batch
    D = model.d_model
    F = model.d_ff
    H = model.num_heads
    Q = H * (model.d_k or D // H)
    V = H * (model.d_v or D // H)
    a = 2 if bf16 else 4
    m = 0
    if model.dropout:
        m = 4 if on_cpu else 1
    residual = (m + 4) * D
    self_attention = a * (D + 2 * Q + 2 * V) + residual
    cross_attention_of_target = a * (D + Q + V) + residual
    cross_attention_of_source = a * (Q + V)
    inner = F if model.activation == "relu" else 2 * F  # the gradient of ReLU needs its output only
    feed_forward = a * (D + inner) + residual
    encoder_layer = self_attention + feed_forward
    decoder_layer = self_attention + cross_attention_of_target + feed_forward
    embedding = m * D
    source = model.num_encoder_layers * encoder_layer + model.num_decoder_layers * cross_attention_of_source + embedding
    target = model.num_decoder_layers * decoder_layer + embedding + 2 * a * D

    def weights(queries: int, keys: int) -> int:
        is_reference = model.attention == "reference" or (on_cpu and queries * keys <= MAX_UNFUSED_SIZE)
        return H * queries * keys * a if is_reference else 0

    encoder_weights = model.num_encoder_layers * weights(num_src, num_src)
    decoder_weights = model.num_decoder_layers * (weights(num_tgt, num_tgt) + weights(num_tgt, num_src))
    layers = rows * (num_src * source + num_tgt * target + encoder_weights + decoder_weights)
    block = min(rows * num_tgt, CPU_CHUNK if on_cpu else GPU_CHUNK)
    matrices = 2 if model.output_bias else 1  # with a bias, the loss also copies the output matrix
    loss = matrices * a * tgt_vocab * D + (a + 4) * block * tgt_vocab
    return layers + loss
