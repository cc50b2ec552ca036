"""Build a configuration from a preset, a file, options and `--set`.

A value comes from the first of these that has it: `--set section.key=value`, the options of the command, the
configuration file, the model that training starts from, a preset that one of these names, the defaults in `schema.py`.
Training then chooses the settings that are still unset (`training/defaults`).
"""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any, get_args

from mtcli.config.fields import shown
from mtcli.config.presets import DEMO, PRESETS, Preset, Values
from mtcli.config.schema import SECTIONS, SHAPE, Config
from mtcli.config.toml_file import read_given
from mtcli.config.validation import validate
from mtcli.errors import UsageError

PACE = ("warmup_steps", "valid_every", "save_every")
"""Settings of `train` that suit only the budget of the preset or of the demo that has them."""


def build(
    file: Path | None = None,
    options: Mapping[str, Any] | None = None,
    sets: Sequence[str] = (),
    *,
    initial: Mapping[str, Any] | None = None,
) -> Config:
    """Return the configuration of what the user gives. See `given_values` and `complete` for arguments and errors."""
    return complete(given_values(file, options, sets), initial=initial, where=f"{file}: " if file else "")


def given_values(
    file: Path | None = None, options: Mapping[str, Any] | None = None, sets: Sequence[str] = ()
) -> Values:
    """Merge file < options < `--set` into values by section, whose keys and types are not checked yet.

    Args:
        file: A TOML file.
        options: Values of the command line by dotted name, `{"train.time": "30m"}`; None means unset.
        sets: `section.key=value` strings. The value is read as TOML, or as plain text if it is not TOML.

    Raises:
        UsageError: Unreadable TOML, or a section that is none.
    """
    from_file = read_given(file) if file else {}
    _check_sections(from_file, f"{file}: " if file else "")
    on_command_line = [nested({name: value for name, value in (options or {}).items() if value is not None})]
    on_command_line += [_parse_set(text) for text in sets]
    for values in on_command_line:
        _check_sections(values, "")
    if any({"train", "corpora"} & values.get("data", {}).keys() for values in on_command_line):
        from_file = _without_other_corpora(from_file)
    return reduce(merged, on_command_line, from_file)


def complete(given: Values, *, initial: Mapping[str, Any] | None = None, where: str = "") -> Config:
    """Merge preset < initial model < given values into one validated configuration.

    Without a preset, a given width takes the shape and learning rate of the narrowest preset that is at least as wide.
    Without either, training chooses the preset; until then, the defaults are those of `tiny`. With an initial model, a
    preset sets no training options: they are for training from scratch.

    Args:
        given: What `given_values` returns.
        initial: Values, by dotted name, of the model that training starts from.
        where: The beginning of every message, such as `c.toml: `.

    Raises:
        UsageError: An unknown key (the message suggests the nearest valid one) or a value out of bounds.
    """
    values = merged(nested(initial or {}), given)
    return validate(merged(_defaults_for(values, fine_tunes=bool(initial)), values), where)


def filled(config: Config, values: Mapping[str, Any]) -> Config:
    """Return the configuration with other values, by dotted name. All its settings then count as set.

    Raises:
        UsageError: The values contradict each other.
    """
    return validate(merged(config.model_dump(), nested(values)))


def fill(config: Config, unset: Collection[str], choices: Mapping[str, Any]) -> Config:
    """Set those of the chosen values whose settings are unset.

    Args:
        config: The configuration.
        unset: Names of the unset settings.
        choices: A value for each of some settings, by dotted name.
    """
    return filled(config, {name: value for name, value in choices.items() if name in unset})


def _check_sections(values: Values, where: str) -> None:
    for name in SECTIONS:
        section = values.get(name, {})
        if not isinstance(section, dict):
            raise UsageError(f"{where}{name} = {shown(section)}: it is a section; write {name}.key=value")


