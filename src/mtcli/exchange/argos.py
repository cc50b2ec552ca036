"""Write an `.argosmodel`: the package that Argos Translate and LibreTranslate install.

It is a zip archive of one folder with `metadata.json`, the model for CTranslate2 in `model/`, one SentencePiece model
for both sides, and a README.
"""

import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtcli.exchange import ctranslate2_model, sentencepiece_model
from mtcli.model.transformer import Transformer
from mtcli.runtime.files import json_bytes
from mtcli.storage.translation_info import TranslationInfo
from mtcli.text.languages import Direction, english_name
from mtcli.text.tokenizer.sentencepiece import SPACE
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.backends.backend import Backend
from mtcli.translate.backends.ctranslate2 import load_native
from mtcli.translate.translation import Candidate, Options
from mtcli.translate.windows import SourceLine

SUFFIX = ".argosmodel"

VERSION = "1.0"
"""Version of the package. Argos Translate compares it with that of its online index."""

ARGOS_VERSION = "1.9"
"""The version of Argos Translate that the package is meant for."""

SEARCH = Options(beam_size=4, length_penalty=0.2, length_normalization="power", max_length=255)
"""The search of Argos Translate, which does not read the model's own options. It never returns an empty text."""

ZIP_DATE = (1980, 1, 1, 0, 0, 0)
"""Date of every file in the archive, so that the same model gives the same archive."""

README = """\
# {src} → {tgt}

A translation model for Argos Translate and LibreTranslate, made by mtcli {version} from the run {run!r}.

It translates one sentence at a time. The licence depends on the licence of the training data.
"""


def package_name(direction: Direction) -> str:
    """Return the name of the package of a direction, and of its folder: `translate-en_es-1_0`."""
    return f"translate-{direction.src}_{direction.tgt}-{VERSION.replace('.', '_')}"


def convert(
    model: Transformer, direction: Direction, tokenizer: Tokenizer, folder: Path, about: dict[str, Any]
) -> None:
    """Write the package of a direction into a folder, and nothing else.

    Args:
        model: A model without `targets.obstacles`.
        direction: Its languages. CTranslate2 puts the tag of the target language before every source.
        tokenizer: The model's, without `sentencepiece_model.obstacles`.
        folder: An existing folder.
        about: The content of `mtcli.json`, of which `mtcli`, `run` and `quantization` are used.

    Raises:
        UsageError: The ctranslate2 package is missing.
    """
    name = package_name(direction)
    content = folder / name
    (content / "model").mkdir(parents=True)
    tag = tokenizer.tag_of(direction.tgt) if tokenizer.tags else None
    ctranslate2_model.convert(model, tokenizer, content / "model", about["quantization"], space=SPACE, tag=tag)
    (content / "sentencepiece.model").write_bytes(sentencepiece_model.to_sentencepiece(tokenizer))
    (content / "metadata.json").write_bytes(json_bytes(_metadata(direction)))
    readme = README.format(
        src=english_name(direction.src), tgt=english_name(direction.tgt), version=about["mtcli"], run=about["run"]
    )
    (content / "README.md").write_text(readme, encoding="utf-8")
    _zip(content, folder / f"{name}{SUFFIX}")
    shutil.rmtree(content)


def _metadata(direction: Direction) -> dict[str, Any]:
    return {
        "type": "translate",
        "package_version": VERSION,
        "argos_version": ARGOS_VERSION,
        "from_code": direction.src,
        "from_name": english_name(direction.src),
        "to_code": direction.tgt,
        "to_name": english_name(direction.tgt),
        "links": [],
    }


def _zip(content: Path, archive: Path) -> None:
    """Write a folder as a zip archive. The weights are stored uncompressed: compression saves little and takes long."""
    with zipfile.ZipFile(archive, "w") as file:
        for path in sorted(content.rglob("*")):
            if path.is_file():
                entry = zipfile.ZipInfo(path.relative_to(content.parent).as_posix(), ZIP_DATE)
                entry.external_attr = 0o644 << 16
                entry.compress_type = zipfile.ZIP_STORED if path.suffix == ".bin" else zipfile.ZIP_DEFLATED
                with path.open("rb") as source, file.open(entry, "w") as target:
                    shutil.copyfileobj(source, target)


class Installed(Backend):
    """An installed package, used as Argos Translate uses it: its tokenizer, and CTranslate2 with its options."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, info: TranslationInfo):
        """Load it.

        Args:
            folder: The folder that the archive contains.
            tokenizer: Our tokenizer of the model.
            info: What the file of the model says about it.

        Raises:
            UsageError: The sentencepiece or the ctranslate2 package is missing.
        """
        super().__init__(tokenizer, info)
        self.native = load_native(folder / "model", device="cpu")
        self.processor = sentencepiece_model.processor((folder / "sentencepiece.model").read_bytes())

    def max_batch_tokens(self, options: Options) -> int:
        """See `Backend.max_batch_tokens`."""
        return 2000

    def search(self, sources: Sequence[SourceLine], options: Options) -> list[list[Candidate]]:
        """See `Backend.search`."""
        results = self.native.translate_batch(
            [self.processor.encode(source.line, out_type=str) for source in sources],
            replace_unknowns=True,
            beam_size=options.beam_size,
            num_hypotheses=1,
            length_penalty=options.length_penalty,
            return_scores=True,
        )
        found = []
        for result in results:
            (tokens,) = result.hypotheses
            (score,) = result.scores
            text = sentencepiece_model.join(self.processor, tokens)
            penalty = (len(tokens) + 1) ** options.length_penalty
            found.append([Candidate(text, score * penalty, score, penalty=penalty)])
        return found


def install(archive: Path, folder: Path) -> Path:
    """Unpack a package as Argos Translate does, and return the folder that it contains."""
    with zipfile.ZipFile(archive) as file:
        file.extractall(folder)
    return folder / archive.name.removesuffix(SUFFIX)
