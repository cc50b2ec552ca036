"""Write a tokenizer as one SentencePiece model, and check that it splits and joins text in the same way.

SentencePiece merges the pair of neighbors whose concatenation has the best score. Our byte-pair encoding merges the
pair that was learned first, so the score of a token is minus the rank of its merge. SentencePiece does not split text
into words first, and accepts every way to make a token of two others. On real text this is nearly always the same;
`check` compares the two on the text at hand. Text that is not NFC, or that contains a ▁, is split differently.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from mtcli.errors import UsageError
from mtcli.text.special_tokens import PAD
from mtcli.text.tokenizer.sentencepiece import SPACE
from mtcli.text.tokenizer.sentencepiece_file import (
    BPE,
    BYTE,
    CONTROL,
    NORMAL,
    UNKNOWN,
    Piece,
    SentencePieceModel,
    bytes_field,
    number_field,
)
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.text.tokenizer.vocabulary_file import RESERVED, SPECIALS

NO_WORDS = "tokenizer.type = word: SentencePiece has no tokens for whole words with a fallback to characters"
"""The reason why a tokenizer of the type `word` cannot be written."""

MAX_SHOWN = 80
"""Characters of a line that a message shows."""


def obstacles(tokenizer: Tokenizer) -> list[str]:
    """Return the properties of a tokenizer that one SentencePiece model cannot have, each with the reason."""
    found = []
    if tokenizer.kind == "word":
        found.append(NO_WORDS)
    tokens = tokenizer.src_vocabulary + tokenizer.tgt_vocabulary
    if tokenizer.sentencepiece is None and any(SPACE in token for token in tokens):
        found.append(f"a token contains {SPACE}, which SentencePiece reads as a space")
    if tokenizer.sentencepiece and tokenizer.tags:
        found.append("it is an imported model with several target languages, whose directions are not known")
    if tokenizer.sentencepiece:
        src, tgt = tokenizer.sentencepiece
        if src.model.byte_fallback != tgt.model.byte_fallback:
            found.append("only one of its two SentencePiece models has byte fallback")
    return found


def to_sentencepiece(tokenizer: Tokenizer) -> bytes:
    """Return the file of a SentencePiece model that encodes the source and decodes the target.

    An imported model has such a file for each side; this is the one of the source. It decodes a token that it does not
    have to the token's own text, so it also decodes the target.

    Args:
        tokenizer: A tokenizer without `obstacles`.
    """
    if tokenizer.sentencepiece:
        return tokenizer.sentencepiece[0].model.to_bytes()
    pieces = tuple(_pieces(tokenizer))
    model = SentencePieceModel(
        pieces=pieces,
        settings=_settings(len(pieces)),
        type=BPE,
        byte_fallback=True,
        character_map=b"",
        add_dummy_prefix=True,
        remove_extra_whitespaces=False,
    )
    return model.to_bytes()


def _pieces(tokenizer: Tokenizer) -> Iterator[Piece]:
    """Yield the source vocabulary. SentencePiece requires a piece for unknown text; here it is `<pad>`, never used."""
    tags = frozenset(tokenizer.tags.values())
    merges = tokenizer.src_merges
    rank: dict[str, int] = {}
    for position, (left, right) in enumerate(merges):
        rank.setdefault(left + right, position)
    for index, token in enumerate(tokenizer.src_vocabulary):
        if index == PAD:
            yield Piece(token, 0.0, UNKNOWN)
        elif index < len(SPECIALS):
            yield Piece(token, 0.0, CONTROL)
        elif index < len(RESERVED):
            yield Piece(token, 0.0, BYTE)
        elif index in tags:
            yield Piece(token, 0.0, CONTROL)
        else:
            yield Piece(token.replace(" ", SPACE), -float(rank.get(token, len(merges) + index)), NORMAL)


def _settings(size: int) -> bytes:
    """Return the settings of training and normalization: BPE, byte fallback, our special tokens, unchanged text."""
    training = [
        number_field(3, BPE),
        number_field(4, size),
        number_field(35, 1),  # byte fallback
        number_field(40, 0),  # ids of the unknown token, <s> and </s>; -1: no padding token
        number_field(41, 1),
        number_field(42, 2),
        number_field(43, 2**64 - 1),
        bytes_field(45, SPECIALS[0].encode()),
        bytes_field(46, SPECIALS[1].encode()),
        bytes_field(47, SPECIALS[2].encode()),
        bytes_field(48, b"<unused>"),
    ]
    normalization = [
        bytes_field(1, b"identity"),
        number_field(3, 1),  # a space before every line
        number_field(4, 0),  # keep all spaces
        number_field(5, 1),  # write a space as ▁
    ]
    return bytes_field(2, b"".join(training)) + bytes_field(3, b"".join(normalization))


def processor(model: bytes) -> Any:
    """Return the model as the sentencepiece package reads it.

    Raises:
        UsageError: The package is not installed.
    """
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        raise UsageError("sentencepiece is not installed; install it with `pip install sentencepiece`") from None
    return SentencePieceProcessor(model_proto=model)


def join(native: Any, tokens: Sequence[str]) -> str:
    """Return the text of target tokens, as Argos Translate joins them: without a space at its start.

    Argos Translate also replaces `_` by a space, which is not done here.

    Args:
        native: What `processor` returned.
        tokens: Target tokens, with ▁ for a space.
    """
    text: str = native.decode_pieces(list(tokens)).replace(SPACE, " ")
    return text.removeprefix(" ")


def check(model: bytes, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]) -> None:
    """Check that a SentencePiece model splits every source and joins every target as our tokenizer does.

    A space at the start of a target is ignored, because Argos Translate removes it.

    Args:
        model: The file of the SentencePiece model.
        tokenizer: Ours.
        pairs: Sentence pairs.

    Raises:
        UsageError: It does not, or the sentencepiece package is not installed.
    """
    native = processor(model)
    known = set(tokenizer.src_vocabulary)
    sources = [src for src, _ in pairs]
    for number, (line, ids) in enumerate(zip(sources, tokenizer.encode_src(sources), strict=True), 1):
        ours = tokenizer.src_tokens(ids)
        found = native.encode(line, out_type=str)
        if tokenizer.unknown is not None:
            unknown = tokenizer.src_vocabulary[tokenizer.unknown]
            found = [token if token in known else unknown for token in found]
        if found != ours:
            raise UsageError(_difference("splits", "source", number, len(pairs), line))
    rows = tokenizer.encode_tgt([tgt for _, tgt in pairs])
    for number, (row, text) in enumerate(zip(rows, tokenizer.decode(rows), strict=True), 1):
        kept = [i for i in row if i != tokenizer.unknown]  # CTranslate2 replaces <unk> by a token of the source
        if join(native, tokenizer.tgt_tokens(kept)) != text.removeprefix(" "):
            raise UsageError(_difference("joins", "target", number, len(pairs), text))


def _difference(verb: str, side: str, number: int, total: int, line: str) -> str:
    shown = line if len(line) <= MAX_SHOWN else f"{line[:MAX_SHOWN]}…"
    return f"SentencePiece {verb} {side} sentence {number:,} of {total:,} differently than mtcli: {shown!r}"
