"""Text of every kind in every form: pairs stay aligned, lines keep their order, and unreadable text is refused.

Each case is read by every reader in this process, and by the commands that read such text.
"""

import gzip
import json
import os
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.harness import Job, Result, run, start

from faults.conftest import Case
from faults.inputs import (
    BY_FILE,
    FOLDER,
    FORMS,
    JSONL,
    PACKED,
    PAIRS,
    PARQUET,
    PREFIX,
    TEXT,
    TSV,
    TSV_GZ,
    TWO,
    Count,
    aligned,
    failed,
    raw,
    read,
    refused,
    train,
    translate,
    with_at,
    write,
)
from mtcli.corpus.cache.encoded_pairs import EncodedPairs
from mtcli.text.lines import Counts, Pair, read_lines
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.loading import load
from mtcli.translate.streams import lines_of
from mtcli.translate.translation import Options
from mtcli.translate.translator import Translator

BREAKS = "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"
"""Characters that other tools treat as the end of a line."""

SCRIPTS = [
    "שלום עולם, مرحبا \u200fx", "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈 👍🏽", "नमस्ते दुनिया",
    "می\u200cخواهم", "日本語の猫", "ไทย", "\u0301 a mark first", "a\u0323\u0307 and \u1e69", "  two  spaces  ", "▁ Ġ",
    "\ufeff\ufffd\U0010ffff",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def trained_pairs(run_folder: Path) -> list[Pair]:
    """Return the training pairs of a run as text."""
    tokenizer = Tokenizer.load(run_folder / "tokenizer.json")
    cache = EncodedPairs(run_folder / "data" / "train.arrow")
    rows = [cache[i] for i in range(len(cache))]
    src, tgt = ([list(row[side]) for row in rows] for side in (0, 1))
    return list(zip(tokenizer.decode(src), tokenizer.decode(tgt), strict=True))


@pytest.fixture(scope="module")
def translator(job: Job) -> Translator:
    return load([job.clean], "cpu", "torch").translator


def translated(translator: Translator, text: bytes, folder: Path) -> list[str]:
    """Return the translations of a file, made in this process."""
    (folder / "input").write_bytes(text)
    options = Options(beam_size=1, max_length=4)
    return [found.text for found in translator.translate(lines_of(str(folder / "input")), options)]


def test_34_lines_plus_one(case: Case, tmp_path: Path, count: Count) -> None:
    runs = count(4, 1)
    for form in BY_FILE:
        for side in (0, 1):
            name = f"{form}-{side}"
            spec = write(tmp_path / name, form, PAIRS)
            file = sorted((tmp_path / name).iterdir(), reverse=True)[side]  # en before de
            more = b"one more\n"
            file.write_bytes(file.read_bytes() + (gzip.compress(more) if form == PACKED else more))
            counts = ("41 lines", "40") if side == 0 else ("40 lines", "41")
            with case.fault():
                with refused(file.name, *counts):
                    read(spec)
                if form != TWO and (runs := runs - 1) >= 0:
                    failed(train(spec, tmp_path / f"run-{name}"), 3, file.name, *counts)


@pytest.mark.parametrize("form", FORMS)
def test_35_empty_one_side(case: Case, tmp_path: Path, form: str) -> None:
    pairs = list(PAIRS)
    for at, broken in {
        3: (b"", b"x"),
        4: (b"x", b""),
        9: (b" ", b"x"),
        10: (b"x", "\u3000".encode()),
        20: (b"", b""),
    }.items():
        pairs[at] = broken
    spec = write(tmp_path / "in", form, pairs)
    with case.fault(5):
        found, counts = read(spec)
        assert found == [(a.decode(), b.decode()) for i, (a, b) in enumerate(pairs) if i not in (3, 4, 9, 10, 20)]
        assert aligned(found)
        assert counts.skipped == {"one side empty": 4, "both sides empty": 1}
        if form == PREFIX:
            done = train(spec, tmp_path / "run")
            assert done.code == 0, done.err
            assert "40 pairs read, 35 used, 4 skipped: one side empty, 1 skipped: both sides empty" in done.err
            kept = trained_pairs(tmp_path / "run")
            assert aligned(kept)
            assert len(kept) + len((tmp_path / "run/data/valid.jsonl").read_text().splitlines()) >= 34


def test_36_empty_whitespace_translate(case: Case, job: Job, tmp_path: Path) -> None:
    blank = ["", " ", "\t", "\u3000\u00a0", "\r", "\u2028"]
    lines = [*blank, "red tree.", *blank, "sun."]
    with case.fault(2 * len(blank)):
        done = translate(job, "".join(line + "\n" for line in lines).encode(), tmp_path)
        assert (done.code, done.err) == (0, "")
        assert [bool(line) for line in done.out.split("\n")] == [bool(line.strip()) for line in lines] + [False]
    with case.fault():
        assert translate(job, b"\n\n\n", tmp_path, "--scores", "--alignments").out == "\n\n\n"


def test_37_zero_length(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    for i, form in enumerate(FORMS):
        with case.fault():
            spec = write(tmp_path / form, form, [])
            if form == FOLDER:  # `datasets` refuses it
                with refused(spec):
                    read(spec)
            else:
                assert read(spec) == ([], Counts())
                if i < count(len(FORMS), 1):
                    failed(train(spec, tmp_path / "run"), 3, spec, "no pair to train on (0 pairs read, 0 used)")
    with case.fault():
        done = translate(job, b"", tmp_path)
        assert (done.code, done.out, done.err) == (0, "", "")
    with case.fault():
        failed(run("eval", "--hyp-file", "/dev/null", "--ref-file", "/dev/null"), 3, "nothing to score")


@pytest.mark.slow
def test_38_single_example(case: Case, tmp_path: Path) -> None:
    for pair in (("red tree.", "der eert."), ("Hi.", "No!")):
        for form in FORMS:
            with case.fault():
                spec = write(tmp_path / pair[0] / form, form, raw([pair]))
                assert read(spec)[0] == [pair]
    with case.fault():  # no character of "Hi." or "No!" comes twice
        done = train(str(tmp_path / "Hi." / PREFIX / "t"), tmp_path / "run")
        assert done.code == 0, done.err


@pytest.mark.slow
def test_39_all_filtered(case: Case, tmp_path: Path, count: Count) -> None:
    reasons = {"one side empty": [(b"", b"x")] * 30, "longer than 5 tokens": [(b"red " * 30, b"der")] * 30}
    for reason, pairs in reasons.items():
        for form in FORMS[: count(len(FORMS), 1)]:
            with case.fault(30):
                spec = write(tmp_path / reason / form, form, pairs)
                done = train(spec, tmp_path / reason / "run", "--set", "data.max_length=5")
                failed(Result(done.code, done.out, done.last), 3, spec, "no pair to train on (", f"skipped: {reason}")


def test_40_no_final_newline(case: Case, translator: Translator, tmp_path: Path) -> None:
    for form in TEXT:
        with case.fault():
            spec = write(tmp_path / form, form, PAIRS, last=False)
            assert raw(read(spec)[0]) == PAIRS
    with case.fault():
        texts = [translated(translator, text, tmp_path) for text in (b"sun.\nred tree.\n", b"sun.\nred tree.")]
        assert texts[0] == texts[1]
        assert len(texts[0]) == 2


def test_41_nul(case: Case, job: Job, tmp_path: Path) -> None:
    for form in FORMS:
        spec = write(tmp_path / form, form, with_at(7, src=b"re\0d 6"))
        place = {PARQUET: "row 7", FOLDER: "row 7"}.get(form, ":7: byte ")
        with case.fault(), refused(place, "NUL"):
            read(spec)
    with case.fault(), refused(":7: ", "'en' holds a NUL"):
        read(write(tmp_path / "escaped", JSONL, with_at(7, src=rb"re\u0000d")))
    commands(case, job, tmp_path, b"ok\tok\na\0\tb\n", ":2: byte 2 is NUL")


def commands(case: Case, job: Job, folder: Path, text: bytes, *words: str) -> None:
    """Assert that `train`, `translate` and `eval` refuse this text with a line that contains all these words."""
    (folder / "text").write_bytes(text)
    (folder / "pairs.tsv").write_bytes(text)
    ends = [
        run("train", folder / "pairs.tsv", "--src", "en", "--tgt", "de", "--out", folder / "run"),
        translate(job, text, folder),
        run("eval", "--hyp-file", folder / "text", "--ref-file", folder / "text"),
    ]
    for done in ends:
        with case.fault():  # lines before the broken one can be translated
            failed(Result(done.code, "", done.err), 3, *words)
            assert done.out.count("\n") in (0, 1)


def test_42_invalid_utf8(case: Case, job: Job, tmp_path: Path) -> None:
    for form in FORMS:
        spec = write(tmp_path / form, form, with_at(7, tgt=b"der\xff\xfe 6"))
        byte = {JSONL: 7 + len(PAIRS[6][0]) + 11, TSV: len(PAIRS[6][0]) + 1, TSV_GZ: len(PAIRS[6][0]) + 1}.get(
            form, 0
        ) + 4
        place = {PARQUET: "t.parquet", FOLDER: "utf-8"}.get(form, f":7: byte {byte} is not UTF-8")
        with case.fault(), refused(place):
            read(spec)
        if form in TEXT:
            with case.fault():
                pairs, counts = read(spec, replace=True)
                assert (len(pairs), counts.replaced, pairs[6][1]) == (40, 2, "der\ufffd\ufffd 6")
                assert aligned(pairs)
    commands(case, job, tmp_path, b"ok\tok\nab\tc\xff\n", ":2: byte 5 is not UTF-8", "--replace")
    with case.fault():
        done = translate(job, b"red.\nred tree sun \xff\xfe tree\n", tmp_path, "--replace")
        # Warnings about what the toy model writes may come before it.
        assert (done.code, done.out.count("\n"), done.err.splitlines()[-1]) == (0, 2, "read 2 invalid bytes as U+FFFD")


def test_43_byte_order_mark(case: Case, job: Job, translator: Translator, tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    for form in TEXT:
        spec = write(tmp_path / form, form, PAIRS)
        files = list((tmp_path / form).iterdir())
        for file in files:
            packed = file.suffix == ".gz"
            file.write_bytes(gzip.compress(mark) + file.read_bytes() if packed else mark + file.read_bytes())
        with case.fault():
            pairs, counts = read(spec)
            assert raw(pairs) == PAIRS
            assert sorted(counts.notices) == sorted(f"{f}: dropped the byte-order mark at its start" for f in files)
    with case.fault():
        done = translate(job, mark + b"red tree.\n", tmp_path)
        assert done.out.splitlines() == translated(translator, b"red tree.\n", tmp_path)
        assert done.err == "standard input: dropped the byte-order mark at its start\n"
    for broken, words in ((b"ab\xff", ":1: byte 6 is not UTF-8"), (b"ab\0", ":1: byte 6 is NUL")):
        (tmp_path / "marked").write_bytes(mark + broken)
        with case.fault(), refused(words):  # bytes are counted from the start of the file, including the mark
            list(read_lines(tmp_path / "marked"))


def test_44_utf16_and_gzip_as_text(case: Case, translator: Translator, tmp_path: Path) -> None:
    wrong: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress}
    for name in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        wrong[name] = lambda text, name=name: text.decode().encode(name)
    for name, encode in wrong.items():
        named = {"gzip": "gzip", "utf-32": "UTF-32"}.get(name, "UTF-16")
        for form in (PREFIX, TWO, TSV, JSONL, PACKED, TSV_GZ):
            spec = write(tmp_path / name / form, form, PAIRS)
            for file in (tmp_path / name / form).iterdir():
                packed = file.suffix == ".gz"
                content = encode(gzip.decompress(file.read_bytes()) if packed else file.read_bytes())
                file.write_bytes(gzip.compress(content) if packed else content)
            with case.fault(), refused(named):
                read(spec)
        with case.fault(), refused(named):
            translated(translator, encode(b"red tree.\n"), tmp_path)


def test_45_crlf(case: Case, translator: Translator, tmp_path: Path) -> None:
    for form in TEXT:
        with case.fault():
            assert raw(read(write(tmp_path / form, form, PAIRS, end=b"\r\n"))[0]) == PAIRS
    with case.fault():
        lines = [b"red tree.%b%bsun.%b" % (end, end, end) for end in (b"\n", b"\r\n")]
        texts = [translated(translator, text, tmp_path) for text in lines]
        assert texts[0] == texts[1]
        assert len(texts[1]) == 3


def never_splits(case: Case, job: Job, folder: Path, breaks: Sequence[str]) -> None:
    """Assert that such a character inside a line is ordinary text, in every form, in input and output."""
    for form in FORMS:
        with case.fault(len(breaks)):
            pairs = [(f"a{c}b {i}", f"c{c}{c}d {i}") for i, c in enumerate(breaks)]
            written = [tuple(json.dumps(s)[1:-1] for s in pair) for pair in pairs] if form == JSONL else pairs
            assert read(write(folder / form, form, raw(written)))[0] == pairs
    with case.fault(len(breaks)):
        lines = [f"red{c}tree {c} sun." for c in breaks]
        done = translate(job, "".join(line + "\n" for line in lines).encode(), folder, "--format", "json")
        assert done.code == 0, done.err
        assert [json.loads(line)["source"] for line in done.out.split("\n")[:-1]] == lines
        (folder / "lines").write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="\n")
        scored = run("eval", "--hyp-file", folder / "lines", "--ref-file", folder / "lines", "--json")
        assert json.loads(scored.out)["score"] == 100.0
        assert returned(job, lines, folder) == lines


def returned(job: Job, lines: Sequence[str], folder: Path) -> list[str]:
    """Return the lines after `tokenizer encode` and `tokenizer decode`."""
    (folder / "lines").write_bytes("".join(line + "\n" for line in lines).encode())
    model = ("--model", job.clean)
    ids = run("tokenizer", "encode", *model, "--ids", "--tgt", stdin=folder / "lines")
    assert not {"0", "1", "2"} & set(ids.out.split())  # no special token
    (folder / "ids").write_text(ids.out)
    back = run("tokenizer", "decode", *model, stdin=folder / "ids", stdout=folder / "back")
    assert (ids.code, back.code) == (0, 0), ids.err + back.err
    return (folder / "back").read_bytes().decode().split("\n")[:-1]


@pytest.mark.slow
def test_46_lone_cr(case: Case, job: Job, tmp_path: Path) -> None:
    never_splits(case, job, tmp_path, "\r")


def test_47_other_line_breaks(case: Case, job: Job, tmp_path: Path) -> None:
    never_splits(case, job, tmp_path, BREAKS)


def peak(*arguments: str | Path, **options: Path) -> tuple[Result, int]:
    """Run a command and return its result and its peak resident memory in MiB."""
    child = start(*arguments, **options)
    most = 0
    while child.process.is_alive():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended, or the system has no such files
            lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
            most = max([most, *(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))])
        child.process.join(0.02)
    return child.wait(), most


