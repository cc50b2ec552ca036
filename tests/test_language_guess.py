"""Unset languages and run folders: taken from the names of files and columns, or requested from the user."""

import gzip
import json
import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from mtcli.cli import app
from mtcli.config.schema import DataConfig
from mtcli.corpus.readers import language_guess
from mtcli.corpus.readers.language_guess import contradiction, guess_each, guess_languages
from mtcli.errors import DataError, UsageError
from mtcli.storage.run_name import run_name
from mtcli.text.languages import english_name, known
from mtcli.training.request import resolve


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(files: Iterable[str], content: str = "a\tb\n") -> None:
    for name in files:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        raw = content.encode()
        Path(name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)


def guessed(*specs: str, src: str | None = None, tgt: str | None = None) -> tuple[str, str]:
    guess = guess_languages(specs, src, tgt)
    assert guess.where.startswith("from the ")
    return guess.src, guess.tgt


@pytest.mark.parametrize(
    ("files", "spec", "languages"),
    [
        (["train.en", "train.de"], "train", ("en", "de")),
        (["train.de", "train.en", "train.txt", "train.json"], "train", ("en", "de")),
        (["train.es.gz", "train.en.gz"], "train", ("en", "es")),
        (["de-en/train.de", "de-en/train.en"], "de-en/train", ("de", "en")),
        (["Tatoeba.en-es.en", "Tatoeba.en-es.es"], "Tatoeba.en-es", ("en", "es")),
        (["Tatoeba.fr-es.fr", "Tatoeba.fr-es.es"], "Tatoeba.fr-es", ("fr", "es")),
        (["x.en-de.de", "x.en-de.en", "x.en-de.fr"], "x.en-de", ("en", "de")),
        (["n.eng_Latn", "n.deu_Latn"], "n", ("eng_Latn", "deu_Latn")),
        (["a.de", "b.en"], "a.de,b.en", ("de", "en")),
        (["a.de.gz", "a.fr.gz"], "a.de.gz,a.fr.gz", ("de", "fr")),
        (["en-es.tsv.gz"], "en-es.tsv.gz", ("en", "es")),
        (["pairs.en-de.tsv"], "pairs.en-de.tsv", ("en", "de")),
        (["wmt14_de_en.csv"], "wmt14_de_en.csv", ("de", "en")),
        (["en2de.tsv"], "en2de.tsv", ("en", "de")),
        (["EN-DE.tsv"], "EN-DE.tsv", ("en", "de")),
        (["data.eng-to-zh_CN.tsv"], "data.eng-to-zh_CN.tsv", ("eng", "zh_CN")),
        (["opus/en-de/train.tsv"], "opus/en-de/train.tsv", ("en", "de")),
    ],
)
def test_languages_from_names(files: list[str], spec: str, languages: tuple[str, str]) -> None:
    write(files, "a,b\n" if spec.endswith(".csv") else "a\tb\n")
    assert guessed(spec) == languages


@pytest.mark.parametrize(
    ("name", "content", "languages"),
    [
        ("p.csv", "English,Spanish\na,b\n", ("en", "es")),
        ("p.csv", "id;de;en;note\n1;a;b;c\n", ("de", "en")),
        ("p.tsv", "EN\tzh_CN\na\tb\n", ("en", "zh_CN")),
        ("p.csv", "source,target\na,b\n", None),
        ("p.tsv", "Hello\tHola\n", None),
        ("p.csv", "en,de,fr\na,b,c\n", None),
        ("en-fr.csv", "en,de,fr\na,b,c\n", ("en", "fr")),
        ("en-de.csv", "source,target\na,b\n", ("en", "de")),
        ("p.jsonl", '{"translation": {"de": "a", "en": "b"}}\n', ("de", "en")),
        ("en-de.jsonl", '{"translation": {"de": "a", "en": "b"}}\n', ("en", "de")),
        ("p.jsonl", '{"id": 1, "en": "a", "text": "c", "de": "b"}\n', ("en", "de")),
        ("p.jsonl", '{"id": "tok", "en": "b"}\n', ("id", "en")),
        ("p.jsonl", "[]\n", None),
        ("p.jsonl", '{"source": "a", "target": "b"}\n', None),
        ("en-de.jsonl", '{"source": "a", "target": "b"}\n', ("en", "de")),
        ("my-en-de.tsv", "a\tb\n", None),
        ("p.csv", "", None),
    ],
)
def test_languages_from_columns(name: str, content: str, languages: tuple[str, str] | None) -> None:
    write([name], content)
    if languages:
        assert guessed(name) == languages
    else:
        with pytest.raises(UsageError, match="add --src en --tgt es, or whatever they are"):
            guessed(name)


