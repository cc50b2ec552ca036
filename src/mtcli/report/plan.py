"""The plan of a run, computed before it starts: batches, parameters, memory, disk, and possible exports."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from mtcli.config.schema import Config, ModelConfig, TrainConfig
from mtcli.data.batching import BatchPlan
from mtcli.data.prepare import Prepared
from mtcli.export import TARGETS, obstacles
from mtcli.nn.attention import MAX_UNFUSED_SIZE
from mtcli.nn.loss import CPU_CHUNK, GPU_CHUNK
from mtcli.nn.precision import uses_bf16
from mtcli.nn.transformer import Transformer
from mtcli.runtime.memory import require
from mtcli.runtime.progress import clock
from mtcli.runtime.terminal import printable
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


@dataclass(frozen=True)
class Plan:
    """Counts of a run; plain numbers, so that `metrics.jsonl` can hold them."""

    pairs: int
    src_vocab: int
    tgt_vocab: int
    parameters: int
    batches: int
    """Batches per epoch. An epoch of several blocks is estimated from its first one, here and below."""
    target_tokens: int
    """Target tokens per epoch, `</s>` included."""
    largest: tuple[int, int, int]
    """Rows, widest source and widest target, `</s>` included, of the batch that takes most memory."""
    ranks: int
    bf16: bool
    on_cpu: bool

    @classmethod
    def of(cls, config: Config, data: Prepared, batches: BatchPlan, device: torch.device, ranks: int) -> "Plan":
        """Count.

        Args:
            config: The configuration of the run.
            data: Its data.
            batches: Its batches.
            device: The device of one rank.
            ranks: Number of processes that train together.
        """
        tokenizer = data.tokenizer
        bf16 = uses_bf16(config.train, device)
        on_cpu = device.type == "cpu"
        block = batches.block(0, 0)

        def shape(rows: Any) -> tuple[int, int, int]:
            return len(rows), int(block.src_lengths[rows].max()) + 1, int(block.tgt_lengths[rows].max()) + 1

        def bytes_kept(batch: tuple[int, int, int]) -> int:
            return activations(config.model, batch, tokenizer.tgt_size, bf16=bf16, on_cpu=on_cpu)

        return cls(
            pairs=len(data.train),
            src_vocab=tokenizer.src_size,
            tgt_vocab=tokenizer.tgt_size,
            parameters=count_parameters(config.model, tokenizer.src_size, tokenizer.tgt_size, joint=tokenizer.joint),
            batches=len(block.batches) * batches.blocks,
            target_tokens=sum(map(block.tokens, block.batches)) * batches.blocks,
            largest=max(map(shape, block.batches), key=bytes_kept),
            ranks=ranks,
            bf16=bf16,
            on_cpu=on_cpu,
        )

    def __str__(self) -> str:
        precision = ", matrix products in bf16" if self.bf16 else ""
        return (
            f"{self.parameters:,} parameters, {self.tgt_vocab:,} tokens in the target vocabulary, "
            f"{self.pairs:,} pairs in {self.batches:,} batches per epoch{precision}"
        )

    def memory(self, model: ModelConfig) -> Memory:
        """Return the estimate for one rank."""
        weights = 4 * self.parameters
        copies = weights // 2 if self.bf16 else 0  # autocast keeps the weights in bf16 for the length of a pass
        kept = activations(model, self.largest, self.tgt_vocab, bf16=self.bf16, on_cpu=self.on_cpu)
        return Memory(weights, weights, 2 * weights, kept + copies)

    def check_memory(self, model: ModelConfig) -> None:
        """Refuse to start a training that cannot fit into the memory of a CPU.

        The estimate is exact to about 10%. The check leaves a wide margin: it fails only if two thirds of the estimate
        are more than the free memory.

        Raises:
            StorageError: The training does not fit.
        """
        if self.on_cpu:
            remedy = "give a smaller --set train.batch_tokens or a smaller model"
            require(self.memory(model).total / 1.5, "training with these batches", remedy)

    def steps(self, accumulate: int) -> float:
        """Return the optimizer steps per epoch."""
        return self.batches / (accumulate * self.ranks)

    def rows(self, config: Config) -> list[tuple[str, str]]:
        """Return a name and a text for each fact about the run, except the counts of its data."""
        return [
            ("model", self._model(config)),
            ("vocabulary", self._vocabulary(config)),
            ("batches", self._batches(config.train)),
            ("memory", self._memory_in_words(config.model)),
            ("disk", self._disk(config.train)),
            ("schedule", _schedule(config.train)),
            ("budget", self._budget(config)),
            ("can go to", _exports(config)),
        ]

    def _model(self, config: Config) -> str:
        model = config.model
        return (
            f"{config.preset}: {self.parameters:,} parameters; {model.num_encoder_layers} encoder and "
            f"{model.num_decoder_layers} decoder layers, d_model {model.d_model}, d_ff {model.d_ff}, "
            f"{model.num_heads} heads, dropout {model.dropout:g}, {model.norm}-norm"
        )

    def _vocabulary(self, config: Config) -> str:
        kind = config.tokenizer.type
        if config.tokenizer.joint:
            return f"{self.src_vocab:,} tokens ({kind}, joint)"
        return f"{self.src_vocab:,} and {self.tgt_vocab:,} tokens ({kind}, separate)"

    def _batches(self, train: TrainConfig) -> str:
        batch = f"{train.batch_tokens:,} tokens"
        if train.accumulate > 1:
            batch += f" × {train.accumulate}"
        if self.ranks > 1:
            batch += f" × {self.ranks} ranks"
        steps = self.steps(train.accumulate)
        return f"{batch}; an epoch is {steps:,.0f} steps, {self.pairs:,} pairs, {self.target_tokens:,} target tokens"

    def _memory_in_words(self, model: ModelConfig) -> str:
        memory = self.memory(model)
        return (
            f"about {size(memory.total)}, not counting PyTorch itself: parameters {size(memory.parameters)}, "
            f"gradients {size(memory.gradients)}, Adam's two moments {size(memory.moments)}, "
            f"activations of the largest batch {size(memory.activations)}"
        )

    def _disk(self, train: TrainConfig) -> str:
        model = 4 * self.parameters
        checkpoint = 3 * model  # with Adam's two moments
        kept = max(train.keep, train.average) + 1
        return f"model {size(model)}; a checkpoint {size(checkpoint)}, at most {kept} of them {size(checkpoint * kept)}"

    def _budget(self, config: Config) -> str:
        train = config.train
        limits = []
        if train.max_steps:
            epochs = train.max_steps / self.steps(train.accumulate)
            limits.append(f"{train.max_steps:,} steps ({epochs:,.1f} epochs)")
        if train.time:
            limits.append(f"{clock(train.time)}, validation and scoring included")
        validated = f"every {train.valid_every:,} steps"
        if train.time and "train.valid_every" in config.chosen:
            validated = "as often as the time allows"
        text = f"{' or '.join(limits)}, validated {validated}"
        if train.patience:
            text += f"; ends early after {train.patience} validations without a better score"
        return text


def count_parameters(model: ModelConfig, src_vocab: int, tgt_vocab: int, *, joint: bool) -> int:
    """Return the number of parameters of a model of this shape, from one layer of each kind: all are alike.

    Args:
        model: The shape.
        src_vocab: Size of the source vocabulary.
        tgt_vocab: Size of the target vocabulary.
        joint: Both are one vocabulary.
    """

    def count(module: nn.Module) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    shallow = model.model_copy(update={"num_encoder_layers": 1, "num_decoder_layers": 1})
    with torch.device("meta"):  # shapes without memory
        built = Transformer(shallow, src_vocab, tgt_vocab, joint=joint)
    more_encoder_layers = (model.num_encoder_layers - 1) * count(built.encoder)
    more_decoder_layers = (model.num_decoder_layers - 1) * count(built.decoder)
    return count(built) + more_encoder_layers + more_decoder_layers


def check_model_memory(info: ModelInfo, device: torch.device) -> None:
    """Make sure that this machine holds a model to train, and on a CPU its gradients and Adam's two moments.

    Raises:
        StorageError: It does not.
    """
    n = count_parameters(info.model, info.src_vocab, info.tgt_vocab, joint=info.joint)
    copies = 4 if device.type == "cpu" else 1
    require(4 * n * copies, f"a model of {n:,} parameters", "choose a smaller --preset or smaller model settings")


def activations(model: ModelConfig, batch: tuple[int, int, int], tgt_vocab: int, *, bf16: bool, on_cpu: bool) -> int:
    """Bytes that a step keeps of a batch (B rows, S source and T target positions) for its backward pass and loss.

    With D = d_model, F = d_ff, H heads, Q = H·d_k and V = H·d_v, a position costs in each layer

        self-attention    D (its input) + 2Q + V (q, k, v) + V (heads)                  × a   + (m + 4)·D
        cross-attention   D + Q + V for a target position, Q + V for a source position  × a   + (m + 4)·D
        feed-forward      D + F                                                         × a   + (m + 4)·D

    where a is 4 bytes, or 2 under bf16; m is dropout's mask, 4 bytes on a CPU and 1 elsewhere, none without dropout;
    the other 4·D are the sum that the norm reads. Attention by the equation keeps its weights too, H·a for each query
    and key; the fused kernel does not. Each embedding keeps a mask. The loss keeps the decoder's output, the gradient
    of that and of the output matrix, and works on two blocks of logits.
    """
    B, S, T = batch
    D, F, H = model.d_model, model.d_ff, model.num_heads
    Q, V = H * (model.d_k or D // H), H * (model.d_v or D // H)
    a = 2 if bf16 else 4
    m = 0 if not model.dropout else 4 if on_cpu else 1
    around = (m + 4) * D
    own, ffn = a * (D + 2 * Q + 2 * V) + around, a * (D + F) + around
    cross = a * (D + Q + V) + around
    source = model.num_encoder_layers * (own + ffn) + model.num_decoder_layers * a * (Q + V) + m * D
    target = model.num_decoder_layers * (own + cross + ffn) + m * D + 2 * a * D

    def weights(queries: int, keys: int) -> int:
        written = model.attention == "reference" or (on_cpu and queries * keys <= MAX_UNFUSED_SIZE)
        return H * queries * keys * a if written else 0

    attention = model.num_encoder_layers * weights(S, S) + model.num_decoder_layers * (weights(T, T) + weights(T, S))
    block = min(B * T, CPU_CHUNK if on_cpu else GPU_CHUNK)
    return B * (S * source + T * target + attention) + a * tgt_vocab * D + (a + 4) * block * tgt_vocab


def counted(counts: dict[str, Any]) -> str:
    """The data of a run in words, from the counts that `prepare` took."""
    skipped = "".join(f"; {n:,} skipped: {reason}" for reason, n in counts["skipped"].items())
    splits = f"{counts['train']:,} to train on, {counts['valid']:,} validation, {counts['test']:,} test"
    return f"{counts['read']:,} pairs read: {splits}{skipped}"


def size(n: float) -> str:
    """Bytes in words, to three digits: `31.4 MB`."""
    for unit in ("bytes", "kB", "MB"):
        if n < 999.5:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} GB"


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Format rows as two columns for a terminal."""
    return "\n".join(f"{name:<12}{printable(text)}" for name, text in rows)


def _schedule(train: TrainConfig) -> str:
    return f"Adam, {train.schedule}, peak learning rate {train.lr:g} after {train.warmup_steps:,} steps"


def _exports(config: Config) -> str:
    found = []
    for target in TARGETS:
        reasons = obstacles(config, target)
        found.append(f"{target}: no ({'; '.join(reasons)})" if reasons else f"{target}: yes")
    return "; ".join(found)