def test_48_line_of_1_mb(case: Case, job: Job, tmp_path: Path) -> None:
    words = b"tree " * 200_000
    for form in FORMS:
        with case.fault():
            found, _ = read(write(tmp_path / form, form, with_at(7, src=words + b"6")))
            assert len(found) == 40
            assert aligned(found)
    with case.fault():
        few = write(tmp_path / "few", TSV, PAIRS[:2])
        done = train(str(tmp_path / TSV / "t.tsv"), tmp_path / "run", "--valid", few, "--test", few)
        assert done.code == 0, done.err
        assert "1 skipped: longer than 256 tokens" in done.err
    with case.fault():
        plain = peak("translate", "--model", job.clean, "--max-length", "4", "red tree.")
        (tmp_path / "long").write_bytes(b"sun.\n" + words + b"\nred tree.\n")
        line = ("translate", "--model", job.clean, "--max-length", "4", "--alignments", "--as-is")
        done, memory = peak(*line, stdin=tmp_path / "long")
        assert (done.code, done.out.count("\n")) == (0, 3), done.err
        assert done.out.splitlines()[2].split("\t")[0] == plain[0].out.splitlines()[0]
        assert "line 2: too long; only the first 2000 tokens are translated" in done.err
        assert memory < plain[1] + 400


