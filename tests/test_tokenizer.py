"""The tokenizer: nothing lost, nothing unknown, the same every time, and no file makes it crash."""

import json
import os
import pickle
import subprocess
import sys
import unicodedata
from functools import cache
from pathlib import Path

import pytest
from helpers.processes import no_hang
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as HFTokenizer

from mtcli.errors import DataError, ModelError, StorageError, UsageError
from mtcli.text.special_tokens import BOS, EOS, PAD
from mtcli.text.tokenizer import learning as training
from mtcli.text.tokenizer import tokenizer as module
from mtcli.text.tokenizer import vocabulary_file
from mtcli.text.tokenizer.learning import default_vocab_size, train_tokenizer, train_tokenizer_on_lines
from mtcli.text.tokenizer.tokenizer import KINDS, Tokenizer
from mtcli.text.tokenizer.vocabulary_file import RESERVED, call_native

# Full of what could be taken for a special token, in training as in use.
PAIRS = [
    ("the cat sat on the mat. <s> </s> <pad> <0x0A>", "el gato se sentó en la alfombra. <s> <0x0A>"),
    ("the dog ate the cat's hat, 12 times", "el perro se comió el sombrero del gato, 12 veces"),
    ("<0x0A><0x0A><s><s></s><pad> <unk>", "¿dónde está el gato? ▁▁ Ġ"),
    ("日本語の猫", "中文的猫"),
] * 6
ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
NEAR = st.text(st.sampled_from("the cat <s>/0xA▁Ġ \n\t\r\u2028ée\u0301\u200d猫👩अ"), max_size=60)


@pytest.fixture(scope="module", params=KINDS)
def tok(request: pytest.FixtureRequest) -> Tokenizer:
    return train_tokenizer(PAIRS, kind=request.param)


def normal(text: str) -> str:
    return unicodedata.normalize("NFC", text).replace("\n", " ")


@settings(max_examples=150, deadline=None)
@given(st.one_of(ANY, NEAR))
def test_round_trip(tok: Tokenizer, text: str) -> None:
    (ids,) = tok.encode_tgt([text])
    assert all(EOS < i < tok.tgt_size for i in ids)  # nothing unknown, no special token
    assert not set(ids) & set(tok.forbidden)
    assert tok.decode([ids]) == [normal(text)]
    assert tok.encode_src([text]) == [ids]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "   a  b   ",
        "\tindented",
        "▁x ▁▁",
        "Ġ Ċ",
        "<s> </s> <pad> <unk> <0x0A><0x0a>",
        "</s>",
        "<0x0A>",
        "שלום עולם, مرحبا",
        "👩‍👩‍👧‍👦 🏳️‍🌈",
        "नमस्ते",
        "می‌خواهم",
        "\u0301 starts with a mark",
        "a\rb\x0bc\x0cd\x1ce\x85f\u2028g\u2029h",
        "x\0y",
        "\U0010ffff\ufeff\ufffd",
    ],
)
def test_lossless(tok: Tokenizer, text: str) -> None:
    (ids,) = tok.encode_tgt([text])
    assert tok.decode([ids]) == [text]
    assert not set(ids) & {PAD, BOS, EOS, RESERVED.index("<0x0A>")}


def test_normalization(tok: Tokenizer) -> None:
    composed, decomposed = "él está aquí", unicodedata.normalize("NFD", "él está aquí")
    assert tok.encode_src([composed]) == tok.encode_src([decomposed])
    assert tok.decode(tok.encode_tgt(["a\nb\n"])) == ["a b "]


def test_layout_and_forbidden(tok: Tokenizer) -> None:
    assert tok.tgt_tokens(range(4)) == ["<pad>", "<s>", "</s>", "<0x00>"]
    assert tok.src_tokens([258]) == ["<0xFF>"]
    assert tok.forbidden == [PAD, BOS, 3 + 0x0A]
    allowed = [i for i in range(tok.tgt_size) if i not in tok.forbidden]
    assert not any("\n" in text for text in tok.decode([[i] for i in allowed] + [allowed]))


