"""Import a Marian model of `transformers` (OPUS-MT) as a model folder, from a local folder or the Hugging Face Hub.

The folder has the files of a run, without those of training: `model.safetensors`, `tokenizer.json`, `config.toml` and
a model card, which is Markdown with the header that the Hugging Face Hub reads. `origin.json` records where the model
comes from."""

import json
import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtcli import __version__
from mtcli.config.fields import shown
from mtcli.config.schema import Config, DataConfig, DecodeConfig, ModelConfig, TokenizerConfig
from mtcli.config.toml_file import to_toml
from mtcli.errors import ModelError, StorageError, UsageError
from mtcli.exchange.marian_config import (
    MarianConfig,
    MarianSearch,
    read_config,
    read_file,
    read_json,
    read_search,
    read_tokenizer_config,
    shape_of,
)
from mtcli.exchange.marian_weights import parameters_of, read_weights
from mtcli.runtime.files import json_bytes, read_regular, sha256, write_file
from mtcli.runtime.outputs import check_replaceable, whole_folder
from mtcli.storage import CONFIDENCE, ORIGIN
from mtcli.storage.model_file import ModelInfo, model_bytes
from mtcli.text.languages import checked
from mtcli.text.tokenizer import sentencepiece_file
from mtcli.text.tokenizer.sentencepiece import MarianVocabulary, SentencePieceSide
from mtcli.text.tokenizer.tokenizer import Tokenizer

log = logging.getLogger(__name__)

FORMAT = 1
"""Version of `origin.json`."""

WRITTEN = {CONFIDENCE, ORIGIN, "README.md", "config.toml", "model.safetensors", "tokenizer.json"}
"""All files of an imported model. An import that replaces a folder deletes no others."""

SIDES_OF_NAME = re.compile(r"opus-mt(?:-[a-z]+)*-([A-Za-z]{2,7})-([A-Za-z]{2,7})")
"""The languages in a name such as `opus-mt-en-de` or `opus-mt-tc-big-fr-en`."""

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
class ModelFiles:
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


@dataclass(frozen=True)
class Imported:
    """The result of an import."""

    folder: Path
    """The model folder."""
    src: str
    tgt: str
    tags: tuple[str, ...]
    """The target languages of a multilingual model."""


def default_folder(source: str) -> Path:
    """Return the folder to write if none is given: `runs/opus-mt-en-de` for `Helsinki-NLP/opus-mt-en-de`."""
    return Path("runs") / Path(source).resolve().name


def import_model(
    name: str, out: Path, *, src: str | None = None, tgt: str | None = None, revision: str | None = None
) -> Imported:
    """Import a Marian model.

    Args:
        name: A local folder, or the name of a repository of the Hugging Face Hub.
        out: The folder to write. An earlier import there is replaced.
        src: Code of the source language; None: as the origin names it.
        tgt: Code of the target language; None: as the origin names it.
        revision: A branch, tag or commit of the repository; None: its main branch.

    Raises:
        UsageError: `out` contains something else, or the origin does not name its languages.
        ModelError: There is no such model, it is damaged, or mtcli cannot express it.
        LockedError: Another process is writing `out`.
        StorageError: `out` cannot be written.
    """
    check_replaceable(out, "imported model", ORIGIN, WRITTEN.__contains__)
    source = locate(name, revision)
    config = read_config(source.folder)
    languages = _languages(source, config, src, tgt)
    tokenizer = _read_tokenizer(source.folder, config)
    shape = shape_of(config, source.folder)
    settings = Config(
        data=DataConfig(src=languages[0], tgt=languages[1]),
        tokenizer=TokenizerConfig(type="sentencepiece", vocab_size=tokenizer.tgt_size),
        model=shape,
        decode=_decoding(read_search(source.folder)),
    )
    weights = source.weights
    files = {
        "model.safetensors": _model(weights, config, settings, tokenizer),
        "tokenizer.json": tokenizer.to_json().encode(),
        "config.toml": to_toml(settings).encode(),
        ORIGIN: _origin(source, weights),
        "README.md": to_card(source, settings, tokenizer).encode(),
    }
    with whole_folder(out) as folder:
        for file, content in files.items():
            write_file(folder / file, content)
    return Imported(out, *languages, tuple(tokenizer.tags))