def test_49_scripts_and_marks(case: Case, job: Job, tmp_path: Path) -> None:
    with case.fault(len(SCRIPTS)):
        assert returned(job, SCRIPTS, tmp_path) == [unicodedata.normalize("NFC", text) for text in SCRIPTS]


def test_50_nfc_and_nfd(case: Case, translator: Translator, tmp_path: Path) -> None:
    text = "él está aquí, Ångström, 한국어 ế.\n"
    with case.fault():
        forms = [unicodedata.normalize(form, text).encode() for form in ("NFC", "NFD")]
        assert forms[0] != forms[1]
        assert translated(translator, forms[0], tmp_path) == translated(translator, forms[1], tmp_path)


def test_51_all_unknown(case: Case, job: Job, tmp_path: Path) -> None:
    lines = ["red tree.", "日本語の猫", "שלום עולם", "Ωψφ", "猫"]
    with case.fault(4):
        done = translate(job, "\n".join(lines).encode(), tmp_path)
        assert (done.code, done.out.count("\n")) == (0, 5), done.err
        assert "lines 2, 3, 4, 5: most characters did not occur in training" in done.err
        assert len(done.err.splitlines()) == 1  # one warning for all lines


@pytest.mark.slow
def test_52_vocabulary_exceeds_data(case: Case, tmp_path: Path) -> None:
    spec = write(tmp_path / "in", TSV, PAIRS)
    with case.fault():
        done = train(spec, tmp_path / "run", "--set", "tokenizer.vocab_size=9000")
        failed(done, 3, "9000", "or fewer")
        feasible = done.err.split("ask for ")[1].split()[0]
        assert train(spec, tmp_path / "run", "--set", f"tokenizer.vocab_size={feasible}").code == 0