def test_many_lines_are_encoded_in_parts(tok: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [text for pair in PAIRS[:4] for text in pair]
    expected = [tok.encode_src([text])[0] for text in texts]
    for lines in (1, 3, 8):
        monkeypatch.setattr(vocabulary_file, "LINES", lines)
        assert tok.encode_src(texts) == expected


def test_any_ids_are_decoded(tok: Tokenizer) -> None:
    byte = 3
    assert tok.decode([[], [PAD, BOS, EOS], [byte + 0xE3, byte + 0x81], [byte + 0xC3, byte + 0xA9]]) == [
        "",
        "",
        "\ufffd\ufffd",
        "é",
    ]
    assert tok.decode([]) == []
    assert tok.encode_src([]) == []


def test_kinds() -> None:
    bpe, word, char = (train_tokenizer(PAIRS, kind=kind) for kind in KINDS)
    tokens = [t.src_tokens(t.encode_src(["the the catz"])[0]) for t in (bpe, word, char)]
    assert tokens[0][:2] == ["▁the", "▁the"]
    assert tokens[1] == ["▁the", "▁the", "▁", "c", "a", "t", "<0x7A>"]
    assert tokens[2] == [*"▁the▁the▁cat", "<0x7A>"]
    assert [t.kind for t in (bpe, word, char)] == list(KINDS)
    with pytest.raises(UsageError, match="bpe, word, char"):
        train_tokenizer(PAIRS, kind="unigram")


def test_lines_and_pairs_give_the_same_vocabulary() -> None:
    src, tgt = zip(*PAIRS, strict=True)
    expected = train_tokenizer(PAIRS).to_json()
    assert train_tokenizer(iter(PAIRS)).to_json() == expected
    assert train_tokenizer_on_lines([*src, *tgt]).to_json() == expected


def test_same_in_every_process() -> None:
    code = (
        "import sys\n"
        "from mtcli.text.tokenizer.tokenizer import KINDS\n"
        "from mtcli.text.tokenizer.learning import train_tokenizer\n"
        "for k in KINDS: print(train_tokenizer(eval(sys.argv[1]), kind=k, joint=k != 'bpe').to_json())"
    )
    outputs = set()
    for seed, threads in (("1", "1"), ("2", "4"), ("3", "2")):
        env = os.environ | {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": threads, "PYTHONIOENCODING": "utf-8"}
        command = [sys.executable, "-W", "error", "-c", code, ascii(PAIRS)]
        done = subprocess.run(command, env=env, capture_output=True, check=True)
        assert done.stderr == b""
        outputs.add(done.stdout)
    assert len(outputs) == 1


def test_vocabulary_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    least = train_tokenizer(PAIRS, kind="char").src_size
    exact = train_tokenizer(PAIRS, vocab_size=least + 7)
    assert exact.src_size == exact.tgt_size == least + 7
    with pytest.raises(UsageError, match=f"at least {least}"):
        train_tokenizer(PAIRS, vocab_size=least - 1)
    for kind in KINDS:
        most = train_tokenizer(PAIRS, kind=kind).src_size
        with pytest.raises(DataError, match=f"repeats enough for {most};"):
            train_tokenizer(PAIRS, kind=kind, vocab_size=most + 1)
        assert train_tokenizer(PAIRS, kind=kind, vocab_size=most).src_size == most
    with pytest.raises(DataError, match="no text"):
        train_tokenizer([])
    with pytest.raises(DataError, match="target side"):
        train_tokenizer([("a a", "")], joint=False)
    monkeypatch.setattr(training, "MIN_ALPHABET", 8)  # as if the alphabet were as large as Chinese
    small = train_tokenizer(PAIRS, vocab_size=259 + 40)
    assert small.src_size == 259 + 40
    assert sum(len(token) == 1 for token in small.src_tokens(range(259, 299))) == 20
    assert small.decode(small.encode_tgt(["中文的猫"])) == ["中文的猫"]


def test_default_size_follows_the_corpus() -> None:
    sizes = [default_vocab_size(words) for words in (0, 20_000, 700_000, 10**7, 10**8, 10**10)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 512
    assert 2_000 < sizes[1] < 3_000
    assert 8_000 <= sizes[2] <= 10_000
    assert sizes[-1] == 37_000


def test_large_corpus_is_sampled_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MAX_LINES", 10)
    sample = training._Sample()
    for i in range(1000):
        sample.add(f"{i:06}")
    assert sample.lines == [f"{i:06}" for i in range(0, 1000, 128)]
    assert 900 < sample.words() < 1100
    monkeypatch.setattr(training, "MAX_CHARS", 30)
    for _ in range(128):
        sample.add("x" * 10**6)
    assert len(sample.lines) <= 5


def test_separate_vocabularies(tmp_path: Path) -> None:
    tok = train_tokenizer(PAIRS, joint=False)
    assert not tok.joint
    assert tok.src_size != tok.tgt_size
    assert tok.src_tokens(tok.encode_src(["the cat"])[0]) == ["▁the", "▁cat"]
    assert tok.tgt_tokens(tok.encode_tgt(["el gato"])[0]) == ["▁el", "▁gato"]
    assert tok.decode(tok.encode_tgt(["the cat"])) == ["the cat"]
    tok.save(tmp_path / "t.json")
    again = Tokenizer.load(tmp_path / "t.json")
    assert (again.joint, again.kind) == (False, "bpe")
    assert again.to_json() == tok.to_json()
    assert again.encode_tgt(["la alfombra"]) == tok.encode_tgt(["la alfombra"])


def test_saving_and_loading_change_nothing(tok: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "odd name\n☃.json"
    tok.save(path)
    tok.save(path)  # over an older one
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    texts = [side for pair in PAIRS for side in pair] + ["never seen: Ω≈ç√ <s>", ""]
    ids = tok.encode_tgt(texts)
    again = Tokenizer.load(path)
    assert (again.kind, again.joint, again.to_json()) == (tok.kind, True, tok.to_json())
    assert again.encode_tgt(texts) == pickle.loads(pickle.dumps(tok)).encode_src(texts) == ids
    raw = HFTokenizer.from_file(str(path))
    assert [raw.encode(text).ids for text in texts] == ids
    assert raw.decode_batch(ids, skip_special_tokens=False) == tok.decode(ids) == texts
    assert raw.get_vocab_size() == tok.src_size


@cache
def hostile() -> dict[str, str]:
    def edit(*keys: str, value: object) -> str:
        spec = json.loads(good)
        place = spec
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
        return json.dumps(spec)

    good = train_tokenizer(PAIRS).to_json()
    vocab = json.loads(good)["model"]["vocab"]
    slow = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    side = json.loads(good)
    return {
        "empty": "",
        "cut": good[: len(good) // 2],
        "list": "[]",
        "null": "null",
        "object": "{}",
        "number": "1" * 5000,
        "deep": "[" * 100_000,
        "no model": edit("model", value=None),
        "other model": edit("model", value={"type": "Unigram", "vocab": [], "unk_id": 7}),
        "absent merge": edit("model", "merges", value=[["zz", "qq"]]),
        "bad merge": edit("model", "merges", value=[["a"], 3]),
        "old merge": edit("model", "merges", value=["a b"]),
        "huge id": edit("model", "vocab", value=vocab | {"zzz": 2**40}),
        "negative id": edit("model", "vocab", value=vocab | {"zzz": -1}),
        "gap": edit("model", "vocab", value=vocab | {"zzz": len(vocab) + 1}),
        "twice": edit("model", "vocab", value=vocab | {"zzz": 5}),
        "float id": edit("model", "vocab", value=vocab | {"zzz": float(len(vocab))}),
        "text id": edit("model", "vocab", value=vocab | {"zzz": "7"}),
        "surrogate": edit("model", "vocab", value=vocab | {"\ud800": len(vocab)}),
        "empty token": edit("model", "vocab", value=vocab | {"": len(vocab)}),
        "no bytes": edit("model", "vocab", value={"a": 0}),
        "dropout": edit("model", "dropout", value=0.5),
        "added": edit("added_tokens", value=[{"id": 10**9, "content": "x", "special": True}]),
        "slow pattern": edit("pre_tokenizer", value=slow),
        "padding": edit("padding", value={"strategy": {"Fixed": 10**9}}),
        "one side": json.dumps({"format": module.SEPARATE, "src": side}),
        "bad side": json.dumps({"format": module.SEPARATE, "src": side, "tgt": []}),
        "mixed": json.dumps(
            {"format": module.SEPARATE, "src": side, "tgt": json.loads(train_tokenizer(PAIRS, kind="word").to_json())}
        ),
    }


@pytest.mark.parametrize("name", hostile())
def test_files_of_another_form_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(hostile()[name], encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        Tokenizer.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(ModelError, match="No such file"):
        Tokenizer.load(path)
    with pytest.raises(ModelError):
        Tokenizer.load(tmp_path)
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(ModelError, match="not UTF-8"):
        Tokenizer.load(path)
    monkeypatch.setattr(module, "MAX_FILE", 3)
    with pytest.raises(ModelError, match="larger than"):
        Tokenizer.load(path)
    with pytest.raises(StorageError):
        train_tokenizer(PAIRS).save(tmp_path / "absent" / "t.json")


def test_a_panic_is_an_error() -> None:
    class PanicException(BaseException):  # as pyo3's: no Exception
        pass

    def panic() -> None:
        raise PanicException("index out of bounds")

    with pytest.raises(ModelError, match="index out of bounds"):
        call_native(panic)


def test_half_a_surrogate_pair_is_a_data_error(tok: Tokenizer) -> None:
    with pytest.raises(DataError):
        tok.encode_src(["fine", "\ud800"])
    with pytest.raises(DataError):
        train_tokenizer([("fine fine", "bad \udc80")])


def test_one_very_long_line(tok: Tokenizer) -> None:
    for text in ("x" * 500_000, "<!" * 250_000, " " * 500_000, "日" * 500_000, "x" + "\u0301" * 500_000):
        with no_hang():
            assert tok.decode(tok.encode_tgt([text])) == [text]
    train_tokenizer([("y" * 500_000, "a a")] * 3)
