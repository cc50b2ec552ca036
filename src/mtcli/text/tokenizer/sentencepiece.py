"""Text to ids and back with the SentencePiece models of an imported model, through `tokenizers` alone.

A Marian model has two SentencePiece models, one for each side, and one vocabulary for both. A line is split into the
pieces of its side's model, and the vocabulary gives each piece its id. Unlike the other kinds of tokenizer, this one
has a token `<unk>`: unless the SentencePiece models have byte fallback, a character without a piece becomes `<unk>`,
and its text is lost.

A multilingual model has a token such as `>>fra<<` for each target language, which a source line begins with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from tokenizers import Regex, models, normalizers
from tokenizers import Tokenizer as NativeTokenizer

from mtcli import limits
from mtcli.errors import ModelError
from mtcli.text.tokenizer import sentencepiece_file
from mtcli.text.tokenizer.sentencepiece_file import NORMAL, UNIGRAM, SentencePieceModel
from mtcli.text.tokenizer.vocabulary_file import call_native, encode_lines, tokens_like

UNKNOWN_TOKEN = "<unk>"
START_NAMES = ("<s>", "<start>")
"""Names for the token that a translation starts with; the first one that the vocabulary does not have is used."""

SPACE = "▁"
"""The character by which SentencePiece represents a space."""

TAG = re.compile(">>([^<>]+)<<")
BYTE_NAME = re.compile("<0x([0-9A-F]{2})>")
NUM_SPECIALS = 3


@dataclass(frozen=True)
class MarianVocabulary:
    """The vocabulary of a Marian model with `<pad>`, a start token and `</s>` put first, where mtcli has them.

    Marian starts a translation with `<pad>`. mtcli never reads padding, so it starts with a token of its own, a copy.
    """

    tokens: tuple[str, ...]
    """By id: `<pad>`, the start token, `</s>`, then the others in the order of the origin."""
    pad: int
    """Id of `<pad>` in the origin's vocabulary."""
    eos: int
    """Id of `</s>` in the origin's vocabulary."""

    @classmethod
    def of(cls, vocab: dict[str, int], pad: int, eos: int) -> MarianVocabulary:
        """Reorder the vocabulary of a `vocab.json`.

        Raises:
            ModelError: Its ids are not 0, 1, 2, …, `pad` or `eos` is not one of them, or it has no `<unk>`.
        """
        names = sorted(vocab, key=vocab.__getitem__)
        if [vocab[name] for name in names] != list(range(len(names))):
            raise ModelError("its ids are not 0, 1, 2, …")
        if pad == eos or not (0 <= pad < len(names) and 0 <= eos < len(names)):
            raise ModelError(f"it has {len(names):,} tokens; <pad> ({pad}) and </s> ({eos}) must be two of them")
        start = next((name for name in START_NAMES if name not in vocab), None)
        if start is None:
            raise ModelError(f"it has all of the tokens {', '.join(START_NAMES)}, one of which mtcli needs")
        others = [name for index, name in enumerate(names) if index not in (pad, eos)]
        return cls((names[pad], start, names[eos], *others), pad, eos)

    def __post_init__(self) -> None:
        if len(self.tokens) > limits.VOCABULARY.max:
            raise ModelError(f"more than {int(limits.VOCABULARY.max):,} tokens")
        if len(set(self.tokens)) < len(self.tokens) or "" in self.tokens:
            raise ModelError("a token of its vocabulary is empty or there twice")
        try:
            "".join(self.tokens).encode()
        except UnicodeEncodeError:
            raise ModelError("a token of its vocabulary is not valid Unicode") from None
        last = len(self.tokens) - 2
        if self.pad == self.eos or not (0 <= self.pad <= last and 0 <= self.eos <= last):
            raise ModelError("its <pad> and </s> are not two ids of the origin's vocabulary")
        if UNKNOWN_TOKEN not in self.tokens[NUM_SPECIALS:]:
            raise ModelError(f"its vocabulary has no token {UNKNOWN_TOKEN}")

    @cached_property
    def origin_ids(self) -> tuple[int, ...]:
        """For each id of mtcli, the id in the origin's vocabulary; the start token has that of `<pad>`."""
        others = (i for i in range(len(self.tokens) - 1) if i not in (self.pad, self.eos))
        return (self.pad, self.pad, self.eos, *others)

    def to_json(self) -> dict[str, Any]:
        """Return the vocabulary as JSON values."""
        return {"tokens": list(self.tokens), "pad": self.pad, "eos": self.eos}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> MarianVocabulary:
        """Read what `to_json` returned.

        Raises:
            ModelError: It is something else.
        """
        tokens = content.get("tokens")
        pad = content.get("pad")
        eos = content.get("eos")
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise ModelError("its tokens are not a list of texts")
        if type(pad) is not int or type(eos) is not int:
            raise ModelError("its pad and eos are not two ids")
        return cls(tuple(tokens), pad, eos)


