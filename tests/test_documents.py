"""Documents: sentences, the pipeline, and the choice of the reader."""

import logging
import re
import sys
from pathlib import Path

import pytest
from helpers.documents import READ, ByRule, capitals, identity, tokenizer, translate_bytes, translate_text
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sentencex import segment
from typer.testing import CliRunner, Result

from mtcli.cli import app
from mtcli.documents import pipeline, segmentation
from mtcli.documents.formats.format import ReadOptions
from mtcli.documents.formats.registry import CONVERSION_HINTS, MODULES, PACKAGES, is_document, read_document
from mtcli.documents.lines import BySentence
from mtcli.documents.markup.inline import Inline, Tag, merged, text_of
from mtcli.documents.markup.marks import pieces_of
from mtcli.documents.pipeline import translate_file, translate_segments
from mtcli.documents.segmentation import split_long, split_marks, split_segment, split_sentences
from mtcli.errors import DataError, UsageError
from mtcli.text.languages import Direction
from mtcli.translate.loading import LoadedModel
from mtcli.translate.translation import Options
from mtcli.translate.windows import MAX_LINE_TOKENS, Reading

OPTIONS = Options(beam_size=1)
BOLD = Tag("<b>", "open")
END = Tag("</b>", "close")
BREAK = Tag("<br>")
LANGUAGES = ("en", "de", "zh", "xx")


def num_tokens(text: str) -> int:
    return len(tokenizer().encode_src([text])[0])


# ---- sentences ----


@settings(max_examples=50)
@given(st.text(max_size=80), st.sampled_from(LANGUAGES))
@example("A.\u00a0B. Smith\u2028x", "en")
@example("见\u3000。A.\u00a0B! ", "zh")
def test_sentences_concatenate_to_the_text(text: str, language: str) -> None:
    assert "".join(split_sentences(text, language)) == text
    assert "".join(map(text_of, split_long((text,), len, 7))) == text