def _without_other_corpora(from_file: Values) -> Values:
    """Drop the pairs of a file whose training pairs are replaced; its validation and test pairs belong to them."""
    dropped = ("train", "corpora", "valid", "test", "note")
    data = {key: value for key, value in from_file.get("data", {}).items() if key not in dropped}
    return {**from_file, "data": data}


def _defaults_for(given: Values, *, fine_tunes: bool) -> Values:
    """Return the values of the preset, and of the demo if that is what is trained.

    Args:
        given: The given settings.
        fine_tunes: Training starts from another model.
    """
    is_demo = not (given.get("data", {}).get("train") or given.get("data", {}).get("corpora"))
    defaults = _preset(given, "tiny" if is_demo else None)
    if fine_tunes:
        defaults = {section: values for section, values in defaults.items() if section != "train"}
    if is_demo:
        defaults = merged(defaults, DEMO)
    if given.get("tokenizer", {}).get("file"):
        defaults = {section: values for section, values in defaults.items() if section != "tokenizer"}
    return _without_unsuitable(defaults, given)


def _preset(given: Values, fallback: Preset | None) -> Values:
    """Return the values of the preset that the settings choose.

    This is the given preset; without one, `fallback`; without both, the preset that fits a given `d_model`. Without any
    of these, there are no values.
    """
    preset = given.get("preset", fallback)
    width = given.get("model", {}).get("d_model")
    if preset is None and isinstance(width, int):
        return _preset_of_width(width)
    if preset is None:
        return {}
    if not isinstance(preset, str) or preset not in PRESETS:
        raise UsageError(f"preset = {shown(preset)}: choose from {', '.join(get_args(Preset))}")
    return {"preset": preset, **PRESETS[preset]}


def _preset_of_width(width: int) -> Values:
    """Return shape, learning rate and warm-up of the narrowest preset that is at least that wide, or of `big`."""
    preset: Preset = next((name for name, values in PRESETS.items() if values["model"]["d_model"] >= width), "big")
    flat = {f"{section}.{key}": value for section, values in PRESETS[preset].items() for key, value in values.items()}
    names = (*SHAPE, "train.lr", "train.warmup_steps")
    return nested({"preset": preset, **{name: flat[name] for name in names}})


def _without_unsuitable(defaults: Values, given: Values) -> Values:
    """Drop the settings of `train` that do not suit the given schedule or budget. Training chooses others.

    With the paper's schedule, `lr` is a factor and not the peak, which depends on the warm-up. So the learning rate of
    the preset is dropped, and its warm-up is kept. With other schedules, the settings in `PACE` are dropped if the user
    gives a budget.
    """
    train = given.get("train", {})
    unsuitable: tuple[str, ...] = ()
    if train.get("schedule") == "paper":
        unsuitable = ("lr",)
    elif "max_steps" in train or "time" in train:
        unsuitable = PACE
    kept = {key: value for key, value in defaults.get("train", {}).items() if key not in unsuitable}
    return {**defaults, "train": kept} if unsuitable else defaults


def _parse_set(text: str) -> Values:
    """Return the value of a `--set section.key=value`."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--set {shown(text)}: write it as section.key=value")
    parsed: Any = value
    with suppress(ValueError, RecursionError):
        table = tomllib.loads(f"value = {value}")
        if len(table) == 1:  # a line break in the value could add other keys
            parsed = table["value"]
    return nested({name.strip(): parsed})


def nested(flat: Mapping[str, Any]) -> Values:
    """Return values by dotted name as nested sections."""
    values: Values = {}
    for name, value in flat.items():
        *sections, key = name.split(".")
        inner = values
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[key] = value
    return values


def merged(low: Values, high: Values) -> Values:
    """Return the values of both, section by section. Those of `high` take precedence."""
    values = dict(low)
    for key, value in high.items():
        is_section = isinstance(value, dict) and isinstance(values.get(key), dict)
        values[key] = merged(values[key], value) if is_section else value
    return values
