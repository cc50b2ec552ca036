import asyncio
import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from helpers.harness import Child, start
from helpers.processes import HANGS
from helpers.servers import OPTIONS, Gated, Site, is_closed, started, until
from helpers.slow_server import ALLOWED, serve_endlessly, wait_for_permission
from helpers.toy import PAIRS, TorchTranslator, disturbed, save_toy, several_toy, toy
from libretranslatepy import LibreTranslateAPI
from typer.testing import CliRunner

import mtcli.serve
from mtcli.cli import app
from mtcli.cli.serve import serve
from mtcli.documents.pipeline import translate_segments
from mtcli.errors import DataError, UsageError
from mtcli.serve.app import ServerSettings, create_app, load_app
from mtcli.serve.batcher import MAX_BATCH_LINES, Batcher, FullError
from mtcli.serve.models import ServedModel, through_pivots
from mtcli.serve.origin_check import is_loopback
from mtcli.serve.page import PageData, page_data, render
from mtcli.serve.requests import RequestLimits
from mtcli.serve.server import MIN_READ, UNAVAILABLE, Capacity, Connection, Connections, listen
from mtcli.text.languages import Direction
from mtcli.translate.line_warnings import UNSEEN
from mtcli.translate.loading import LoadedModel
from mtcli.translate.translation import Translation
from mtcli.translate.translator import Translator
from mtcli.translate.windows import Reading

LINES = [source for source, _ in PAIRS[::5]]


def best(lines: Iterable[str], **changes: Any) -> list[Translation]:
    """Return the translations of `mtcli translate`."""
    return list(toy().translate(lines, replace(OPTIONS, **changes), Reading(warn=False)))


def served(translator: Translator, src: str = "en", tgt: str = "es") -> ServedModel:
    return ServedModel(translator, OPTIONS, src, (tgt,))


