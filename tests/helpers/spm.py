"""SentencePiece models for tests: small ones made here, and the real ones that are kept outside of the repository."""

import gzip
import io
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from mtcli.corpus.demo import load
from mtcli.text.tokenizer.sentencepiece_file import CONTROL, NORMAL, UNKNOWN, Piece, SentencePieceModel, from_bytes

SHARED = Path(__file__).parents[3] / "shared" / "data"
OPUS = ("opus-mt-en-mg", "translation-en-pt", "hski_fr_en_model")

ODD = [
    "", " ", "Hello World", "  two  spaces  ", "</s> <s> <pad> <unk>", "<0x41>", "日本語 テスト", "🙂 ok 🙂🙂",
    "e\u0301t\u00e9", "\u00a0non-breaking\u00a0", "ﬁne ½ ①", "“quotes” … —", "a\tb", "▁literal▁", "x" * 300,
    "Ünïcödé",
    "\u200bzero\u200d", ">>fra<< Hello", ">>xxx<< Hello", "a >>fra<< b", ">> <<", "…", "１２３",
    "\ufeffmark", "Ⅷ", "á\u0323",
]  # fmt: skip


@cache
def demo_lines(side: int) -> tuple[str, ...]:
    """Some sentences of the demo: English (0) or Spanish (1)."""
    return tuple(pair[side] for pair in load().train[:3000:2])


@cache
def trained(side: int, kind: str = "unigram", byte_fallback: bool = False, size: int = 400) -> bytes:
    """A SentencePiece model file, trained on the demo."""
    sentencepiece = pytest.importorskip("sentencepiece")
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(demo_lines(side)),
        model_writer=file,
        vocab_size=size + 256 * byte_fallback,
        model_type=kind,
        byte_fallback=byte_fallback,
        hard_vocab_limit=False,
        character_coverage=0.98,  # some letters are unknown
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    return file.getvalue()


def handmade(texts: str) -> SentencePieceModel:
    """A unigram model of these pieces, separated by spaces, without normalization; needs no other package."""
    pieces = [Piece("<unk>", 0.0, UNKNOWN), Piece("<s>", 0.0, CONTROL), Piece("</s>", 0.0, CONTROL)]
    pieces += [Piece(text, -1.0 - place, NORMAL) for place, text in enumerate(texts.split())]
    return from_bytes(SentencePieceModel(tuple(pieces), b"", 1, False, b"", True, True).to_bytes())


def shared(*parts: str) -> Path:
    """A file of the shared data; the test is skipped where it is not there."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


def real_lines(language: str, most: int) -> Iterator[str]:
    """Real sentences in English, German or Spanish."""
    if language == "es":
        with gzip.open(shared("tatoeba", "en-es.tsv.gz"), "rt", encoding="utf-8") as file:
            yield from islice((line.rstrip("\n").split("\t")[1] for line in file), 50_000, 50_000 + most)
        return
    with shared("multi30k", f"train.{language}").open(encoding="utf-8", newline="\n") as file:
        yield from islice((line.rstrip("\n") for line in file), most)


def marian_tokenizer(folder: Path) -> Any:
    """The tokenizer of transformers for a folder with `source.spm`, `target.spm` and `vocab.json`."""
    pytest.importorskip("sentencepiece")
    transformers = pytest.importorskip("transformers")
    return transformers.MarianTokenizer.from_pretrained(folder)
