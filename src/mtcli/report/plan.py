"""The plan of a run, computed before it starts: batches, parameters, memory, disk space, and possible exports."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mtcli.config.schema import Config, Freeze, TrainConfig
from mtcli.corpus.batching import BatchPlan, Block
from mtcli.corpus.cache.encoded_pairs import Ints
from mtcli.corpus.cache.parent import TakenOver
from mtcli.corpus.cache.prepare import Prepared
from mtcli.corpus.cache.training_sources import TrainingSource
from mtcli.corpus.variants import SHARES, TERMS_SHARE
from mtcli.exchange.export import TARGETS, obstacles
from mtcli.model.precision import uses_bf16
from mtcli.report.memory_estimate import MemoryEstimate, activation_bytes, count_parameters
from mtcli.runtime.cores import usable_cores
from mtcli.runtime.memory import require
from mtcli.runtime.progress import clock
from mtcli.runtime.wording import counted, every, printable
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG

FROZEN: dict[Freeze, str] = {
    "none": "",
    "embeddings": "; the embeddings are frozen",
    "encoder": "; the embeddings and the encoder are frozen",
    "all-but-top": "; all but the last decoder layer is frozen",
}
"""What `train.freeze` freezes, for the description of the model."""


TOKENIZERS = {
    "keep": "its tokenizer",
    "extend": "its tokenizer, extended",
    "new": "a new tokenizer",
    "file": "the tokenizer of tokenizer.file",
}
"""How the child of a model of other languages got its tokenizer, by the name of the choice."""


@dataclass(frozen=True)
class Plan:
    """The size of a run, in plain numbers that `metrics.jsonl` can hold."""

    pairs: int
    src_vocab: int
    tgt_vocab: int
    tokenizer_type: str
    """`bpe`, `word`, `char`, or `sentencepiece` for an imported model. In fine-tuning, it is the initial model's."""
    joint: bool
    """Source and target share one vocabulary."""
    parameters: int
    trainable: int
    """Parameters that are not frozen."""
    batches: int
    """Batches per epoch. If an epoch has several blocks, this and the following are estimated from the first block."""
    target_tokens: int
    """Target tokens per epoch, `</s>` included."""
    largest: tuple[int, int, int]
    """Rows, widest source and widest target, `</s>` included, of the batch that takes most memory."""
    ranks: int
    bf16: bool
    on_cpu: bool
    fine_tunes: bool
    """Training starts from another model, which the run keeps as its checkpoint 0."""

    @classmethod
    def of(cls, config: Config, data: Prepared, batches: BatchPlan, device: torch.device, ranks: int) -> "Plan":
        """Return the plan of a run.

        Args:
            config: The configuration of the run.
            data: The prepared data.
            batches: The batches that training draws.
            device: The device of one rank.
            ranks: Number of processes that train together.
        """
        tokenizer = data.tokenizer
        bf16 = uses_bf16(config.train, device)
        on_cpu = device.type == "cpu"
        block = batches.block(0, 0)

        def bytes_kept(batch: tuple[int, int, int]) -> int:
            return activation_bytes(
                config.model, batch, tokenizer.tgt_size, bf16=bf16, on_cpu=on_cpu, freeze=config.train.freeze
            )

        def count(freeze: Freeze) -> int:
            return count_parameters(
                config.model, tokenizer.src_size, tokenizer.tgt_size, joint=tokenizer.joint, freeze=freeze
            )

        return cls(
            pairs=len(data.train),
            src_vocab=tokenizer.src_size,
            tgt_vocab=tokenizer.tgt_size,
            tokenizer_type=tokenizer.kind,
            joint=tokenizer.joint,
            parameters=count("none"),
            trainable=count(config.train.freeze),
            batches=len(block.batches) * batches.blocks,
            target_tokens=sum(block.tokens(batch) for batch in block.batches) * batches.blocks,
            largest=max((_shape(block, batch) for batch in block.batches), key=bytes_kept),
            ranks=ranks,
            bf16=bf16,
            on_cpu=on_cpu,
            fine_tunes=data.init is not None,
        )

    def __str__(self) -> str:
        precision = ", matrix products in bf16" if self.bf16 else ""
        return (
            f"{self._describe_parameters()}, {self.tgt_vocab:,} tokens in the target vocabulary, "
            f"{counted(self.pairs, 'pair')} in {counted(self.batches, 'batch', 'batches')} per epoch{precision}"
        )

    def memory(self, config: Config) -> MemoryEstimate:
        """Return an estimate of the peak memory of one rank.

        On a CPU, each core computes one micro-batch at a time. The gradients of those that are computed, that wait to
        be added or that are the sum of the others take memory at the same time.
        """
        weights = 4 * self.parameters
        trainable = 4 * self.trainable
        # Autocast keeps copies of the trainable weights during the forward and backward pass.
        bf16_weights = trainable // 2 if self.bf16 else 0
        train = config.train
        rows, num_src, num_tgt = self.largest
        at_once = 1
        gradients = 1
        if self.on_cpu:
            rows = math.ceil(rows / train.micro_batches)
            num_micro_batches = train.micro_batches * train.accumulate
            at_once = min(num_micro_batches, usable_cores())
            gradients = min(num_micro_batches, at_once + 2)
        kept = activation_bytes(
            config.model,
            (rows, num_src, num_tgt),
            self.tgt_vocab,
            bf16=self.bf16,
            on_cpu=self.on_cpu,
            freeze=train.freeze,
        )
        return MemoryEstimate(
            parameters=weights,
            gradients=gradients * trainable,
            moments=2 * trainable,
            activations=at_once * (kept + bf16_weights),
        )

    def check_memory(self, config: Config) -> None:
        """Check that training on a CPU can fit into memory.

        The estimate is exact to about 10%. The check leaves a wide margin: it fails only if two thirds of the estimate
        are more than the free memory.

        Raises:
            StorageError: The training does not fit.
        """
        if self.on_cpu:
            remedy = "give a smaller --set train.batch_tokens or a smaller model"
            require(self.memory(config).total / 1.5, "training with these batches", remedy)

    def steps(self, accumulate: int) -> float:
        """Return the optimizer steps per epoch.

        Args:
            accumulate: Batches per step and rank.
        """
        return self.batches / (accumulate * self.ranks)

    def rows(self, config: Config) -> list[tuple[str, str]]:
        """Return the plan in words, as pairs of a name and a text."""
        train = config.train
        warmup = counted(train.warmup_steps, "step")
        schedule = f"Adam, {train.schedule}, peak learning rate {config.peak_learning_rate:.3g} after {warmup}"
        return [
            ("model", self._describe_model(config)),
            ("vocabulary", self._describe_vocabulary(config)),
            ("variants", _describe_variants(config)),
            ("batches", self._describe_batches(train)),
            ("memory", self._describe_memory(config)),
            ("disk", self._describe_disk(train)),
            ("schedule", schedule),
            ("budget", self._describe_budget(config)),
            ("can go to", self._describe_exports(config)),
        ]

    def _describe_parameters(self) -> str:
        """Return the number of parameters, and how many of them are trained if some are frozen."""
        text = f"{self.parameters:,} parameters"
        if self.trainable < self.parameters:
            text += f" ({self.trainable:,} of them trained)"
        return text

    def _describe_model(self, config: Config) -> str:
        model = config.model
        return (
            f"{config.preset}: {self._describe_parameters()}; {model.num_encoder_layers} encoder and "
            f"{model.num_decoder_layers} decoder layers, d_model {model.d_model}, d_ff {model.d_ff}, "
            f"{counted(model.num_heads, 'head')}, dropout {model.dropout:g}, {model.norm}-norm"
            f"{FROZEN[config.train.freeze]}"
        )

    def _describe_vocabulary(self, config: Config) -> str:
        if self.joint:
            text = f"{self.src_vocab:,} tokens ({self.tokenizer_type}, joint)"
        else:
            text = f"{self.src_vocab:,} and {self.tgt_vocab:,} tokens ({self.tokenizer_type}, separate)"
        return f"{text}, from {config.tokenizer.file}" if config.tokenizer.file else text

    def _describe_batches(self, train: TrainConfig) -> str:
        batch = f"{train.batch_tokens:,} tokens"
        if train.micro_batches > 1:
            batch += f" in {train.micro_batches} micro-batches"
        if train.accumulate > 1:
            batch += f" × {train.accumulate}"
        if self.ranks > 1:
            batch += f" × {self.ranks} ranks"
        steps = self.steps(train.accumulate)
        pairs = counted(self.pairs, "pair")
        return f"{batch}; an epoch is {counted(round(steps), 'step')}, {pairs}, {self.target_tokens:,} target tokens"

    def _describe_memory(self, config: Config) -> str:
        memory = self.memory(config)
        return (
            f"about {size(memory.total)}, not counting PyTorch itself: parameters {size(memory.parameters)}, "
            f"gradients {size(memory.gradients)}, Adam's two moments {size(memory.moments)}, "
            f"activations of the largest batch {size(memory.activations)}"
        )

    def _describe_disk(self, train: TrainConfig) -> str:
        model = 4 * self.parameters
        checkpoint = model + 8 * self.trainable  # with Adam's two moments
        kept = max(train.keep, train.average) + 1
        text = f"model {size(model)}; a checkpoint {size(checkpoint)}, at most {kept} of them {size(checkpoint * kept)}"
        if self.fine_tunes:
            text += f"; checkpoint 0, the initial model, {size(model)}"  # without moments
        return text

    def _describe_budget(self, config: Config) -> str:
        train = config.train
        limits = []
        if train.max_steps:
            epochs = train.max_steps / self.steps(train.accumulate)
            limits.append(f"{counted(train.max_steps, 'step')} ({epochs:,.1f} epochs)")
        if train.time:
            limits.append(f"{clock(train.time)}, validation and scoring included")
        adapts = train.time and "train.valid_every" in config.chosen
        interval = "as often as the time allows" if adapts else every(train.valid_every, "step")
        text = f"{' or '.join(limits)}, validated {interval}"
        if train.patience:
            text += f"; ends early after {counted(train.patience, 'validation')} without a better score"
        return text

    def _describe_exports(self, config: Config) -> str:
        """Name the formats that the model can be exported to, and why not to the others."""
        tokenizer = config.tokenizer.model_copy(update={"type": self.tokenizer_type, "joint": self.joint})
        config = config.model_copy(update={"tokenizer": tokenizer})
        found = []
        for target in TARGETS:
            reasons = obstacles(config, target)
            found.append(f"{target}: no ({'; '.join(reasons)})" if reasons else f"{target}: yes")
        return "; ".join(found)


