"""TMX: translation units that lack the target language get it."""

from collections.abc import Iterator, Sequence
from functools import partial

from mtcli.documents.formats.bilingual import BilingualUnit, fill, insert_after, is_filled, language_tag, make_unit
from mtcli.documents.formats.format import Document, ReadOptions
from mtcli.documents.formats.items import Item
from mtcli.documents.formats.slots import Edit, SlotDocument
from mtcli.documents.formats.structure import tree_structure
from mtcli.documents.formats.xml_markup import at_path, indentation, inside, parse_xml, tag_name
from mtcli.errors import DataError
from mtcli.text import languages
from mtcli.text.safe_xml import Element


def read(content: bytes, options: ReadOptions) -> Document:
    """Read a TMX file.

    Raises:
        DataError: The file is not well-formed or not TMX, declares entities, or lacks the source language.
    """
    source, root = parse_xml(content, options.name)
    if root.name != "tmx":
        raise DataError(f"{options.name}: not TMX: its outermost element is <{root.name}>")
    entries = list(at_path(root, "body", "tu"))
    found = {language for entry in entries for language, _ in _variants(entry)}
    if entries and not any(_is_language(language, options.src) for language in found):
        listed = ", ".join(sorted(found)[:10]) or "none"
        raise DataError(f"{options.name}: no text in {options.src!r}; its languages are {listed}")
    units = (_unit(source.text, entry, options) for entry in entries)
    return SlotDocument(source, [unit for unit in units if unit])


def structure(content: bytes, options: ReadOptions) -> int:
    """Return a hash of all elements but the target variants, see `format.Structure`."""
    _, root = parse_xml(content, options.name)

    def is_target(element: Element) -> bool:
        return element.name == "tuv" and _is_language(element.attributes.get("lang", ""), options.tgt)

    return tree_structure(root, without=is_target)


def _variants(entry: Element) -> Iterator[tuple[str, Element]]:
    """Yield the languages of a translation unit."""
    for variant in entry.elements("tuv"):
        yield variant.attributes.get("lang", ""), variant


def _is_language(name: str, code: str) -> bool:
    """Return True for the same language, with or without the same region."""
    known = languages.base(name)
    return name.lower() == code.lower() or (known is not None and known == languages.base(code))


def _find(entry: Element, code: str) -> Element | None:
    """Return the variant in a language: the one with the same code, otherwise the first one of the language."""
    variants = [(name, variant) for name, variant in _variants(entry) if _is_language(name, code)]
    exact = [variant for name, variant in variants if languages.same(name, code)]
    return exact[0] if exact else next((variant for _, variant in variants), None)


def _unit(text: str, entry: Element, options: ReadOptions) -> BilingualUnit | None:
    source = _find(entry, options.src)
    target = _find(entry, options.tgt)
    segment = next(source.elements("seg"), None) if source else None
    if source is None or segment is None:
        return None
    if target is None:
        return make_unit(text, segment, _classify, partial(_insert, text, source, segment, options.tgt))
    target_segment = next(target.elements("seg"), None)
    if target_segment is None or is_filled(text, target_segment):
        return None
    return make_unit(text, segment, _classify, partial(_fill, text, target_segment))


def _fill(text: str, segment: Element, content: str, _: float | None) -> Sequence[Edit]:
    """Return the edits that write a translation into an empty segment."""
    return [fill(text, segment, text[segment.start : inside(text, segment)[0]], content)]


def _insert(text: str, source: Element, segment: Element, code: str, content: str, _: float | None) -> Sequence[Edit]:
    """Return the edits that add a translation after its source, with the same indentation."""
    variant_name = tag_name(text, source)
    segment_name = tag_name(text, segment)
    inner = (
        f"{indentation(text, segment.start)}<{segment_name}>{content}</{segment_name}>{indentation(text, source.close)}"
    )
    variant = f'<{variant_name} xml:lang="{language_tag(code)}">{inner}</{variant_name}>'
    return [insert_after(text, source, variant)]


def _classify(element: Element, start: int, end: int) -> Item | None:
    """Return the item of an inline element of TMX, see `xml_markup.Classify`."""
    if element.name == "hi":
        return None
    if element.name == "bpt":
        return Item(start, end, "open", name=element.attributes.get("i", ""))
    if element.name == "ept":
        return Item(start, end, "close", name=element.attributes.get("i", ""))
    return Item(start, end, "point", word=True)
