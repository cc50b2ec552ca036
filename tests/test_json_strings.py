"""JSON files of user interfaces."""

import json

import pytest
from helpers.documents import capitals, identity, translate_bytes
from helpers.formats import OPTIONS, shouted, shown
from hypothesis import given, settings
from hypothesis import strategies as st

from mtcli.documents.formats import json_strings
from mtcli.documents.formats.format import ReadOptions
from mtcli.documents.formats.json_strings import read, structure
from mtcli.documents.formats.registry import read_document
from mtcli.errors import DataError
from mtcli.translate.translation import Options

JSON = ReadOptions("en.json", "en", "de")


def capitals_of(source: str) -> str:
    """Translate a file with a model that writes capitals."""
    translator = capitals()
    translator.aligns = False
    return translate_bytes(source.encode(), JSON, translator, Options()).decode()


def test_values_are_translated_and_all_else_stays() -> None:
    source = '{\n\t"One key" : "One",\r\n "b": {"c": ["two", "three", ""]}, "n": [1, 2.50, 1e9, true, null, "12"]}\n'
    assert shown(read, source) == ["One", "two", "three"]
    assert shouted(read, source) == source.replace('"One"', '"ONE"').replace("two", "TWO").replace("three", "THREE")


def test_lines_and_plural_forms_are_texts_of_their_own() -> None:
    source = r'{"a": " one\n\n two \\ three\t", "b": "car | {n} cars", "c": "{{ x | upper }} of it"}'
    assert shown(read, source) == ["one", r"two \ three", "car", "{n} cars", "{{ x | upper }} of it"]
    written = capitals_of(source)
    assert written == r'{"a": " ONE\n\n TWO \\ THREE\t", "b": "CAR | {n} CARS", "c": "{{ x | upper }} OF IT"}'


def test_placeholders_messages_of_icu_and_links_stay() -> None:
    plural = r"{n, plural,\n one {# file | {x}} other {{n} files}}"
    texts = {
        "icu": f"you have {plural} left",
        "only icu": plural,
        "i18next": "see $t(menu.open) and {{name}}",
        "home": "[%key:common::name%] here",
        "vue": "see @:menu.open or @.lower:menu.close, {name}",
        "extension": "hello $NAME$ and <b>you</b>",
    }
    source = "{" + ", ".join(f'"{key}": "{text}"' for key, text in texts.items()) + "}"
    written = capitals_of(source)
    assert list(json.loads(written).values()) == [
        json.loads(f'"YOU HAVE {plural} LEFT"'),
        json.loads(f'"{plural}"'),
        "SEE $t(menu.open) AND {{name}}",
        "[%key:common::name%] HERE",
        "SEE @:menu.open OR @.lower:menu.close, {name}",
        "HELLO $NAME$ AND <b>YOU</b>",
    ]
    assert structure(written.encode(), JSON) == structure(source.encode(), JSON)


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ('{"a": {"message": "One", "description": "no", "placeholders": {"n": {"content": "no"}}}}', ["One"]),
        ('{"a": {"id": "no", "defaultMessage": "One", "description": "no"}}', ["One"]),
        ('{"a": {"message": "One", "title": "Two"}}', ["One", "Two"]),
        (
            '{"a": {"message": "One", "description": "no"}, "b": {"message": "Two", "c": "Three"}}',
            ["One", "Two", "Three"],
        ),
        ('{"form": {"message": "Message", "description": "Label"}, "a": "One"}', ["Message", "Label", "One"]),
        ('{"message": "Message", "description": "Label"}', ["Message", "Label"]),
        ('{"a": {"string": "One", "context": "no"}, "b": {"c": {"string": "Two", "context": "no"}}}', ["One", "Two"]),
        ('{"a": {"message": "One", "placeholders": {"n": {"example": "no"}}}, "b": "Two"}', ["One", "Two"]),
        ('[{"term": "no", "definition": "One", "context": "no"}]', ["One"]),
        ('{"@@locale": "en", "a": "One", "@a": {"description": "no"}, "$schema": "no", "_comment": "no"}', ["One"]),
        ('{"language": "Language", "lang": "en-US", "dir": "ltr", "code": "fr", "no": "No"}', ["Language", "No"]),
        (r'{"a": "\ud83d half", "b": "\ud83d\ude00 One"}', ["\U0001f600 One"]),
        ('"One"', ["One"]),
    ],
)
def test_descriptions_and_codes_are_no_texts(source: str, texts: list[str]) -> None:
    assert shown(read, source) == texts
    shouted(read, source)


@pytest.mark.parametrize(
    ("source", "written"),
    [
        (r'{"a": "é \u0022"}', r'{"a": "É \""}'),
        (r'{"a": "\u00e9"}', r'{"a": "\u00c9"}'),
        (r'{"a": "x", "b": "\u0007"}', r'{"a": "X", "b": "\u0007"}'),
        (r'{"a": "and\/or"}', r'{"a": "AND\/OR"}'),
        (r'{"a": "and\/or \/ /"}', r'{"a": "AND/OR / /"}'),
        ('\ufeff{"a": "x"}', '\ufeff{"a": "X"}'),
    ],
)
def test_characters_are_escaped_as_in_the_file(source: str, written: str) -> None:
    assert shouted(read, source) == written


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('{"a": "b",}', r"line 1, column 1[01]: not JSON"),
        ('// no\n{"a": "b"}', r"line 1, column 1: not JSON"),
        ('{"a": "b\nc"}', "not JSON"),
        ("", "not JSON"),
        ("[" * 300 + "]" * 300, "more than 256 nested"),
        ("[" * 100_000 + "]" * 100_000, "more than 256 nested"),
        ("[" + "9" * 10_000 + "]", None),
    ],
)
def test_what_is_not_json_is_refused(source: str, message: str | None) -> None:
    if message is None:
        assert shown(read, source) == []
        return
    with pytest.raises(DataError, match=message):
        read(source.encode(), OPTIONS)


def test_a_file_with_too_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_strings, "MAX_VALUES", 10)
    with pytest.raises(DataError, match="more than 10 values"):
        read(b'["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k"]', OPTIONS)


def test_a_translation_that_adds_a_plural_form_is_not_written(caplog: pytest.LogCaptureFixture) -> None:
    document = read_document(b'{"a": "one", "b": "two"}', JSON)
    assert document.write([("one | two",), ("TWO",)]) == b'{"a": "one", "b": "TWO"}'
    assert "1 paragraph keeps its text" in caplog.text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@given(VALUES, st.booleans(), st.sampled_from([None, 0, 2]))
@settings(max_examples=150, deadline=None)
def test_any_json_comes_back(value: object, is_ascii: bool, indent: int | None) -> None:
    source = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode("utf-8", "surrogatepass")
    try:
        source.decode()
    except UnicodeDecodeError:
        return
    assert translate_bytes(source, JSON, identity(), Options()) == source
    longer = read(source, JSON)
    written = longer.write([(*segment, ' "ü" \\ /') for segment in longer.segments])
    assert _shape(json.loads(written)) == _shape(value)


def _shape(value: object) -> object:
    """Return what a translation keeps."""
    if isinstance(value, dict):
        return {key: _shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shape(inner) for inner in value]
    return type(value) if isinstance(value, str) else value
