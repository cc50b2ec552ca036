"""Documents of text: wrapped paragraphs, subtitles, tables and catalogues."""

import csv
import io
import re

import pytest
from helpers.formats import OPTIONS, shout, shouted, shown
from helpers.sample_documents import CAPTIONS, CATALOGUE, CUES, WRAPPED
from hypothesis import given, settings
from hypothesis import strategies as st

from mtcli.documents.formats import encoding, po, subtitles, table
from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.formats.format import ReadOptions
from mtcli.documents.formats.plain_text import read as read_plain
from mtcli.documents.formats.plain_text import read_text
from mtcli.documents.formats.registry import check_output_name
from mtcli.documents.formats.slots import raw
from mtcli.documents.formats.subtitles import CUE_END, divided
from mtcli.documents.markup.inline import Inline, Tag, merged
from mtcli.documents.markup.wrapping import balanced, wrap
from mtcli.documents.segmentation import split_sentences
from mtcli.errors import DataError, UsageError

SRT = ReadOptions("a.srt", "en", "de")
VTT = ReadOptions("a.vtt", "en", "de")
PO = ReadOptions("a.po", "en", "de")
SPACES = " " * 100_000
B = Tag("<b>", "open")
END_B = Tag("</b>", "close")


def columns(*names: str, file: str = "a.csv") -> ReadOptions:
    return ReadOptions(file, "en", "de", names)


@pytest.mark.parametrize(
    ("name", "output"), [("a.html", "b.docx"), ("a.srt", "b.VTT"), ("a.csv", "b.tsv"), ("a.md", "b.txt")]
)
def test_an_output_with_the_suffix_of_another_type_is_refused(name: str, output: str) -> None:
    with pytest.raises(UsageError, match=f"name it b{name[1:]}"):
        check_output_name(name, output)


@pytest.mark.parametrize(
    ("name", "output"), [("a.html", "a.txt"), ("./a.html", "a.docx"), ("x/../a.html", "./a.srt"), ("a.html", "a.md")]
)
def test_the_proposed_output_is_not_the_input(name: str, output: str) -> None:
    with pytest.raises(UsageError, match=r"; name it a\.translated\.html$"):
        check_output_name(name, output)


@pytest.mark.parametrize(
    ("name", "output"),
    [("a.html", "b.HTM"), ("a.pot", "de.po"), ("a.html", "-"), ("a.html", "b.de"), ("a.txt", "b.md"), ("-", "b.html")],
)
def test_an_output_with_the_suffix_of_its_type_or_an_unknown_one_is_accepted(name: str, output: str) -> None:
    check_output_name(name, output)


# ---- plain text ----


def test_wrapped_paragraphs_are_one_segment_and_other_lines_are_kept() -> None:
    segments = [text for (text,) in read_text(EncodedText(WRAPPED)).segments]
    lasts = ["that.", "characters.", "Another", "So:", "one", "two", "here.", "own.", "blue", "you"]
    assert [text.split()[-1] for text in segments] == lasts
    assert segments[1].startswith("The first")
    assert segments[4:6] == ["number one", "two"]
    assert shouted(read_plain, WRAPPED) == WRAPPED.upper()


def test_a_list_on_one_line_keeps_the_mark_by_which_it_is_divided() -> None:
    text = "* one egg\n* two eggs * three eggs * four eggs\n"
    segments = [text for (text,) in read_text(EncodedText(text)).segments]
    assert segments == ["one egg", "* two eggs * three eggs * four eggs"]
    assert len(split_sentences(segments[1], "en")) == 3


def test_a_wrapped_paragraph_is_wrapped_at_its_width_and_indentation() -> None:
    document = read_text(EncodedText(WRAPPED))
    longer = [(f"{' '.join(str(text).split())} yes, really yes.",) for (text,) in document.segments]
    written = document.write(longer).decode()
    assert written.startswith(
        "  The quick brown fox jumps over the lazy dog\n  because it can, and the dog does not mind\n"
        "  that. yes, really yes.\n\n- The first item of a list that was wrapped at\n"
        "  about fifty characters. yes, really yes.\n- Another yes, really yes.\n"
    )


def test_a_file_with_too_many_lines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MAX_LINES", 3)
    assert shown(read_plain, "a\r\nb\nc\r") == ["a", "b", "c"]
    with pytest.raises(DataError, match=r"^file: more than 3 lines, the limit; split the file"):
        read_plain(b"a\n\r\n\n\rb", OPTIONS)
    header = b'msgid ""\nmsgstr "charset=latin-1\\n"\n\n\n'
    with pytest.raises(DataError, match="more than 3 lines"):
        po.read(header, OPTIONS)


