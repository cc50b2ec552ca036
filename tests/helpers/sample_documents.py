"""Documents that several tests read: one of each type, with the markup that its reader must keep."""

import io
import zipfile
from collections.abc import Collection, Mapping
from urllib.parse import quote

NAMESPACE = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:r="r"'
KIND = "application/vnd.openxmlformats-officedocument.wordprocessingml"
TYPES = (
    f'<Types><Override PartName="/word/document.xml" ContentType="{KIND}.document.main+xml"/>'
    f'<Override PartName="/word/footnotes.xml" ContentType="{KIND}.footnotes+xml"/></Types>'
)


def body(paragraphs: str) -> str:
    return f"<w:document {NAMESPACE}><w:body>{paragraphs}</w:body></w:document>"


def run(text: str, properties: str = "") -> str:
    look = f"<w:rPr>{properties}</w:rPr>" if properties else ""
    return f'<w:r>{look}<w:t xml:space="preserve">{text}</w:t></w:r>'


def archive_of(files: Mapping[str, str | bytes], stored: Collection[str] = ()) -> bytes:
    """Return an archive of files by name. The stored ones are not compressed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            method = zipfile.ZIP_STORED if name in stored else zipfile.ZIP_DEFLATED
            file.writestr(name, content, method)
    return buffer.getvalue()


def files_of(content: bytes) -> dict[str, str]:
    """Return the files of an archive by name."""
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        return {name: file.read(name).decode() for name in file.namelist()}


def packed(paragraphs: str, extra: Mapping[str, str | bytes] | None = None) -> bytes:
    return archive_of({"[Content_Types].xml": TYPES, "word/document.xml": body(paragraphs), **(extra or {})})


_OFFICE = "application/vnd.openxmlformats-officedocument"
_SLIDES = (
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main"'
)
_SHEETS = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'


def presentation(paragraphs: str, extra: Mapping[str, str] | None = None) -> bytes:
    """Return a presentation with one slide. Other parts have the names of their types, such as `notesSlide`."""
    parts = {"presentation.main": f"<p:presentation {_SLIDES}/>", "slide": shape(paragraphs), **(extra or {})}
    types = "".join(
        f'<Override PartName="/ppt/{name}.xml" ContentType="{_OFFICE}.presentationml.{name}+xml"/>' for name in parts
    )
    return archive_of(
        {
            "[Content_Types].xml": f"<Types>{types}</Types>",
            **{f"ppt/{name}.xml": content for name, content in parts.items()},
        }
    )


def shape(paragraphs: str, properties: str = "") -> str:
    return (
        f"<p:sld {_SLIDES}><p:sp><p:nvSpPr><p:nvPr>{properties}</p:nvPr></p:nvSpPr>"
        f"<p:txBody>{paragraphs}</p:txBody></p:sp></p:sld>"
    )


def slide_run(text: str, properties: str = "") -> str:
    return f"<a:r>{properties}<a:t>{text}</a:t></a:r>"


def workbook(strings: str, sheet: str = "", extra: Mapping[str, str] | None = None, main: str = "") -> bytes:
    """Return a workbook with shared strings and one sheet."""
    parts = {
        "sheet.main": f'<workbook {_SHEETS}><sheets><sheet name="One"/></sheets>{main}</workbook>',
        "worksheet": f"<worksheet {_SHEETS}>{sheet}</worksheet>",
        "sharedStrings": f"<sst {_SHEETS}>{strings}</sst>",
        **{
            name: content.replace("<", f"<{name} {_SHEETS}><", 1) + f"</{name}>"
            for name, content in (extra or {}).items()
        },
    }
    types = "".join(
        f'<Override PartName="/xl/{name}.xml" ContentType="{_OFFICE}.spreadsheetml.{name}+xml"/>' for name in parts
    )
    return archive_of(
        {
            "[Content_Types].xml": f"<Types>{types}</Types>",
            **{f"xl/{name}.xml": content for name, content in parts.items()},
        }
    )


_ODF = "urn:oasis:names:tc:opendocument:xmlns"
ODT_TYPE = "application/vnd.oasis.opendocument.text"


def text_document(paragraphs: str, styles: str = "", extra: Mapping[str, str] | None = None) -> bytes:
    """Return a text document of OpenDocument, with automatic styles."""
    root = f'<o:document-content xmlns:o="{_ODF}:office:1.0" xmlns:text="{_ODF}:text:1.0" xmlns:d="{_ODF}:drawing:1.0">'
    content = (
        f"{root}<o:automatic-styles>{styles}</o:automatic-styles><o:body>{paragraphs}</o:body></o:document-content>"
    )
    return archive_of({"mimetype": ODT_TYPE, "content.xml": content, **(extra or {})}, stored=["mimetype"])


def page(body: str) -> str:
    """Return a page of XHTML, as books have them."""
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml">'
        f"<head><title>Title</title></head><body>{body}</body></html>"
    )


def book(files: Mapping[str, str | bytes], mimetype: str = "application/epub+zip", extra: str = "") -> bytes:
    """Return a book with pages and tables of contents (`.ncx`) in the folder of its package."""
    kinds = {"xhtml": "application/xhtml+xml", "html": "application/xhtml+xml", "ncx": "application/x-dtbncx+xml"}
    items = "".join(
        f'<item id="i{number}" href="{quote(name)}" media-type="{kinds.get(name.rpartition(".")[2], "text/css")}"/>'
        for number, name in enumerate(files)
    )
    package = f"<package><metadata><title>No</title></metadata><manifest>{items}{extra}</manifest></package>"
    return archive_of(
        {
            "mimetype": mimetype,
            "META-INF/container.xml": '<container><rootfiles><rootfile full-path="O E/a.opf"/></rootfiles></container>',
            "O E/a.opf": package,
            **{(name if name.startswith("META-INF/") else f"O E/{name}"): content for name, content in files.items()},
        },
        stored=["mimetype"],
    )


WRAPPED = """  The quick brown fox jumps over the lazy dog
  because it can, and the dog does not mind
  that.

