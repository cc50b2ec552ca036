"""The configuration: typed, frozen, and complete in `config.toml` of every run.

A value comes from the first of these that names it: `--set section.key=value`, the command's own options, the
configuration file, a preset that one of these names, the default below. Those `left_open` are then chosen for the
corpus and the budget (`defaults.py`). An unknown key is refused and the nearest valid one named, because a misspelt
key that is silently ignored costs a night of training.
"""

import difflib
import json
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from annotated_types import MultipleOf
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, field_validator

from mtcli import limits
from mtcli.config.fields import LONGEST, Decay, Seconds, Within, shown
from mtcli.config.languages import checked
from mtcli.config.presets import DEMO, PRESETS, Preset, Values
from mtcli.errors import ModelError, UsageError
from mtcli.runtime.regular_file import read_regular

Language = Annotated[str, AfterValidator(checked)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _unicode(cls, value: Any) -> Any:
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str) and any("\ud800" <= c <= "\udfff" for c in text):
                raise ValueError("config.toml can hold no name that is not valid Unicode; rename it")
            if isinstance(text, str) and "\0" in text:
                raise ValueError("a NUL character can be part of no name")
        return value


class DataConfig(_Section):
    """Where the pairs come from and which of them are used."""

    train: tuple[str, ...] = ()
    """Training corpora, each `PATH` or `PATH@WEIGHT`; none: the built-in demo."""
    valid: str | None = None
    """Validation pairs; none: held out of the training pairs by source sentence."""
    test: str | None = None
    """Test pairs, likewise."""
    split_seed: Annotated[int, Within(limits.SEED)] = 1
    """Chooses the pairs that are held out; independent of `train.seed`, so that runs share their test set."""
    src: Language = "en"
    tgt: Language = "es"
    swap: bool = False
    """Turn the two sides round."""
    replace: bool = False
    """Read invalid UTF-8 as U+FFFD, and count it."""
    max_length: Annotated[int, Within(limits.PAIR_LENGTH)] = 256
    """Longest side of a training pair, in pieces; longer pairs are skipped and counted."""
    note: str = ""
    """Where to get the data and on what terms; shown when it is not in place."""


class TokenizerConfig(_Section):
    """How text becomes pieces."""

    type: Literal["bpe", "word", "char"] = "bpe"
    vocab_size: Annotated[int, Within(limits.VOCABULARY)] | None = None
    """Pieces in the vocabulary; none: from the size of the corpus."""
    joint: bool = True
    """One vocabulary for both sides (§5.1), which lets all three embeddings be one matrix (§3.4)."""


class ModelConfig(_Section):
    """The Transformer's shape, in the symbols of the paper's Table 3."""

    d_model: Annotated[int, Within(limits.WIDTH), MultipleOf(2)] = 128
    d_ff: Annotated[int, Within(limits.FEED_FORWARD)] = 256
    num_heads: Annotated[int, Within(limits.HEADS)] = 4
    num_encoder_layers: Annotated[int, Within(limits.LAYERS)] = 4
    num_decoder_layers: Annotated[int, Within(limits.LAYERS)] = 4
    d_k: Annotated[int, Within(limits.HEAD_SIZE)] | None = None
    """Size of a head's queries and keys; none: d_model / num_heads."""
    d_v: Annotated[int, Within(limits.HEAD_SIZE)] | None = None
    """Size of a head's values; none: d_model / num_heads."""
    dropout: Annotated[float, Within(limits.DROPOUT)] = 0.1
    norm: Literal["post", "pre"] = "post"
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    max_positions: Annotated[int, Within(limits.POSITIONS)] = 512
    """Rows of the learned position table; sinusoids have no limit."""
    tie_embeddings: bool = True
    """Share the target embedding with the output, and with the source where the vocabulary is joint (§3.4)."""
    attention: Literal["fused", "reference"] = "fused"
    """PyTorch's fused kernel where it is faster, or always equation 1 as the paper writes it; the numbers agree."""


