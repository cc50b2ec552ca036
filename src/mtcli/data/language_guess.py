"""The two languages of a corpus, where nobody gave them: from the names of its files and columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from mtcli.config.languages import base, known, same
from mtcli.data.lines import read_lines
from mtcli.data.rows import dataset_keys, dataset_name, parquet_keys
from mtcli.data.sources import file_form, resolve, two_names
from mtcli.data.tables import first_row
from mtcli.errors import UsageError

_NAME = r"[A-Za-z]{2,3}(?:[-_](?:[A-Z]{2}|[A-Z][a-z]{3}))?"
_PAIR = re.compile(rf"(?<![A-Za-z0-9])(?=({_NAME})(?:[-_]to[-_]|[-_2])({_NAME})(?![A-Za-z0-9]))")
"""`en-de`, `en_de`, `en2de`, `eng-deu`, `en-zh_CN`."""


@dataclass(frozen=True)
class Guess:
    """Two languages, and what they were found in."""

    src: str
    tgt: str
    where: str


@dataclass(frozen=True)
class _Found:
    """Languages that a corpus names, in the order in which it names them."""

    languages: tuple[str, ...]
    where: str
    ordered: bool = True
    """The first is the source. Names of files have no order of their own."""


def guess_languages(specs: Sequence[str], src: str | None, tgt: str | None) -> Guess:
    """What languages the corpora are in, and which is the source; `src` and `tgt` are those that were given.

    A pair of codes in a name, such as `en-de`, is source and target. Columns are taken in their order; of two files
    that have only their language in their names, the English one is the source.

    Raises:
        DataError: There is nothing at one of `specs`.
        UsageError: They do not say, or not all the same.
    """
    guesses = [guess for guess in (_guess(spec, src, tgt) for spec in specs) if guess]
    if not guesses:
        names = ", ".join(specs)
        raise UsageError(f"{names}: no name of a file or column says which languages these are; {_ask(src, tgt)}")
    first = guesses[0]
    for other in guesses[1:]:
        if not (same(other.src, first.src) and same(other.tgt, first.tgt)):
            found = f"{first.src} → {first.tgt} ({first.where}) and {other.src} → {other.tgt} ({other.where})"
            raise UsageError(f"{', '.join(specs)}: seem to be {found}; {_ask(src, tgt)}")
    return first


def _ask(src: str | None, tgt: str | None) -> str:
    missing = [option for option, code in (("--src en", src), ("--tgt es", tgt)) if code is None]
    return f"add {' '.join(missing)}, or whatever they are"


def _guess(spec: str, src: str | None, tgt: str | None) -> Guess | None:
    found = _named(spec)
    pair = _pair_in_name(spec)
    if found is None or len(found.languages) < 2:
        found = pair
    elif pair and all(any(same(a, b) for b in found.languages) for a in pair.languages):
        languages = tuple(next(b for b in found.languages if same(a, b)) for a in pair.languages)
        found = _Found(languages, found.where)
    if found is None:
        return None
    languages = found.languages
    if len(languages) > 2 and src is None and tgt is None:
        return None
    if src is not None or tgt is not None:
        return _beside(languages, src, tgt, found.where)
    one, two = languages
    if not found.ordered:
        english = [name for name in languages if base(name) == "en"]
        if len(english) != 1:
            holds = f"{spec}: holds {one} and {two} ({found.where})"
            ways = f"add --src {one} --tgt {two}, or --src {two} --tgt {one}"
            raise UsageError(f"{holds}, and nothing says which is the source; {ways}")
        if two in english:
            one, two = two, one
    return Guess(one, two, found.where)


def _beside(languages: tuple[str, ...], src: str | None, tgt: str | None, where: str) -> Guess | None:
    """The guess where one language was given: the other one of two."""
    given = src if src is not None else tgt
    others = [name for name in languages if not same(name, given or "")]
    if len(others) != 1 or len(languages) != 2:
        return None
    return Guess(src if src is not None else others[0], tgt if tgt is not None else others[0], where)


def _pair_in_name(spec: str) -> _Found | None:
    """The pair of codes in the name of a file, of its folder, or of a Hub data set's configuration."""
    name, config, _ = dataset_name(spec)
    path = Path(name.partition(",")[0])
    for text in (config or "", path.name, path.parent.name):
        pairs = [(_spelt(m[1]), _spelt(m[2])) for m in _PAIR.finditer(text) if known(m[1]) and known(m[2])]
        pairs = [(a, b) for a, b in pairs if not same(a, b)]
        if len(set(pairs)) == 1:
            return _Found(pairs[0], f"from the name {text}")
    return None


def _named(spec: str) -> _Found | None:
    """The languages that the files of a corpus have in their suffixes, or its columns as their names."""
    path = Path(spec)
    form = file_form(path)
    if form in ("tsv", "csv"):
        cells = first_row(form, read_lines(path, lenient=True))
        return _Found(_distinct(_spelt(cell) for cell in cells), f"from the first line of {path}")
    if form == "json":
        return _Found(_distinct(_json_keys(path)), f"from the keys of {path}")
    if form == "parquet":
        return _Found(_distinct(parquet_keys(path)), f"from the columns of {path}")
    sides = _sides(path)
    if len(sides) > 1:
        return _Found(tuple(sides), f"from the names of {' and '.join(map(str, sides.values()))}", ordered=False)
    halves = two_names(spec)
    if halves:
        return _Found(_distinct(_suffix(file.name) for file in halves), "from the names of the two files")
    one = next(iter(sides), "SRC")
    form, files = resolve(spec, one, "TGT")
    if form == "dataset" and not _pair_in_name(spec):
        return _Found(_distinct(dataset_keys(spec, bool(files))), f"from the columns of {spec}")
    return None


def _sides(prefix: Path) -> dict[str, Path]:
    """The files `PREFIX.LANGUAGE`, plain or `.gz`, by language."""
    found: dict[str, Path] = {}
    for file in sorted(prefix.parent.glob(f"{escape(prefix.name)}.*")):
        language = re.sub(r"\.gz$", "", file.name[len(prefix.name) + 1 :])
        if known(language) and file.is_file():
            found.setdefault(language, file)
    return found


def _suffix(name: str) -> str:
    return re.sub(r"\.gz$", "", name).rpartition(".")[2]


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    """The names that are known languages, each once; `id` is a number's column before it is Indonesian."""
    found = list(dict.fromkeys(name for name in names if known(name)))
    return tuple(found if len(found) < 3 else (name for name in found if name != "id"))


def _spelt(name: str) -> str:
    """How a configuration writes a language that a file calls `EN` or `English`."""
    name = name.strip()
    if re.fullmatch(_NAME, name) and not name.isupper():
        return name
    return known(name) or name


def _json_keys(path: Path) -> list[str]:
    for line in read_lines(path, lenient=True):
        try:
            row = json.loads(line or "{}")
        except (ValueError, RecursionError):
            return []
        if isinstance(row, dict) and row:
            inner = row.get("translation", row)
            return list(inner) if isinstance(inner, dict) else []
    return []
