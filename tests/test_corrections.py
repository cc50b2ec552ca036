"""The server's memories, and corrections of its translations by users."""

import fcntl
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.harness import limit, mtcli, start, until
from helpers.servers import OPTIONS, Site, started
from helpers.toy import PAIRS, save_toy, toy

from mtcli.corpus.corrections import HEADER
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.errors import DataError, StorageError
from mtcli.serve import corrections as module
from mtcli.serve.app import ServerSettings, create_app, load_app
from mtcli.serve.corrections import CorrectionsFile, MemorySources, corrected_pairs, load_memories
from mtcli.serve.models import ServedModel
from mtcli.serve.requests import RequestLimits
from mtcli.translate.memory import Memory

(LINE, USUAL), (OTHER, OTHER_USUAL) = PAIRS[7], PAIRS[8]
DATE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"


@contextmanager
def correcting(folder: Path, api_key: str | None = None, limits: RequestLimits | None = None) -> Iterator[Site]:
    """Serve the toy model with corrections in `corrections.tsv`."""
    memory = Memory()
    corrections = CorrectionsFile(folder / "corrections.tsv", memory)
    model = ServedModel(toy(), OPTIONS, "en", ("es",), memories={"es": memory}, corrections={"es": corrections})
    with started(create_app([model], ServerSettings(limits or RequestLimits(), api_key))) as site:
        yield site


def lines_of(folder: Path) -> list[list[str]]:
    text = (folder / "corrections.tsv").read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [line.split("\t") for line in text.splitlines()]


def suggest(site: Site, q: str, s: str, **fields: Any) -> tuple[int, Any]:
    return site.json("/suggest", q=q, s=s, source="en", target="es", **fields)[:2]


# ---- the server ----


def test_a_correction_takes_effect_in_the_next_request(tmp_path: Path) -> None:
    with correcting(tmp_path) as site:
        assert site.json("/translate", q=LINE, source="en")[1] == {"translatedText": USUAL}
        assert suggest(site, LINE, "Uno corregido.", note="by\tAna") == (200, {"success": True})
        entry = {"source": LINE, "translation": "Uno corregido.", "origin": "corrections.tsv"}
        record = {"sentence": LINE, "match": 100, **entry}
        assert site.json("/translate", q=LINE, source="en")[1] == {
            "translatedText": "Uno corregido.",
            "memory": [record],
        }
        several = site.json("/translate", q=[OTHER, f"{OTHER} {LINE}"], source="en", alternatives=1)[1]
        assert several["translatedText"] == [OTHER_USUAL, f"{OTHER_USUAL} Uno corregido."]
        assert [len(found) for found in several["memory"]] == [0, 1]
        full = site.json("/api/translate", q=[LINE, OTHER], alternatives=3)[1]["lines"]
        assert [candidate["text"] for candidate in full[0]["candidates"]] == ["Uno corregido."]
        assert full[0]["memory"] == [record]
        assert "memory" not in full[1]
        page = site.json("/translate", q=f"<p><b>{LINE}</b></p>", source="en", format="html")[1]
        assert page["translatedText"] == "<p><b>Uno corregido.</b></p>"
        status, answer, _ = site.upload("a.txt", f"{LINE}\n".encode(), source="en", target="es")
        assert status == 200
        assert site.send(answer["translatedFileUrl"].removeprefix(site.url))[1] == "Uno corregido.\n"
    (header, row) = lines_of(tmp_path)
    assert tuple(header) == HEADER
    assert row[:2] == [LINE, "Uno corregido."]
    assert re.fullmatch(DATE, row[2])
    assert row[3] == "by Ana"


def test_of_two_corrections_the_later_one_counts_and_both_are_kept(tmp_path: Path) -> None:
    with correcting(tmp_path) as site:
        for translation in ("Primera.", "Segunda."):
            assert suggest(site, LINE, translation)[0] == 200
        assert site.json("/translate", q=LINE, source="en")[1]["translatedText"] == "Segunda."
    with correcting(tmp_path) as site:
        assert site.json("/translate", q=LINE, source="en")[1]["translatedText"] == "Segunda."
    assert [row[1] for row in lines_of(tmp_path)[1:]] == ["Primera.", "Segunda."]
    assert list(read_pairs(str(tmp_path / "corrections.tsv"), "en", "es")) == [(LINE, "Primera."), (LINE, "Segunda.")]
    shown = mtcli("data", "check", "corrections.tsv", "--src", "en", "--tgt", "es", cwd=tmp_path).stdout.decode()
    assert "Primera." in shown
    assert "Segunda." in shown


