"""Put the marks of a sentence into its translation, at the places that `placement` finds."""

from collections.abc import Iterator

from mtcli.documents.markup.inline import Tag
from mtcli.documents.markup.marks import CLOSING, OPENING, Mark, Marked, Node
from mtcli.documents.markup.placement import Layout, Placed
from mtcli.documents.markup.wrapping import unspaced_at_start
from mtcli.translate.translation import Links


def reinsert(marked: Marked, translation: str, links: Links) -> list[str | Tag]:
    """Return a translation with the marks of its source.

    Args:
        marked: The source.
        translation: The translation of `marked.text`, one line.
        links: The word alignment of the two texts.
    """
    layout = Layout(marked.text, translation, links)
    return list(_emit(layout.place(marked.root, (0, len(translation))), translation))


def _emit(placed: Placed, translation: str) -> Iterator[str | Tag]:
    """Yield the text and the marks of a node, without its own tags."""
    position, end = placed.span
    previous: Node | None = None  # the point that ends here, without a space after it
    for child in placed.children:
        node = child.node
        text = translation[position : child.span[0]]
        yield text
        if node.is_point and node.opened is not None:
            space_before, space_after = _spaces_of_point(node, node.opened, translation, child.span[0])
            follows_point_and_space = previous is not None and previous.space_after and not text
            if space_before or follows_point_and_space:
                yield " "
            yield node.opened.part
            if space_after:
                yield " "
            previous = None if space_after else node
        else:
            yield from _emit_pair(child, translation)
            previous = None
        position = max(position, child.span[1])
        if node.is_joint and translation[position : position + 1] == " ":
            position += 1
    yield translation[position:end]


def _emit_pair(child: Placed, translation: str) -> Iterator[str | Tag]:
    """Yield a node with its own tags."""
    if child.node.opened is not None:
        yield child.node.opened.part
    yield from _emit(child, translation)
    if child.node.closed is not None:
        yield child.node.closed.part


def _spaces_of_point(node: Node, mark: Mark, translation: str, at: int) -> tuple[bool, bool]:
    """Return True for each side of a point where it needs a space beside its neighbor in the text."""
    is_text = not mark.is_tag
    last = translation[at - 1 : at] if at else ""
    following = translation[at : at + 1]
    return (
        _needs_space(last, OPENING, had_space=node.space_before, is_text=is_text),
        _needs_space(following, CLOSING, had_space=node.space_after, is_text=is_text),
    )


def _needs_space(neighbor: str, glued: str, *, had_space: bool, is_text: bool) -> bool:
    """Return True if a space is missing between a point and the character beside it, "" at the end of the text."""
    if not neighbor or neighbor.isspace() or neighbor in glued or unspaced_at_start(neighbor):
        return False
    return had_space or (is_text and neighbor.isalnum())