def test_lines_break_at_spaces_and_between_chinese_characters() -> None:
    assert wrap("one two threefour", 7, 5) == ["one two", "threefour"]
    assert wrap("你好，世界。「这是」 and so", 10, 10) == ["你好，世", "界。「这", "是」 and", "so"]
    assert balanced(("one two three four",), 2) == ("one two\nthree four",)
    assert balanced(("one",), 3) == ("one",)


# ---- subtitles ----


def test_srt() -> None:
    assert shown(subtitles.read, CUES, SRT) == ["Hello my dear\nfriend.", "Hi there.", "[<b>]Hello[</b>] you"]
    found = shouted(subtitles.read, CUES, SRT)
    assert "X1:10\n<i>HELLO MY\nDEAR FRIEND.</i>\n\n2\n" in found
    assert "{\\an8}- HI THERE.\n- <b>HELLO</b> YOU\n\n12\n\n13\n" in found
    wide = subtitles.read(CUES[1:].replace("\n", "\r\n").encode("utf-16"), SRT)
    written = wide.write([shout(segment) for segment in wide.segments])
    assert written == found[1:].replace("\n", "\r\n").encode("utf-16")


def test_a_cue_keeps_its_number_of_lines() -> None:
    document = subtitles.read(CUES.encode(), SRT)
    others = document.segments[1:]
    written = document.write([("Guten Tag, mein lieber Freund.",), *others]).decode()
    assert "<i>Guten Tag, mein\nlieber Freund.</i>\n" in written


def test_vtt() -> None:
    assert shown(subtitles.read, CAPTIONS, VTT) == [
        "Tom & Jerry[&nbsp;]go [<c.red>]to the[</c>]\nmarket [<00:01.500>]today",
        "a < b --x",
    ]
    found = shouted(subtitles.read, CAPTIONS, VTT)
    assert "<v Bob>TOM &amp; JERRY&nbsp;GO <c.red>TO\nTHE</c> MARKET <00:01.500>TODAY\n" in found
    assert "A &lt; B --X\n\nNOTE the end" in found


@pytest.mark.parametrize("long", [f"one{SPACES}two", f"{SPACES}one", f"one <{'b' * 100_000}", f"one{SPACES}\ntwo"])
def test_a_cue_with_very_long_white_space_or_tags_is_read_in_linear_time(long: str) -> None:
    content = f"1\n00:00:01,000 --> 00:00:02,000\n{long}\n".encode()
    document = subtitles.read(content, SRT)
    assert document.write(document.segments) == content
    assert document.write([shout(segment) for segment in document.segments]) != content


def test_a_file_without_cues_is_refused() -> None:
    with pytest.raises(DataError, match=r"a\.srt: no subtitles"):
        subtitles.read(b"just text", SRT)
    assert shouted(subtitles.read, "WEBVTT\n", VTT) == "WEBVTT\n"
    with pytest.raises(DataError, match=r"a\.vtt: no subtitles: .*, such as 00:01\.000 --> 00:02\.000"):
        subtitles.read(b"WEBVTT\n\n00:00:01,000 --> 00:00:02,000\ntext\n", VTT)


def cues(*texts: str, pause: float = 0.5) -> str:
    """Return a .srt file whose cues have these texts, two seconds each."""
    parts = []
    for number, text in enumerate(texts):
        start = number * (2 + pause)
        times = " --> ".join(f"00:{time // 60:02.0f}:{time % 60:06.3f}" for time in (start, start + 2))
        parts.append(f"{number + 1}\n{times}\n{text}\n")
    return "\n".join(parts)


def text_of_cues(content: str) -> list[str]:
    return re.findall(r"-->.*\n((?:.+\n)*)", content)


@pytest.mark.parametrize(
    ("texts", "segments"),
    [
        (("We went to", "the old house.", "It was dark."), ["We went to [\n\n] the old house.", "It was dark."]),
        (("Hello, John,", "I am here"), ["Hello, John, [\n\n] I am here"]),
        (("<i>one</i>", "<i>two\nthree</i>"), ["one [\n\n] two\nthree"]),
        (("我喜欢，", "你知道"), ["我喜欢，[\n\n]你知道"]),
        (("MEXICO", "Where is he?"), ["MEXICO", "Where is he?"]),
        (("He said:", "no"), ["He said:", "no"]),
        (("[door opens]", "who is there?"), ["[door opens]", "who is there?"]),
        (("- one", "two"), ["one", "two"]),
        (("one", "- two\n- three"), ["one", "two", "three"]),
        (("♪ one", "two ♪"), ["♪ one", "two ♪"]),
        (("one\n\nx", "two"), ["one", "x", "two"]),
        (("one", "12", "two"), ["one", "two"]),
        (tuple("abcdefg"), list("abcdefg")),
    ],
)
def test_cues_that_are_one_sentence_are_one_segment(texts: tuple[str, ...], segments: list[str]) -> None:
    assert shown(subtitles.read, cues(*texts), SRT) == segments
    shouted(subtitles.read, cues(*texts), SRT)


