"""Searches against enumeration of all translations, against teacher forcing, and against other batches."""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from helpers.searches import CLOSE, SPECIAL, all_translations, build, draw_sources, ids_of, limits, pad, teacher_forced
from torch import Tensor

from mtcli.errors import NotFiniteError
from mtcli.model.cache import Cache
from mtcli.model.ensemble import Ensemble
from mtcli.model.transformer import Transformer
from mtcli.search.beam import beam_search
from mtcli.search.constraints import Limits
from mtcli.search.greedy import greedy_search, sampler
from mtcli.search.length import length_penalty
from mtcli.search.step import Hypothesis
from mtcli.text.special_tokens import BOS, EOS, PAD


def seeded(n: int, seed: int) -> list[torch.Generator]:
    """One generator for n sentences."""
    return [torch.Generator().manual_seed(seed)] * n


@pytest.mark.parametrize("alpha", [0.0, 0.6])
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_wide_beam_equals_exhaustive_search(seed: int, alpha: float) -> None:
    """With three tokens and length 3 there are 40 translations: a beam of 64 finds and ranks them all."""
    model = build(seed)
    sources = draw_sources(seed, lengths=(3, 1))
    for source, found in zip(
        sources, beam_search(model, pad(sources), limits(2, 3), beam_size=64, alpha=alpha), strict=True
    ):
        expected = all_translations(model, source, 3, alpha)
        assert len(found) == len(expected) == 40
        assert found[0].ids == expected[0].ids
        assert sorted(ids_of(found)) == sorted(ids_of(expected))
        assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=CLOSE)
        log_probs = {tuple(h.ids): h.log_prob for h in expected}
        assert [h.log_prob for h in found] == pytest.approx([log_probs[tuple(h.ids)] for h in found], abs=CLOSE)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_narrow_beam_never_beats_exhaustive_search(alpha: float) -> None:
    worse = 0
    for seed in range(5):
        model = build(seed)
        sources = draw_sources(seed, lengths=(2,))
        expected = {tuple(h.ids): h for h in all_translations(model, sources[0], 4, alpha)}
        best = max(h.score for h in expected.values())
        for W in (1, 2, 3):
            for h in beam_search(model, pad(sources), limits(1, 4), beam_size=W, alpha=alpha)[0]:
                assert h.score == pytest.approx(expected[tuple(h.ids)].score, abs=CLOSE)
                assert h.score <= best + CLOSE
                worse += h.score < best - CLOSE
    assert worse  # otherwise the test shows nothing