def _describe_variants(config: Config) -> str:
    kinds = []
    if config.data.variants == "on":
        share = 100 * sum(SHARES.values())
        kinds.append(f"{share:.0f} as people type them (capitals, errors, symbols, several on a line)")
    if config.data.terms:
        kinds.append(f"up to {100 * TERMS_SHARE:.0f} with translations of terms in the source")
    return f"on: in each epoch, for 100 pairs {' and '.join(kinds)}" if kinds else "off: the pairs as they are"


def _shape(block: Block, batch: Ints) -> tuple[int, int, int]:
    """Return the rows, source positions and target positions of a batch, `</s>` included."""
    num_src = int(block.src_lengths[batch].max()) + 1
    num_tgt = int(block.tgt_lengths[batch].max()) + 1
    return len(batch), num_src, num_tgt


def describe_counts(counts: Mapping[str, Any]) -> str:
    """Describe the data of a run.

    Args:
        counts: The `data` event of `metrics.jsonl`.
    """
    splits = f"{counts['train']:,} to train on, {counts['valid']:,} validation, {counts['test']:,} test"
    skipped = "".join(f"; {n:,} skipped: {reason}" for reason, n in counts["skipped"].items())
    return f"{counted(counts['read'], 'pair')} read: {splits}{skipped}"


