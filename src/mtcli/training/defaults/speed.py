"""Estimates of the training speed, and of the steps and epochs that a budget allows, before anything is measured."""

import math

from mtcli.config.presets import PRESETS, Preset
from mtcli.config.schema import Config, Freeze, ModelConfig
from mtcli.nn.freezing import num_trainable_layers, output_is_frozen
from mtcli.training.defaults.workload import Workload

SPEED = {"cpu": 1.85e10, "cuda": 2e12, "mps": 2e11}
"""Weights × target tokens per second.

CPU: 7,130 tokens per second of tiny on two cores (scripts/bench_train.py); a step of small took 4.4 times as long as
one of tiny, a step of base 14.8 times, with 5.2 and 19 times the weights. CUDA: five times one of the paper's P100s
(25,000 tokens in 0.4 s on eight, §5.2), a guess; so is Apple's GPU.
"""

MIN_GPU_SECONDS = 0.05
"""Seconds per batch on a GPU at least: it takes this long to launch the kernels of even a small model; a guess."""

SECONDS_WITHOUT_BUDGET = {"cpu": 3 * 3600, "cuda": 24 * 3600, "mps": 24 * 3600}
"""About how many seconds a run without a budget may take; a guess at how long people wait."""

TGT_VOCAB = 10_000
"""Target tokens of a preset's output matrix, for its weights."""


def tokens_per_step(config: Config, workload: Workload) -> int:
    """Return the tokens of one optimizer step, on all ranks."""
    return config.train.batch_tokens * config.train.accumulate * workload.ranks


def steps_per_second(config: Config, workload: Workload, preset: Preset) -> float:
    """Estimate the speed of a preset with the configured batches; in fine-tuning, that of the configured model."""
    weights: float = preset_weights(preset)
    if workload.fine_tunes:
        share = cost_share(config.model, workload.tgt_vocab, config.train.freeze)
        weights = share * _matrix_weights(config.model, workload.tgt_vocab)
    batch_seconds = weights * config.train.batch_tokens / SPEED[workload.device]
    if workload.device != "cpu":
        batch_seconds = max(batch_seconds, MIN_GPU_SECONDS)
    return 1 / batch_seconds / config.train.accumulate


def num_steps(config: Config, workload: Workload) -> float:
    """Estimate the steps that the budget allows."""
    steps = config.train.max_steps or math.inf
    if config.train.time:
        steps = min(steps, config.train.time * steps_per_second(config, workload, config.preset))
    return max(1.0, steps)


def num_epochs(config: Config, workload: Workload) -> float:
    """Estimate the epochs that the budget allows."""
    return num_steps(config, workload) * tokens_per_step(config, workload) / workload.epoch_tokens


def affordable_steps(config: Config, workload: Workload) -> float:
    """Estimate the steps that a run without a budget may take."""
    return SECONDS_WITHOUT_BUDGET[workload.device] * steps_per_second(config, workload, config.preset)


def preset_weights(preset: Preset) -> int:
    """Return the weights of a preset's layers and of an output matrix for `TGT_VOCAB` tokens: its cost per token."""
    return _matrix_weights(ModelConfig(**PRESETS[preset]["model"]), TGT_VOCAB)


def _matrix_weights(model: ModelConfig, tgt_vocab: int) -> int:
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
