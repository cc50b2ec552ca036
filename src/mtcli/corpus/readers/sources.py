"""Sources of pairs as the command line names them: form, files and weight."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape
from itertools import islice
from pathlib import Path
from typing import Literal

from mtcli import limits
from mtcli.corpus.readers.rows import dataset_name
from mtcli.corpus.readers.tables import SAMPLE_LINES
from mtcli.errors import DataError, UsageError
from mtcli.text.languages import known
from mtcli.text.lines import decompression, read_lines

PairsForm = Literal["tsv", "csv", "tmx", "xliff", "json", "parquet", "prefix", "two", "run", "dataset"]
"""`prefix`: PREFIX.SRC and PREFIX.TGT. `two`: two files joined by a comma. `run`: the pairs in a run folder.
`dataset`: another folder, or a Hub name."""

PAIRS_FORMS = (
    "a prefix (data/train for data/train.en and data/train.de), two files joined by a comma, "
    "a .tsv, .csv, .tmx, .xliff, .jsonl or .parquet file, a run, a folder, or a Hub name (owner/name:config#split)"
)

RUN_SPLITS = {
    "train": ("data/train.arrow", "data/info.json", "tokenizer.json"),
    "valid": ("data/valid.jsonl",),
    "test": ("data/test.jsonl",),
}
"""The files with the pairs of each split of a run."""

_FORM_OF: dict[str, PairsForm] = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".tmx": "tmx",
    ".xliff": "xliff",
    ".xlf": "xliff",
    ".jsonl": "json",
    ".json": "json",
    ".parquet": "parquet",
}
_SPREADSHEETS = (".xlsx", ".xls", ".ods", ".numbers")


WEIGHT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)", re.ASCII | re.IGNORECASE)
"""A number after `@`. Python's `float` also reads `1_0`, which is part of a name."""


@dataclass(frozen=True)
class Source:
    """One `--train` argument."""

    path: str
    """The name without its weight."""
    weight: float = 1.0
    """How often an epoch draws each of its pairs, on average."""


@contextmanager
def corpus_errors(spec: str) -> Iterator[None]:
    """Raise an `OSError` of the block as a `DataError`: a name that is too long, a folder that may not be read.

    Args:
        spec: The name of the corpus. An empty one is refused.
    """
    if not spec:
        raise DataError("the name of the pairs is empty; give a file, a folder or a Hub name")
    try:
        yield
    except OSError as error:
        raise DataError(f"{spec}: cannot read it ({error.strerror or error})") from None


def parse_source(spec: str) -> Source:
    """Split `data/train@2.5` into `data/train` and the weight 2.5. A file name that contains `@` has precedence.

    Raises:
        UsageError: The weight is out of bounds.
        DataError: The name is empty or too long, or its folder cannot be read.
    """
    path, at, number = spec.rpartition("@")
    with corpus_errors(spec):
        whole = Path(spec)
        if not at or not path or whole.exists() or any(whole.parent.glob(escape(whole.name) + ".*")):
            return Source(spec)
    if not WEIGHT.fullmatch(number):
        return Source(spec)
    weight = float(number)
    if not limits.WEIGHT.min <= weight <= limits.WEIGHT.max:
        largest = f"{limits.WEIGHT.max:,}"
        raise UsageError(f"{spec}: the weight after @ is {number}; give a number above 0, at most {largest}")
    return Source(path, weight)


def source_files(spec: str, src: str, tgt: str) -> list[Path]:
    """Return the local files that a name stands for; none for a Hub name. Hidden files of a folder are not included.

    Raises:
        DataError: See `resolve`.
    """
    form, files = resolve(spec, src, tgt)
    if form != "dataset":
        return files
    found = []
    with corpus_errors(spec):
        for folder in files:
            for path in sorted(folder.rglob("*")):
                hidden = "/." in f"/{path.relative_to(folder).as_posix()}"
                if path.is_file() and not hidden:
                    found.append(path)
    return found


def resolve(spec: str, src: str, tgt: str) -> tuple[PairsForm, list[Path]]:
    """Return the form of a source, and its local paths: one or two files, a folder, or none for a Hub data set.

    Raises:
        DataError: There is no such file or folder, it has no form that can be read, or one side is missing.
    """
    with corpus_errors(spec):
        return _resolve(spec, src, tgt)


