"""Rows with a key for each side: JSON objects, Parquet files, and data sets in the form of the Hugging Face Hub.

A data set is a folder or a name on the Hub, with optional configurations and splits. Memory does not grow with its
size: `datasets` reads it as a stream, or from its cache on disk.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from mtcli.corpus.readers.tables import are_side_names
from mtcli.errors import DataError
from mtcli.text.languages import SOURCE_NAMES, TARGET_NAMES
from mtcli.text.lines import LINE_BYTES, LINE_LIMIT, Pair

log = logging.getLogger(__name__)

BATCH_ROWS = 8192
"""Rows that are converted to Python objects at a time."""

SOURCE_KEYS = SOURCE_NAMES
TARGET_KEYS = TARGET_NAMES - {"translation"}
"""A key `translation` holds a dictionary with both sides."""


def find_keys(found: Iterable[str], src: str, tgt: str) -> Pair | None:
    """Return the languages if both are keys, otherwise keys such as `source` and `target`; None: there are none."""
    keys = list(found)
    if src in keys and tgt in keys:
        return src, tgt
    src_key = next((key for key in keys if key.casefold() in SOURCE_KEYS), None)
    tgt_key = next((key for key in keys if key.casefold() in TARGET_KEYS), None)
    return (src_key, tgt_key) if src_key and tgt_key else None


class RowReader:
    """Reads source and target from rows: dictionaries, or lines of JSON.

    A row is `{"translation": {src: …, tgt: …}}`, or the inner dictionary alone. The keys are the languages, otherwise
    `source` and `target` or the like. The first row decides for all.

    Args:
        name: What is read, for messages.
        src, tgt: The languages.
        swap: Swap source and target. Has no effect on keys that name a language (`en`), only on neutral ones
            (`source`).
        notices: Receives a notice at the first row if its keys are not the languages: which keys are read instead.
    """

    def __init__(self, name: str, src: str, tgt: str, *, swap: bool, notices: list[str]):
        self.name = name
        self.languages = src, tgt
        self.swap = swap
        self.notices = notices
        self.keys: Pair | None = None

    def sides(self, row: object) -> Pair:
        """Return the source and the target of a row. A blank line is a pair of two empty sides.

        Raises:
            ValueError: It is not such a row, a key is missing, or a side is not valid text.
        """
        if isinstance(row, str):
            if not row.strip():
                return "", ""
            row = _parse(row)
        src, tgt = self.keys or self.languages
        if isinstance(row, dict) and not (src in row and tgt in row):
            row = row.get("translation", row)
        if not isinstance(row, dict):
            raise ValueError("not an object with a key for each language; put one object on each line")
        if self.keys is None:
            self.keys = self._choose_keys(row)
        src, tgt = self.keys
        if src not in row or tgt not in row:
            raise ValueError(_missing(src, tgt, row))
        for key in (src, tgt):
            _check_text(key, row[key])
        return row[src], row[tgt]

    def _choose_keys(self, row: Iterable[str]) -> Pair:
        """Return the keys of the first row, with a notice if they are not the languages."""
        src, tgt = self.languages
        keys = find_keys(row, src, tgt)
        if keys is None:
            raise ValueError(_missing(src, tgt, row))
        if keys == self.languages and not (self.swap and are_side_names(src, tgt)):
            return keys
        if self.swap:
            keys = keys[::-1]
        self.notices.append(f"{self.name}: read {keys[0]!r} as {src} and {keys[1]!r} as {tgt}")
        return keys


def _parse(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"not JSON ({error}); put one whole object on each line") from None


def _check_text(key: str, text: object) -> None:
    """Raise a ValueError if a value is not valid text of a sensible length."""
    if not isinstance(text, str):
        raise ValueError(f"{key!r} is {type(text).__name__}, not a string; correct or remove the row")
    if len(text) > LINE_BYTES:
        raise ValueError(f"{key!r} is {LINE_LIMIT}; remove or split the row")
    if "\0" in text:
        raise ValueError(f"{key!r} holds a NUL character, which is not text; remove it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{key!r} holds half a surrogate pair (\\ud800-\\udfff); remove it") from None


def _missing(src: str, tgt: str, found: Iterable[str]) -> str:
    wanted = " and ".join(repr(key) for key in (src, tgt) if key not in found)
    return f"no {wanted}; found {', '.join(map(repr, found)) or 'nothing'}; set --src and --tgt"


def _columns(name: str, found: list[str], src: str, tgt: str) -> list[str]:
    """Return the columns to read.

    Raises:
        DataError: A language has no column.
    """
    if src in found and tgt in found:
        return [src, tgt]
    if "translation" in found:
        return ["translation"]
    keys = find_keys(found, src, tgt)
    if keys is None:
        raise DataError(f"{name}: {_missing(src, tgt, found)}")
    return list(keys)


def parquet_rows(path: Path, src: str, tgt: str) -> Iterator[object]:
    """Read the rows of a Parquet file.

    Raises:
        DataError: It is damaged, or a language has no column.
    """
    with _parquet_file(path) as file:
        columns = _columns(str(path), file.schema_arrow.names, src, tgt)
        for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=columns):
            yield from batch.to_pylist()


def parquet_keys(path: Path) -> list[str]:
    """Return the columns of a Parquet file, or the keys of its `translation`.

    Raises:
        DataError: It is damaged.
    """
    import pyarrow as pa

    with _parquet_file(path) as file:
        schema = file.schema_arrow
    if "translation" in schema.names:
        inner = schema.field("translation").type
        if pa.types.is_struct(inner):
            return [field.name for field in inner]
    return list(schema.names)


@contextmanager
def _parquet_file(path: Path) -> Iterator[Any]:
    """Open a Parquet file. If it is damaged, opening it or the block raises a DataError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Arrow cannot open a name that is not UTF-8, so Python opens the file.
        with path.open("rb") as opened, pq.ParquetFile(opened) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not readable as Parquet ({_one_line(error)}); write it again") from None