def describe_sources(sources: Sequence[TrainingSource]) -> list[tuple[str, str]]:
    """Describe the training corpora as pairs of a name and a text; nothing for a single plain corpus.

    If several are synthetic, the last pair describes them together.
    """
    is_plain = all(source.weight == 1 and not source.synthetic and not source.tagged for source in sources)
    if len(sources) == 1 and is_plain:
        return []
    has_several = len({source.direction for source in sources}) > 1
    rows = [(source.name, _describe_source(source, names_direction=has_several)) for source in sources]
    synthetic = [source for source in sources if source.synthetic]
    if len(synthetic) > 1:
        rows.append(("all synthetic pairs", f"{_percent(sum(source.share for source in synthetic))} of an epoch"))
    return rows


def describe_transfer(transfer: TakenOver | None) -> list[tuple[str, str]]:
    """Describe what was taken from a model of other languages, as pairs of a name and a text; nothing if there is none.

    Args:
        transfer: What was taken.
    """
    if transfer is None:
        return []
    tokenizer = TOKENIZERS[transfer.choice]
    return [("parent", f"a model of {transfer.src} → {transfer.tgt}; {tokenizer}; embeddings: {transfer}")]


def _describe_source(source: TrainingSource, *, names_direction: bool = False) -> str:
    """Describe a training corpus: its direction if asked, pairs, weight and share, tagged pairs, and if synthetic."""
    text = f"{source.direction}: " if names_direction else ""
    text += f"{counted(source.pairs, 'pair')}, weight {source.weight:g}, {_percent(source.share)} of an epoch"
    if source.synthetic:
        text += ", synthetic"
    if source.tagged:
        text += f", {source.tagged:,} with {BACK_TRANSLATION_TAG.strip()}"
    return text


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def size(n: float) -> str:
    """Format a number of bytes with three digits: `31.4 MB`."""
    for unit in ("bytes", "kB", "MB"):
        if n < 999.5:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} GB"


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Format rows as two columns for a terminal."""
    return "\n".join(f"{name:<12}{printable(text)}" for name, text in rows)
