"""Find the model to import: a local folder, or a repository of the Hugging Face Hub."""

import logging
import re
from dataclasses import dataclass
from pathlib import Path

from mtcli.errors import ModelError, StorageError
from mtcli.runtime.regular_file import read_regular

log = logging.getLogger(__name__)

METADATA = (
    "README.md", "config.json", "generation_config.json", "source.spm", "target.spm", "tokenizer_config.json",
    "vocab.json",
)  # fmt: skip
"""The files of a Marian model besides its weights."""

SAFETENSORS = "model.safetensors"
PICKLED = "pytorch_model.bin"
WEIGHTS = (SAFETENSORS, PICKLED)
"""The files that can hold the weights, the preferred one first."""

HUB_NAME = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}", re.ASCII)
"""A user or organisation, and a repository."""

FRONT_MATTER = re.compile(r"\A---\r?\n(.*?)^---\s*$", re.DOTALL | re.MULTILINE)
LICENSE = re.compile(r"^license:[ \t]*[\"']?([\w.+-]{1,64})[\"']?[ \t]*\r?$", re.MULTILINE)

README_BYTES = 2**20
"""Bytes of a model card that are read."""


@dataclass(frozen=True)
class Source:
    """The files of a model to import."""

    name: str
    """The user's name for it: a folder, or the name of a repository."""
    folder: Path
    """Where the files are."""
    revision: str | None
    """The commit of the repository; None for a local folder."""

    @property
    def weights(self) -> Path:
        """The file with the weights.

        Raises:
            ModelError: There is none.
        """
        for name in WEIGHTS:
            if (self.folder / name).exists():
                return self.folder / name
        raise ModelError(f"{self.folder}: has neither {SAFETENSORS} nor {PICKLED}; a Marian model needs one of them")

    @property
    def licence(self) -> str | None:
        """The licence that the model card names, such as `cc-by-4.0`."""
        try:
            card = read_regular(self.folder / "README.md", most=README_BYTES).decode("utf-8", errors="replace")
        except OSError:
            return None
        front_matter = FRONT_MATTER.match(card)
        found = LICENSE.search(front_matter[1]) if front_matter else None
        return found[1] if found else None


def locate(name: str, revision: str | None = None) -> Source:
    """Find a local folder, or download a repository of the Hub.

    Args:
        name: A folder, or the name of a repository such as `Helsinki-NLP/opus-mt-en-de`.
        revision: A branch, tag or commit of the repository; None: its main branch.

    Raises:
        ModelError: There is neither, or the repository cannot be read.
        StorageError: The files cannot be stored.
    """
    folder = Path(name)
    if folder.is_dir():
        if revision is not None:
            raise ModelError(f"{name}: a local folder has no revision; omit --revision")
        return Source(name, folder, None)
    if folder.exists():
        raise ModelError(f"{name}: is a file; name the folder of the model")
    if not HUB_NAME.fullmatch(name):
        raise ModelError(f"{name}: no such folder; name one, or a model of the Hugging Face Hub (USER/NAME)")
    return _download(name, revision)


def _download(name: str, revision: str | None) -> Source:
    """Download the files of a repository into the cache of huggingface_hub."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    log.info("downloading %s from the Hugging Face Hub", name)
    try:
        folder = _snapshot(name, revision, [*METADATA, SAFETENSORS])
        if not (folder / SAFETENSORS).exists():
            # The folder is named after the commit, so that both downloads are of one revision.
            folder = _snapshot(name, folder.name, [PICKLED])
    except LocalEntryNotFoundError:
        raise ModelError(f"{name}: no such folder, and the Hugging Face Hub cannot be reached") from None
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else None
        if status in (401, 403, 404):
            raise ModelError(
                f"{name}: no such folder, and no public model of the Hugging Face Hub has this name and revision"
            ) from None
        raise ModelError(f"{name}: the Hugging Face Hub answered with an error ({status}); try again later") from None
    except HFValidationError as error:
        raise ModelError(f"{name}: not a valid name for the Hugging Face Hub ({error})") from None
    except _transfer_errors() as error:
        message = f"{name}: cannot be downloaded ({error}); run the same command again to continue"
        raise StorageError(message) from None
    return Source(name, folder, folder.name)


def _transfer_errors() -> tuple[type[Exception], ...]:
    """Return the classes of a broken connection and a full disk. The HTTP library's own errors may be no OSErrors."""
    from huggingface_hub.errors import HfHubHTTPError

    of_http_library = [base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception)]
    return (OSError, *of_http_library)


def _snapshot(name: str, revision: str | None, files: list[str]) -> Path:
    """Download those of the files that a revision has, and return their folder, which is named after the commit."""
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, revision=revision, allow_patterns=files))
