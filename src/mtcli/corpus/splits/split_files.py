"""The held-out pairs of a run as text: `data/valid.jsonl` and `data/test.jsonl` in the run folder."""

import json
from collections.abc import Sequence
from pathlib import Path

from mtcli.errors import DataError, ModelError
from mtcli.runtime.files import check_regular, replace_file
from mtcli.text.lines import Pair, read_lines


def write_split(run: Path, name: str, pairs: Sequence[Pair], src: str, tgt: str) -> None:
    """Write the pairs of the `valid` or `test` split; `src` and `tgt` are their languages."""
    lines = []
    for src_text, tgt_text in pairs:
        row = {"translation": {src: src_text, tgt: tgt_text}}
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    replace_file(_path(run, name), "".join(lines).encode())


def read_split(run: Path, name: str, *, empty_ok: bool = False) -> list[Pair]:
    """Read the pairs of the `valid` or `test` split.

    Args:
        run: The run folder.
        name: `valid` or `test`.
        empty_ok: The split may be empty.

    Raises:
        DataError: The split is missing or damaged, or empty without `empty_ok`.
        ModelError: The file is not a regular file.
    """
    path = _path(run, name)
    try:
        check_regular(path)
    except FileNotFoundError:
        remedy = "give --src-file and --ref-file, or the folder of a run as --model"
        raise DataError(f"{run}: has no {name} pairs (an exported model has none); {remedy}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot read it ({error.strerror}); move it away") from None
    pairs = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            pairs.append(_parse(line))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            remedy = "run the training command again to write it again"
            raise DataError(f"{path}:{number}: damaged; {remedy}") from None
    if not pairs and not empty_ok:
        raise DataError(f"{path}: the {name} split is empty; give --src-file and --ref-file")
    return pairs


def _path(run: Path, name: str) -> Path:
    return run / "data" / f"{name}.jsonl"


def _parse(line: str) -> Pair:
    """Return the pair of a line; any exception means that the line is damaged."""
    src, tgt = json.loads(line)["translation"].values()
    if not (isinstance(src, str) and isinstance(tgt, str)):
        raise TypeError
    f"{src}{tgt}".encode()  # fails for half a surrogate pair
    return src, tgt
