"""The interface between a translator and a library that searches."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from mtcli.errors import UsageError
from mtcli.storage.translation_info import TranslationInfo
from mtcli.text.languages import Direction
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.backends.exported import GIVE_THE_RUN
from mtcli.translate.translation import Candidate, Options
from mtcli.translate.windows import SourceLine

if TYPE_CHECKING:
    from mtcli.translate.alignment import Weights

T = TypeVar("T")
R = TypeVar("R")

ROW_OVERHEAD = 24
"""Tokens that take as much memory in a search as a source takes in addition to its tokens, mostly its logits."""


class Backend(ABC):
    """A model with its tokenizer, in a library that searches.

    It searches batches of sources. Everything that is equal for all libraries is in `Translator`, which calls it.
    """

    aligns = True
    """It supports the option `alignments`: `cross_attention` is implemented."""
    requires_terms = True
    """It supports hard terms."""
    reads_ahead = False
    """`map_batches` takes batches in advance, so the next window is read before the last one is translated."""

    def __init__(self, tokenizer: Tokenizer, info: TranslationInfo):
        """Initialise it.

        Args:
            tokenizer: The model's.
            info: What its file says about it.
        """
        self.tokenizer = tokenizer
        self.info = info
        self.default_options = replace(Options.of(info.decode), to=self._only_target())

    @property
    def usual_src(self) -> int:
        """Tokens that nearly all sources in training had at most; longer sentences cause a warning."""
        return self.info.longest_src if self.info.usual_src is None else self.info.usual_src

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions in which the model translates.

        A model with tags translates from its source into the language of each tag, unless its directions are known.
        """
        src = self.info.src
        with_tags = tuple(Direction(src, tag) for tag in sorted(self.tokenizer.tags) if tag != src)
        return self.info.directions or with_tags or (self.info.languages,)

    def _only_target(self) -> str:
        """Return the target language if the model has tags of several and was trained on one of them, otherwise ""."""
        targets = {direction.tgt for direction in self.info.directions}
        return targets.pop() if len(targets) == 1 and self.tokenizer.tags else ""

    def check_target(self, to: str) -> None:
        """Check that the model translates into a language that the user chose.

        Raises:
            UsageError: It does not: it has no tag for it, or was trained on other languages only.
        """
        targets = sorted({direction.tgt for direction in self.info.directions})
        if self.tokenizer.tags and targets:
            known = {self.tokenizer.tag_of(target) for target in targets}
            if not self.tokenizer.has_tag(to) or self.tokenizer.tag_of(to) not in known:
                raise UsageError(f"--to {to}: choose from {', '.join(targets)}")
        self.tokenizer.tag_of(to)

    def for_options(self, options: Options) -> "Backend":
        """Return the backend that searches with these options: this one, unless it has another for some."""
        return self

    def check(self, options: Options) -> None:
        """Check that the backend supports the options of a search.

        Raises:
            UsageError: It does not.
        """
        if options.alignments and not self.aligns:
            raise UsageError(f"--alignments: this model was exported without them; export it again, or {GIVE_THE_RUN}")

    @abstractmethod
    def max_batch_tokens(self, options: Options) -> int:
        """Return the maximum sources × tokens of one batch. `ROW_OVERHEAD` tokens are counted with each source."""

    def num_shares(self, options: Options) -> int:
        """Return the number of batches, or a part of it, into which a window is divided; 1 if cores share no work."""
        return 1

    def map_batches(self, search: Callable[[T], R], batches: Iterable[T], options: Options) -> Iterator[R]:
        """Yield the result of `search` for each batch, in order; searches may run at the same time in threads."""
        return map(search, batches)

    @abstractmethod
    def search(self, sources: Sequence[SourceLine], options: Options) -> list[list[Candidate]]:
        """Search once for translations of a batch.

        Returns:
            For each source, all hypotheses of the beam, best first, or `n_best` samples in the order of their draws.
            Several may have the same text.

        Raises:
            NotFiniteError: The model's scores are not finite numbers.
        """

    def cross_attention(self, sources: Sequence[SourceLine], targets: Sequence[Sequence[int]]) -> "Sequence[Weights]":
        """Return the cross-attention of `alignment_layer`, averaged over its heads, for each of N given pairs.

        Args:
            sources: The source of each pair.
            targets: The target ids of each pair, without `<s>` and `</s>`.

        Returns:
            The weights (T, S) of each pair, or more rows and columns, which are not used. Row t has the weights with
            which target token t was predicted.
        """
        raise NotImplementedError