def test_the_lines_of_a_text_are_corrected_one_by_one(tmp_path: Path) -> None:
    with correcting(tmp_path) as site:
        assert suggest(site, f"{LINE}\r\n\n{OTHER}", "Uno.\n\nOtro.")[0] == 200
        assert site.json("/translate", q=f"{OTHER}\n{LINE}", source="en")[1]["translatedText"] == "Otro.\nUno."
        assert suggest(site, f"{LINE}\n{OTHER}", "Uno.") == (
            400,
            {"error": "s: 1 lines, and q has 2; a correction has as many"},
        )
    assert [row[:2] for row in lines_of(tmp_path)[1:]] == [[LINE, "Uno."], [OTHER, "Otro."]]


WRAPPED = (
    "one red dog sees one big cat and one red\ncat sees one red dog. one big dog sees one\nbig dog and one red cat.\n"
)
"""A paragraph of two sentences."""


@pytest.mark.parametrize(
    "corrected",
    [
        "uno dos tres cuatro cinco seis siete ocho\nnueve diez once doce. trece catorce quince\ndieciseis.\n",
        "uno dos tres\ncuatro cinco seis siete ocho nueve diez once doce.\ntrece catorce quince dieciseis.",
        "uno dos tres cuatro cinco seis siete ocho nueve diez once doce. trece catorce quince dieciseis.",
    ],
)
def test_a_wrapped_paragraph_is_corrected_as_a_whole(tmp_path: Path, corrected: str) -> None:
    text = f"{LINE}\r\n- {OTHER}\n\n{WRAPPED}"
    with correcting(tmp_path) as site:
        before = site.json("/translate", q=text, source="en")[1]["translatedText"]
        assert suggest(site, text, f"Uno.\n- Otro.\n\n\n{corrected}")[0] == 200
        after = site.json("/translate", q=text, source="en")[1]["translatedText"]
        assert after.split() == f"Uno. - Otro. {corrected}".split()
        assert len(before.splitlines()[-1]) < 60
        assert suggest(site, text, f"Uno.\n- Otro.\n{corrected}") == (
            400,
            {"error": "s: 1 paragraphs, and q has 2; a correction has as many"},
        )
    assert [row[:2] for row in lines_of(tmp_path)[1:]] == [
        [LINE, "Uno."],
        [f"- {OTHER}", "- Otro."],
        [" ".join(WRAPPED.split()), " ".join(corrected.split())],
    ]


def test_wrapped_items_of_a_list_are_corrected_one_by_one(tmp_path: Path) -> None:
    one, other, _ = WRAPPED.splitlines()
    text = f"- {one}\n  {other}\n- {LINE}\n"
    corrected = f"- {other}\n  {one}\n- Uno.\n"
    with correcting(tmp_path) as site:
        assert suggest(site, text, corrected)[0] == 200
        assert site.json("/translate", q=text, source="en")[1]["translatedText"].split() == corrected.split()
        assert suggest(site, text, "- Uno.\n")[0] == 400


def test_wrapped_chinese_is_joined_without_spaces() -> None:
    line = "狗看见猫狗看见猫狗看见猫狗看见猫狗看见猫狗"
    assert corrected_pairs([line, line, "猫。"], ["a cat"]) == [(f"{line}{line}猫。", "a cat")]


def test_forms_of_libretranslate_are_taken(tmp_path: Path) -> None:
    with correcting(tmp_path) as site:
        body = b"q=one+cat&s=Un+gato&source=en&target=es&api_key="
        assert site.send("/suggest", body, content_type="application/x-www-form-urlencoded")[:2] == (
            200,
            {"success": True},
        )
        assert site.json("/translate", q="one cat", source="en")[1]["translatedText"] == "Un gato"


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"q": "", "s": "x"}, 400, "q: the text is blank"),
        ({"q": "a", "s": " \t"}, 400, "s: the text is blank"),
        ({"q": "a"}, 400, "s: "),
        ({"q": "a", "s": "b\0"}, 400, "s: the text contains a NUL character"),
        ({"q": "a" * 10_001, "s": "b"}, 400, "q: 10,001 characters"),
        ({"q": "a", "s": "b", "target": "de"}, 400, "no model for en → de"),
        ({"q": "a\n" * 600, "s": "b\n" * 600}, 413, "601 lines"),
    ],
)
def test_a_correction_that_does_not_fit_is_refused(
    tmp_path: Path, fields: dict[str, str], status: int, message: str
) -> None:
    with correcting(tmp_path) as site:
        found, answer, _ = site.json("/suggest", **{"source": "en", "target": "es", **fields})
        assert (found, message in answer["error"]) == (status, True), answer
    assert not (tmp_path / "corrections.tsv").exists()


