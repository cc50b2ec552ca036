"""Catalogues of gettext whose translations gettext must accept, whatever the model writes."""

import logging
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.documents import ByRule, translate_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from mtcli.documents.formats import po
from mtcli.documents.formats.format import ReadOptions
from mtcli.documents.formats.po import access_key, checked, format_of, with_access_key
from mtcli.errors import DataError
from mtcli.translate.translation import Options

ROOT = Path(__file__).parents[1]
PO = ReadOptions("a.po", "en", "de")
HEADER = r"""msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Language: %s\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"
"""


def model(rule: Callable[[str], str]) -> ByRule:
    """Return a translator without alignments."""
    translator = ByRule(rule)
    translator.aligns = False
    return translator


def catalogue(message: str, flags: str = "c-format") -> bytes:
    return f'{HEADER % "de"}\n#, {flags}\nmsgid "{message}"\nmsgstr ""\n'.encode()


def translated(content: bytes, answer: str) -> list[str]:
    """Return the translations in a catalogue when the model answers each line like this."""
    written = translate_bytes(content, PO, model(lambda line: answer), Options())
    return [field.value for field in po._fields(written.decode(), "utf-8", "a.po") if field.keyword == "msgstr"][1:]


@pytest.mark.parametrize(
    ("flags", "message", "translation", "written"),
    [
        ("c-format", "%s: (%d)", "(%d) von %s", "(%2$d) von %1$s"),
        ("c-format", "%*d %s", "%s %*d", "%3$s %2$*1$d"),
        ("c-format", "%.*s %m %d", "%d %m %.*s", "%3$d %m %2$.*1$s"),
        ("c-format", "%s %s", "%s und %s", "%s und %s"),
        ("c-format", "%d %s %d", "%s %d %d", "%2$s %1$d %3$d"),
        ("c-format", "%s", "100 % %s", None),
        ("c-format", "%<PRIuMAX> of %d", "%d von %<PRIuMAX>", "%2$d von %1$<PRIuMAX>"),
        ("c-format", "%1$s %2$d", "%2$d %1$s", "%2$d %1$s"),
        ("c-format", "50% of %d", "50% von %d", None),
        ("lua-format", "%s %d", "%d %s", None),
        ("python-format", "%(a)s %(b)d", "%(b)d %(a)s", "%(b)d %(a)s"),
        ("python-format", "%s %d", "%d %s", None),
        ("python-brace-format", "{a} {0}", "{0} {a}", "{0} {a}"),
        ("python-brace-format", "{a}", "{a} {", None),
        ("qt-format", "%1 %n", "%n %1", "%n %1"),
        ("sh-format", "$a", "`$a`", None),
        ("java-format", "{0}", "l'eau {0}", None),
        ("java-format", "{0} '{1}'", "'{1}' {0}", "'{1}' {0}"),
        ("go-format", "%[2]d of %[1]s", "%[1]s %[2]d", "%[1]s %[2]d"),
        ("go-format", "%[2]d of %[1]s", "%[1]s %[2]D", None),
        ("object-pascal-format", "%0:s of %d", "%0:S %d", None),
        ("java-format", "{0} '{1}'", "' ' {1} {0}", None),
        ("java-format", "{0} isn''t '{1}'", "{0}' '{1}' '", None),
        ("no-c-format", "%s %d", "%d %s", "%d %s"),
        ("c-format", "a\n", "b", None),
        ("c-format", "\na", "\nb", "\nb"),
    ],
)
def test_directives_stay_in_an_order_that_programs_can_use(
    flags: str, message: str, translation: str, written: str | None
) -> None:
    assert checked(message, translation, format_of(flags)) == written