def _languages(source: ModelFiles, config: MarianConfig, src: str | None, tgt: str | None) -> tuple[str, str]:
    """Return the codes of both languages: as given, or as `tokenizer_config.json` or the model's name has them."""
    about = read_tokenizer_config(source.folder)
    found_src = about.source_lang
    found_tgt = about.target_lang
    if not found_src or not found_tgt:
        found_src, found_tgt = _languages_of_name(source, config)
    src_code = _language(source, "--src", "source_lang", src, found_src)
    tgt_code = _language(source, "--tgt", "target_lang", tgt, found_tgt)
    if src_code == tgt_code:
        raise UsageError(f"{source.name}: source and target are both {src_code}; give --src and --tgt")
    return src_code, tgt_code


def _languages_of_name(source: ModelFiles, config: MarianConfig) -> tuple[str | None, str | None]:
    """Return the codes in the name of the model; None if it names no languages."""
    for name in (Path(source.name).resolve().name, (config.name or "").rpartition("/")[2]):
        match = SIDES_OF_NAME.fullmatch(name)
        if match:
            return match[1], match[2]
    return None, None


def _language(source: ModelFiles, option: str, field: str, given: str | None, found: str | None) -> str:
    """Return the code of one language.

    Args:
        source: The origin.
        option: The option that gives the code.
        field: The field of `tokenizer_config.json` that names the language.
        given: The value of the option.
        found: The code that the origin has.

    Raises:
        UsageError: There is no code, or the option's is not one.
        ModelError: The code in `tokenizer_config.json` is not one.
    """
    code = given if given is not None else found
    if code is None:
        raise UsageError(f"{source.name}: does not name its languages; give {option}")
    try:
        return checked(code)
    except ValueError as error:
        if given is not None:
            raise UsageError(f"{option} {code[:100]}: {error}") from None
        path = source.folder / "tokenizer_config.json"
        raise ModelError(f"{path}: {field}: {shown(code)}: {error}; give {option}") from None


def _read_tokenizer(folder: Path, config: MarianConfig) -> Tokenizer:
    """Return the tokenizer of `source.spm`, `target.spm` and `vocab.json`."""
    path = folder / "vocab.json"
    vocab = read_json(path)
    for token, token_id in vocab.items():
        if type(token_id) is not int:
            raise ModelError(f"{path}: {shown(token)}: the id must be an integer, not {shown(token_id)}")
    try:
        vocabulary = MarianVocabulary.of(vocab, config.pad_token_id, config.eos_token_id)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    if config.decoder_start_token_id >= len(vocab):
        start = config.decoder_start_token_id
        raise ModelError(f"{path}: has {len(vocab):,} tokens, and config.json names {start} (decoder_start_token_id)")
    return Tokenizer(_read_side(folder / "source.spm", vocabulary), _read_side(folder / "target.spm", vocabulary))


def _read_side(path: Path, vocabulary: MarianVocabulary) -> SentencePieceSide:
    """Return the tokenizer of one side, from its SentencePiece model."""
    content = read_file(path)
    try:
        return SentencePieceSide(sentencepiece_file.from_bytes(content), vocabulary)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None


def _decoding(search: MarianSearch) -> DecodeConfig:
    """Return the search of the origin. Unset options are those of `transformers`, with a beam of 4."""
    return DecodeConfig(
        beam_size=4 if search.num_beams is None else search.num_beams,
        length_penalty=1.0 if search.length_penalty is None else search.length_penalty,
        length_normalization="power",
        early_stopping=bool(search.early_stopping),
    )


def _model(weights: Path, config: MarianConfig, settings: Config, tokenizer: Tokenizer) -> bytes:
    """Return the content of `model.safetensors`."""
    assert tokenizer.sentencepiece
    shape: ModelConfig = settings.model
    vocabulary = tokenizer.sentencepiece[0].vocabulary
    try:
        parameters = parameters_of(read_weights(weights), shape, vocabulary, config.decoder_start_token_id)
    except ModelError as error:
        where = "" if str(error).startswith(str(weights)) else f"{weights}: "
        raise ModelError(f"{where}{error}") from None
    info = ModelInfo(
        model=shape,
        decode=settings.decode,
        src=settings.data.src,
        tgt=settings.data.tgt,
        src_vocab=tokenizer.src_size,
        tgt_vocab=tokenizer.tgt_size,
        joint=True,
        tokenizer=tokenizer.digest(),
        step=0,
        longest_src=config.max_position_embeddings,
    )
    return model_bytes(parameters, info)