def test_a_server_without_corrections_refuses_them(tmp_path: Path) -> None:
    with started(create_app([ServedModel(toy(), OPTIONS, "en", ("es",))], ServerSettings())) as site:
        status, answer = suggest(site, LINE, "x")
        assert (status, "--corrections FILE" in answer["error"]) == (403, True)


def test_a_correction_needs_the_key_and_no_other_site_may_send_one(tmp_path: Path) -> None:
    with correcting(tmp_path, api_key="secret") as site:
        assert suggest(site, LINE, "x")[0] == 403
        assert suggest(site, LINE, "x", api_key="wrong")[0] == 403
        body = json.dumps({"q": LINE, "s": "x", "api_key": "secret"}).encode()
        assert site.send("/suggest", body, content_type="application/json", origin="https://evil.example")[0] == 403
        assert not (tmp_path / "corrections.tsv").exists()
        assert suggest(site, LINE, "x", api_key="secret")[0] == 200


def test_the_file_has_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 120)
    with correcting(tmp_path) as site:
        assert suggest(site, "a", "b")[0] == 200
        before = lines_of(tmp_path)
        status, answer = suggest(site, "c" * 99, "d")
        assert (status, answer["error"]) == (503, "the correction cannot be kept; the server's log says why")
        assert "has reached its limit" in caplog.text
        assert lines_of(tmp_path) == before
        assert site.json("/translate", q="a", source="en")[1]["translatedText"] == "b"


# ---- the file ----


def test_a_line_that_was_not_written_to_its_end_is_moved_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "corrections.tsv"
    whole = "source\ttranslation\tdate\tnote\na\tb\t2026\t\n"
    path.write_text(f"{whole}c\tda")
    memory = Memory()
    corrections = CorrectionsFile(path, memory)
    assert "moved an incomplete last line to corrections.tsv.incomplete" in caplog.text
    assert (tmp_path / "corrections.tsv.incomplete").read_text() == "c\tda"
    assert len(memory) == 1
    corrections.add([("c", "d")])
    assert path.read_text().startswith(f"{whole}c\td\t2")


def test_lines_that_were_moved_aside_before_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "corrections.tsv"
    for line in ("first", "second", "third"):
        path.write_text(f"source\ttranslation\tdate\tnote\n{line}")
        CorrectionsFile(path, Memory())
    kept = {aside.name: aside.read_text() for aside in tmp_path.glob("*.incomplete*")}
    names = [f"corrections.tsv.incomplete{number}" for number in ("", 2, 3)]
    assert kept == dict(zip(names, ("first", "second", "third"), strict=True))


def test_a_line_that_another_server_is_writing_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "corrections.tsv"
    head = "source\ttranslation\tdate\tnote\n"
    memory = Memory()
    starts_to_wait = threading.Event()

    def flock(file: Any, operation: int) -> None:
        starts_to_wait.set()
        fcntl.flock(file, operation)

    with path.open("a", encoding="utf-8") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(f"{head}a\tb")
        other.flush()
        monkeypatch.setattr(module, "fcntl", SimpleNamespace(flock=flock, LOCK_EX=fcntl.LOCK_EX))
        starting = threading.Thread(target=CorrectionsFile, args=(path, memory))
        starting.start()
        while starting.is_alive() and not starts_to_wait.wait(0.01):
            pass
        other.write("\t2026\t\n")
    starting.join()
    assert path.read_text() == f"{head}a\tb\t2026\t\n"
    assert not list(tmp_path.glob("*.incomplete*"))
    assert memory.exact("a") is not None


def test_a_last_line_without_a_line_end_counts(tmp_path: Path) -> None:
    path = tmp_path / "corrections.tsv"
    path.write_text("source\ttranslation\tdate\tnote\na\tb\t2026\tby hand")
    memory = Memory()
    CorrectionsFile(path, memory).add([("c", "d")])
    assert [row[0] for row in lines_of(tmp_path)] == ["source", "a", "c"]
    assert len(memory) == 2


def test_other_tables_and_places_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "corrections.tsv"
    path.write_text("a\tb\n")
    with pytest.raises(DataError, match="not the columns source, translation, date, note"):
        CorrectionsFile(path, Memory())
    assert path.read_text() == "a\tb\n"
    with pytest.raises(StorageError, match="cannot write corrections there"):
        CorrectionsFile(tmp_path / "none" / "corrections.tsv", Memory())


