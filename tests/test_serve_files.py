"""Files, HTML, several models, and the identification of languages over HTTP."""

import json
import logging
import urllib.parse
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from test_serve import OPTIONS, Gated, Site, started
from toy import toy

from mtcli.errors import UsageError
from mtcli.inference.line_translator import LineTranslator
from mtcli.inference.translation import Candidate, Options, Translation
from mtcli.serve import files
from mtcli.serve.app import create_app
from mtcli.serve.files import FileStore
from mtcli.serve.models import Models, ServedModel
from mtcli.serve.requests import RequestLimits

BOUNDARY = "limit"


class Loud(Gated):
    """A translator that returns its input in capitals, with two candidates, and ends it with `mark`."""

    aligns = False

    def __init__(self, mark: str = "") -> None:
        super().__init__()
        self.mark = mark

    def translate(self, lines: Iterable[str], options: Options, **_: Any) -> Iterator[Translation]:
        for line in lines:
            texts = [line.upper() + self.mark, line.title() + self.mark][: options.n_best]
            yield Translation(line, tuple(Candidate(text, -1.0, -1.0) for text in texts))


@contextmanager
def serving(
    *models: tuple[LineTranslator, str, str], limits: RequestLimits | None = None, api_key: str | None = None
) -> Iterator[Site]:
    served = [ServedModel(translator, OPTIONS, (src, tgt)) for translator, src, tgt in models]
    with started(create_app(served, limits, api_key)) as site:
        yield site


@pytest.fixture(scope="module")
def loud() -> Iterator[Site]:
    with serving((Loud(), "en", "de"), limits=RequestLimits(file_body=20_000, body=20_000)) as site:
        yield site


def multipart(name: str, content: bytes, boundary: str = BOUNDARY, **fields: str) -> bytes:
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n'.encode()
        for key, value in fields.items()
    ]
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode()
    return b"".join([*parts, head, content, f"\r\n--{boundary}--\r\n".encode()])


def upload(site: Site, name: str, content: bytes, **fields: str) -> tuple[int, Any]:
    kind = f"multipart/form-data; boundary={BOUNDARY}"
    return site.send("/translate_file", multipart(name, content, **fields), content_type=kind)[:2]


def translated(site: Site, name: str, content: bytes, to: str = "de", **fields: str) -> tuple[str, str]:
    """Return the name and the text of a translated file."""
    status, answer = upload(site, name, content, source="en", target=to, **fields)
    assert status == 200, answer
    url = answer["translatedFileUrl"]
    assert url.startswith(f"{site.url}/download_file/")
    status, text, headers = site.send(url.removeprefix(site.url))
    assert status == 200
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-disposition"].startswith("attachment; ")
    assert headers["x-content-type-options"] == "nosniff"
    return urllib.parse.unquote(url.rpartition("/")[2]), text


# ---- texts ----


def test_a_paragraph_is_translated_sentence_by_sentence_with_its_spacing(loud: Site) -> None:
    text = "  One dog runs.  Two dogs sleep.\r\n\r\n\n\tA cat sits. "
    answer = loud.json("/translate", q=text, source="en", alternatives=3)[1]
    assert answer["translatedText"] == text.upper()
    assert answer["alternatives"] == [text.title()]  # two candidates of each sentence
    answer = loud.json("/api/translate", q="One dog runs. Two dogs sleep.", alternatives=1)[1]
    assert [line["candidates"][0]["text"] for line in answer["lines"]] == ["ONE DOG RUNS. TWO DOGS SLEEP."]
    assert answer["lines"][0]["candidates"][0]["log_prob"] == -2.0


def test_the_log_does_not_quote_texts(warnings: pytest.LogCaptureFixture) -> None:
    with serving((Loud(" echo echo echo echo echo"), "en", "de")) as site, warnings.at_level(logging.INFO):
        text = " ".join(["secret"] * 200)
        assert "ECHO" in site.json("/translate", q=text, source="en")[1]["translatedText"].upper()
        translated(site, "a.txt", text.encode())
    assert "secret" not in warnings.text.lower()
    assert "echo" not in warnings.text.lower()


def test_html_keeps_its_tags(loud: Site) -> None:
    html = '<p title="a dog">One <b>dog</b> runs.<br>Two &amp; more.</p><script>let a = "dog"</script>'
    answer = loud.json("/translate", q=[html, "<i>x</i>"], source="en", format="html")[1]
    first, second = answer["translatedText"]
    assert first == '<p title="A DOG">ONE <b>DOG</b> RUNS.<br>TWO &amp; MORE.</p><script>let a = "dog"</script>'
    assert second == "<i>X</i>"
    assert loud.json("/translate", q=html, source="en")[1]["translatedText"] != first  # it is text


