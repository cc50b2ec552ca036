"""Keys and values that the decoder reuses in the next step of a search.

Shapes: B sentences, L hypotheses of each (1 at the start, then at most W, the beam size), N = B × L, H heads, K size of
a head, S source length, t tokens so far.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from mtcli.model.attention import KeysValues
from mtcli.model.multi_head import JointProjection
from mtcli.runtime.device import copy_to

ALIGNMENT = 16
"""Columns of a buffer are multiples of this. A full buffer is replaced by one for this many further steps.
"""


class Cache:
    """The cache of a search. The search owns it, not the model. Each step writes to it in place, without gradients.

    Keys and values of the source belong to a sentence: they are computed once and shared by its hypotheses.

    Those of the target are in preallocated buffers of (rows, H, capacity, K), in one of two layouts:

    - If `share_rows`, the L hypotheses of a sentence share a row, and each step appends L columns to it. A mask selects
      the columns that belong to a hypothesis and its ancestors. Where the beams are reordered, only the mask changes.
    - Otherwise each hypothesis has its own row, and each step appends one column. Where the beams are reordered, the
      rows are copied.

    Attention over a shared row computes L times as many products as are used. So it is for narrow beams.
    """

    def __init__(
        self,
        memory: Sequence[KeysValues],
        mask: Tensor,
        projections: Sequence[JointProjection],
        *,
        share_rows: bool = False,
    ):
        """Initialise the cache before the first step.

        Args:
            memory: Keys and values of the source, for each layer: (B, H, S, K).
            mask: 0, or −∞ at padding of the source, (B, 1, 1, S).
            projections: W^Q, W^K and W^V of the self-attention of each layer, which a search joins once.
            share_rows: The layout.
        """
        self.memory = list(memory)
        self.mask = mask
        self.projections = tuple(projections)
        self.share_rows = share_rows
        self.length = 0
        """The number of tokens decoded so far, t."""
        self.width = 0
        """The number of columns in use."""
        self._new_buffers: list[Tensor] = []  # keys and values in turn, of the layers that do not have theirs yet
        self._own: list[KeysValues] = []  # (rows, H, capacity, K) of each layer; empty before the first step
        self._ancestors: Tensor | None = None  # mask of shared rows, 0 or −∞, (B, 1, L, at least `width`)

    @property
    def own(self) -> list[KeysValues]:
        """Keys and values of the tokens so far, for each layer: (rows, H, columns, K). Empty before the first step."""
        return [(keys[:, :, : self.width], values[:, :, : self.width]) for keys, values in self._own]

    @property
    def own_mask(self) -> Tensor | None:
        """The mask of `own`, 0 or −∞, (B, 1, L, columns); None if each hypothesis attends to its whole row."""
        return None if self._ancestors is None else self._ancestors[..., : self.width]

    def rows(self, y: Tensor) -> Tensor:
        """Arrange the input of a step (B, L, D) as rows of the buffers: (B, L, D) if shared, otherwise (N, 1, D)."""
        return y if self.share_rows else y.flatten(0, 1).unsqueeze(1)

    def add_columns(self, num_hypotheses: int) -> None:
        """Begin a step with L hypotheses of each sentence: count their token, and extend the mask of shared rows."""
        self.length += 1
        if not self.share_rows:
            self.width += 1
            return
        first = self.width
        self.width += num_hypotheses
        if self._ancestors is None:
            self._ancestors = self.mask.new_empty(self.mask.size(0), 1, num_hypotheses, 0)
        if self._ancestors.size(-1) < self.width:
            new_columns = _aligned(first + ALIGNMENT * num_hypotheses) - self._ancestors.size(-1)
            self._ancestors = F.pad(self._ancestors, (0, new_columns), value=-torch.inf)
        self._ancestors[..., first : self.width].diagonal(dim1=-2, dim2=-1).zero_()

    def write(self, layer: int, k: Tensor, v: Tensor) -> KeysValues:
        """Write the last columns of a layer, (rows, H, 1 or L, K), and return all its columns."""
        if layer == len(self._own):
            self._own.append((k[:, :, :0], v[:, :, :0]))
        first = self.width - k.size(2)
        keys, values = self._own[layer]
        if keys.size(2) < self.width:
            if layer == 0:
                capacity = _aligned(first + ALIGNMENT * k.size(2))
                shapes = [(*x.shape[:2], capacity, x.size(3)) for x in (k, v)]
                self._new_buffers = _one_block(k, shapes * len(self.memory))
            keys = _copied(keys, first, self._new_buffers.pop(0))
            values = _copied(values, first, self._new_buffers.pop(0))
            self._own[layer] = (keys, values)
        keys.narrow(2, first, k.size(2)).copy_(k)
        values.narrow(2, first, v.size(2)).copy_(v)
        return keys[:, :, : self.width], values[:, :, : self.width]

    def select(self, parents: Tensor | None, sentences: npt.NDArray[np.int64] | None = None) -> None:
        """Reorder the hypotheses of the sentences, and remove sentences.

        Sentences that keep their place are not copied.

        Args:
            parents: The hypothesis that each new hypothesis continues, from 0 to L − 1 in its sentence, (B′, L′). None:
                each sentence has one hypothesis.
            sentences: On the host: the sentence that takes each place, as an index into B, (B′,). None: all stay.
        """
        if parents is not None and not self.share_rows:
            self._reorder_rows(parents, sentences)
        if sentences is not None:
            self._keep(sentences, self.share_rows or parents is None)
        if parents is not None and self._ancestors is not None:
            columns = self._ancestors.size(3)
            self._ancestors = self._ancestors.gather(2, parents[:, None, :, None].expand(-1, -1, -1, columns))

    def _reorder_rows(self, parents: Tensor, sentences: npt.NDArray[np.int64] | None) -> None:
        """Copy the rows of the parents, where each hypothesis has its own row."""
        B = self.mask.size(0)
        if sentences is None:
            sentences = np.arange(B)
        hypotheses_of_each = self._own[0][0].size(0) // B
        first_rows = copy_to(parents.device, torch.from_numpy(hypotheses_of_each * sentences))
        rows = (first_rows[:, None] + parents).flatten()
        for layer, (keys, values) in enumerate(self._own):
            self._own[layer] = (keys.index_select(0, rows), values.index_select(0, rows))

    def _keep(self, sentences: npt.NDArray[np.int64], with_own: bool) -> None:
        """Keep the given sentences in `memory`, in the masks and, if `with_own`, in the rows of the target."""
        device = self.mask.device
        kept = len(sentences)
        places = np.flatnonzero(sentences != np.arange(kept))
        moves = Moves(
            kept, copy_to(device, torch.from_numpy(places)), copy_to(device, torch.from_numpy(sentences[places]))
        )
        self.mask = moves.applied(self.mask)
        self.memory = [(moves.applied(keys), moves.applied(values)) for keys, values in self.memory]
        if self._ancestors is not None:
            self._ancestors = moves.applied(self._ancestors)
        if with_own:
            self._own = [(moves.applied(k, self.width), moves.applied(v, self.width)) for k, v in self._own]


class Moves(NamedTuple):
    """Rows that are moved to the places of others."""

    kept: int
    """The number of rows that stay."""
    places: Tensor
    """The places that are taken by other rows."""
    rows: Tensor
    """The rows that take them."""

    def applied(self, x: Tensor, columns: int | None = None) -> Tensor:
        """Move rows of `x` in place, its first `columns` in dimension 2 or all, and return the rows that stay."""
        if len(self.places):
            used = x if columns is None else x[:, :, :columns]
            used.index_copy_(0, self.places, used.index_select(0, self.rows))
        return x[: self.kept]


def _aligned(width: int) -> int:
    """Round up to a multiple of `ALIGNMENT`."""
    return ALIGNMENT * math.ceil(width / ALIGNMENT)


def _one_block(like: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Return uninitialised tensors in one block of memory, of the type and on the device of `like`.

    glibc returns a large block to the system as soon as it is free. Buffers of each layer left gaps between them, which
    the next batch could not use.
    """
    sizes = [math.prod(shape) for shape in shapes]
    parts = torch.split(like.new_empty(sum(sizes)), sizes)
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _copied(x: Tensor, width: int, buffer: Tensor) -> Tensor:
    """Copy `width` columns of keys or values to `buffer`."""
    buffer[:, :, :width] = x[:, :, :width]
    return buffer