@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        (("Hi you. ", BOLD, "Go.", END, " No."), [("Hi you. ",), (BOLD, "Go.", END, " "), ("No.",)]),
        ((BOLD, "Hi you. Go.", END), [(BOLD, "Hi you. "), ("Go.", END)]),
        (("Hi you. ", BREAK, "Go."), [("Hi you. ",), (BREAK, "Go.")]),
        ((BOLD, "Hi you. ", END, BOLD, END, "Go."), [(BOLD, "Hi you. ", END), (BOLD, END, "Go.")]),
        (("Go.", BREAK), [("Go.", BREAK)]),
        ((BREAK,), [(BREAK,)]),
    ],
)
def test_tags_stay_with_their_sentence(segment: Inline, expected: list[Inline]) -> None:
    assert split_segment(segment, "en") == expected


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("A man cooks.She eats.", "en", ["A man cooks.", "She eats."]),
        ("Yes!I know?No.", "en", ["Yes!", "I know?", "No."]),
        ("Он пришёл.Она ушла.", "ru", ["Он пришёл.", "Она ушла."]),
        ("Mr.Smith met Prof.Jones.", "en", ["Mr.Smith met Prof.Jones."]),
        ("java.lang.String and ASP.NET, e.g.The", "en", ["java.lang.String and ASP.NET, e.g.The"]),
        ("see www.page.com.Now", "en", ["see www.page.com.Now"]),
        ("one • two • three", "en", ["one ", "• two ", "• three"]),
        ("* one * two", "en", ["* one ", "* two"]),
        ("2 * 3 * 4", "en", ["2 * 3 * 4"]),
    ],
)
def test_sentences_without_a_space_and_items_on_a_line_are_divided(
    text: str, language: str, expected: list[str]
) -> None:
    assert split_sentences(text, language) == expected


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("(SUSPIRA) Estoy cansado.", "es", ["(SUSPIRA) ", "Estoy cansado."]),
        ("Hello! [music playing] How are you?", "en", ["Hello! ", "[music playing] ", "How are you?"]),
        ("- (laughs) That is funny.", "en", ["- (laughs) ", "That is funny."]),
        ("JUAN: Estoy aquí. ANA PAZ: Yo no.", "es", ["JUAN: ", "Estoy aquí. ", "ANA PAZ: ", "Yo no."]),
        ("(lacht) Das ist gut.", "de", ["(lacht) Das ist gut."]),  # `(alte) Häuser` looks like it
        ("(very) big dogs", "en", ["(very) big dogs"]),
        ("[He] went home.", "en", ["[He] went home."]),
        ("[b] Bold. [/b]", "en", ["[b] Bold. ", "[/b]"]),
        ("Note: do not touch.", "en", ["Note: do not touch."]),
    ],
)
def test_labels_before_speech_are_sentences(text: str, language: str, expected: list[str]) -> None:
    assert split_sentences(text, language) == expected


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("1. One 2. Two words 3. Three", "en", ["1. ", "One ", "2. ", "Two words ", "3. ", "Three"]),
        ("1) Uno 2) Dos", "es", ["1) ", "Uno ", "2) ", "Dos"]),
        ("a) uno b) dos", "es", ["a) uno ", "b) dos"]),
        ("ja!nein?vielleicht", "de", ["ja!", "nein?", "vielleicht"]),
        ("hola.¿qué tal?¿bien?", "es", ["hola.", "¿qué tal?", "¿bien?"]),
        ("(One.) (Two.)", "en", ["(One.) ", "(Two.)"]),
    ],
)
def test_numbered_items_and_marks_without_a_space_divide(text: str, language: str, expected: list[str]) -> None:
    assert split_sentences(text, language) == expected


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Im 19. Jahrhundert begann der 2. Weltkrieg nicht.", "de"),
        ("M. Dupont et J.-P. Martin voient le Dr. House.", "fr"),
        ("Llegó a las 5 p.m. y vio a Dña. Ana en EE.UU. con J. Pérez.", "es"),
        ("Spotkali Dr. Nowaka i J. Kowalskiego.", "pl"),
        ("Che réra J. Pérez.", "gn"),
    ],
)
def test_abbreviations_and_ordinals_end_no_sentence(text: str, language: str) -> None:
    assert split_sentences(text, language) == [text]


def test_a_year_a_unit_and_an_abbreviation_of_time_end_a_sentence() -> None:
    assert split_sentences("It is 5 mm. Then go.", "en") == ["It is 5 mm. ", "Then go."]
    assert split_sentences("Das war 1990. Dann kam er.", "de") == ["Das war 1990. ", "Dann kam er."]
    assert split_sentences("He came at 5 p.m. She left.", "en") == ["He came at 5 p.m. ", "She left."]


def test_a_forgotten_space_is_written_between_two_translations() -> None:
    """Without it, two words met, or `vino.De` was taken for a host, whose loss gave the source back."""
    answers = {
        "She came.": "Ella vino.",
        "Of course.": "De acuerdo.",
        "red house.": "casa roja",
        "Blue sun.": "sol azul",
    }
    translator = ByRule(answers.__getitem__)
    found = BySentence(translator, "en", "es").translate(
        ["She came.Of course.", "red house.Blue sun."], OPTIONS, Reading(warn=False, quiet=True)
    )
    assert [translation.text for translation in found] == ["Ella vino. De acuerdo.", "casa roja Sol azul"]


def test_a_long_sentence_is_split_at_clause_marks_then_at_spaces() -> None:
    sentence = "We saw 1,000 cats: red ones, big ones; and no dogs"
    parts = [text_of(part) for part in split_long((sentence,), lambda text: len(text.split()), 4)]
    assert parts == ["We saw 1,000 cats:", " red ones,", " big ones;", " and no dogs"]
    words = split_long(("a b c d e",), lambda text: len(text.split()), 2)
    assert [text_of(part) for part in words] == ["a b ", "c ", "d e"]
    assert split_long(("abc",), len, 1) == [("abc",)]
    chinese = split_long(("我看见了猫，狗；和鸟",), len, 6)
    assert [text_of(part) for part in chinese] == ["我看见了猫，", "狗；和鸟"]