def test_53_literal_special_names(case: Case, job: Job, tmp_path: Path) -> None:
    lines = ["<pad>", "</s>", "<s> <s>", "<unk>", "<0x0A><0x00>", "red </s> tree <pad>."]
    for form in FORMS:
        with case.fault(len(lines)):
            pairs = [(line, line) for line in lines]
            assert read(write(tmp_path / form, form, raw(pairs)))[0] == pairs
    with case.fault(len(lines)):
        assert returned(job, lines, tmp_path) == lines
        done = translate(job, "".join(line + "\n" for line in lines).encode(), tmp_path)
        assert (done.code, done.out.count("\n"), done.out.count("\n\n")) == (0, len(lines), 0), done.err


ODD_NAMES = ["new\nline", b"bad\xff\xfe", "with  space", "a,b@2:c#d", "-dash", "ünï 猫"]


@pytest.mark.slow
def test_54_odd_paths(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    pairs = raw([(f"{a} {i}", f"{a} {i}") for i, a in enumerate(["sun.", "red tree."])])
    for number, name in enumerate(ODD_NAMES):
        odd = tmp_path / os.fsdecode(name)
        unicode = isinstance(name, str)
        (tmp_path / "even" / str(number)).mkdir(parents=True)
        for form in FORMS:
            if form == FOLDER and name in ODD_NAMES[:2]:
                continue  # `datasets` does not accept such a name
            write(tmp_path / "even" / str(number) / form, form, pairs)
        (tmp_path / "even" / str(number)).rename(odd)
        for form in FORMS:
            if (odd / form).exists():
                spec = {PREFIX: "t", PACKED: "t", FOLDER: ""}.get(form, f"t.{form}")
                found = f"{odd / form / 't.en'},{odd / form / 't.de'}" if form == TWO else str(odd / form / spec)
                with case.fault():
                    assert len(read(found)[0]) == 2
        if number >= count(len(ODD_NAMES), 2):
            continue
        with case.fault():
            (odd / "text").write_text("red tree.\nsun.\n")
            line = ("-b", "1", "--max-length", "4", "-i", odd / "text", "-o", odd / "out")
            done = run("translate", "--model", job.clean, *line)
            assert (done.code, done.err) == (0, "")
            assert (odd / "out").read_text().count("\n") == 2
        with case.fault():
            done = train(str(odd / TSV / "t.tsv"), odd / "run")
            if not unicode:  # config.toml is UTF-8 and cannot contain such a name
                failed(done, 2, "not valid Unicode", "rename it")
                done = train(str(tmp_path / os.fsdecode(ODD_NAMES[0]) / TSV / "t.tsv"), odd / "run")
                failed(done, 2, "not valid Unicode")
                continue
            assert done.code == 0, done.err
            assert run("translate", "--model", odd / "run", "--max-length", "4", "sun.").out.count("\n") == 1