def test_a_paragraph_of_the_toy_model_is_its_sentences() -> None:
    sentences = ["One old king reads.", "A dog sleeps."]
    with serving((toy(), "en", "es")) as site:
        each = site.json("/translate", q=sentences, source="en")[1]["translatedText"]
        assert site.json("/translate", q=" ".join(sentences), source="en")[1]["translatedText"] == " ".join(each)
        (line,) = site.json("/api/translate", q=" ".join(sentences), alternatives=1)[1]["lines"]
        alone = site.json("/api/translate", q=sentences, alternatives=1)[1]["lines"]
        shift = len(sentences[0].split()), len(each[0].split())
        second = [[src + shift[0], tgt + shift[1]] for src, tgt in alone[1]["candidates"][0]["alignment"]]
        assert line["candidates"][0]["alignment"] == alone[0]["candidates"][0]["alignment"] + second


def test_terms_are_used() -> None:
    with serving((toy(), "en", "es")) as site:
        for terms in ("king\tZar", ["king\tZar", "dog\tCan"]):
            answer = site.json("/translate", q="One old king reads.", source="en", terms=terms)
            assert answer[0] == 200, answer
            assert "Zar" in answer[1]["translatedText"]
        assert "Zar" in translated(site, "n.txt", b"One old king reads.", terms="king\tZar", to="es")[1]
        for terms, says in (("king\tZar\nking\tRey", "terms"), ("x\ty\n" * 1001, "this server takes 1,000")):
            status, answer, _ = site.json("/translate", q="One king.", source="en", terms=terms)
            assert (status, says in answer["error"]) == (400, True)


# ---- several models ----


def test_a_request_goes_to_the_model_of_its_pair() -> None:
    with serving((Loud("1"), "en", "de"), (Loud("2"), "de", "en"), (Loud("3"), "en", "fr")) as site:
        assert site.send("/languages")[1] == [
            {"code": "en", "name": "English", "targets": ["de", "fr"]},
            {"code": "de", "name": "German", "targets": ["en"]},
            {"code": "fr", "name": "French", "targets": []},
        ]
        for source, target, expected in (("en", "de", "X1"), ("de", "en", "X2"), ("en", "fr", "X3"), ("de", "", "X2")):
            assert site.json("/translate", q="x", source=source, target=target)[:2] == (
                200,
                {"translatedText": expected},
            )
        german = site.json("/translate", q="Der Hund schläft im Garten.", target="en")[1]
        assert german["translatedText"].endswith("2")
        assert german["detectedLanguage"]["language"] == "de"
        assert german["detectedLanguage"]["confidence"] > 90
        status, answer, _ = site.json("/translate", q="x", source="fr", target="en")
        assert (status, answer["error"]) == (400, "no model for fr → en; there is one for en → de, fr, de → en")
        status, answer, _ = site.json("/translate", q="x", source="en")
        assert (status, answer["error"]) == (400, "target: there are several target languages; choose from de, fr")
        french = site.json("/detect", q="Le chien dort dans le jardin.")[1]
        assert french[0]["language"] == "fr"
        assert translated(site, "a.txt", b"Der Hund.")[1] == "DER HUND.1"


def test_a_pair_that_two_models_translate_is_refused() -> None:
    with pytest.raises(UsageError, match="two models translate en → de"):
        Models([ServedModel(toy(), OPTIONS, ("en", "de"))] * 2)


# ---- files ----


def test_a_file_is_translated_and_can_be_downloaded(loud: Site) -> None:
    assert translated(loud, "a page.html", b"<p>One <b>dog</b>.</p>") == ("a page_de.html", "<p>ONE <b>DOG</b>.</p>")
    assert translated(loud, "n.txt", "Ein Käfer läuft.\n\n x\n".encode()) == ("n_de.txt", "EIN KÄFER LÄUFT.\n\n X\n")
    assert translated(loud, "..\\../../etc/hosts.txt", b"x")[0] == "hosts_de.txt"
    assert translated(loud, "Größe #1?.txt", b"x")[0] == "Größe #1?_de.txt"
    status, answer = upload(loud, "n.txt", b"Der Hund schl\xc3\xa4ft. The dog sleeps in the garden.", target="de")
    assert status == 200
    assert "n_de.txt" in answer["translatedFileUrl"]


@pytest.mark.parametrize("path", ["x/n_de.txt", "..%2f..%2fetc/passwd", "x", ""])
def test_a_download_needs_the_key_of_the_file(loud: Site, path: str) -> None:
    assert loud.send(f"/download_file/{path}")[0] == 404


