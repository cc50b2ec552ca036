"""The settings of a run: one typed, frozen class per section of `config.toml`.

The string below a field is its documentation, and the only place where the meaning of a setting is written down:
`mtcli train --list-settings` prints it. § refers to the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import MultipleOf
from pydantic import AfterValidator, BaseModel, ConfigDict, field_validator

from mtcli import limits
from mtcli.config.fields import Decay, Seconds, Within
from mtcli.config.presets import PRESETS, Preset
from mtcli.text.languages import Direction, checked

LengthNormalization = Literal["wu", "power"]

Precision = Literal["auto", "fp32", "bf16"]

Transfer = Literal["auto", "keep", "extend", "new"]

Freeze = Literal["none", "embeddings", "encoder", "all-but-top"]

Language = Annotated[str, AfterValidator(checked)]


class _Section(BaseModel):
    """A section: unknown keys are refused, and nothing changes after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    @field_validator("*")
    @classmethod
    def _refuse_unwritable_text(cls, value: Any) -> Any:
        """Refuse text that TOML cannot hold (surrogates), and NUL, which no file name can hold."""
        texts = value if isinstance(value, tuple) else (value,)
        for text in texts:
            if not isinstance(text, str):
                continue
            if any("\ud800" <= character <= "\udfff" for character in text):
                raise ValueError("a name that is not valid Unicode cannot be written to config.toml; rename it")
            if "\0" in text:
                raise ValueError("a name cannot contain a NUL character")
        return value


class CorpusConfig(_Section):
    """A training corpus in a table of several, `[[data.corpora]]`."""

    train: str
    """`PATH` or `PATH@WEIGHT`."""
    src: Language | None = None
    """Source language code. By default, that of `data.src` if it is set, otherwise taken from names."""
    tgt: Language | None = None
    """Target language code; see `src`."""
    valid: str | None = None
    """Validation pairs. By default, some training pairs are held out."""
    test: str | None = None
    """Test pairs. By default, some training pairs are held out."""


@dataclass(frozen=True)
class DirectedCorpus:
    """A training corpus as one direction is trained on it."""

    train: str
    """`PATH` or `PATH@WEIGHT`."""
    languages: Direction
    """The languages of its sides, as it is read."""
    is_reversed: bool = False
    """Its pairs are trained in the other direction than it is read."""
    corrects: bool = False
    """Its pairs are those of `data.corrections`."""

    @property
    def direction(self) -> Direction:
        """The direction that is trained."""
        return self.languages.reversed() if self.is_reversed else self.languages