class TrainConfig(_Section):
    """The loop: how much in a step, how fast, how long."""

    batch_tokens: Annotated[int, Within(limits.BATCH_TOKENS)] = 4096
    """Rows × the wider padded side of a batch, `</s>` included."""
    accumulate: Annotated[int, Within(limits.ACCUMULATE)] = 1
    """Batches whose gradients make one step."""
    max_steps: Annotated[int, Within(limits.STEPS)] | None = None
    time: Seconds | None = None
    """Wall-clock budget in seconds, written `30m` or `1h30m`; validation and scoring included."""
    optimizer: Literal["adam"] = "adam"
    lr: Annotated[float, Within(limits.LEARNING_RATE)] = 3e-3
    """The peak, reached after `warmup_steps`; with the paper's schedule, its factor."""
    schedule: Literal["inverse_sqrt", "paper", "cosine", "linear"] = "inverse_sqrt"
    warmup_steps: Annotated[int, Within(limits.STEPS)] = 500
    cooldown: Annotated[float, Within(limits.SHARE)] = 0.25
    """The last part of the budget in which the rate of `inverse_sqrt` falls to zero; 0: never."""
    betas: tuple[Decay, Decay] = (0.9, 0.98)
    eps: Annotated[float, Within(limits.EPSILON)] = 1e-9
    weight_decay: Annotated[float, Within(limits.WEIGHT_DECAY)] = 0.0
    label_smoothing: Annotated[float, Within(limits.DROPOUT)] = 0.1
    clip_norm: Annotated[float, Within(limits.CLIP_NORM)] = 1.0
    """Largest norm of the whole gradient; 0: not clipped."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto: bf16 matrix products on CUDA and on CPUs with instructions for them, float32 elsewhere."""
    seed: Annotated[int, Within(limits.SEED)] = 1
    valid_every: Annotated[int, Within(limits.STEPS)] = 500
    """Steps between validations."""
    save_every: Annotated[int, Within(limits.STEPS)] = 500
    """Steps between checkpoints."""
    keep: Annotated[int, Within(limits.CHECKPOINTS)] = 3
    """Newest checkpoints kept, besides the best and those to be averaged."""
    average: Annotated[int, Within(limits.CHECKPOINTS)] = 5
    """Last checkpoints whose mean is taken at the end (§6.1), if it scores better on the validation pairs; 1: none."""
    patience: Annotated[int, Within(limits.PATIENCE)] = 10
    """Validations without a better score before training ends early, by way of its cool-down; 0: never."""
    bleu_tokenizer: str | None = None
    """sacrebleu's tokenizer for BLEU, in training and in `eval`; none: by the target language."""
    tensorboard: bool = False
    """Show the curves of `metrics.jsonl` in TensorBoard too; needs the extra `tensorboard`."""


class DecodeConfig(_Section):
    """How `translate` and `eval` search, unless told otherwise."""

    beam_size: Annotated[int, Within(limits.BEAM_SIZE)] = 4
    length_penalty: Annotated[float, Within(limits.LENGTH_PENALTY)] = 0.6
    """α of ((5 + n) / 6)^α (§6.1)."""
    max_extra: Annotated[int, Within(limits.LENGTH)] = 50
    """Most pieces of a translation beyond those of its source (§6.1)."""


class Config(_Section):
    """The whole of it."""

    preset: Preset = "tiny"
    chosen: tuple[str, ...] = ()
    """Names of the values that the run chose for its corpus, where nobody gave them; written by training alone."""
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()


SECTIONS: dict[str, type[BaseModel]] = {
    name: field.annotation
    for name, field in Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
}
NAMES = ("preset", *(f"{name}.{key}" for name, section in SECTIONS.items() for key in section.model_fields))
"""Every value that can be given, by dotted name."""

SHAPE = tuple(f"model.{key}" for key in PRESETS["tiny"]["model"])
BUDGET = "train.max_steps"
OPEN = (
    "preset", *SHAPE, "model.dropout", "train.batch_tokens", "train.lr", "train.warmup_steps", BUDGET,
    "train.valid_every", "train.save_every",
)  # fmt: skip
"""What the corpus and the budget decide where nobody does."""


