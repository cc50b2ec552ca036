"""Test sentences that a model was trained on are found and counted."""

import logging
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from helpers.spm import handmade

from mtcli.corpus.cache.encoded_pairs import EncodedPairs, _schema, encode_pairs
from mtcli.corpus.held_out import read_split
from mtcli.corpus.overlap import count_trained_on, warn_of_training_sources
from mtcli.errors import DataError
from mtcli.evaluation.evaluate import EvaluationRequest, evaluate
from mtcli.text.lines import Counts
from mtcli.text.tokenizer.sentencepiece import MarianVocabulary, SentencePieceSide
from mtcli.text.tokenizer.tokenizer import Tokenizer, marker_id


def opened(run: Path) -> tuple[EncodedPairs, Tokenizer]:
    return EncodedPairs(run / "data" / "train.arrow"), Tokenizer.load(run / "tokenizer.json")


def trained_on(run: Path) -> list[str]:
    pairs, tokenizer = opened(run)
    assert tokenizer.joint
    return tokenizer.decode([pairs[row][0].tolist() for row in range(len(pairs))])


def test_only_training_sources_are_counted(toy_run: Path) -> None:
    texts = trained_on(toy_run)
    held = [src for src, _ in read_split(toy_run, "test")]
    assert count_trained_on(*opened(toy_run), texts) == len(texts)
    assert count_trained_on(*opened(toy_run), held) == 0
    mixed = [*held, texts[3], f" {texts[4]} ", "", texts[3], "tree", texts[5][:-1]]
    assert count_trained_on(*opened(toy_run), mixed) == 3
    assert count_trained_on(*opened(toy_run), ["", "  "]) == 0
    assert count_trained_on(*opened(toy_run), []) == 0


def test_tokens_of_an_imported_tokenizer_are_not_taken_for_the_markers_of_terms(tmp_path: Path) -> None:
    words = [f"w{number}." for number in range(300)]
    model = handmade(" ".join(f"▁{word}" for word in words))
    names = ["</s>", "<unk>", *(f"▁{word}" for word in words), "<pad>"]
    vocabulary = MarianVocabulary.of({name: place for place, name in enumerate(names)}, len(names) - 1, 0)
    tokenizer = Tokenizer(SentencePieceSide(model, vocabulary), SentencePieceSide(model, vocabulary))
    pairs = [(0, (f"{words[0]} {word} {words[1]}", word)) for word in words]
    used = {token for ids in tokenizer.encode_src([src for _, (src, _) in pairs]) for token in ids}
    assert {marker_id("<term>"), marker_id("<translation>"), marker_id("</term>")} <= used
    path = tmp_path / "train.arrow"
    encode_pairs(pairs, tokenizer, path, max_length=9, counts=Counts())
    assert count_trained_on(EncodedPairs(path), tokenizer, [src for _, (src, _) in pairs]) == len(words)


def test_rows_with_the_same_key_are_compared_in_full(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtcli.corpus.overlap._FACTOR", 0)  # every row of a last token has the same key
    texts, held = trained_on(toy_run), [src for src, _ in read_split(toy_run, "test")]
    assert count_trained_on(*opened(toy_run), [*texts[:9], *held]) == 9


def test_a_warning_names_the_model_and_the_share(
    toy_run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts, held = trained_on(toy_run), [src for src, _ in read_split(toy_run, "test")]
    warn_of_training_sources(toy_run, toy_run, held)
    assert caplog.text == ""
    model = toy_run / "checkpoints" / "step-00000020"
    warn_of_training_sources(model, toy_run, [*held, *texts[:2]])
    expected = f"{model}: 2 of {len(held) + 2} test sources are in this model's training data: its score is too high"
    assert expected in caplog.text
    caplog.clear()
    for name in ("model.safetensors", "tokenizer.json"):
        shutil.copyfile(toy_run / name, tmp_path / name)
    warn_of_training_sources(tmp_path, tmp_path, texts)  # an export has no training pairs
    assert caplog.text == ""


def test_only_the_run_of_a_model_is_searched(toy_run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = shutil.copytree(toy_run, tmp_path / "run")
    unrelated = run / "other" / "model"
    unrelated.mkdir(parents=True)
    for name in ("model.safetensors", "tokenizer.json"):
        shutil.copyfile(run / name, unrelated / name)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{text}\t{text}\n" for text in trained_on(run)[:2]))
    checkpoint = sorted((run / "checkpoints").iterdir())[-1]
    for model, is_warned in ((checkpoint, True), (unrelated, False)):
        caplog.clear()
        evaluate(EvaluationRequest((model,), model_is_named=True, pairs=str(pairs), beam_size=1))
        assert (f"{model}: 2 of 2 test sources" in caplog.text) is is_warned


def test_a_reverse_model_that_was_trained_on_the_references_is_reported(
    toy_run: Path, train_toy: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reverse = train_toy(tmp_path / "reverse", "train.max_steps=1", "data.src=xx", "data.tgt=en")
    references = [*trained_on(reverse)[:2], "sun"]
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"red {number}\t{text}\n" for number, text in enumerate(references)))
    evaluate(EvaluationRequest((toy_run,), model_is_named=True, pairs=str(pairs), rerank=reverse, beam_size=2))
    expected = "2 of 3 references are in this model's training data: the score with --rerank is too high"
    assert f"{reverse}: {expected}" in caplog.text


def test_a_model_with_damaged_training_pairs_can_still_be_scored(
    toy_run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.arrow").write_bytes(b"ARROW1")
    shutil.copyfile(toy_run / "tokenizer.json", tmp_path / "tokenizer.json")
    with caplog.at_level(logging.WARNING):
        warn_of_training_sources(tmp_path, tmp_path, ["red tree."])
    assert "cannot tell if" in caplog.text


def test_offsets_outside_the_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.arrow"
    column = pa.array([[1, 2], [3, 4]], _schema().types[0])
    with path.open("wb") as file, pa.ipc.new_file(file, _schema()) as writer:
        writer.write_batch(pa.record_batch([column, column], schema=_schema()))
    assert len(EncodedPairs(path)) == 2
    content = path.read_bytes()
    offsets = struct.pack("<iii", 0, 2, 4)
    assert content.count(offsets) == 2
    path.write_bytes(content.replace(offsets, struct.pack("<iii", 0, 2, 10**8), 1))
    with pytest.raises(DataError, match="not a readable cache"):
        EncodedPairs(path)