def dataset_name(spec: str) -> tuple[str, str | None, str]:
    """Split `NAME[:CONFIG][#SPLIT]` into name, configuration and split; the default split is `train`."""
    if Path(spec).is_dir():
        return spec, None, "train"
    named, _, split = spec.partition("#")
    name, _, config = named.partition(":")
    return name, config or None, split or "train"


def _is_local(spec: str) -> bool:
    """Return True if the name of a data set is that of a folder, not one on the Hub."""
    return Path(dataset_name(spec)[0]).is_dir()


def dataset_rows(spec: str, src: str, tgt: str) -> Iterator[object]:
    """Read the rows of a folder or a Hub data set. Code in data sets is never run.

    A folder is read in place. A Hub data set is stored in the cache of `datasets` if its size is known and there is
    room; otherwise it is streamed again on every pass. A slice of a split (`#train[:1%]`) is always stored.

    Args:
        spec: `NAME[:CONFIG][#SPLIT]`.
        src, tgt: The languages.

    Raises:
        DataError: It cannot be found or read, or a language has no column.
    """
    split = dataset_name(spec)[2]
    with _opened(spec, src) as (builder, rows):
        columns = _columns(spec, _column_names(rows), src, tgt)
        is_stored = not (_is_local(spec) or _too_large(builder))
        if is_stored or "[" in split:
            builder.download_and_prepare()
            rows = builder.as_dataset(split=split)
        for batch in rows.select_columns(columns).with_format("arrow").iter(batch_size=BATCH_ROWS):
            yield from batch.to_pylist()


def check_dataset(spec: str, src: str, tgt: str) -> None:
    """Check that a folder or a Hub data set can be opened and has both languages.

    Raises:
        DataError: See `dataset_rows`.
    """
    with _opened(spec, src) as (_, rows):
        _columns(spec, _column_names(rows), src, tgt)


def _column_names(rows: Any) -> list[str]:
    """Return the columns of a stream; from its first row if the files do not declare them."""
    return list(rows.column_names or next(iter(rows), {}))


def dataset_keys(spec: str) -> list[str]:
    """Return the columns of a folder or a Hub data set, or the keys of the `translation` in its first row.

    Raises:
        DataError: It cannot be found or read.
    """
    with _opened(spec, "SRC") as (_, rows):
        row: dict[str, Any] = next(iter(rows), {})
    inner = row.get("translation", row)
    return list(inner if isinstance(inner, dict) else row)


@contextmanager
def _opened(spec: str, src: str) -> Iterator[tuple[Any, Any]]:
    """Return the builder of a data set, and its rows as a stream.

    The many exceptions of the Hub, the network and the loaders become a DataError, also those of the block.
    """
    name = dataset_name(spec)[0]
    if not _is_local(spec):
        _announce(name)
    try:
        yield _stream(spec)
    except DataError:
        raise
    except Exception as error:
        import datasets

        tried = "" if _is_local(spec) else f"no {name}.{src} here, and from the Hub: "
        cause = error.__cause__ if isinstance(error, datasets.exceptions.DatasetBuildError) else None
        raise DataError(f"{spec}: {tried}{_one_line(cause or error)}; {_remedy(error, spec)}") from None


def _stream(spec: str) -> tuple[Any, Any]:
    """Return the builder of a data set, and its rows as a stream."""
    import datasets

    datasets.utils.logging.set_verbosity(datasets.utils.logging.CRITICAL)  # it also raises what it logs
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    name, config, split = dataset_name(spec)
    builder = datasets.load_dataset_builder(name, config)
    if builder.name == "csv":
        # By default pandas reads NA as missing, a lone CR as a line end, and quotation marks in TSV as syntax.
        options: dict[str, Any] = {"keep_default_na": False, "lineterminator": "\n"}
        if builder.config.sep == "\t":
            options["quoting"] = 3
        builder = datasets.load_dataset_builder(name, config, **options)
    return builder, builder.as_streaming_dataset(split=split.partition("[")[0])


@cache
def _announce(name: str) -> None:
    """Log, once for each data set, that it is read from the Hub, which may take a while."""
    log.info("%s: reading it from the Hugging Face Hub", name)


def _too_large(builder: Any) -> bool:
    """Return True if a data set is not stored yet, and its size is unknown or more than half of the free space.

    The encoded pairs of the run need space too.
    """
    folder = Path(builder.cache_dir)
    if folder.is_dir():
        return False
    size = (builder.info.download_size or 0) + (builder.info.dataset_size or 0)
    existing = next(parent for parent in folder.parents if parent.is_dir())
    return not size or 2 * size > shutil.disk_usage(existing).free


def _remedy(error: Exception, spec: str) -> str:
    from datasets.exceptions import DatasetNotFoundError

    if str(error).startswith(("Config name is missing", "BuilderConfig", "Bad split")):  # lists the existing ones
        return f"choose by {dataset_name(spec)[0]}:CONFIG#SPLIT"
    if _is_local(spec):
        return "give a folder of .parquet, .jsonl, .tsv or .csv files that name their languages"
    if isinstance(error, DatasetNotFoundError):
        return "check the name; one that is private or gated needs `hf auth login`"
    return "check the name and the connection, or give a folder that holds it"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).partition("\nExample of usage")[0].split())[:300] or type(error).__name__
