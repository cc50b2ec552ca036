"""The model that a run starts from, as far as the data of the run depends on it: its languages and its tokenizer.

A model of the same languages is fine-tuned, with its tokenizer. A model of other languages is the parent of a child
that has a tokenizer of its own, which `tokenizer.transfer` chooses.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from mtcli.config.schema import Config, Transfer
from mtcli.errors import UsageError
from mtcli.text.languages import Direction, are_different, same
from mtcli.text.lines import Pair
from mtcli.text.tokenizer.learning import extend
from mtcli.text.tokenizer.matching import Matched, Origin, match
from mtcli.text.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Parent:
    """A model that a run starts from."""

    tokenizer: Tokenizer
    weights: str
    """Checksum of its weights."""
    src: str
    """Language code of its source."""
    tgt: str
    directions: tuple[Direction, ...] = ()
    """Its directions, if it was trained on several."""

    def has_child(self, config: Config) -> bool:
        """Return True if this training makes a child of the model, False if it fine-tunes the model."""
        is_of_other_languages = not all(map(self.translates, config.data.directions))
        return is_of_other_languages or config.tokenizer.transfer in ("extend", "new")

    def translates(self, direction: Direction) -> bool:
        """Return True if the model translates in a direction."""
        if self.directions:
            return any(same(src, direction.src) and same(tgt, direction.tgt) for src, tgt in self.directions)
        return not are_different(self.src, direction.src) and self._is_target(direction.tgt)

    def choice(self, config: Config) -> Transfer:
        """Return how a child gets its tokenizer; never `auto`.

        Args:
            config: The configuration of the child. Its tokenizer is of the kind of the parent's unless the user gives
                another kind.

        Raises:
            UsageError: The parent's tokenizer cannot be used in the given way.
        """
        settings = config.tokenizer
        is_alike = (settings.type, settings.joint) == (self.tokenizer.kind, self.tokenizer.joint)
        chosen = settings.transfer
        if chosen == "auto":
            if is_alike and self.tokenizer.kind == "bpe":
                return "extend"
            return "keep" if is_alike and self.tokenizer.sentencepiece else "new"
        if chosen == "extend" and self.tokenizer.kind != "bpe":
            raise UsageError(
                f"tokenizer.transfer = extend: only a bpe vocabulary can be extended, and the model has a "
                f"{self.tokenizer.kind} vocabulary; choose keep or new"
            )
        if chosen != "new" and not is_alike:
            sort = f"{'joint' if self.tokenizer.joint else 'separate'} {self.tokenizer.kind}"
            raise UsageError(
                f"tokenizer.transfer = {chosen}: the model has a {sort} vocabulary; omit tokenizer.type and "
                "tokenizer.joint, or choose new"
            )
        return chosen

    def side_of(self, language: str) -> int | None:
        """Return the side that has a language: 0 for the source, 1 for the target, None if neither has it."""
        if self.directions:
            return next((side for side in (0, 1) if any(same(own[side], language) for own in self.directions)), None)
        if not are_different(self.src, language):
            return 0
        return 1 if self._is_target(language) else None

    def _is_target(self, language: str) -> bool:
        """Return True if a model that was not trained on several directions translates into a language."""
        return any(not are_different(own, language) for own in (self.tgt, *self.tokenizer.tags))

    def matching_sides(self, src: str, tgt: str) -> tuple[int, int]:
        """Return the side that each side of a child resembles: that of its language, otherwise the same side."""
        own_src = self.side_of(src)
        own_tgt = self.side_of(tgt)
        return (0 if own_src is None else own_src, 1 if own_tgt is None else own_tgt)


@dataclass(frozen=True)
class TakenOver:
    """What a child took from its parent."""

    parent: str
    """SHA-256 of the parent's tokenizer."""
    src: str
    """Language code of the parent's source."""
    tgt: str
    choice: str
    """How the child got its tokenizer: a value of `tokenizer.transfer`, or `file` for `tokenizer.file`."""
    src_tokens: Matched
    tgt_tokens: Matched

    @classmethod
    def of(cls, parent: Parent, tokenizer: Tokenizer, config: Config) -> "TakenOver":
        """Compare the tokenizer of a child with that of its parent."""
        src, tgt = origins(parent, tokenizer, config.data.src, config.data.tgt)
        choice = "file" if config.tokenizer.file else parent.choice(config)
        return cls(parent.tokenizer.digest(), parent.src, parent.tgt, choice, Matched.of(src), Matched.of(tgt))

    def __str__(self) -> str:
        if self.src_tokens == self.tgt_tokens:
            return f"{self.tgt_tokens}"
        return f"source {self.src_tokens}; target {self.tgt_tokens}"


def child_tokenizer(parent: Parent, config: Config, read: Callable[[], Iterable[tuple[Direction, Pair]]]) -> Tokenizer:
    """Return the parent's vocabularies for the sides of a child, if it has no new ones.

    With `tokenizer.transfer = extend`, they are extended by the tokens of the languages that the parent does not have,
    and by the tags of target languages, if the parent has tags or the child several target languages.

    Args:
        parent: The parent.
        config: The configuration of the child.
        read: Reads its training pairs with their direction.
    """
    old = parent.tokenizer
    data = config.data
    languages = [list(dict.fromkeys(direction[number] for direction in data.directions)) for number in (0, 1)]
    new = [[code for code in codes if parent.side_of(code) is None] for codes in languages]
    sides = [old.sides[number] for number in parent.matching_sides(data.src, data.tgt)]
    tags: list[str] = []
    if old.tags or len(languages[1]) > 1:
        tags = [language for language in languages[1] if not any(same(tag, language) for tag in sides[0].tags)]
    if parent.choice(config) == "keep" or not (any(new) or tags):
        return Tokenizer(*sides)
    size = config.tokenizer.vocab_size

    def texts(*numbers: int) -> Iterator[str]:
        return (pair[side] for direction, pair in read() for side in numbers if direction[side] in new[side])

    if old.joint:
        side = extend(sides[0], texts(0, 1), size, tags)
        return Tokenizer(side, side)
    for number in (0, 1):
        if new[number] or (tags and number == 0):
            sides[number] = extend(sides[number], texts(number), size, tags if number == 0 else ())
    return Tokenizer(*sides)


def origins(parent: Parent, tokenizer: Tokenizer, src: str, tgt: str) -> tuple[list[Origin], list[Origin]]:
    """Return which tokens of the parent each source and each target token of a child starts from.

    Args:
        parent: The model that the child starts from.
        tokenizer: The child's.
        src, tgt: The child's languages.
    """
    found = []
    for side, own in zip(tokenizer.sides, parent.matching_sides(src, tgt), strict=True):
        numbers = [own]
        if tokenizer.joint and not parent.tokenizer.joint:
            numbers.append(1 - own)  # the one vocabulary of the child has the words of both sides
        matched = match(side, [parent.tokenizer.sides[number] for number in numbers])
        found.append([origin._replace(side=numbers[origin.side]) for origin in matched])
    return found[0], found[1]