- The first item of a list that was wrapped at
  about fifty characters.
- Another

The fox was born on the day after that, on the
3. Oktober. So:
1. number one
2) two

One line with a sentence of its own here.
Another line with a sentence of its own.
Roses are red today and the sky is so blue
Sugar is sweet today and so are all of you
"""
CUES = """\ufeff1
00:00:01,000 --> 00:00:02,000 X1:10
<i>Hello my dear
friend.</i>

2
00:00:03,000 --> 00:00:04,000
{\\an8}- Hi there.
- <b>Hello</b> you

12

13
00:00:05,000 --> 00:00:06,000
2012
"""
CAPTIONS = """WEBVTT - with a title

NOTE not this
nor this

STYLE
::cue { color: red }

id of a cue
00:01.000 --> 00:02.000 align:left
<v Bob>Tom &amp; Jerry&nbsp;go <c.red>to the</c>
market <00:01.500>today

100:00:03.000 --> 100:00:04.000
a < b --x

NOTE the end
"""
CATALOGUE = r"""# header
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#. a comment
#, fuzzy
msgid "done"
msgstr "getan"

msgctxt "menu"
msgid "Open \"%s\" now"
msgstr ""

msgid ""
"First line.\n"
"Second line.\n"
msgstr ""

msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""

#~ msgid "old"
#~ msgstr ""
"""
XLIFF1 = """<?xml version="1.0" encoding="UTF-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file source-language="en-US" datatype="plaintext" original="x"><body>
    <trans-unit id="1">
      <source>Größe &amp; <g id="1">co</g> <x id="2"/></source>
    </trans-unit>
    <trans-unit id="2"><source>kept</source><target>behalten</target></trans-unit>
    <trans-unit id="3"><source>redo</source><target state="needs-translation">redo</target></trans-unit>
    <trans-unit id="4"><source>empty</source><target/></trans-unit>
    <trans-unit id="8"><source>final</source><target state='final' ></target></trans-unit>
    <trans-unit id="5" translate="no"><source>no</source></trans-unit>
    <trans-unit id="6"><source> <bpt id="1">&lt;b></bpt>one
        two<ept id="1">&lt;/b></ept> <ph id="2">no</ph></source></trans-unit>
    <trans-unit id="7"><source>12</source></trans-unit>
  </body></file>
</xliff>
"""
XLIFF2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de">
<file id="f"><unit id="u" translate="no"><segment><source>no</source></segment></unit>
<unit id="v"><segment state="initial"><source>a <pc id="1">b</pc> <sc id="2"/>c<ec startRef="2"/> d</source></segment>
<ignorable><source> </source></ignorable><segment><source>e</source><target>kept</target></segment></unit></file>
</xliff>
"""
TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
  <tu>
    <tuv xml:lang="EN-US">
      <seg>Hello <bpt i="1">&lt;b></bpt>you<ept i="1"/> &amp; me</seg>
    </tuv>
  </tu>
  <tu><tuv xml:lang="en"><seg>kept</seg></tuv><tuv xml:lang="de-AT"><seg>behalten</seg></tuv></tu>
  <tu><tuv lang="en"><seg>empty</seg></tuv><tuv lang="de"><seg></seg></tuv></tu>