def plain_beam(
    model: Transformer, source: Sequence[int], W: int, most: int, alpha: float, early_stopping: bool = True
) -> list[Hypothesis]:
    """Beam search as its docstring describes it, for one sentence, with lists and without a cache."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[Hypothesis] = []
    is_complete = False
    while live and not is_complete:
        grown = []
        for log_prob, ids in live:
            log_p = model(torch.tensor([source]), torch.tensor([[BOS, *ids]])).log_softmax(-1)[0, -1]
            allowed = [EOS] if len(ids) == most else range(2, len(log_p))
            grown += [(log_prob + log_p[token].item(), [*ids, token]) for token in allowed]
        grown.sort(key=lambda h: -h[0])
        for log_prob, ids in grown[:W]:
            if ids[-1] == EOS and (len(finished) < W or not early_stopping):
                finished.append(Hypothesis(ids[:-1], log_prob, ((5 + len(ids)) / 6) ** alpha))
        live = [h for h in grown if h[1][-1] != EOS][:W]
        is_complete = len(finished) >= W
        if is_complete and live and not early_stopping:
            best_score = live[0][0] / ((5 + len(live[0][1])) / 6) ** alpha
            is_complete = sum(h.score >= best_score for h in finished) >= W
    return sorted(finished, key=lambda h: -h.score)


@torch.inference_mode()
@pytest.mark.parametrize("alpha", [0.6, 3.0])
@pytest.mark.parametrize("W", [2, 3])
def test_without_early_stopping_beam_search_equals_a_plain_implementation(W: int, alpha: float) -> None:
    found_more = 0
    found_better = 0
    for seed in range(6):
        model = build(seed, V=9)
        sources = draw_sources(seed, V=9)
        search = partial(beam_search, model, pad(sources), limits(5, 6), beam_size=W, alpha=alpha)
        for source, early, late in zip(sources, search(), search(early_stopping=False), strict=True):
            assert ids_of(late) == ids_of(plain_beam(model, source, W, 6, alpha, early_stopping=False))
            assert late[0].score >= early[0].score - CLOSE
            found_more += len(late) > W
            found_better += late[0].score > early[0].score + CLOSE
    assert found_more
    assert found_better or alpha < 1


@torch.inference_mode()
@pytest.mark.parametrize("W", [2, 3, 5])
def test_beam_search_equals_a_plain_implementation(W: int) -> None:
    """Also if continuations end, whose places in the beam others take."""
    ended_early = 0
    for seed in range(6):
        model = build(seed, V=9)
        sources = draw_sources(seed, V=9)
        for source, found in zip(
            sources, beam_search(model, pad(sources), limits(5, 6), beam_size=W, alpha=0.6), strict=True
        ):
            expected = plain_beam(model, source, W, 6, 0.6)
            assert ids_of(found) == ids_of(expected)
            assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=CLOSE)
            ended_early += any(len(h.ids) < 6 for h in found)
    assert ended_early > 5


@pytest.mark.parametrize("seed", range(5))
def test_beam_of_one_equals_greedy(seed: int) -> None:
    model = build(seed, V=20)
    sources = draw_sources(seed, V=20)
    greedy = greedy_search(model, pad(sources), limits(5, 12))
    for one, beams in zip(greedy, beam_search(model, pad(sources), limits(5, 12), beam_size=1, alpha=0.6), strict=True):
        assert beams[0].ids == one.ids
        assert beams[0].log_prob == pytest.approx(one.log_prob, abs=CLOSE)


def test_greedy_search_takes_the_most_likely_token_every_time() -> None:
    model = build(3, V=20)
    sources = draw_sources(3, V=20)
    for source, found in zip(sources, greedy_search(model, pad(sources), limits(5, 12)), strict=True):
        ids: list[int] = []
        while len(ids) < 12:
            logits = model(torch.tensor([source]), torch.tensor([[BOS, *ids]]))[0, -1]
            logits[list(SPECIAL)] = -torch.inf
            token = int(logits.argmax())
            if token == EOS:
                break
            ids.append(token)
        assert found.ids == ids


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_log_probabilities_and_scores_equal_teacher_forcing(alpha: float) -> None:
    """log P by teacher forcing with `</s>`, the score by the formula; n-best sorted and distinct."""
    model = build(5, V=12)
    sources = draw_sources(5, V=12)
    for source, found in zip(
        sources, beam_search(model, pad(sources), limits(5, 9), beam_size=6, alpha=alpha), strict=True
    ):
        assert len(found) == 6
        for h in found:
            assert h.log_prob == pytest.approx(teacher_forced(model, source, h.ids), abs=CLOSE)
            assert h.score == pytest.approx(h.log_prob / ((5 + len(h.ids) + 1) / 6) ** alpha, rel=1e-6)
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        assert len({tuple(h.ids) for h in found}) == 6
    for source, h in zip(sources, greedy_search(model, pad(sources), limits(5, 9)), strict=True):
        assert h.log_prob == h.score == pytest.approx(teacher_forced(model, source, h.ids), abs=CLOSE)


def test_length_penalty_equals_the_formula() -> None:
    assert length_penalty(1, 0.6) == 1
    assert length_penalty(7, 0.6) == pytest.approx(2**0.6)
    assert length_penalty(19, 1) == 4
    assert length_penalty(19, 0) == 1
    assert length_penalty(19, 1, "power") == 19
    assert length_penalty(9, 0.5, "power") == 3


def test_hypotheses_are_ranked_by_the_chosen_length_penalty() -> None:
    model, sources = build(5, V=12), draw_sources(5, V=12)
    search = partial(beam_search, model, pad(sources), limits(5, 9), beam_size=6, alpha=1.0)
    for wu, power in zip(search(), search(normalization="power"), strict=True):
        assert {tuple(h.ids) for h in wu} == {tuple(h.ids) for h in power}  # the search itself is the same
        for h in power:
            assert h.score == pytest.approx(h.log_prob / (len(h.ids) + 1))
        assert [h.score for h in power] == sorted((h.score for h in power), reverse=True)


@pytest.mark.parametrize("part", [64, 2])
def test_batch_mates_order_and_padding_have_no_influence(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """In float64: the same ids alone, in a batch, in another order, with more padding, and encoded in parts."""
    monkeypatch.setattr("mtcli.model.transformer.ENCODE_ROWS", part)
    model = build(6, V=12)
    sources = draw_sources(6, V=12, lengths=(4, 1, 9, 2, 3, 7))
    most = [len(x) + 3 for x in sources]

    def search(rows: Sequence[int], width: int = 0) -> list[list[Hypothesis]]:
        bounds = Limits([most[row] for row in rows], SPECIAL)
        src = pad([sources[row] for row in rows], width)
        beams = beam_search(model, src, bounds, beam_size=3, alpha=0.6)
        return [[one, *found] for one, found in zip(greedy_search(model, src, bounds), beams, strict=True)]

    alone = [search([row])[0] for row in range(6)]
    for rows, width in ((range(6), 0), ((3, 0, 5, 1, 4, 2), 0), (range(6), 25), ((5, 5, 1), 0)):
        for row, found in zip(rows, search(rows, width), strict=True):
            assert ids_of(found) == ids_of(alone[row])
            assert [h.score for h in found] == pytest.approx([h.score for h in alone[row]], abs=CLOSE)


def test_in_float32_batches_differ_only_in_near_ties() -> None:
    """200 sentences in one batch and in batches of seven: 99.5% are equal, and the others have nearly equal scores."""
    model = build(7, V=30, dtype=torch.float32, d_model=16)
    sources = draw_sources(7, V=30, lengths=[1 + i % 11 for i in range(200)])

    def search(size: int) -> list[Hypothesis]:
        found = []
        for first in range(0, 200, size):
            rows = sources[first : first + size]
            bounds = Limits([len(x) + 5 for x in rows], SPECIAL)
            found += [best[0] for best in beam_search(model, pad(rows), bounds, beam_size=3, alpha=0.6)]
        return found

    differ = [(i, a, b) for i, (a, b) in enumerate(zip(search(200), search(7), strict=True)) if a.ids != b.ids]
    assert len(differ) <= 1
    for i, a, b in differ:
        scores = [teacher_forced(model, sources[i], h.ids) / length_penalty(len(h.ids) + 1, 0.6) for h in (a, b)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4), f"sentence {i}: {a} and {b} are no near-tie"


@torch.inference_mode()
@pytest.mark.parametrize("rows_of_block", [1, 6, 100])
def test_blocks_of_any_size_give_the_same_translations(rows_of_block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one model, and of an ensemble whose models are the same."""
    model = build(5, V=12)
    src = pad(draw_sources(5, V=12))
    bounds = Limits([3, 4, 5, 6, 7], SPECIAL, no_repeat_ngram=2, min_length=2)

    def search(searched: Transformer | Ensemble) -> list[list[Hypothesis]]:
        beams = beam_search(searched, src, bounds, beam_size=3, alpha=0.6)
        return [[one, *found] for one, found in zip(greedy_search(searched, src, bounds), beams, strict=True)]

    expected = search(model)
    monkeypatch.setattr("mtcli.model.transformer.BLOCK_SIZE", rows_of_block * 12)
    blocks = list(model.step(torch.full((5,), BOS), model.start(src)))
    assert len(blocks) == math.ceil(5 / rows_of_block)
    for searched in (model, Ensemble([model, model])):
        for found, whole in zip(search(searched), expected, strict=True):
            assert ids_of(found) == ids_of(whole)
            assert [h.score for h in found] == pytest.approx([h.score for h in whole], abs=CLOSE)


