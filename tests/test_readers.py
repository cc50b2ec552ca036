"""Readers: the same pairs in any form, the same lines as written, and every pair accounted for."""

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mtcli.corpus import held_out
from mtcli.corpus.held_out import choose_held_out, held_out_size, source_key
from mtcli.corpus.readers import rows, tables
from mtcli.corpus.readers.language_guess import guess_languages
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.corpus.readers.sources import Source, parse_source, resolve, source_files
from mtcli.errors import DataError, UsageError
from mtcli.text.lines import Counts, read_lines

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
here = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])

# Text that has broken other tools: quotation marks, NA, every line separator but \n, spaces, joiners.
NASTY = [
    '"Hi', 'say "hi" and go', "NA", "null", "nan", "None", "a\u2028b", "a\u2029b", "a\u0085b", "a\vb\fc", "lone\rCR",
    "end\r", "\u00a0nbsp\u00a0inside\u00a0x", "👩‍👩‍👧 family", "e\u0301 and é", "עברית \u200fx", "\ufeffmark",
    "<pad></s>", "\\ud800", "{", "a,b", "#", "{}", "  wide  ", "", " ", "\u3000", "1e5", "2020-01-01", "x\u001cy",
]  # fmt: skip
texts = st.one_of(
    st.sampled_from(NASTY),
    st.text(st.characters(codec="utf-8", exclude_characters="\n\t\0"), max_size=20),
)
# A byte-order mark at the start of a file belongs to the file, not to the text.
pair_lists = st.lists(st.tuples(texts, texts), max_size=12).filter(
    lambda pairs: not any(side.startswith("\ufeff") for side in (pairs[0] if pairs else ()))
)


def lines_of(texts):
    return "".join(text + "\n" for text in texts).encode()