def test_a_correction_that_cannot_be_written_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "corrections.tsv"
    memory = Memory()
    corrections = CorrectionsFile(path, memory)
    corrections.add([("a", "b")])
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        corrections.add([("a", "c")])
    monkeypatch.undo()
    assert path.read_bytes() == before
    match = memory.exact("a")
    assert match is not None
    assert match.entry.translation == "b"
    with pytest.raises(DataError):
        corrections.add([("x", "y"), ("z", " ")])
    assert path.read_bytes() == before


def test_the_limit_counts_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 90)
    corrections = CorrectionsFile(tmp_path / "c.tsv", Memory())
    corrections.add([("a", "b")])
    with pytest.raises(StorageError, match="has reached its limit of 90 bytes"):
        corrections.add([("a", "b")])


# ---- several pairs of languages ----


def test_with_several_pairs_a_file_must_name_its_languages(tmp_path: Path) -> None:
    (tmp_path / "named.tsv").write_text("de\ten\nHallo\tHello\n")
    (tmp_path / "bare.tsv").write_text("Hallo\tHello\n")
    pairs = [("en", "de"), ("de", "en"), ("de", "fr")]
    sources = MemorySources([tmp_path / "named.tsv"], tmp_path / "corrections.tsv")
    memories = load_memories(sources, pairs, [])
    assert [len(memories[pair][0]) for pair in pairs] == [1, 1, 0]
    assert memories["en", "de"][0].exact("Hello")
    assert memories["de", "en"][0].exact("Hallo")
    for pair in pairs:
        corrections = memories[pair][1]
        assert corrections is not None
        assert corrections.path.name == f"corrections.{pair[0]}-{pair[1]}.tsv"
    with pytest.raises(DataError, match=r"bare.tsv: does not name the languages"):
        load_memories(MemorySources([tmp_path / "bare.tsv"]), pairs, [])
    (found, _) = load_memories(MemorySources([tmp_path / "bare.tsv"]), pairs[1:2], [])["de", "en"]
    assert found.exact("Hallo")


def test_corrections_go_to_the_pair_that_they_name(tmp_path: Path) -> None:
    for name, src, tgt in (("one", "en", "es"), ("two", "es", "en")):
        (tmp_path / name).mkdir()
        save_toy(tmp_path / name, src=src, tgt=tgt)
    sources = MemorySources(corrections=tmp_path / "corrections.tsv")
    app, _ = load_app([tmp_path / "one", tmp_path / "two"], ServerSettings(), "cpu", memory=sources)
    with started(app) as site:
        assert site.json("/suggest", q="dog", s="can", source="es", target="en")[0] == 200
        assert site.json("/suggest", q="dog", s="can")[0] == 400
        assert site.json("/translate", q="dog", source="es", target="en")[1]["translatedText"] == "can"
        assert site.json("/translate", q="dog", source="en", target="es")[1]["translatedText"] != "can"
    assert [path.name for path in tmp_path.glob("*.tsv")] == ["corrections.es-en.tsv"]


def test_translations_through_a_third_language_are_corrected_too(tmp_path: Path) -> None:
    for name, src, tgt in (("one", "en", "es"), ("two", "es", "de")):
        (tmp_path / name).mkdir()
        save_toy(tmp_path / name, src=src, tgt=tgt)
    sources = MemorySources(corrections=tmp_path / "corrections.tsv")
    app, languages = load_app([tmp_path / "one", tmp_path / "two"], ServerSettings(), "cpu", memory=sources)
    assert ("en", "de") in languages
    with started(app) as site:
        assert site.json("/suggest", q="dog", s="Hund", source="en", target="de")[0] == 200
        assert site.json("/translate", q="dog", source="en", target="de")[1]["translatedText"] == "Hund"
    assert [path.name for path in tmp_path.glob("*.tsv")] == ["corrections.en-de.tsv"]


# ---- the command ----