@contextmanager
def running(translator: Translator, limits: RequestLimits | None = None, api_key: str | None = None) -> Iterator[Site]:
    limits = limits or RequestLimits()
    with started(create_app([served(translator)], ServerSettings(limits, api_key)), limits.seconds) as site:
        yield site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(toy(), RequestLimits(body=20_000, lines=100, tokens=60)) as found:
        yield found


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_script_of_the_page_is_valid(tmp_path: Path) -> None:
    html, _ = render([PageData("en", ("es",))])
    script = tmp_path / "page.js"
    script.write_text(html.partition("<script>")[2].partition("</script>")[0], encoding="utf-8")
    checked = subprocess.run(["node", "--check", script], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


# ---- the LibreTranslate API ----


def test_a_libretranslate_client_works_unchanged(site: Site) -> None:
    client = LibreTranslateAPI(site.url)
    for line in LINES[:5]:
        assert client.translate(line, "en", "es") == best([line])[0].text
    text = f"{LINES[0]}\r\n\n  \n{LINES[1]}\n"
    first, second = (found.text for found in best(LINES[:2]))
    assert client.translate(text, "en", "es") == f"{first}\r\n\n  \n{second}\n"
    assert client.languages() == [
        {"code": "en", "name": "English", "targets": ["es"]},
        {"code": "es", "name": "Spanish", "targets": []},
    ]
    found = client.detect("El perro está en la casa y los niños juegan.")
    assert [guess["language"] for guess in found] == ["es", "en"]
    assert found[0]["confidence"] > 90
    with pytest.raises(urllib.error.HTTPError, match="400") as refused:
        client.translate("Hello", "de", "fr")
    assert "en → es" in json.loads(refused.value.read())["error"]


def test_q_is_a_text_or_a_list_in_json_or_a_form(site: Site) -> None:
    one, two = (found.text for found in best(LINES[:2]))
    asked = {"source": "en", "target": "es"}
    assert site.json("/translate", q=LINES[0], **asked)[:2] == (200, {"translatedText": one})
    assert site.json("/translate", q=LINES[:2], **asked)[:2] == (200, {"translatedText": [one, two]})
    assert site.form(q=LINES[0], format="text", secret="ignored", **asked)[:2] == (200, {"translatedText": one})
    assert site.form(q=LINES[:2], **asked)[:2] == (200, {"translatedText": [one, two]})
    assert site.json("/translate", q="", **asked)[1] == {"translatedText": ""}
    assert site.json("/translate", q=[], **asked)[1] == {"translatedText": []}


def test_a_field_that_is_null_or_empty_is_unset(site: Site) -> None:
    expected = best(LINES[:1])[0].text
    unset = {"target": None, "format": None, "alternatives": None, "terms": None, "api_key": None}
    assert site.json("/translate", q=LINES[0], source="en", **unset)[:2] == (200, {"translatedText": expected})
    status, answer, _ = site.form(q=LINES[0], source="", target="", format="", alternatives="", api_key="")
    assert (status, answer["translatedText"]) == (200, expected)
    assert answer["detectedLanguage"]["language"] == "en"


def test_the_source_is_identified_among_the_languages_of_the_server(site: Site) -> None:
    for source in ({"source": "auto"}, {}):
        answer = site.json("/translate", q="The old king reads a book.", target="es", **source)[1]
        assert answer["detectedLanguage"]["language"] == "en"
        assert answer["detectedLanguage"]["confidence"] > 90
    both = site.json("/translate", q=["El rey viejo lee un libro.", "12"])[1]["detectedLanguage"]
    assert both[0] == both[1]
    assert both[0]["language"] == "en"  # the only source language
    assert both[0]["confidence"] < 20
    assert site.json("/detect", q="12")[1] == [{"language": "en", "confidence": 0.0}]


@pytest.mark.parametrize(("source", "target"), [("en", "en"), ("es", "es"), ("EN", "en-US"), ("en", "EN")])
def test_texts_stay_as_they_are_if_source_and_target_are_one_language(site: Site, source: str, target: str) -> None:
    texts = [LINES[0], "<p>a < b &amp; <i>c</i>\r\n\nd", ""]
    asked = {"source": source, "target": target}
    for form in ("text", "html"):
        for text in texts:
            assert site.json("/translate", q=text, format=form, **asked)[:2] == (200, {"translatedText": text})
        assert site.json("/translate", q=texts, format=form, **asked)[:2] == (200, {"translatedText": texts})
    several = site.json("/translate", q=texts, alternatives=2, **asked)[1]
    assert several == {"translatedText": texts, "alternatives": [[], [], []]}
    assert site.form(q=texts[1], **asked)[:2] == (200, {"translatedText": texts[1]})
    lines = site.json("/api/translate", q=f"{LINES[0]}\r\n\nnew", **asked)[1]["lines"]
    assert [(line["source"], [each["text"] for each in line["candidates"]]) for line in lines] == [
        (line, [line]) for line in (LINES[0], "", "new")
    ]
    assert site.json("/translate", q="x", source="de", target="de")[0] == 400  # not a language of this server


def test_a_model_that_translates_into_the_same_language_is_used() -> None:
    with started(create_app([served(toy(), "en", "en")], ServerSettings())) as site:
        answer = site.json("/translate", q=LINES[0], source="en", target="en")[1]
    assert answer == {"translatedText": best(LINES[:1])[0].text}


@pytest.mark.parametrize("alternatives", [1, 5])
def test_alternatives_come_from_the_beam(site: Site, alternatives: int) -> None:
    n = alternatives + 1
    found = best(LINES[:2], n_best=n)
    asked = {"source": "en", "target": "es", "alternatives": alternatives}
    first, *others = (candidate.text for candidate in found[0].candidates)
    answer = {"translatedText": first, "alternatives": others}
    assert len(others) == alternatives
    assert site.json("/translate", q=LINES[0], **asked)[1] == answer
    assert site.form(q=LINES[0], **asked)[1] == answer
    both = site.json("/translate", q=LINES[:2], **asked)[1]
    assert both["alternatives"] == [[c.text for c in line.candidates[1:]] for line in found]
    joined = site.json("/translate", q=f"{LINES[0]}\n\n{LINES[1]}", **asked)[1]
    assert joined["alternatives"] == [
        f"{a.text}\n\n{b.text}" for a, b in zip(*(line.candidates[1:] for line in found), strict=True)
    ]


def test_alternatives_differ_and_do_not_change_the_translation(site: Site) -> None:
    for line in LINES[:6]:
        expected = site.json("/translate", q=line, source="en")[1]["translatedText"]
        for alternatives in (1, 3, 9):
            answer = site.json("/translate", q=line, source="en", alternatives=alternatives)[1]
            assert answer["translatedText"] == expected
            assert len({expected, *answer["alternatives"]}) == 1 + len(answer["alternatives"]) == 1 + alternatives
    assert site.json("/translate", q="", source="en", alternatives=3)[1] == {"translatedText": "", "alternatives": []}


def test_scores_and_alignments(site: Site) -> None:
    lines = [LINES[3], "", LINES[7]]
    status, answer, _ = site.json("/api/translate", q=lines, alternatives=2)
    assert status == 200
    for record, found in zip(answer["lines"], best(lines, n_best=3, alignments=True), strict=True):
        assert record["source"] == found.source
        for shown, candidate in zip(record["candidates"], found.candidates, strict=True):
            assert shown["text"] == candidate.text
            assert shown["alignment"] == [list(link) for link in candidate.alignment]
            assert shown["score"] == pytest.approx(candidate.score, abs=1e-5)
            assert shown["log_prob"] == pytest.approx(candidate.log_prob, abs=1e-5)
    assert [len(record["candidates"]) for record in answer["lines"]] == [3, 1, 3]


def test_lines_come_with_their_warnings(site: Site) -> None:
    status, answer, _ = site.json("/api/translate", q=[LINES[3], "日本語の猫", "😀"])
    assert status == 200
    unseen = [UNSEEN in line["warnings"] for line in answer["lines"]]
    assert unseen == [False, True, False]


# ---- refusals ----

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    ("body", "kind", "status", "says"),
    [
        (b'{"q": "x"', JSON, 400, "JSON"),
        (b"", JSON, 400, "JSON"),
        (b"[" * 9_000, JSON, 400, "JSON"),
        (b'{"q": "\xff"}', JSON, 400, "JSON"),
        (b'{"q": "\\ud800"}', JSON, 400, "JSON"),
        (b"[]", JSON, 400, "object"),
        (b"{}", JSON, 400, "q: Field required"),
        (b'{"q": 3}', JSON, 400, "q: "),
        (b'{"q": null}', JSON, 400, "q: "),
        (b'{"q": "x", "alternatives": 10}', JSON, 400, "alternatives: "),
        (b'{"q": "x", "alternatives": "some"}', JSON, 400, "alternatives: "),
        (b'{"q": "x", "format": "pdf"}', JSON, 400, "format pdf"),
        (b'{"q": "x", "source": "de"}', JSON, 400, "de → ; there is one for en → es"),
        (b'{"q": "x", "target": "fr"}', JSON, 400, "auto → fr; there is one for en → es"),
        (b'{"q": "a\\u0000b"}', JSON, 400, "NUL"),
        (b'{"q": ["a", "b\\u0000"]}', JSON, 400, "NUL"),
        (b"q=a%00b", FORM, 400, "NUL"),
        (b"target=es", FORM, 400, "q: Field required"),
        (b"q=%ff", FORM, 400, "not a valid form"),
        (b"q=&" * 2_000, FORM, 400, "not a valid form"),
        (b"q=\xff", FORM, 400, "not a valid form"),
        (b'{"q": "x"}', "text/plain", 415, "application/json"),
        (b'{"q": "' + b"x" * 20_000 + b'"}', JSON, 413, "20,000 bytes"),
        (json.dumps({"q": ["x"] * 101}).encode(), JSON, 413, "101 lines"),
        (json.dumps({"q": "x\n" * 100}).encode(), JSON, 413, "101 lines"),
        (json.dumps({"q": ["x", "dog" * 61]}).encode(), JSON, 413, "tokens; this server takes 60"),
    ],
)
def test_an_invalid_request_is_refused_with_the_reason(
    site: Site, body: bytes, kind: str, status: int, says: str
) -> None:
    for path in ("/translate", "/api/translate"):
        found, answer, _ = site.send(path, body, content_type=kind)
        assert found == status
        assert list(answer) == ["error"]
        assert says in answer["error"]
    assert site.json("/translate", q=LINES[0])[1]["translatedText"] == best(LINES[:1])[0].text