def write_all_forms(folder: Path, pairs: list[tuple[str, str]]) -> list[str]:
    """Write the same pairs in every form that does not need `datasets`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sides = {"en": lines_of(a for a, _ in pairs), "de": lines_of(b for _, b in pairs)}
    for language, raw in sides.items():
        (folder / f"plain.{language}").write_bytes(raw)
        (folder / f"packed.{language}.gz").write_bytes(gzip.compress(raw))
    tsv = lines_of(f"{a}\t{b}" for a, b in pairs)
    nested = [{"translation": {"de": b, "en": a}} for a, b in pairs]
    flat = [{"id": i, "en": a, "de": b} for i, (a, b) in enumerate(pairs)]
    (folder / "p.tsv").write_bytes(tsv)
    (folder / "p.tsv.gz").write_bytes(gzip.compress(tsv))
    (folder / "nested.jsonl").write_bytes(lines_of(map(json.dumps, nested)))
    (folder / "flat.json.gz").write_bytes(gzip.compress(lines_of(json.dumps(r, ensure_ascii=False) for r in flat)))
    struct = pa.struct([("en", pa.string()), ("de", pa.string())])
    pq.write_table(
        pa.table({"translation": pa.array([row["translation"] for row in nested], struct)}), folder / "n.parquet"
    )
    columns = {"de": pa.array([b for _, b in pairs], pa.string()), "en": pa.array([a for a, _ in pairs], pa.string())}
    pq.write_table(pa.table(columns), folder / "f.parquet")
    names = ["plain", "packed", "p.tsv", "p.tsv.gz", "nested.jsonl", "flat.json.gz", "n.parquet", "f.parquet"]
    for name, delimiter in {"p.csv": ",", "semicolon.csv": ";"}.items():
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL).writerows([("en", "de"), *pairs])
        names.append(name)
    return [*(str(folder / name) for name in names), f"{folder}/plain.en,{folder}/packed.de.gz"]


def read(spec, **options) -> list[tuple[str, str]]:
    return list(read_pairs(str(spec), "en", "de", **options))


def fails(spec, *words: str, **options) -> str:
    """Check that reading `spec` fails with one line that contains all `words`, and return the line."""
    with pytest.raises(DataError) as caught:
        read(spec, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message
    return message


# every form, the same pairs


@here
@example([(text, "x") for text in NASTY if not text.startswith("\ufeff")])
@given(pair_lists)
def test_every_form_gives_the_same_pairs(tmp_path, pairs):
    expected = [(a.strip(), b.strip()) for a, b in pairs if a.strip() and b.strip()]
    for spec in write_all_forms(tmp_path, pairs):
        counts = Counts()
        assert read(spec, counts=counts) == expected, spec
        assert counts.read == len(pairs) == counts.used + sum(counts.skipped.values()), spec
        assert counts.used == len(expected), spec
        by_place = ".tsv" in spec or "," in spec  # the other forms name the language of each side
        assert read(spec, swap=True) == ([(b, a) for a, b in expected] if by_place else expected), spec


def test_tabs_inside_a_side_are_kept_by_forms_other_than_tsv(tmp_path):
    pairs = [("a\tb", "c"), ("d", "e\tf\tg")]
    for spec in write_all_forms(tmp_path, pairs):
        if ".tsv" not in spec:
            assert read(spec) == pairs, spec


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Return the folder in which `datasets` would store something. The Hub is unreachable."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


def stored(cache: Path) -> list[Path]:
    return list(cache.rglob("*.arrow"))


def test_a_local_folder_is_read_by_datasets(tmp_path, cache):
    pairs = [(a.strip(), b.strip()) for a, b in zip(NASTY, reversed(NASTY), strict=True) if a.strip() and b.strip()]
    folders = [tmp_path / name for name in ("parquet", "jsonl", "tsv")]
    for folder in folders:
        folder.mkdir()
    write_all_forms(folders[0], pairs)
    (folders[1] / "train.jsonl").write_bytes((folders[0] / "nested.jsonl").read_bytes())
    (folders[1] / "test.jsonl").write_text('{"translation": {"en": "held", "de": "out"}}\n')
    (folders[2] / "train.tsv").write_bytes(b"en\tde\n" + (folders[0] / "p.tsv").read_bytes())
    for file in folders[0].iterdir():
        if file.name != "n.parquet":
            file.unlink()
    for folder in folders:
        assert read(folder) == pairs, folder.name
    assert read(f"{folders[1]}#test") == [("held", "out")]
    assert not stored(cache)  # read as they stand
    assert source_files(str(folders[1]), "en", "de") == [folders[1] / "test.jsonl", folders[1] / "train.jsonl"]


SIZES = "dataset_info:\n- config_name: de-en\n  download_size: 1000\n  dataset_size: 1000\n"


@pytest.fixture
def hub(tmp_path, cache, monkeypatch):
    """Return a folder in the layout of wmt/wmt14, two files per split. The Hub has it under owner/name."""
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder, splits, header = tmp_path / "wmt", ("train", "test"), "---\nconfigs:\n"
    for config in ("de-en", "fr-en"):
        (folder / config).mkdir(parents=True)
        header += f"- config_name: {config}\n  data_files:\n"
        for split in splits:
            header += f"  - split: {split}\n    path: {config}/{split}-*\n"
            for number in range(2):
                pairs = [{config[:2]: f"{split} {number} {i}", "en": f"{config} {i}"} for i in range(3)]
                table = pa.table({"translation": pairs})
                pq.write_table(table, folder / config / f"{split}-0000{number}-of-00002.parquet")
    (folder / "README.md").write_text(header + "---\n")
    load = datasets.load_dataset_builder

    def from_folder(name, *args, **options):
        return load(str(folder) if name == "owner/name" else name, *args, **options)

    monkeypatch.setattr(datasets, "load_dataset_builder", from_folder)
    return folder


def pairs_in(split: str) -> list[tuple[str, str]]:
    return [(f"de-en {i}", f"{split} {number} {i}") for number in range(2) for i in range(3)]


def test_configurations_and_splits(hub, cache):
    assert read(f"{hub}:de-en") == read(f"{hub}:de-en#train") == pairs_in("train")
    assert read(f"{hub}:de-en#test") == pairs_in("test")
    assert read(f"{hub}:de-en#train+test") == pairs_in("train") + pairs_in("test")
    assert not stored(cache)
    assert read(f"{hub}:de-en#train[1:3]") == pairs_in("train")[1:3]


def test_a_hub_data_set_is_stored_if_there_is_room_and_streamed_otherwise(hub, cache, monkeypatch):
    disk = shutil.disk_usage(hub)
    assert read("owner/name:de-en") == pairs_in("train")
    assert not stored(cache)
    header = (hub / "README.md").read_text()
    (hub / "README.md").write_text(header.replace("configs:", SIZES + "configs:"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk._replace(free=3999))
    assert read("owner/name:de-en") == pairs_in("train")
    assert not stored(cache)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk._replace(free=4000))
    assert read("owner/name:de-en#test") == pairs_in("test")
    files = stored(cache)
    assert files
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk._replace(free=0))  # what is stored already needs no room
    assert read("owner/name:de-en") == pairs_in("train")
    assert stored(cache) == files


def test_a_stream_is_read_only_as_far_as_needed(hub, monkeypatch):
    monkeypatch.setattr(rows, "BATCH_ROWS", 3)
    (hub / "de-en" / "train-00001-of-00002.parquet").write_bytes(b"PAR1 no more")
    pairs = read_pairs(f"{hub}:de-en", "en", "de")
    assert [next(pairs) for _ in range(3)] == pairs_in("train")[:3]
    with pytest.raises(DataError, match="Parquet"):
        next(pairs)


@pytest.mark.parametrize("place", ["owner/name", "folder"])
def test_errors_about_data_sets_list_the_existing_names(hub, cache, place):
    name = str(hub) if place == "folder" else place
    fails(name, f"{name}: ", "Config name is missing", "'de-en', 'fr-en'", f"; choose by {name}:CONFIG#SPLIT")
    fails(f"{name}:cs-en", "'cs-en' not found", "'de-en', 'fr-en'", f"; choose by {name}:CONFIG#SPLIT")
    fails(f"{name}:de-en#valid", "Bad split: valid", "'train', 'test'", f"; choose by {name}:CONFIG#SPLIT")
    fails(f"{name}:de-en#valid[:2]", "Bad split: valid", f"; choose by {name}:CONFIG#SPLIT")
    fails(f"{name}:fr-en", "no 'de'", "'fr'", "set --src and --tgt")
    assert not stored(cache)


def test_a_folder_without_pairs(tmp_path, cache):
    folder = tmp_path / "in"
    folder.mkdir()
    fails(folder, "data files; give a folder of .parquet")
    (folder / "train.txt").write_text("x\n")
    fails(folder, "no 'en' and 'de'; found 'text'; set --src and --tgt")
    (folder / "test.jsonl").write_text('{"en": "x", "de": "y"}\n')
    fails(folder, "Couldn't infer the same data file format", "; give a folder of .parquet")
    (folder / "train.txt").unlink()
    (folder / "train.jsonl").write_text('{"en": "x"\n')
    fails(folder, "JSON parse error", "; give a folder of .parquet")


def test_one_file_is_not_both_sides(tmp_path):
    (tmp_path / "a.en").write_text("a\n")
    (tmp_path / "a.de").symlink_to("a.en")
    fails(f"{tmp_path}/a.en,{tmp_path}/a.de", "the same file twice")


def test_files_named_by_the_language_are_found_by_its_code(tmp_path):
    (tmp_path / "p.English").write_text("a\n")
    (tmp_path / "p.de").write_text("b\n")
    form, files = resolve(str(tmp_path / "p"), "en", "de")
    assert (form, [file.name for file in files]) == ("prefix", ["p.English", "p.de"])
    (tmp_path / "p.en").write_text("c\n")
    assert resolve(str(tmp_path / "p"), "en", "de")[1][0].name == "p.en"


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_folder_of_one_file_per_language_names_the_prefix(tmp_path, ending):
    for name in ("Books.en-es.en", "Books.en-es.es"):
        (tmp_path / f"{name}{ending}").write_bytes(b"")
    (tmp_path / "README").write_text("")
    prefix = tmp_path / "Books.en-es"
    message = rf"one file per language \(Books.en-es.en and Books.en-es.es\); give {re.escape(str(prefix))}$"
    for languages in (("en", "es"), ("es", "en"), ("xx", "yy")):
        with pytest.raises(DataError, match=message):
            resolve(str(tmp_path), *languages)
    with pytest.raises(DataError, match=message):
        guess_languages([str(tmp_path)], None, None)
    (tmp_path / "pairs.jsonl").write_text("{}")
    assert resolve(str(tmp_path), "en", "es") == ("dataset", [tmp_path])


def test_an_unreachable_hub_is_reported_in_one_line(cache, monkeypatch):
    fails("nobody-here/nothing:de-en", "no nobody-here/nothing.en here, and from the Hub: Couldn't reach", "connection")
    import datasets

    def refuse(*_args, **_options):
        raise datasets.exceptions.DatasetNotFoundError("Dataset 'x/y' doesn't\nexist on the Hub")

    monkeypatch.setattr(datasets, "load_dataset_builder", refuse)
    fails("nobody-here/nothing", "doesn't exist on the Hub; check the name; one that is private or gated")
    assert source_files("nobody-here/nothing:de-en", "en", "de") == []


@pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the shared data sets in {DATA}")
def test_real_data():
    counts = Counts()
    pairs = read(DATA / "tatoeba" / "en-es.tsv.gz", counts=counts)
    assert len(pairs) == counts.read == counts.used == 118_964
    held = choose_held_out(pairs, None, None, seed=1)
    assert (held.n_pairs, held.n_valid, held.n_test) == (118_964, 1000, 1000)
    sides: dict[str, set[str]] = {"train": set(), "valid": set(), "test": set()}
    for src, _ in pairs:
        sides[held.split_of(src)].add(src.casefold())
    assert not sides["train"] & (sides["valid"] | sides["test"])
    assert not sides["valid"] & sides["test"]
    assert len(read(DATA / "multi30k" / "train")) == 29_000


# lines


@here
@example([*NASTY])
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\0"), max_size=20), min_size=1))
def test_reading_returns_the_written_lines(texts):
    if texts[0].startswith("\ufeff"):
        texts[0] = "x" + texts[0]
    # Without a \r at the end, lines with either ending are the same; the last may lack it.
    texts = [text.rstrip("\r") for text in texts]
    for end in ("\n", "\r\n"):
        raw = "".join(text + end for text in texts).encode()
        assert list(read_lines(io.BytesIO(raw))) == texts
        if texts[-1]:
            assert list(read_lines(io.BytesIO(raw[: -len(end)]))) == texts


def test_a_carriage_return_is_removed_only_before_a_newline():
    assert list(read_lines(io.BytesIO(b"a\r\r\nb\rc\nd\r"))) == ["a\r", "b\rc", "d\r"]


def test_a_stream_stays_open_and_its_name_is_in_messages(tmp_path):
    stream = io.BytesIO(b"ok\nbad \xff\n")
    with pytest.raises(DataError, match=r"^stdin:2: byte 5 is not UTF-8.*--replace"):
        list(read_lines(stream, name="stdin"))
    assert not stream.closed
    with pytest.raises(DataError, match=r"missing\.txt: cannot read it \(No such file"):
        list(read_lines(tmp_path / "missing.txt"))
    with pytest.raises(DataError, match="Is a directory"):
        list(read_lines(tmp_path))


def test_replaced_bytes_are_counted():
    counts = Counts()
    raw = b"ok\n" + "was \ufffd".encode() + b"\xff\xfe x \xe2\x82\n"
    assert list(read_lines(io.BytesIO(raw), replace=True, counts=counts)) == ["ok", "was \ufffd\ufffd\ufffd x \ufffd"]
    assert counts.replaced == 3


@pytest.mark.parametrize("pack", [False, True])
def test_byte_order_mark_is_dropped_once_with_a_notice(tmp_path, pack):
    raw = b"\xef\xbb\xbfa\tb\n\xef\xbb\xbfc\td\n"
    path = tmp_path / ("p.tsv.gz" if pack else "p.tsv")
    path.write_bytes(gzip.compress(raw) if pack else raw)
    counts = Counts()
    assert read(path, counts=counts) == [("a", "b"), ("\ufeffc", "d")]
    assert len(counts.notices) == 1
    assert "byte-order mark" in counts.notices[0]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"a\tb\nc\td \xe9t\xe9\n", [":2: byte 5 ", "UTF-8", "--replace"]),
        (b"a\tb\nc\td\0\n", [":2: byte 4 is NUL"]),
        ("a\tb\n".encode("utf-16"), ["UTF-16", "iconv"]),
        ("a\tb\n".encode("utf-16-le"), ["UTF-16", "iconv"]),
        ("a\tb\n".encode("utf-32"), ["is UTF-32", "iconv -f UTF-32"]),
        (b"\0\0\xfe\xff" + "a\tb\n".encode("utf-32-be"), ["is UTF-32", "iconv -f UTF-32"]),
        ("a\tb\n".encode("utf-32-le"), ["UTF-32"]),
        (bz2.compress(b"a\tb\n"), ["decompress it (bunzip2)"]),
        (lzma.compress(b"a\tb\n"), ["decompress it (unxz)"]),
        (b"\x28\xb5\x2f\xfd\x04\x00", ["decompress it (unzstd)"]),
        (b"PK\x03\x04\x14\x00", ["decompress it (unzip)"]),
        ("a\tb\n".encode("utf-16-be"), ["UTF-16", "iconv"]),
        (gzip.compress(b"a\tb\n"), ["gzip", "p.tsv.gz"]),
        (b"a\tb\nno tab\n", [":2: one column", "tab"]),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value[0],
)
def test_errors_about_invalid_text_give_the_place(tmp_path, raw, words):
    (tmp_path / "p.tsv").write_bytes(raw)
    fails(tmp_path / "p.tsv", str(tmp_path / "p.tsv"), *words)


def test_damaged_gzip(tmp_path):
    packed = gzip.compress(random.Random(1).randbytes(5000).hex().encode() + b"\ta\n")
    flipped = bytes([*packed[:-6], packed[-6] ^ 1, *packed[-5:]])  # the checksum
    for raw in (packed[:-9], packed[: len(packed) // 2], flipped, b"a\tb\n", b""):
        (tmp_path / "p.tsv.gz").write_bytes(raw)
        fails(tmp_path / "p.tsv.gz", "p.tsv.gz: damaged gzip data")


# pairs


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 2), (2, 0), (4, 5)])
def test_errors_about_unequal_files_give_both_counts(tmp_path, left, right):
    (tmp_path / "t.en").write_bytes(b"x\n" * left)
    (tmp_path / "t.de").write_bytes(b"y\n" * right)
    fails(tmp_path / "t", f"t.en has {left} lines", f"t.de has {right}")


def test_skipping_empty_sides_keeps_the_other_pairs_aligned(tmp_path):
    (tmp_path / "t.en").write_text("1\n\n3\n \n5\n\n")
    (tmp_path / "t.de").write_text("eins\nzwei\n\n\nfünf\n\u00a0\n")
    counts = Counts()
    assert read(tmp_path / "t", counts=counts) == [("1", "eins"), ("5", "fünf")]
    assert counts == Counts(read=6, used=2, skipped={"one side empty": 2, "both sides empty": 2})


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"], ids=["nothing", "a byte order mark"])
def test_empty_files_give_no_pairs(tmp_path, content):
    for name in ("t.en", "t.de", "t.tsv", "t.csv", "t.jsonl"):
        (tmp_path / name).write_bytes(content)
        assert list(read_lines(tmp_path / name)) == []
    for name in ("t", "t.tsv", "t.csv", "t.jsonl"):
        counts = Counts()
        assert read(tmp_path / name, counts=counts) == []
        assert counts.read == 0
    assert list(read_lines(io.BytesIO(content + b"\n"))) == [""]


def test_further_columns_and_blank_lines_of_a_tsv(tmp_path):
    (tmp_path / "p.tsv").write_text('a\tb\tCC-BY\tx\n\n"c\t"d"\n')
    counts = Counts()
    assert read(tmp_path / "p.tsv", counts=counts) == [("a", "b"), ('"c', '"d"')]
    assert counts.skipped == {"both sides empty": 1}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"en": "a"}', ["no 'de'", "found 'en'", "--tgt"]),
        ('{"translation": {"en": "a", "fr": "b"}}', ["no 'de'", "found 'en', 'fr'"]),
        ('{"en": "a", "de": 5}', ["'de' is int"]),
        ('{"en": null, "de": "b"}', ["'en' is NoneType"]),
        ('{"en": "a", "de": ["b"]}', ["'de' is list"]),
        ('{"en": "a", "de": "b"', ["not JSON"]),
        ("[" * 100_000, ["2: "]),
        ('["a", "b"]', ["not an object"]),
        (r'{"en": "a", "de": "\ud800"}', ["'de'", "surrogate"]),
        (r'{"en": "a\u0000", "de": "b"}', ["'en'", "NUL"]),
    ],
)
def test_json_that_is_not_a_pair(tmp_path, line, words):
    (tmp_path / "p.jsonl").write_text('{"en": "a", "de": "b"}\n' + line + "\n")
    fails(tmp_path / "p.jsonl", "p.jsonl:2: ", *words)


def test_a_line_break_inside_a_field_is_a_space(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"en": "a\nb", "de": "c\r\nd\re"}, {"en": "x", "de": "y"}]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    for name in ("p.jsonl", "p.parquet"):
        counts = Counts()
        assert read(tmp_path / name, counts=counts) == [("a b", "c d\re"), ("x", "y")]
        assert counts.notices == [f"{tmp_path / name}: 1 pair holds a line break; read as a space"]


KEYS = [("source", "target"), ("src", "tgt"), ("Source", "TARGET")]


@pytest.mark.parametrize(("first", "second"), KEYS)
def test_keys_that_name_the_sides(tmp_path, first, second):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"id": 1, second: "a", first: "b"}, {"id": 2, second: "c", first: "d"}]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "n.jsonl").write_text("".join(json.dumps({"translation": row}) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "train.jsonl").write_bytes((tmp_path / "p.jsonl").read_bytes())
    for name in ("p.jsonl", "n.jsonl", "p.parquet", "folder"):
        counts = Counts()
        pairs = list(read_pairs(str(tmp_path / name), "de", "en", counts=counts))
        assert pairs == [("b", "a"), ("d", "c")], name
        assert counts.notices == [f"{tmp_path / name}: read {first!r} as de and {second!r} as en"]
        swapped = list(read_pairs(str(tmp_path / name), "de", "en", swap=True))
        assert swapped == [("a", "b"), ("c", "d")], name


def test_languages_have_precedence_over_the_names_of_the_sides(tmp_path):
    row = {"source": "Tatoeba", "target": "x", "en": "a", "de": "b"}
    (tmp_path / "p.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row | {"en": None}) + "\n")
    fails(tmp_path / "p.jsonl", "p.jsonl:2: 'en' is NoneType")
    assert next(read_pairs(str(tmp_path / "p.jsonl"), "en", "de")) == ("a", "b")
    (tmp_path / "p.jsonl").write_text(json.dumps(row) + '\n{"source": "Tatoeba", "target": "x", "de": "b"}\n')
    fails(tmp_path / "p.jsonl", "p.jsonl:2: no 'en'; found 'source', 'target', 'de'")
    for other in ('{"source": "a", "fr": "b"}', '{"source": "Tatoeba", "de": "b"}'):
        (tmp_path / "p.jsonl").write_text(other + "\n")
        fails(tmp_path / "p.jsonl", "p.jsonl:1: no 'en'")


def test_parquet_that_is_not_pairs(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "p.parquet"
    path.write_bytes(b"PAR1 no more")
    fails(path, "not readable as Parquet")
    pq.write_table(pa.table({"en": ["a"], "fr": ["b"]}), path)
    fails(path, "no 'de'", "'en', 'fr'")
    pq.write_table(pa.table({"en": ["a", "b"], "de": ["c", None]}), path)
    fails(path, "row 2: 'de' is NoneType")
    text = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())
    pq.write_table(pa.table({"en": text, "de": ["c", "d"]}), path)
    fails(path, "utf-8")


# tables


def table(tmp_path, content: bytes | str, name="p.csv", src="en", tgt="es", **options):
    """Return the pairs of a table of English and Spanish, and the notices."""
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    counts = Counts()
    found = list(read_pairs(str(tmp_path / name), src, tgt, counts=counts, **options))
    assert counts.read == counts.used + sum(counts.skipped.values())
    return found, counts.notices


@pytest.mark.parametrize(
    "content",
    [
        "a b,c d\ne,f\n",
        "a b;c d\ne;f\n",
        "a b\tc d\ne\tf\n",
        "en,es\na b,c d\ne,f",
        "es;en;note\nc d;a b;x, y, z\nf;e;\n",
        "id,source,target\r\n1,a b,c d\r\n2,e,f\r\n",
        "Spanish,English\nc d,a b\nf,e\n",
        "Español;Inglés\nc d;a b\nf;e\n",
        "spa_Latn,eng_Latn,comment\nc d,a b,1\nf,e,2\n",
        "\ufeffEnglish,Translation\na b,c d\ne,f\n",
        '"a b","c d"\n"e","f"\n',
        "a b,c d,CC-BY\ne,f,CC-BY\n",
    ],
)
@pytest.mark.parametrize("gzipped", [False, True])
def test_common_forms_of_csv(tmp_path, content, gzipped):
    if gzipped:
        found, _ = table(tmp_path, gzip.compress(content.encode()), name="p.csv.gz")
    else:
        found, _ = table(tmp_path, content)
    assert found == [("a b", "c d"), ("e", "f")]


@pytest.mark.parametrize("line", ["sep=;", "SEP=;"])
def test_the_line_with_which_a_spreadsheet_names_the_separator_is_no_pair(tmp_path, line):
    path = tmp_path / "p.csv"
    path.write_bytes(f"{line}\r\nen;de\r\na;b\r\n".encode())
    assert read(path) == [("a", "b")]
    guess = guess_languages([str(path)], None, None)
    assert (guess.src, guess.tgt) == ("en", "de")
    path.write_bytes(f"{line}\r\na;b\r\n".encode())
    assert read(path) == [("a", "b")]


def test_csv_quotes_line_breaks_and_separators(tmp_path):
    content = '"He said ""hi"", twice","Dijo «hola»; dos veces"\n"two\nlines","dos\r\nlíneas"\nsay "x" now,di x\n,\n\n'
    found, notices = table(tmp_path, content)
    assert found == [
        ('He said "hi", twice', "Dijo «hola»; dos veces"),
        ("two lines", "dos líneas"),
        ('say "x" now', "di x"),
    ]
    assert notices == [
        f"{tmp_path}/p.csv: 2 columns, separated by commas",
        f"{tmp_path}/p.csv: 1 pair holds a line break; read as a space",
    ]


def test_blank_lines_at_the_start_of_a_csv_are_counted(tmp_path):
    (tmp_path / "p.csv").write_text("\n\nen,es\na,b\n\n")
    counts = Counts()
    assert list(read_pairs(str(tmp_path / "p.csv"), "en", "es", counts=counts)) == [("a", "b")]
    assert counts.skipped == {"both sides empty": 3}


def test_the_separator_gives_rows_of_equal_width(tmp_path):
    assert table(tmp_path, "Yes, I do;Sí, claro\nNo;No\n")[0] == [("Yes, I do", "Sí, claro"), ("No", "No")]
    assert table(tmp_path, "Yes; I do,Sí; claro\n")[0] == [("Yes; I do", "Sí; claro")]
    assert table(tmp_path, "English;Spanish\na, b, c;d, e, f\n")[0] == [("a, b, c", "d, e, f")]
    fails_with(tmp_path, "x;y,z\n" * 200 + "x;y,z,w\n", "p.csv:201: 3 columns, and line 1 has 2")


def fails_with(tmp_path, content: bytes | str, *words: str, name="p.csv"):
    """Check that reading the table is refused with these words."""
    with pytest.raises(DataError) as caught:
        table(tmp_path, content, name=name)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b\nc,d,e\n", ["p.csv:2: 3 columns, and line 1 has 2", "quotation marks"]),
        ("a,b\n\nc\n", ["p.csv:3: 1 column,"]),
        ("a\nb\n", ["p.csv:1: one column", "comma"]),
        ('a,b\n"c,d\ne,f\n', ["p.csv:2: a quotation mark opens in this row and is never closed", "line 3"]),
        ('a,b\n"c" d,e\n', ["p.csv:2: not CSV", "double a quotation mark"]),
        ("a,b\rc,d\r", ["p.csv:1: a carriage return outside of quotation marks"]),
        ("English,German\na,b\n", ["line 1 names the languages English, German, not en and es", "--tgt"]),
        (b"a,b\nc,d\xff\n", ["p.csv:2: byte 4 is not UTF-8", "--replace"]),
        (b"a,b\nc,\0d\n", ["p.csv:2: byte 3 is NUL"]),
        ("a,b\n".encode("utf-16"), ["UTF-16", "CSV UTF-8"]),
        ('a,b\n"' + ("x" * 999 + "\n") * 17_000, ["p.csv:2: the row is longer than 16 MiB"]),
    ],
    ids=["wide", "narrow", "single", "open", "after", "cr", "languages", "utf-8", "nul", "utf-16", "long"],
)
def test_csv_that_is_not_pairs(tmp_path, content, words):
    fails_with(tmp_path, content, *words)


def test_a_row_of_many_fields_has_the_limit_of_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "LINE_BYTES", 1000)
    fails_with(tmp_path, "a,b\n" + '"x\n",' * 400, "p.csv:2: the row is longer than")
    assert table(tmp_path, "a,b\n" + "c,d\n" * 400)[0][1] == ("c", "d")


def test_a_field_longer_than_the_csv_module_allows(tmp_path):
    assert len(table(tmp_path, "a,b\n" + "x" * 200_000 + ",y\n")[0][1][0]) == 200_000
    assert table(tmp_path, b"a\xff,b\n", replace=True)[0] == [("a\ufffd", "b")]


@pytest.mark.parametrize("name", ["p.tsv", "p.csv"])
def test_a_header_names_the_columns_and_is_not_a_pair(tmp_path, name):
    for header in ("en\tes", "English\tSpanish", "source\ttarget", "Src\tTrg"):
        found, notices = table(tmp_path, f"{header}\na\tb\n", name=name)
        assert found == [("a", "b")]
        assert "line 1 names the columns" in notices[0]
    assert table(tmp_path, "es\ten\nb\ta\n", name=name)[0] == [("a", "b")]
    assert table(tmp_path, "es\ten\nb\ta\n", name=name, swap=True)[0] == [("a", "b")]  # the names decide
    assert table(tmp_path, "source\ttarget\nb\ta\n", name=name, swap=True)[0] == [("a", "b")]
    assert table(tmp_path, "b\ta\n", name=name, swap=True)[0] == [("a", "b")]
    assert table(tmp_path, "no\tno\n", name=name)[0] == [("no", "no")]
    fails_with(tmp_path, "en\tde\na\tb\n", "line 1 names the languages en, de, not en and es", name=name)


QUOTED = '"He said ""yes""."\t"Er sagte ""ja""."\nHe left.\tEr ging.\n"One, two"\tEins, zwei\n'


@pytest.mark.parametrize("name", ["p.txt", "p.tsv"])
def test_a_notice_about_the_quotation_marks_of_a_spreadsheet(tmp_path, name):
    found, notices = table(tmp_path, QUOTED, name=name)
    assert found[0] == ('"He said ""yes""."', '"Er sagte ""ja""."')
    problem = "2 pairs have cells that a spreadsheet seems to have put in quotation marks"
    assert notices == [f"{tmp_path / name}: {problem}; they are read as text: rename the file to .csv to remove them"]
    found, notices = table(tmp_path, QUOTED, name="p.csv")
    assert found[0] == ('He said "yes".', 'Er sagte "ja".')
    assert not [notice for notice in notices if "quotation" in notice]
    _, notices = table(tmp_path, '"a"\t"b"\n\n"c"\t"d"\n', name=name)
    assert "2 pairs have cells" in notices[0]


def test_no_notice_about_direct_speech(tmp_path):
    content = '"Yes."\t"Sí."\nHe left.\tSe fue.\n"Yes," he said, "no."\t"Sí", dijo, "no".\n"\t"\n'
    assert table(tmp_path, content, name="p.tsv")[1] == []


@pytest.mark.parametrize("name", ["p.tsv", "p.csv"])
def test_a_notice_about_a_first_line_that_looks_like_titles(tmp_path, name):
    content = "Segment EN\tSegment ES\nHi\tHola\nThe house is small.\tLa casa es pequeña.\n"
    found, notices = table(tmp_path, content, name=name)
    assert len(found) == 3
    notice = (
        f"{tmp_path / name}: line 1 is read as a pair: Segment EN | Segment ES; "
        "if these are titles, remove the line, or write source and target instead"
    )
    assert notices.count(notice) == 1
    for content in ("Go.\tVe.\nThe house is small.\tLa casa es pequeña.\n", "house\tcasa\ntree\tárbol\n"):
        assert "read as a pair" not in "".join(table(tmp_path, content, name=name)[1])


@pytest.mark.parametrize("header", ["Quelle;Ziel", "Ausgangstext;Zieltext", "Original;Übersetzung", "原文;译文"])
def test_words_for_source_and_target_in_other_languages(tmp_path, header):
    assert table(tmp_path, f"{header}\na\tb;c\n")[0] == [("a\tb", "c")]
    first, second = header.split(";")
    assert table(tmp_path, f"{second};{first}\nb;a\n")[0] == [("a", "b")]


@pytest.mark.parametrize("name", ["p.tsv", "p.jsonl"])
def test_the_codes_src_and_tgt_name_no_languages(tmp_path, name):
    content = "src\ttgt\na\tb\n" if name == "p.tsv" else '{"src": "a", "tgt": "b"}\n'
    for codes in ({"src": "src", "tgt": "tgt"}, {"src": "en", "tgt": "de"}):
        assert table(tmp_path, content, name=name, **codes)[0] == [("a", "b")]
        found, notices = table(tmp_path, content, name=name, swap=True, **codes)
        assert found == [("b", "a")]
        assert notices[0].endswith(f"read 'tgt' as {codes['src']} and 'src' as {codes['tgt']}")


def test_a_header_may_name_any_columns_of_a_tsv(tmp_path):
    content = "id\ten\tes\n1\ta\tb\n2\tc\n"
    fails_with(tmp_path, content, "p.tsv:3: 2 columns, and line 1 names 3", name="p.tsv")
    assert table(tmp_path, content[:15], name="p.tsv")[0] == [("a", "b")]


def test_a_notice_about_columns_chosen_by_position(tmp_path):
    _, notices = table(tmp_path, "id,text,texto\n1,a,b\n")
    assert notices == [
        f"{tmp_path}/p.csv: 3 columns, separated by commas; line 1 (id, text, texto) does not name its languages: "
        "the first two columns are read"
    ]


@pytest.mark.parametrize("name", ["p.txt", "p.TXT", "p.txt.gz"])
def test_a_text_file_with_one_tab_in_each_line_is_a_tsv(tmp_path, name):
    content = b"\nes\ten\nb\ta\n\n"
    found, notices = table(tmp_path, gzip.compress(content) if name.endswith("gz") else content, name=name)
    assert found == [("es", "en"), ("b", "a")]
    found, notices = table(tmp_path, gzip.compress(content[1:]) if name.endswith("gz") else content[1:], name=name)
    assert found == [("a", "b")]
    assert notices == [f"{tmp_path / name}: line 1 names the columns: read 'en' as en and 'es' as es"]


@pytest.mark.parametrize("content", ["", "\n\n", "a\tb\nc\n", "a\n"])
def test_a_text_file_without_one_tab_in_each_line_is_refused(tmp_path, content):
    words = ["not every line has exactly one tab", "rename it to .tsv, .csv or .jsonl", "two files joined by a comma"]
    fails_with(tmp_path, content, *words, name="p.txt")
    content = "a\tb\n" * tables.SAMPLE_LINES + "c\n"
    fails_with(tmp_path, content, f"p.txt:{tables.SAMPLE_LINES + 1}: one column", name="p.txt")


def test_a_text_file_with_three_columns_is_refused_with_the_reason(tmp_path):
    words = ["not every line has exactly one tab (line 2 has 2)", "rename a table of 3 columns to .tsv"]
    fails_with(tmp_path, "a\tb\nc\td\te\n", *words, name="p.txt")


# names


def test_errors_about_missing_files_list_what_was_searched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    fails("data/train", "data/train: no such file or folder, and no data/train.en and data/train.de; give")
    fails("nothing", "nothing.en", "Hub name")
    fails("no/such.tsv", "no/such.tsv: no such file; give")
    fails("a.en,b.de", "a.en and b.de: no such file; give")
    Path("data/train.en").touch()
    fails("data/train", "found data/train.en but no data/train.de or data/train.de.gz", "--tgt")
    Path("pairs.txt").touch()
    fails("pairs.txt", "rename it to .tsv, .csv")
    Path("pairs.xlsx").touch()
    fails("pairs.xlsx", "a spreadsheet; save it there as CSV")
    Path("c.toml").touch()
    fails("c.toml", "a configuration; give it as the argument, without --train")
    Path("data/train.en.bz2").touch()
    fails("data/train.en.bz2", "decompress it (bunzip2)")
    fails("data/train.en", "one side only", "both sides as data/train,")


def test_a_missing_source_is_an_error_at_the_call():
    with pytest.raises(DataError):
        read_pairs("nothing", "en", "de")
    with pytest.raises(DataError):
        source_files("nothing", "en", "de")


@pytest.mark.parametrize("name", ["with space", "a,b", "x:y", "x#y", "a@2", "new\nline", "ünï", "bad\udcff"])
def test_odd_paths(tmp_path, name):
    for language in ("en", "de"):
        (tmp_path / f"{name}.{language}").write_text(f"in {language}\n")
    (tmp_path / f"{name}.tsv").write_text("in en\tin de\n")
    first, second = tmp_path / f"{name}.en", tmp_path / f"{name}.de"
    for spec in (tmp_path / name, tmp_path / f"{name}.tsv", f"{first},{second}"):
        assert read(spec) == [("in en", "in de")]
    assert source_files(str(tmp_path / name), "en", "de") == [first, second]
    assert parse_source(str(tmp_path / name)) == Source(str(tmp_path / name))
    assert parse_source(f"{tmp_path / name}@3") == Source(str(tmp_path / name), 3.0)


@pytest.mark.parametrize("spec", ["closed/pairs.tsv", "closed/pairs.tsv@2", "closed/train", "closed/a,closed/b"])
def test_a_folder_that_may_not_be_read_is_a_data_error(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    with pytest.raises(DataError, match="cannot read it"):
        list(read_pairs(parse_source(spec).path, "en", "de"))


def test_a_notice_about_files_in_the_wrong_order(tmp_path):
    (tmp_path / "a.de").write_text("eins\n")
    (tmp_path / "a.en").write_text("one\n")
    counts = Counts()
    assert read(f"{tmp_path}/a.de,{tmp_path}/a.en", counts=counts) == [("eins", "one")]
    assert "--swap" in counts.notices[0]


def test_weights(tmp_path):
    assert parse_source("data/train") == Source("data/train", 1.0)
    assert parse_source("data/train@2.5") == Source("data/train", 2.5)
    assert parse_source("wmt/wmt14:de-en@3") == Source("wmt/wmt14:de-en", 3.0)
    assert parse_source("me@home/train") == Source("me@home/train")
    for weight in ("0", "-1", "nan", "inf"):
        with pytest.raises(UsageError, match="weight"):
            parse_source(f"data/train@{weight}")
    (tmp_path / "p@2.tsv").touch()
    assert parse_source(f"{tmp_path}/p@2.tsv").weight == 1.0
    assert parse_source(f"{tmp_path}/p@2") == Source(f"{tmp_path}/p@2")


# held-out sets

words = st.sampled_from(["Go", "go", "GO", "go  now", "Go now", "É", "e\u0301", "Straße", "STRASSE", "x", "y", "z"])
corpora = st.lists(st.tuples(st.one_of(words, st.text("abc ", max_size=6)), st.just("t")), max_size=120)


@here
@given(corpora, st.integers(0, 30), st.integers(0, 30), st.integers(-5, 2**70), st.randoms())
def test_held_out_sets_by_source(pairs, valid, test, seed, shuffler):
    held = choose_held_out(iter(pairs), valid, test, seed)
    splits = [held.split_of(src) for src, _ in pairs]
    assert held.n_pairs == len(pairs)
    assert splits.count("valid") == held.n_valid <= min(valid, len(pairs) // 10)
    assert splits.count("test") == held.n_test <= min(test, len(pairs) // 10)
    assert len(pairs) >= 20 or set(splits) <= {"train"}
    by_key: dict[str, set[str]] = {}
    for (src, _), split in zip(pairs, splits, strict=True):
        by_key.setdefault(source_key(src), set()).add(split)
    assert all(len(split) == 1 for split in by_key.values())
    shuffled = pairs[:]
    shuffler.shuffle(shuffled)
    assert choose_held_out(shuffled, valid, test, seed) == held


def test_held_out_sizes_and_seeds():
    pairs = [(f"sentence {i}", "x") for i in range(5000)]
    one, two = (choose_held_out(pairs, None, 50, seed) for seed in (1, 2))
    assert (one.n_valid, one.n_test) == (100, 50)
    assert one.test != two.test
    assert not one.test & one.valid
    assert one.valid == choose_held_out(pairs, None, 80, 1).valid  # one set's size does not move the other
    assert choose_held_out(pairs[:20], None, None, 1).n_valid == 1
    assert choose_held_out(pairs[:1], None, None, 1).split_of("sentence 0") == "train"
    assert choose_held_out([("same", "x")] * 500, None, None, 1).n_test == 0
    rare = choose_held_out([("same", "x")] * 19 + [("rare", "x")], None, None, 1)  # never in two sets
    assert (rare.n_valid, rare.n_test) == (0, 1)
    assert [held_out_size(n) for n in (0, 19, 20, 100, 5000, 10**7)] == [0, 0, 1, 2, 100, 1000]


@here
@given(st.lists(st.integers(0, 60), min_size=20, max_size=300), st.randoms())
def test_held_out_sets_of_a_large_corpus(numbers, shuffler):
    """The sets do not depend on the order of the pairs, even if only some sources are candidates."""
    pairs = [(f"sentence {i}", "x") for i in numbers]
    shuffled = pairs[:]
    shuffler.shuffle(shuffled)
    whole = choose_held_out(pairs, 2, 2, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_out, "CANDIDATES", 12)
        held = choose_held_out(pairs, 2, 2, 1)
        assert held == choose_held_out(shuffled, 2, 2, 1)
    assert held.n_pairs == len(pairs)
    splits = [held.split_of(src) for src, _ in pairs]
    assert (splits.count("valid"), splits.count("test")) == (held.n_valid, held.n_test)
    hashes = sorted({held_out._hash(src, 1) for src, _ in pairs})
    if whole.test <= set(hashes[:12]) and whole.valid <= set(hashes[-12:]):  # all held-out sources were candidates
        assert held == whole


def test_source_key():
    assert source_key("  Él  está\u00a0AQUÍ ") == source_key(unicodedata.normalize("NFD", "él está aquí"))
    assert source_key("a b") != source_key("ab")


def test_importing_the_reader_loads_neither_torch_nor_datasets():
    script = (
        "import sys, mtcli.corpus.readers.pairs; sys.exit(bool({'torch', 'datasets', 'pyarrow'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
