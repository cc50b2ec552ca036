"""Files, HTML, several models, and the identification of languages over HTTP."""

import http.client
import json
import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from copy import copy
from threading import Event
from typing import Any

import pytest
from helpers.processes import HANGS
from helpers.servers import (
    BOUNDARY,
    OPTIONS,
    Gated,
    Site,
    is_closed,
    multipart,
    serving,
    translated,
    until,
    upload,
)
from helpers.toy import toy
from starlette.formparsers import MultiPartParser

from mtcli.documents.pipeline import TranslatedSegment, translate_document
from mtcli.errors import UsageError
from mtcli.serve import app as application
from mtcli.serve.app import FileStore
from mtcli.serve.batcher import FILE_LINES, WaitingTranslator
from mtcli.serve.models import Models, ServedModel
from mtcli.serve.requests import RequestLimits
from mtcli.serve.uploads import attachment, safe_name, translated_name
from mtcli.translate.memory import Memory
from mtcli.translate.translation import Candidate, Options, Translation


class Loud(Gated):
    """A translator that returns its input in capitals, with two candidates, and ends it with `mark`."""

    aligns = False

    def __init__(self, mark: str = "") -> None:
        super().__init__()
        self.mark = mark

    def translate(self, lines: Iterable[str], options: Options, *_: Any) -> Iterator[Translation]:
        for line in lines:
            texts = [line.upper() + self.mark, line.title() + self.mark][: options.n_best]
            yield Translation(line, tuple(Candidate(text, -1.0, -1.0) for text in texts))


@pytest.fixture(scope="module")
def loud() -> Iterator[Site]:
    with serving((Loud(), "en", "de"), limits=RequestLimits(file_body=20_000, body=20_000)) as site:
        yield site


# ---- texts ----


def test_a_paragraph_is_translated_sentence_by_sentence_with_its_spacing(loud: Site) -> None:
    text = "  One dog runs.  Two dogs sleep.\r\n\r\n\n\tA cat sits. "
    answer = loud.json("/translate", q=text, source="en", alternatives=3)[1]
    assert answer["translatedText"] == text.upper()
    assert answer["alternatives"] == [text.title()]  # two candidates of each sentence
    answer = loud.json("/api/translate", q="One dog runs. Two dogs sleep.", alternatives=1)[1]
    assert [line["candidates"][0]["text"] for line in answer["lines"]] == ["ONE DOG RUNS. TWO DOGS SLEEP."]
    assert answer["lines"][0]["candidates"][0]["log_prob"] == -2.0


def test_the_log_does_not_quote_texts(caplog: pytest.LogCaptureFixture) -> None:
    with serving((Loud(" echo echo echo echo echo"), "en", "de")) as site, caplog.at_level(logging.INFO):
        text = " ".join(["secret"] * 200)
        assert "ECHO" in site.json("/translate", q=text, source="en")[1]["translatedText"].upper()
        translated(site, "a.txt", text.encode())
    assert "secret" not in caplog.text.lower()
    assert "echo" not in caplog.text.lower()