def _resolve(spec: str, src: str, tgt: str) -> tuple[PairsForm, list[Path]]:
    """Return the form and the files of a name; see `resolve`."""
    path = Path(spec)
    form = file_form(path)
    if form:
        return form, [path]
    sides = _prefix_files(spec, src, tgt)
    if sides:
        return "prefix", sides
    name, config, split = dataset_name(spec)
    if is_run(Path(name)):
        if split not in RUN_SPLITS:
            raise DataError(f"{spec}: a run has {', '.join(RUN_SPLITS)}; give {name}#valid, for example")
        return "run", [Path(name) / file for file in RUN_SPLITS[split]]
    if path.is_dir():
        _check_folder(path, (src, tgt))
        return "dataset", [path]
    if path.exists():
        raise DataError(f"{spec}: {_remedy(path)}")
    halves = two_names(spec)
    if halves:
        if halves[0].samefile(halves[1]):
            raise DataError(f"{spec}: the same file twice; give the files of the two sides")
        return "two", halves
    if Path(name).is_dir():
        return "dataset", [Path(name)]
    if _is_hub_name(name, config):
        return "dataset", []
    raise DataError(_not_found(spec, src, tgt))


def is_run(folder: Path) -> bool:
    """Return True if a folder is a run with the data that it was trained on."""
    return (folder / "config.toml").is_file() and (folder / "data" / "train.arrow").is_file()


def is_of_run(spec: str) -> bool:
    """Return True if a name is that of pairs of a run, such as `runs/demo`."""
    name, *_ = dataset_name(spec)
    return is_run(Path(name))


def _check_folder(folder: Path, languages: tuple[str, str]) -> None:
    """Check that a folder is not one of files that hold one side each, such as Books.en-es.en and Books.en-es.es.

    Raises:
        DataError: It is; the message names their prefix.
    """
    sides: dict[str, set[str]] = {}
    for file in sorted(folder.iterdir()):
        if not file.is_file() or file.name.startswith("."):
            continue
        if form_suffix(file) in _FORM_OF:
            return
        stem, _, suffix = re.sub(r"(?i)\.gz$", "", file.name).rpartition(".")
        if stem and (suffix in languages or known(suffix)):
            sides.setdefault(stem, set()).add(suffix)
    for stem, suffixes in sides.items():
        if len(suffixes) > 1:
            names = " and ".join(f"{stem}.{suffix}" for suffix in sorted(suffixes)[:2])
            raise DataError(f"{folder}: a folder with one file per language ({names}); give {folder / stem}")


def file_form(path: Path) -> PairsForm | None:
    """Return the form of a file that contains both sides; None: there is no such file.

    Its suffix decides. A `.txt` file is a TSV if it looks like one.

    Raises:
        DataError: A `.txt` file cannot be read.
    """
    if not path.is_file():
        return None
    suffix = form_suffix(path)
    if suffix == ".txt" and _is_tab_separated(path):
        return "tsv"
    return _FORM_OF.get(suffix)


def is_table(path: Path) -> bool:
    """Return True if the name of a file says that it holds a table or rows, not plain text."""
    suffix = form_suffix(path)
    return suffix in _FORM_OF or suffix in _SPREADSHEETS


def _is_tab_separated(path: Path) -> bool:
    """Return True if each of the first lines that is not blank has exactly one tab."""
    lines = [line for line in islice(read_lines(path, lenient=True), SAMPLE_LINES) if line.strip()]
    return bool(lines) and all(line.count("\t") == 1 for line in lines)


def two_names(spec: str) -> list[Path] | None:
    """Return the two files that a name joins by a comma; None: they do not both exist."""
    return next((half for half in _halves(spec) if all(file.is_file() for file in half)), None)


