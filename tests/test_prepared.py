"""The prepared decoder of a search on a CPU against `Transformer.step`, its reference twin."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mtcli.config.schema import ModelConfig
from mtcli.model.cache import ALIGNMENT
from mtcli.model.fast import prepared as module
from mtcli.model.fast.prepared import PreparedTransformer, VocabularyProjection, prepared
from mtcli.model.transformer import Transformer
from mtcli.search.beam import beam_search
from mtcli.search.constraints import Limits
from mtcli.search.greedy import greedy_search
from mtcli.search.step import Hypothesis, encode

V = 50
B = 3
SHAPES: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm": {"norm": "pre"},
    "imported": {"activation": "swish", "positions": "learned", "max_positions": 5, "output_bias": True},
    "head sizes": {"d_k": 3, "d_v": 5},
}


def tiny_model(**settings: Any) -> Transformer:
    torch.manual_seed(1)
    config = ModelConfig(d_model=16, d_ff=24, num_heads=4, num_encoder_layers=2, num_decoder_layers=2, **settings)
    model = Transformer(config, V, V, joint=True).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return model


def decoded(model: Transformer | PreparedTransformer, *, share_rows: bool, L: int) -> Iterator[Tensor]:
    """Yield the logits of a random search of L hypotheses, in which a sentence is removed."""
    generator = torch.Generator().manual_seed(2)
    src = torch.randint(4, V, (B, 7), generator=generator)
    src[1, 4:] = 0
    cache = encode(model, src, share_rows=share_rows)
    yield model.step(torch.full((B,), 1), cache)
    num_sentences = B
    parents = torch.zeros(B, L, dtype=torch.long)
    sentences = None
    for t in range(1, ALIGNMENT + 4):
        cache.select(parents if L > 1 else None, sentences)
        if sentences is not None:
            num_sentences = len(sentences)
        last = torch.randint(V, (num_sentences * L,), generator=generator)
        yield model.step(last, cache)
        parents = torch.randint(L, (num_sentences, L), generator=generator)
        sentences = np.array([2, 0]) if t == 3 else None
        if sentences is not None:
            parents = parents[sentences]


@pytest.mark.parametrize(("share_rows", "L"), [(False, 1), (False, 3), (True, 3)])
@pytest.mark.parametrize("shape", SHAPES)
@torch.inference_mode()
def test_every_step_has_the_logits_of_its_reference(shape: str, share_rows: bool, L: int) -> None:
    model = tiny_model(**SHAPES[shape])
    fast = prepared(model)
    assert isinstance(fast, PreparedTransformer)
    steps = zip(decoded(fast, share_rows=share_rows, L=L), decoded(model, share_rows=share_rows, L=L), strict=True)
    for logits, reference in steps:
        torch.testing.assert_close(logits, reference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("share_rows", "L"), [(False, 1), (False, 3), (True, 3)])
@torch.inference_mode()
def test_unwritten_columns_of_the_cache_have_no_influence(
    share_rows: bool, L: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New memory may hold any numbers, such as NaN."""
    model = tiny_model()
    reference = list(decoded(model, share_rows=share_rows, L=L))

    def spoiled(like: Tensor, shapes: list[tuple[int, ...]]) -> list[Tensor]:
        return [like.new_full(shape, math.nan) for shape in shapes]

    monkeypatch.setattr("mtcli.model.cache.one_block", spoiled)
    for logits, expected in zip(decoded(prepared(model), share_rows=share_rows, L=L), reference, strict=True):
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


def found_by(model: Transformer | PreparedTransformer) -> list[Hypothesis]:
    """Return the hypotheses of a greedy search and of a beam search, both constrained."""
    src = torch.randint(4, V, (5, 7), generator=torch.Generator().manual_seed(3))
    limits = Limits(max_length=[3, 4, 5, 6, 7], forbidden=[0, 1], no_repeat_ngram=2, min_length=2)
    beams = beam_search(model, src, limits, beam_size=3, alpha=0.6)
    return greedy_search(model, src, limits) + [hypothesis for found in beams for hypothesis in found]


@pytest.mark.parametrize("block_rows", [1, 6, 100])
def test_blocks_of_any_size_give_the_translations_of_the_reference(
    block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtcli.search.step.BLOCK_SIZE", block_rows * V)
    model = tiny_model()
    fast = found_by(PreparedTransformer(model))
    reference = found_by(model)
    assert [hypothesis.ids for hypothesis in fast] == [hypothesis.ids for hypothesis in reference]
    log_probs = [hypothesis.log_prob for hypothesis in reference]
    assert [hypothesis.log_prob for hypothesis in fast] == pytest.approx(log_probs, rel=1e-4)


def test_models_without_a_faster_step_are_returned_as_they_are() -> None:
    reference = tiny_model(attention="reference")
    assert prepared(reference) is reference
    double = tiny_model().double()
    assert prepared(double) is double


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 5, 33])
@torch.inference_mode()
def test_vocabulary_projection_has_the_logits_of_linear(bias: bool, rows: int) -> None:
    output = nn.Linear(16, 101, bias=bias)
    x = torch.randn(rows, 16)
    torch.testing.assert_close(VocabularyProjection(output)(x), output(x))


@torch.inference_mode()
def test_vocabulary_projection_does_without_private_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    output = nn.Linear(16, 101)
    x = torch.randn(5, 16)
    monkeypatch.setattr(module, "_operators", lambda: torch.ops.no_such_namespace)
    projection = VocabularyProjection(output)
    assert projection.packed is None
    assert torch.equal(projection(x), output(x))