def test_a_text_without_spaces_is_split_before_the_translator_would_cut_it() -> None:
    text = "x" * 5000
    translator = capitals(longest_src=10)
    assert translate_text(f"a {text}, b", translator, OPTIONS, src="en") == f"A {text.upper()}, B"
    assert max(map(num_tokens, translator.lines)) <= MAX_LINE_TOKENS
    thai = split_long(("สวัสดีครับ",), len, 6)
    assert [text_of(part) for part in thai] == ["สวัสด", "ีครับ"]


def test_a_sentence_longer_than_training_is_translated_in_parts_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    text = "one two three, one two three, one two three."
    translator = capitals(longest_src=num_tokens(text) // 2)
    with caplog.at_level(logging.WARNING):
        assert translate_text(text, translator, OPTIONS, src="en") == text.upper()
    assert len(translator.lines) > 1
    assert "more tokens than any in training" in caplog.text
    assert "one two three" in caplog.text


# ---- the pipeline ----


@settings(max_examples=50)
@given(st.text(max_size=60), st.sampled_from(LANGUAGES))
@example("A b.\r\n\r\nC d\x85e.\u2029 F\n", "en")
@example("`A¼?", "en")
def test_an_identity_model_returns_the_text(text: str, language: str) -> None:
    assert translate_text(text, identity(), OPTIONS, src=language) == text
    assert translate_text(text, identity(longest_src=3), OPTIONS, src=language) == text


def test_a_long_paragraph_is_read_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "One two three. Four five! " * 20
    expected = split_sentences(text, "en")
    assert len(expected) == 40
    monkeypatch.setattr(segmentation, "WINDOW", 50)
    assert split_sentences(text, "en") == expected
    assert split_sentences("x" * 120, "en") == ["x" * 50, "x" * 50, "x" * 20]
    assert split_sentences("many words " * 9, "en") == ["many words " * 4 + "many ", "words many " * 4 + "words "]


def test_no_part_is_longer_than_what_a_translator_reads() -> None:
    """A model that was trained on longer lines once lost the end of a sentence."""
    text = "many words " * MAX_LINE_TOKENS
    parts = split_long((text,), len, len(text) + 2)
    assert "".join(map(text_of, parts)) == text
    assert max(len(text_of(part)) for part in parts) <= MAX_LINE_TOKENS


def test_a_text_of_quotation_marks_is_read_in_small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of sentencex grows with the square of the number of quotation marks."""
    windows = []

    def recorded(language: str, window: str) -> list[str]:
        windows.append(window)
        found: list[str] = segment(language, window)
        return found

    monkeypatch.setattr("sentencex.segment", recorded)
    text = "‚「‚)…» " * 20_000
    assert "".join(split_sentences(text, "hi")) == text
    assert max(sum(character in "‚「»" for character in window) for window in windows) == segmentation.MAX_QUOTES
    assert sum(map(len, windows)) <= 2 * len(text)


def test_prose_with_much_speech_is_read_in_large_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "“I can't,” she said to him. “You won't come?” he asked again. " * 1_000
    expected = split_sentences(text, "en")
    monkeypatch.setattr(segmentation, "MAX_QUOTES", len(text))
    assert split_sentences(text, "en") == expected
    assert len(expected) >= 2_000


def test_a_million_quotation_marks_end() -> None:
    """Each of several searches once took quadratic time, which is hours."""
    text = '"' * 1_000_000
    assert "".join(split_sentences(text, "en")) == text


TEXT_OR_TAG = st.one_of(st.text(max_size=8), st.sampled_from(["A b. ", "C!\n", BOLD, END, BREAK]))


@settings(max_examples=50)
@given(st.lists(TEXT_OR_TAG, max_size=8))
def test_sentences_of_markup_concatenate_to_the_segment(parts: list[str | Tag]) -> None:
    segment = merged(parts)
    sentences = split_segment(segment, "en")
    assert merged(part for sentence in sentences for part in sentence) == segment


def test_soft_hyphens_do_not_divide_words() -> None:
    translator = capitals()
    assert (
        translate_text("A Donau\xaddampf\xadschiff.\n1\xad2", translator, OPTIONS, src="de")
        == "A DONAUDAMPFSCHIFF.\n1\xad2"
    )
    assert translator.lines == ["A Donaudampfschiff."]
    assert translate_text("one\xadtwo", identity(), OPTIONS, src="en") == "one\xadtwo"


def test_a_space_at_the_end_of_a_tag_and_of_a_sentence_stays() -> None:
    page = "<p>One <b>two. </b>Three four.</p>"
    translator = capitals()
    translator.aligns = False
    translated = translate_bytes(page.encode(), ReadOptions("a.html", "en", "de"), translator, Options())
    assert translated.decode() == "<p>ONE <b>TWO.</b> THREE FOUR.</p>"


def test_tabs_between_words_stay() -> None:
    translator = capitals()
    text = "One two. &Save\tCtrl+S\n\tname \t \tvalue\t\n"
    assert translate_text(text, translator, OPTIONS, src="en") == text.upper()
    assert sorted(translator.lines) == ["&Save", "Ctrl+S", "One two.", "name", "value"]
    wrapped = "A line that is wrapped at a width of over forty\n\tcells, after which it goes on.\n"
    assert translate_text(wrapped, translator, OPTIONS, src="en") == wrapped.upper()
    assert translator.lines[-1] == wrapped.replace("\n\t", " ").strip()


def test_a_segment_is_translated_sentence_by_sentence_and_keeps_its_spaces() -> None:
    translator = capitals()
    text = "  One two.  Three\nfour?\tYes!\n\n\nNo. \n"
    assert translate_text(text, translator, OPTIONS, src="en") == text.upper()
    segments = [("an ox\n  can. Do it.",), (), ("",), (" \n",), ("f",)]
    found = translate_segments(segments, translator, OPTIONS, src="en")
    assert [segment.content() for segment in found] == [
        ("AN OX CAN. DO IT.",),
        (),
        ("",),
        (" \n",),
        ("F",),
    ]
    assert translator.lines[-3:] == ["an ox can.", "Do it.", "f"]


def test_a_sentence_with_a_thousand_nested_tags_is_translated() -> None:
    page = f"<p>One{' <b>two' * 1000}{'</b>' * 1000}.</p>"
    translator = capitals(200)
    translator.aligns = False
    translated = translate_bytes(page.encode(), ReadOptions("a.html", "en", "de"), translator, Options())
    assert translated.decode() == page.replace("One", "ONE").replace("two", "TWO")


@pytest.mark.parametrize("partner", ["</b>", ""])
def test_a_sentence_with_a_thousand_nested_tags_that_are_text_is_translated(partner: str) -> None:
    text = "<b>" * 1000 + "one" + partner * 1000
    assert translate_text(text, capitals(), OPTIONS, src="en") == text.replace("one", "ONE")


@pytest.mark.parametrize("mark", ["<b>", "</b>", "%s ", "😀"])
def test_few_marks_are_placed_together(mark: str) -> None:
    """The time to place them grows with the square of their number."""
    sentence: Inline = (f"{mark}x" * 5, BOLD, f"{mark}x" * 2 * segmentation.MAX_MARKS, END)
    parts = split_marks(sentence)
    assert merged(piece for part in parts for piece in part) == sentence
    num_marks = [sum(isinstance(piece, Tag) for piece in pieces_of(part)) for part in parts]
    assert num_marks == [segmentation.MAX_MARKS, segmentation.MAX_MARKS, 7]


def test_a_sentence_with_many_tags_that_are_text_is_translated_in_parts() -> None:
    translator = capitals()
    translator.aligns = False
    text = "<b>x" * 450
    assert translate_text(text, translator, OPTIONS, src="en") == "<b>X" * 450
    assert len(translator.lines) == 3


def test_sentences_get_or_lose_their_space_as_the_target_language_writes_it() -> None:
    to_english = ByRule({"你好。": "Hello.", "再见！": "Bye!"}.__getitem__)
    assert translate_text("你好。再见！", to_english, OPTIONS, src="zh") == "Hello. Bye!"
    to_chinese = ByRule({"Hello.": "你好。", "Bye!": "再见！"}.__getitem__)
    assert translate_text("Hello. Bye!", to_chinese, OPTIONS, src="en") == "你好。再见！"


def test_translations_that_repeat_themselves_cause_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        translate_text("One. Two.", ByRule(lambda line: "ein wort " * 9), OPTIONS, src="en")
    assert "2 translations repeat themselves (in wort ein wort ein wort" in caplog.text


def test_a_model_with_several_target_languages_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = identity()
    monkeypatch.setattr(translator.tokenizer, "tags", {"fra": 5, "ita": 6})
    with pytest.raises(UsageError, match=r"several target languages \(fra, ita\): give one with --to"):
        translate_text("One.", translator, OPTIONS, src="en")


def test_a_document_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "MAX_BYTES", 3)
    path = tmp_path / "in.txt"
    path.write_text("abcd")
    with pytest.raises(DataError, match=r"in\.txt: larger than"):
        translate_file(None, str(path), str(tmp_path / "out.txt"), identity(), OPTIONS, READ)
    assert not (tmp_path / "out.txt").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"ab\ncd \xff", "in.txt:2: byte 4 is not UTF-8"),
        (b"\xef\xbb\xbfab\xff", "in.txt:1: byte 6 is not UTF-8"),
        (b"\xff\xfea\0\n\0b\0\0\xd8", "in.txt:2: byte 3 is not UTF-16"),
        (b"a\nb\0", "in.txt:2: contains NUL"),
    ],
)
def test_bytes_that_are_not_text_are_named(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message.replace(".", r"\.")):
        translate_bytes(content, READ, identity(), OPTIONS)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_file_keeps_its_encoding_and_line_ends(encoding: str) -> None:
    content = "Größe.\r\n\r\nx y".encode(encoding)
    assert translate_bytes(content, READ, identity(), OPTIONS) == content
    assert translate_bytes(content, READ, capitals(), OPTIONS).decode(encoding) == "GRÖSSE.\r\n\r\nX Y"


# ---- the choice of the reader ----


def test_lines_documents_and_unknown_types_are_told_apart_by_the_suffix() -> None:
    for name in ("-", "in", "in.txt", "test.en", "x.pt_BR", "part.007", "a.tok", "a.txt.gz", "/dev/fd/63"):
        assert not is_document(name)
    assert is_document("in.txt", paragraphs=True)
    assert is_document("T.TSV", columns=True)
    with pytest.raises(UsageError, match=r"song\.mp3: a file of unknown type; the types of documents are .*\.txt"):
        is_document("song.mp3")
    with pytest.raises(UsageError, match="--column"):
        is_document("in.txt", columns=True)
    with pytest.raises(UsageError, match=r"--paragraphs: x\.csv is a table"):
        is_document("x.csv", paragraphs=True)


@pytest.mark.parametrize("name", ["p.csv", "P.TSV"])
def test_a_table_is_not_translated_with_its_separators(name: str) -> None:
    with pytest.raises(UsageError, match=r"a table; .*--column\. .*mtcli translate < "):
        is_document(name)


@pytest.mark.parametrize(
    ("name", "content", "message", "has_hint"),
    [
        ("a.txt.bz2", b"", "decompress it (bunzip2)", False),
        ("a.en.xz", b"", "decompress it (unxz)", False),
        ("a.zst", b"", "decompress it (unzstd)", False),
        ("a.zip", b"", "decompress it (unzip)", False),
        ("a.txt", b"PK\x03\x04\0", "decompress it (unzip)", False),
        ("app_en.arb", b'\xef\xbb\xbf\n{"@@locale": "en"}', "Flutter", False),
        ("a.pdf", b"%PDF", "convert it to .docx or .odt", False),
        ("a.YML", b"a: b", "yaml2po", False),
        ("a.tex", b"x", "to Markdown and back with pandoc", False),
        ("a.blend", b"ab\0", "unknown type", False),
        ("a.jpg", b"\xff\xd8", "unknown type", False),
        ("a.log", b"x" * 4095 + "é".encode(), "unknown type", True),
    ],
)
def test_files_that_are_not_text_are_refused(
    tmp_path: Path, name: str, content: bytes, message: str, has_hint: bool
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        is_document(str(path))
    assert ("mtcli translate < " in str(error.value)) == has_hint


def test_arabic_lines_are_no_flutter_resources(tmp_path: Path) -> None:
    path = tmp_path / "test.arb"
    path.write_text("مرحبا\n")
    assert not is_document(str(path))


def test_a_reader_without_columns_does_not_offer_tables() -> None:
    with pytest.raises(UsageError, match=r"the types of documents are \.docx") as error:
        read_document(b"", ReadOptions("song.mp3", "en", "de"))
    assert ".csv" not in str(error.value)
    with pytest.raises(UsageError, match=r"\.csv .*\.tsv"):
        read_document(b"", ReadOptions("song.mp3", "en", "de", columns=("1",)))


@pytest.mark.parametrize("suffix", CONVERSION_HINTS)
def test_a_type_that_another_program_converts_is_refused_with_the_way(suffix: str) -> None:
    with pytest.raises(
        UsageError, match=re.escape(f"a{suffix}: {suffix} files are not supported; {CONVERSION_HINTS[suffix]}")
    ):
        read_document(b"", ReadOptions(f"a{suffix}", "en", "de"))
    assert suffix not in MODULES


def test_the_extra_has_the_packages_that_the_message_names() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    names = [spec.partition(">")[0] for spec in project["optional-dependencies"]["documents"]]
    names += [spec.partition(">")[0] for spec in project["dependencies"] if spec.startswith("sentencex")]
    assert sorted(names) == sorted(PACKAGES)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(UsageError, match=r"sentencex is not installed; .*`pip install .*sentencex"):
        translate_text("A b. C d.", identity(), OPTIONS, src="en")


# ---- the command ----


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A folder that `load` takes for a model that writes capitals."""
    monkeypatch.setattr(
        "mtcli.documents.request.load", lambda *_: LoadedModel(capitals(), OPTIONS, Direction("en", "de"))
    )
    return str(tmp_path)


def run(*arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(app, ["translate", *arguments], input=stdin)


def test_the_command_translates_paragraphs(model: str, tmp_path: Path) -> None:
    text = "One.  Two ä.\n\nThree.\n"
    assert run("--model", model, "--paragraphs", stdin=text).stdout == text.upper()
    assert run("--model", model, "--paragraphs", text.strip()).stdout == text.upper()
    (tmp_path / "in.txt").write_text(text)
    out = tmp_path / "out.txt"
    assert run("--model", model, "--paragraphs", "-i", str(tmp_path / "in.txt"), "-o", str(out)).exit_code == 0
    assert out.read_text() == text.upper()


OPTIONS_OF_LINES = (["--scores"], ["--format", "json"], ["--n-best", "2"], ["--alignments"], ["--prefix", "x"])


@pytest.mark.parametrize("option", OPTIONS_OF_LINES, ids="=".join)
def test_options_that_make_no_sense_for_documents_are_refused(model: str, option: list[str]) -> None:
    result = run("--model", model, "--paragraphs", "x", *option)
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == f"{option[0]}: not supported for documents or with --paragraphs"
