"""Check values against the schema, and explain in one line what is wrong."""

import difflib
import re
from typing import Any

from pydantic import ValidationError

from mtcli.config.fields import LONGEST, shown
from mtcli.config.presets import Values
from mtcli.config.schema import NAMES, SECTIONS, Config, DataConfig, TokenizerConfig
from mtcli.errors import UsageError

LIST_NEEDED = "Input should be a list: write it in brackets"


def validate(values: Values, where: str = "") -> Config:
    """Return the configuration with these values.

    Unknown keys are refused: a misspelt key that is silently ignored costs a night of training.

    Args:
        values: Values by section and key.
        where: The beginning of every message, such as `c.toml: `.

    Raises:
        UsageError: An unknown key (the message suggests the nearest valid one), a value out of bounds, or values that
            contradict each other.
    """
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        explained = "; ".join(_explain(each) for each in error.errors())
        raise UsageError(f"{where}{explained}") from None
    model = config.model
    data = config.data
    _check_corpora(data, where)
    may_be_guessed = not data.is_demo and not {"src", "tgt"} <= data.model_fields_set
    if data.src == data.tgt and not may_be_guessed:
        raise UsageError(f"{where}data.src and data.tgt are both {data.src!r}; give the sides different names")
    _check_tokenizer(config, where)
    if model.d_model % model.num_heads and (model.d_k is None or model.d_v is None):
        raise UsageError(
            f"{where}model.d_model = {model.d_model} is no multiple of model.num_heads = {model.num_heads}; "
            "change one of them, or give model.d_k and model.d_v"
        )
    return config


def _check_corpora(data: DataConfig, where: str) -> None:
    """Raise a UsageError if the table of corpora contradicts itself or the settings of one pair of languages."""
    if data.both_directions and data.is_demo:
        raise UsageError(
            f"{where}data.both_directions: name the training pairs with --train; the demo has one direction"
        )
    if not data.corpora:
        return
    for name in ("train", "valid", "test"):
        if getattr(data, name):
            raise UsageError(f"{where}data.{name}: not with data.corpora, whose tables have their own; omit one")
    for corpus in data.corpora:
        if corpus.src is not None and corpus.src == corpus.tgt:
            raise UsageError(f"{where}data.corpora: {corpus.train}: src and tgt are both {corpus.src!r}")


def _check_tokenizer(config: Config, where: str) -> None:
    """Raise a UsageError if settings of a new tokenizer are given together with a tokenizer that exists."""
    if not config.tokenizer.file:
        return
    for name, field in TokenizerConfig.model_fields.items():
        if name != "file" and getattr(config.tokenizer, name) != field.default:
            raise UsageError(
                f"{where}tokenizer.{name}: is for a new tokenizer, and tokenizer.file names one that exists; omit one "
                "of them"
            )


def _explain(error: Any) -> str:
    """Return one of pydantic's errors as a short text."""
    name = ".".join(str(part) for part in error["loc"])
    if len(name) > LONGEST:
        name = f"{name[:LONGEST]}…"
    if error["type"] != "extra_forbidden":
        reason = LIST_NEEDED if error["type"] == "tuple_type" else error["msg"].removeprefix("Value error, ")
        remedy = _decimal_point(error["input"])
        return f"{name} = {shown(error['input'])}: {reason}{remedy}"
    nearest = _nearest(name)
    remedy = f"did you mean {nearest}?" if nearest else "`mtcli train --list-settings` lists all"
    return f"{name}: no such key; {remedy}"


def _decimal_point(value: object) -> str:
    """Return how to write a number that has a decimal comma, or an empty text."""
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+,\d+", value.strip()):
        return f"; write {value.strip().replace(',', '.')}"
    return ""


def _nearest(name: str) -> str | None:
    """Return the setting with the same key in another section, or the most similar setting or section.

    In a section that exists, only the keys are compared: the names have its name in common.
    """
    section, _, key = name.rpartition(".")
    for known in NAMES:
        if known.rpartition(".")[2] == key:
            return known
    if section in SECTIONS:
        similar = difflib.get_close_matches(key, SECTIONS[section].model_fields, n=1)
        return f"{section}.{similar[0]}" if similar else None
    similar = difflib.get_close_matches(name, [*NAMES, *SECTIONS], n=1, cutoff=0.5)
    return similar[0] if similar else None