class Rows:
    """Counts the hypotheses in each step of the model."""

    def __init__(self, model: Transformer, monkeypatch: pytest.MonkeyPatch):
        self.seen: list[int] = []
        step = model.step

        def counted(last: Tensor, cache: Any) -> Any:
            self.seen.append(len(last))
            return step(last, cache)

        monkeypatch.setattr(model, "step", counted)


def test_finished_sentences_leave_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(8, V=12)
    sources = draw_sources(8, V=12)
    bounds = Limits([1, 6, 3, 9, 0], SPECIAL)
    rows = Rows(model, monkeypatch)
    lengths = [len(h.ids) for h in greedy_search(model, pad(sources), bounds)]
    assert rows.seen == [sum(n >= t for n in lengths) for t in range(max(lengths) + 1)]
    rows.seen.clear()
    found = beam_search(model, pad(sources), bounds, beam_size=3, alpha=0.6)
    assert rows.seen[0] == 5  # one hypothesis of each sentence
    assert rows.seen[1:] == sorted(rows.seen[1:], reverse=True)
    assert rows.seen[1] <= 3 * 4
    assert rows.seen[-1] < rows.seen[1]
    assert len(rows.seen) == 1 + max(len(h.ids) for beams in found for h in beams)


@pytest.mark.parametrize("early_stopping", [False, True])
def test_finished_sentences_that_stay_in_the_batch_find_no_more_translations(
    early_stopping: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In batches of more than 16 sentences, a few finished ones stay."""
    model = build(0, V=9)
    src = pad(draw_sources(0, V=9))
    bounds = limits(5, 12)

    def search() -> list[list[Hypothesis]]:
        beams = beam_search(model, src, bounds, beam_size=2, alpha=2, early_stopping=early_stopping)
        return [[one, *found] for one, found in zip(greedy_search(model, src, bounds), beams, strict=True)]

    expected = search()
    monkeypatch.setattr("mtcli.search.step.COMPACT_AT", 0)
    for found, alone in zip(search(), expected, strict=True):
        assert ids_of(found) == ids_of(alone)
        assert [h.score for h in found] == pytest.approx([h.score for h in alone], abs=CLOSE)


@pytest.mark.parametrize("W", [1, 2, 5])
def test_maximum_lengths_and_forbidden_tokens(W: int) -> None:
    """At the maximum length a translation ends, with the probability that the model gives to ending."""
    model = build(9, V=12)
    sources = draw_sources(9, V=12)
    model.output.weight.data[EOS] = 0
    bounds = Limits([0, 1, 4, 7, 2], forbidden=(*SPECIAL, 5, 9))
    beams = beam_search(model, pad(sources), bounds, beam_size=W, alpha=0.6)
    greedy = greedy_search(model, pad(sources), bounds)
    assert max(len(h.ids) for found in beams for h in found) == 7  # so the limits have an effect
    for source, most, found, one in zip(sources, bounds.max_length, beams, greedy, strict=True):
        assert found
        for h in [*found, one]:
            assert len(h.ids) <= most
            assert not {PAD, BOS, EOS, 5, 9} & set(h.ids)
            assert h.log_prob == pytest.approx(teacher_forced(model, source, h.ids), abs=CLOSE)


@pytest.mark.parametrize("W", [1, 4])
def test_a_minimum_length_forbids_ending_earlier(W: int) -> None:
    model = build(9, V=12, output_bias=True)
    model.output.bias.data[EOS] = 8
    sources = draw_sources(9, V=12)
    for least in (0, 1, 3):
        bounds = Limits([9, 9, 9, 2, 0], SPECIAL, min_length=least)
        if W == 1:
            found = [[h] for h in greedy_search(model, pad(sources), bounds)]
        else:
            found = beam_search(model, pad(sources), bounds, beam_size=W, alpha=0.6)
        shortest = [min(len(h.ids) for h in hypotheses) for hypotheses in found]
        assert shortest == [least, least, least, min(least, 2), 0]  # the maximum length wins
        for source, hypotheses in zip(sources, found, strict=True):
            for h in hypotheses:
                assert h.log_prob == pytest.approx(teacher_forced(model, source, h.ids), abs=CLOSE)


def test_prefix() -> None:
    """Each sentence has another prefix, and the model continues it."""
    model = build(10, V=12)
    sources = draw_sources(10, V=12)
    prefix = [[4], [], [7, 7, 3], [11, 5], [3]]
    bounds = limits(5, 8, prefix=prefix)
    greedy = greedy_search(model, pad(sources), bounds)
    beams = beam_search(model, pad(sources), bounds, beam_size=3, alpha=0.6)
    for source, start, one, found in zip(sources, prefix, greedy, beams, strict=True):
        assert len({tuple(h.ids) for h in found}) == 3
        for h in [one, *found]:
            assert h.ids[: len(start)] == start
            assert h.log_prob == pytest.approx(teacher_forced(model, source, h.ids), abs=CLOSE)
    free = greedy_search(model, pad(sources), limits(5, 8))
    assert greedy[1].ids == free[1].ids
    again = greedy_search(model, pad(sources), limits(5, 8, prefix=[h.ids for h in free]))
    assert ids_of(again) == ids_of(free)


@pytest.mark.parametrize(("first_step", "rows"), [(0, slice(-1, None)), (2, slice(None))])
@pytest.mark.parametrize("W", [1, 3])
def test_scores_that_are_not_finite_are_an_error(
    first_step: int, rows: slice, W: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of one sentence of several, and those of later steps."""
    model = build(4)
    sources = draw_sources(1)
    step = model.step

    def damaged_step(last: Tensor, cache: Cache) -> Iterator[tuple[slice, Tensor]]:
        for block, log_p in step(last, cache):
            if cache.length > first_step:
                log_p[rows] = torch.nan
            yield block, log_p

    monkeypatch.setattr(model, "step", damaged_step)
    with pytest.raises(NotFiniteError, match="not finite numbers"):
        beam_search(model, pad(sources), limits(5, 6), beam_size=W, alpha=0.6)
    with pytest.raises(NotFiniteError):
        greedy_search(model, pad(sources), limits(5, 6))
    choose = sampler(1.0, 0, seeded(5, 1))
    with pytest.raises(NotFiniteError):
        greedy_search(model, pad(sources), limits(5, 6), choose)


@pytest.mark.parametrize("search", ["greedy", "beam"])
def test_empty_batch(search: str) -> None:
    model = build(1)
    src = torch.empty(0, 3, dtype=torch.long)
    if search == "greedy":
        assert greedy_search(model, src, limits(0, 3)) == []
    else:
        assert beam_search(model, src, limits(0, 3), beam_size=2, alpha=0.6) == []


def test_sampling_with_top_k_1_equals_greedy_search() -> None:
    model = build(11, V=12)
    sources = draw_sources(11, V=12)
    choose = sampler(1.0, 1, seeded(5, 1))
    sampled = greedy_search(model, pad(sources), limits(5, 9), choose)
    assert ids_of(sampled) == ids_of(greedy_search(model, pad(sources), limits(5, 9)))


def test_sampling_depends_on_its_seed_and_returns_log_probabilities() -> None:
    model = build(12, V=12)
    sources = draw_sources(12, V=12)

    def draw(seed: int) -> list[Hypothesis]:
        return greedy_search(model, pad(sources), limits(5, 9), sampler(1.0, 0, seeded(5, seed)))

    assert draw(1) == draw(1)
    assert len({str(ids_of(draw(seed))) for seed in range(5)}) == 5
    for source, h in zip(sources, draw(1), strict=True):
        assert h.log_prob == pytest.approx(teacher_forced(model, source, h.ids), abs=CLOSE)


def test_samples_do_not_depend_on_the_batch() -> None:
    model = build(13, V=12)
    sources = draw_sources(13, V=12)

    def draw(rows: Sequence[int]) -> list[list[int]]:
        choose = sampler(1.0, 5, [torch.Generator().manual_seed(row) for row in rows])
        return ids_of(greedy_search(model, pad([sources[row] for row in rows]), limits(len(rows), 9), choose))

    assert len({len(ids) for ids in draw(range(5))}) > 1
    assert draw([3, 0, 4]) == [draw(range(5))[row] for row in (3, 0, 4)]


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.5, 0), (2.0, 0), (1.0, 3), (1.0, 99)])
def test_sampling_follows_the_distribution(temperature: float, top_k: int) -> None:
    p = torch.tensor([0.4, 0.25, 0.0, 0.2, 0.1, 0.05])
    expected = p ** (1 / temperature)
    if top_k == 3:
        expected[[2, 4, 5]] = 0
    expected /= expected.sum()
    n = 20_000
    drawn = sampler(temperature, top_k, seeded(n, 1))(p.log().expand(n, -1), np.arange(n))
    shares = drawn.bincount(minlength=6) / n
    assert shares[expected == 0].sum() == 0
    # five standard errors, each at most 0.5 / √n
    torch.testing.assert_close(shares, expected, rtol=0, atol=2.5 / math.sqrt(n))