</body></tmx>
"""
HTML = """<!DOCTYPE html>
<html lang="en"><head><title>Tom &amp; co</title><meta name="description" content='A "page"'>
<meta name=viewport content="width=device-width"><script>if (a<b) write("<p>no</p>")</script></head>
<body><!-- <p>no</p> -->
<h1 id=top title=Hello>Hello&nbsp;<b>big
   <i>world</i></b></h1>
<p>AT&T <code>x = 1</code> &lt;ok&gt; <img src="a.png" alt="A dog"> end
<ul><li>one<li>two <a href="?a=1&b=2">three</a></ul>
<pre>no <b>no</b></pre><textarea>no</textarea><p translate="no">no<p>yes
"""
MARKDOWN = """---
title: no
---
# Title *here* #

Para one
with `code` and **bold
text** [link
here](http://x "no") end\x20\x20
hard\\
break ![an image](a.png "no")

> quote one
> quote **two
> three**
- item [Ref] &nbsp; a
- [ ] task

```py
no
```

| A \\| b | `c` |
|---|:-:|
| cell <b title="Hi">one</b> |  |

[ref]: http://x "No"

<div align="center">
  <b>html</b> text <img alt="Logo" src=x>
</div>

Setext
======

    no
"""
DOCX_LINK = f'<w:p>{run("see ")}<w:hyperlink r:id="1">{run("it", "<w:u/>")}</w:hyperlink></w:p>'
DOCX_FIELD = (
    f'<w:p>{run("Page ")}<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>PAGE</w:instrText></w:r>'
    f'<w:r><w:fldChar w:fldCharType="separate"/></w:r>{run("1")}<w:r><w:fldChar w:fldCharType="end"/></w:r></w:p>'
)
BOLD = '<a:rPr b="1"/>'
SLIDE = (
    f"<a:p><a:pPr/>{slide_run('One ')}{slide_run('two', BOLD)}<a:br/>{slide_run('three ')}"
    '<a:fld id="1" type="slidenum"><a:t>4</a:t></a:fld><a:endParaRPr lang="en-US"/></a:p>'
)
STRINGS = (
    '<si><t>One</t></si><si><t xml:space="preserve"> two\nthree &amp; x </t></si><si><t>No</t></si>'
    "<si><r><t>four </t></r><r><rPr><b/></rPr><t>five</t></r></si><si><t>12</t></si>"
)
CELLS = (
    '<sheetData><row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1"><v>2.5</v></c><c r="C1" t="inlineStr"><is>'
    '<t>six</t></is></c><c r="D1" t="str"><f>IF(B1&gt;0,"Yes","No")</f><v>Yes</v></c></row></sheetData>'
    '<headerFooter><oddHeader>&amp;LLeft&amp;C&amp;"Arial,Bold"&amp;12Page &amp;P of it</oddHeader></headerFooter>'
)
ODT = (
    '<text:h text:level="1">One <text:span text:style-name="T1">two</text:span></text:h>'
    "<text:p><text:s/> three<text:tab/>"
    '<text:a href="x">four</text:a><text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>five'
    "</text:p></text:note-body></text:note> <text:page-number>7</text:page-number></text:p>"
)
NCX = (
    "<ncx><docTitle><text>Book</text></docTitle><docAuthor><text>Ann</text></docAuthor><navMap><navPoint>"
    '<navLabel><text>One &amp; two</text></navLabel><content src="a%20b.xhtml"/></navPoint></navMap></ncx>'
)
WITH_MARKUP = {
    "a.html": HTML.encode(),
    "a.md": MARKDOWN.encode(),
    "a.xliff": XLIFF1.encode(),
    "b.xliff": XLIFF2.encode(),
    "a.tmx": TMX.encode(),
    "a.docx": packed(f"<w:p>{DOCX_LINK}{DOCX_FIELD}</w:p>"),
    "a.epub": book({"a b.xhtml": page("<h1>One</h1><p>two <b>three</b>&#160;<br/>four</p>"), "toc.ncx": NCX}),
    "a.odt": text_document(ODT),
    "a.pptx": presentation(SLIDE),
    "a.xlsx": workbook(STRINGS, CELLS),
}
"""Files with inline markup by name."""