def build(
    file: Path | None = None,
    options: Mapping[str, Any] | None = None,
    sets: Sequence[str] = (),
    *,
    initial: Mapping[str, Any] | None = None,
) -> Config:
    """Merge preset < initial model < file < options < `--set` into one checked configuration.

    Without a preset, a width that is given stands for the narrowest one so wide, as far as shape and rate go; without
    either the choice is left open, and until it is made the defaults are those of `tiny`.

    Args:
        file: A TOML file.
        options: Values of the command line by dotted name, `{"train.time": "30m"}`; None means not given.
        sets: `section.key=value` strings; the value is read as TOML, and as plain text where it is not TOML.
        initial: Values by dotted name of the model that training starts from.

    Raises:
        UsageError: Unreadable TOML, an unknown key (the nearest valid one is named) or a value out of bounds.
    """
    layers = [_read(file) if file else {}]
    layers.append(_nested({k: v for k, v in (options or {}).items() if v is not None}))
    layers += [_parse_set(text) for text in sets]
    for layer, where in zip(layers, [f"{file}: ", *[""] * len(layers)], strict=False):
        for name in SECTIONS:
            if not isinstance(layer.get(name, {}), dict):
                raise UsageError(f"{where}{name} = {shown(layer[name])}: it is a section; write {name}.key=value")
    if any("train" in layer.get("data", {}) for layer in layers[1:]):  # the file's other splits belong to its corpus
        layers[0] = {
            **layers[0],
            "data": {k: v for k, v in layers[0].get("data", {}).items() if k not in ("valid", "test", "note")},
        }
    given: Values = {}
    for layer in layers:
        given = _merge(given, layer)
    given = _merge(_nested(initial or {}), given)
    built_in = not given.get("data", {}).get("train")
    values = _merge(_preset(given, "tiny" if built_in else None), DEMO if built_in else {})
    values = _without_pace(values, given)
    values = _merge(values, given)
    where = f"{file}: " if file else ""
    return _check(values, where)


def left_open(config: Config) -> frozenset[str]:
    """The names of `OPEN` that nobody gave; the number of steps is not among them where a time is given."""
    found = {name for name in OPEN if name.rpartition(".")[2] not in _owner(config, name).model_fields_set}
    return frozenset(found - {BUDGET} if config.train.time else found)


def value_of(config: Config, name: str) -> Any:
    """A value by its dotted name."""
    return getattr(_owner(config, name), name.rpartition(".")[2])


def filled(config: Config, values: Mapping[str, Any]) -> Config:
    """The configuration with other values by dotted name; nothing of it is left open.

    Raises:
        UsageError: Values do not go together.
    """
    return _check(_merge(config.model_dump(), _nested(values)), "")


def load(path: Path) -> Config:
    """Read the complete `config.toml` of a run.

    Raises:
        ModelError: It is missing, no regular file, damaged, or holds an unknown key.
    """
    try:
        content = read_regular(path, most=limits.CONFIGURATION)
    except OSError as error:
        raise ModelError(f"{path}: cannot read it ({error.strerror}); put the file of the run back") from None
    try:
        return _check(_with_split_seed(_parse(content, path)), f"{path}: ")
    except UsageError as error:  # nobody's choice, unlike a configuration that is given to `train`
        raise ModelError(f"{error}; the run is damaged, or of another version") from None


def _with_split_seed(values: Values) -> Values:
    """Add the seed by which version 0.1 chose the pairs to hold out."""
    data, train = values.get("data"), values.get("train")
    if isinstance(data, dict) and isinstance(train, dict) and "seed" in train:
        data.setdefault("split_seed", train["seed"])
    return values


def to_toml(config: Config) -> str:
    """The whole configuration as TOML; a value of None is left out, since TOML has none."""
    lines = [f"preset = {json.dumps(config.preset)}"]
    if config.chosen:
        lines.append(f"chosen = {json.dumps(config.chosen)} # for the corpus and the budget, since nobody gave them")
    for name, section in config.model_dump(mode="json", include={*SECTIONS}, exclude_none=True).items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in section.items()]
    # TOML strings are those of JSON, but for one control character.
    return "\n".join(lines).replace("\x7f", "\\u007f") + "\n"


def differences(old: Config, new: Config) -> list[str]:
    """`section.key: old → new` for every value that differs; the budget may, and what no figure depends on.

    What the old run chose may be left open in the new configuration, and then does not differ.
    """
    exempt = {"train.max_steps", "train.time", "train.tensorboard", "data.note"} | left_open(new) & {*old.chosen}
    pairs = ((name, value_of(old, name), value_of(new, name)) for name in NAMES if name not in exempt)
    return [f"{name}: {_readable(x)} → {_readable(y)}" for name, x, y in pairs if x != y]