class DataConfig(_Section):
    """Where the sentence pairs come from, and which of them are used."""

    train: tuple[str, ...] = ()
    """Training corpora, each `PATH` or `PATH@WEIGHT`. Without any, the built-in demo is trained."""
    corpora: tuple[CorpusConfig, ...] = ()
    """Training corpora of several pairs of languages: tables with `train`, `src`, `tgt`, `valid`, `test`."""
    both_directions: bool = False
    """Train each pair of languages in both directions."""
    temperature: Annotated[float, Within(limits.SAMPLING_TEMPERATURE)] = 2.0
    """With several directions, each is drawn in proportion to (its pairs)^(1/temperature); 1 leaves their shares."""
    corrections: str | None = None
    """With `--init`: corrections to learn, mixed with `data.train`. Of two for one source, the later one counts."""
    corrections_mix: Annotated[float, Within(limits.WEIGHT)] = 16.0
    """Pairs of `data.train` for each correction in an epoch."""
    valid: str | None = None
    """Validation pairs. By default, some training pairs are held out, chosen by source sentence."""
    test: str | None = None
    """Test pairs. By default, some training pairs are held out, chosen by source sentence."""
    split_seed: Annotated[int, Within(limits.SEED)] = 1
    """Seed that chooses the held-out pairs. It is independent of `train.seed`, so that runs share their test set."""
    src: Language = "en"
    """Source language code. By default, it is taken from the names of files and columns."""
    tgt: Language = "es"
    """Target language code. By default, it is taken from the names of files and columns."""
    swap: bool = False
    """Swap source and target, for pairs whose sides have no language names."""
    replace: bool = False
    """Read invalid UTF-8 as U+FFFD and report how many bytes, instead of stopping."""
    max_length: Annotated[int, Within(limits.PAIR_LENGTH)] = 256
    """Maximum number of tokens on each side of a training pair. Longer pairs are skipped and counted."""
    placeholders: bool = False
    """Learn placeholder tokens, which stand for `%s`, `{name}`, URLs and the like when documents are translated."""
    terms: bool = False
    """Also train on pairs with translations of some words in their sources, so that the model learns to use terms."""
    variants: Literal["on", "off"] = "on"
    """Also train on variants of the pairs as people type: in capitals, with errors or symbols, several on a line."""
    note: str = ""
    """Where to get the data, and its terms of use. Shown if the data is missing."""

    @property
    def is_demo(self) -> bool:
        """True if no training corpus is named, so that the built-in demo is trained."""
        return not (self.train or self.corpora)

    @property
    def specs(self) -> tuple[str, ...]:
        """The training corpora as they are named, each `PATH` or `PATH@WEIGHT`."""
        return tuple(corpus.train for corpus in self.table)

    @property
    def table(self) -> tuple[CorpusConfig, ...]:
        """The training corpora with their languages, also those of `train`."""
        if self.corpora:
            return self.corpora
        return tuple(CorpusConfig(train=spec, src=self.src, tgt=self.tgt) for spec in self.train)

    def given_splits(self, name: str) -> list[tuple[str, Direction]]:
        """Return the corpora of the `valid` or `test` pairs, with the languages as which they are read.

        A corpus that is named for both directions of a pair of languages is read once, for both.
        """
        specs = [
            (getattr(corpus, name), Direction(corpus.src or self.src, corpus.tgt or self.tgt))
            for corpus in self.corpora
        ]
        specs.append((getattr(self, name), Direction(self.src, self.tgt)))
        once: dict[tuple[str, frozenset[str]], Direction] = {}
        for spec, languages in specs:
            if spec is not None:
                once.setdefault((spec, frozenset(languages)), languages)
        return [(spec, languages) for (spec, _), languages in once.items()]

    @property
    def directed(self) -> tuple[DirectedCorpus, ...]:
        """The training corpora in the order in which they are read: each as it is, and reversed if asked; then the
        corrections."""
        orders = (False, True) if self.both_directions else (False,)
        corpora = tuple(
            DirectedCorpus(corpus.train, Direction(corpus.src or self.src, corpus.tgt or self.tgt), is_reversed)
            for corpus in self.table
            for is_reversed in orders
        )
        if self.corrections is None:
            return corpora
        return (*corpora, DirectedCorpus(self.corrections, Direction(self.src, self.tgt), corrects=True))

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions that are trained, each once."""
        trained = [corpus.direction for corpus in self.directed] or [Direction(self.src, self.tgt)]
        return tuple(dict.fromkeys(trained))

    @property
    def target_languages(self) -> tuple[str, ...]:
        """The languages that are translated into, each once."""
        return tuple(dict.fromkeys(direction.tgt for direction in self.directions))


class TokenizerConfig(_Section):
    """How text is split into tokens."""

    type: Literal["bpe", "word", "char", "sentencepiece"] = "bpe"
    """Kind of token: subword (BPE), word or character. Imported models have `sentencepiece`, which is not trained."""
    vocab_size: Annotated[int, Within(limits.VOCABULARY)] | None = None
    """Number of tokens in the vocabulary. By default, it follows the size of the corpus."""
    joint: bool = True
    """Use one vocabulary for both sides (§5.1), so that all three embeddings can share one matrix (§3.4)."""
    file: str = ""
    """Use the tokenizer of this run folder or `tokenizer.json` instead of a new one, so that models can be combined."""
    transfer: Transfer = "auto"
    """With `--init` of other languages: `keep` the model's tokenizer, `extend` it by tokens, or train a `new` one."""


class ModelConfig(_Section):
    """The shape of the Transformer, in the symbols of the paper's Table 3."""

    d_model: Annotated[int, Within(limits.WIDTH), MultipleOf(2)] = 128
    """Size of the embeddings and of every layer's output."""
    d_ff: Annotated[int, Within(limits.FEED_FORWARD)] = 256
    """Size of the inner layer of the feed-forward networks (§3.3)."""
    num_heads: Annotated[int, Within(limits.HEADS)] = 4
    """Number of attention heads in each layer (§3.2.2)."""
    num_encoder_layers: Annotated[int, Within(limits.LAYERS)] = 4
    """Number of encoder layers."""
    num_decoder_layers: Annotated[int, Within(limits.LAYERS)] = 4
    """Number of decoder layers."""
    d_k: Annotated[int, Within(limits.HEAD_SIZE)] | None = None
    """Size of the queries and keys of a head. By default, d_model / num_heads."""
    d_v: Annotated[int, Within(limits.HEAD_SIZE)] | None = None
    """Size of the values of a head. By default, d_model / num_heads."""
    dropout: Annotated[float, Within(limits.DROPOUT)] = 0.1
    """Dropout rate on the embeddings and on the output of each sublayer (§5.4)."""
    norm: Literal["post", "pre"] = "post"
    """Layer normalization after each sublayer (`post`, as in the paper) or before it (`pre`)."""
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    """Positional encoding: sinusoids (§3.5) or a learned table."""
    max_positions: Annotated[int, Within(limits.POSITIONS)] = 512
    """Number of rows in the learned position table. Sinusoids have no limit."""
    tie_embeddings: bool = True
    """Share the target embedding with the output layer, and with the source if the vocabulary is joint (§3.4)."""
    activation: Literal["relu", "swish", "gelu"] = "relu"
    """Activation of the feed-forward networks: ReLU (equation 2), x · σ(x) (`swish`) or x · Φ(x) (`gelu`)."""
    output_bias: bool = False
    """Add a bias to the logits. The paper has none; imported models do."""
    attention: Literal["fused", "reference"] = "fused"
    """`fused`: PyTorch's kernel where it is faster. `reference`: always equation 1 as written. Results agree."""


class TrainConfig(_Section):
    """Batches, budget, optimizer and checkpoints."""

    batch_tokens: Annotated[int, Within(limits.BATCH_TOKENS)] = 4096
    """Tokens in a batch of one rank: its rows × the padded length of its longer side, `</s>` included."""
    accumulate: Annotated[int, Within(limits.ACCUMULATE)] = 1
    """Number of batches whose gradients make one optimizer step."""
    micro_batches: Annotated[int, Within(limits.MICRO_BATCHES)] = 1
    """Parts of each batch that the cores of a CPU compute at the same time. Another number changes dropout's draws."""
    max_steps: Annotated[int, Within(limits.STEPS)] | None = None
    """Budget of optimizer steps."""
    time: Seconds | None = None
    """Time budget, such as `30m` or `1h30m`. It covers everything, including validation and scoring."""
    optimizer: Literal["adam"] = "adam"
    """The optimizer; Adam is the only one."""
    lr: Annotated[float, Within(limits.LEARNING_RATE)] = 3e-3
    """Peak learning rate, after `warmup_steps`. With `schedule=paper`, the factor of equation 3, by default 1."""
    schedule: Literal["inverse_sqrt", "paper", "cosine", "linear"] = "inverse_sqrt"
    """Learning rate after the warm-up. `paper` is equation 3 of §5.3; `cosine` and `linear` fall to zero."""
    warmup_steps: Annotated[int, Within(limits.STEPS)] = 500
    """Number of steps in which the learning rate rises to its peak."""
    cooldown: Annotated[float, Within(limits.SHARE)] = 0.25
    """Last share of the budget, in which the learning rate of `inverse_sqrt` falls to zero; 0 disables this."""
    betas: tuple[Decay, Decay] = (0.9, 0.98)
    """Adam's β₁ and β₂ (§5.3)."""
    eps: Annotated[float, Within(limits.EPSILON)] = 1e-9
    """Adam's ε (§5.3)."""
    weight_decay: Annotated[float, Within(limits.WEIGHT_DECAY)] = 0.0
    """Decoupled weight decay of the matrices (AdamW)."""
    label_smoothing: Annotated[float, Within(limits.DROPOUT)] = 0.1
    """Label smoothing ε (§5.4)."""
    clip_norm: Annotated[float, Within(limits.CLIP_NORM)] = 1.0
    """Maximum norm of the whole gradient; 0 disables clipping."""
    freeze: Freeze = "none"
    """Parameters that fine-tuning freezes: the embeddings; these and the encoder; or all but the last decoder layer."""
    precision: Precision = "auto"
    """Precision of matrix products. `auto`: bf16 on CPUs and CUDA GPUs with instructions for it, otherwise float32."""
    deterministic: bool = False
    """On CUDA, use only deterministic operations: slower, but a resumed run gives the bits of an uninterrupted one."""
    compile: Literal["auto", "on", "off"] = "off"
    """Compile encoder and decoder with `torch.compile`. `auto`: in long runs on CUDA, if Triton is installed."""
    seed: Annotated[int, Within(limits.SEED)] = 1
    """Seed of the initial weights, dropout and the order of batches."""
    valid_every: Annotated[int, Within(limits.STEPS)] = 500
    """Number of steps between validations."""
    save_every: Annotated[int, Within(limits.STEPS)] = 500
    """Number of steps between checkpoints."""
    keep: Annotated[int, Within(limits.CHECKPOINTS)] = 3
    """Number of newest checkpoints to keep, in addition to the best one and those to be averaged."""
    average: Annotated[int, Within(limits.CHECKPOINTS)] = 5
    """Number of last checkpoints to average at the end (§6.1), if that scores better; 1 disables averaging."""
    patience: Annotated[int, Within(limits.PATIENCE)] = 10
    """Number of validations without a better score before the cool-down starts early; 0 disables early stopping."""
    corrections_limit: Annotated[float, Within(limits.SCORE)] = 0.5
    """With `data.corrections`: points of BLEU that validation may lose; of chrF for languages without spaces."""
    bleu_tokenizer: str | None = None
    """Tokenizer that sacrebleu uses for BLEU, in training and in `eval`. By default, it follows the target language."""
    tensorboard: bool = False
    """Also write the curves of `metrics.jsonl` for TensorBoard; needs the extra `tensorboard`."""
    engine: bool = True
    """At the end, convert the model for faster translation on a CPU, if `ctranslate2` is installed."""


