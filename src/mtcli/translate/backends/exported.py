"""The folder of an exported model: what its `mtcli.json` says, and a check of its files."""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ValidationError

from mtcli import limits
from mtcli.config.fields import Within
from mtcli.errors import ModelError
from mtcli.runtime.files import read_regular, sha256
from mtcli.storage import PROVENANCE
from mtcli.storage.translation_info import TranslationInfo

GIVE_THE_RUN = "give the run itself with --model, without --engine"
"""The remedy in messages: the run can do all that an exported model cannot."""

FORMAT = 2
"""Version of the exported folder. Other versions are refused."""

REQUIRED = ("config.json", "model.bin", "tokenizer.json")
"""Files of every folder for CTranslate2, besides vocabularies."""


class Export(BaseModel):
    """The part of `mtcli.json` that is needed for translating."""

    max_positions: Annotated[int, Within(limits.EXPORTED_POSITIONS)]
    model: TranslationInfo
    files: dict[str, str]
    """SHA-256 of each file, in hexadecimal digits."""


def provenance(folder: Path) -> dict[str, Any] | None:
    """Read `mtcli.json` of an exported model. None: the folder is not an exported model.

    Raises:
        ModelError: The file cannot be read, has another format, or is of version 0.1.
    """
    path = folder / PROVENANCE
    try:
        found = json.loads(read_regular(path))
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise ModelError(f"{folder}: is a file; give the folder of a run or model") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); export the model again") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ModelError(f"{path}: has a format that this version of mtcli does not read; export the model again")
    version = found.get("mtcli")
    if not isinstance(version, str) or version.startswith("0.1."):  # the first ones did not name it
        raise ModelError(f"{folder}: exported by mtcli 0.1, which this version does not read; export the model again")
    return found


def read_export(folder: Path, about: dict[str, Any]) -> Export:
    """Check an exported folder for CTranslate2.

    Args:
        folder: The folder.
        about: Its `provenance`.

    Raises:
        ModelError: `mtcli.json` or another file is damaged.
    """
    export = parse_provenance(folder, about)
    _verify_files(folder, export.files)
    return export


def parse_provenance(folder: Path, about: dict[str, Any]) -> Export:
    """Return the `provenance` of an exported folder, for any library, as an object.

    Raises:
        ModelError: It is damaged.
    """
    try:
        return Export.model_validate(about)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])[:100]
        raise ModelError(
            f"{folder / PROVENANCE}: damaged ({where}: {problem['msg']}); export the model again"
        ) from None


def _verify_files(folder: Path, files: dict[str, str]) -> None:
    """Check that a folder holds the files that were exported, and no other file that CTranslate2 would read.

    Raises:
        ModelError: A file is missing, damaged, not listed, or not a regular file of the folder.
    """
    optional = {path.name for path in folder.iterdir() if "vocabulary" in path.name or path.name == "vmap.txt"}
    for name in sorted({*REQUIRED, *optional} - files.keys()):
        raise ModelError(f"{folder / PROVENANCE}: has no checksum of {name}; export the model again")
    for name, digest in files.items():
        if Path(name).name != name:
            raise ModelError(f"{folder / PROVENANCE}: {name!r} is not the name of a file; export the model again")
        try:
            found = sha256(folder / name, folder)
        except (OSError, ValueError) as error:
            raise ModelError(f"{folder / name}: cannot be read ({error}); export the model again") from None
        if found != digest:
            raise ModelError(f"{folder / name}: damaged (its checksum has changed); export the model again")