@pytest.mark.parametrize("message", ["%s: line (%.*d)", "%'d of %<PRIuMAX> % o", "a %5.2f%% b %c"])
@given(answer=st.text(alphabet="ab %sd.*{}\\\n\0\t\"<>1$'", max_size=20))
@settings(max_examples=40, deadline=None)
def test_whatever_the_model_writes_the_directives_stay(message: str, answer: str) -> None:
    (found,) = translated(catalogue(message), answer)
    form = format_of("c-format")
    assert form is not None
    if found:
        assert checked(message, found, form) == found or "$" in found
        numbers = [directive for directive in form.directives.findall(found) if "$" in directive]
        assert not numbers or len(set(numbers)) == len(form.directives.findall(message.replace("%%", "")))


def test_a_message_that_cannot_be_written_stays_empty_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert translated(catalogue("one %d two"), "zwei % eins") == [""]
    assert "a.po: 1 message not translated, because msgfmt would refuse the translation (line 9)" in caplog.text


PLURAL = f"""{HEADER % "de"}
#, c-format
msgid "one file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""
"""


@pytest.mark.parametrize("flags", ["c-format", "unknown-format"])
def test_a_directive_with_very_many_zeros_is_searched_in_linear_time(flags: str) -> None:
    form = format_of(flags)
    assert form is not None
    zeros = "0" * 500_000
    assert form.directives.findall(f"%{zeros}d") == [f"%{zeros}d"]
    assert form.directives.findall(f"%{zeros}") == []


def test_a_rare_plural_form_needs_no_number_and_others_do() -> None:
    assert translated(PLURAL.encode(), "datei") == ["datei", "%d datei"]
    assert translated(PLURAL.replace("n != 1", "n%10 != 1").encode(), "datei") == ["%d datei", "%d datei"]


def test_all_forms_of_a_message_are_translated_or_none() -> None:
    assert translated(PLURAL.encode(), "{ % ") == ["", ""]
    content = PLURAL.encode()
    answers = {"one file": "one file", "%d files": "%d dateien"}
    written = translate_bytes(content, PO, model(lambda line: answers[line]), Options()).decode()
    assert 'msgstr[0] "one file"\nmsgstr[1] "%d dateien"' in written


@pytest.mark.parametrize("rule", ["", "nplurals=3; plural=0;", "nplurals=INTEGER; plural=EXPRESSION;", "nplurals=2;"])
def test_plural_forms_need_a_rule_in_the_header(rule: str) -> None:
    """Without it, msgfmt refuses a catalogue in which they are translated."""
    content = PLURAL.replace("nplurals=2; plural=(n != 1);", rule)
    singular = catalogue("one file").replace(b"nplurals=2; plural=(n != 1);", rule.encode())
    assert translated(content.encode(), "datei") == ["", ""]
    assert translated(singular, "datei") == ["datei"]


@pytest.mark.parametrize(
    ("num_forms", "forms"),
    [
        (1, 'msgstr ""\n'),
        (2, 'msgstr ""\nmsgstr ""\n'),
        (2, 'msgstr[0] ""\nmsgstr ""\n'),
        (2, 'msgstr[0] ""\nmsgstr[0] ""\n'),
        (2, 'msgstr[1] ""\nmsgstr[0] ""\n'),
    ],
)
def test_a_message_without_the_plural_forms_of_the_header_stays(
    num_forms: int, forms: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """It is not taken as form 0: msgfmt refuses such a catalogue, whatever is translated."""
    rule = f"nplurals={num_forms}; plural=0;"
    header = (HEADER % "de").replace("nplurals=2; plural=(n != 1);", rule)
    message = 'msgid "one file"\nmsgid_plural "some files"\n'
    content = f"{header}\n{message}{forms}"
    assert translate_bytes(content.encode(), PO, model(str.upper), Options()).decode() == content
    assert "1 message not translated, because msgfmt would refuse the translation" in caplog.text
    whole = "".join(f'msgstr[{number}] ""\n' for number in range(num_forms))
    assert b"SOME FILES" in translate_bytes(f"{header}\n{message}{whole}".encode(), PO, model(str.upper), Options())
    if shutil.which("msgfmt"):
        (tmp_path / "a.po").write_text(content)
        assert subprocess.run(["msgfmt", "-o", os.devnull, tmp_path / "a.po"], capture_output=True).returncode


@pytest.mark.parametrize("language", ["fr", "pt_BR", "French"])
def test_a_catalogue_for_another_language_is_refused(language: str) -> None:
    with pytest.raises(DataError, match=f"Language is '{language}', but the target language"):
        po.read((HEADER % language).encode(), PO)


@pytest.mark.parametrize("language", ["", "de", "de_AT", "LANGUAGE", "x-test"])
def test_a_catalogue_for_this_or_no_language_is_read(language: str) -> None:
    assert po.read((HEADER % language).encode() + b'\nmsgid "a"\nmsgstr ""\n', PO).segments == [("a",)]


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("_Save", 0), ("Save _As…", 5), ("E_xit", 1), ("&Save", 0), ("E&xit", 1), ("Se_lect %s", 2),
        ("file_name", None), ("AT&T", None), ("Q&A", None), ("R & D", None), ("&amp; x", None), ("_a _b", None),
        ("http://x.org/?a=1&b=2", None), ("MAX_SIZE", None), ("a_", None), ("_" + "x" * 100, None),
    ],
)  # fmt: skip
def test_access_keys_are_found(message: str, place: int | None) -> None:
    assert access_key(message) == place