def test_the_tokens_of_a_line_are_counted_after_its_normalization(site: Site) -> None:
    line = "\u0958" * 18  # NFC makes two characters of each
    assert len(line.encode()) < 60
    status, answer, _ = site.json("/translate", q=line)
    assert (status, answer) == (413, {"error": "a sentence has 109 tokens; this server takes 60 in a sentence"})


def test_other_paths_and_methods(site: Site) -> None:
    assert site.send("/docs")[:2] == (404, {"error": "Not Found"})
    assert site.send("/translate")[0] == 405
    assert site.send("/health")[:2] == (200, {"status": "ok", "waiting": 0})


def test_an_error_outside_of_the_translation_is_answered_as_json(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtcli.serve.app.percent", lambda _: 1 / 0)
    answer = site.json("/detect", q="A dog sleeps in the garden.")
    assert answer[:2] == (500, {"error": "the request failed; the server's log says why"})


def answer_to(site: Site, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers without the date, and body."""
    with closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=HANGS)) as connection:
        connection.request(method, path)
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders() if name.lower() != "date"}
        return answer.status, headers, answer.read()


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/", 200), ("/languages", 200), ("/health", 200), ("/translate", 405), ("/no/such/path", 404)],
)
def test_head_has_the_status_and_headers_of_get_without_a_body(site: Site, path: str, expected: int) -> None:
    status, headers, body = answer_to(site, "GET", path)
    assert status == expected
    assert headers["content-length"] == str(len(body))
    assert answer_to(site, "HEAD", path) == (status, headers, b"")


def test_translating_needs_the_key() -> None:
    with running(toy(), api_key="très secret") as site:
        expected = best(LINES[:1])[0].text
        assert LibreTranslateAPI(site.url, "très secret").translate(LINES[0], "en", "es") == expected
        assert site.json("/api/translate", q="", api_key="très secret")[0] == 200
        for path in ("/translate", "/api/translate"):
            assert site.json(path, q=LINES[0])[:2] == (403, {"error": "this server asks for an api_key"})
            assert site.json(path, q=LINES[0], api_key="secret")[:2] == (403, {"error": "wrong api_key"})
        assert [site.send(path)[0] for path in ("/", "/languages", "/health")] == [200, 200, 200]


# ---- together ----


def test_lines_that_arrive_while_the_model_works_are_batched() -> None:
    gated = Gated()
    batcher = Batcher(gated, max_waiting=10)
    waiting = batcher.submit(["a"], OPTIONS)
    gated.begun.acquire()
    greedy = replace(OPTIONS, beam_size=1)
    for lines, options in ((["b", "c"], OPTIONS), (["d"], greedy), (["e"], OPTIONS)):
        waiting += batcher.submit(lines, options)
    for _ in range(3):
        gated.gate.release()
    assert [one.result(HANGS).text for one in waiting] == list("ABCDE")
    assert gated.calls == [["a"], ["b", "e", "c"], ["d"]]  # of each request one line in turn
    batcher.close()
    assert not batcher.alive


def test_a_long_request_does_not_block_others() -> None:
    gated = Gated()
    batcher = Batcher(gated, max_waiting=10_000)
    long = batcher.submit(["x"] * (MAX_BATCH_LINES + 1), OPTIONS)
    short = batcher.submit(["y"], OPTIONS)
    for _ in range(2):
        gated.gate.release()
    assert [short[0].result(HANGS).text, long[-1].result(HANGS).text] == ["Y", "X"]
    assert [len(lines) for lines in gated.calls] == [MAX_BATCH_LINES, 2]
    batcher.close()


def test_each_request_has_lines_in_the_next_batch() -> None:
    gated = Gated()
    batcher = Batcher(gated, max_waiting=3 * MAX_BATCH_LINES)
    batcher.submit(["running"], OPTIONS)
    gated.begun.acquire()
    long = batcher.submit(["x"] * 3 * MAX_BATCH_LINES, OPTIONS)
    with pytest.raises(FullError):
        batcher.submit(["z"] * 3 * MAX_BATCH_LINES, OPTIONS)
    short = batcher.submit(["y"] * 9, OPTIONS)  # the long request does not keep it out
    gated.gate.release(2)
    assert [one.result(HANGS).text for one in short] == ["Y"] * 9
    assert gated.calls[1] == ["x", "y"] * 9 + ["x"] * (MAX_BATCH_LINES - 18)
    assert not long[-1].done()
    gated.gate.release(9)
    batcher.close()


def test_lines_beyond_the_limit_of_the_queue_are_refused() -> None:
    gated = Gated()
    batcher = Batcher(gated, max_waiting=2)
    done = batcher.submit(["a"], OPTIONS)
    gated.begun.acquire()
    done += batcher.submit(["b", "c", "d"], OPTIONS)
    with pytest.raises(FullError):
        batcher.submit(["e", "f"], OPTIONS)
    gated.gate.release(2)
    assert [one.result(HANGS).text for one in done] == list("ABCD")
    gated.gate.release()
    assert batcher.submit(["e"], OPTIONS)[0].result(HANGS).text == "E"
    batcher.close()


def test_a_cancelled_line_is_not_translated() -> None:
    gated = Gated()
    batcher = Batcher(gated, max_waiting=9)
    batcher.submit(["a"], OPTIONS)
    gated.begun.acquire()
    b, c = batcher.submit(["b", "c"], OPTIONS)
    assert b.cancel()
    gated.gate.release(2)
    assert c.result(HANGS).text == "C"
    assert gated.calls == [["a"], ["c"]]
    batcher.close()


def test_a_bad_line_does_not_fail_the_others() -> None:
    gated = Gated()
    batcher = Batcher(gated, max_waiting=9)
    a, bad, b, worse = batcher.submit(["a", "bad", "b", "worse"], OPTIONS)
    gated.gate.release(5)
    assert [a.result(HANGS).text, b.result(HANGS).text] == ["A", "B"]
    assert isinstance(bad.exception(30), DataError)
    assert isinstance(worse.exception(30), ValueError)
    batcher.close()


def test_closing_cancels_waiting_lines_and_abandons_a_batch_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("mtcli.serve.batcher.CLOSE_SECONDS", 0.01)
    gated = Gated()
    batcher = Batcher(gated, max_waiting=9)
    begun = batcher.submit(["a", "b"], OPTIONS)
    gated.begun.acquire()
    (waiting,) = batcher.submit(["c"], OPTIONS)
    batcher.close()
    assert batcher.alive
    assert waiting.cancelled()
    assert caplog.messages == ["abandoned the translation of 2 lines"]
    gated.gate.release()
    assert [one.result(HANGS).text for one in begun] == ["A", "B"]
    until(lambda: not batcher.alive)


def test_a_full_queue_and_a_failed_translation_are_reported() -> None:
    gated = Gated()
    with running(gated, RequestLimits(waiting=1)) as site, ThreadPoolExecutor(2) as pool:
        first = pool.submit(site.json, "/translate", q="a", source="en")
        gated.begun.acquire()
        second = pool.submit(site.json, "/translate", q="b", source="en")
        site.until_waiting(1)
        status, answer, headers = site.json("/translate", q="c")
        assert (status, headers["retry-after"]) == (503, "1")
        assert "too many lines are waiting" in answer["error"]
        gated.gate.release(2)
        assert [one.result()[1]["translatedText"] for one in (first, second)] == ["A", "B"]
        gated.gate.release(3)
        assert site.json("/translate", q="bad")[:2] == (400, {"error": "a bad line"})
        status, answer, _ = site.json("/translate", q="broken")
        assert (status, "not finite" in answer["error"]) == (500, True)
        status, answer, _ = site.json("/translate", q="worse")
        assert (status, "log" in answer["error"]) == (500, True)
        gated.gate.release()
        assert site.json("/translate", q="d", source="en")[1] == {"translatedText": "D"}


def test_texts_that_are_too_large_together_are_refused() -> None:
    gated = Gated()
    limits = RequestLimits(body=200)
    assert limits.all_characters == 800
    with running(gated, limits) as site, ThreadPoolExecutor(6) as pool:
        long = "x" * 150
        under_way = [pool.submit(site.json, "/translate", q=long, source="en")]
        gated.begun.acquire()
        under_way += [pool.submit(site.json, "/api/translate", q=long, source="en") for _ in range(4)]
        site.until_waiting(4)
        status, answer, headers = site.json("/translate", q=long, source="en")
        assert (status, headers["retry-after"]) == (503, "1")
        assert "too many texts are in progress" in answer["error"]
        under_way.append(pool.submit(site.json, "/translate", q="y", source="en"))
        gated.gate.release(9)
        assert [one.result()[0] for one in under_way] == 6 * [200]
        assert site.json("/translate", q=long, source="en")[0] == 200


def test_a_request_that_takes_too_long_is_cancelled() -> None:
    gated = Gated()
    with running(gated, RequestLimits(seconds=2)) as site, ThreadPoolExecutor(2) as pool:
        first = pool.submit(site.json, "/translate", q="a")
        gated.begun.acquire()
        for late in (first, pool.submit(site.json, "/translate", q="b")):
            assert late.result()[0] == 503
            assert "not translated within 2 seconds" in late.result()[1]["error"]
        gated.gate.release(2)
    assert gated.calls == [["a"]]  # none waited for "b" any more


def test_a_request_is_answered_in_time_and_counts_until_its_work_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    ended = threading.Event()

    def translate_slowly(*_: Any, **__: Any) -> None:
        released.wait(HANGS)
        ended.set()
        raise DataError("late")

    monkeypatch.setattr("mtcli.serve.translation.translate_segments", translate_slowly)
    with running(toy(), RequestLimits(body=200, seconds=0.5)) as site:
        long = "x" * 150
        for _ in range(5):
            assert "not translated within" in site.json("/translate", q=long, source="en")[1]["error"]
        assert "too many texts are in progress" in site.json("/translate", q=long, source="en")[1]["error"]
        released.set()
        until(lambda: site.json("/translate", q=long, source="en")[0] == 400)


@pytest.mark.parametrize("text", ["Hi! " * 5000, "a b " * 40_000], ids=["sentences", "words"])
@pytest.mark.parametrize("path", ["/translate", "/api/translate"])
def test_a_text_of_too_many_sentences_is_refused_before_it_is_split(
    text: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtcli.documents.pipeline.SegmentDivider.divide", lambda *_: pytest.fail("split"))
    with running(toy(), RequestLimits(waiting=1000, lines=9)) as site:
        status, answer, _ = site.json(path, q=text, source="en")
        assert status == 413
        assert "more than 1,000 sentences" in answer["error"]


def test_long_texts_are_split_one_at_a_time_and_short_ones_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    split = []
    gate = threading.Semaphore(0)

    def translate(segments: Any, *arguments: Any, **options: Any) -> Any:
        if len(str(segments)) > 10_000:
            split.append(1)
            assert gate.acquire(timeout=HANGS)
            segments = [("a cat",) for _ in segments]
        return translate_segments(segments, *arguments, **options)

    monkeypatch.setattr("mtcli.serve.translation.translate_segments", translate)
    with running(toy()) as site, ThreadPoolExecutor(3) as pool:
        long = [pool.submit(site.json, "/translate", q="cat " * 3000, source="en") for _ in range(3)]
        until(lambda: len(split) > 0)
        assert site.json("/translate", q="a cat", source="en")[0] == 200
        assert len(split) == 1
        gate.release(3)
        assert [one.result()[0] for one in long] == [200, 200, 200]


def test_a_text_of_too_many_lines_is_refused_before_it_is_split(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtcli.serve.translation._split_lines", lambda text: 1 / 0)
    for q in ("\n" * 100, ["a", "\n" * 99]):
        assert site.json("/translate", q=q)[0] == 413


def test_requests_for_another_host_name_are_refused() -> None:
    with started(create_app([served(toy())], ServerSettings(host="127.0.0.1"))) as site:
        for host in ("localhost", f"127.0.0.1:{site.port}", "[::1]:80", "LOCALHOST:1", "localhost.:5000", "127.9.8.7"):
            assert site.send("/languages", host=host)[0] == 200
        foreign = (
            "example.org",
            "127.0.0.1.example.org",
            "example.org:5000",
            "localhost.:5000:1",
            "[::1",
            "localhost..",
        )
        for host in (*foreign, "128.0.0.1", "[::2]", "localhost:x", "localhost:5000@example.org", "", " "):
            for path in ("/translate", "/", "/docs", "/no/such/path"):
                status, answer, _ = site.send(path, b"q=x", host=host)
                assert (host, status, "answers as localhost, 127.0.0.1" in answer["error"]) == (host, 421, True)


def test_a_server_answers_under_the_name_of_its_host_option() -> None:
    with started(create_app([served(toy())], ServerSettings(host="MyBox"))) as site:
        for host in ("mybox:80", "MYBOX.", "localhost"):
            assert site.send("/health", host=host)[0] == 200, host
        for host in ("other", "notmybox", "not.mybox", "box", "my", "mybox2", "mybox.example.org"):
            assert site.send("/health", host=host)[0] == 421, host
    with running(toy()) as site:
        assert site.send("/health", host="example.org")[0] == 200


def test_loopback_names() -> None:
    names = ("localhost", "Localhost.", "127.0.0.1", "127.255.0.3", "::1", "[::1]", "0:0:0:0:0:0:0:1")
    assert all(map(is_loopback, (*names, "::ffff:127.0.0.1", "[::ffff:7f00:1]")))
    assert not any(map(is_loopback, ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example.org", "127.1.example.org")))
    assert not is_loopback("::ffff:10.0.0.1")


@pytest.mark.parametrize("path", ["/translate", "/api/translate", "/detect", "/no/such/path"])
def test_a_page_of_another_site_is_refused(site: Site, path: str) -> None:
    own = f"http://127.0.0.1:{site.port}"
    expected = 200 if "translate" in path else site.send(path, b"q=")[0]
    for headers in ({}, {"origin": own}, {"sec_fetch_site": "same-origin"}, {"sec_fetch_site": "none"},
                    {"sec_fetch_site": "same-origin", "origin": "https://proxy.example.org"}):  # fmt: skip
        assert site.send(path, b"q=", **headers)[0] == expected
    others = ("https://example.org", "null", "", "file://", "http://127.0.0.1:1", f"{own}.example.org", f"{own}/")
    for headers in (*({"origin": origin} for origin in others), {"sec_fetch_site": "cross-site"},
                    {"sec_fetch_site": "same-site", "origin": own}):  # fmt: skip
        for kind, body in ((FORM, b"q="), (JSON, b'{"q": ""}'), ("text/plain", b'{"q": ""}')):
            status, answer, found = site.send(path, body, content_type=kind, **headers)
            assert (headers, status, "another site" in answer["error"]) == (headers, 403, True)
            assert "access-control-allow-origin" not in found
    assert site.send("/", sec_fetch_site="cross-site")[0] == 200  # a link to the page


def test_the_lines_of_a_client_that_disconnects_are_cancelled() -> None:
    gated = Gated()
    with running(gated, RequestLimits(seconds=20)) as site, ThreadPoolExecutor(2) as pool:
        first = pool.submit(site.json, "/translate", q="a", source="en")
        gated.begun.acquire()
        leaving = http.client.HTTPConnection("127.0.0.1", site.port)
        leaving.request("POST", "/translate", json.dumps({"q": "b"}), {"Content-Type": JSON})
        site.until_waiting(1)
        leaving.close()
        second = pool.submit(site.json, "/translate", q="c", source="en")
        site.until_waiting(2)
        gated.gate.release(3)
        assert [one.result()[1]["translatedText"] for one in (first, second)] == ["A", "C"]
        assert all("b" not in lines for lines in gated.calls)


def test_many_clients_get_the_translations_of_the_command() -> None:
    expected = {found.source: found.text for found in best(LINES)}
    with running(toy()) as site, ThreadPoolExecutor(16) as pool:
        client = LibreTranslateAPI(site.url)

        def work(number: int) -> list[tuple[str, str]]:
            mine = [LINES[(number * 7 + i) % len(LINES)] for i in range(12)]
            return [(line, client.translate(line, "en", "es")) for line in mine]

        answers = [pair for pairs in pool.map(work, range(16)) for pair in pairs]
    assert len(answers) == 16 * 12
    assert [pair for pair in answers if expected[pair[0]] != pair[1]] == []


# ---- many connections ----


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Allow four open connections."""
    monkeypatch.setattr(Capacity, "measured", lambda: Capacity(connections=4, backlog=2))
    return caplog


def test_connections_that_wait_longest_are_closed_for_new_ones(few: pytest.LogCaptureFixture) -> None:
    with running(toy()) as site, ExitStack() as stay:
        idle = [stay.enter_context(socket.create_connection(("127.0.0.1", site.port))) for _ in range(9)]
        assert site.json("/translate", q=LINES[0])[0] == 200
        until(lambda: [is_closed(one) for one in idle] == 6 * [True] + 3 * [False])
    assert ["4 connections are open, the most" in line for line in few.messages] == [True]


def connected(connections: Connections, port: int) -> tuple[Connection, Mock]:
    """Return a connection from this port, and its transport."""
    ends = {"peername": ("127.0.0.1", port), "sockname": ("127.0.0.1", 5000)}
    transport = Mock(asyncio.Transport, **{"get_extra_info.side_effect": ends.get, "is_closing.return_value": False})
    connection = Connection(Mock(asyncio.Protocol), connections)
    connection.connection_made(transport)
    return connection, transport


def test_a_connection_that_waits_for_the_server_is_kept(few: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        connections = Connections(toy(), Capacity(1, 1), 60.0)
        first, transport = connected(connections, 1)
        first.request_began(has_body=True)
        first.request_arrived()
        refused, other = connected(connections, 2)
        other.write.assert_called_once_with(UNAVAILABLE)
        other.close.assert_called_once()
        refused.http.connection_made.assert_not_called()
        transport.abort.assert_not_called()
        first.request_answered()
        _, other = connected(connections, 3)
        other.write.assert_not_called()
        transport.abort.assert_called_once()

    asyncio.run(scenario())


def test_a_client_may_read_a_large_answer_slowly_but_not_stop_reading() -> None:
    async def scenario() -> None:
        connections = Connections(toy(), Capacity(1, 1), seconds=0.0)
        connection, transport = connected(connections, 1)
        unread = [3 * MIN_READ, 2 * MIN_READ, MIN_READ, MIN_READ - 1]
        transport.get_write_buffer_size.side_effect = unread
        connection.pause_writing()
        async with asyncio.timeout(HANGS):
            while not transport.abort.called:
                await asyncio.sleep(0)
        assert transport.get_write_buffer_size.call_count == len(unread)

    asyncio.run(scenario())


# ---- the page ----


def test_the_page_loads_nothing_from_elsewhere(site: Site) -> None:
    status, html, headers = site.send("/")
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    assert 'const models = [{"src": "en", "targets": ["es"], ' in html
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    for tag in ("script", "style"):
        inside = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.S)
        assert len(inside) == html.count(f"<{tag}") == 1
        assert policy[f"{tag}-src"] == f"'sha256-{b64encode(sha256(inside[0].encode()).digest()).decode()}'"
    assert not re.search(r"https?:|\bsrc=|@import|url\(|style=|\son\w+=", html)
    assert re.findall(r'href="([^"]*)"', html) == ["data:,"]


def run_folder(folder: Path, src: str, tgt: str) -> Path:
    """Write those files of a run, with a test score and test pairs, that the page reads."""
    (folder / "data").mkdir(parents=True)
    (folder / "config.toml").write_text(f'preset = "tiny"\n[data]\nsrc = "{src}"\ntgt = "{tgt}"\n')
    score = {"name": "BLEU", "score": 31.234, "confidence": [31.2, 1.04], "signature": "nrefs:1"}
    events = [
        {"event": "test", "step": 5, "format": 2, "steps": [5], "pairs": 300, "beam_size": 4, "scores": [score]},
        {"event": "end", "step": 5, "reason": "budget used", "best_step": 5, "averaged": [], "seconds": 1.0},
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    sources = ["Guten Tag!", "Guten Tag!", "Sehr lang " * 9, "Wie geht es dir?", "</script>", "Noch einer."]
    rows = [json.dumps({"translation": {src: source, tgt: "x"}}) for source in sources]
    (folder / "data" / "test.jsonl").write_text("\n".join(rows) + "\n")
    return folder


def test_the_page_names_the_model_its_score_and_three_examples(tmp_path: Path) -> None:
    found = page_data(run_folder(tmp_path / "run", "de", "fr"), "de", ("fr",), public=True)
    assert found.name == "run"
    assert found.score == "BLEU 31.2 ± 1.0 (test)"
    assert found.examples == ("Guten Tag!", "Wie geht es dir?", "</script>")
    html, _ = render([found])
    assert html.count("</script>") == 1


def test_the_page_shows_no_test_pairs_if_a_key_is_needed(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", "de", "fr")
    assert page_data(run, "de", ("fr",), public=False).examples == ()
    assert "The old king reads a book." in page_data(run, "en", ("es",), public=False).examples


def test_the_page_omits_what_is_missing_or_damaged(tmp_path: Path) -> None:
    assert page_data(save_toy(tmp_path), "de", ("fr",), public=True) == PageData("de", ("fr",), name=tmp_path.name)
    run = run_folder(tmp_path / "run", "de", "fr")
    (run / "config.toml").write_text("{")
    (run / "data" / "test.jsonl").write_text("{")
    found = page_data(run, "de", ("fr",), public=True)
    assert (found.score, found.examples) == ("", ())


# ---- the command ----


def test_an_exported_model_is_served_too(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    from mtcli.exchange.export import export

    run = tmp_path / "run"
    (run / "data").mkdir(parents=True)
    rows = [json.dumps({"translation": {"en": src, "es": tgt}}) for src, tgt in PAIRS[::40]]
    (run / "data" / "test.jsonl").write_text("\n".join(rows) + "\n")
    export(save_toy(run), "ctranslate2", tmp_path / "exported")
    app, languages = load_app([tmp_path / "exported"], ServerSettings(), "cpu")
    assert languages == [("en", "es")]
    with started(app) as site:
        found = site.json("/translate", q=LINES[:9], source="en", target="es")[1]["translatedText"]
        assert found == [translation.text for translation in best(LINES[:9])]
        status, answer, _ = site.json("/api/translate", q=LINES[0])
        links = best(LINES[:1], alignments=True)[0].candidates[0].alignment
        assert (status, answer["lines"][0]["candidates"][0]["alignment"]) == (200, [list(link) for link in links])


@contextmanager
def process(folder: Path, *within: Callable[[], None]) -> Iterator[tuple[Child, Site]]:
    """Serve a model in another process, which first calls some functions."""
    child = start("serve", "--model", folder, "--port", "0", "--timeout", str(HANGS), within=within)
    try:
        said = first_line(child, "err")
        found = re.fullmatch(r"en → es at http://127\.0\.0\.1:(\d+)/ \(Ctrl-C ends it\)\n", said)
        assert found, said
        yield child, Site(int(found[1]))
    finally:
        child.process.kill()


def first_line(child: Child, name: str) -> str:
    """Wait for the first line that a process writes to `out` or `err`, and return it."""
    file = child.folder / name
    until(lambda: (file.exists() and "\n" in file.read_text()) or not child.process.is_alive())
    return file.read_text()


@pytest.mark.parametrize("emptied", [False, True])
def test_a_model_whose_files_are_deleted_or_emptied_is_served_as_before(tmp_path: Path, emptied: bool) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    with process(save_toy(folder)) as (child, site):
        if emptied:
            for path in folder.rglob("*"):
                if path.is_file():
                    path.write_bytes(b"")
            assert not (folder / "model.safetensors").stat().st_size
        else:
            shutil.rmtree(folder)
        found = site.json("/translate", q=LINES[:9], source="en")[1]["translatedText"]
        assert found == [translation.text for translation in best(LINES[:9])]
        assert site.send("/")[0] == 200
        child.send(signal.SIGTERM)
        result = child.wait()
    assert (result.code, len(result.err.splitlines())) == (-signal.SIGTERM, 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_running_requests_are_answered_before_the_server_ends(tmp_path: Path, number: signal.Signals) -> None:
    with process(save_toy(tmp_path), wait_for_permission) as (child, site), ThreadPoolExecutor(2) as pool:
        running_request = pool.submit(site.json, "/translate", q=LINES[:2], source="en")
        assert first_line(child, "out") == "begun\n"
        waiting_request = pool.submit(site.json, "/translate", q=LINES[2], source="en")
        site.until_waiting(1)
        child.send(number)
        until(lambda: not listens(site.port))
        assert child.process.is_alive()
        (child.folder / ALLOWED).touch()
        expected = [found.text for found in best(LINES[:3])]
        for request, texts in ((running_request, expected[:2]), (waiting_request, expected[2])):
            status, answer, _ = request.result(HANGS)
            assert (status, answer["translatedText"]) == (200, texts)
        result = child.wait()
        assert result.code in (-number, 128 + number)
        assert len(result.err.splitlines()) == 1  # its address


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=HANGS).close()
    except ConnectionError:
        return False
    return True


def test_a_second_ctrl_c_ends_the_server_at_once(tmp_path: Path) -> None:
    with process(save_toy(tmp_path)) as (child, site):
        assert site.send("/health")[0] == 200  # it is at work, not still beginning to be
        assert site.send("/health", host="example.org")[0] == 421
        with closing(http.client.HTTPConnection("127.0.0.1", site.port)) as slow:  # its request is still to come
            slow.putrequest("POST", "/translate")
            slow.putheader("Content-Length", "9")
            slow.endheaders()
            child.send(signal.SIGINT)
            until(lambda: not listens(site.port))
            assert child.process.is_alive()
            child.send(signal.SIGINT)
            result = child.wait()
        assert result.code == 130
        assert len(result.err.splitlines()) == 1  # its address


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_requests_that_take_too_long_are_abandoned_when_the_server_ends(number: signal.Signals) -> None:
    child = start(main=serve_endlessly)
    with ThreadPoolExecutor(4) as pool:
        try:
            site = Site(int(first_line(child, "out")))
            printed = child.folder / "out"
            first = pool.submit(site.json, "/translate", q=["a", "b"])
            until(lambda: printed.read_text().splitlines()[1:] == ["begun"])
            second = pool.submit(site.json, "/translate", q="c")
            third = pool.submit(site.upload, "a.txt", b"d")
            site.until_waiting(2)
            fourth = pool.submit(site.upload, "endless.txt", b"d")
            until(lambda: printed.read_text().splitlines()[1:] == ["begun", "reads"])
            child.send(number)
            for abandoned in (first, second, third, fourth):
                assert abandoned.result(HANGS)[:2] == (503, {"error": "the server is shutting down"})
            result = child.wait()
            assert result.code in (-number, 128 + number)
            assert result.err.splitlines() == ["warning: abandoned the translation of 2 lines"]
        finally:
            child.process.kill()


def test_a_port_in_use_is_reported() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"--port {port}: Address already in use; choose another"):
            listen("127.0.0.1", port)
    with pytest.raises(UsageError, match=r"--host no\.such\.host\.invalid"):
        listen("no.such.host.invalid", 0)


@pytest.mark.parametrize("key", ["", " ", "\t\n", "\udcff"])
def test_an_empty_or_undecodable_key_is_refused(key: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--api-key or MTCLI_API_KEY is"):
        serve(model=[tmp_path], api_key=key)
    monkeypatch.setenv("MTCLI_API_KEY", key)
    done = CliRunner().invoke(app, ["serve", "--model", str(tmp_path)])
    assert isinstance(done.exception, UsageError)
    assert "--api-key or MTCLI_API_KEY is" in str(done.exception)


@pytest.mark.parametrize("host", ["", " ", "a" * 70, "no.such.host.invalid"])
def test_an_invalid_host_is_refused(host: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--host"):
        serve(model=save_toy(tmp_path), host=host, port=0)


def test_the_token_limit_is_an_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loaded = Mock(side_effect=UsageError("stop"))
    monkeypatch.setattr("mtcli.serve.app.load_app", loaded)
    CliRunner().invoke(app, ["serve", "--model", str(tmp_path), "--port", "0", "--max-tokens", "77"])
    settings = loaded.call_args.args[1]
    assert settings.limits == RequestLimits(tokens=77)


def test_a_missing_extra_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mtcli, "serve", mtcli.serve)  # the import below replaces it, so that it is restored at the end
    for name in [name for name in sys.modules if name.startswith("mtcli.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    with pytest.raises(UsageError, match="fastapi is not installed; `pip install fastapi uvicorn h11 "):
        serve(model=[tmp_path])


def test_two_models_translate_through_a_third_language() -> None:
    second = disturbed(toy(), 2)
    own = [served(toy()), served(second, "es", "fr")]
    (between,) = toy().translate(["one red dog."], OPTIONS)
    (expected,) = second.translate([between.text], OPTIONS)
    (through,) = through_pivots(own)
    assert (through.src, through.targets, through.shown.score) == ("en", ("fr",), "through es")
    with started(create_app([*own, through], ServerSettings())) as site:
        fields = {"q": "one red dog.", "source": "en"}
        status, answer = site.json("/translate", **fields, target="fr")[:2]
        assert (status, answer["translatedText"]) == (200, expected.text)
        assert site.json("/translate", **fields, target="es")[1]["translatedText"] == between.text
        status, answer = site.json("/translate", **fields, target="fr", terms="one\tun")[:2]
        assert status == 400
        assert "not through a third language" in answer["error"]


def test_a_model_of_several_languages_takes_part_in_a_translation_through_one() -> None:
    """Each model is given the tag of its own target language."""
    several = several_toy()
    for own, expected_targets in (
        ([ServedModel(several, OPTIONS, "en", ("es", "xx")), served(toy(), "xx", "fr")], ("fr",)),
        (
            [served(toy(), "en", "qq"), ServedModel(several, OPTIONS, "qq", ("es", "xx"))],
            ("es", "xx"),
        ),
    ):
        first, second = own
        (through,) = through_pivots(own)
        pivot = second.src
        assert (through.src, through.targets, through.shown.score) == ("en", expected_targets, f"through {pivot}")
        assert through.shown.targets == expected_targets
        (between,) = first.translator.translate(["one red dog."], first.options_to(pivot))
        with started(create_app([*own, through], ServerSettings())) as site:
            for target in expected_targets:
                (expected,) = second.translator.translate([between.text], second.options_to(target))
                fields = {"q": "one red dog.", "source": "en", "target": target}
                status, answer = site.json("/translate", **fields)[:2]
                assert (status, answer.get("translatedText")) == (200, expected.text)


def test_both_steps_through_a_third_language_may_be_directions_of_one_model() -> None:
    directions = [Direction("es", "xx"), Direction("xx", "es"), Direction("en", "xx")]
    translator = TorchTranslator(several_toy().model, several_toy().tokenizer, 64, directions=directions)
    loaded = LoadedModel(translator, OPTIONS, directions[0])
    own = ServedModel.all_of(loaded, PageData)
    (through,) = through_pivots(own)
    assert (through.src, through.targets, through.shown.score) == ("en", ("es",), "through xx")
    found = through_pivots([*own, served(toy(), "xx", "fr")])
    assert [(each.src, each.targets) for each in found] == [("es", ("fr",)), ("en", ("es",)), ("en", ("fr",))]
    (between,) = translator.translate(["one red dog."], replace(OPTIONS, to="xx"))
    (expected,) = translator.translate([between.text], replace(OPTIONS, to="es"))
    with started(create_app([*own, through], ServerSettings())) as site:
        fields = {"q": "one red dog.", "source": "en", "target": "es"}
        assert site.json("/translate", **fields)[1]["translatedText"] == expected.text
        assert site.json("/translate", **fields)[0] == 200, "the lock of the model was given back"


def test_no_model_is_replaced_by_two_others() -> None:
    pairs = [("en", "es"), ("es", "fr"), ("es", "en"), ("en", "fr"), ("fr", "de"), ("es", "de")]
    found = through_pivots([served(toy(), *pair) for pair in pairs])
    assert [(each.src, each.targets, each.shown.score) for each in found] == [("en", ("de",), "through es")]