class SentencePieceSide:
    """The SentencePiece model of one side, with the vocabulary of both."""

    kind = "sentencepiece"

    def __init__(self, model: SentencePieceModel, vocabulary: MarianVocabulary):
        self.model = model
        self.vocabulary = vocabulary
        self.tokens: list[str] = list(vocabulary.tokens)
        self._id_of = {token: i for i, token in enumerate(self.tokens)}
        self.unknown = self._id_of[UNKNOWN_TOKEN]
        names_of_bytes = tokens_like(BYTE_NAME, self.tokens) if model.byte_fallback else {}
        self.byte_of = {i: int(name, 16) for name, i in names_of_bytes.items()}
        self.tags = tokens_like(TAG, self.tokens)
        self._content = [token.encode("utf-8") for token in self.tokens]
        """What each token stands for, by id."""
        self._content[self.unknown] = b""
        for i, byte in self.byte_of.items():
            self._content[i] = bytes([byte])
        self._native: NativeTokenizer = call_native(lambda: _native_tokenizer(model))
        self._unknown_piece = model.unknown
        self._id_of_piece = [
            self.unknown if index == self._unknown_piece else self._id_of.get(piece.text, self.unknown)
            for index, piece in enumerate(model.pieces)
        ]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of lines. A tag such as `>>fra<<` at the start of a line is one id."""
        tagged = [self._split_tag(text) for text in texts]
        lines = [line for _, line in tagged]
        rows = []
        for (tag, line), encoding in zip(tagged, encode_lines(self._native, lines), strict=True):
            pieces = encoding.ids
            if self._unknown_piece in pieces:
                rows.append(tag + self._encode_with_unknown(line))
            else:
                rows.append(tag + [self._id_of_piece[piece] for piece in pieces])
        return rows

    def _split_tag(self, text: str) -> tuple[list[int], str]:
        """Return the id of the tag that a line begins with, if the vocabulary has it, and the rest of the line."""
        match = TAG.match(text)
        if match is None or match[1] not in self.tags:
            return [], text
        return [self.tags[match[1]]], text[match.end() :]

    def _encode_with_unknown(self, line: str) -> list[int]:
        """Return the ids of a line with text that has no piece; `encode_batch_fast` does not return that text."""
        encoding = call_native(lambda: self._native.encode(line, add_special_tokens=False))
        ids: list[int] = []
        for piece, surface in zip(encoding.ids, encoding.tokens, strict=True):
            if piece == self._unknown_piece:
                ids += self._ids_of_unknown(surface)
            else:
                ids.append(self._id_of_piece[piece])
        return ids

    def _ids_of_unknown(self, surface: str) -> list[int]:
        """Return the ids of text without a piece: its bytes, or a token of the other side, or `<unk>`."""
        if self.model.byte_fallback:
            return [self._id_of.get(f"<0x{byte:02X}>", self.unknown) for byte in surface.encode("utf-8")]
        return [self._id_of.get(surface, self.unknown)]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Decode ids to lines. Special tokens and `<unk>` are dropped, as in transformers; invalid UTF-8 is U+FFFD."""
        lines = (b"".join(self._content[i] for i in row if i >= NUM_SPECIALS) for row in rows)
        return [line.decode("utf-8", errors="replace").replace(SPACE, " ").strip() for line in lines]

    def split(self, text: str) -> list[int]:
        """Return the ids of the pieces that form a text, without those that the vocabulary does not have."""
        model = self._native.model
        pieces = call_native(lambda: model.tokenize(text.replace(" ", SPACE)), [text])
        ids = [self._id_of_piece[piece.id] for piece in pieces]
        return [i for i in ids if i != self.unknown]


