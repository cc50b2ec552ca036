"""`text.placeholders`: tokens that stand for protected text, in training pairs and in the vocabulary."""

from pathlib import Path

import pytest
from conftest import write_tsv
from hypothesis import given
from hypothesis import strategies as st

from mtcli.config.build import build
from mtcli.corpus.cache.parent import Parent
from mtcli.corpus.cache.prepare import prepare
from mtcli.errors import UsageError
from mtcli.text.placeholders import TOKENS, with_tokens
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG, KINDS, Tokenizer

NAMES = ["x", "name", "count", "user", "place", "item", "a", "b", "c", "d"]
PAIRS = [
    (f"the {animal} sees {{{name}}} and %{number}$s.", f"el {animal} ve {{{name}}} y %{number}$s.")
    for number, animal in enumerate(["cat", "dog", "cow"])
    for name in NAMES
]
SCRAPS = ["house", "casa", "Madrid", "%s", "{x}", "3 km", "a", ",", "http://a.b/c"]
WORDS = st.lists(st.sampled_from(SCRAPS), max_size=6)


def tokens_of(text: str) -> list[str]:
    return sorted(character for character in text if character in TOKENS)


def test_half_of_the_pairs_with_protected_text_get_tokens() -> None:
    found = [with_tokens(*pair) for pair in PAIRS]
    replaced = [pair for pair in found if tokens_of(pair[0])]
    assert 5 < len(replaced) < 25
    for src, tgt in replaced:
        assert tokens_of(src) == tokens_of(tgt)
        assert len(tokens_of(src)) == 2
        assert "{" not in src + tgt
    assert [with_tokens(*pair) for pair in PAIRS] == found


@given(WORDS.map(" ".join), WORDS.map(" ".join))
def test_both_sides_have_the_same_tokens_once(src: str, tgt: str) -> None:
    new_src, new_tgt = with_tokens(src, tgt)
    assert tokens_of(new_src) == tokens_of(new_tgt)
    assert len(set(tokens_of(new_src))) == len(tokens_of(new_src))


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_vocabulary_has_the_tokens(kind: str, joint: bool) -> None:
    tokenizer = train_tokenizer(PAIRS, kind=kind, joint=joint, placeholders=True)
    assert tokenizer.has_placeholders
    assert Tokenizer.from_json(tokenizer.to_json()).has_placeholders
    line = f"the cat {TOKENS[3]} and {TOKENS[9]}."
    assert tokenizer.decode(tokenizer.encode_tgt([line])) == [line]
    assert not set(tokenizer.encode_src([line])[0]) & set(tokenizer.src_byte_of)
    assert not train_tokenizer(PAIRS, kind=kind, joint=joint).has_placeholders


def test_training_pairs_have_tokens_and_held_out_pairs_have_none(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "t.tsv", PAIRS)
    values = {"data.train": [str(path)], "data.placeholders": True, "data.valid": str(path), "data.test": str(path)}
    data = prepare(build(None, values), tmp_path / "run")
    tgt_ids = [data.train[row][1].tolist() for row in range(len(data.train))]
    assert data.tokenizer.decode(tgt_ids) == [with_tokens(*pair)[1] for pair in PAIRS]
    assert data.valid == PAIRS


def test_a_tag_remains_at_the_start_of_its_source(tmp_path: Path) -> None:
    pairs = [(f"{BACK_TRANSLATION_TAG}a {chr(97 + number % 26) * 3} {number}", f"b{number}") for number in range(200)]
    held_out = str(write_tsv(tmp_path / "few.tsv", PAIRS[:1]))
    values = {"data.placeholders": True, "data.valid": held_out, "data.test": held_out}
    data = prepare(build(None, values | {"data.train": [str(write_tsv(tmp_path / "t.tsv", pairs))]}), tmp_path / "run")
    sources = [data.train[row][0].tolist() for row in range(len(data.train))]
    assert {ids[0] for ids in sources} == {data.tokenizer.back_translation_tag}
    assert any(tokens_of("".join(data.tokenizer.src_tokens(ids))) for ids in sources)


def test_a_tokenizer_whose_placeholders_are_not_learned_causes_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(write_tsv(tmp_path / "t.tsv", PAIRS))
    train_tokenizer(PAIRS, placeholders=True).save(tmp_path / "tokenizer.json")
    values = {"data.train": [path], "tokenizer.file": str(tmp_path / "tokenizer.json")}
    for name, learned in (("with", True), ("without", False)):
        caplog.clear()
        config = build(None, values | {"data.placeholders": learned})
        prepare(config, tmp_path / name)
        assert ("has placeholder tokens" in caplog.text) is not learned


def test_a_model_without_the_tokens_cannot_learn_placeholders(tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "t.tsv", PAIRS)
    values = {"data.train": [str(path)], "data.placeholders": True}
    with pytest.raises(UsageError, match=r"data\.placeholders"):
        prepare(build(None, values), tmp_path / "run", init=Parent(train_tokenizer(PAIRS), "0" * 64, "en", "es"))
