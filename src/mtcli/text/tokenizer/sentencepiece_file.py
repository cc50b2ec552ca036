"""SentencePiece model files (`source.spm`): read and written without the packages sentencepiece and protobuf.

A model file is a protobuf message. Three of its fields are read:

    1  one piece: text (1), score (2), type (3)        repeated
    2  settings of training: model type (3), byte fallback (35), …
    3  settings of normalization: character map (2), dummy prefix (3), …

Every other field is kept as it is, so that a file that was read can be written again.
"""

import base64
import binascii
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mtcli import limits
from mtcli.errors import ModelError

MAX_FILE = 64 * 2**20
"""Bytes of a model file that are read. Published models have less than 5 MB."""

MAX_PIECE = 1000
"""Bytes of the text of one piece. SentencePiece trains pieces of 16 characters at most."""

MAX_SCORE = 3e38
"""Largest score, either way. A larger one is no float32 number."""

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""The types of a piece."""

UNIGRAM, BPE, WORD, CHAR = 1, 2, 3, 4
"""The types of a model."""

VARINT, FIXED_64, DELIMITED, FIXED_32 = 0, 1, 2, 5
"""The wire types of protobuf that are in use."""

Value = int | bytes
"""A number for `VARINT`, otherwise the bytes of the value."""


@dataclass(frozen=True)
class Piece:
    """One entry of a SentencePiece vocabulary."""

    text: str
    score: float
    """Log-probability in a unigram model; minus the merge's rank in a BPE model."""
    type: int


@dataclass(frozen=True)
class SentencePieceModel:
    """The content of a model file."""

    pieces: tuple[Piece, ...]
    settings: bytes
    """All fields but the pieces, as they are in the file."""
    type: int
    """`UNIGRAM` or `BPE`."""
    byte_fallback: bool
    """Characters without a piece are written as their UTF-8 bytes."""
    character_map: bytes
    """The compiled normalization; empty: none."""
    add_dummy_prefix: bool
    """Put a space before every line."""
    remove_extra_whitespaces: bool
    """Remove spaces at the ends of a line, and all but one of several in a row."""

    @property
    def unknown(self) -> int:
        """Index of the piece that stands for text without a piece."""
        return next(index for index, piece in enumerate(self.pieces) if piece.type == UNKNOWN)

    def to_bytes(self) -> bytes:
        """Return the model file."""
        return b"".join(bytes_field(1, _piece_to_bytes(piece)) for piece in self.pieces) + self.settings

    def to_json(self) -> dict[str, Any]:
        """Return the model as JSON values."""
        pieces = [[piece.text, piece.score, piece.type] for piece in self.pieces]
        return {"pieces": pieces, "settings": base64.b64encode(self.settings).decode()}


def from_bytes(content: bytes) -> SentencePieceModel:
    """Read a model file.

    Raises:
        ModelError: It is damaged or no SentencePiece model, or of a kind that cannot be used; the message names it.
    """
    if len(content) > MAX_FILE:
        raise ModelError(f"larger than {MAX_FILE >> 20} MiB, which no SentencePiece model is")
    pieces: list[Piece] = []
    settings = bytearray()
    try:
        for number, value, raw in fields(content):
            if number != 1:
                settings += raw
            elif len(pieces) == limits.VOCABULARY.max:
                raise ValueError(f"more than {limits.VOCABULARY.max:,} pieces")
            else:
                pieces.append(_piece(_message(value)))
        return _checked(tuple(pieces), bytes(settings))
    except (ValueError, struct.error) as error:
        raise ModelError(f"not a SentencePiece model, or damaged: {error}") from None


def from_json(content: Any) -> SentencePieceModel:
    """Read what `to_json` returned.

    Raises:
        ModelError: It is something else.
    """
    try:
        settings = base64.b64decode(content["settings"], validate=True)
        pieces = tuple(_piece_of_json(entry) for entry in content["pieces"])
        return _checked(pieces, settings)
    except (ValueError, TypeError, KeyError, binascii.Error, struct.error) as error:
        raise ModelError(f"its SentencePiece model is damaged: {error}") from None


