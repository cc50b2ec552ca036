"""The shape of a student: the largest model within a number of parameters, or within a time per sentence.

Students have a deep encoder and a shallow decoder (Kasai et al. 2021). The encoder reads a sentence in one pass, and
the decoder runs once per token, so a layer of the decoder costs more time than one of the encoder.
"""

import logging
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from mtcli.config.presets import PRESETS, Preset
from mtcli.config.schema import ModelConfig
from mtcli.errors import UsageError
from mtcli.exchange.ctranslate2_model import convert
from mtcli.model.transformer import Transformer
from mtcli.report.memory_estimate import count_parameters
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.text.tokenizer.vocabulary_file import RESERVED, build_spec
from mtcli.translate.backends.ctranslate2 import load_native

log = logging.getLogger(__name__)

SHAPES = (
    (32, 3, 1), (48, 3, 1), (64, 3, 1), (64, 6, 2), (96, 6, 2), (128, 6, 2), (160, 6, 2), (192, 6, 2), (224, 6, 2),
    (256, 6, 2), (320, 6, 2), (384, 6, 2), (448, 6, 2), (512, 6, 2), (512, 12, 2), (640, 12, 2), (768, 12, 2),
    (1024, 12, 2),
)  # fmt: skip
"""Width, encoder layers and decoder layers of the shapes to choose from, the smallest first."""

HEAD_SIZE = 32
LARGE_HEAD_SIZE = 64
"""Size of the heads of models of a width of 512 and more, as in the paper."""

SENTENCES = 15
"""Timed translations of a sentence, after `WARM_UP_SENTENCES` others. Their median counts."""

WARM_UP_SENTENCES = 3

DEFAULTS = ModelConfig()


@dataclass(frozen=True)
class Vocabulary:
    """The vocabulary of a student."""

    src_size: int
    tgt_size: int
    joint: bool


@dataclass(frozen=True)
class Usage:
    """How a student will be used, for its time per sentence."""

    src_tokens: int
    """Tokens of a source."""
    tgt_tokens: int
    """Tokens of its translation."""
    beam_size: int


def student_shapes(other: ModelConfig = DEFAULTS) -> list[ModelConfig]:
    """Return the shapes to choose from, the smallest first. Each has more parameters, and takes more time.

    Args:
        other: The settings of the model other than its shape.
    """
    return [_shape(other, *row) for row in SHAPES]