def test_cues_with_a_pause_between_them_are_not_joined() -> None:
    assert len(shown(subtitles.read, cues("one", "two", pause=1.9), SRT)) == 1
    assert len(shown(subtitles.read, cues("one", "two", pause=2.1), SRT)) == 2
    hours = "9" * 5000
    times = f"{hours}:00:00.000 --> {hours}:00:01.000\none\n\n{hours}:00:01.000 --> {hours}:00:02.000\ntwo\n"
    assert len(shown(subtitles.read, f"WEBVTT\n\n{times}", VTT)) == 1


@pytest.mark.parametrize("character", [")", '"', ",", "♪", "a"])
def test_long_runs_of_one_character_in_cues_take_linear_time(character: str) -> None:
    content = cues(f"a{character * 100_000}x", f"{character * 100_000}x", "b" * 100_000).encode()
    document = subtitles.read(content, SRT)
    assert document.write(document.segments) == content
    assert document.write([shout(segment) for segment in document.segments]) != content


def test_a_sentence_is_divided_where_its_parts_are_translated() -> None:
    document = subtitles.read(cues("<i>I have seen</i>", "the big\ndog today.").encode(), SRT)
    (segment,) = document.segments
    end = segment[1]
    translation = ("Ich habe ", end, " den großen Hund heute gesehen.")
    written = document.write([translation]).decode()
    assert text_of_cues(written) == ["<i>Ich habe</i>\n", "den großen Hund\nheute gesehen.\n"]


def test_a_cue_without_text_gets_its_share_of_the_words() -> None:
    document = subtitles.read(cues("one two", "three four", "five").encode(), SRT)
    (segment,) = document.segments
    assert [part.raw for part in segment if isinstance(part, Tag)] == ["\n\n", "\n\n"]
    end = segment[1]
    b = (Tag("<b>", "open"), "zwei drei", Tag("</b>", "close"))
    found = document.write([("eins ", *b, ", vier fünf", end, end)]).decode()
    assert text_of_cues(found) == ["eins\n", "<b>zwei drei</b>, vier\n", "fünf\n"]
    assert text_of_cues(document.write([("eins ", end, end)]).decode()) == ["eins\n"] * 3


@pytest.mark.parametrize(
    ("translation", "cues_of_it"),
    [
        (("einer mit Haaren ", CUE_END, " , spielen ."), ["einer mit Haaren ,", "spielen ."]),
        (("er fragt ", CUE_END, " ?! und geht"), ["er fragt ?!", "und geht"]),
        (("你好", CUE_END, "，世界"), ["你好，", "世界"]),
        (("eins ", CUE_END, " ... und zwei"), ["eins", "... und zwei"]),
        (("eins ", CUE_END, " ,zwei"), ["eins", ",zwei"]),
        ((CUE_END, " eins , zwei"), ["eins ,", "zwei"]),
    ],
)
def test_closing_punctuation_stays_in_the_cue_of_its_word(translation: Inline, cues_of_it: list[str]) -> None:
    sources: list[Inline] = [("one with hair",), ("playing now",)]
    assert ["".join(map(str, part)) for part in divided(translation, sources)] == cues_of_it


def test_a_line_does_not_begin_with_separate_punctuation() -> None:
    assert wrap("one two , three .", 7, 7) == ["one", "two ,", "three ."]


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["aa", "b", "ccc,", " ", "你好", B, END_B, "dd-d"]), max_size=12), st.integers(2, 4))
def test_no_word_is_lost_in_the_division_of_a_sentence(parts: list[str | Tag], num_cues: int) -> None:
    opened = 0
    translation: list[str | Tag] = []
    for part in parts:
        if part == END_B and not opened:
            continue
        opened += {B: 1, END_B: -1}.get(part, 0)
        translation.append(part)
    translation += [END_B] * opened
    sources: list[Inline] = [("word",)] * num_cues
    found = divided(merged(translation), sources)
    assert len(found) == num_cues
    whole = raw(merged(translation)).split()
    joined_again = "".join("".join(raw(part).split()) for part in found)
    assert joined_again in ("".join(whole), "".join(whole) * num_cues)
    assert all(part.count(B) == part.count(END_B) for part in found)