def test_an_unexpected_error_is_answered_and_logged_without_the_text(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    error: Exception = ValueError("secret")
    monkeypatch.setattr("mtcli.serve.translation.read_document", lambda *_: raise_(error))
    monkeypatch.setattr("mtcli.serve.translation.html_spans", lambda *_: raise_(error))
    expected = (500, {"error": "the translation failed; the server's log says why"})
    with serving((Loud(), "en", "de")) as site:
        assert upload(site, "n.html", b"secret") == expected
        assert site.json("/translate", q="secret", source="en", format="html")[:2] == expected
        error = RuntimeError("out of memory")
        assert upload(site, "n.html", b"secret") == expected
    assert [message.partition(", line")[0] for message in caplog.messages] == [
        "a request failed: ValueError in test_serve_files.py",
        "a request failed: ValueError in test_serve_files.py",
        "a request failed: RuntimeError in test_serve_files.py",
    ]
    assert "secret" not in caplog.text
    assert caplog.messages[2].endswith(": out of memory")


def raise_(error: Exception) -> None:
    raise error


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


@pytest.mark.parametrize("source", ["en", "auto"])
def test_a_model_of_the_very_pair_comes_before_one_with_another_code_of_the_language(source: str) -> None:
    several = Loud("1")
    one_target = copy(several)
    one_target.tokenizer = one_target.target_tokenizer = copy(several.tokenizer)
    one_target.tokenizer.tags = {"fra": 5}
    model = ServedModel(one_target, OPTIONS, "en", ("fra",))
    assert (model.options_to("").to, model.own_target(""), model.target_of("")) == ("fra", "fra", "fra")
    several.tokenizer = several.target_tokenizer = copy(several.tokenizer)
    several.tokenizer.tags = {"fra": 5, "ita": 6}
    models = Models(
        [ServedModel(several, OPTIONS, "en", ("fra", "ita")), ServedModel(Loud("2"), OPTIONS, "en", ("fr",))]
    )
    for target, expected in (("fr", 1), ("fra", 0), ("it", 0)):
        assert models.choose(source, target, ["The dog sleeps."]).model is models.models[expected]


def test_a_model_whose_tag_is_another_code_of_its_language_has_a_memory_too() -> None:
    """A child has the tags of its parent: `deu`, although its pairs were named `de`."""
    several = Loud("1")
    several.tokenizer = several.target_tokenizer = copy(several.tokenizer)
    several.tokenizer.tags = {"deu": 5, "ita": 6}
    memory = Memory()
    model = ServedModel(several, OPTIONS, "en", ("de", "ita"), memories={"de": memory})
    for target, expected in (("de", memory), ("deu", memory), ("it", None)):
        assert model.memory_to(target) is expected


def test_language_codes_may_have_other_capitals_and_a_region() -> None:
    with serving((Loud("1"), "en", "de"), (Loud("2"), "en_GB", "de"), (Loud("3"), "zh_Hans", "pt_BR")) as site:
        pairs = [
            ("EN", "De", "X1"), ("en-US", "de_AT", "X1"), ("es-419", "de", None), ("en-gb", "DE-de", "X2"),
            ("zh-hans-CN", "pt-br", "X3"), ("zh-Hant", "pt_BR", None), ("zh_Hans", "pt", None), ("en-Latn", "de", None),
        ]  # fmt: skip
        for source, target, expected in pairs:
            status, answer, _ = site.json("/translate", q="x", source=source, target=target)
            if expected:
                assert (status, answer["translatedText"]) == (200, expected)
            else:
                known = "en → de, en_GB → de, zh_Hans → pt_BR"
                assert (status, answer["error"]) == (400, f"no model for {source} → {target}; there is one for {known}")
        assert translated(site, "a.txt", b"x", source="EN-us", target="DE-ch", to="de")[1] == "X1"


@pytest.mark.parametrize("languages", [("en", "fr"), ("fr", "en")])
def test_a_file_that_declares_its_language_goes_to_the_model_of_it(languages: tuple[str, str]) -> None:
    source, other = languages
    unit = "<trans-unit><source>The dog sleeps in the garden.</source></trans-unit>"
    content = f'<xliff version="1.2"><file source-language="{source}">{unit}</file></xliff>'.encode()
    with serving((Loud("1"), other, "de"), (Loud("2"), source, "de")) as site:
        assert "THE DOG SLEEPS IN THE GARDEN.2</target>" in translated(site, "a.xlf", content, source="auto")[1]
        status, answer = upload(site, "a.xlf", content.replace(b"</file>", b""), source="auto", target="de")
        assert status == 400
        assert "not well-formed XML" in answer["error"]


def test_a_pair_that_two_models_translate_is_refused() -> None:
    with pytest.raises(UsageError, match="two models translate en → de"):
        Models([ServedModel(toy(), OPTIONS, "en", ("de",))] * 2)


def test_a_line_whose_translation_has_other_numbers_comes_with_a_warning(loud: Site) -> None:
    with serving((Loud(" 45"), "en", "de")) as other:
        answers = [site.json("/api/translate", q="It costs 7.5", source="en", target="de")[1] for site in (loud, other)]
    warnings = [answer["lines"][0]["warnings"] for answer in answers]
    assert warnings == [[], ["the translation has other numbers than the line (45 added)"]]


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
        ("n.txt.GZ", b"\x1f\x8b\x08", 400, "n.txt.GZ: compressed; unpack it (gunzip)"),
        ("n.txt", b"\xff\xfe\x00", 400, "n.txt"),
        ("n.csv", b"a,b\nc,d\n", 400, "n.csv: a table"),
        ("app_en.arb", b'{"@@locale": "en"}', 400, "the resources of a Flutter app"),
        (".html", b"\xff", 400, "file.html"),
        (".bashrc", b"x", 400, "file.bashrc: a file of unknown type"),
        ("", b"x", 400, "file"),
        ("..", b"x", 400, "no name"),
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
            assert site.json(path, q=text)[:2] == (
                413,
                {"error": "more than 3 sentences; this server takes 3 in a request"},
            )
        assert translated(site, "n.txt", text.encode())[1] == text.upper()


def test_a_word_that_a_translator_would_cut_is_divided() -> None:
    with serving((Loud(), "en", "de"), limits=RequestLimits(tokens=10_000)) as site:
        text = "x" * 5_000
        assert site.json("/translate", q=text)[1]["translatedText"] == text.upper()
        assert site.json("/api/translate", q=text)[1]["lines"][0]["candidates"][0]["text"] == text.upper()


def test_a_word_with_more_tokens_than_the_server_takes_is_refused() -> None:
    with serving((Loud(), "en", "de"), limits=RequestLimits(tokens=60)) as site:
        for path in ("/translate", "/api/translate"):
            status, answer, _ = site.json(path, q="x" * 500)
            assert status == 413
            assert answer["error"].endswith("this server takes 60 in a sentence")


def test_a_text_or_a_file_of_too_many_paragraphs_is_refused() -> None:
    limits = RequestLimits(lines=2, waiting=3, segments=4)
    with serving((Loud(), "en", "de"), limits=limits) as site:
        for count, status in ((3, 200), (4, 413)):  # the model would get one line, as they are the same
            found, answer, _ = site.json("/translate", q="<p>x" * count, source="en", format="html")
            assert found == status
        assert answer["error"] == "4 paragraphs; this server takes 3 in a request"
        assert translated(site, "n.html", b"<p>x" * 4)[1] == "<p>X" * 4
        assert upload(site, "n.html", b"<p>x" * 5) == (
            413,
            {"error": "n.html: 5 paragraphs; this server takes 4 in a file"},
        )


def test_files_and_detection_need_the_key_and_the_own_page() -> None:
    with serving((Loud(), "en", "de"), api_key="secret") as site:
        assert upload(site, "n.txt", b"x") == (403, {"error": "this server asks for an api_key"})
        assert upload(site, "n.txt", b"x", api_key="secre") == (403, {"error": "wrong api_key"})
        assert translated(site, "n.txt", b"x", api_key="secret")[1] == "X"
        assert site.json("/detect", q="x")[0] == 403
        kind = f"multipart/form-data; boundary={BOUNDARY}"
        body = multipart("n.txt", b"x", api_key="secret")
        assert site.send("/translate_file", body, content_type=kind, origin="http://evil.example")[0] == 403


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (".txt", "file_de.txt"),
        ("..txt", "file_de.txt"),
        (".notes.txt", "notes_de.txt"),
        ("C:\\texts\\letter.final.docx", "letter.final_de.docx"),
        ("../../etc/passwd", "passwd_de"),
        ("a\r\nSet-Cookie: x=1\0.txt", "a  Set-Cookie: x=1_de.txt"),
        ("\u202etxt.cod\u202c.txt", "txt.cod_de.txt"),  # the mark shows the letters from right to left
        ("نامه\u200cها.md", "نامهها_de.md"),
        ("3.12\u202fPM.txt", "3.12 PM_de.txt"),
        ('a"b%22%0D%0A%25.txt', 'a"b"  %25_de.txt'),
        ("x" * 300 + ".docx", "x" * 192 + "_de.docx"),
        ("ß" * 300 + ".docx", "ß" * 96 + "_de.docx"),
        ("x." + "1" * 300, "x_de." + "1" * 19),
    ],
)
def test_names_of_translated_files(sent: str, expected: str) -> None:
    assert translated_name(safe_name(sent), "de") == expected


