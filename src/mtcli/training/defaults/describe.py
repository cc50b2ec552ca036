"""Describe the chosen values on one line, for the log and the dry run, and the given ones on another."""

from collections.abc import Mapping
from typing import Any

from mtcli.config.build import build
from mtcli.config.presets import PRESETS, Preset
from mtcli.config.schema import (
    CHOSEN_IF_UNSET,
    CHOSEN_IF_UNSET_IN_FINE_TUNING,
    LENGTH_PENALTY,
    MAX_STEPS,
    NAMES,
    Config,
    TrainConfig,
    unset_settings,
    value_of,
)
from mtcli.config.settings import as_text
from mtcli.runtime.progress import clock
from mtcli.runtime.wording import counted, every
from mtcli.training.defaults.from_scratch import presets_up_to, worthwhile_tokens
from mtcli.training.defaults.speed import num_epochs, preset_model, steps_per_second, tokens_per_step
from mtcli.training.defaults.workload import Workload


def describe_choice(config: Config, workload: Workload, *, resumed: bool) -> str:
    """Describe which values were chosen, and for what, on one line.

    Args:
        config: The configuration that `with_defaults` returned.
        workload: The workload it was given.
        resumed: A run is resumed, which keeps the values that were chosen when it began.
    """
    train = config.train
    basis = _describe_basis(config, workload)
    chosen = set(config.chosen)
    texts = {
        "preset": _describe_preset(config, workload, resumed=resumed or workload.fine_tunes),
        "model.dropout": f"dropout {config.model.dropout:g}",
        "train.batch_tokens": f"batches of {train.batch_tokens:,} tokens",
        "train.micro_batches": f"{counted(train.micro_batches, 'micro-batch', 'micro-batches')} per batch",
        "train.lr": f"peak learning rate {config.peak_learning_rate:.3g}",
        "train.warmup_steps": f"{_at_most(train)}{counted(train.warmup_steps, 'warm-up step')}",
        "train.patience": f"patience of {counted(train.patience, 'validation')}",
        MAX_STEPS: counted(train.max_steps or 0, "step"),
        "train.valid_every": f"validated {every(train.valid_every, 'step')}",
        "train.save_every": f"saved {every(train.save_every, 'step')}",
        LENGTH_PENALTY: f"length penalty {config.decode.length_penalty:g}",
    }
    if train.time:
        texts["train.valid_every"] = "validated and saved as the time allows"
        chosen.discard("train.save_every")
    if train.micro_batches == 1:
        chosen.discard("train.micro_batches")
    if not chosen:
        return f"{basis}: all settings as given"
    kept = "as chosen when the run began, " if resumed else ""
    return f"{basis}: {kept}{', '.join(text for name, text in texts.items() if name in chosen)}"


def _describe_basis(config: Config, workload: Workload) -> str:
    """Describe what the choice is based on: the corpus, the budget and the device."""
    budget = []
    if config.train.max_steps and MAX_STEPS not in config.chosen:
        budget.append(counted(config.train.max_steps, "step"))
    if config.train.time:
        budget.append(clock(config.train.time))
    device = {"cpu": "CPU", "cuda": "GPU", "mps": "Apple GPU"}[workload.device]
    purpose = "fine-tuning on " if workload.fine_tunes else ""
    if workload.has_parent:
        purpose = "transfer to "
    pairs = counted(workload.pairs, "pair")
    basis = f"{purpose}{pairs}, {' or '.join(budget) or 'no budget'}, {device}"
    if config.train.time:
        return basis  # the speed is not measured yet; training reports the steps that fit into the time
    epochs = float(f"{num_epochs(config, workload):.2g}")
    return f"{basis}, about {epochs:,g} epochs"


def _describe_preset(config: Config, workload: Workload, *, resumed: bool) -> str:
    """Name the preset, and the time budget from which on the next larger one would be chosen."""
    text = f"preset {config.preset}"
    smaller = presets_up_to(config.preset)
    larger = [preset for preset in presets_up_to(workload.size.preset) if preset not in smaller]
    if larger and not resumed:
        steps_of_larger = steps_per_second(config, workload, preset_model(larger[0]))
        tokens_per_second = steps_of_larger * tokens_per_step(config, workload)
        seconds = worthwhile_tokens(larger[0]) / tokens_per_second
        text += f" ({larger[0]} from {clock(seconds)})"
    return text


def _at_most(train: TrainConfig) -> str:
    """Return "at most " with a time budget, since the warm-up may then be shorter than configured."""
    return "at most " if train.time else ""


MAX_SETTINGS = 10
"""Maximum number of settings in the description; further ones are only counted."""

NOT_LISTED = frozenset({
    "data.train", "data.corpora", "data.corrections", "data.valid", "data.test", "data.note", "data.src", "data.tgt",
    "train.max_steps", "train.time",
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
    options = {"preset": config.preset, "data.train": config.data.specs or None}
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
    return {LENGTH_PENALTY, *(name for name in NAMES if name.startswith(tuple(sections)))} - {"model.dropout"}


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
