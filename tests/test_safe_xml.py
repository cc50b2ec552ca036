import io

import pytest

from mtcli.errors import DataError
from mtcli.text import safe_xml
from mtcli.text.safe_xml import MAX_DEPTH, decode_xml, iterate_elements, read_xml

TREE = b'<r xml:lang="en"><tu a="1">x<g>y</g> &amp; z</tu><empty/><tu/></r>'

UNSAFE = {
    "internal entity": b'<!DOCTYPE a [<!ENTITY lol "ha">]><a>&lol;</a>',
    "entity of entities": b'<!DOCTYPE a [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;">]><a>&b;</a>',
    "external entity": b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
    "parameter entity": b'<!DOCTYPE a [<!ENTITY % p SYSTEM "http://localhost/x"> %p;]><a/>',
}
BROKEN = {
    "mismatched tag": b"<a><b></a>",
    "empty file": b"",
    "NUL": b"<a>\x00</a>",
    "depth": b"<a>" * (MAX_DEPTH + 1),
    "unfinished": b"<a>text",
}


def both_readers(content: bytes) -> None:
    with pytest.raises(DataError, match=r"^file\.xml"):
        read_xml(content.decode(), "file.xml")
    with pytest.raises(DataError, match=r"^file\.xml"):
        list(iterate_elements(io.BytesIO(content), "file.xml", {"a"}))


@pytest.mark.parametrize("content", UNSAFE.values(), ids=UNSAFE.keys())
def test_entities_are_refused_where_they_are_declared(content: bytes) -> None:
    both_readers(content)
    with pytest.raises(DataError, match="declares the entity"):
        read_xml(content.decode(), "file.xml")


@pytest.mark.parametrize("default", ['"AAA"', '#FIXED "AAA"', '""'])
def test_an_attribute_with_a_default_is_refused_where_it_is_declared(default: str) -> None:
    both_readers(f"<!DOCTYPE a [<!ATTLIST a x CDATA {default}>]><a/>".encode())
    with pytest.raises(DataError, match="line 2: the XML declares a default of the attribute 'x'"):
        read_xml(f"<!DOCTYPE a [\n<!ATTLIST a x CDATA {default}>]><a/>", "file.xml")


def test_an_attribute_without_a_default_may_be_declared() -> None:
    content = "<!DOCTYPE a [<!ELEMENT a ANY><!ATTLIST a x CDATA #IMPLIED y (b|c) #REQUIRED>]><a y='b'/>"
    assert read_xml(content, "file.xml").attributes == {"y": "b"}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_broken_xml_is_an_error_with_a_place(content: bytes) -> None:
    both_readers(content)


def test_a_tree_with_too_many_elements_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_xml, "MAX_ELEMENTS", 3)
    assert len(list(read_xml("<r><a/><a/></r>", "file.xml").elements())) == 2
    with pytest.raises(DataError, match=r"^file\.xml: more than 3 elements"):
        read_xml("<r><a/><a/><a/></r>", "file.xml")
    assert len(list(iterate_elements(io.BytesIO(b"<r><a/><a/><a/></r>"), "file.xml", {"a"}))) == 3


def test_a_tree_has_the_places_of_its_elements() -> None:
    text = "\ufeff<!-- größer -->" + TREE.decode()
    root = read_xml(text, "file.xml")
    first, empty, _ = root.elements()
    assert root.attributes == {"lang": "en"}
    assert first.text() == "xy & z"
    assert text[first.start : first.close] == '<tu a="1">x<g>y</g> &amp; z'
    assert text[empty.start : empty.close] == "<empty/>"
    assert [element.name for element in root.elements("tu")] == ["tu", "tu"]


def test_streaming_keeps_only_the_wanted_elements() -> None:
    found = list(iterate_elements(io.BytesIO(TREE), "file.xml", {"tu"}))
    assert [element.text() for element in found] == ["xy & z", ""]
    assert found[0].parent is not None
    assert found[0].parent.attributes == {"lang": "en"}
    assert found[0].parent.children == []


def test_a_document_type_is_ignored_and_its_entities_are_read_as_in_html() -> None:
    content = b'<!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx>a&nbsp;b</tmx>'
    assert read_xml(content.decode(), "file.tmx").text() == "a\xa0b"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1"])
def test_the_encoding_is_the_declared_one(encoding: str) -> None:
    content = f"<?xml version='1.0' encoding='{encoding.removesuffix('-sig')}'?><a>é</a>".encode(encoding)
    text, found = decode_xml(content, "file.xml")
    assert "é" in text
    assert text.encode(found) == content


@pytest.mark.parametrize("content", [b"<a>\xff</a>", b"<?xml version='1.0' encoding='klingon'?><a/>"])
def test_bytes_that_are_not_in_the_encoding_are_an_error(content: bytes) -> None:
    with pytest.raises(DataError, match=r"file.xml: .*convert the file to UTF-8"):
        decode_xml(content, "file.xml")