def _readable(value: Any) -> str:
    """A value in a message: text without quotation marks where it is plain, "not set" for none."""
    if value is None or value == ():
        return "not set"
    if isinstance(value, tuple):
        return ", ".join(map(_readable, value))
    if isinstance(value, str) and value.isprintable() and value == value.strip() != "":
        return value
    return json.dumps(value)


def _owner(config: Config, name: str) -> BaseModel:
    section = name.rpartition(".")[0]
    owner: BaseModel = getattr(config, section) if section else config
    return owner


PACE = ("warmup_steps", "valid_every", "save_every")
"""Settings of `train` that fit the budget of a preset or of the demo, and no other."""


def _without_pace(values: Values, given: Values) -> Values:
    """The values of a preset or of the demo without those that a budget of the user's own leaves open."""
    train = given.get("train", {})
    if not {"max_steps", "time"} & train.keys() or train.get("schedule") == "paper":  # its peak rests on the warm-up
        return values
    return {**values, "train": {k: v for k, v in values.get("train", {}).items() if k not in PACE}}


def _preset(given: Values, otherwise: Preset | None) -> Values:
    """The values of the preset that is named, or of the one that a given width stands for."""
    preset, width = given.get("preset", otherwise), given.get("model", {}).get("d_model")
    if preset is None and isinstance(width, int):
        near: Preset = next((name for name, values in PRESETS.items() if values["model"]["d_model"] >= width), "big")
        flat = {f"{section}.{key}": v for section, values in PRESETS[near].items() for key, v in values.items()}
        return _nested({"preset": near, **{name: flat[name] for name in (*SHAPE, "train.lr", "train.warmup_steps")}})
    if preset is None:
        return {}
    if not isinstance(preset, str) or preset not in PRESETS:
        raise UsageError(f"preset = {shown(preset)}: choose from {', '.join(get_args(Preset))}")
    return {"preset": preset, **PRESETS[preset]}


def _read(path: Path) -> Values:
    """The content of a file that the user names, which may be a pipe."""
    try:
        with path.open("rb") as file:
            content = file.read(limits.CONFIGURATION + 1)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such configuration file") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not a readable TOML file: {error}") from None
    if len(content) > limits.CONFIGURATION:
        raise UsageError(f"{path}: larger than {limits.CONFIGURATION:,} bytes, which no configuration is")
    return _parse(content, path)


def _parse(content: bytes, path: Path) -> Values:
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not a readable TOML file: {error}") from None


def _parse_set(text: str) -> Values:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {shown(text)}: write it as section.key=value")
    parsed: Any = value
    with suppress(ValueError, RecursionError):
        if len(table := tomllib.loads(f"value = {value}")) == 1:
            parsed = table["value"]
    return _nested({name.strip(): parsed})


def _nested(flat: Mapping[str, Any]) -> Values:
    nested: Values = {}
    for name, value in flat.items():
        *sections, key = name.split(".")
        inner = nested
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[key] = value
    return nested


def _merge(low: Values, high: Values) -> Values:
    merged = dict(low)
    for key, value in high.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _check(values: Values, where: str) -> Config:
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        raise UsageError(where + "; ".join(_explain(e) for e in error.errors())) from None
    model, data = config.model, config.data
    if data.src == data.tgt:
        raise UsageError(f"{where}data.src and data.tgt are both {data.src!r}; give the sides different names")
    if model.d_model % model.num_heads and (model.d_k is None or model.d_v is None):
        raise UsageError(
            f"{where}model.d_model = {model.d_model} is no multiple of model.num_heads = {model.num_heads}; "
            "change one of them, or give model.d_k and model.d_v"
        )
    return config


def _explain(error: Any) -> str:
    name = ".".join(str(part) for part in error["loc"])
    name = name if len(name) <= LONGEST else f"{name[:LONGEST]}…"
    if error["type"] != "extra_forbidden":
        return f"{name} = {shown(error['input'])}: {error['msg'].removeprefix('Value error, ')}"
    leaf = name.rpartition(".")[2]
    near = difflib.get_close_matches(name, [*NAMES, *SECTIONS], 1, 0.5) or [
        n for n in NAMES if n.rpartition(".")[2] == leaf
    ]
    return f"{name}: no such key" + (f"; did you mean {near[0]}?" if near else "")
