import math
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from helpers.harness import mtcli
from helpers.toy import PAIRS, TorchTranslator, disturbed, save_toy, toy

from mtcli.config.build import build
from mtcli.corpus.batching import Batch
from mtcli.errors import DataError
from mtcli.evaluation import metrics
from mtcli.model.loss import reference_loss
from mtcli.text.languages import Direction
from mtcli.training.gradients import Objective
from mtcli.training.validation import PairsToScore, validate
from mtcli.translate import scoring
from mtcli.translate.scoring import likelihoods
from mtcli.translate.translation import Options


@pytest.mark.parametrize("options", [Options(beam_size=1), Options(beam_size=3, n_best=3)])
def test_scores_equal_those_of_the_search(options: Options) -> None:
    lines = [src for src, _ in PAIRS[::9]]
    found = list(toy().translate(lines, options))
    every = [(t.source, c) for t in found for c in t.candidates if c.text]
    every = [(source, c) for source, c in every if c.log_prob > -5]  # an unlikely one may consist of other tokens
    scored = list(likelihoods(toy().backend, [(source, candidate.text) for source, candidate in every]))
    assert [s.log_prob for s in scored if s] == pytest.approx([c.log_prob for _, c in every], abs=1e-4)
    assert len(every) >= len(lines)


def test_scores_equal_the_loss_of_training() -> None:
    pairs = PAIRS[:40]
    encode_src, encode_tgt = toy().tokenizer.encode_src, toy().tokenizer.encode_tgt
    batch = Batch.of(encode_src([s for s, _ in pairs]), encode_tgt([t for _, t in pairs]))
    with torch.no_grad():
        logits = batch.at_targets(toy().model(batch.src, batch.tgt_in))
        _, nll = reference_loss(logits, batch.target, smoothing=0.1)
    found = [one for one in likelihoods(toy().backend, pairs) if one]
    assert -sum(one.log_prob for one in found) == pytest.approx(float(nll), rel=1e-5)
    assert sum(one.tokens for one in found) == batch.tokens
    assert found[0].mean == found[0].log_prob / found[0].tokens


def test_a_validation_has_the_loss_without_smoothing_and_the_scores_of_greedy_translations() -> None:
    pairs = PAIRS[::5]
    config = build(None, {"data.train": ["x.tsv"], "data.src": "en", "data.tgt": "es", "decode.beam_size": 4})
    options = Options.of(config.decode)

    def translations(translator: TorchTranslator) -> list[list[str]]:
        """By greedy search and by the beam."""
        return [
            [translation.text for translation in translator.translate([src for src, _ in pairs], wanted)]
            for wanted in (replace(options, beam_size=1), options)
        ]

    # A model whose greedy translations are others than those of its beam.
    candidates = (disturbed(toy(), seed) for seed in range(1, 50))
    translator, texts = next(
        (each, found) for each in candidates if (found := translations(each)) and found[0] != found[1]
    )
    objective = Objective(translator.model, 0.3, bf16=False)
    to_score = PairsToScore(pairs, [Direction("en", "es")] * len(pairs))
    found = validate(translator.backend, to_score, config, objective, len(pairs))
    scored = [one for one in likelihoods(translator.backend, pairs) if one]
    mean = sum(one.log_prob for one in scored) / sum(one.tokens for one in scored)
    assert found.loss == pytest.approx(-mean, rel=1e-5)
    scores = metrics.score(texts[0], [[tgt for _, tgt in pairs]], metrics=("bleu", "chrf"))
    assert [found.bleu, found.chrf] == [score.value for score in scores]
    assert found.samples[-1] == {"src": pairs[-1][0], "ref": pairs[-1][1], "hyp": texts[0][-1]}


def test_windows_and_batches_do_not_change_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [*PAIRS[:9], ("one", PAIRS[3][1] * 4), ("", "uno"), ("one", " \t"), ("", ""), *PAIRS[9:14]]
    together = list(likelihoods(toy().backend, pairs))
    assert [one is None for one in together] == [not (a.strip() and b.strip()) for a, b in pairs]
    monkeypatch.setattr(scoring, "WINDOW", 4)
    monkeypatch.setattr(scoring, "BATCH_TOKENS", {"cpu": 20})
    monkeypatch.setattr(scoring, "LOGITS_CHUNK", 3)
    for one, again in zip(together, likelihoods(toy().backend, pairs), strict=True):
        assert (one is None) == (again is None)
        assert not one or not again or one.log_prob == pytest.approx(again.log_prob, abs=1e-4)
    endless = (("one", "uno") for _ in iter(int, 1))
    assert len(list(islice(likelihoods(toy().backend, endless), 10))) == 10


def test_a_pair_that_is_too_long_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "MAX_LINE_TOKENS", 10)
    with pytest.raises(DataError, match="pair 2 has a side of"):
        list(likelihoods(toy().backend, [("one", "uno"), ("one", "uno rojo " * 20)]))


def test_the_command_writes_a_line_for_each_pair(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    save_toy(tmp_path / "run", translator := toy())
    (tmp_path / "src").write_text("one red dog.\n\nbig cat sees.\n")
    (tmp_path / "tgt").write_text("uno rojo perro.\nuno\nuno uno uno.\n")
    done = mtcli("score", "--model", "run", "--src-file", "src", "--tgt-file", "tgt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, blank, last, end = done.stdout.decode().split("\n")
    assert (blank, end) == ("", "")
    expected = next(likelihoods(translator.backend, [("one red dog.", "uno rojo perro.")]))
    assert expected
    assert [float(x) for x in first.split("\t")] == pytest.approx([expected.log_prob, expected.mean], abs=1e-4)
    assert float(first.split("\t")[0]) > math.log(0.5) > float(last.split("\t")[0])
