"""Estimates of the training speed, and of the steps and epochs that a budget allows, before anything is measured."""

import math

from mtcli.config.presets import PRESETS, Preset
from mtcli.config.schema import Config, Freeze, ModelConfig
from mtcli.model.freezing import num_trainable_layers, output_is_frozen
from mtcli.runtime.device import Gpu
from mtcli.training.defaults.workload import Workload

SPEED = {"cpu": 1.85e10, "mps": 2e11}
"""Weights × tokens per second.

CPU: 7,130 tokens per second of tiny on two cores (scripts/bench_train.py); a step of small took 4.4 times as long as
one of tiny, a step of base 14.8 times, with 5.2 and 19 times the weights. Apple's GPU: a guess.
"""

MIN_MPS_SECONDS = 0.05
"""Seconds per batch on Apple's GPU at least, to launch the kernels of even a small model; a guess."""

FLOPS_SHARE = 0.6
BANDWIDTH_SHARE = 0.65
"""Shares of the peaks of a CUDA device that training reaches, where the host is fast enough. A prediction: on the one
machine that was measured, the host is the limit.

They were chosen so that the predictions agree with a model of each operation, for base and big. The operations of a
step are counted on a simulated device. A step of base with a batch of 25,000 tokens has 10.5 TFLOP of matrix products
and 57 GB of other traffic: with these shares it takes 18 + 18 ms on an H200 (989 TFLOP and 4.8 TB per second), which is
640,000 target tokens per second without padding (python tests/cuda/predict.py base).
"""

LAYER_BYTES = 350
"""Memory traffic of a step on CUDA besides the matrix products, in bytes per token of the batch, layer and unit of
d_model. A step of base has 54 GB of it, in twelve layers."""

LOSS_BYTES = 4
"""Memory traffic of the loss on CUDA besides the matrix products, in bytes per token of the batch and token of the
vocabulary: each logit is read and overwritten in bf16."""

LAUNCHES_PER_LAYER = 87
LAUNCH_SECONDS = 50e-6
"""Operations of a step per layer (base has 1,037), and the time in which the host launches one.

However small the batch is, a step on CUDA takes no less time than its launches. A step of tiny, with 8 layers, took 33
to 44 ms on a virtual machine with an H100 and PyTorch 2.11 (docs/gpu.md), where a single addition took 11 µs: most of
the time is that of Python, autograd and autocast. A faster host needs less.
"""

SECONDS_WITHOUT_BUDGET = {"cpu": 3 * 3600, "cuda": 24 * 3600, "mps": 24 * 3600}
"""About how many seconds a run without a budget may take; a guess at how long people wait."""

TGT_VOCAB = 10_000
"""Target tokens of a preset's output matrix, for its weights."""


def tokens_per_step(config: Config, workload: Workload) -> int:
    """Return the tokens of one optimizer step, on all ranks."""
    return config.train.batch_tokens * config.train.accumulate * workload.ranks


def steps_per_second(config: Config, workload: Workload, model: ModelConfig) -> float:
    """Estimate the speed of a model with the configured batches."""
    uses_vocabulary = workload.fine_tunes or workload.device == "cuda"
    tgt_vocab = workload.tgt_vocab if uses_vocabulary else TGT_VOCAB
    share = cost_share(model, tgt_vocab, config.train.freeze) if workload.fine_tunes else 1.0
    token_seconds = seconds_per_token(model, tgt_vocab, workload.device, workload.gpu, share)
    batch_seconds = config.train.batch_tokens * token_seconds
    if workload.device == "cuda":
        num_layers = model.num_encoder_layers + model.num_decoder_layers
        batch_seconds = max(batch_seconds, num_layers * LAUNCHES_PER_LAYER * LAUNCH_SECONDS)
    elif workload.device == "mps":
        batch_seconds = max(batch_seconds, MIN_MPS_SECONDS)
    return 1 / batch_seconds / config.train.accumulate


def seconds_per_token(model: ModelConfig, tgt_vocab: int, device: str, gpu: Gpu, share: float = 1.0) -> float:
    """Estimate the time per token of a large batch, padding included.

    Args:
        model: The shape.
        tgt_vocab: Size of the target vocabulary.
        device: `cpu`, `cuda` or `mps`.
        gpu: The limits of the GPU on CUDA.
        share: The cost of matrix products relative to training without frozen parameters; see `cost_share`.
    """
    weights = share * matrix_weights(model, tgt_vocab)
    if device != "cuda":
        return weights / SPEED[device]
    flop = 6 * weights  # three products, each with a multiplication and an addition per weight
    num_layers = model.num_encoder_layers + model.num_decoder_layers
    traffic = LAYER_BYTES * num_layers * model.d_model + LOSS_BYTES * tgt_vocab
    return flop / (FLOPS_SHARE * gpu.flops) + traffic / (BANDWIDTH_SHARE * gpu.bandwidth)


def num_steps(config: Config, workload: Workload) -> float:
    """Estimate the steps that the budget allows."""
    steps = config.train.max_steps or math.inf
    if config.train.time:
        steps = min(steps, config.train.time * steps_per_second(config, workload, config.model))
    return max(1.0, steps)


def num_epochs(config: Config, workload: Workload) -> float:
    """Estimate the epochs that the budget allows."""
    return num_steps(config, workload) * tokens_per_step(config, workload) / workload.epoch_tokens


def affordable_steps(config: Config, workload: Workload) -> float:
    """Estimate the steps that a run without a budget may take."""
    return SECONDS_WITHOUT_BUDGET[workload.device] * steps_per_second(config, workload, config.model)


def preset_weights(preset: Preset) -> int:
    """Return the weights of a preset's layers and of an output matrix for `TGT_VOCAB` tokens: its cost per token."""
    return matrix_weights(preset_model(preset), TGT_VOCAB)


def preset_model(preset: Preset) -> ModelConfig:
    """Return the model of a preset."""
    return ModelConfig(**PRESETS[preset]["model"])


def matrix_weights(model: ModelConfig, tgt_vocab: int) -> int:
    """Return the weights of a model's layers and of its output matrix, without biases."""
    layers = _layer_weights(model, model.num_encoder_layers, model.num_decoder_layers)
    return layers + tgt_vocab * model.d_model


def _layer_weights(model: ModelConfig, num_encoder_layers: int, num_decoder_layers: int) -> int:
    """Return the weights of some layers of a model, without biases."""
    D = model.d_model
    F = model.d_ff
    encoder_layer = 4 * D * D + 2 * D * F
    decoder_layer = 8 * D * D + 2 * D * F
    return num_encoder_layers * encoder_layer + num_decoder_layers * decoder_layer


def cost_share(model: ModelConfig, tgt_vocab: int, freeze: Freeze) -> float:
    """Return the cost of a training step as a share of that of the same step without frozen parameters.

    A matrix takes part in three products of about the same cost: one in the forward pass, one for the gradient of its
    input and one for its own. A frozen layer has only the first. A frozen output matrix lacks the last.

    Args:
        model: The shape.
        tgt_vocab: Size of the target vocabulary.
        freeze: The part of the model that is frozen.
    """
    all_layers = _layer_weights(model, model.num_encoder_layers, model.num_decoder_layers)
    trainable_layers = _layer_weights(model, *num_trainable_layers(model, freeze))
    output = tgt_vocab * model.d_model
    output_products = 2 if output_is_frozen(model, freeze) else 3
    products = all_layers + 2 * trainable_layers + output_products * output
    return products / (3 * (all_layers + output))


def round_steps(steps: float) -> int:
    """Round to two digits, so that the numbers in the log are easy to read."""
    return max(1, int(float(f"{steps:.1e}")))