def repeats(ids: Sequence[int], n: int, since: int = 0) -> bool:
    """Return True if an n-gram that ends at or after `since` has occurred before."""
    ngrams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return any(ngram in ngrams[:i] for i, ngram in enumerate(ngrams) if i + n > since)


@pytest.mark.parametrize("n", [1, 2])
def test_no_ngram_is_repeated(n: int) -> None:
    """A wide beam finds all translations without a repeated n-gram, in the order of enumeration."""
    unlike = 0
    for seed in (14, 18):
        model = build(seed)
        sources = draw_sources(seed, lengths=(3, 1))
        kept = limits(2, 5, no_repeat_ngram=n)
        free = beam_search(model, pad(sources), limits(2, 5), beam_size=400, alpha=0.6)
        for source, found, before in zip(
            sources, beam_search(model, pad(sources), kept, beam_size=400, alpha=0.6), free, strict=True
        ):
            expected = [h for h in all_translations(model, source, 5, 0.6) if not repeats(h.ids, n)]
            assert ids_of(found) == ids_of(expected)
            assert [h.log_prob for h in found] == pytest.approx([h.log_prob for h in expected], abs=CLOSE)
            unlike += found[0].ids != before[0].ids
    assert unlike


@pytest.mark.parametrize("n", [1, 2])
def test_greedy_search_and_sampling_do_not_repeat_ngrams(n: int) -> None:
    model = build(5, V=7)
    sources = draw_sources(5, V=7)
    kept = limits(5, 9, no_repeat_ngram=n)
    for source, found in zip(sources, greedy_search(model, pad(sources), kept), strict=True):
        ids: list[int] = []
        while len(ids) < 9:
            logits = model(torch.tensor([source]), torch.tensor([[BOS, *ids]]))[0, -1]
            banned = [*SPECIAL, *(token for token in range(3, 7) if repeats([*ids, token], n))]
            logits[banned] = -torch.inf
            token = int(logits.argmax())
            if token == EOS:
                break
            ids.append(token)
        assert found.ids == ids
    generators = [torch.Generator().manual_seed(i) for i in range(5)]
    drawn = greedy_search(model, pad(sources), kept, sampler(2.0, 0, generators))
    assert not any(repeats(h.ids, n) for h in drawn)
    assert any(repeats(h.ids, n) for h in greedy_search(model, pad(sources), limits(5, 9)))


@pytest.mark.parametrize("W", [1, 3])
def test_a_prefix_may_repeat_ngrams(W: int) -> None:
    model = build(14)
    sources = draw_sources(14, lengths=(3, 1))
    kept = limits(2, 8, no_repeat_ngram=2, prefix=[[3, 3, 3], [4]])
    for prefix, found in zip(
        ([3, 3, 3], [4]), beam_search(model, pad(sources), kept, beam_size=W, alpha=0.6), strict=True
    ):
        for h in found:
            assert h.ids[: len(prefix)] == prefix
            assert math.isfinite(h.log_prob)
            assert not repeats(h.ids, 2, since=len(prefix) + 1)