def _prefix_files(spec: str, src: str, tgt: str) -> list[Path] | None:
    """Return the files PREFIX.SRC and PREFIX.TGT, plain or `.gz`; None: there is neither.

    Raises:
        DataError: There is only one of them.
    """
    found = []
    missing = []
    for language in (src, tgt):
        candidates = [Path(f"{spec}.{language}"), Path(f"{spec}.{language}.gz")]
        file = next((candidate for candidate in candidates if candidate.is_file()), None)
        file = file or _file_with_name(Path(spec), language)
        if file:
            found.append(file)
        else:
            missing = candidates
    if found and missing:
        names = " or ".join(map(str, missing))
        raise DataError(f"{spec}: found {found[0]} but no {names}; add it, or set --src and --tgt")
    return found or None


def _file_with_name(prefix: Path, language: str) -> Path | None:
    """Return the only file PREFIX.NAME with another name of the language, such as `English` for `en`; None: none."""
    code = known(language)
    if code is None or not prefix.name:
        return None
    found = [file for suffix, file in files_with_prefix(prefix) if known(suffix) == code]
    return found[0] if len(found) == 1 and found[0].is_file() else None


def files_with_prefix(prefix: Path) -> Iterator[tuple[str, Path]]:
    """Yield what follows a prefix and its dot, without `.gz`, and the file: `en` and data/train.en.gz."""
    for file in sorted(prefix.parent.glob(f"{escape(prefix.name)}.*")):
        yield re.sub(r"\.gz$", "", file.name[len(prefix.name) + 1 :]), file


def _halves(spec: str) -> list[list[Path]]:
    """Return every way to read a name as two names joined by a comma."""
    return [[Path(spec[: m.start()]), Path(spec[m.end() :])] for m in re.finditer(r"(?<=.),(?=.)", spec)]


def _is_hub_name(name: str, config: str | None) -> bool:
    """Return True if a name looks like a data set on the Hub and not like a missing file."""
    if not re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name) or form_suffix(Path(name)) in _FORM_OF:
        return False
    return config is not None or ("/" in name and not Path(name).parent.is_dir())


def _not_found(spec: str, src: str, tgt: str) -> str:
    path = Path(spec)
    halves = _halves(spec)
    if halves:
        missing = [file for file in halves[0] if not file.is_file()]
        return f"{' and '.join(map(str, missing))}: no such file; give {PAIRS_FORMS}"
    if form_suffix(path) in _FORM_OF:
        return f"{spec}: no such file; give {PAIRS_FORMS}"
    return f"{spec}: no such file or folder, and no {spec}.{src} and {spec}.{tgt}; give {PAIRS_FORMS}"


def _remedy(path: Path) -> str:
    """Return what to do about an existing file that has none of the forms."""
    if not path.is_file():
        return "a pipe or device; copy its content to a file and give that"
    command = decompression(b"", path.name)
    if command:
        return f"compressed; decompress it ({command}) and give the decompressed file, or compress it with gzip"
    if form_suffix(path) in _SPREADSHEETS:
        return "a spreadsheet; save it there as CSV (in Excel: CSV UTF-8) and give that file"
    if path.suffix.lower() == ".toml":
        return "a configuration; give it as the argument, without --train"
    if form_suffix(path) == ".txt":
        return _text_file_remedy(path)
    prefix, _, suffix = re.sub(r"(?i)\.gz$", "", str(path)).rpartition(".")
    if prefix and known(suffix):
        return f"one side only; give both sides as {prefix}, or as two files joined by a comma"
    return f"its name does not tell its form; rename it to .tsv, .csv or .jsonl, or give {PAIRS_FORMS}"


def _text_file_remedy(path: Path) -> str:
    """Return why a `.txt` file is not read as TSV, and what to do."""
    problem = "not every line has exactly one tab"
    for number, line in enumerate(islice(read_lines(path, lenient=True), SAMPLE_LINES), 1):
        tabs = line.count("\t")
        if not line.strip() or tabs == 1:
            continue
        problem += f" (line {number} has {tabs})"
        if tabs > 1:
            read = "columns 1 and 2 are read, or those that line 1 names as source and target"
            return f"{problem}; rename a table of {tabs + 1} columns to .tsv, or .csv if cells are quoted: {read}"
        break
    return f"{problem}; rename it to .tsv, .csv or .jsonl, or give two files joined by a comma"


def form_suffix(path: Path) -> str:
    """Return the suffix that decides the form: `.tsv` of `pairs.TSV.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix
