"""Books in EPUB."""

import io
import zipfile
from dataclasses import replace

import pytest
from helpers.formats import OPTIONS, shout, shown
from helpers.sample_documents import NCX, archive_of, book, files_of, page

from mtcli.documents.formats import archive
from mtcli.documents.formats.epub import read, structure
from mtcli.documents.formats.registry import read_document
from mtcli.errors import DataError

NAME = replace(OPTIONS, name="a.epub")


def shouted(content: bytes) -> dict[str, str]:
    """Return the files of a book in upper case that differ, after a check of the identity and of the structure."""
    document = read(content, NAME)
    assert document.write(document.segments) == content
    written = document.write([shout(segment) for segment in document.segments])
    assert structure(written, NAME) == structure(content, NAME)
    before = files_of(content)
    after = files_of(written)
    assert list(after) == list(before)
    return {name: text for name, text in after.items() if text != before[name]}


def test_pages_and_tables_of_contents_are_translated() -> None:
    first = page("<h1>One</h1><p>two <b>three</b>&#160;<br/>four<script/> five</p>")
    content = book({"a b.xhtml": first, "toc.ncx": NCX, "b.css": "p {color: red}", "c/nav.html": page("<li>six</li>")})
    segments = ["Title", "One", "two [<b>]three[</b>][&#160;][<br/>]four", "five", "Book", "One & two", "Title", "six"]
    assert shown(read, content, NAME) == segments
    assert shouted(content) == {
        "O E/a b.xhtml": first.replace("Title", "TITLE")
        .replace("One", "ONE")
        .replace("two", "TWO")
        .replace("three", "THREE")
        .replace("four", "FOUR")
        .replace("five", "FIVE"),
        "O E/toc.ncx": NCX.replace("Book", "BOOK").replace("One &amp; two", "ONE &amp; TWO"),
        "O E/c/nav.html": page("<li>SIX</li>").replace("Title", "TITLE"),
    }


def test_the_type_of_the_book_comes_first_and_is_not_compressed() -> None:
    content = book({"a.xhtml": page("<p>one</p>")})
    document = read(content, NAME)
    written = document.write([shout(segment) for segment in document.segments])
    assert written[:58] == content[:58]
    assert written[30:58] == b"mimetypeapplication/epub+zip"
    with zipfile.ZipFile(io.BytesIO(written)) as file:
        methods = [(info.filename, info.compress_type) for info in file.infolist()]
    assert methods[0] == ("mimetype", zipfile.ZIP_STORED)
    assert {method for _, method in methods[1:]} == {zipfile.ZIP_DEFLATED}


def test_a_page_without_a_declaration_is_xhtml_too() -> None:
    content = book({"a.html": '<html><body><p>one <a id="x"/>two</p><script/><p>three</p></body></html>'})
    assert shown(read, content, NAME) == ['one [<a id="x"/>]two', "three"]


def test_elements_in_a_label_of_the_table_of_contents_are_tags() -> None:
    text = "<text>The <tt>lb</tt> <![CDATA[a & b]]></text>"
    label = f"<ncx><navMap><navPoint><navLabel>{text}</navLabel></navPoint></navMap></ncx>"
    content = book({"toc.ncx": label})
    assert shown(read, content, NAME) == ["The [<tt>]lb[</tt>] a & b"]
    assert list(shouted(content).values()) == [
        label.replace("The", "THE").replace("lb", "LB").replace("<![CDATA[a & b]]>", "A &amp; B")
    ]
    ((the, *_),) = read(content, NAME).segments
    assert read_document(content, NAME).write([(the,)]) == content


def test_a_translation_that_changes_the_tags_is_not_written(caplog: pytest.LogCaptureFixture) -> None:
    document = read_document(book({"a.xhtml": page("<p>one <b>two</b></p><p>three</p>")}), NAME)
    title, (one, opening, two, _), three = document.segments
    written = document.write([title, (one, opening, two), shout(three)])
    assert page("<p>one <b>two</b></p><p>THREE</p>") in files_of(written).values()
    assert "1 paragraph keeps its text" in caplog.text


def encrypted(path: str) -> str:
    return (
        '<encryption xmlns:e="e"><e:EncryptedData><e:CipherData>'
        f'<e:CipherReference URI="{path}"/></e:CipherData></e:EncryptedData></encryption>'
    )


def test_a_book_with_encrypted_fonts_is_read() -> None:
    files = {"a.xhtml": page("<p>one</p>"), "META-INF/encryption.xml": encrypted("O%20E/font.otf")}
    assert shown(read, book(files), NAME) == ["Title", "one"]


A_PAGE = {"a.xhtml": page("<p>one</p>")}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (book(A_PAGE | {"META-INF/encryption.xml": encrypted("O%20E/a.xhtml")}), r"a\.xhtml' is encrypted \(DRM\)"),
        (book(A_PAGE, mimetype="application/zip"), "not a book in EPUB: its type is application/zip"),
        (archive_of({"mimetype": "application/epub+zip"}), r"its archive has no META-INF/container\.xml"),
        (
            archive_of({"META-INF/container.xml": "<c><rootfiles><rootfile full-path='x'/></rootfiles></c>"}),
            "its archive has no 'x'",
        ),
        (book(A_PAGE | {"../x": "x"}), "path out of the archive"),
        (book(A_PAGE | {"big": b"\0" * 20_000_000}), "bomb"),
        (book(A_PAGE | {"a.ncx": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}), "declares the entity"),
        (book(A_PAGE)[:-30], "damaged"),
    ],
    ids=["DRM", "type", "no container", "no package", "path", "bomb", "entity", "damaged"],
)
def test_unsafe_and_encrypted_books_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(content, NAME)


def test_a_page_out_of_the_archive_is_ignored() -> None:
    extra = '<item id="x" href="../../../etc/passwd" media-type="application/xhtml+xml"/>'
    assert shown(read, book(A_PAGE, extra=extra), NAME) == ["Title", "one"]


def test_a_book_with_too_much_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtcli.documents.formats.epub.PART_BYTES", 500)
    with pytest.raises(DataError, match="of text, the limit is 0; split the book"):
        read(book({"a.xhtml": page("<p>one</p>" * 30), "b.xhtml": page("<p>one</p>" * 30)}), NAME)
    monkeypatch.setattr(archive, "MAX_ENTRIES", 2)
    with pytest.raises(DataError, match="files in the archive"):
        read(book(A_PAGE), NAME)
