"""Several models that translate and score together."""

import math
from pathlib import Path

import pytest
import torch
from helpers.harness import mtcli
from helpers.toy import PAIRS, TorchTranslator, disturbed, save_toy, toy

from mtcli.corpus.batching import pad
from mtcli.explain.as_json import to_dict
from mtcli.explain.explanation import explain
from mtcli.explain.text import to_text
from mtcli.model.ensemble import log_mean
from mtcli.model.transformer import Transformer
from mtcli.text.special_tokens import BOS, EOS
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.translate.scoring import likelihoods
from mtcli.translate.translation import Options

LINES = [src for src, _ in PAIRS[::13]]
SEARCHES = [
    Options(beam_size=1),
    Options(beam_size=4, n_best=3),
    Options(beam_size=3, no_repeat_ngram=2),
    Options(beam_size=12),
    Options(sample=True, seed=5),
]


def combined(first: TorchTranslator, *others: TorchTranslator) -> TorchTranslator:
    return TorchTranslator(first.model, first.tokenizer, first.longest_src, others=[other.model for other in others])


@pytest.mark.parametrize("options", SEARCHES, ids=str)
def test_a_model_twice_equals_the_model(options: Options) -> None:
    twice = combined(toy(), toy())
    alone = list(toy().translate(LINES, options))
    for one, other in zip(alone, twice.translate(LINES, options), strict=True):
        assert [c.text for c in one.candidates] == [c.text for c in other.candidates]
        for ours, theirs in zip(one.candidates, other.candidates, strict=True):
            assert ours.log_prob == pytest.approx(theirs.log_prob, abs=1e-4)


def mean_probabilities(models: list[Transformer], src: list[int], tgt: list[int]) -> torch.Tensor:
    """Return the mean probabilities of the token after `tgt`, (V,), without a cache."""
    src_batch = pad([src], after=(EOS,))
    tgt_batch = pad([tgt], before=(BOS,))
    with torch.no_grad():
        return torch.stack([model(src_batch, tgt_batch)[0, -1].double().softmax(-1) for model in models]).mean(dim=0)


def test_greedy_search_takes_the_token_of_the_highest_mean_probability() -> None:
    translators = [toy(), disturbed(toy(), 1), disturbed(toy(), 2)]
    models = [translator.model for translator in translators]
    together = combined(*translators)
    differs = False
    for line in LINES:
        (src,) = toy().tokenizer.encode_src([line])
        (found,) = together.backend.search_ids([src], Options(beam_size=1))[0]
        tgt: list[int] = []
        log_prob = 0.0
        for token in [*found.ids, EOS]:
            p = mean_probabilities(models, src, tgt)
            assert p[token] > p.max() - 1e-5
            log_prob += math.log(p[token])
            tgt.append(token)
        assert found.log_prob == pytest.approx(log_prob, abs=1e-4)
        differs |= any(
            found.ids != one.backend.search_ids([src], Options(beam_size=1))[0][0].ids for one in translators[1:]
        )
    assert differs


def test_scores_are_of_the_mean_probability() -> None:
    translators = [toy(), disturbed(toy(), 1)]
    together = combined(*translators)
    for line in LINES[:6]:
        (src,) = toy().tokenizer.encode_src([line])
        (found,) = together.backend.search_ids([src], Options(beam_size=1))[0]
        (text,) = toy().tokenizer.decode([found.ids])
        (scored,) = likelihoods(together.backend, [(line, text)])
        assert scored is not None
        assert scored.log_prob == pytest.approx(found.log_prob, abs=1e-3)


def test_log_mean_of_impossible_tokens() -> None:
    nothing = -torch.inf
    found = log_mean([torch.tensor([nothing, 0.0, nothing]), torch.tensor([nothing, nothing, math.log(0.5)])])
    assert found.tolist() == pytest.approx([nothing, math.log(0.5), math.log(0.25)])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return (
        save_toy(tmp_path_factory.mktemp("a")),
        save_toy(tmp_path_factory.mktemp("b"), disturbed(toy(), 1)),
    )


def test_the_command_combines_models(tmp_path: Path, models: tuple[Path, Path]) -> None:
    a, b = models
    done = mtcli("translate", "--model", a, "--model", b, "--scores", *LINES[:5], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    together = combined(toy(), disturbed(toy(), 1))
    expected = [f"{found.candidates[0].score:.4f}\t{found.text}" for found in together.translate(LINES[:5], Options())]
    assert done.stdout.decode().splitlines() == expected


def test_the_variable_names_one_model_whatever_its_name_contains(tmp_path: Path, models: tuple[Path, Path]) -> None:
    (tmp_path / "a:b").symlink_to(models[0])
    named = mtcli("translate", "--model", "a:b", *LINES[:2], cwd=tmp_path)
    done = mtcli("translate", *LINES[:2], cwd=tmp_path, MTCLI_MODEL="a:b")
    assert done.returncode == 0, done.stderr
    assert done.stdout == named.stdout


def test_the_score_of_an_ensemble(tmp_path: Path, models: tuple[Path, Path]) -> None:
    (tmp_path / "src").write_text("".join(f"{src}\n" for src, _ in PAIRS[:20]))
    (tmp_path / "ref").write_text("".join(f"{tgt}\n" for _, tgt in PAIRS[:20]))
    files = ["--src-file", "src", "--ref-file", "ref"]
    once = mtcli("eval", "--model", models[0], *files, cwd=tmp_path)
    twice = mtcli("eval", "--model", models[0], "--model", models[0], *files, cwd=tmp_path)
    assert once.returncode == twice.returncode == 0, twice.stderr
    assert once.stdout == twice.stdout


def test_models_that_do_not_fit_are_refused(tmp_path: Path, models: tuple[Path, Path]) -> None:
    a, _ = models
    tokenizer = train_tokenizer(PAIRS[:50])
    torch.manual_seed(1)
    model = Transformer(toy().model.config, tokenizer.src_size, tokenizer.tgt_size, joint=True).eval()
    other = tmp_path / "other"
    other.mkdir()
    save_toy(other, TorchTranslator(model, tokenizer, 64))
    done = mtcli("translate", "--model", a, "--model", other, "one", cwd=tmp_path)
    assert done.returncode == 2
    assert f"mtcli: {other}: has another vocabulary than {a}" in done.stderr.decode()
    done = mtcli("translate", "--model", a, "--model", a, "--engine", "ctranslate2", "one", cwd=tmp_path)
    assert done.returncode == 2
    assert "takes one model" in done.stderr.decode()


def test_explain_shows_the_vote_of_each_model() -> None:
    line = LINES[3]
    together = combined(toy(), disturbed(toy(), 1))
    explanation = explain(together.backend, line, Options(beam_size=3))
    assert explanation.texts[0] == next(together.translate([line], Options(beam_size=3))).text
    for step, of_step in zip(explanation.steps, explanation.votes, strict=True):
        assert step.probability == pytest.approx(sum(vote.probability for vote in of_step) / 2, abs=1e-6)
        assert all(vote.favourite_probability >= vote.probability for vote in of_step)
        assert all(vote.agrees == (vote.favourite == step.token) for vote in of_step)
    text = to_text(explanation, None, None)
    assert "Votes of the models" in text
    assert len(to_dict(explanation, 0, 0)["votes"]) == len(explanation.steps)
    alone = explain(toy().backend, line, Options(beam_size=3))
    assert not alone.votes
    assert "Votes" not in to_text(alone, None, None)