def test_a_first_object_is_searched_in_few_lines() -> None:
    write(["p.jsonl"], "\n" * 10 + ' \n{"en": "a", "de": "b"}\n')
    assert guessed("p.jsonl") == ("en", "de")
    write(["p.jsonl"], "\n" * language_guess.JSON_LINES + '{"en": "a", "de": "b"}\n')
    with pytest.raises(UsageError, match="add --src en --tgt es"):
        guessed("p.jsonl")


def test_languages_from_parquet_and_folders() -> None:
    pq.write_table(pa.Table.from_pylist([{"en": "a", "id": 1, "de": "b"}]), "flat.parquet")
    pq.write_table(pa.Table.from_pylist([{"translation": {"fr": "a", "en": "b"}}]), "nested.parquet")
    assert guessed("flat.parquet") == ("en", "de")
    assert guessed("nested.parquet") == ("fr", "en")
    write(["folder/train.jsonl"], json.dumps({"translation": {"es": "a", "en": "b"}}) + "\n")
    assert guessed("folder") == ("es", "en")
    Path("broken.parquet").write_bytes(b"no")
    with pytest.raises(DataError, match="not readable as Parquet"):
        guessed("broken.parquet")
    assert guessed("wmt/wmt14:de-en") == ("de", "en")  # its name tells: the Hub is not asked


def test_a_given_language_leaves_the_other_to_guess() -> None:
    write(["train.en", "train.de", "x.fr", "x.de", "x.en"])
    assert guessed("train", tgt="en") == ("de", "en")
    assert guessed("train", src="de") == ("de", "en")
    assert guessed("train", src="en") == ("en", "de")
    with pytest.raises(UsageError, match="add --tgt es"):
        guessed("train", src="fr")
    with pytest.raises(UsageError, match="add --src en, or"):
        guessed("x", tgt="en")


def test_languages_that_no_name_gives_are_requested() -> None:
    write(["train.fr", "train.de", "a.en-de.tsv", "b.en-fr.tsv", "pairs.tsv"])
    with pytest.raises(UsageError, match="add --src de --tgt fr, or --src fr --tgt de"):
        guessed("train")
    with pytest.raises(UsageError, match=r"seem to be en → de .* and en → fr"):
        guessed("a.en-de.tsv", "b.en-fr.tsv")
    assert guessed("pairs.tsv", "a.en-de.tsv") == ("en", "de")
    with pytest.raises(DataError, match=r"absent: no such file or folder, and no absent\.SRC and absent\.TGT"):
        guessed("absent")
    with pytest.raises(DataError, match=r"absent\.tsv: no such file"):
        guessed("absent.tsv")
    write(["one.en"])
    with pytest.raises(DataError, match=r"found one\.en but no one\.TGT"):
        guessed("one")


def test_names_of_languages() -> None:
    assert [known(name) for name in ("en", "eng", " English ", "zh-CN", "eng_Latn", "es-419")] == [
        "en", "en", "en", "zh_cn", "en_latn", "es_419",
    ]  # fmt: skip
    assert [known(name) for name in ("", "xx", "txt", "json", "text", "en_x", "train")] == [None] * 7


def test_a_name_and_a_code_of_no_language_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.tsv").write_text("a\tb\n")
    command = CliRunner().invoke(app, ["data", "check", "p.tsv", "--src", "english", "--tgt", "Deutsch", "--json"])
    report = json.loads(command.stdout)
    assert (report["src"]["language"], report["tgt"]["language"]) == ("en", "de")
    given = {"data.train": ["p.tsv"], "data.src": "en", "data.tgt": "xx"}
    resolve(None, given, (), out=tmp_path / "run")
    assert [record.getMessage()[:31] for record in caplog.records if record.levelname == "WARNING"] == [
        "--tgt xx: no language has this "
    ]