class DecodeConfig(_Section):
    """Default search of `translate` and `eval`."""

    beam_size: Annotated[int, Within(limits.BEAM_SIZE)] = 4
    """Number of hypotheses in beam search (§6.1); 1 is greedy search."""
    length_penalty: Annotated[float, Within(limits.LENGTH_PENALTY)] = 0.6
    """Exponent α of the length penalty (§6.1), which favors longer translations: 1.5 for fewer than 10,000 pairs."""
    length_normalization: LengthNormalization = "wu"
    """Length penalty of a translation of n tokens: ((5 + n) / 6)^α (`wu`, as in the paper) or n^α (`power`)."""
    early_stopping: bool = True
    """Stop as soon as `beam_size` translations are finished. `false`: the default of transformers, see importing.md."""
    max_extra: Annotated[int, Within(limits.LENGTH)] = 50
    """Maximum number of tokens of a translation beyond those of its source (§6.1)."""
    precision: Precision = "auto"
    """Precision of searches. `auto`: bf16 on GPUs with instructions for it, otherwise float32."""


class Config(_Section):
    """The complete configuration of a run."""

    preset: Preset = "tiny"
    """Size of the model: sets the shape, dropout, learning rate and warm-up."""
    chosen: tuple[str, ...] = ()
    """Names of the settings that training chose because they were unset. Only training writes this."""
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()

    @property
    def peak_learning_rate(self) -> float:
        """The learning rate at the end of the warm-up."""
        if self.train.schedule == "paper":
            return float(self.train.lr * (self.model.d_model * self.train.warmup_steps) ** -0.5)
        return self.train.lr


SECTIONS: dict[str, type[BaseModel]] = {
    name: field.annotation
    for name, field in Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
}
NAMES = ("preset", *(f"{name}.{key}" for name, section in SECTIONS.items() for key in section.model_fields))
"""Dotted name of every setting that a user can give."""

SHAPE = tuple(f"model.{key}" for key in PRESETS["tiny"]["model"])
"""Settings of the model's shape that every preset has."""

MAX_STEPS = "train.max_steps"
LENGTH_PENALTY = "decode.length_penalty"

CHOSEN_IF_UNSET = (
    "preset", *SHAPE, "model.dropout", "train.batch_tokens", "train.micro_batches", "train.lr", "train.warmup_steps",
    MAX_STEPS, "train.valid_every", "train.save_every", LENGTH_PENALTY,
)  # fmt: skip
"""Settings that training chooses from the corpus, the device and the budget if they are unset."""

CHOSEN_IF_UNSET_IN_FINE_TUNING = (*CHOSEN_IF_UNSET, "train.patience")
"""The same if training starts from another model."""


def unset_settings(config: Config, names: Sequence[str] = CHOSEN_IF_UNSET) -> frozenset[str]:
    """Return those of the settings that are unset. A run with a time budget needs no number of steps."""
    unset = {name for name in names if not _is_set(config, name)}
    if config.train.time:
        unset.discard(MAX_STEPS)
    return frozenset(unset)


def value_of(config: Config, name: str) -> Any:
    """Return a value by its dotted name."""
    section, key = _split(config, name)
    return getattr(section, key)


def _is_set(config: Config, name: str) -> bool:
    section, key = _split(config, name)
    return key in section.model_fields_set


def _split(config: Config, name: str) -> tuple[BaseModel, str]:
    """Return the section that holds a setting, and the setting's name in it."""
    section_name, _, key = name.rpartition(".")
    section: BaseModel = getattr(config, section_name) if section_name else config
    return section, key
