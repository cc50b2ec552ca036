"""Checks of what `mtcli translate` reads and writes, before a model is loaded."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from mtcli.cli.input_files import must_exist
from mtcli.errors import UsageError

if TYPE_CHECKING:
    from mtcli.terms.terms import Terms

log = logging.getLogger(__name__)


def check_files(text: list[str] | None, input_: str | None, output: str, models: Sequence[Path]) -> None:
    """Check input and output before the model is loaded.

    Raises:
        UsageError: Two inputs, an output that would overwrite something or that is named as if it were compressed, or
            standard streams with several ranks.
        DataError: The input cannot be read.
        StorageError: The output cannot be written.
    """
    from mtcli.documents.formats.registry import free_name
    from mtcli.runtime import torchrun
    from mtcli.runtime.output_checks import check_outputs
    from mtcli.runtime.outputs import is_special

    if text and input_:
        raise UsageError(f"give either sentences or --input {input_}, not both")
    if torchrun.size() > 1 and "-" in (input_ or "-", output):
        raise UsageError("several ranks translate files, not standard input or output; give --input FILE --output FILE")
    if torchrun.size() > 1 and is_special(Path(output)):
        raise UsageError(f"--output {output}: several ranks write a regular file; give another")
    if output.lower().endswith(".gz"):
        example = free_name(PurePath(output).with_suffix(""), input_ or "-")
        raise UsageError(f"--output {output}: translations are not compressed; name it {example}")
    inputs = [] if text else [input_ or "-"]
    check_outputs([output], inputs, models=models)
    must_exist(input_)


def is_document_input(
    text: list[str] | None, input_: str | None, output: str, *, paragraphs: bool, columns: tuple[str, ...]
) -> bool:
    """Return True if the input is translated as a document, False if line by line.

    Raises:
        UsageError: The type of the file is unknown, the output has the suffix of another type, or several ranks would
            translate a document.
    """
    from mtcli.documents.formats.registry import check_output_name, is_document
    from mtcli.runtime import torchrun

    found = is_document("-" if text else input_ or "-", paragraphs=paragraphs, columns=bool(columns))
    if found and torchrun.size() > 1:
        raise UsageError("several ranks translate lines of text, not documents; start one process")
    if found:
        check_output_name(input_ or "-", output)
    return found


def read_checked_terms(
    terms: Path, report: Path | None, input_: str | None, output: str, models: Sequence[Path]
) -> "Terms":
    """Read the terms, and check their report before the model is loaded.

    Raises:
        UsageError: The report would overwrite something or has an unknown ending, or several ranks would write it.
        DataError: The file of terms cannot be read or is malformed.
        StorageError: The report cannot be written.
    """
    from mtcli.runtime import torchrun
    from mtcli.runtime.output_checks import check_outputs
    from mtcli.terms.report import ENDINGS
    from mtcli.terms.terms import read_terms

    must_exist(str(terms))
    check_outputs([output, report], [input_, terms], models=models)
    if report is not None and report.suffix.lower() not in ENDINGS:
        raise UsageError(f"--terms-report {report}: write a {' or '.join(ENDINGS)} file")
    if report is not None and torchrun.size() > 1:
        raise UsageError("--terms-report: not with several ranks; --format json lists the terms of each line")
    return read_terms(terms)


def check_memory(memory: Sequence[Path], output: str) -> None:
    """Check the files of a translation memory before the model is loaded.

    Raises:
        UsageError: The output would overwrite one.
        DataError: One cannot be read, or its type is unknown.
    """
    from mtcli.runtime.output_checks import check_outputs
    from mtcli.translate.memory import check_memory_file

    must_exist(*map(str, memory))
    check_outputs([output], memory)
    for path in memory:
        check_memory_file(path)


def warn_of_files(texts: Sequence[str]) -> None:
    """Warn about sentences that are also names of files, which are probably meant."""
    for name in texts:
        if os.path.isfile(name):  # noqa: PTH113 - a sentence may be too long for a path
            log.warning(
                "%s: translated as a sentence, though there is a file of that name; -i %s translates the file",
                name,
                name,
            )
