"""Reranking with a model of the reverse direction."""

import copy
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from helpers.harness import mtcli
from helpers.toy import PAIRS, TorchTranslator, disturbed, save_toy, toy

from mtcli.search.length import length_penalty
from mtcli.translate.scoring import DEFAULT_WEIGHT, Reranker, log_probs_of
from mtcli.translate.translation import Candidate, Options
from mtcli.translate.windows import MAX_LINE_TOKENS

LINES = [src for src, _ in PAIRS[::20]]
BEAM = Options(beam_size=3, n_best=3)
WEIGHT = 5.0


@cache
def reverse_model() -> TorchTranslator:
    """Return a model that prefers other hypotheses than the toy model. It need not translate well."""
    return disturbed(toy(), 2)


def reranked(weight: float) -> TorchTranslator:
    """Return the toy model with a reverse model."""
    translator = copy.copy(toy())
    translator.rerank = Reranker(reverse_model().backend, weight).rerank
    return translator


def reverse_log_prob(text: str, line: str) -> float:
    tokenizer = reverse_model().tokenizer
    (found,) = log_probs_of(reverse_model().backend, tokenizer.encode_src([text]), tokenizer.encode_tgt([line]))
    return found


def test_both_models_rank_the_hypotheses() -> None:
    plain = list(toy().translate(LINES, BEAM))
    differs = False
    for before, after in zip(plain, reranked(WEIGHT).translate(LINES, BEAM), strict=True):
        log_probs = {candidate.text: candidate.log_prob for candidate in before.candidates}
        for candidate in after.candidates:
            (ids,) = toy().tokenizer.encode_tgt([candidate.text])
            penalty = length_penalty(len(ids) + 1, BEAM.length_penalty, BEAM.length_normalization)
            expected = reverse_log_prob(candidate.text, after.source)
            assert candidate.reverse_log_prob == pytest.approx(expected, abs=1e-3)
            assert candidate.score == pytest.approx((candidate.log_prob + WEIGHT * expected) / penalty, abs=1e-3)
        if log_probs.keys() == {candidate.text for candidate in after.candidates}:
            assert after.candidates[0] == max(after.candidates, key=lambda candidate: candidate.score)
            differs |= before.text != after.text
    assert differs


def test_one_translation_is_the_first_of_several() -> None:
    several = reranked(WEIGHT).translate(LINES, BEAM)
    for one, first in zip(reranked(WEIGHT).translate(LINES, replace(BEAM, n_best=1)), several, strict=True):
        assert one.candidates == first.candidates[:1]


def test_a_weight_of_0_changes_nothing() -> None:
    def without_reverse(candidate: Candidate) -> Candidate:
        return replace(candidate, reverse_log_prob=None)

    plain = toy().translate(LINES, BEAM)
    for one, other in zip(plain, reranked(0).translate(LINES, BEAM), strict=True):
        assert one.candidates == tuple(map(without_reverse, other.candidates))


def test_an_empty_hypothesis_and_a_long_line() -> None:
    candidates = [Candidate("", -1.0, -1.0), Candidate("uno " * 3 * MAX_LINE_TOKENS, -1.0, -1.0, (5,))]
    (found,) = Reranker(reverse_model().backend).rerank(["one " * 3 * MAX_LINE_TOKENS], [candidates])
    assert sorted(candidate.text[:3] for candidate in found) == ["", "uno"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a model and one of the reverse direction."""
    forward = save_toy(tmp_path_factory.mktemp("forward"))
    reverse = save_toy(tmp_path_factory.mktemp("reverse"), reverse_model(), "es", "en")
    return forward, reverse


def test_the_command_reranks(tmp_path: Path, models: tuple[Path, Path]) -> None:
    options = ["--model", models[0], "--rerank", models[1], "-b", "3"]
    done = mtcli("translate", *options, "--format", "json", *LINES[:5], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = list(reranked(DEFAULT_WEIGHT).translate(LINES[:5], replace(BEAM, n_best=1)))
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["translation"] for record in records] == [found.text for found in expected]
    for record, found in zip(records, expected, strict=True):
        assert record["score"] == pytest.approx(found.candidates[0].score, abs=1e-3)
        assert record["reverse_log_prob"] == pytest.approx(found.candidates[0].reverse_log_prob, abs=1e-3)
    done = mtcli("translate", *options, "--format", "json", "", "123", LINES[0], cwd=tmp_path)
    blank, number, translated = (json.loads(line) for line in done.stdout.splitlines())
    assert blank.keys() == translated.keys()
    assert number.keys() == translated.keys()
    assert (blank["reverse_log_prob"], number["reverse_log_prob"]) == (None, None)
    done = mtcli("translate", *options, "--format", "nbest", LINES[0], cwd=tmp_path)
    assert " reverse_logprob=-" in done.stdout.decode()


def test_the_score_of_reranked_translations(tmp_path: Path, models: tuple[Path, Path]) -> None:
    translated = [found.text for found in reranked(2.0).translate(LINES, replace(BEAM, n_best=1))]
    (tmp_path / "src").write_text("".join(f"{line}\n" for line in LINES))
    (tmp_path / "ref").write_text("".join(f"{line}\n" for line in translated))
    given = ["--model", models[0], "--src-file", "src", "--ref-file", "ref", "-b", "3"]
    done = mtcli("eval", *given, "--rerank", models[1], "--rerank-weight", "2", cwd=tmp_path)
    assert done.stdout.startswith(b"BLEU = 100.0"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rerank", "FORWARD"], "translates en → es; give a model that translates es → en"),
        (["--rerank", "REVERSE", "-b", "1"], "a beam of 1 has nothing to rerank"),
        (["--rerank", "REVERSE", "--sample"], "--rerank: not with --sample"),
        (["--rerank", "REVERSE", "--terms", "none.tsv"], "--rerank: not with --terms"),
        (["--rerank-weight", "1"], "--rerank-weight: only with --rerank"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, models: tuple[Path, Path], arguments: list[str], message: str
) -> None:
    names = {"FORWARD": models[0], "REVERSE": models[1]}
    given = [names.get(argument, argument) for argument in arguments]
    done = mtcli("translate", "--model", models[0], *given, "one", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr.decode()
