"""The JSON files of a Marian model: settings that an import uses, and settings that our Transformer cannot express."""

import json
import logging
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, ValidationError

from mtcli import limits
from mtcli.config.fields import Within, shown
from mtcli.config.schema import ModelConfig
from mtcli.errors import ModelError
from mtcli.runtime.files import read_regular

log = logging.getLogger(__name__)

ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish", "gelu": "gelu"}
"""Our name of each activation of `transformers`."""

REQUIRED: dict[str, Any] = {
    "model_type": "marian",
    "is_encoder_decoder": True,
    "scale_embedding": True,
    "static_position_embeddings": True,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "extra_pos_embeddings": 0,
}
"""Settings for which our Transformer can express only this value."""

DEFAULTS = {"scale_embedding": False}
"""Defaults of `transformers` that differ from `REQUIRED`."""

TRAINING_ONLY = ("attention_dropout", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop")
"""Dropout rates that our Transformer does not have. They change training only."""

IGNORED_SEARCH: dict[str, Any] = {
    "do_sample": False,
    "min_length": 0,
    "min_new_tokens": 0,
    "no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "renormalize_logits": False,
    "repetition_penalty": 1.0,
}
"""Settings of a search that an import does not record, with the values that change nothing."""

Id = Annotated[int, Within(limits.Range(0, limits.VOCABULARY.max))]
Rate = Annotated[float, Within(limits.SHARE)]


class MarianConfig(BaseModel):
    """The settings of `config.json` that an import uses; the defaults are those of `transformers`."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    d_model: Annotated[int, Within(limits.WIDTH)] = 1024
    encoder_layers: Annotated[int, Within(limits.LAYERS)] = 12
    decoder_layers: Annotated[int, Within(limits.LAYERS)] = 12
    encoder_ffn_dim: Annotated[int, Within(limits.FEED_FORWARD)] = 4096
    decoder_ffn_dim: Annotated[int, Within(limits.FEED_FORWARD)] = 4096
    encoder_attention_heads: Annotated[int, Within(limits.HEADS)] = 16
    decoder_attention_heads: Annotated[int, Within(limits.HEADS)] = 16
    activation_function: StrictStr = "gelu"
    dropout: Annotated[float, Within(limits.DROPOUT)] = 0.1
    attention_dropout: Rate = 0.0
    activation_dropout: Rate = 0.0
    encoder_layerdrop: Rate = 0.0
    decoder_layerdrop: Rate = 0.0
    max_position_embeddings: Annotated[int, Within(limits.POSITIONS)] = 1024
    vocab_size: Annotated[int, Within(limits.VOCABULARY)] = 58_101
    decoder_vocab_size: Annotated[int, Within(limits.VOCABULARY)] | None = None
    pad_token_id: Id = 58_100
    eos_token_id: Id = 0
    decoder_start_token_id: Id = 58_100
    name: StrictStr | None = Field(default=None, alias="_name_or_path")
    """What the model was called where it was made."""


class MarianSearch(BaseModel):
    """The settings of a search in `generation_config.json`, or in the `config.json` of an older model."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    num_beams: Annotated[int, Within(limits.BEAM_SIZE)] | None = None
    length_penalty: Annotated[float, Within(limits.LENGTH_PENALTY)] | None = None
    early_stopping: StrictBool | None = None
    """transformers also has the text "never", which mtcli does not."""


class MarianTokenizerConfig(BaseModel):
    """The settings of `tokenizer_config.json` that an import uses."""

    model_config = ConfigDict(frozen=True)

    source_lang: StrictStr | None = None
    target_lang: StrictStr | None = None
    separate_vocabs: StrictBool = False


Settings = TypeVar("Settings", bound=BaseModel)


def read_config(folder: Path) -> MarianConfig:
    """Read `config.json`.

    Raises:
        ModelError: The file is missing or damaged, or describes a model that our Transformer cannot express. The
            message names each such setting.
    """
    path = folder / "config.json"
    content = read_json(path)
    inexpressible = _inexpressible(content)
    if inexpressible:
        raise ModelError(f"{path}: a model that mtcli cannot express: {', '.join(inexpressible)}")
    config = _checked(MarianConfig, content, path)
    for key in TRAINING_ONLY:
        rate = getattr(config, key)
        if rate:
            log.warning("%s: %s = %g is ignored, which changes further training only", path, key, rate)
    return config


def read_search(folder: Path) -> MarianSearch:
    """Read the settings of the search: of `generation_config.json`, otherwise of `config.json`.

    Raises:
        ModelError: A file is damaged.
    """
    path = folder / "config.json"
    content = read_json(path)
    in_config = _checked(MarianSearch, content, path)
    _warn_about_ignored_search(content, path)
    path = folder / "generation_config.json"
    if not path.exists():
        return in_config
    content = read_json(path)
    in_generation_config = _checked(MarianSearch, content, path)
    _warn_about_ignored_search(content, path)
    return in_config.model_copy(update=in_generation_config.model_dump(exclude_unset=True))


def _warn_about_ignored_search(content: dict[str, Any], path: Path) -> None:
    """Warn about settings of a search that the imported model does not have."""
    for key, neutral in IGNORED_SEARCH.items():
        value = content.get(key)
        if value is not None and value != neutral:
            log.warning("%s: %s = %s is ignored: translations may differ from the origin's", path, key, shown(value))


def read_tokenizer_config(folder: Path) -> MarianTokenizerConfig:
    """Read `tokenizer_config.json`, if there is one.

    Raises:
        ModelError: The file is damaged, or the model has a vocabulary for each side.
    """
    path = folder / "tokenizer_config.json"
    if not path.exists():
        return MarianTokenizerConfig()
    config = _checked(MarianTokenizerConfig, read_json(path), path)
    if config.separate_vocabs:
        raise ModelError(f"{path}: a model that mtcli cannot express: separate_vocabs = true")
    return config


def _checked(settings: type[Settings], content: dict[str, Any], path: Path) -> Settings:
    """Return the settings in the content of a JSON file.

    Raises:
        ModelError: One has a wrong type, or is out of its range. The message names it.
    """
    try:
        return settings.model_validate(content)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        raise ModelError(f"{path}: {key}: {problem['msg']}, not {shown(problem['input'])}") from None


def read_file(path: Path) -> bytes:
    """Read a file of a Marian model.

    Raises:
        ModelError: It is missing, or cannot be read.
    """
    try:
        return read_regular(path)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file, which a Marian model has") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises:
        ModelError: The file is missing or damaged, or holds no object.
    """
    try:
        content = json.loads(read_file(path))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path}: damaged, not JSON ({error})") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path}: damaged, holds no JSON object")
    return content


def _inexpressible(content: dict[str, Any]) -> list[str]:
    """Return the settings that our Transformer cannot express, with their values."""
    found = []
    for key, expressible in REQUIRED.items():
        value = content.get(key, DEFAULTS.get(key, expressible))
        if value != expressible:
            found.append(f"{key} = {json.dumps(value)[:60]}")
    for key in ("attention_heads", "ffn_dim"):
        encoder, decoder = content.get(f"encoder_{key}"), content.get(f"decoder_{key}")
        if encoder != decoder:
            found.append(f"encoder_{key} = {json.dumps(encoder)[:60]} and decoder_{key} = {json.dumps(decoder)[:60]}")
    activation = content.get("activation_function", "gelu")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        found.append(f"activation_function = {json.dumps(activation)[:60]}")
    vocabularies = content.get("vocab_size"), content.get("decoder_vocab_size")
    if None not in vocabularies and vocabularies[0] != vocabularies[1]:
        found.append(f"decoder_vocab_size = {json.dumps(vocabularies[1])[:60]}")
    return found


def shape_of(config: MarianConfig, folder: Path) -> ModelConfig:
    """Return the shape of the model as a `ModelConfig`.

    Args:
        config: What `read_config` returned.
        folder: The folder that it was read from.

    Raises:
        ModelError: Our Transformer cannot have this shape.
    """
    heads = config.encoder_attention_heads
    if config.d_model % 2 or config.d_model % heads:
        path = folder / "config.json"
        raise ModelError(f"{path}: d_model = {config.d_model}: must be even, and a multiple of the {heads} heads")
    return ModelConfig.model_validate(
        {
            "d_model": config.d_model,
            "d_ff": config.encoder_ffn_dim,
            "num_heads": config.encoder_attention_heads,
            "num_encoder_layers": config.encoder_layers,
            "num_decoder_layers": config.decoder_layers,
            "dropout": config.dropout,
            "activation": ACTIVATIONS[config.activation_function],
            "output_bias": True,
        }
    )