# ---- tables ----


def test_a_table_needs_a_column() -> None:
    with pytest.raises(UsageError, match=r"a\.csv: .*--column"):
        table.read(b"a,b\nc,d\n", columns())


def test_named_columns_are_translated_and_the_other_cells_stay() -> None:
    content = 'id;"text";note\r\n1;"a ""b""\nc";"x"\r\n2;d e;y\r\n\r\n3;;"z'.replace('"z', "z")
    found = shouted(table.read, content, columns("text"))
    assert found == content.replace('a ""b""\nc', 'A ""B""\nC').replace("d e", "D E")
    assert shown(table.read, content, columns("text")) == ['a "b"', "c", "d e"]
    assert shown(table.read, content, columns("3", "text")) == ['a "b"', "c", "x", "d e", "y", "z"]
    assert shown(table.read, "a,b\nc,d\n", columns("2")) == ["b", "d"]
    with pytest.raises(UsageError, match=r"--column body: a\.csv has no such column; line 1 has 'id', 'text', 'note'"):
        table.read(content.encode(), columns("body"))
    for number in ("0", "4", "9" * 5000, "٣", "²"):
        with pytest.raises(UsageError, match="has no such column"):
            table.read(content.encode(), columns(number))


@pytest.mark.parametrize(("line", "delimiter"), [("sep=;\r\n", ";"), ("SEP=,\n", ","), ("sep=\t\r", "\t")])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_line_that_names_the_separator_stays_and_is_no_header(line: str, delimiter: str, mark: str) -> None:
    content = f'{mark}{line}id{delimiter}text\r\n1{delimiter}"a, b; c d"\r\n'
    assert shown(table.read, content, columns("text")) == ["a, b; c d"]
    assert shown(table.read, content, columns("2")) == ["text", "a, b; c d"]
    assert shouted(table.read, content, columns("text")) == content.replace("a, b; c d", "A, B; C D")
    with pytest.raises(UsageError, match=r"line 2 has 'id', 'text'"):
        table.read(content.encode(), columns("body"))


def test_only_its_line_names_the_separator() -> None:
    assert shown(table.read, "sep=;\n", columns("1")) == []
    assert shown(table.read, "sep=;x\na;b\n", columns("1")) == ["sep=", "a"]
    assert shown(table.read, "sep=;\ta\nb\tc\n", columns("1", file="a.tsv")) == ["sep=;", "b"]


def test_a_translation_with_a_delimiter_is_put_in_quotation_marks() -> None:
    document = table.read(b"a,b\nc,d\n", columns("b"))
    assert document.write([('e, "f"',)]) == b'a,b\nc,"e, ""f"""\n'
    document = table.read(b"a\tb\nc\td\n", columns("b"))  # tabs in a .csv file
    assert document.write([('"e"\tf',)]) == b'a\tb\nc\t"""e""\tf"\n'
    document = table.read(b'a\tb\nc\t"d "" e"\n', columns("a", "b", file="a.tsv"))
    assert document.segments == [("c",), ('d " e',)]
    assert document.write([("x\ty",), ('"z',)]) == b'a\tb\nx y\t"""z"\n'


def test_a_quotation_mark_that_is_not_closed_is_named() -> None:
    with pytest.raises(DataError, match=r"a\.csv:2: a cell begins with a quotation mark"):
        table.read(b'a,b\n"c,d\n', columns("a"))
    assert shown(table.read, 'a\tb\n"c\td\n', columns("a", file="a.tsv")) == ['"c']


def test_a_row_with_too_many_cells_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MAX_COLUMNS", 2)
    assert shown(table.read, "a,b\nc,d\n", columns("b")) == ["d"]
    with pytest.raises(DataError, match=r"^a\.csv:2: more than 2 cells in a row"):
        table.read(b"a,b\nc,d,e\n", columns("b"))


def test_a_cell_longer_than_the_limit_of_the_csv_module_is_read() -> None:
    limit = csv.field_size_limit(100)
    try:
        content = "text," + "x" * 200 + "\na b,c\n"
        assert shown(table.read, content, columns("text")) == ["a b"]
        assert shown(table.read, content, columns("1")) == ["text", "a b"]
    finally:
        csv.field_size_limit(limit)


CELL = st.text("ab,;\"'\n \tä", max_size=6)


