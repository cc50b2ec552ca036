import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import harness
from helpers.ranks import LAUNCHED
from helpers.toy import PAIRS, ExportedTranslator, TorchTranslator, save_run, save_toy, toy, toy_info

from mtcli.cli import main
from mtcli.config.schema import Config, DecodeConfig, ModelConfig, TokenizerConfig
from mtcli.corpus.batching import pad
from mtcli.errors import DataError, ModelError, NotFiniteError, UsageError
from mtcli.exchange.export import TARGETS, compare, default_folder, export, obstacles
from mtcli.search.length import length_penalty
from mtcli.text.special_tokens import BOS, EOS
from mtcli.text.tokenizer.tokenizer import NEWLINE
from mtcli.translate import windows
from mtcli.translate.backends import ctranslate2 as ctranslate2_backend
from mtcli.translate.backends.backend import Backend
from mtcli.translate.backends.ctranslate2 import GIVE_THE_RUN, CTranslate2Backend, placement_of
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.loading import load
from mtcli.translate.translation import Candidate, Options, Translation
from mtcli.translate.translator import ModelTranslator
from mtcli.translate.windows import Reading, SourceLine

ctranslate2 = pytest.importorskip("ctranslate2")

VARIANTS = {"paper": toy, "others": lambda: toy("pre", joint=False, positions="learned")}
LINES = [src for src, _ in PAIRS[::7]] + [f"{a[0]} {b[0]}" for a, b in zip(PAIRS[::9], PAIRS[5::9], strict=False)]
EVERY_THIRD = ["", *LINES[::3], " "]
ODD = ["", "one  red dog", "</s> <s> <pad>", "<0x0A>", "日本 🙂 e\u0301", "dog\u2028cat", "one"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_run(tmp_path_factory.mktemp("export") / "run", toy())


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    out = run.with_name("ct2")
    export(run, "ctranslate2", out)
    return out


def test_obstacles_name_each_setting() -> None:
    def config(joint: bool = True, **model: object) -> Config:
        return Config(model=ModelConfig(**model), tokenizer=TokenizerConfig(joint=joint))

    assert obstacles(config(), "ctranslate2") == obstacles(config(d_k=32), "huggingface") == []
    assert obstacles(config(False, norm="pre", positions="learned", tie_embeddings=False), "ctranslate2") == []
    for target in ("ctranslate2", "huggingface"):
        (found,) = obstacles(config(d_k=16), target)
        assert found.startswith("model.d_k = 16")
    found = obstacles(config(False, norm="pre", positions="learned", tie_embeddings=False, d_v=8), "huggingface")
    names = ["model.d_v", "model.norm", "model.positions", "model.tie_embeddings", "tokenizer.joint"]
    assert [text.partition(" ")[0] for text in found] == names


@pytest.mark.parametrize("variant", VARIANTS)
def test_ctranslate2_translates_like_the_run(variant: str, tmp_path: Path) -> None:
    ours = VARIANTS[variant]()
    found = export(save_run(tmp_path / "run", ours), "ctranslate2", tmp_path / "out")
    assert found is not None
    assert (found.sentences, found.equal, found.beam_size) == (72, 72, 4)
    assert found.max_score_difference < 1e-4
    assert json.loads((tmp_path / "out" / "parity.json").read_text())["equal"] == 72
    engine = ExportedTranslator(tmp_path / "out", "cpu")
    assert engine.backend.default_options == Options()
    for options in (
        Options(n_best=4),
        Options(beam_size=1),
        Options(beam_size=5, length_penalty=0.0),
        Options(beam_size=3, length_penalty=2.0),
        Options(beam_size=3, length_penalty=1.0, length_normalization="power"),
        Options(max_length=3, beam_size=1),
    ):
        for a, b in zip(ours.translate(EVERY_THIRD, options), engine.translate(EVERY_THIRD, options), strict=True):
            assert a.text == b.text, options
            # If several hypotheses end in the last step, the two may keep different ones behind the best.
            assert len(b.candidates) == len(a.candidates)
            assert_equal_scores(b, {c.text: c for c in a.candidates})


@pytest.mark.parametrize("end_bias", [4, 6])
def test_ctranslate2_finds_the_best_translation_by_any_length_penalty(end_bias: int, tmp_path: Path) -> None:
    trained = toy(bias=True)
    model = deepcopy(trained.model)
    with torch.no_grad():  # a model that is unsure where to end: more hypotheses than the beam has end in the last step
        model.output.bias[EOS] += end_bias
        for parameter in model.decoder.parameters():
            parameter.mul_(0.5)
    ours = TorchTranslator(model, trained.tokenizer, trained.longest_src)
    export(save_run(tmp_path / "run", ours), "ctranslate2", tmp_path / "out")
    engine = ExportedTranslator(tmp_path / "out", "cpu")
    compared = 0
    for exponent in (0.0, 0.6, 1.5, 3.0):
        options = Options(length_penalty=exponent, n_best=4)
        for a, b in zip(ours.translate(LINES, options), engine.translate(LINES, options), strict=True):
            lengths = [len(candidate.ids) for candidate in a.candidates]
            if max(lengths) < len(trained.tokenizer.encode_src([a.source])[0]) + options.max_extra:
                assert b.candidates[0].score == pytest.approx(a.candidates[0].score, abs=1e-3), exponent
                compared += 1
    assert compared > 0


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("options", [Options(max_length=2), Options(max_extra=-2)])  # every sentence reaches the limit
def test_ctranslate2_gives_hypotheses_that_end_at_the_maximum_length_their_scores(
    options: Options, variant: str, tmp_path: Path
) -> None:
    ours = VARIANTS[variant]()
    export(save_run(tmp_path / "run", ours), "ctranslate2", tmp_path / "out")
    engine = ExportedTranslator(tmp_path / "out", "cpu")
    # In this step CTranslate2 may lose one of the best, so it may give another translation, whose score is lower.
    every = replace(options, beam_size=40, n_best=40)
    found = zip(
        ours.translate(EVERY_THIRD, options),
        engine.translate(EVERY_THIRD, options),
        ours.translate(EVERY_THIRD, every),
        strict=True,
    )
    for a, b, all_of_them in found:
        assert len(b.candidates) == len(a.candidates)
        if a.candidates:
            assert b.candidates[0].score <= all_of_them.candidates[0].score + 1e-3
        assert {c.text for c in b.candidates} <= {c.text for c in all_of_them.candidates}
        assert_equal_scores(b, {c.text: c for c in all_of_them.candidates})


def assert_equal_scores(found: Translation, candidates: Mapping[str, Candidate]) -> None:
    for candidate in found.candidates:
        if "\ufffd" not in candidate.text:  # the text of several hypotheses, of which a wider beam has more
            same = candidates.get(candidate.text, candidate)
            assert (candidate.score, candidate.log_prob) == pytest.approx((same.score, same.log_prob), abs=1e-3)


@pytest.mark.parametrize(
    "options", [Options(), Options(n_best=3), Options(beam_size=1), Options(max_extra=-2), Options(max_length=2)]
)
def test_ctranslate2_finishes_no_empty_hypothesis_either(options: Options, tmp_path: Path) -> None:
    trained = toy(bias=True)
    model = deepcopy(trained.model)
    with torch.no_grad():
        model.output.bias[EOS] += 20  # nearly all of the probability
    ours = TorchTranslator(model, trained.tokenizer, trained.longest_src)
    export(save_run(tmp_path / "run", ours), "ctranslate2", tmp_path / "out")
    engine = ExportedTranslator(tmp_path / "out", "cpu")
    of_any_length = list(ours.translate(LINES, replace(options, min_length=0), Reading(warn=False)))
    assert any(not found.text for found in of_any_length), "the model would finish empty hypotheses"
    expected = list(ours.translate(LINES, options, Reading(warn=False)))
    for a, b in zip(expected, engine.translate(LINES, options, Reading(warn=False)), strict=True):
        assert a.text == b.text
        assert all(candidate.text for candidate in (*a.candidates, *b.candidates))
        both = {c.text: c for c in a.candidates}
        for candidate in b.candidates:
            same = both.get(candidate.text, candidate)
            assert (candidate.score, candidate.log_prob) == pytest.approx((same.score, same.log_prob), abs=1e-3)


def test_ctranslate2_takes_a_minimum_length_beyond_the_maximum(tmp_path: Path) -> None:
    trained = toy(bias=True)
    model = deepcopy(trained.model)
    with torch.no_grad():
        model.output.bias[EOS] += 20  # every hypothesis ends before its minimum length
    export(
        save_run(tmp_path / "run", TorchTranslator(model, trained.tokenizer, trained.longest_src)),
        "ctranslate2",
        tmp_path / "out",
    )
    options = Options(beam_size=4, min_length=8, max_length=3)
    (found,) = ExportedTranslator(tmp_path / "out", "cpu").translate(["one red dog."], options, Reading(warn=False))
    assert len(found.candidates[0].ids) == 3


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize(("min_length", "max_length"), [(0, None), (8, None), (8, 3)])
def test_ctranslate2_finds_translations_of_a_minimum_length(
    beam_size: int, min_length: int, max_length: int | None, exported: Path
) -> None:
    options = Options(beam_size=beam_size, min_length=min_length, max_length=max_length)
    lines = LINES[::3]
    expected = toy().translate(lines, options, Reading(warn=False))
    for a, b in zip(
        expected, ExportedTranslator(exported, "cpu").translate(lines, options, Reading(warn=False)), strict=True
    ):
        assert len(b.candidates[0].ids) >= min(min_length, max_length or min_length)
        assert math.isfinite(b.candidates[0].score)
        if beam_size == 1 or not min_length:
            # With a beam, CTranslate2 ranks by other probabilities below the minimum length, as its module says.
            assert a.text == b.text
            assert b.candidates[0].score == pytest.approx(a.candidates[0].score, abs=1e-3)


@pytest.mark.parametrize("options", [Options(n_best=4), Options(beam_size=1)])
def test_a_search_without_repetitions_returns_log_probabilities_of_the_model(options: Options, exported: Path) -> None:
    """CTranslate2 removes tokens before the softmax, so its own scores are not those of the model."""
    model = toy().model
    engine = CTranslate2Backend(exported, "cpu")
    lines = ["one one dog.", "cat cat cat.", "big red red.", "dog."]
    sources = [SourceLine(row, line, engine.tokenizer.encode_src([line])[0]) for row, line in enumerate(lines)]
    for source, candidates in zip(sources, engine.search(sources, replace(options, no_repeat_ngram=1)), strict=True):
        for candidate in candidates:
            ids = (*candidate.ids, EOS)
            assert len(ids) == len(set(ids))
            with torch.inference_mode():
                log_p = model(pad([source.ids], after=(EOS,)), pad([candidate.ids], before=(BOS,)))[0].log_softmax(-1)
            assert candidate.log_prob == pytest.approx(log_p[range(len(ids)), ids].sum().item(), abs=1e-3)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_learned_positions_beyond_the_table_are_those_of_the_run(beam_size: int, tmp_path: Path) -> None:
    trained = toy("pre", joint=False, positions="learned")
    model = deepcopy(trained.model)
    torch.nn.init.normal_(model.output.weight, std=0.5, generator=torch.Generator().manual_seed(1))
    ours = TorchTranslator(model, trained.tokenizer, trained.longest_src)  # its translations are long
    export(save_run(tmp_path / "run", ours), "ctranslate2", tmp_path / "out")
    engine = ExportedTranslator(tmp_path / "out", "cpu")
    line = " ".join(src for src, _ in PAIRS[:40])
    assert len(ours.tokenizer.encode_src([line])[0]) > 2 * model.config.max_positions
    options = Options(beam_size=beam_size, max_length=70)
    (a,) = ours.translate([line], options, Reading(warn=False))
    (b,) = engine.translate([line], options, Reading(warn=False))
    assert len(ours.tokenizer.encode_tgt([a.text])[0]) > model.config.max_positions
    assert a.text == b.text
    assert a.candidates[0].score == pytest.approx(b.candidates[0].score, abs=1e-3)


def test_the_first_hypotheses_to_end_are_kept(exported: Path) -> None:
    """If a sentence is searched alone, CTranslate2 returns all that end, and those that reach the maximum length."""
    engine = ExportedTranslator(exported, "cpu")
    vocabulary = engine.tokenizer.tgt_vocabulary

    def hypothesis(ids: Sequence[int], log_prob: float) -> ctranslate2_backend.ScoredTokens:
        return [vocabulary[i] for i in (*ids, EOS)], log_prob

    long, other_long, third_long, longer = (304, 304, 304), (304, 304, 305), (304, 304, 306), (304,) * 4
    found = [
        hypothesis(longer, -0.1), hypothesis(third_long, -9.0), hypothesis(long, -4.0), hypothesis((304,), -10.0),
        hypothesis(other_long, -3.0),
    ]  # fmt: skip
    (kept,) = engine.backend._ranked([found], Options(beam_size=3), best_only=False)
    assert [draft.ids for draft in kept] == [other_long, long, (304,)], "by score: the unlikely one ended first"
    (kept,) = engine.backend._ranked([found], Options(beam_size=2), best_only=False)
    assert [draft.ids for draft in kept] == [other_long, (304,)]


def test_only_hypotheses_that_may_be_among_the_first_to_end_are_scored(exported: Path) -> None:
    engine = CTranslate2Backend(exported, "cpu")
    ended = [(*length * ["a"], engine._end) for length in (1, 2, 2, 2, 3)]
    found = [(list(tokens), -1.0) for tokens in [*ended, ("a", "a")]]  # the last is cut, so its third token is `</s>`
    assert engine._first(found, 1) == found[:1]
    assert engine._first(found, 2) == engine._first(found, 4) == [*found[:4], found[5]]
    assert engine._first(found, 6) == engine._first(found, 9) == found


@pytest.mark.parametrize("limits", [{}, {"max_length": 2}])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_likely_token_that_is_forbidden_does_not_change_log_p(
    beam_size: int, limits: dict[str, int], tmp_path: Path
) -> None:
    trained = toy(bias=True)
    model = deepcopy(trained.model)
    newline = next(token for token, byte in trained.tokenizer.tgt_byte_of.items() if byte == NEWLINE)
    with torch.no_grad():
        model.output.bias[newline] += 100  # nearly all of the probability, everywhere
    export(save_run(tmp_path / "run", TorchTranslator(model, trained.tokenizer, 64)), "ctranslate2", tmp_path / "out")
    engine = CTranslate2Backend(tmp_path / "out", "cpu")
    sources = [SourceLine(row, line, engine.tokenizer.encode_src([line])[0]) for row, line in enumerate(LINES)]
    found = engine.search(sources, Options(beam_size=beam_size, **limits))
    hypotheses = [
        (source, candidate) for source, candidates in zip(sources, found, strict=True) for candidate in candidates
    ]
    assert len(hypotheses) == beam_size * len(LINES)
    src = pad([source.ids for source, _ in hypotheses], after=(EOS,))
    tgt = pad([candidate.ids for _, candidate in hypotheses], before=(BOS,))
    with torch.inference_mode():
        log_probs = model(src, tgt).log_softmax(-1)
    for (_, candidate), log_p in zip(hypotheses, log_probs, strict=True):
        ids = (*candidate.ids, EOS)
        assert candidate.log_prob == pytest.approx(log_p[range(len(ids)), ids].sum().item(), abs=1e-3)
        assert candidate.log_prob < -50 * len(ids), "the forbidden token has nearly all of the probability"


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_best_translation_is_the_same_without_scores_and_with_batches_of_any_size(
    exported: Path, monkeypatch: pytest.MonkeyPatch, beam_size: int
) -> None:
    engine = ExportedTranslator(exported, "cpu")
    texts = [found.text for found in engine.translate(LINES, Options(beam_size=beam_size))]
    for tokens in (1, 100, 100_000):
        monkeypatch.setattr(ctranslate2_backend, "BATCH_TOKENS", tokens)
        found = engine.translate(LINES, Options(beam_size=beam_size, scores=False))
        assert [translation.text for translation in found] == texts


def test_n_best_beyond_the_beam_is_different_texts_after_the_best(exported: Path) -> None:
    engine = ExportedTranslator(exported, "cpu")
    alone = list(engine.translate(LINES[:9], Options()))
    for n_best in (4, 9):
        several = list(engine.translate(LINES[:9], Options(n_best=n_best)))
        assert [one.text for one in several] == [one.text for one in alone]
        assert [len({c.text for c in one.candidates}) for one in several] == 9 * [n_best]


def test_calls_are_short_so_that_they_can_be_interrupted(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call cannot be cancelled, and CTranslate2 waits for its end before the process ends."""
    engine = ExportedTranslator(exported, "cpu")
    together = [found.text for found in engine.translate(LINES, Options())]
    submit = engine.backend._submit
    calls: list[int] = []

    def counted(sources: Sequence[Sequence[str]], *arguments: Any, **more: Any) -> list[Any]:
        calls.append(sum(len(source) + 1 for source in sources))
        return submit(sources, *arguments, **more)

    monkeypatch.setattr(engine.backend, "_submit", counted)
    monkeypatch.setattr(ctranslate2_backend, "BATCH_TOKENS", 10)
    monkeypatch.setattr(ctranslate2_backend, "CALL_TOKENS", 20)
    assert [found.text for found in engine.translate(LINES, Options())] == together
    assert len(calls) > 1
    assert max(calls) <= 20 * engine.backend.native.num_translators


def test_the_next_window_is_searched_before_the_last_one_ends(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ExportedTranslator(exported, "cpu")
    lines = [*LINES[:7], *4 * [""], *LINES[7:]]
    whole = list(engine.translate(lines, Options()))
    drawn: list[str] = []

    def drawn_lines(n: int) -> Iterator[str]:
        for line in lines[:n]:
            drawn.append(line)
            yield line

    monkeypatch.setattr(windows, "WINDOW", 2)
    stream = engine.translate(drawn_lines(len(lines)), Options())
    first = next(stream)
    assert 4 <= len(drawn) <= 8
    again = [first, *stream]
    assert [found.source for found in again] == lines
    assert [found.text for found in again] == [found.text for found in whole]
    scores, expected = ([found.candidates[0].score for found in result] for result in (again, whole))
    assert scores == pytest.approx(expected, abs=1e-5)


def test_greedy_search_without_scores_finds_the_same(exported: Path) -> None:
    engine = ExportedTranslator(exported, "cpu")
    for max_length in (None, 2):  # 2 cuts hypotheses
        greedy = Options(beam_size=1, max_length=max_length)
        expected = list(engine.translate(LINES, greedy))
        found = list(engine.translate(LINES, replace(greedy, scores=False)))
        assert [one.text for one in found] == [one.text for one in expected]
        assert all(math.isnan(one.candidates[0].score) for one in found)
        assert all(math.isfinite(one.candidates[0].score) for one in expected)
    beam = list(engine.translate(LINES, Options(scores=False)))
    assert [one.candidates for one in beam] == [one.candidates for one in engine.translate(LINES, Options())]


def test_the_first_search_has_scores_so_that_weights_that_are_too_large_are_found(
    exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ExportedTranslator(exported, "cpu")
    greedy = Options(beam_size=1, scores=False)
    returned_scores: list[bool] = []

    def not_finite(sources: Sequence[Sequence[str]], max_steps: int, options: Options) -> list[Any]:
        returned_scores.append(options.scores)
        result = SimpleNamespace(hypotheses=[["one", engine.backend._end]], scores=[math.nan])
        return [SimpleNamespace(result=lambda: result) for _ in sources]

    monkeypatch.setattr(engine.backend, "_submit", not_finite)
    for _ in range(2):
        with pytest.raises(NotFiniteError):
            list(engine.translate(["one"], greedy))
    assert returned_scores == [True, True]


def test_windows_before_a_pause_are_translated_at_once(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two windows may follow each other without a pause, and a pause may come at the end of a window."""
    monkeypatch.setattr(windows, "WINDOW", 2)
    drawn: list[str] = []

    def drawn_lines() -> Iterator[str]:
        for line in LINES[:8]:
            drawn.append(line)
            yield line

    stream = ExportedTranslator(exported, "cpu").translate(
        drawn_lines(), Options(), Reading(ready=lambda: len(drawn) not in (1, 5, 7))
    )
    seen = [(next(stream).source, len(drawn)) for _ in range(8)]
    assert seen == list(zip(LINES[:8], [1, 5, 5, 5, 5, 7, 7, 8], strict=True))


def test_lines_before_an_error_of_the_input_are_translated(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW", 2)

    def damaged() -> Iterator[str]:
        yield from LINES[:5]
        raise DataError("damaged")

    stream = ExportedTranslator(exported, "cpu").translate(damaged(), Options())
    assert [next(stream).source for _ in range(4)] == LINES[:4]
    with pytest.raises(DataError, match="damaged"):
        next(stream)


def test_scores_use_the_length_penalty_of_the_paper(exported: Path) -> None:
    engine = ExportedTranslator(exported, "cpu")
    (found,) = engine.translate(["one red dog."], Options(n_best=4))
    for candidate in found.candidates:
        n = len(engine.tokenizer.encode_tgt([candidate.text])[0]) + 1
        assert candidate.score == pytest.approx(candidate.log_prob / length_penalty(n, 0.6), rel=1e-6)
    assert [c.score for c in found.candidates] == sorted((c.score for c in found.candidates), reverse=True)


def test_the_command_that_is_shown_can_be_copied(run: Path, tmp_path: Path) -> None:
    done = harness.run("export", run, "-o", "my model", cwd=tmp_path)
    assert "wrote my model; run it: mtcli translate --model 'my model'\n" in done.err


@pytest.mark.parametrize("model", ["runs/a/checkpoints/step-8", "link", "."])
def test_a_checkpoint_is_exported_beside_its_run(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tmp_path / "runs" / "a" / "checkpoints" / "step-8"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").touch()
    (tmp_path / "link").symlink_to(checkpoint)
    monkeypatch.chdir(checkpoint if model == "." else tmp_path)
    expected = tmp_path / "runs" / "a-step-8-argos"
    assert default_folder(Path(model), "argos").resolve() == expected.resolve()


class Changed(Backend):
    """The toy model with changed translations."""

    def __init__(self, every: int):
        """Change the translation of each line whose number is a multiple of `every`."""
        super().__init__(toy().tokenizer, toy_info())
        self.every = every

    def max_batch_tokens(self, options: Options) -> int:
        return 1000

    def search(self, sources: Sequence[SourceLine], options: Options) -> list[list[Candidate]]:
        found = []
        for source, (best, *others) in zip(sources, toy().backend.search(sources, options), strict=True):
            changed = replace(best, text=f"{best.text} x", score=-9.0)
            found.append([best if source.number % self.every else changed, *others])
        return found


def test_compare_counts_different_translations() -> None:
    lines = ["one", "one red", *LINES[:20]]
    options = Options(max_length=6)
    found = compare(toy(), ModelTranslator(Changed(every=4)), lines, options)
    assert (found.sentences, found.equal) == (22, 16)
    expected = list(toy().translate(lines[::4], options))
    assert [d.source for d in found.differences] == lines[::4]
    assert [(d.ours, d.exported) for d in found.differences] == [(t.text, f"{t.text} x") for t in expected]
    scores = [t.candidates[0].score for t in expected]
    assert [d.our_score for d in found.differences] == pytest.approx(scores, rel=1e-4)  # with other batch mates
    assert {d.exported_score for d in found.differences} == {-9.0}
    assert found.max_score_difference < 1e-4  # that of the equal translations only


@pytest.mark.parametrize("difference", [0.5, -0.5])
def test_compare_measures_scores_above_and_below(difference: float) -> None:
    class Other:
        """Finds the same translations with other scores."""

        def translate(self, lines: Sequence[str], options: Options, *how: Any) -> Iterator[Translation]:
            for found in toy().translate(lines, options, *how):
                (best,) = found.candidates
                yield replace(found, candidates=(replace(best, score=best.score + difference),))

    found = compare(toy(), Other(), LINES[:3], Options(beam_size=1))
    assert found.equal == 3
    assert found.max_score_difference == pytest.approx(0.5)


def test_many_differences_cause_a_warning(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("mtcli.exchange.export.log.warning", lambda text, *values: said.append(text % values))
    monkeypatch.setattr("mtcli.exchange.export.MAX_SENTENCES", 40)
    for every in (40, 20):  # 39 of 40 and 38 of 40 are equal: 95% are enough
        monkeypatch.setattr("mtcli.exchange.export.CTranslate2Backend", lambda *_, every=every: Changed(every))
        export(run, "ctranslate2", tmp_path / "few")
        assert not said
    monkeypatch.setattr("mtcli.exchange.export.CTranslate2Backend", lambda *_: Changed(every=15))
    export(run, "ctranslate2", tmp_path / "many")
    (warning,) = said
    assert warning.startswith("only 37 of 40 translations equal those of the run: ")
    assert str(tmp_path / "many" / "parity.json") in warning


def test_translating_with_an_export_imports_neither_torch_nor_numpy(run: Path, exported: Path, tmp_path: Path) -> None:
    lines = [LINES[0], "", *LINES[1:5]]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    code = f"""
import sys
from mtcli.cli import main
sys.argv = ["mtcli", "translate", "--engine", "ctranslate2", "--model", {str(exported)!r}, "-i", "in.txt",
            "-o", "out.txt", "--format", "nbest", "--n-best", "2"]
try:
    main()
except SystemExit as end:
    assert not end.code
heavy = {{"torch", "numpy", "datasets", "pyarrow", "transformers"}} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    rows = [line.split(" ||| ") for line in (tmp_path / "out.txt").read_text().splitlines()]
    expected = toy().translate(lines, Options(n_best=2, repair=True))
    wanted = [(str(i), candidate.text) for i, line in enumerate(expected) for candidate in line.candidates]
    assert [(row[0], row[1]) for row in rows] == wanted


def test_int8_is_smaller_and_translates(run: Path, exported: Path, tmp_path: Path) -> None:
    found = export(run, "ctranslate2", tmp_path / "int8", "int8")
    assert found is not None
    # How many translations the rounding changes depends on the processor, whose int8 products may saturate: up to a
    # sixth was seen. A model with a faulty weight or scale translates next to nothing like the run.
    assert found.equal > 0.5 * found.sentences
    assert found.max_score_difference > 1e-4  # it is another model
    assert (tmp_path / "int8" / "model.bin").stat().st_size < 0.75 * (exported / "model.bin").stat().st_size
    assert json.loads((tmp_path / "int8" / "mtcli.json").read_text())["quantization"] == "int8"


def test_only_an_earlier_export_is_replaced(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with pytest.raises(UsageError, match="holds no exported model"):
        export(run, "ctranslate2", tmp_path / "mine")
    assert [p.name for p in tmp_path.rglob("*")] == ["mine", "thesis.txt"]
    for quantization in (None, "int16"):
        export(run, "ctranslate2", tmp_path / "out", quantization)
        assert json.loads((tmp_path / "out" / "mtcli.json").read_text())["quantization"] == quantization
    (tmp_path / "out" / "mtcli.json").write_text("damaged")
    export(run, "huggingface", tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"holds notes\.txt"):
        export(run, "ctranslate2", tmp_path / "out")
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine", "out"]


@pytest.mark.parametrize("target", TARGETS)
def test_sentences_too_long_for_the_target_are_not_compared(target: str, tmp_path: Path) -> None:
    if target == "huggingface":
        pytest.importorskip("transformers")
    run = save_run(tmp_path / "run", toy())
    test = run / "data" / "test.jsonl"
    lines = [json.dumps({"translation": {"en": "日" * n, "es": "x"}}) for n in (160, 400)]  # three tokens per character
    test.write_text("\n".join([*test.read_text().splitlines(), *lines]) + "\n")
    found = export(run, target, tmp_path / "out")
    assert found is not None
    assert found.sentences == 73


@pytest.mark.parametrize("target", TARGETS)
def test_a_maximum_length_beyond_the_positions_of_the_target_leaves_the_comparison(target: str, tmp_path: Path) -> None:
    if target == "huggingface":
        pytest.importorskip("transformers")
    run = save_run(tmp_path / "run", toy(), DecodeConfig(max_extra=3000))
    found = export(run, target, tmp_path / "out")
    assert found is not None
    assert found.sentences == found.equal == 72


def test_the_command_prints_the_comparison(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["mtcli", "export", str(run)])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    out, err = capsys.readouterr()
    assert out.startswith("checked on 72 sentences: 72 of 72 translations equal those of the run (beam 4)")
    folder = run.with_name("run-ctranslate2")
    assert f"mtcli translate --model {folder}" in err
    found, options, languages = load([folder], "cpu")
    assert languages == ("en", "es")
    assert isinstance(found.backend, CTranslate2Backend)
    assert next(found.translate(["one red dog."], options)).text == "uno rojo perro."


def test_a_warning_says_that_nothing_was_compared(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "run").mkdir()
    assert export(save_toy(tmp_path / "run"), "ctranslate2", tmp_path / "out") is None
    assert "not compared with the run" in caplog.text
    assert not (tmp_path / "out" / "parity.json").exists()


def test_the_program_of_the_documentation_translates_without_mtcli(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "serving.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert "mtcli" not in re.sub("#.*", "", program)
    (tmp_path / "run").mkdir()
    export(save_toy(tmp_path / "run"), "ctranslate2", tmp_path / "exported")
    engine = ExportedTranslator(tmp_path / "exported", "cpu")
    lines = [src for src, _ in PAIRS[::31]]
    lines.insert(2, "")
    expected = [found.text for found in engine.translate(lines, replace(engine.backend.default_options, beam_size=1))]
    command = [sys.executable, "-c", program.replace("beam_size=4", "beam_size=1"), str(tmp_path / "exported")]
    done = subprocess.run(command, input="".join(f"{line}\n" for line in lines), capture_output=True, text=True)
    assert done.stdout.splitlines() == expected, done.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_ctranslate2_aligns_like_the_run(variant: str, tmp_path: Path) -> None:
    ours = VARIANTS[variant]()
    export(save_run(tmp_path / "run", ours), "ctranslate2", tmp_path / "out")
    engine = ExportedTranslator(tmp_path / "out", "cpu")
    for options in (Options(alignments=True), Options(alignments=True, n_best=3, beam_size=3, max_length=9)):
        expected = list(ours.translate([*LINES[:70], *ODD], options, Reading(warn=False)))
        found = list(engine.translate([*LINES[:70], *ODD], options, Reading(warn=False)))
        pairs = []
        for expected_line, found_line in zip(expected, found, strict=True):
            pairs += zip(expected_line.candidates, found_line.candidates, strict=True)
        same_text = [(a, b) for a, b in pairs if a.text == b.text]
        assert len(same_text) > len(pairs) / 2  # behind the best, the searches may keep different hypotheses
        assert [a.alignment for a, _ in same_text] == [b.alignment for _, b in same_text]
    src = ours.tokenizer.encode_src(["one red dog.", "cat", "big cat sees big dog."])
    tgt = [ours.tokenizer.encode_tgt(["perro."])[0], [], ours.tokenizer.encode_tgt(["uno rojo perro ve."])[0]]
    sources = [SourceLine(row, "", ids) for row, ids in enumerate(src)]
    for row, weights in enumerate(engine.backend.cross_attention(sources, tgt)):
        shape = (len(tgt[row]), len(src[row]))
        of_pytorch = ours.backend.cross_attention([sources[row]], [tgt[row]])[0][: shape[0], : shape[1]]
        np.testing.assert_allclose(weights[: shape[0], : shape[1]], of_pytorch, atol=1e-5)


def test_unsupported_options_are_refused_by_name(run: Path, exported: Path) -> None:
    engine = ExportedTranslator(exported, "cpu")
    for options, name in (
        (Options(sample=True), "--sample"),
        (Options(prefix="uno"), "--prefix"),
        (Options(no_repeat_ngram=3), "--no-repeat-ngram"),
    ):
        for line in ("one", ""):
            with pytest.raises(UsageError, match=f"{name}: .*; {GIVE_THE_RUN}"):
                list(engine.translate([line], options))
    for device in ("mps", "gpu", "cuda:0", "cuda"):
        if device != "cuda" or not ctranslate2.get_cuda_device_count():
            with pytest.raises(UsageError, match=f"--device {device}"):
                load([exported], device)
    with pytest.raises(UsageError, match="choose from auto, torch, ctranslate2"):
        load([exported], "cpu", "marian")
    with pytest.raises(ModelError, match="mtcli export"):
        load([run], "cpu", "ctranslate2")
    with pytest.raises(ModelError, match=GIVE_THE_RUN):
        load([exported], "cpu", "torch")
    assert isinstance(load([run], "cpu").translator.backend, PyTorchBackend)


@pytest.mark.parametrize(
    ("device", "num_gpus", "local_rank", "expected"),
    [
        ("cpu", 4, 2, ("cpu", 0, 3)),
        ("auto", 0, 2, ("cpu", 0, 3)),
        ("auto", 4, 2, ("cuda", 2, 1)),
        ("cuda", 1, 0, ("cuda", 0, 1)),
    ],
)
def test_each_rank_uses_its_own_gpu_with_one_worker(
    monkeypatch: pytest.MonkeyPatch, device: str, num_gpus: int, local_rank: int, expected: tuple[str, int, int]
) -> None:
    supported = {"cpu": {"float32"}, "cuda": {"float32", "float16"}}
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: num_gpus)
    monkeypatch.setattr(ctranslate2, "get_supported_compute_types", lambda device, index: supported[device])
    for name, value in {**LAUNCHED, "WORLD_SIZE": "8", "LOCAL_RANK": str(local_rank)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("mtcli.translate.backends.ctranslate2.usable_cores", lambda: 3)
    found = placement_of(device, "float16")
    assert (found["device"], found["device_index"], found["inter_threads"]) == expected
    assert found["compute_type"] == ("float16" if expected[0] == "cuda" else "default")
    assert placement_of(device, "float32")["compute_type"] == "float32"


def test_a_rank_without_a_gpu_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 2)
    for name, value in {**LAUNCHED, "WORLD_SIZE": "3", "LOCAL_RANK": "2"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="--nproc-per-node 2"):
        placement_of("auto", "float32")


def test_a_very_long_line_is_shortened_like_the_run_does(exported: Path) -> None:
    lines = [" ".join(["one red"] * 3000), "one"]
    found = [
        t.text
        for t in ExportedTranslator(exported, "cpu").translate(
            lines, Options(beam_size=1, max_length=5), Reading(warn=False)
        )
    ]
    assert found == [t.text for t in toy().translate(lines, Options(beam_size=1, max_length=5), Reading(warn=False))]


def test_a_wrong_target_or_quantization_is_refused(run: Path, tmp_path: Path) -> None:
    for target, quantization in (("onnx", None), ("huggingface", "int8"), ("ctranslate2", "int3")):
        with pytest.raises(UsageError, match="choose from"):
            export(run, target, tmp_path / "out", quantization)
    (tmp_path / "run").mkdir()
    other = save_toy(tmp_path / "run", toy("pre"))
    with pytest.raises(UsageError, match=r"model\.norm = pre: the Marian architecture is post-norm"):
        export(other, "huggingface", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("file", ["mtcli.json", "tokenizer.json", "model.bin", "shared_vocabulary.json"])
def test_a_damaged_export_is_named(exported: Path, tmp_path: Path, file: str) -> None:
    for path in exported.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    content = (tmp_path / file).read_bytes()
    flipped = bytearray(content)
    flipped[-9] ^= 1
    for damaged in (content[: len(content) // 2], b"{}", None, *([bytes(flipped)] if file != "mtcli.json" else [])):
        if damaged is None:
            (tmp_path / file).unlink()
        else:
            (tmp_path / file).write_bytes(damaged)
        with pytest.raises(ModelError, match=str(tmp_path)):
            CTranslate2Backend(tmp_path, "cpu")


def test_an_unusable_model_is_refused_with_what_to_give_instead(exported: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").touch()
    remedy = "give the folder of a run or of one of its checkpoints"
    for model, message in (
        (tmp_path / "missing", f"missing: no such folder; {remedy}"),
        (tmp_path / "file", f"file: is a file; {remedy}"),
        (tmp_path / "folder", f"folder: no model here; {remedy}"),
        (tmp_path / "run", "run: this run has no model yet"),
        (exported, "an exported model, .* the run that it was exported from"),
    ):
        with pytest.raises(ModelError, match=message):
            export(model, "ctranslate2", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_transformers_translates_like_the_run(run: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    found = export(run, "huggingface", tmp_path / "out")
    assert found is not None
    assert (found.sentences, found.equal, found.beam_size) == (72, 72, 1)
    assert found.max_score_difference < 1e-4
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path / "out"), toy().tokenizer
    lines = [*ODD, *LINES]
    assert theirs(lines)["input_ids"] == [[*row, 2] for row in ours.encode_src(lines)]
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
    assert type(model).__name__ == "MarianMTModel"
    for padded in (LINES[:1], LINES):  # with their own defaults: a beam of 4
        inputs = theirs(padded, padding=True, return_tensors="pt")
        texts = theirs.batch_decode(model.generate(**inputs), skip_special_tokens=True)
        assert texts == [
            t.text for t in toy().translate(padded, replace(Options(), beam_size=4, length_normalization="power"))
        ]
    with pytest.raises(ModelError, match="exported to huggingface"):
        load([tmp_path / "out"], "cpu")
