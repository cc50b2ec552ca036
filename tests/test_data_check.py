import csv
import errno
import gzip
import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from helpers.harness import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mtcli.corpus.quality import languages
from mtcli.corpus.quality import report as data_check
from mtcli.corpus.quality.clean import Cleaned, clean, to_text
from mtcli.corpus.quality.corpus import Corpus
from mtcli.corpus.quality.report import Report, check
from mtcli.corpus.quality.rules import BIT, mojibake, rules, script, size, tidy
from mtcli.corpus.quality.survey import survey
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.errors import DataError, ModelError, StorageError, UsageError
from mtcli.text.lines import Counts
from mtcli.text.writing_systems import letter_runs

SHARED = Path(__file__).parents[2] / "shared" / "data"
GOOD = [(f"This is the sentence with number {i}.", f"Das ist der Satz mit der Nummer {i}.") for i in range(20)]


def write(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_bytes("".join(f"{a}\t{b}\n" for a, b in pairs).encode("utf-8", "surrogateescape"))
    return path


def look(path: Path, **options: object) -> Report:
    return check(Corpus([str(path)], "en", "de", **options))  # type: ignore[arg-type]


def names(path: Path, **options: object) -> dict[str, int]:
    return {finding.rule.name: finding.pairs for finding in look(path, **options).findings}


# one pair


@pytest.mark.parametrize(
    ("name", "src", "tgt"),
    [
        ("invalid UTF-8", "a caf\udce9 with tables", "ein Café mit Tischen"),
        ("NUL character", "a\0b", "a b"),
        ("empty side", "", "Hallo"),
        ("empty side", "Hello", "\ufeff \u00a0"),
        ("no words on one side", "Young girls weave corn stalks.", "@@"),
        ("lost characters", "caf\ufffd", "Café"),
        ("mojibake", "cafÃ© au lait", "Milchkaffee"),
        ("control characters", "don\x92t", "nicht"),
        ("wrong script", "Это не по-английски", "Das ist nicht Englisch"),
        ("wrong script", "Hello", "你好"),
        ("wrong script", "Nobody has translated this one into it", "这个句子是中文 ABC"),
        ("untranslated", "Nobody has translated this", "NOBODY has translated this"),
        ("too long", "word " * 250, "Wort " * 150),
        ("too long", "word " * 150, "Wort " * 250),
        ("unlike lengths", "Yes.", "Ja, aber nur wenn es morgen nicht mehr regnet."),
        ("unlike lengths", "Yes, but only if it does not rain any more tomorrow.", "Ja."),
        ("duplicate pair", *GOOD[3]),
        ("duplicate pair", f"  {GOOD[3][0]}", GOOD[3][1].replace(" ", "  ")),
        ("markup", "<b>bold</b>", "fett"),
        ("markup", "stone &amp; tile", "Stein und Fliese"),
        ("URL", "See www.example.com.", "Siehe www.example.com."),
        ("white space", "two  spaces", "zwei Leerzeichen"),
        ("white space", "soft\u00adhyphen", "Trennstrich"),
        ("subword marks", "a wind@@ mill", "Windmühle"),
        ("subword marks", "windmill", "Wind@@"),
        ("subword marks", "▁a ▁wind mill", "Windmühle"),
        ("several translations", GOOD[3][0].upper(), "Der dritte Satz."),
    ],
)
def test_a_problem_is_found_with_its_line_and_removed(tmp_path: Path, name: str, src: str, tgt: str) -> None:
    path = write(tmp_path / "p.tsv", [*GOOD, (src, tgt)])
    found = {finding.rule.name: finding for finding in look(path).findings}
    assert f"{path}:21" in [example.where for example in found[name].examples]
    done = clean(Corpus([str(path)], "en", "de"), tmp_path / "out.tsv", tmp_path / "rejected.jsonl")
    assert done.read == 21
    if found[name].rule.level == "note":
        assert (done.kept, done.removed.total()) == (21, 0)
        return
    assert (done.kept, done.removed[name]) == (20, 1)
    assert name not in names(tmp_path / "out.tsv")
    [row] = map(json.loads, (tmp_path / "rejected.jsonl").read_text().splitlines())
    assert row == {"reason": name, "where": f"{path}:21", "translation": {"en": src, "de": tgt}}


@pytest.mark.parametrize(
    ("src", "tgt"),
    [
        ("Go.", "Geh!"),
        ("I beg to differ.", "Es tut mir leid, aber ich kann dem nicht zustimmen."),
        ("New York City", "New York City"),
        ("Windows XP", "Windows XP"),
        ("24/7", "24/7"),
        ("What?!", "…"),
        ("5 < 6 & 7 > 6 <3 AT&T; R&D", "5 < 6 und 7 > 6 <3 AT&T; F&E"),
        ("“CAFÉ…” — NESCAFÉ® É !", "«OLÁ» AMANH\u00c3\u00bb São Tomé"),
        ("naïve façade, Ångström, Öl–Ära", "ÀÉÎÕÜ àéîõü ß Ø 20 °C ½ µm"),
        ("α and β are Greek", "α und β sind griechisch"),
        ("Is it « là » ?", "Das sind 5\u00a0km"),
        (
            "a family \U0001f468\u200d\U0001f469\u200d\U0001f467 emoji",
            "Familie \U0001f468\u200d\U0001f469\u200d\U0001f467",
        ),
        (" spaces at the ends ", "\u00a0werden beim Lesen entfernt\r"),
    ],
)
def test_a_correct_pair_has_no_findings(tmp_path: Path, src: str, tgt: str) -> None:
    assert names(write(tmp_path / "p.tsv", [*GOOD, (src, tgt)])) == {}


def test_words_are_not_counted_in_scripts_without_spaces(tmp_path: Path) -> None:
    pairs = [(f"Number {i} is read.", f"数字{i}正在被大声朗读。") for i in range(9)]
    path = write(
        tmp_path / "p.tsv", [*pairs, ("这个句子没有人翻译。", "这个句子没有人翻译。"), ("数字正在被大声朗读。", "@@")]
    )
    found = look(path)
    english, chinese = data_check._statistics(found)
    assert (english["words"], chinese["words"], chinese["words_per_pair"]) == (4 * 9 + 2, None, None)
    (line,) = (line for line in data_check.to_text(found).splitlines() if line.startswith("words per pair"))
    assert line.endswith(" -")
    assert {"untranslated", "no words on one side"} <= {finding.rule.name for finding in found.findings}


CHINESE = ("我昨天去了图书馆，借了三本书。", "今天天气很好，我们去公园散步吧。", "他每天早上六点起床。")


def test_swapped_sides_are_found_in_a_language_without_spaces(tmp_path: Path) -> None:
    pairs = [(f"He has read {n} books this year.", CHINESE[n % 3]) for n in range(12)]
    found = check(Corpus([str(write(tmp_path / "p.tsv", pairs))], "zh", "en"))
    (notice,) = found.survey.languages
    assert notice.startswith("the sides look swapped: in 100% of 12 pairs, the source is en and the target zh")
    assert {finding.rule.name: finding.pairs for finding in found.findings} == {"swapped sides": 12}


def test_vowel_signs_do_not_divide_words(tmp_path: Path) -> None:
    name = "महाराष्ट्र विधानसभा"
    pairs = [(f"यह वाक्य {word} है", f"हे वाक्य {word} आहे") for word in ("एक", "दोन", "तीन", "चार")]
    path = write(tmp_path / "p.tsv", [*pairs, (name, name), ("…", "धन्यवाद मित्र"), ("यह एक नया वाक्य है",) * 2])
    found = {finding.rule.name: finding.pairs for finding in check(Corpus([str(path)], "hi", "mr")).findings}
    assert found == {"untranslated": 1}
    assert letter_runs(f"{name}, 2 e\u0301te\u0301s") == [*name.split(), "e\u0301te\u0301s"]
    assert languages._has_words("यह एक नया वाक्य है")
    assert not languages._has_words(name)


def test_a_few_latin_words_are_not_a_wrong_script(tmp_path: Path) -> None:
    russian = [(f"The word number {i} is here.", f"Слово номер {i} находится здесь.") for i in range(9)]
    pairs = [*russian, ("It is an IBM PC.", "IBM PC"), ("Tom?", "Tom?")]
    path = write(tmp_path / "p.tsv", pairs)
    assert names(path) == {}
    assert look(path).survey.scripts == ("Latin", "Cyrillic")


def test_removing_wrong_scripts_leaves_none(tmp_path: Path) -> None:
    """Without the Greek lines, Cyrillic is no longer the script of most sources."""
    pairs = [(f"Слово {n}", f"λέξη {n}") for n in "абвг"] + [(f"Word {n}", f"A word as it is {n}") for n in "abcd"]
    path = write(tmp_path / "p.tsv", [*pairs, ("Слово", "This is a word")])
    done = clean(Corpus([str(path)], "ru", "en"), tmp_path / "o.tsv")
    assert (done.kept, done.removed) == (4, {"wrong script": 5})
    assert names(tmp_path / "o.tsv") == {}


def test_the_sides_may_be_written_in_any_script(tmp_path: Path) -> None:
    pairs = [
        ("I drink tea every day at home.", "毎日家でお茶を飲みます。"),
        ("I like rice very much.", "ご飯が大好きです。"),
    ]
    path = write(tmp_path / "p.tsv", pairs)
    assert names(path) == {}
    assert look(path).survey.scripts[1] == "Chinese or Japanese"
    assert script("한국어 문장") == "Hangul"
    assert script("ª º µ 12 — !") == ""
    assert (size("abc"), size("é"), size("漢字")) == (3, 1, 6)


@pytest.mark.parametrize("text", ["é", "ñandú", "“quoted” – it’s", "привет", "ελληνικά", "日本", "€ 5", "5 °C", "«à»"])
def test_text_in_the_wrong_encoding_is_found(text: str) -> None:
    wrong = "".join(
        bytes([b]).decode("cp1252") if b not in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else chr(b) for b in text.encode()
    )
    assert mojibake(f"so {wrong} it is")
    assert not mojibake(f"so {text} it is")


@settings(max_examples=300)
@given(st.text())
def test_tidying_twice_changes_nothing(text: str) -> None:
    once = tidy(text)
    assert tidy(once) == once == once.strip()
    assert "".join(once.split()) == "".join(c for c in text if c not in "\ufeff\u00ad\u2060" and not c.isspace())


def test_every_rule_has_its_own_bit_and_name() -> None:
    assert sorted(BIT.values()) == [1 << n for n in range(len(rules()))]
    assert len(rules()) <= 32
    assert [rule.name for rule in rules(5, 2.0)] == list(BIT)
    levels = [rule.level for rule in rules()]
    assert levels == sorted(levels, key=["error", "warning", "note"].index)


# whole corpora


def test_all_invalid_lines_are_reported(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_bytes(b"a\tb\nx\xe9\ty\nno tab\n\0\tc\n\xff\xfe\td\n\na\tb\n")
    assert names(tmp_path / "p.tsv") == {
        "not a pair": 1,
        "invalid UTF-8": 2,
        "NUL character": 1,
        "empty side": 1,
        "duplicate pair": 1,
    }
    text = data_check.to_text(look(tmp_path / "p.tsv"))
    assert f"{tmp_path}/p.tsv:2  x\\xe9  |  y" in text
    assert "\\x00  |  c" in text
    assert "would remove 6 pairs" in text
    assert "\n1 training pair: far too few" in text


def test_text_in_windows_1252_is_to_be_converted_and_not_cleaned(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("Good day,Schöner Tag\nHello,Hallo\n", encoding="cp1252")
    text = data_check.to_text(look(tmp_path / "p.csv"))
    assert "convert the file (often iconv -f WINDOWS-1252 -t UTF-8; in Excel, save as CSV UTF-8)" in text
    assert text.endswith("convert the file first: cleaning would lose 1 pair of invalid UTF-8")
    done = clean(Corpus([str(tmp_path / "p.csv")], "en", "de"), tmp_path / "o.csv")
    assert "to keep the pairs of invalid UTF-8, convert the file (often iconv" in to_text(done)
    with pytest.raises(DataError, match=r"is not UTF-8 .*; convert it \(often iconv -f WINDOWS-1252"):
        list(read_pairs(str(tmp_path / "p.csv"), "en", "de"))


def test_rows_that_are_not_pairs(tmp_path: Path) -> None:
    rows = ['{"en": "a", "de": "b"}', "[1", '{"en": "a"}', '{"en": 5, "de": "b"}', r'{"en": "\ud800", "de": "b"}', ""]
    (tmp_path / "p.jsonl").write_bytes("\n".join(rows).encode() + b'\n{"en": "\xff", "de": "b"}\n')
    assert names(tmp_path / "p.jsonl") == {"not a pair": 5, "empty side": 1}
    done = clean(Corpus([str(tmp_path / "p.jsonl")], "en", "de"), tmp_path / "o.jsonl", tmp_path / "r.jsonl")
    assert done.kept == 1
    rejected = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert "[1" in rejected[0]["translation"]["en"]
    assert [row["where"] for row in rejected] == [f"{tmp_path}/p.jsonl:{n}" for n in range(2, 8)]


def test_a_corpus_that_cannot_be_read_to_its_end_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t.en").write_text("a\nb\n")
    (tmp_path / "t.de").write_text("a\n")
    with pytest.raises(DataError, match=r"t\.en has 2 lines"):
        look(tmp_path / "t")
    (tmp_path / "p.tsv.gz").write_bytes(gzip.compress(b"a\tb\n")[:-4])
    with pytest.raises(DataError, match="damaged gzip"):
        look(tmp_path / "p.tsv.gz")
    (tmp_path / "w.tsv").write_bytes("a\tb\n".encode("utf-16"))
    with pytest.raises(DataError, match="UTF-16"):
        look(tmp_path / "w.tsv")


@pytest.mark.parametrize("form", ["train", "p.tsv.gz", "p.csv", "p.jsonl", "p.parquet", "train.en,train.de"])
def test_every_form_gives_the_same_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    monkeypatch.chdir(tmp_path)
    pairs = [*GOOD, GOOD[0], ("", "leer"), ("a  b", "c")]
    write(Path("p.tsv"), pairs)
    Path("p.tsv.gz").write_bytes(gzip.compress(Path("p.tsv").read_bytes()))
    with Path("p.csv").open("w", newline="") as file:
        csv.writer(file, delimiter=";").writerows([("de", "note", "en"), *((b, "x;y", a) for a, b in pairs)])
    rows = [{"en": a, "de": b} for a, b in pairs]
    Path("p.jsonl").write_text("".join(json.dumps({"translation": row}) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), "p.parquet")
    for side, language in enumerate(("en", "de")):
        Path(f"train.{language}").write_text("".join(pair[side] + "\n" for pair in pairs))
    found = look(Path(form))
    assert {x.rule.name: x.pairs for x in found.findings} == {"empty side": 1, "duplicate pair": 1, "white space": 1}
    assert all(":2" in x.examples[0].where or "row 2" in x.examples[0].where for x in found.findings)
    assert len(found.survey.found) == 23


def test_swapped_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "p.tsv", [(b, a) for a, b in GOOD])
    clean(Corpus([str(path)], "en", "de", swap=True), tmp_path / "o.jsonl")
    assert list(read_pairs(str(tmp_path / "o.jsonl"), "en", "de")) == GOOD


def test_sources_of_valid_and_test_are_found_in_any_case_and_spacing(tmp_path: Path) -> None:
    path = write(tmp_path / "p.tsv", GOOD)
    valid = write(tmp_path / "v.tsv", [(GOOD[2][0].upper(), "x"), ("unseen", "x"), ("", "x")])
    test = write(tmp_path / "t.tsv", [(GOOD[5][0].replace(" ", "  "), "x"), (GOOD[2][0], "x")])
    given = {"valid": str(valid), "test": str(test)}
    assert names(path, **given) == {"source is in test": 2, "source is in valid": 1}
    done = clean(Corpus([str(path)], "en", "de", **given), tmp_path / "o.tsv")
    assert done.removed == {"source is in test": 2}
    assert names(tmp_path / "o.tsv", **given) == {}


def test_pairs_are_compared_over_all_paths(tmp_path: Path) -> None:
    paths = [str(write(tmp_path / name, GOOD)) for name in ("a.tsv", "b.tsv")]
    found = check(Corpus(paths, "en", "de"))
    [finding] = found.findings
    assert (finding.rule.name, finding.pairs) == ("duplicate pair", 20)
    assert finding.examples[0].where == f"{paths[1]}:1"


def test_other_limits(tmp_path: Path) -> None:
    path = write(tmp_path / "p.tsv", [("x" * 1500, "y" * 1500), ("a" * 10, "b" * 60)])
    assert names(path) == {"too long": 1, "unlike lengths": 1}
    assert names(path, max_length=1500, max_ratio=6.0) == {}


def test_a_models_tokenizer(toy_run: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "p.tsv", [("red tree.", "der eert."), ("漢", "漢"), ("stone " * 150, "enots " * 150)])
    pairs = Corpus([str(path)], "en", "xx")
    found = check(pairs, toy_run)
    counts = {x.rule.name: x.pairs for x in found.findings}
    assert counts["byte fallback"] == 1
    assert found.survey.tokens is not None
    assert found.survey.tokens[0].byte_tokens == 3
    assert found.survey.tokens[0].words == 153
    (tmp_path / "run").mkdir()
    for name, old, new in (("tokenizer.json", "", ""), ("config.toml", "max_length = 256", "max_length = 20")):
        text = (toy_run / name).read_text()
        assert old in text
        (tmp_path / "run" / name).write_text(text.replace(old, new) if old else text)
    assert {x.rule.name: x.pairs for x in check(pairs, tmp_path / "run").findings}["too many tokens"] == 1
    assert "tokens per word" in data_check.to_text(found)
    with pytest.raises(ModelError):
        survey(pairs, tmp_path)


# cleaning

sides = st.one_of(
    st.text(max_size=12),
    st.text("ab <&Ã©\u00a0\t\0\udce9\ufffdжш漢", max_size=30),
    st.sampled_from(["Это не по-английски, нет", "one two three four", "five six seven eight", "一二三四五", "A", ""]),
)
corpora = st.lists(st.tuples(sides, sides), max_size=14).flatmap(
    lambda pairs: st.lists(st.sampled_from(pairs), max_size=20) if pairs else st.just([])
)


def raw(pairs: list[tuple[str, str]]) -> bytes:
    """JSON lines, which can hold any of these."""
    return "".join(json.dumps({"translation": {"en": a, "de": b}}) + "\n" for a, b in pairs).encode()


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(corpora, st.sampled_from(["o.tsv", "o.jsonl", "o", "o.tsv.gz", "o.tsv.jsonl"]))
def test_cleaning_accounts_for_every_pair_and_a_second_cleaning_finds_nothing(
    tmp_path: Path, pairs: list[tuple[str, str]], form: str
) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(raw(pairs))
    before = Corpus([str(path)], "en", "de")
    done = clean(before, tmp_path / form, tmp_path / "rejected.jsonl", force=True)
    assert done.read == len(pairs) == done.kept + done.removed.total()
    rejected = (tmp_path / "rejected.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    assert len(rejected) == done.removed.total()
    lost = {int(json.loads(line)["where"].rpartition(":")[2]) for line in rejected}
    counts = Counts()
    kept = list(read_pairs(str(tmp_path / form), "en", "de", counts=counts))
    assert counts.read == len(kept) == done.kept
    assert kept == [(tidy(a), tidy(b)) for n, (a, b) in enumerate(pairs, 1) if n not in lost]

    after = Corpus([str(tmp_path / form)], "en", "de")
    assert all(finding.rule.level == "note" for finding in check(after).findings)
    again = clean(after, tmp_path / f"again-{form}", force=True)
    assert again == Cleaned(read=done.kept, kept=done.kept)
    assert list(read_pairs(str(tmp_path / f"again-{form}"), "en", "de")) == kept


def test_names_of_the_output(tmp_path: Path) -> None:
    path = write(tmp_path / "in.tsv", GOOD)
    pairs = Corpus([str(path)], "en", "de")
    (tmp_path / "new").mkdir()
    clean(pairs, tmp_path / "new" / "train.gz")
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["train.de.gz", "train.en.gz"]
    assert list(read_pairs(str(tmp_path / "new" / "train"), "en", "de")) == GOOD
    for name, suffix in (("x.txt", ".txt"), ("x.parquet", ".parquet"), ("x.json.gz", ".json")):
        with pytest.raises(UsageError, match=rf"not written as \{suffix}; name the output x\.tsv, x\.csv or x\.jsonl"):
            clean(pairs, tmp_path / name)
    with pytest.raises(UsageError, match="overwritten"):
        clean(pairs, path)
    with pytest.raises(UsageError, match="overwritten"):
        clean(pairs, tmp_path / "o.tsv", path)
    with pytest.raises(UsageError, match="two names"):
        clean(pairs, tmp_path / "o.jsonl", tmp_path / "o.jsonl")
    assert list(read_pairs(str(path), "en", "de")) == GOOD


@pytest.mark.parametrize("split", ["", "#valid", "#test"])
def test_the_pairs_of_a_run_are_checked_and_cleaned(tmp_path: Path, toy_run: Path, split: str) -> None:
    spec = f"{toy_run}{split}"
    wanted = list(read_pairs(spec, "en", "xx"))
    pairs = Corpus([spec], "en", "xx")
    assert len(check(pairs).survey.found) == len(wanted)
    assert pairs.place(spec, 3) == f"{spec} row 3"
    done = clean(pairs, tmp_path / "out.tsv")
    assert done.read == len(wanted)
    assert set(read_pairs(str(tmp_path / "out.tsv"), "en", "xx")) <= set(wanted)


def test_csv_in_and_out(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    pairs = [('say "hi", now', "sag «hi»; jetzt"), *GOOD]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("German", "English"), *((b, a) for a, b in pairs), ("", "leer"), ("one",)])
    report = look(path)
    assert {x.rule.name: x.examples[0].where for x in report.findings} == {
        "not a pair": f"{path}:{len(pairs) + 3}",
        "empty side": f"{path}:{len(pairs) + 2}",
    }
    assert report.survey.notices[0] == f"{path}: line 1 names the columns: read 'English' as en and 'German' as de"
    for name in ("out.csv", "out.csv.gz", "out.tsv"):
        done = clean(Corpus([str(path)], "en", "de"), tmp_path / name)
        assert (done.read, done.kept) == (len(pairs) + 2, len(pairs))
        assert list(read_pairs(str(tmp_path / name), "en", "de")) == pairs
    assert (tmp_path / "out.csv").read_text(encoding="utf-8").startswith('en,de\n"say ""hi"", now",')
    assert list(read_pairs(str(tmp_path / "out.csv"), "de", "en")) == [(b, a) for a, b in pairs]


def test_the_header_of_a_tsv_is_not_a_pair(tmp_path: Path) -> None:
    path = write(tmp_path / "p.tsv", [("en", "de"), *GOOD])
    report = look(path)
    assert len(report.survey.found) == len(GOOD)
    assert "line 1 names the columns" in report.survey.notices[0]
    broken = tmp_path / "open.csv"
    broken.write_text('a,b\n"c,d\n')
    with pytest.raises(DataError, match=r"open\.csv:2: a quotation mark opens"):
        look(broken)


def test_output_is_complete_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "in.tsv", GOOD)
    monkeypatch.setattr("mtcli.corpus.quality.clean._json", lambda row: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        clean(Corpus([str(path)], "en", "de"), tmp_path / "o.jsonl", tmp_path / "r.jsonl")
    assert [p.name for p in tmp_path.iterdir()] == ["in.tsv"]


def test_both_output_files_are_complete_or_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, synced = Corpus([str(write(tmp_path / "in.tsv", GOOD))], "en", "de"), list[int]()

    def fsync(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fsync)
    with pytest.raises(StorageError, match="No space left"):
        clean(pairs, tmp_path / "o")
    assert [p.name for p in tmp_path.iterdir()] == ["in.tsv"]


def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "in.tsv", GOOD)
    other = [("Another sentence.", "Ein anderer Satz."), *GOOD[1:]]
    for now, words in ((GOOD * 2, "grew"), (GOOD[:5], "shrank"), ([("no tab", "")], "changed"), (other, "changed")):
        write(path, GOOD)

        def surveyed(pairs: Corpus, now: list[tuple[str, str]] = now) -> object:
            seen = survey(pairs)
            path.write_text("".join("\t".join(filter(None, pair)) + "\n" for pair in now))
            return seen

        monkeypatch.setattr("mtcli.corpus.quality.clean.survey", surveyed)
        with pytest.raises(DataError, match=words):
            clean(Corpus([str(path)], "en", "de"), tmp_path / "o.tsv")
        assert not (tmp_path / "o.tsv").exists()


def test_an_empty_corpus(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").touch()
    assert "0 pairs" in data_check.to_text(look(tmp_path / "p.tsv"))
    assert clean(Corpus([str(tmp_path / "p.tsv")], "en", "de"), tmp_path / "o.tsv") == Cleaned()
    assert (tmp_path / "o.tsv").read_bytes() == b""


# the command line


def test_the_commands(tmp_path: Path) -> None:
    mtcli = partial(run, "data", cwd=tmp_path)

    write(tmp_path / "p.tsv", [*GOOD, GOOD[1], ("x\udce9", "y")])
    checked = mtcli("check", "p.tsv@2", "--src", "en", "--tgt", "de", "--json")
    assert (checked.code, checked.err) == (0, "")
    facts = json.loads(checked.out)
    assert facts["pairs"] == 22
    assert {x["name"]: x["pairs"] for x in facts["findings"]} == {"invalid UTF-8": 1, "duplicate pair": 1}
    assert facts["src"]["language"] == "en"
    cleaned = mtcli("clean", "p.tsv", "--tgt", "de", "-o", "o.tsv", "--rejected", "r.jsonl")
    assert cleaned.code == 0
    assert "20 kept" in cleaned.out
    assert "nothing to clean" in mtcli("check", "o.tsv", "--tgt", "de").out
    (tmp_path / "t.en").write_text("a\n")
    (tmp_path / "t.de").touch()
    assert mtcli("check", "t", "--tgt", "de").code == 3
    assert mtcli("check", "o.tsv", "--src", "de", "--tgt", "de").code == 2


def test_json_whose_keys_name_the_sides_needs_no_languages(tmp_path: Path) -> None:
    mtcli = partial(run, "data", cwd=tmp_path)
    rows = [{"source": a, "target": b} for a, b in GOOD]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = mtcli("check", "p.jsonl")
    assert (done.code, done.err) == (0, "")
    assert "p.jsonl: 20 pairs" in done.out
    assert "nothing to clean" in done.out
    (tmp_path / "q.jsonl").write_text('{"a": "x", "b": "y"}\n')
    assert mtcli("check", "q.jsonl").code == 2


# real text


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared data")
def test_known_problems_of_multi30k() -> None:
    held = {"valid": str(SHARED / "multi30k/val"), "test": str(SHARED / "multi30k/test_2016_flickr")}
    found = look(SHARED / "multi30k/train", **held)
    serious = {x.rule.name: [e.where.rpartition(":")[2] for e in x.examples] for x in found.findings}
    assert serious["source is in valid"] == ["4750"]
    assert serious["no words on one side"] == ["16510", "16664"]  # "@@" for a German sentence
    assert np.count_nonzero(found.survey.found & BIT["duplicate pair"]) == 3
    assert found.survey.scripts == ("Latin", "Latin")