@settings(max_examples=50)
@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=4), st.sampled_from(["\n", "\r\n"]))
def test_cells_are_those_of_the_csv_module(rows: list[tuple[str, str]], newline: str) -> None:
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator=newline).writerows([("one", "two"), *rows])
    content = stream.getvalue()
    found = shouted(table.read, content, columns("two"))
    expected = [["one", "two"], *([first, second.upper()] for first, second in rows)]
    assert list(csv.reader(io.StringIO(found, newline=""))) == expected


# ---- catalogues ----


def test_messages_without_a_translation_get_one() -> None:
    assert shown(po.read, CATALOGUE, PO) == ['Open "%s" now', "First line.", "Second line.", "%d file", "%d files"]
    found = shouted(po.read, CATALOGUE, PO)
    translated = re.findall(r"^(msgstr.*(?:\n\".*)*)", found, re.MULTILINE)[2:]
    assert translated == [
        r'msgstr "OPEN \"%S\" NOW"',
        'msgstr ""\n"FIRST LINE.\\n"\n"SECOND LINE.\\n"',
        'msgstr[0] "%D FILE"',
        'msgstr[1] "%D FILES"',
    ]
    assert found.endswith('#~ msgid "old"\n#~ msgstr ""\n')
    assert found.startswith(CATALOGUE[: CATALOGUE.index("msgctxt")])


def test_a_language_without_plural_gets_the_plural_message() -> None:
    assert shown(po.read, 'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\n', PO) == ["b"]


def test_a_catalogue_keeps_its_charset_and_refuses_characters_outside_of_it() -> None:
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n\n'
    content = f'{header}msgid "ä"\nmsgstr ""\n'.encode("latin-1")
    document = po.read(content, PO)
    assert document.write(document.segments) == content
    assert document.write([("ö",)]).endswith(b'msgstr "\xf6"\n')
    with pytest.raises(DataError, match=r"a\.po: its charset iso8859-1 lacks '你'; .* msgconv -t UTF-8"):
        document.write([("你",)])


@pytest.mark.parametrize(
    ("charset", "message", "expected"),
    [
        ("UTF-8", r'"caf\303\251 \xc3\xa9 \351!"', "café é \ufffd!"),
        ("UTF-8", r'"caf\303"' + "\n" + r'"\251"', "café"),
        ("ISO-8859-1", r'"caf\351 \xe9"', "café é"),
        ("UTF-8", r'"\033[1mbold\x1b[0m \?\'"', "\x1b[1mbold\x1b[0m ?'"),
    ],
)
def test_bytes_that_are_written_as_numbers_are_decoded_together(charset: str, message: str, expected: str) -> None:
    header = f'msgid ""\nmsgstr "Content-Type: text/plain; charset={charset}\\n"\n\n'
    content = f'{header}msgid {message}\nmsgstr ""\n'.encode()
    document = po.read(content, PO)
    assert document.segments == [(expected,)]
    assert document.write(document.segments) == content


def test_control_characters_are_written_as_numbers() -> None:
    document = po.read(b'msgid "a"\nmsgstr ""\n', PO)
    assert document.write([("\x1b[1m\x7f\ta",)]).endswith(rb'msgstr "\033[1m\177\ta"' + b"\n")


@pytest.mark.parametrize("charset", ["idna", "undefined", "utf-8-sig", "utf-7", "unicode_escape"])
def test_a_charset_that_is_no_encoding_of_catalogues_is_refused(charset: str) -> None:
    content = f'msgid ""\nmsgstr "Content-Type: text/plain; charset={charset}\\n"\n\nmsgid "a"\nmsgstr ""\n# \\ud800'
    with pytest.raises(DataError, match=r"a\.po: .*convert the file to UTF-8"):
        po.read(content.encode(), PO)


@pytest.mark.parametrize(
    ("content", "line"),
    [('msgid "a\nmsgstr ""\n', 1), ('msgid "a"\nmsgstr\n', 2), ('\n"b"\n', 2), ('# a\rmsgid "a"\r', 1)],
)
def test_a_broken_entry_is_named(content: str, line: int) -> None:
    with pytest.raises(DataError, match=rf"a\.po:{line}: not an entry"):
        po.read(content.encode(), PO)


def test_a_long_message_is_broken_like_those_of_gettext() -> None:
    text = "word " * 40
    document = po.read(f'msgid "{text}x"\nmsgstr ""\n'.encode(), PO)
    lines = document.write([(text.upper() + "X",)]).decode().splitlines()
    assert max(map(len, lines[2:])) <= 79
    assert "".join(line[1:-1] for line in lines[2:]) == text.upper() + "X"