def fields(content: bytes) -> Iterator[tuple[int, Value, bytes]]:
    """Yield the fields of a protobuf message: number, value, and the bytes of the whole field.

    Raises:
        ValueError: The message is damaged, or has a field that no SentencePiece model has.
    """
    at = 0
    while at < len(content):
        start = at
        key, at = _varint(content, at)
        wire_type = key & 7
        value: Value
        if wire_type == VARINT:
            value, at = _varint(content, at)
        else:
            size, at = _size(content, at, wire_type)
            if at + size > len(content):
                raise ValueError(f"cut short at byte {len(content):,}")
            value = content[at : at + size]
            at += size
        yield key >> 3, value, content[start:at]


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Read an integer of variable length. Return it, and the position of the next value."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(content):
            raise ValueError(f"cut short at byte {len(content):,}")
        byte = content[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
    raise ValueError(f"an integer of more than 64 bits before byte {at:,}")


def _size(content: bytes, at: int, wire_type: int) -> tuple[int, int]:
    """Return the size of a value in bytes, and the position at which it begins."""
    if wire_type == DELIMITED:
        return _varint(content, at)
    if wire_type == FIXED_32:
        return 4, at
    if wire_type == FIXED_64:
        return 8, at
    raise ValueError(f"a field of wire type {wire_type} at byte {at:,}")


def _message(value: Value) -> dict[int, Value]:
    """Return the fields of a nested message by number. The last value of a repeated field counts."""
    if isinstance(value, int):
        raise ValueError("a number where a message is expected")
    return {number: inner for number, inner, _ in fields(value)}


def _piece(message: dict[int, Value]) -> Piece:
    text = message.get(1, b"")
    score = message.get(2, b"\0\0\0\0")
    kind = message.get(3, NORMAL)
    if isinstance(text, int) or isinstance(score, int) or not isinstance(kind, int):
        raise ValueError("a piece whose fields have other types")
    return Piece(text.decode("utf-8"), struct.unpack("<f", score)[0], kind)


def _piece_of_json(entry: Any) -> Piece:
    text, score, kind = entry
    if not isinstance(text, str) or not isinstance(score, float) or type(kind) is not int:
        raise ValueError("a piece is not a text, a number and a type")
    return Piece(text, score, kind)


def _piece_to_bytes(piece: Piece) -> bytes:
    """Return a piece as the protobuf library writes it: with its type only if it is not the default."""
    content = bytes_field(1, piece.text.encode("utf-8")) + bytes([2 << 3 | FIXED_32]) + struct.pack("<f", piece.score)
    if piece.type != NORMAL:
        content += bytes([3 << 3 | VARINT, piece.type])
    return content


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field of a protobuf message that holds text or another message."""
    return _varint_to_bytes(number << 3 | DELIMITED) + _varint_to_bytes(len(value)) + value


def number_field(number: int, value: int) -> bytes:
    """Return a field of a protobuf message that holds a whole number, at least 0."""
    return _varint_to_bytes(number << 3 | VARINT) + _varint_to_bytes(value)


def _varint_to_bytes(number: int) -> bytes:
    content = bytearray()
    while number > 127:
        content.append(number & 127 | 128)
        number >>= 7
    content.append(number)
    return bytes(content)


def _checked(pieces: tuple[Piece, ...], settings: bytes) -> SentencePieceModel:
    """Return the model of these pieces and settings.

    Raises:
        ValueError: No SentencePiece model has such pieces or settings.
        ModelError: `tokenizers` does not support such a model.
    """
    _check_pieces(pieces)
    others = _message(settings)
    training = _message(others.get(2, b""))
    normalization = _message(others.get(3, b""))
    _refuse_unsupported(pieces, training, normalization)
    character_map = normalization.get(2, b"")
    if isinstance(character_map, int):
        raise ValueError("a character map that is a number")
    return SentencePieceModel(
        pieces=pieces,
        settings=settings,
        type=_integer(training, 3, UNIGRAM),
        byte_fallback=bool(_integer(training, 35, 0)),
        character_map=character_map,
        add_dummy_prefix=bool(_integer(normalization, 3, 1)),
        remove_extra_whitespaces=bool(_integer(normalization, 4, 1)),
    )


def _check_pieces(pieces: tuple[Piece, ...]) -> None:
    """Check what every model has, whatever its type.

    Raises:
        ValueError: A piece is damaged, two are equal, or there is not exactly one for unknown text.
    """
    for index, piece in enumerate(pieces):
        if not piece.text or len(piece.text.encode("utf-8")) > MAX_PIECE or "\0" in piece.text:
            raise ValueError(f"piece {index} has an empty or damaged text")
        if not abs(piece.score) <= MAX_SCORE:
            raise ValueError(f"piece {index} has a score that is not a finite float32 number")
        if not NORMAL <= piece.type <= BYTE:
            raise ValueError(f"piece {index} is of the unknown type {piece.type}")
    if len({piece.text for piece in pieces}) < len(pieces):
        raise ValueError("two pieces are equal")
    unknown = sum(piece.type == UNKNOWN for piece in pieces)
    if unknown != 1:
        raise ValueError(f"{unknown} pieces for unknown text, where there is one in every model")


def _refuse_unsupported(pieces: tuple[Piece, ...], training: dict[int, Value], normalization: dict[int, Value]) -> None:
    """Refuse a model that `tokenizers` would split otherwise.

    Raises:
        ModelError: The message names what is not supported.
    """
    found = []
    model_type = _integer(training, 3, UNIGRAM)
    byte_fallback = bool(_integer(training, 35, 0))
    if model_type not in (UNIGRAM, BPE):
        names = {WORD: "word", CHAR: "char"}
        found.append(f"model type {names.get(model_type, model_type)} (unigram and bpe are)")
    if model_type == BPE and not byte_fallback:
        found.append("bpe without byte fallback")
    if _integer(training, 24, 0):
        found.append("whitespace as a suffix")
    if not _integer(normalization, 5, 1):
        found.append("whitespace that is not escaped")
    if any(piece.type == USER_DEFINED for piece in pieces):
        found.append("user-defined symbols")
    if byte_fallback and sum(piece.type == BYTE for piece in pieces) != 256:
        raise ValueError("byte fallback without the 256 pieces for bytes")
    if found:
        raise ModelError(f"a SentencePiece model that is not supported: {', '.join(found)}")


def _integer(message: dict[int, Value], number: int, default: int) -> int:
    value = message.get(number, default)
    if not isinstance(value, int):
        raise ValueError(f"field {number} of its settings is not a number")
    return value
