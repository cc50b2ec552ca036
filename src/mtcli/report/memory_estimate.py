"""Estimates of the memory that training takes, and checks that it is free."""

from dataclasses import dataclass

import torch

from mtcli.config.schema import Freeze, ModelConfig
from mtcli.model.attention import MAX_UNFUSED_SIZE
from mtcli.model.freezing import num_trainable_layers, output_is_frozen
from mtcli.model.loss import CPU_CHUNK, GPU_CHUNK, KERNEL_LOGITS_BYTES
from mtcli.runtime.memory import require
from mtcli.storage.model_file import ModelInfo


@dataclass(frozen=True)
class MemoryEstimate:
    """Peak memory of a training, in bytes. PyTorch itself needs some hundred megabytes more."""

    parameters: int
    gradients: int
    """On a CPU, those of several micro-batches; see `Plan.memory`."""
    moments: int
    """Adam's two moments, in float32."""
    activations: int
    """What the forward pass of the largest batch keeps for the backward pass, and the loss's blocks of logits."""

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return self.parameters + self.gradients + self.moments + self.activations


def count_parameters(
    model: ModelConfig, src_vocab: int, tgt_vocab: int, *, joint: bool, freeze: Freeze = "none"
) -> int:
    """Return the number of parameters of a model, without frozen ones.

    It is computed from the shape: to build a model without memory for its weights imports PyTorch's compiler, which
    takes more than a second.

    Args:
        model: The shape.
        src_vocab: Size of the source vocabulary.
        tgt_vocab: Size of the target vocabulary.
        joint: Both are one vocabulary.
        freeze: The part of the model that is frozen; `none` counts all parameters.
    """
    D = model.d_model
    Q = model.num_heads * (model.d_k or D // model.num_heads)
    V = model.num_heads * (model.d_v or D // model.num_heads)
    F = model.d_ff
    attention = 2 * (D + 1) * Q + (D + 1) * V + (V + 1) * D
    feed_forward = (D + 1) * F + (F + 1) * D
    norm = 2 * D
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    encoder_layers, decoder_layers = num_trainable_layers(model, freeze)
    total = encoder_layers * encoder_layer + decoder_layers * decoder_layer
    if model.norm == "pre":  # each stack ends in a norm
        total += norm
        if encoder_layers:
            total += norm
    if freeze == "none":
        total += tgt_vocab * D
        if not (joint and model.tie_embeddings):
            total += src_vocab * D
        if model.positions == "learned":
            total += 2 * model.max_positions * D
    if not output_is_frozen(model, freeze):
        if not model.tie_embeddings:
            total += tgt_vocab * D
        if model.output_bias:
            total += tgt_vocab
    return total


def check_model_memory(info: ModelInfo, device: torch.device, freeze: Freeze) -> None:
    """Check that there is enough memory to train a model of this size.

    On a CPU, these are its parameters, and the gradients and Adam's two moments of those that are not frozen.

    Args:
        info: Shape of the model.
        device: The device of this rank.
        freeze: The part of the model that is frozen.

    Raises:
        StorageError: There is too little memory.
    """
    n = count_parameters(info.model, info.src_vocab, info.tgt_vocab, joint=info.joint)
    numbers = n
    if device.type == "cpu":
        trainable = count_parameters(info.model, info.src_vocab, info.tgt_vocab, joint=info.joint, freeze=freeze)
        numbers = n + 3 * trainable
    require(4 * numbers, f"a model of {n:,} parameters", "choose a smaller --preset or smaller model settings")


def activation_bytes(
    model: ModelConfig,
    batch: tuple[int, int, int],
    tgt_vocab: int,
    *,
    bf16: bool,
    on_cpu: bool,
    freeze: Freeze = "none",
) -> int:
    """Return the bytes that a forward pass keeps for the backward pass and the loss.

    With D = d_model, F = d_ff, H heads, Q = H·d_k and V = H·d_v, each position takes in each layer

        self-attention    D (its input) + 2Q + V (q, k, v) + V (heads)                  × a   + (m + 4)·D
        cross-attention   D + Q + V for a target position, Q + V for a source position  × a   + (m + 4)·D
        feed-forward      D + F, or D + 2F with another activation than ReLU            × a   + (m + 4)·D

    where a is the size of a number, 4 bytes, or 2 with bf16; m is the size of a number in a dropout mask, 4 bytes on a
    CPU, 1 elsewhere, and 0 without dropout; and 4·D is the float32 sum that the norm reads. The reference attention
    also keeps its weights, H·a for each pair of query and key; the fused kernel does not. Each layer keeps its joint
    projections: D·(2Q + V) numbers for self-attention, D·(Q + V) for cross-attention. Each embedding keeps a mask.
    The loss keeps the decoder's output, its gradient, the gradient of the output matrix, and blocks of logits.

    A frozen layer keeps nothing, nor does a frozen embedding. A frozen output matrix has no gradient.

    Args:
        model: Shape of the model.
        batch: Rows, source positions and target positions.
        tgt_vocab: Size of the target vocabulary.
        bf16: Matrix products are in bf16.
        on_cpu: The model is trained on a CPU.
        freeze: The part of the model that is frozen.
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
    embedding = m * D if freeze == "none" else 0
    encoder_layers, decoder_layers = num_trainable_layers(model, freeze)
    source = encoder_layers * encoder_layer + decoder_layers * cross_attention_of_source + embedding
    target = decoder_layers * decoder_layer + embedding + 2 * a * D

    def weights(queries: int, keys: int) -> int:
        is_reference = model.attention == "reference" or (on_cpu and queries * keys <= MAX_UNFUSED_SIZE)
        return H * queries * keys * a if is_reference else 0

    encoder_weights = encoder_layers * weights(num_src, num_src)
    decoder_weights = decoder_layers * (weights(num_tgt, num_tgt) + weights(num_tgt, num_src))
    layers = rows * (num_src * source + num_tgt * target + encoder_weights + decoder_weights)
    joint_projections = encoder_layers * (2 * Q + V) + decoder_layers * (3 * Q + 2 * V)
    layers += a * D * joint_projections
    matrices = 0
    if model.output_bias:
        matrices += 1  # the loss copies the output matrix
    if not output_is_frozen(model, freeze):
        matrices += 1  # its gradient
    elif bf16:
        matrices += 1  # its copy in bf16, which for trainable parameters is counted with the parameters
    blocks = _logits_bytes(rows * num_tgt, tgt_vocab, a, on_cpu)
    return layers + matrices * a * tgt_vocab * D + blocks


def _logits_bytes(positions: int, vocab: int, size: int, on_cpu: bool) -> int:
    """Return the bytes of the loss's blocks of logits.

    Args:
        positions: Target positions of the batch.
        vocab: Size of the target vocabulary.
        size: Bytes of a logit.
        on_cpu: The model is trained on a CPU.
    """
    chunk = min(positions, CPU_CHUNK if on_cpu else GPU_CHUNK)
    by_operators = (size + 4) * chunk * vocab  # logits, and their softmax in float32 or the logits of the next chunk
    if on_cpu:
        return by_operators
    by_kernel = min(size * positions * vocab, KERNEL_LOGITS_BYTES)
    return max(by_operators, by_kernel)