def test_mtcli_serve_takes_a_memory_and_corrections(tmp_path: Path) -> None:
    save_toy(tmp_path)
    (tmp_path / "memory.tsv").write_text(f"{LINE}\tDe la memoria.\n{OTHER}\tDe la memoria.\n")
    header = "\t".join(HEADER)
    (tmp_path / "corrections.tsv").write_text(f"{header}\n{OTHER}\tCorregida.\t2026-11-25\t\n")
    words = ["--memory", "memory.tsv", "--corrections", "corrections.tsv"]
    child = start("serve", "--model", ".", "--port", "0", "--device", "cpu", *words, cwd=tmp_path)
    said = child.folder / "err"
    until(lambda: said.exists() and re.search(r":\d+/", said.read_text()), child)
    try:
        assert "memory: 2 entries" in said.read_text()
        site = Site(int(re.findall(r":(\d+)/", said.read_text())[0]))
        found = site.json("/translate", q=[LINE, OTHER], source="en")[1]["translatedText"]
        assert found == ["De la memoria.", "Corregida."]
        assert suggest(site, LINE, "Nueva.")[0] == 200
        assert site.json("/translate", q=LINE, source="en")[1]["translatedText"] == "Nueva."
    finally:
        child.send(signal.SIGTERM)
        child.wait()
    assert lines_of(tmp_path)[2][:2] == [LINE, "Nueva."]


def test_a_full_disk_is_answered(tmp_path: Path) -> None:
    save_toy(tmp_path)
    words = ["serve", "--model", ".", "--port", "0", "--device", "cpu", "--corrections", "corrections.tsv"]
    child = start(*words, within=[partial(limit, resource.RLIMIT_FSIZE, 200)], cwd=tmp_path)
    said = child.folder / "err"
    until(lambda: said.exists() and re.search(r":\d+/", said.read_text()), child)
    try:
        site = Site(int(re.findall(r":(\d+)/", said.read_text())[0]))
        assert suggest(site, "a", "b")[0] == 200
        before = (tmp_path / "corrections.tsv").read_bytes()
        assert suggest(site, "c" * 300, "d")[0] == 503
        assert (tmp_path / "corrections.tsv").read_bytes() == before
        assert site.json("/translate", q="a", source="en")[1]["translatedText"] == "b"
    finally:
        child.send(signal.SIGTERM)
        child.wait()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--corrections", "c.tsv", "--host", "0.0.0.0"], "--corrections: anyone on the network could write"),
        (["--corrections", "c.txt"], "name it c.tsv"),
        (["--corrections", "m.tsv", "--memory", "m.tsv"], "is read as a memory too"),
        (["--memory-match", "80"], "--memory-match: only with --memory or --corrections"),
        (["--memory", "none.tsv"], "none.tsv"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: list[str], message: str) -> None:
    (tmp_path / "m.tsv").write_text("a\tb\n")
    done = mtcli("serve", "--model", "none", "--port", "0", *options, cwd=tmp_path)
    assert done.returncode in (2, 3)
    assert message in done.stderr.decode()


def test_an_exported_model_is_served_without_torch(tmp_path: Path) -> None:
    """A process that cannot import torch or datasets translates texts and documents, with a memory and corrections."""
    pytest.importorskip("ctranslate2")
    from mtcli.exchange.export import export

    run = tmp_path / "run"
    run.mkdir()
    (run / "data").mkdir()
    row = json.dumps({"translation": {"en": LINE, "es": USUAL}})
    (run / "data" / "test.jsonl").write_text(f"{row}\n")
    export(save_toy(run), "ctranslate2", tmp_path / "exported")
    (tmp_path / "memory.tsv").write_text(f"{OTHER}\tDe la memoria.\n")
    blocked = ("torch", "datasets", "sacrebleu", "pyarrow", "safetensors", "transformers")
    code = f"import sys; sys.modules.update(dict.fromkeys({blocked})); from mtcli.cli import main; main()"
    options = ["--memory", "memory.tsv", "--corrections", "corrections.tsv", "--api", "deepl,get,opus-cat"]
    command = [sys.executable, "-c", code, "serve", "--model", "exported", "--port", "0", *options]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            said = [server.stderr.readline() for _ in range(2)]
            found = re.search(r":(\d+)/", said[-1])
            assert found, said
            site = Site(int(found[1]))
            answer = site.json("/translate", q=[LINE, OTHER], source="auto")[1]
            assert answer["translatedText"] == [USUAL, "De la memoria."]
            status, answer, _ = site.upload("a.html", f"<p>{LINE}</p>".encode(), source="en", target="es")
            assert status == 200
            assert site.send(answer["translatedFileUrl"].removeprefix(site.url))[1] == f"<p>{USUAL}</p>"
            assert suggest(site, LINE, "Corregido.")[0] == 200
            assert site.json("/api/translate", q=LINE)[1]["lines"][0]["candidates"][0]["text"] == "Corregido."
        finally:
            server.kill()
