"""Generate wrong values for everything that mtcli accepts, from its schema: settings, options, metadata, requests."""

import inspect
import json
import random
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from annotated_types import Ge, Le
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from mtcli.cli import app
from mtcli.config.fields import Within
from mtcli.config.schema import SECTIONS
from mtcli.corpus.cache.info import digest
from mtcli.storage.model_file import metadata_of

CONTROL = "\x1b]0;title\x07\x1b[31m\x9b2J\r\n\u202eabc"

NUMBERS = [
    "0", "-0", "-0.0", "-1", "0.5", "1e400", "-1e400", "inf", "-inf", "nan", "-nan", "1e308", "5e-324", "1e-400",
    "1_000", "0b11", "٣", " 1", "1 ", "+1", "", "true", "False", "None", '"3"', "[]", "{}", "[1, 2]", "2020-01-01",
    "9" * 400, "1" * 5000, "0x" + "f" * 2000, str(2**31), str(2**63), str(2**64 + 1), "1e18", "x",
]  # fmt: skip

TEXTS = [
    "", " ", "-", "--", "..", ".", "/", "@", "a@1e308", "a@nan", ",", "a,b", ":", "a:b#c", "~", "%s%n{0}{x}", "$(id)",
    "\\", "'", '"', "=", "#", CONTROL, "\udcff", "x" * 300, "x" * 5000, "x" * 100_000, "e\u0301\u200d🙂", "\ufeff",
    "a" * 255, "train.tsv", "none", "owner/name", "owner/name:config#split", "/dev/null", "/proc/self/mem", "0",
    "nan", "true",
]  # fmt: skip

JSON: list[Any] = [
    None, True, False, 0, -1, 1, 1.5, -0.0, 1e308, float("inf"), float("-inf"), float("nan"), 10**30, -(10**30), 2**63,
    10**400, "", "3", "en", CONTROL, "x" * 10_000, "\ud800", "a\0b", "../outside", "/dev/zero", [], {}, [[]], [None],
    [1e400], {"": {}}, ["x"] * 1000,
]  # fmt: skip


def deep(levels: int) -> list[Any]:
    """Return nested lists."""
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


JSON.append(deep(400))


@dataclass(frozen=True)
class Option:
    """A parameter of a command: its longest name (empty for an argument), and its bounds if it is a number."""

    command: tuple[str, ...]
    name: str
    flag: bool
    low: float | None
    high: float | None


def around(low: float | None, high: float | None) -> Iterator[str]:
    """Yield the bounds and numbers near them."""
    for bound in (low, high):
        if bound is not None:
            yield from (f"{bound}", f"{bound - 1}", f"{bound + 1}", f"{bound * 10}")


def settings() -> Iterator[tuple[str, list[str]]]:
    """Yield every setting by its dotted name, with values as TOML."""
    for section, model in SECTIONS.items():
        for key, field in model.model_fields.items():
            low, high = _bounds([field.annotation, *field.metadata])
            yield f"{section}.{key}", [*around(low, high), *NUMBERS, *TEXTS, *map(_toml, TEXTS)]
    yield from ((name, [*NUMBERS, *TEXTS]) for name in ("preset", "chosen", "train", "model.x", "", ".", "x"))


def _toml(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")


def _bounds(metadata: list[Any]) -> tuple[float | None, float | None]:
    """Return the bounds in the metadata of an annotation, at any depth."""
    low = high = None
    for each in metadata:
        nested = _bounds([*typing.get_args(each)]) if typing.get_args(each) else (None, None)
        if isinstance(each, Within):
            nested = each.range
        low = each.ge if isinstance(each, Ge) else nested[0] if nested[0] is not None else low
        high = each.le if isinstance(each, Le) else nested[1] if nested[1] is not None else high
    return low, high


def options() -> Iterator[Option]:
    """Yield the options and arguments of every command, from their annotations."""
    for command, function in _commands(app):
        for name, parameter in inspect.signature(function).parameters.items():
            annotation, *metadata = typing.get_args(parameter.annotation)
            (info,) = (m for m in metadata if isinstance(m, typer.models.OptionInfo | typer.models.ArgumentInfo))
            declared = max((word for word in info.param_decls or () if word.startswith("-")), key=len, default="")
            if isinstance(info, typer.models.OptionInfo):
                declared = (declared or f"--{name.replace('_', '-')}").partition("/")[0]
            flag = annotation in (bool, bool | None)
            within = inspect.getclosurevars(info.callback).nonlocals.get("within") if info.callback else None
            yield Option(command, declared, flag, within.min if within else None, within.max if within else None)


def _commands(group: typer.Typer) -> Iterator[tuple[tuple[str, ...], Callable[..., Any]]]:
    for each in group.registered_commands:
        assert each.callback
        yield (each.name or each.callback.__name__.replace("_", "-"),), each.callback
    for inner in group.registered_groups:
        assert inner.typer_instance
        yield from (((str(inner.name), *names), call) for names, call in _commands(inner.typer_instance))


def spoilt(value: Any, rng: random.Random) -> Any:
    """Return a JSON value in which one part, at any depth, is replaced, omitted or added."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(sorted(value))
        what = rng.random()
        if what < 0.1:
            return {other: part for other, part in value.items() if other != key}
        if what < 0.15:
            return value | {rng.choice([CONTROL, "", "x", key * 2]): rng.choice(JSON)}
        return value | {key: spoilt(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], spoilt(value[at], rng), *value[at + 1 :]]
    return rng.choice(JSON)


def dumped(value: Any) -> bytes:
    """Return JSON, with infinity as a number that is too large for a float."""
    return json.dumps(value).replace("Infinity", "1e400").encode()


def spoil_json(path: Path, rng: random.Random) -> None:
    """Spoil a JSON file."""
    path.write_bytes(dumped(spoilt(json.loads(path.read_bytes()), rng)))


def spoil_lines(path: Path, rng: random.Random) -> None:
    """Spoil one line of a file of JSON lines."""
    lines = path.read_bytes().splitlines()
    at = rng.randrange(len(lines))
    lines[at] = dumped(spoilt(json.loads(lines[at]), rng))
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def spoil_toml(path: Path, rng: random.Random) -> None:
    """Spoil a value of a `config.toml`."""
    lines = path.read_text().splitlines()
    at = rng.choice([i for i, line in enumerate(lines) if " = " in line])
    name = lines[at].partition(" = ")[0]
    value = rng.choice([*NUMBERS, *map(_toml, TEXTS)])
    lines[at] = f"{name} = {value}"
    path.write_text("\n".join(lines) + "\n", errors="surrogateescape")


def spoil_model(path: Path, rng: random.Random) -> None:
    """Spoil the metadata of a model file, and give it the matching checksum."""
    tensors = load_file(path)
    with safe_open(path, framework="pt") as file:
        info = json.loads(file.metadata()["mtcli"])["info"]
    changed = spoilt(info, rng)
    save_file(tensors, path, {"mtcli": metadata_of(tensors, changed)["mtcli"].replace("Infinity", "1e400")})


def spoil_info(path: Path, rng: random.Random) -> None:
    """Spoil the metadata of the prepared data, and give it the matching checksum."""
    info = json.loads(path.read_bytes())
    info.pop("sha256")
    changed = spoilt(info, rng)
    if isinstance(changed, dict):
        changed["sha256"] = digest(changed)
    path.write_bytes(dumped(changed))