def _origin(source: ModelFiles, weights: Path) -> bytes:
    """Return the content of `origin.json`."""
    about: dict[str, Any] = {
        "format": FORMAT,
        "mtcli": __version__,
        "source": source.name,
        "revision": source.revision,
        "licence": source.licence,
        "architecture": "MarianMTModel",
        "weights": {"file": weights.name, "sha256": sha256(weights)},
    }
    return json_bytes(about)


CARD = """\
---
language:
- {src_quoted}
- {tgt_quoted}
library_name: mtcli
pipeline_tag: translation
{license}
---

# {name}: {src} → {tgt}

A Transformer that translates sentences from {src} to {tgt}, imported from `{source}`.

## Use

```sh
mtcli translate --model . {tag}"A sentence."
```

Translating needs only `model.safetensors` and `tokenizer.json`.

## Origin

- source: `{source}`
- revision: {revision}
- licence: {licence}
- `origin.json` has the SHA-256 of the weights that were imported

Who trained the model, on which data and with which scores is in the model card of the origin.

## Model

- {encoder} encoder and {decoder} decoder layers, d_model {d_model}, d_ff {d_ff}, {heads} heads, {activation}
- {tokens:,} tokens, from two SentencePiece models; {unknown}
- search: beam size {beam_size}, length penalty n^{length_penalty:g}
{languages}
## Limits

- It translates one sentence at a time and ignores the context.
- Some translations are fluent but wrong: have a person check what matters.
"""


def to_card(source: ModelFiles, config: Config, tokenizer: Tokenizer) -> str:
    """Return the model card."""
    data = config.data
    model = config.model
    decode = config.decode
    unknown = "a character outside of them becomes `<unk>`, and its text is lost"
    if tokenizer.src_byte_of:
        unknown = "a character outside of them is encoded as bytes"
    licence = source.licence
    revision = "none, a local folder" if source.revision is None else f"`{source.revision}`"
    target = next(iter(tokenizer.tags), None)
    return CARD.format(
        src=data.src,
        tgt=data.tgt,
        src_quoted=json.dumps(data.src, ensure_ascii=False),  # YAML reads an unquoted `no` as false
        tgt_quoted=json.dumps(data.tgt, ensure_ascii=False),
        license=f"license: {licence}" if licence else "# license: to be filled in; the origin's card names none",
        licence=licence or "the origin's model card names none; see there",
        name=source.folder.resolve().name if source.revision is None else source.name,
        source=source.name,
        revision=revision,
        tag=f"--to {target} " if target else "",
        encoder=model.num_encoder_layers,
        decoder=model.num_decoder_layers,
        d_model=model.d_model,
        d_ff=model.d_ff,
        heads=model.num_heads,
        activation=model.activation,
        tokens=tokenizer.tgt_size,
        unknown=unknown,
        beam_size=decode.beam_size,
        length_penalty=decode.length_penalty,
        languages=f"- target languages (`--to`): {', '.join(tokenizer.tags)}\n" if tokenizer.tags else "",
    )


def locate(name: str, revision: str | None = None) -> ModelFiles:
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
        return ModelFiles(name, folder, None)
    if folder.exists():
        raise ModelError(f"{name}: is a file; name the folder of the model")
    if not HUB_NAME.fullmatch(name):
        raise ModelError(f"{name}: no such folder; name one, or a model of the Hugging Face Hub (USER/NAME)")
    return _download(name, revision)


def _download(name: str, revision: str | None) -> ModelFiles:
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
    return ModelFiles(name, folder, folder.name)


def _transfer_errors() -> tuple[type[Exception], ...]:
    """Return the classes of a broken connection and a full disk. The HTTP library's own errors may be no OSErrors."""
    from huggingface_hub.errors import HfHubHTTPError

    of_http_library = [base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception)]
    return (OSError, *of_http_library)


def _snapshot(name: str, revision: str | None, files: list[str]) -> Path:
    """Download those of the files that a revision has, and return their folder, which is named after the commit."""
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, revision=revision, allow_patterns=files))
