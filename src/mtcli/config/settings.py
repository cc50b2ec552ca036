"""The settings as a user sees them: name, type, default and meaning, all from the schema."""

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from mtcli.config.schema import CHOSEN_IF_UNSET, SECTIONS, Config, CorpusConfig

GENERAL = "general"
"""Section of the settings that are in no section of `config.toml`."""

AUTOMATIC = frozenset({
    *CHOSEN_IF_UNSET, "data.src", "data.tgt", "data.valid", "data.test", "tokenizer.vocab_size", "model.d_k",
    "model.d_v", "train.bleu_tokenizer",
})  # fmt: skip
"""Settings whose value is found or chosen if they are unset."""

WORDS = {int: "integer", float: "number", bool: "true or false", str: "text", CorpusConfig: "table"}


@dataclass(frozen=True)
class Setting:
    """One setting."""

    name: str
    """The key of `--set`, such as `train.lr`."""
    type: str
    """The type in words, such as `integer`, or the values to choose from."""
    default: str
    """The default as `--set` takes it, `automatic`, or `not set`."""
    meaning: str
    choices: tuple[str, ...]
    """All values, if there are few."""


@dataclass(frozen=True)
class Section:
    """The settings of one section, and what they are about."""

    name: str
    meaning: str
    settings: tuple[Setting, ...]


def sections() -> Iterator[Section]:
    """Yield the sections of `config.toml` in order, the settings without a section first."""
    preset = _setting("preset", Config.model_fields["preset"])
    yield Section(GENERAL, "The size of the model.", (preset,))
    for name, model in SECTIONS.items():
        settings = tuple(_setting(f"{name}.{key}", field) for key, field in model.model_fields.items())
        yield Section(name, model.__doc__ or "", settings)


def settings() -> Iterator[Setting]:
    """Yield every setting that `--set` takes."""
    for section in sections():
        yield from section.settings


def to_text() -> str:
    """Return all settings as plain text, one per line, in columns separated by two or more spaces."""
    every = list(settings())
    name_width = max(len(setting.name) for setting in every)
    type_width = max(len(setting.type) for setting in every)
    default_width = max(len(setting.default) for setting in every)
    lines = []
    for section in sections():
        lines += ["", f"{section.name}: {section.meaning}"]
        for setting in section.settings:
            name = setting.name.ljust(name_width)
            kind = setting.type.ljust(type_width)
            default = setting.default.ljust(default_width)
            lines.append(f"  {name}  {kind}  {default}  {setting.meaning}")
    return "\n".join(lines[1:]) + "\n"


def _setting(name: str, field: FieldInfo) -> Setting:
    annotation = _without_none(field.annotation)
    choices = _choices(annotation)
    kind = ", ".join(choices) if get_origin(annotation) is Literal else _type_in_words(annotation)
    if name == "train.time":
        kind = "duration"
    default = "automatic" if name in AUTOMATIC else as_text(field.default)
    return Setting(name, kind, default, field.description or "", choices)


def _without_none(annotation: Any) -> Any:
    """Return the type of an optional value, without its bounds."""
    if get_origin(annotation) is Annotated:
        return _without_none(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        (annotation,) = (each for each in get_args(annotation) if each is not type(None))
        return _without_none(annotation)
    return annotation


def _choices(annotation: Any) -> tuple[str, ...]:
    if annotation is bool:
        return ("true", "false")
    if get_origin(annotation) is Literal:
        return tuple(map(str, get_args(annotation)))
    return ()


def _type_in_words(annotation: Any) -> str:
    """Return a type as a user would say it."""
    if get_origin(annotation) is not tuple:
        return WORDS[annotation]
    element, *others = get_args(annotation)
    word = WORDS[_without_none(element)]
    return f"list of {word}s" if others == [...] else f"list of {1 + len(others)} {word}s"


def as_text(value: Any) -> str:
    """Return a value as `--set` takes it."""
    if value is None or value in ("", ()):
        return "not set"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value)
