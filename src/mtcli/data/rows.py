"""Rows that name their languages: JSON objects, Parquet files, and data sets in the form the Hugging Face Hub has.

A data set is a folder or a name on the Hub, with configurations and splits where it has any. Both are read through
`datasets`, as a stream wherever they would have to be stored first, so neither takes memory that grows with it.
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

from mtcli.data.lines import LINE_BYTES, LINE_LIMIT
from mtcli.errors import DataError

log = logging.getLogger(__name__)

BATCH = 8192
"""Rows that are turned into Python objects at a time."""


def sides_of(row: object, src: str, tgt: str) -> tuple[str, str]:
    """From `{"translation": {src: …, tgt: …}}` or the inner dictionary alone; ValueError says what is wrong."""
    if isinstance(row, str):
        if not row.strip():
            return "", ""
        try:
            row = json.loads(row)
        except ValueError as error:
            raise ValueError(f"not JSON ({error}); put one whole object on each line") from None
    if isinstance(row, dict) and not (src in row and tgt in row):
        row = row.get("translation", row)
    if not isinstance(row, dict):
        raise ValueError("not an object with a key for each language; put one object on each line")
    if src not in row or tgt not in row:
        raise ValueError(_missing(src, tgt, row))
    for key in (src, tgt):
        text = row[key]
        if not isinstance(text, str):
            raise ValueError(f"{key!r} is {type(text).__name__}, not a string; correct or remove the row")
        if len(text) > LINE_BYTES:
            raise ValueError(f"{key!r} is {LINE_LIMIT}; remove or split the row")
        if "\0" in text:
            raise ValueError(f"{key!r} holds a NUL character, which no text holds; remove it")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{key!r} holds half a surrogate pair (\\ud800-\\udfff); remove it") from None
    return row[src], row[tgt]


def _missing(src: str, tgt: str, found: Iterable[str]) -> str:
    wanted = " and ".join(repr(key) for key in (src, tgt) if key not in found)
    return f"no {wanted}; found {', '.join(map(repr, found)) or 'nothing'}; set --src and --tgt"


def _columns(name: str, found: list[str], src: str, tgt: str) -> list[str]:
    if src in found and tgt in found:
        return [src, tgt]
    if "translation" in found:
        return ["translation"]
    raise DataError(f"{name}: {_missing(src, tgt, found)}")


def parquet_rows(path: Path, src: str, tgt: str) -> Iterator[object]:
    """The rows of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as opened, pq.ParquetFile(opened) as file:  # Arrow opens no name that is not UTF-8
            columns = _columns(str(path), file.schema_arrow.names, src, tgt)
            for batch in file.iter_batches(batch_size=BATCH, columns=columns):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not readable as Parquet ({_one_line(error)}); write it again") from None


def parquet_keys(path: Path) -> list[str]:
    """The columns of a Parquet file, or the languages of its `translation`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as opened, pq.ParquetFile(opened) as file:
            schema = file.schema_arrow
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not readable as Parquet ({_one_line(error)}); write it again") from None
    if "translation" in schema.names and pa.types.is_struct(inner := schema.field("translation").type):
        return [field.name for field in inner]
    return list(schema.names)


def dataset_name(spec: str) -> tuple[str, str | None, str]:
    """`NAME[:CONFIG][#SPLIT]` as (name, config, split); the split is `train` unless given."""
    if Path(spec).is_dir():
        return spec, None, "train"
    named, _, split = spec.partition("#")
    name, _, config = named.partition(":")
    return name, config or None, split or "train"


def dataset_rows(spec: str, local: bool, src: str, tgt: str) -> Iterator[object]:
    """The rows of a folder or a Hub data set. Code in data sets is never run.

    A folder is read as it stands. A Hub data set is stored in the cache of `datasets` where its size is known and there
    is room; else it is streamed: fetched anew each time it is read. A slice of a split (`#train[:1%]`) is stored.
    """
    name, _, split = dataset_name(spec)
    if not local:
        _announce(name)
    with _dataset_errors(spec, local, src):
        builder, rows = _streamed(spec)
        columns = _columns(spec, rows.column_names or list(next(iter(rows), {})), src, tgt)
        if "[" in split or not (local or _too_large(builder)):
            builder.download_and_prepare()
            rows = builder.as_dataset(split=split)
        for batch in rows.select_columns(columns).with_format("arrow").iter(batch_size=BATCH):
            yield from batch.to_pylist()


def dataset_keys(spec: str, local: bool) -> list[str]:
    """The columns of a folder or a Hub data set, or the languages of its `translation`, by its first row."""
    with _dataset_errors(spec, local, "SRC"):
        _, rows = _streamed(spec)
        row: dict[str, Any] = next(iter(rows), {})
    inner = row.get("translation", row)
    return list(inner if isinstance(inner, dict) else row)


def _streamed(spec: str) -> tuple[Any, Any]:
    """The builder of a data set and its rows as a stream, from which the split and the columns are known to exist."""
    import datasets

    datasets.utils.logging.set_verbosity(datasets.utils.logging.CRITICAL)  # its errors are raised, too
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    name, config, split = dataset_name(spec)
    builder = datasets.load_dataset_builder(name, config)
    if builder.name == "csv":  # pandas reads NA as missing, a lone CR as a line end, and quotes in TSV as syntax
        options = {"keep_default_na": False, "lineterminator": "\n"}
        options |= {"quoting": 3} if builder.config.sep == "\t" else {}
        builder = datasets.load_dataset_builder(name, config, **options)
    return builder, builder.as_streaming_dataset(split=split.partition("[")[0])


@contextmanager
def _dataset_errors(spec: str, local: bool, src: str) -> Iterator[None]:
    """Turn what the Hub, the network and every loader raise in their own ways into a DataError."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        import datasets

        name = dataset_name(spec)[0]
        tried = "" if local else f"no {name}.{src} here, and from the Hub: "
        cause = error.__cause__ if isinstance(error, datasets.exceptions.DatasetBuildError) else None
        raise DataError(f"{spec}: {tried}{_one_line(cause or error)}; {_remedy(error, name, local)}") from None


@cache
def _announce(name: str) -> None:
    """Log once that a data set is read from the Hub, which may take a while."""
    log.info("%s: reading it from the Hugging Face Hub", name)


def _too_large(builder: Any) -> bool:
    """Whether a data set is not stored yet, and its size unknown or the disk too small for it and its encoded pairs."""
    cache = Path(builder.cache_dir)
    if cache.is_dir():
        return False
    size = (builder.info.download_size or 0) + (builder.info.dataset_size or 0)
    on_disk = next(folder for folder in cache.parents if folder.is_dir())
    return not size or 2 * size > shutil.disk_usage(on_disk).free


def _remedy(error: Exception, name: str, local: bool) -> str:
    from datasets.exceptions import DatasetNotFoundError

    if str(error).startswith(("Config name is missing", "BuilderConfig", "Bad split")):  # and lists what there is
        return f"choose by {name}:CONFIG#SPLIT"
    if local:
        return "give a folder of .parquet, .jsonl, .tsv or .csv files that name their languages"
    if isinstance(error, DatasetNotFoundError):
        return "check the name; one that is private or gated needs `hf auth login`"
    return "check the name and the connection, or give a folder that holds it"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).partition("\nExample of usage")[0].split())[:300] or type(error).__name__
