"""The columns of a table that hold the two sides of the pairs, by a header or by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mtcli.errors import DataError
from mtcli.text.languages import SOURCE_NAMES, TARGET_NAMES, base, known, same


@dataclass(frozen=True)
class Columns:
    """The columns of the two sides, counted from 0."""

    src: int = 0
    tgt: int = 1
    named: bool = False
    """The header names their languages, so `--swap` does not apply."""
    from_header: bool = True
    """A header names them, by languages or as source and target."""

    def swapped(self) -> Columns:
        """Return the columns with source and target swapped, unless the header names their languages."""
        return self if self.named else replace(self, src=self.tgt, tgt=self.src)


def find_columns(cells: Sequence[str], src: str, tgt: str) -> Columns | None:
    """Return the columns of the two sides if these cells are a header; None: they are not.

    A header names the columns by language (`en`, `English`), or as `source` and `target`.

    Raises:
        ValueError: The cells name languages other than these two.
    """
    src_language = _column(cells, src)
    tgt_language = _column(cells, tgt)
    src_column = _neutral_column(cells, SOURCE_NAMES) if src_language is None else src_language
    tgt_column = _neutral_column(cells, TARGET_NAMES) if tgt_language is None else tgt_language
    if src_language is not None and tgt_language is not None:
        return Columns(src_language, tgt_language, named=not are_side_names(src, tgt))
    if src_column is not None and tgt_column is not None and src_column != tgt_column:
        return Columns(src_column, tgt_column, named=src_language is not None or tgt_language is not None)
    others = list(dict.fromkeys(cell.strip() for cell in cells if known(cell)))
    if len({known(cell) for cell in others}) > 1:
        raise ValueError(
            f"line 1 names the languages {', '.join(others)}, not {src} and {tgt}; set --src and --tgt "
            "(if it is a pair, put the line source, target above it)"
        )
    return None


def are_side_names(src: str, tgt: str) -> bool:
    """Return True if two language codes only name the sides, such as `src` and `tgt`, so that `--swap` applies."""
    return src.casefold() in SOURCE_NAMES and tgt.casefold() in TARGET_NAMES


def _column(cells: Sequence[str], code: str) -> int | None:
    """Return the column with this code or name of a language, or the only one with it in another script or region."""
    exact = [i for i, cell in enumerate(cells) if same(cell, code)]
    if exact:
        return exact[0]
    near = [i for i, cell in enumerate(cells) if base(cell) is not None and base(cell) == base(code)]
    return near[0] if len(near) == 1 else None


def _neutral_column(cells: Sequence[str], names: frozenset[str]) -> int | None:
    """Return the first column with one of these names, such as `source`."""
    return next((i for i, cell in enumerate(cells) if cell.strip().casefold() in names), None)


def read_header(first: Sequence[str], name: str, src: str, tgt: str, swap: bool, notices: list[str]) -> Columns | None:
    """Return the columns that the first row names, swapped if that applies, with a notice; None: it is not a header.

    Raises:
        DataError: It names other languages.
    """
    try:
        columns = find_columns(first, src, tgt)
    except ValueError as error:
        raise DataError(f"{name}: {error}") from None
    if columns and swap:
        columns = columns.swapped()
    if columns:
        titles = f"{first[columns.src].strip()!r} as {src} and {first[columns.tgt].strip()!r} as {tgt}"
        notices.append(f"{name}: line 1 names the columns: read {titles}")
    return columns