@pytest.mark.parametrize(
    ("name", "content", "status", "says"),
    [
        ("page.exe", b"x", 400, "page.exe: a file of unknown type"),
        ("n.txt", b"\xff\xfe\x00", 400, "n.txt"),
        ("n.csv", b"a,b\nc,d\n", 400, "n.csv: a table"),
        ("n\0.txt", b"x", 400, "NUL"),
        ("", b"x", 400, "file"),
        ("..", b"x", 400, "no name"),
        ("x" * 201, b"x", 400, "200 characters"),
        ("n.txt", b"x" * 20_000, 413, "20,000 bytes"),
    ],
)
def test_a_file_that_cannot_be_translated_is_refused(
    loud: Site, name: str, content: bytes, status: int, says: str
) -> None:
    found, answer = upload(loud, name, content, source="en", target="de")
    assert found == status
    assert says in answer["error"]
    assert translated(loud, "n.txt", b"x")[1] == "X"


@pytest.mark.parametrize(
    ("body", "kind", "status", "says"),
    [
        (multipart("n.txt", b"x"), "multipart/form-data; boundary=other", 400, "boundary"),
        (multipart("n.txt", b"x")[:-20], f"multipart/form-data; boundary={BOUNDARY}", 400, "incomplete"),
        (multipart("n.txt", b"x"), "multipart/form-data", 400, "boundary"),
        (b"x" * 1000 + b"--limit--", f"multipart/form-data; boundary={BOUNDARY}", 400, "form"),
        (
            multipart("n.txt", b"x", **{f"a{i}": "x" for i in range(30)}),
            f"multipart/form-data; boundary={BOUNDARY}",
            400,
            "Too many fields",
        ),
        (
            multipart("n.txt", b"x")[: -len(f"--{BOUNDARY}--\r\n")] + multipart("m.txt", b"y"),
            f"multipart/form-data; boundary={BOUNDARY}",
            400,
            "Too many files",
        ),
        (b"--limit--", f"multipart/form-data; boundary={BOUNDARY}", 400, "file"),
        (multipart("n.txt", b"x"), f"multipart/form-data; boundary={BOUNDARY}; charset=undefined", 415, "UTF-8"),
        (b'{"q": "x"}', "application/json", 415, "multipart/form-data"),
        (b"", "", 415, "multipart/form-data"),
    ],
)
def test_a_form_that_is_not_valid_is_refused(loud: Site, body: bytes, kind: str, status: int, says: str) -> None:
    found, answer, _ = loud.send("/translate_file", body, content_type=kind)
    assert found == status
    assert says in answer["error"]


def test_a_text_with_more_sentences_than_may_wait_is_refused() -> None:
    with serving((Loud(), "en", "de"), limits=RequestLimits(lines=2, waiting=3)) as site:
        text = "One cat. Two cats. Three cats."
        assert site.json("/translate", q=text)[1]["translatedText"] == text.upper()
        text += " Four cats."
        for path in ("/translate", "/api/translate"):
            assert site.json(path, q=text)[:2] == (413, {"error": "4 sentences; this server takes 3 in a request"})
        assert translated(site, "n.txt", text.encode())[1] == text.upper()


def test_files_and_detection_need_the_key_and_the_own_page() -> None:
    with serving((Loud(), "en", "de"), api_key="secret") as site:
        assert upload(site, "n.txt", b"x") == (403, {"error": "this server asks for an api_key"})
        assert upload(site, "n.txt", b"x", api_key="secre") == (403, {"error": "wrong api_key"})
        assert translated(site, "n.txt", b"x", api_key="secret")[1] == "X"
        assert site.json("/detect", q="x")[0] == 403
        kind = f"multipart/form-data; boundary={BOUNDARY}"
        body = multipart("n.txt", b"x", api_key="secret")
        assert site.send("/translate_file", body, content_type=kind, origin="http://evil.example")[0] == 403


def test_few_files_are_translated_at_a_time() -> None:
    with serving((Loud(), "en", "de"), limits=RequestLimits(files=0)) as site:
        status, answer = upload(site, "n.txt", b"x")
        assert (status, "too many files" in answer["error"]) == (503, True)


def test_files_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(files.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(files, "KEPT_BYTES", 10)
    store = FileStore()
    first = store.add("a", b"12345")
    second = store.add("b", b"12345")
    assert (store.find(first, "a"), store.find(first, "b"), store.find(second, "b")) == (b"12345", None, b"12345")
    third = store.add("c", b"123456789012")  # larger than the limit alone
    assert (store.find(first, "a"), store.find(second, "b"), len(store.files)) == (None, None, 1)
    now[0] = files.KEPT_SECONDS + 1
    assert store.find(third, "c") is None


def test_json_of_the_page_lists_the_models(loud: Site) -> None:
    _, html, _ = loud.send("/")
    data = html.partition("const models = ")[2].partition(";\n")[0]
    assert [(model["src"], model["tgt"]) for model in json.loads(data)] == [("en", "de")]