def test_the_header_of_a_download_names_the_file_in_ascii_and_in_utf_8() -> None:
    assert attachment("a_de.txt") == "attachment; filename=\"a_de.txt\"; filename*=UTF-8''a_de.txt"
    assert attachment('Größe "%1\\?.txt') == (
        "attachment; filename=\"Gr__e __1__.txt\"; filename*=UTF-8''Gr%C3%B6%C3%9Fe%20%22%251%5C%3F.txt"
    )


def test_few_files_are_translated_at_a_time() -> None:
    with serving((Loud(), "en", "de"), limits=RequestLimits(files=0)) as site:
        status, answer = upload(site, "n.txt", b"x")
        assert (status, "too many files" in answer["error"]) == (503, True)


@contextmanager
def slow_upload(site: Site, sent: int, total: int = 19_000) -> Iterator[http.client.HTTPConnection]:
    """Send the first bytes of a form without a key, and keep the connection open."""
    with closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=HANGS)) as connection:
        connection.putrequest("POST", "/translate_file")
        connection.putheader("Content-Type", f"multipart/form-data; boundary={BOUNDARY}")
        connection.putheader("Content-Length", str(total))
        connection.endheaders(multipart("n.txt", b"x" * total)[:sent])
        yield connection


def test_slow_uploads_without_a_key_do_not_keep_other_files_out() -> None:
    limits = RequestLimits(files=1, file_body=20_000)
    with serving((Loud(), "en", "de"), limits=limits, api_key="secret") as site, ExitStack() as stay:
        for _ in range(4):
            stay.enter_context(slow_upload(site, 100))
        assert translated(site, "n.txt", b"x", api_key="secret")[1] == "X"