def test_a_configuration_from_a_pipe_is_read_once(tmp_path: Path) -> None:
    Path("en-de.tsv").write_text("a\tb\n")
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as pipe:
        pipe.write('data.train = ["en-de.tsv"]\ntrain.lr = 0.5\n')
    request = resolve(Path(f"/dev/fd/{reading}"), {}, (), out=tmp_path / "run")
    os.close(reading)
    assert (request.config.data.src, request.config.data.tgt, request.config.train.lr) == ("en", "de", 0.5)


def test_english_names_of_language_codes() -> None:
    assert [english_name(code) for code in ("en", "es", "zh", "fa", "af")] == [
        "English", "Spanish", "Chinese", "Persian", "Afrikaans",
    ]  # fmt: skip
    assert [english_name(code) for code in ("xx", "zh_CN", "src")] == ["xx", "zh_CN", "src"]


# ---- run folders ----


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("pairs.tsv", "pairs"),
        ("my data/pairs é.tsv", "pairs é"),
        ("train", "train"),
        ("data/train", "data-train"),
        ("data/multi30k/train", "multi30k-train"),
        ("data/multi30k/train.csv.gz@2", "multi30k-train"),
        ("/abs/iwslt/data/train.en,/abs/iwslt/data/train.es", "iwslt-data-train"),
        ("../train.tsv", "train"),
        ("tatoeba/en-es.tsv.gz", "tatoeba"),
        ("en-es.tsv", ""),
        ("pairs-en-es.tsv", "pairs"),
        ("opus/Tatoeba.en-es", "Tatoeba"),
        ("opus/en-es/train.tsv", "opus-train"),
        ("wmt/wmt14:de-en", "wmt14"),
        ("bentrevett/multi30k", "multi30k"),
        ("news.2019.tsv", "news"),
    ],
)
def test_run_folders_are_named_after_the_first_corpus(spec: str, name: str) -> None:
    data = DataConfig(train=(spec, "other.tsv"), src="en", tgt="es")
    assert run_name(data, None) == f"{name}-en-es".removeprefix("-")


def test_run_folders_of_configurations() -> None:
    data = DataConfig(train=("x.tsv",), src="en", tgt="es")
    assert run_name(data, Path("configs/multi30k.toml")) == "multi30k-en-es"
    assert run_name(data, Path("runs/news/config.toml")) == "news-config-en-es"
    assert run_name(data, Path("configs/wmt14-base.toml")) == "wmt14-base-en-es"
    assert run_name(DataConfig(), Path("configs/demo.toml")) == "demo"


def test_a_rare_code_is_a_language_beside_a_corpus_of_the_same_name_but_for_it() -> None:
    write(["es-gn.tsv", "es-nah.tsv", "old.es-nah.tsv", "pairs.es-gn.tsv"])
    found = guess_each(["es-gn.tsv", "es-nah.tsv"], None, None)
    assert [(guess.src, guess.tgt) for guess in found] == [("es", "gn"), ("es", "nah")]
    found = guess_each(["es-nah.tsv", "es-gn.tsv"], None, None)
    assert [(guess.src, guess.tgt) for guess in found] == [("es", "nah"), ("es", "gn")]
    with pytest.raises(UsageError, match=r"old\.es-nah\.tsv: its name may say es and nah, .* once for each --train"):
        guess_each(["pairs.es-gn.tsv", "old.es-nah.tsv"], None, None)


@pytest.mark.parametrize(
    ("spec", "languages", "others"),
    [
        ("es-nah.tsv", ("es", "gn"), "es and nah"),
        ("es-gn.tsv", ("es", "gnn"), "es and gn"),
        ("es-gn.tsv", ("gn", "es"), None),
        ("es-gn/pairs.tsv", ("es", "nah"), "es and gn"),
        ("deu-eng.tsv", ("en", "de"), None),
        ("de-fr.tsv", ("en", "es"), None),  # both are other languages: perhaps no languages at all
        ("pairs.tsv", ("en", "es"), None),
    ],
)
def test_a_name_that_says_another_language(spec: str, languages: tuple[str, str], others: str | None) -> None:
    assert contradiction(spec, *languages) == others
