"""The setting `tokenizer.file`: a tokenizer that exists already, so that several models have the same vocabulary."""

from pathlib import Path

from mtcli.config import toml_file
from mtcli.config.schema import Config
from mtcli.errors import ModelError, UsageError
from mtcli.text.languages import base
from mtcli.text.tokenizer.tokenizer import Tokenizer


def tokenizer_path(config: Config) -> Path | None:
    """Return the `tokenizer.json` that `tokenizer.file` names directly or by its folder; None: it is not set."""
    if not config.tokenizer.file:
        return None
    path = Path(config.tokenizer.file)
    return path / "tokenizer.json" if path.is_dir() else path


def given_tokenizer(config: Config) -> Tokenizer | None:
    """Return the tokenizer that `tokenizer.file` names; None: it is not set.

    Raises:
        ModelError: The file is missing or damaged.
        UsageError: It belongs to an imported model, or its separate vocabularies are not for these languages.
    """
    path = tokenizer_path(config)
    if path is None:
        return None
    try:
        tokenizer = Tokenizer.load(path)
    except ModelError as error:
        remedy = "name a run folder, or a file that `mtcli tokenizer train` wrote"
        raise ModelError(f"tokenizer.file: {error}; {remedy}") from None
    if tokenizer.sentencepiece:
        raise UsageError(
            f"tokenizer.file {path}: is of an imported model; fine-tune that with --init, or name a tokenizer that "
            "mtcli trained"
        )
    if not tokenizer.joint:
        _check_direction(path, config)
    return tokenizer


def _check_direction(path: Path, config: Config) -> None:
    """Check that separate vocabularies are for the languages of this training.

    A vocabulary file names no languages, so they are those of the run in its folder.

    Raises:
        UsageError: They are for other languages, or the folder holds no run.
    """
    remedy = "name one with a joint vocabulary, such as `mtcli tokenizer train` writes"
    if len(config.data.directions) > 1:
        raise UsageError(
            f"tokenizer.file {path}: has two vocabularies, and this training has several directions; {remedy}"
        )
    run = path.parent / "config.toml"
    if not run.is_file():
        raise UsageError(
            f"tokenizer.file {path}: has two vocabularies, and no config.toml beside it says for which languages; "
            f"{remedy}"
        )
    data = toml_file.load(run).data
    own = [base(code) or code for code in (data.src, data.tgt)]
    wanted = [base(code) or code for code in (config.data.src, config.data.tgt)]
    if own != wanted:
        raise UsageError(
            f"tokenizer.file {path}: has vocabularies for {data.src} → {data.tgt}, and this training is "
            f"{config.data.src} → {config.data.tgt}; {remedy}"
        )


def check_given_tokenizer(config: Config, digest: str) -> None:
    """Check that `tokenizer.file` still holds the tokenizer of a run that is resumed.

    A file that no longer exists is accepted: the run has its own copy.

    Args:
        config: The configuration.
        digest: `Tokenizer.digest` of the run.

    Raises:
        ModelError: The file is damaged, or holds another tokenizer.
        UsageError: See `given_tokenizer`.
    """
    path = tokenizer_path(config)
    if path is None or not path.exists():
        return
    tokenizer = given_tokenizer(config)
    if tokenizer is not None and tokenizer.digest() != digest:
        raise ModelError(
            f"tokenizer.file {path}: changed since this run began (SHA-256 then {digest[:12]}, now "
            f"{tokenizer.digest()[:12]}); put the old file back, or start over with --overwrite"
        )