def test_the_upload_that_began_first_is_dropped_if_all_are_too_large() -> None:
    limits = RequestLimits(body=1, file_body=20_000)
    assert limits.all_bodies == 80_000
    with serving((Loud(), "en", "de"), limits=limits) as site, ExitStack() as stay:
        first, second, *_ = [stay.enter_context(slow_upload(site, 18_000)) for _ in range(5)]
        answer = first.getresponse()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert "too many requests arrive" in json.load(answer)["error"]
        small, large = (f"<!--{'x' * size}-->" for size in (5_000, 19_000))
        assert translated(site, "n.html", small.encode())[1] == small
        assert second.sock is not None
        assert not is_closed(second.sock)  # there was room for both
        assert translated(site, "n.html", large.encode())[1] == large
        second.sock.settimeout(HANGS)
        assert second.getresponse().status == 503


def test_a_file_stays_in_memory(loud: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MultiPartParser, "spool_max_size", 10)
    monkeypatch.setattr("tempfile.TemporaryFile", lambda *_, **__: 1 / 0)
    assert translated(loud, "n.txt", b"one dog " * 10)[1] == "ONE DOG " * 10


def test_a_file_whose_client_disconnects_is_abandoned() -> None:
    gated = Gated()
    lines = [f"line {number}" for number in range(2 * FILE_LINES)]
    with serving((gated, "en", "de"), limits=RequestLimits(files=1)) as site, ThreadPoolExecutor(1) as pool:
        body = multipart("n.txt", "\n".join(lines).encode(), source="en")
        leaving = http.client.HTTPConnection("127.0.0.1", site.port)
        leaving.request("POST", "/translate_file", body, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"})
        gated.begun.acquire()
        assert upload(site, "n.txt", b"other")[0] == 503
        leaving.close()
        until(lambda: upload(site, "broken.html", b"\xff")[0] == 400)  # no longer 503
        gated.gate.release(2)
        other = pool.submit(translated, site, "n.txt", b"other")
        assert other.result(HANGS)[1] == "OTHER"
    assert gated.calls == [lines[:FILE_LINES], ["other"]]


def test_a_file_counts_until_its_thread_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = Event()
    cancelled = Event()
    gate = Event()

    def uninterrupted(*arguments: Any, **options: Any) -> list[TranslatedSegment]:
        begun.set()
        assert gate.wait(HANGS)
        return translate_document(*arguments, **options)

    monkeypatch.setattr("mtcli.serve.translation.translate_document", uninterrupted)
    monkeypatch.setattr(WaitingTranslator, "cancel", lambda _: cancelled.set())
    with serving((Loud(), "en", "de"), limits=RequestLimits(files=1)) as site:
        leaving = http.client.HTTPConnection("127.0.0.1", site.port)
        kind = f"multipart/form-data; boundary={BOUNDARY}"
        leaving.request("POST", "/translate_file", multipart("n.txt", b"x"), {"Content-Type": kind})
        assert begun.wait(HANGS)
        leaving.close()
        assert cancelled.wait(HANGS)
        assert upload(site, "n.txt", b"x")[0] == 503
        gate.set()
        until(lambda: upload(site, "n.txt", b"x")[0] == 200)


def test_files_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(application.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(application, "KEPT_BYTES", 10)
    store = FileStore()
    first = store.add("a", b"12345")
    second = store.add("b", b"12345")
    assert (store.find(first, "a"), store.find(first, "b"), store.find(second, "b")) == (b"12345", None, b"12345")
    third = store.add("c", b"123456789012")  # larger than the limit alone
    assert (store.find(first, "a"), store.find(second, "b"), len(store.files)) == (None, None, 1)
    now[0] = application.KEPT_SECONDS + 1
    assert store.find(third, "c") is None


def test_json_of_the_page_lists_the_models_and_the_types_of_files(loud: Site) -> None:
    _, html, _ = loud.send("/")
    data = html.partition("const models = ")[2].partition(";\n")[0]
    assert [(model["src"], model["targets"]) for model in json.loads(data)] == [("en", ["de"])]
    suffixes = json.loads(html.partition("const suffixes = ")[2].partition(";\n")[0])
    assert {".docx", ".epub", ".html", ".json", ".odt", ".pptx", ".srt", ".xlsx"} <= set(suffixes)
    assert ".csv" not in suffixes
