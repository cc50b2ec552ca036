"""Word alignments: which tokens belong to which word, which word attends to which, and how they are printed."""

import json
from pathlib import Path
from unicodedata import normalize

import numpy as np
import pytest
import torch
from helpers.toy import save_toy, toy
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from mtcli import cli
from mtcli.explain.explanation import explain
from mtcli.text.words import character_spans
from mtcli.translate.alignment import align, alignment_layer, link, words_of_tokens
from mtcli.translate.backends.pytorch import cross_attention
from mtcli.translate.translation import Candidate, Options, pharaoh
from mtcli.translate.windows import SourceLine

LINES = ["one red dog.", "", "big big cat sees dog.", "  red\tcat  "]


def options(**changes: object) -> Options:
    return Options(beam_size=3, max_length=14, alignments=True, **changes)


def test_a_word_links_to_the_source_word_its_tokens_attend_to_most() -> None:
    weights = np.array([[0.4, 0.3, 0.3], [0.1, 0.1, 0.8], [0.5, 0.3, 0.2]], dtype=np.float32)
    # Source: token 0 is word 0, tokens 1 and 2 are word 1. Target: tokens 0 and 1 are word 0, token 2 is word 1.
    assert link(weights, [[0], [1], [1]], [[0], [0], [1]]) == ((0, 1), (1, 0))
    assert link(weights, [[0], [1], []], [[], [0], []]) == ((0, 0),)
    assert link(weights[:, :0], [], [[0], [0], [1]]) == ()
    assert link(weights[:0], [[0], [1], [1]], []) == ()


def test_pharaoh() -> None:
    assert pharaoh(((0, 0), (1, 2))) == "0-0 1-2"
    assert pharaoh(()) == ""


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n")))
def test_every_word_has_its_tokens_and_no_other(text: str) -> None:
    tokenizer = toy().tokenizer
    ids = tokenizer.encode_src([text])[0]
    words = words_of_tokens(normalize("NFC", text), tokenizer.src_tokens(ids), ids, tokenizer.src_byte_of)
    assert sorted({word for row in words for word in row}) == list(range(len(text.split())))
    flat = [word for row in words for word in row]
    assert flat == sorted(flat)


@settings(deadline=None)
@given(st.lists(st.integers(3, 300), max_size=12))
def test_words_of_any_target_tokens(ids: list[int]) -> None:
    tokenizer = toy().tokenizer
    ids = [i for i in ids if i < tokenizer.tgt_size and i not in tokenizer.forbidden]
    (text,) = tokenizer.decode([ids])
    words = words_of_tokens(text, tokenizer.tgt_tokens(ids), ids, tokenizer.tgt_byte_of)
    assert sorted({word for row in words for word in row}) == list(range(len(text.split())))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one red dog.", ["one", "red", "dog."]),
        ("你好，世界。", ["你", "好，", "世", "界。"]),
        ("他说：「好」吗？", ["他", "说：", "「好」", "吗？"]),
        ("用Python 3.5写的", ["用", "Python", "3.5", "写", "的"]),
        ("don't state-of-the-art", ["don't", "state-of-the-art"]),
        ("コーヒーを飲みました", ["コー", "ヒー", "を", "飲", "み", "ま", "し", "た"]),
        ("がっこう", ["がっ", "こ", "う"]),
        ("ไปเที่ยวกัน", ["ไป", "เที่", "ย", "ว", "กั", "น"]),
        ("한국어 문장", ["한국어", "문장"]),
    ],
)
def test_characters_of_scripts_without_spaces_are_words(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in character_spans(text)] == words


@settings(deadline=None)
@given(
    st.text(
        st.sampled_from("ab 你好，。「」かがーก็เa\u0301\u3099.(") | st.characters(exclude_categories=["Cs"]),
        max_size=20,
    )
)
def test_character_spans_divide_words_in_any_normal_form(text: str) -> None:
    spans = character_spans(text)
    assert "".join(text[start:end] for start, end in spans) == "".join(text.split())
    assert len(spans) == len(character_spans(normalize("NFC", text)))