def _shape(other: ModelConfig, d_model: int, num_encoder_layers: int, num_decoder_layers: int) -> ModelConfig:
    head_size = LARGE_HEAD_SIZE if d_model >= 512 else HEAD_SIZE
    shape = {
        "d_model": d_model,
        "d_ff": 4 * d_model,
        "num_heads": max(2, d_model // head_size),
        "num_encoder_layers": num_encoder_layers,
        "num_decoder_layers": num_decoder_layers,
    }
    return other.model_copy(update=shape)


def nearest_preset(shape: ModelConfig) -> Preset:
    """Return the preset whose width is nearest. It decides the learning rate and the warm-up of a student."""
    return min(PRESETS, key=lambda name: abs(PRESETS[name]["model"]["d_model"] - shape.d_model))


def within_parameters(limit: int, vocabulary: Vocabulary, other: ModelConfig = DEFAULTS) -> ModelConfig:
    """Return the largest shape with at most this number of parameters, embeddings included.

    Args:
        limit: Number of parameters.
        vocabulary: The student's.
        other: See `student_shapes`.

    Raises:
        UsageError: Even the smallest has more.
    """
    shapes = student_shapes(other)
    chosen = largest(shapes, lambda shape: num_parameters(shape, vocabulary) <= limit)
    if chosen is None:
        smallest = num_parameters(shapes[0], vocabulary)
        raise UsageError(
            f"--parameters {limit:,}: the smallest student has {smallest:,} with a vocabulary of "
            f"{vocabulary.tgt_size:,} tokens; give more, or a smaller --set tokenizer.vocab_size"
        )
    log.info("student: %s parameters, %s", f"{num_parameters(chosen, vocabulary):,}", _in_words(chosen))
    return chosen


def num_parameters(shape: ModelConfig, vocabulary: Vocabulary) -> int:
    """Return the number of parameters of a student."""
    return count_parameters(shape, vocabulary.src_size, vocabulary.tgt_size, joint=vocabulary.joint)


def within_latency(seconds: float, vocabulary: Vocabulary, usage: Usage, other: ModelConfig = DEFAULTS) -> ModelConfig:
    """Return the largest shape that translates a sentence within a time on one core, as CTranslate2 in int8.

    The time is measured with random weights, in seconds of the CPU, so that other work on the machine matters little.

    Args:
        seconds: Time of a sentence.
        vocabulary: The student's.
        usage: Length of the sentence, and beam size.
        other: See `student_shapes`.

    Raises:
        UsageError: Even the smallest takes longer, or CTranslate2 is not installed.
    """

    def meets(shape: ModelConfig) -> bool:
        measured = latency(shape, vocabulary, usage)
        log.info("%.2f ms per sentence: %s", 1000 * measured, _in_words(shape))
        return measured <= seconds

    log.info("measuring sentences of %d tokens, translations of %d, on one core", usage.src_tokens, usage.tgt_tokens)
    chosen = largest(student_shapes(other), meets)
    if chosen is None:
        raise UsageError(f"--latency {1000 * seconds:g}ms: the smallest student takes longer; give more time")
    log.info("student: %s parameters, %s", f"{num_parameters(chosen, vocabulary):,}", _in_words(chosen))
    return chosen


def largest(shapes: Sequence[ModelConfig], meets: Callable[[ModelConfig], bool]) -> ModelConfig | None:
    """Return the last of the shapes that meets a condition which all smaller ones meet too; None: none does.

    Few of them are tested, by bisection.
    """
    low = 0
    high = len(shapes)
    while low < high:
        middle = (low + high) // 2
        if meets(shapes[middle]):
            low = middle + 1
        else:
            high = middle
    return shapes[low - 1] if low else None


def latency(shape: ModelConfig, vocabulary: Vocabulary, usage: Usage) -> float:
    """Return the CPU seconds in which CTranslate2 translates a sentence in int8, with random weights of a shape."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = Transformer(shape, vocabulary.src_size, vocabulary.tgt_size, joint=vocabulary.joint).eval()
    tokenizer = _tokenizer(vocabulary)
    sentence = tokenizer.src_vocabulary[-usage.src_tokens :]
    search = {
        "beam_size": usage.beam_size,
        "min_decoding_length": usage.tgt_tokens,
        "max_decoding_length": usage.tgt_tokens,
    }
    with tempfile.TemporaryDirectory() as folder:
        convert(model, tokenizer, Path(folder), "int8")
        native = load_native(Path(folder), device="cpu", compute_type="int8", inter_threads=1)
        times = []
        for _ in range(WARM_UP_SENTENCES + SENTENCES):
            started = time.process_time()
            native.translate_batch([sentence], **search)
            times.append(time.process_time() - started)
    return statistics.median(times[WARM_UP_SENTENCES:])


def _tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Return a tokenizer with vocabularies of these sizes, whose tokens have no meaning."""
    src = build_spec([f"t{i}" for i in range(vocabulary.src_size - len(RESERVED))], [], whole_words=True)
    if vocabulary.joint:
        return Tokenizer.from_specs(src)
    tgt = build_spec([f"t{i}" for i in range(vocabulary.tgt_size - len(RESERVED))], [], whole_words=True)
    return Tokenizer.from_specs(src, tgt)


def _in_words(shape: ModelConfig) -> str:
    """Return a shape in words."""
    layers = f"{shape.num_encoder_layers} encoder and {shape.num_decoder_layers} decoder layers"
    return f"{layers}, d_model {shape.d_model}, d_ff {shape.d_ff}"
