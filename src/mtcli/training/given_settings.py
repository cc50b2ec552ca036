"""Describe the settings that the user gave, for the log of a run."""

from collections.abc import Mapping
from typing import Any

from mtcli.config.build import build
from mtcli.config.presets import PRESETS, Preset
from mtcli.config.schema import CHOSEN_IF_UNSET, CHOSEN_IF_UNSET_IN_FINE_TUNING, NAMES, Config, unset_settings, value_of
from mtcli.config.settings import as_text

MAX_SETTINGS = 10
"""Maximum number of settings in the description; further ones are only counted."""

NOT_LISTED = frozenset({
    "data.train", "data.valid", "data.test", "data.note", "data.src", "data.tgt", "train.max_steps", "train.time",
})  # fmt: skip
"""The pairs, the languages and the budget: every run has its own."""


def describe_given(config: Config, *, fine_tunes: bool, initial: Mapping[str, Any] | None = None) -> str:
    """List the settings that differ from those of the preset, on one line; empty if there are none.

    Settings that training chose, the pairs, the languages and the budget are not listed.

    Args:
        config: The configuration that `with_defaults` returned.
        fine_tunes: Training starts from another model.
        initial: Values of that model, by dotted name. A resumed run may not know them (None). Then settings that
            usually come from the model are not listed.
    """
    skipped = {*NOT_LISTED, *config.chosen}
    if fine_tunes and initial is None:
        skipped |= _names_from_model(config)
        initial = {"preset": config.preset}  # a run that starts from a model has no training options of a preset
    options = {"preset": config.preset, "data.train": config.data.train or None}
    defaults = build(None, options, initial=initial)
    automatic = unset_settings(defaults, CHOSEN_IF_UNSET_IN_FINE_TUNING if fine_tunes else CHOSEN_IF_UNSET)
    texts = []
    for name in NAMES:
        value = value_of(config, name)
        default = None if name in automatic else value_of(defaults, name)
        if name not in skipped and value != default:
            texts.append(f"{name} = {as_text(value)} ({_describe_default(name, default, config.preset)})")
    more = len(texts) - MAX_SETTINGS
    if more > 0:
        texts = [*texts[:MAX_SETTINGS], f"and {more} more; see config.toml"]
    return ", ".join(texts)


def _names_from_model(config: Config) -> set[str]:
    """Return the settings that fine-tuning takes from the model that it starts from."""
    sections = ["model.", "tokenizer."]
    if config.tokenizer.type == "sentencepiece":
        sections.append("decode.")  # an imported model keeps its search
    return {name for name in NAMES if name.startswith(tuple(sections))} - {"model.dropout"}


def _describe_default(name: str, default: Any, preset: Preset) -> str:
    """Return the value of a setting that is not given, and whether the preset sets it.

    Args:
        name: The setting.
        default: Its value if it is not given; None: training chooses it.
        preset: The preset.
    """
    if default is None:
        return "default: automatic"
    section, _, key = name.partition(".")
    is_set_by_preset = PRESETS[preset].get(section, {}).get(key) == default
    return f"{'preset' if is_set_by_preset else 'default'}: {as_text(default)}"