def _native_tokenizer(model: SentencePieceModel) -> NativeTokenizer:
    """Return a tokenizer of the library `tokenizers` that splits text as the model does. Ids are indices of pieces."""
    native = NativeTokenizer(_unigram(model) if model.type == UNIGRAM else _bpe(model))
    steps: list[Any] = []
    if model.character_map:
        steps.append(normalizers.Precompiled(model.character_map))
    if model.remove_extra_whitespaces:
        steps.append(normalizers.Replace(Regex(r"\A +| +\z"), ""))
        steps.append(normalizers.Replace(Regex(" {2,}"), " "))
    steps.append(normalizers.Replace(" ", SPACE))
    if model.add_dummy_prefix:
        steps.append(normalizers.Prepend(SPACE))
    native.normalizer = normalizers.Sequence(steps)
    return native


def _unigram(model: SentencePieceModel) -> models.Unigram:
    """Return a unigram model of the pieces and their scores.

    Pieces that text must not match, such as control symbols, get a NUL before their text. So do the pieces for bytes,
    which would match a literal `<0x41>`; `SentencePieceSide` does the byte fallback.
    """
    vocab = [(piece.text if piece.type == NORMAL else f"\0{piece.text}", piece.score) for piece in model.pieces]
    return models.Unigram(vocab, model.unknown, byte_fallback=False)


def _bpe(model: SentencePieceModel) -> models.BPE:
    """Return a BPE model of the pieces. Its merges are all pairs of pieces that form another one, best score first."""
    ids = {piece.text: index for index, piece in enumerate(model.pieces)}
    normal = {piece.text: index for index, piece in enumerate(model.pieces) if piece.type == NORMAL}
    ordered = sorted((text for text in normal if len(text) > 1), key=lambda text: -model.pieces[normal[text]].score)
    merges = list(chain.from_iterable(_splits(text, normal) for text in ordered))
    unknown = model.pieces[model.unknown].text
    return models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=model.byte_fallback)


def _splits(text: str, normal: dict[str, int]) -> list[tuple[str, str]]:
    """Return the pairs of pieces whose concatenation is this piece, in the order of their ids."""
    pairs = [(text[:at], text[at:]) for at in range(1, len(text))]
    found = [pair for pair in pairs if pair[0] in normal and pair[1] in normal]
    return sorted(found, key=lambda pair: (normal[pair[0]], normal[pair[1]]))


def sides_from_json(content: dict[str, Any]) -> tuple[SentencePieceSide, SentencePieceSide]:
    """Return the source and the target side that `sides_to_json` wrote.

    Raises:
        ModelError: It wrote something else.
    """
    if set(content) != {"format", "tokens", "pad", "eos", "src", "tgt"}:
        raise ModelError("not a tokenizer: a sentencepiece tokenizer has tokens, pad, eos, src and tgt")
    vocabulary = MarianVocabulary.from_json(content)
    src, tgt = (SentencePieceSide(sentencepiece_file.from_json(content[side]), vocabulary) for side in ("src", "tgt"))
    return src, tgt


def sides_to_json(src: SentencePieceSide, tgt: SentencePieceSide) -> dict[str, Any]:
    """Return both sides as JSON values, without the key `format`."""
    return {**src.vocabulary.to_json(), "src": src.model.to_json(), "tgt": tgt.model.to_json()}