@pytest.mark.parametrize(
    ("translation", "written"),
    [
        ("Speichern", "_Speichern"), ("Als anderes sichern", "Als anderes _sichern"), ("Musik", "Mu_sik"),
        ("Ablegen", "_Ablegen"), ("保存…", "保存(_S)…"), ("%s und", "%s _und"),
    ],
)  # fmt: skip
def test_an_access_key_is_put_on_the_same_letter_or_the_first(translation: str, written: str) -> None:
    assert with_access_key(translation, "_", "S") == written


def test_an_access_key_stays_and_the_model_does_not_see_it() -> None:
    translator = model(lambda line: {"Save now": "Jetzt sichern"}.get(line, "?"))
    written = translate_bytes(catalogue("_Save now"), PO, translator, Options()).decode()
    assert 'msgstr "Jetzt _sichern"' in written


@pytest.mark.skipif(not shutil.which("msgfilter"), reason="needs gettext")
def test_the_documented_command_removes_the_translations(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "documents.md").read_text()
    command = re.findall(r"`(msgfilter [^`]*)`", " ".join(text.split()))[0]
    message = '\nmsgid "red"\nmsgstr "rot"\n'
    plural = '\n#, fuzzy\nmsgid "%d cat"\nmsgid_plural "%d cats"\nmsgstr[0] "a"\nmsgstr[1] "b"\n'
    (tmp_path / "de.po").write_text(HEADER % "de" + message + plural)
    subprocess.run(shlex.split(command), cwd=tmp_path, check=True, timeout=60)
    empty = (tmp_path / "empty.po").read_bytes()
    assert empty.startswith((HEADER % "de").encode())
    assert po.read(empty, PO).segments == [("red",), ("%d cat",), ("%d cats",)]


@pytest.mark.skipif(not shutil.which("msgfmt"), reason="needs gettext")
@pytest.mark.parametrize("answer", ["", "x", "%d x %s", "% ", "a\0b\tc", '"', "\\", "%1$s", "%", "{", "\n", "\x07"])
def test_msgfmt_accepts_what_is_written(answer: str, tmp_path: Path) -> None:
    messages = ["%s: %d", "%.*s of %*d\\n", "\\nHello %c", "plain", "%<PRIuMAX> and %s", "_Save %s"]
    entries = "".join(f'\n#, c-format\nmsgid "{message}"\nmsgstr ""\n' for message in messages)
    content = (PLURAL + entries).encode()
    path = tmp_path / "a.po"
    path.write_bytes(translate_bytes(content, PO, model(lambda line: answer), Options()))
    subprocess.run(["msgfmt", "-c", "-o", "/dev/null", path], check=True, timeout=60)