def test_characters_are_aligned_with_the_tokens_they_are_in() -> None:
    tokenizer = toy().tokenizer
    (ids,) = tokenizer.encode_src(["你好 one"])  # without Chinese in its vocabulary, each character is three bytes
    words = words_of_tokens("你好 one", tokenizer.src_tokens(ids), ids, tokenizer.src_byte_of, character_spans)
    assert [words.count([word]) for word in (0, 1)] == [3, 3]
    assert max(word for row in words for word in row) == 2


def test_attention_to_the_words_in_another_order_links_them() -> None:
    tokenizer = toy().tokenizer
    (src_ids,) = tokenizer.encode_src(["one red dog."])
    (tgt_ids,) = tokenizer.encode_tgt(["uno perro rojo."])
    src_words = words_of_tokens("one red dog.", tokenizer.src_tokens(src_ids), src_ids, tokenizer.src_byte_of)
    tgt_words = words_of_tokens("uno perro rojo.", tokenizer.tgt_tokens(tgt_ids), tgt_ids, tokenizer.tgt_byte_of)
    attended = {0: 0, 1: 2, 2: 1}
    weights = np.array(
        [[attended[tgt] == src for (src, *_) in src_words] for (tgt, *_) in tgt_words], dtype=np.float32
    )  # (T, S)
    candidate = Candidate("uno perro rojo.", 0.0, 0.0, ids=tuple(tgt_ids))
    found = align(tokenizer, [SourceLine(0, "one red dog.", src_ids)], [[candidate]], lambda *_: [weights])
    assert found[0][0].alignment == ((0, 0), (1, 2), (2, 1))


def test_each_target_word_has_one_link() -> None:
    for found in toy().translate(LINES, options(n_best=3)):
        for candidate in found.candidates:
            assert sorted(t for _, t in candidate.alignment) == list(range(len(candidate.text.split())))
            assert all(s < len(found.source.split()) for s, _ in candidate.alignment)


def test_other_lines_of_the_batch_have_no_influence() -> None:
    together = list(toy().translate(LINES, options(n_best=3)))
    alone = [next(toy().translate([line], options(n_best=3))) for line in LINES]
    assert [[(c.text, c.alignment) for c in t.candidates] for t in together] == [
        [(c.text, c.alignment) for c in t.candidates] for t in alone
    ]


def test_weights_equal_those_of_explain() -> None:
    found = explain(toy().backend, LINES[0], options())
    for layer, expected in enumerate(found.weights("cross")):
        weights = cross_attention(toy().model, [found.src_ids[:-1]], [found.tgt_ids[:-1]], layer=layer)
        torch.testing.assert_close(weights[0], expected.mean(dim=0))
    chosen = cross_attention(toy().model, [found.src_ids[:-1]], [found.tgt_ids[:-1]])
    torch.testing.assert_close(chosen, weights)


def test_the_layer_of_the_alignment() -> None:
    assert [alignment_layer(num_layers) for num_layers in (1, 2, 3, 4, 6)] == [0, 1, 2, 2, 4]


def test_an_empty_translation_has_no_links() -> None:
    translator = toy()
    (ids,) = translator.tokenizer.encode_src(["one"])
    empty = [[Candidate("", 0.0, 0.0)]]
    assert align(translator.tokenizer, [SourceLine(0, "one", ids)], empty, translator.backend.cross_attention) == empty


def test_the_command(tmp_path: Path) -> None:
    call = CliRunner().invoke
    base = [
        "translate",
        "--model",
        str(save_toy(tmp_path)),
        "--device",
        "cpu",
        "--alignments",
        "one red dog.\n\nbig cat.",
    ]
    lines = call(cli.app, base).stdout.split("\n")
    (first,) = toy().translate(["one red dog."], Options(alignments=True))
    links = pharaoh(first.candidates[0].alignment)
    assert lines[0] == f"{first.text}\t{links}"
    assert lines[1] == ""
    assert lines[2].count("\t") == 1
    records = [json.loads(line) for line in call(cli.app, [*base, "--format", "json"]).stdout.splitlines()]
    assert [r["alignment"] for r in records] == [line.partition("\t")[2] for line in lines[:3]]
    best = [json.loads(x) for x in call(cli.app, [*base, "--format", "json", "--n-best", "2"]).stdout.splitlines()]
    assert len(best[0]["alignments"]) == 2
    assert call(cli.app, [*base, "--format", "nbest"]).stdout.splitlines()[0].endswith(f" ||| {links}")
