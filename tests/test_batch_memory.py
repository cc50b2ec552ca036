"""The batch size of a search on a GPU, its precision, and what happens if its memory is too small, without a GPU."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers.toy import TorchTranslator, toy

from mtcli.cli import entry
from mtcli.config.schema import ModelConfig
from mtcli.errors import StorageError
from mtcli.model import precision
from mtcli.model.precision import decodes_in_bf16
from mtcli.terms.terms import parse_terms
from mtcli.translate import scoring
from mtcli.translate.backends import pytorch
from mtcli.translate.backends.backend import ROW_OVERHEAD
from mtcli.translate.backends.pytorch import PyTorchBackend, SearchMemory
from mtcli.translate.translation import Options
from mtcli.translate.windows import MAX_LINE_TOKENS, Reading

BASE = ModelConfig(d_model=512, d_ff=2048, num_heads=8, num_encoder_layers=6, num_decoder_layers=6)
GIGABYTE = 10**9
LINES = ["red dog sees.", "", "big cat one.", "one one one.", "cat.", "red big dog."]


def test_memory_of_base() -> None:
    """Per token: 6 layers × 2 × 512 numbers. Per hypothesis: four blocks of 37,000 float32 numbers."""
    memory = SearchMemory.of(BASE, 37_000, itemsize=2)
    assert memory.cached_token == 6 * 2 * 512 * 2
    assert memory.logits == 4 * 4 * 37_000
    hypothesis = 4 * 4 * 37_000 + 2 * 30 * 12_288
    assert memory.of_sentence(4, 25, 30) == 4 * hypothesis + 25 * (12_288 + 2 * (2048 + 8 * 512))


def test_keys_and_values_may_have_different_sizes() -> None:
    memory = SearchMemory.of(BASE.model_copy(update={"d_k": 3, "d_v": 5}), 10, itemsize=4)
    assert memory.cached_token == 6 * 8 * (3 + 5) * 4


@pytest.mark.parametrize("beam_size", [1, 4, 50])
@pytest.mark.parametrize("extra", [0, 50])
def test_every_batch_of_the_budget_fits(beam_size: int, extra: int) -> None:
    memory = SearchMemory.of(BASE, 37_000, itemsize=2)
    free = 60 * GIGABYTE
    budget = memory.batch_tokens(free, beam_size, lambda length: length + extra)
    for length in (1, 7, 30, 200, MAX_LINE_TOKENS):
        rows = budget // (length + ROW_OVERHEAD)
        assert rows * memory.of_sentence(beam_size, length, length + extra) <= 0.81 * free
    assert memory.batch_tokens(free // 2, beam_size, lambda length: length + extra) == pytest.approx(
        budget / 2, rel=1e-3
    )


def on_fake_cuda(translator: TorchTranslator, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(translator.backend, "device", torch.device("cuda"))
    monkeypatch.setattr(pytorch, "free_cuda_memory", lambda device: free)


def test_the_budget_follows_the_free_memory_the_beam_and_the_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = TorchTranslator(toy().model, toy().tokenizer, 64)
    on_fake_cuda(translator, monkeypatch, GIGABYTE)
    beam = Options(beam_size=4, max_length=2000, precision="fp32")
    budget = translator.backend.max_batch_tokens(beam)
    assert translator.backend.max_batch_tokens(replace(beam, beam_size=8)) == pytest.approx(budget / 2, rel=0.1)
    assert translator.backend.max_batch_tokens(replace(beam, sample=True)) == pytest.approx(budget * 4, rel=0.1)
    assert translator.backend.max_batch_tokens(replace(beam, precision="bf16")) > 1.5 * budget
    on_fake_cuda(translator, monkeypatch, 2 * GIGABYTE)
    assert translator.backend.max_batch_tokens(beam) == pytest.approx(2 * budget, rel=1e-3)


def limit_rows(translator: TorchTranslator, monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """Let searches of more than `most` rows run out of memory, and return the rows of each search."""
    seen = []
    search = translator.backend.search_ids

    def limited(ids: Sequence[Sequence[int]], *args: Any, **kwargs: Any) -> Any:
        seen.append(len(ids))
        if len(ids) > most:
            raise torch.OutOfMemoryError
        return search(ids, *args, **kwargs)

    monkeypatch.setattr(translator.backend, "search_ids", limited)
    return seen


@pytest.mark.parametrize("options", [Options(max_length=6), Options(sample=True, n_best=2, max_length=6)])
def test_a_batch_too_large_for_the_memory_is_halved(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = TorchTranslator(toy().model, toy().tokenizer, 64)
    expected = list(translator.translate(LINES, options, Reading(warn=False, quiet=True)))
    monkeypatch.setattr(pytorch, "CPU_SHARES", 1)
    seen = limit_rows(translator, monkeypatch, 2)
    found = list(translator.translate(LINES, options, Reading(warn=False, quiet=True)))
    assert [[c.text for c in one.candidates] for one in found] == [[c.text for c in one.candidates] for one in expected]
    assert seen[:5] == [5, 2, 3, 1, 2]
    on_fake_cuda(translator, monkeypatch, GIGABYTE)
    untouched = TorchTranslator(toy().model, toy().tokenizer, 64)
    on_fake_cuda(untouched, monkeypatch, GIGABYTE)
    fp32 = replace(options, precision="fp32")
    assert translator.backend.max_batch_tokens(fp32) < untouched.backend.max_batch_tokens(
        fp32
    )  # later batches are smaller from the beginning


def test_a_batch_too_large_for_the_memory_of_alignments_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = TorchTranslator(toy().model, toy().tokenizer, 64)
    options = Options(max_length=6, alignments=True)
    expected = list(translator.translate(LINES, options, Reading(warn=False, quiet=True)))
    cross_attention = pytorch.cross_attention
    seen: list[int] = []

    def limited(model: Any, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> torch.Tensor:
        seen.append(len(src))
        if len(src) > 2:
            raise torch.OutOfMemoryError
        return cross_attention(model, src, tgt)

    monkeypatch.setattr(pytorch, "cross_attention", limited)
    assert list(translator.translate(LINES, options, Reading(warn=False, quiet=True))) == expected
    assert seen == [5, 2, 3, 1, 2]


def test_a_batch_too_large_for_the_memory_of_scoring_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = TorchTranslator(toy().model, toy().tokenizer, 64)
    ids = translator.tokenizer.encode_tgt([line for line in LINES if line])
    expected = scoring.log_probs_of(translator.backend, ids, ids)
    score_batch = scoring._score_batch
    scored: list[int] = []

    def limited(backend: PyTorchBackend, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> list[float]:
        if len(src) > 2:
            raise torch.OutOfMemoryError
        return score_batch(backend, src, tgt)

    monkeypatch.setattr(scoring, "_score_batch", limited)
    assert scoring.log_probs_of(translator.backend, ids, ids, scored.append) == pytest.approx(expected)
    assert sum(scored) == len(ids)


def test_a_pair_too_long_for_the_memory_of_scoring_is_not_tried_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = TorchTranslator(toy().model, toy().tokenizer, 64)

    def refused(*args: object) -> None:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(scoring, "_score_batch", refused)
    with pytest.raises(torch.OutOfMemoryError):
        scoring.log_probs_of(translator.backend, [[5], [6]], [[5], [6]])


def test_a_line_too_long_for_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = TorchTranslator(toy().model, toy().tokenizer, 64)
    limit_rows(translator, monkeypatch, 0)
    with pytest.raises(StorageError, match=r"too little memory for line \d; give a smaller --beam-size"):
        list(translator.translate(LINES, Options(), Reading(warn=False, quiet=True)))


def test_a_line_whose_terms_need_too_much_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # It was not trained with terms, so it ignores most annotations.
    translator = TorchTranslator(toy().model, toy().tokenizer, 64, terms=True)
    search = translator.backend.search_ids

    def limited(ids: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs["required"]:
            raise torch.OutOfMemoryError
        return search(ids, *args, **kwargs)

    monkeypatch.setattr(translator.backend, "search_ids", limited)
    options = translator.with_terms(Options(), parse_terms(["red\tverde"], "terms"), "auto")
    with pytest.raises(StorageError, match=r"too little memory for line 3;"):
        list(translator.translate(["one cat.", "", "one red dog."], options, Reading(warn=False, quiet=True)))


@pytest.mark.parametrize("command", ["train", "translate", "eval", "explain", "serve", "score"])
def test_the_remedy_for_too_little_memory_fits_the_command(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["mtcli", command, "--device", "cpu"])
    remedy = entry._memory_remedy()
    assert ("--set train.batch_tokens" in remedy) == (command == "train")
    assert ("--beam-size" in remedy) == (command in ("translate", "eval", "explain"))


def test_the_precision_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    for has_bf16 in (True, False):
        monkeypatch.setattr(precision, "has_bf16", lambda device, answer=has_bf16: answer)
        assert decodes_in_bf16("auto", cuda) == has_bf16
        assert not decodes_in_bf16("auto", cpu)
        for device in (cpu, cuda):
            assert decodes_in_bf16("bf16", device)
            assert not decodes_in_bf16("fp32", device)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_search_in_bf16_finds_nearly_the_same(beam_size: int) -> None:
    """The weights are cast once, in a copy. Log-probabilities are float32."""
    translator = TorchTranslator(toy().model, toy().tokenizer, 64)
    options = Options(beam_size=beam_size, max_length=12, precision="bf16")
    found = list(translator.translate(LINES, options, Reading(warn=False, quiet=True)))
    cast = translator.backend._search_model(options)
    assert cast is translator.backend._search_model(options)
    assert {p.dtype for p in cast.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in translator.model.parameters()} == {torch.float32}
    expected = translator.translate(LINES, replace(options, precision="auto"), Reading(warn=False, quiet=True))
    for in_bf16, exact in zip(found, expected, strict=True):
        assert in_bf16.text == exact.text
        assert in_bf16.candidates[0].log_prob == pytest.approx(exact.candidates[0].log_prob, abs=0.3)
        assert in_bf16.candidates[0].log_prob != exact.candidates[0].log_prob or not exact.text
