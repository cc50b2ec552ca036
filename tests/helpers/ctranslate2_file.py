"""Read the weights of a model file of CTranslate2, which the package itself cannot return."""

import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

VERSION = 2
"""The version of the binary format that is read: without aliases, and with the item size in place of a type."""


class _Reader:
    """Reads little-endian values from bytes."""

    def __init__(self, content: bytes):
        self.content = content
        self.position = 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        start = self.position
        self.position += size
        assert self.position <= len(self.content), "the file is cut short"
        return self.content[start : self.position]

    def numbers(self, kind: str, count: int) -> tuple[int, ...]:
        """Whole numbers: of one byte (B), of two bytes (H) or of four (I)."""
        form = f"<{count}{kind}"
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def number(self, kind: str) -> int:
        """One whole number."""
        (number,) = self.numbers(kind, 1)
        return number

    def text(self) -> str:
        """A string: its length, its bytes and a NUL, which the length includes."""
        return self.take(self.number("H")).removesuffix(b"\0").decode("utf-8")


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the float32 variables of a `model.bin` by name, such as `encoder/layer_0/ffn/linear_0/weight`.

    The file has: version, name and revision of the specification, number of variables, and for each variable its name,
    its shape, the bytes of one item, the number of items, and the items.
    """
    reader = _Reader(path.read_bytes())
    assert reader.number("I") == VERSION
    assert reader.text() == "TransformerBase"
    reader.number("I")  # the revision of the specification
    weights = {}
    for _ in range(reader.number("I")):
        name = reader.text()
        shape = reader.numbers("I", reader.number("B"))
        item_size = reader.number("B")
        assert item_size == 4, f"{name} is not float32"
        items = reader.take(item_size * reader.number("I"))
        weights[name] = torch.from_numpy(np.frombuffer(items, dtype="<f4").reshape(shape).copy())
    assert reader.position == len(reader.content)
    return weights
