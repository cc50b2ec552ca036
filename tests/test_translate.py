import copy
import logging
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import toy_pairs
from helpers.toy import TorchTranslator, toy, toy_info
from hypothesis import given, settings
from hypothesis import strategies as st

from mtcli.config.schema import ModelConfig
from mtcli.errors import StorageError
from mtcli.model.transformer import Transformer
from mtcli.runtime import memory
from mtcli.runtime.cores import Cores
from mtcli.search.length import length_penalty
from mtcli.terms.terms import parse_terms
from mtcli.text import repetitions
from mtcli.text.lines import Counts, read_lines
from mtcli.text.repetitions import repetition_in
from mtcli.text.special_tokens import BOS, EOS, PAD
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.text.tokenizer.vocabulary_file import RESERVED
from mtcli.translate import line_warnings, windows
from mtcli.translate.backends import pytorch
from mtcli.translate.backends.backend import Backend
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.loading import load
from mtcli.translate.streams import arguments, report_counts
from mtcli.translate.translation import Candidate, Options, Translation
from mtcli.translate.translator import ModelTranslator, Translator, _Search
from mtcli.translate.windows import Reading, SourceLine, shortened_line

PAIRS = toy_pairs(60)
LINES = [source for source, _ in PAIRS[:17]]
BLANK = ["", " ", "\t\u3000\u00a0"]
GREEDY = Options(beam_size=1, max_length=12)
BEAM = Options(beam_size=3, max_length=9)
SAMPLE = Options(sample=True, max_length=12, n_best=3, seed=4, temperature=0.7)


@pytest.fixture(scope="module")
def translator() -> TorchTranslator:
    """A random model in float64, whose results do not depend on the batch, with a trained tokenizer."""
    toy = train_tokenizer(PAIRS, vocab_size=330)
    toy.forbidden = [PAD, BOS, *range(3, len(RESERVED))]  # a random model's bytes would not be text
    torch.manual_seed(3)
    config = ModelConfig(
        d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, tie_embeddings=False
    )
    model = Transformer(config, toy.src_size, toy.tgt_size, joint=True).double().eval()
    torch.nn.init.normal_(model.output.weight, std=0.7)  # as initialised, all tokens are about equally likely
    return TorchTranslator(model, toy, longest_src=40)


def run(translator: Translator, lines: Sequence[str], options: Options) -> list[Translation]:
    return list(translator.translate(lines, options, Reading(warn=False)))


def texts(found: Sequence[Translation]) -> list[list[str]]:
    return [[candidate.text for candidate in one.candidates] for one in found]


@pytest.mark.parametrize("options", [GREEDY, BEAM, SAMPLE, replace(BEAM, n_best=3)])
def test_each_line_has_a_translation_in_order(translator: TorchTranslator, options: Options) -> None:
    alone = {line: texts(run(translator, [line], options))[0] for line in LINES}
    found = run(translator, LINES, options)
    assert [one.source for one in found] == LINES
    assert len({tuple(t) for t in texts(found)}) > 3
    for one in found:
        assert one.text == one.candidates[0].text
        assert len(one.candidates) == options.n_best
        assert all("\n" not in candidate.text for candidate in one.candidates)
    if not options.sample:
        assert texts(found) == [alone[line] for line in LINES]
        assert all(
            [c.score for c in o.candidates] == sorted((c.score for c in o.candidates), reverse=True) for o in found
        )


def test_blank_lines_are_not_given_to_the_model(translator: TorchTranslator, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [*BLANK, LINES[0], *BLANK, LINES[1]]
    found = run(translator, lines, GREEDY)
    assert [one.source for one in found] == lines
    assert [one.text for one in found[:3] + found[4:7]] == [""] * 6
    assert [found[3].text, found[7].text] == [one.text for one in run(translator, LINES[:2], GREEDY)]

    def refuse(*args: object) -> None:
        raise AssertionError("asked the model")

    monkeypatch.setattr(translator.model, "encode", refuse)
    for options in (replace(GREEDY, prefix="Ana"), BEAM, SAMPLE):
        assert [one.text for one in run(translator, BLANK, options)] == [""] * 3
    with pytest.raises(AssertionError, match="asked the model"):
        run(translator, LINES[:1], GREEDY)
    assert run(translator, [], GREEDY) == []


@pytest.mark.parametrize("options", [GREEDY, BEAM, SAMPLE])
def test_windows_and_batches_do_not_change_translations(
    translator: TorchTranslator, monkeypatch: pytest.MonkeyPatch, options: Options
) -> None:
    lines = [*LINES[:5], "", *LINES[5:9]]
    whole = run(translator, lines, options)
    for window, tokens in ((3, 6000), (4096, 1), (5, 60), (1, 6000)):
        monkeypatch.setattr(windows, "WINDOW", window)
        monkeypatch.setitem(pytorch.BATCH_TOKENS, "cpu", tokens)
        again = run(translator, lines, options)
        assert texts(again) == texts(whole)
        for one, other in zip(again, whole, strict=True):
            assert [c.score for c in one.candidates] == pytest.approx([c.score for c in other.candidates], abs=1e-5)


def test_lines_are_read_window_by_window(translator: TorchTranslator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "WINDOW", 2)
    drawn = []

    def endless():
        while True:
            drawn.append(LINES[len(drawn) % 17])
            yield drawn[-1]

    stream = translator.translate(endless(), GREEDY, Reading(warn=False))
    assert [next(stream).source for _ in range(3)] == LINES[:3]
    assert len(drawn) == 4


def test_windows_grow_where_the_first_lines_are_wanted_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "FIRST_WINDOW", 2)
    monkeypatch.setattr(windows, "WINDOW", 8)
    lines = [str(number) for number in range(25)]
    found = list(Reading(growing=True).windows(lines))
    assert [(first, len(window)) for first, window in found] == [(0, 2), (2, 4), (6, 8), (14, 8), (22, 3)]
    assert [line for _, window in found for line in window] == lines
    assert [len(window) for _, window in Reading().windows(lines)] == [8, 8, 8, 1]


def batches_of(translator: Translator, ids: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the numbers of the lines in each batch of a beam search."""
    sources = [SourceLine(*row) for row in zip(range(len(LINES)), LINES, ids, strict=True)]
    batches = _Search(translator.backend, BEAM, None).batches(sources)
    return [[source.number for source in batch] for batch in batches]


def test_batches_have_similar_lengths_within_the_budget(
    translator: TorchTranslator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pytorch.BATCH_TOKENS, "cpu", 240)
    ids = translator.tokenizer.encode_src(LINES)
    batches = batches_of(translator, ids)
    assert sorted(row for rows in batches for row in rows) == list(range(17))
    lengths = [len(ids[row]) for rows in batches for row in rows]
    assert lengths == sorted(lengths, reverse=True)
    assert all(len(rows) == 1 or len(rows) * (len(ids[rows[0]]) + 1) * 3 <= 240 for rows in batches)
    assert len(batches) < 17


def test_shares_of_a_window_have_equal_batches(translator: TorchTranslator, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the budget allows, there is one batch for each share, with equally many tokens, give or take two rows."""
    monkeypatch.setattr(translator.backend, "num_shares", lambda options: 3)
    ids = translator.tokenizer.encode_src(LINES)
    batches = batches_of(translator, ids)
    tokens = [sum(len(ids[row]) + 1 for row in rows) for rows in batches]
    assert len(tokens) == 3
    assert max(tokens) - min(tokens) <= 2 * (max(map(len, ids)) + 1)


def test_n_best_begins_with_the_best_translation(translator: TorchTranslator) -> None:
    three = run(translator, LINES, replace(BEAM, n_best=3))
    assert [one.text for one in three] == [one.text for one in run(translator, LINES, BEAM)]
    assert sum(len(set(candidates)) > 1 for candidates in texts(three)) > 12


class Scripted(Backend):
    """Finds the first of these hypotheses, as many as its beam size, and draws them in order."""

    def __init__(self, hypotheses: Sequence[Candidate]):
        super().__init__(toy().tokenizer, toy_info())
        self.hypotheses = hypotheses
        self.beams: list[int] = []

    def max_batch_tokens(self, options: Options) -> int:
        return 1000

    def search(self, sources: Sequence[SourceLine], options: Options) -> Any:
        self.beams.append(options.beam_size)
        return [self.hypotheses[: options.n_best if options.sample else options.beam_size]] * len(sources)


def scripted(*found: tuple[str, float]) -> list[Candidate]:
    """Hypotheses with these texts and probabilities, each of another token, and a length penalty of 2."""
    return [Candidate(text, math.log(p), math.log(p) / 2, (number,), 2) for number, (text, p) in enumerate(found)]


def found_by(backend: Backend, **options: Any) -> list[tuple[str, float, int]]:
    (one,) = run(ModelTranslator(backend), ["x"], Options(**options))
    for candidate in one.candidates:
        assert candidate.score == pytest.approx(candidate.log_prob / 2)
    return [(c.text, pytest.approx(math.exp(c.log_prob)), c.draws) for c in one.candidates]


SCRIPT = scripted(
    ("Hola Mundo", 0.4), ("Hola", 0.1), ("Hola Mundo", 0.2), ("Mundo", 0.15), ("¡Hola!", 0.05), ("Eh", 0.01)
)


def test_two_segmentations_of_one_text_are_one_candidate() -> None:
    assert found_by(Scripted(SCRIPT), n_best=3) == [("Hola Mundo", 0.6, 2), ("Mundo", 0.15, 1), ("Hola", 0.1, 1)]
    assert found_by(Scripted(SCRIPT)) == [("Hola Mundo", 0.6, 2)]


def test_the_best_hypothesis_stays_first_even_if_the_sum_of_another_is_larger() -> None:
    script = scripted(("one", 0.3), ("two", 0.2), ("two", 0.2))
    assert found_by(Scripted(script), n_best=2) == [("one", 0.3, 1), ("two", 0.4, 2)]
    assert found_by(Scripted(script)) == [("one", 0.3, 1)]


@pytest.mark.parametrize(("n_best", "beams"), [(1, [4]), (3, [4]), (4, [4, 8]), (5, [4, 10]), (6, [4, 12, 24])])
def test_a_wider_search_adds_missing_texts(n_best: int, beams: list[int]) -> None:
    backend = Scripted(SCRIPT)
    found = found_by(backend, n_best=n_best)
    assert backend.beams == beams
    assert len(found) == min(n_best, 5)
    assert found[0] == ("Hola Mundo", 0.6, 2)
    assert len({text for text, *_ in found}) == len(found)


def test_a_wider_search_does_not_change_the_first_text() -> None:
    script = scripted(("one", 0.3), ("one", 0.1), ("two", 0.1), ("three", 0.1), ("best", 0.35))
    assert found_by(Scripted(script), n_best=4)[:2] == [("one", 0.4, 2), ("best", 0.35, 1)]


def test_the_wider_beam_has_a_maximum_size() -> None:
    backend = Scripted(SCRIPT)
    found_by(backend, n_best=1000)
    assert max(backend.beams) == 1000


def test_several_translations_of_greedy_search_have_scores_on_one_scale() -> None:
    greedy = Candidate("Hallo", -2.0, -2.0, (5, 6))  # without a length penalty
    for n_best, penalty in ((1, 1.0), (2, length_penalty(3, alpha=0.6))):
        (one,) = run(ModelTranslator(Scripted([greedy, *SCRIPT])), ["x"], Options(beam_size=1, n_best=n_best))
        assert one.text == "Hallo"
        assert one.candidates[0].score == pytest.approx(-2.0 / penalty)


def test_samples_are_distinct_and_counted() -> None:
    same, other, third = scripted(("one", 0.5), ("two", 0.1), ("one", 0.2))
    drawn = [same, same, other, same, third, *[same] * 20]
    assert found_by(Scripted(drawn), n_best=1, sample=True) == [("one", 0.5, 1)]
    assert found_by(Scripted(drawn), n_best=2, sample=True) == [("one", 0.5, 3), ("two", 0.1, 1)]
    assert found_by(Scripted(drawn), n_best=3, sample=True) == [("one", 0.7, 11), ("two", 0.1, 1)]


def test_the_best_translation_does_not_depend_on_n_best(translator: TorchTranslator) -> None:
    drawn_again = replace(SAMPLE, n_best=1, temperature=0.3, max_length=2)
    for options in (GREEDY, BEAM, replace(BEAM, prefix="der"), replace(SAMPLE, n_best=1), drawn_again):
        alone = run(translator, LINES[:6], options)
        for n_best in (2, 7):
            several = run(translator, LINES[:6], replace(options, n_best=n_best))
            assert [one.text for one in several] == [one.text for one in alone]
            assert [len(set(found)) for found in texts(several)] == [len(found) for found in texts(several)]
            if not options.sample:
                assert {len(found) for found in texts(several)} == {n_best}
            num_draws = [sum(candidate.draws for candidate in one.candidates) for one in several]
            assert options != drawn_again or max(num_draws) > n_best  # a wider search followed


@pytest.mark.parametrize("prefix", ["der", "eulb der no", "24 mo", "n"])
@pytest.mark.parametrize("options", [GREEDY, BEAM, SAMPLE])
def test_translations_begin_with_the_prefix(translator: TorchTranslator, prefix: str, options: Options) -> None:
    found = run(translator, LINES[:4], replace(options, prefix=prefix, max_length=20))
    assert all(c.text.startswith(prefix) for one in found for c in one.candidates)
    assert any(len(one.text) > len(prefix) for one in found)


@pytest.mark.parametrize("options", [GREEDY, BEAM, SAMPLE])
def test_max_length(translator: TorchTranslator, options: Options) -> None:
    ids = translator.tokenizer.encode_src(LINES)
    for changed, most in (
        (replace(options, max_length=2), [2] * 17),
        (replace(options, max_length=None, max_extra=3), [len(row) + 3 for row in ids]),
    ):
        found = translator.backend.search_ids(ids, changed)
        lengths = [max(len(h.ids) for h in hypotheses) for hypotheses in found]
        assert all(length <= limit for length, limit in zip(lengths, most, strict=True))
        assert any(length == limit for length, limit in zip(lengths, most, strict=True))


def test_a_long_line_causes_a_warning_and_is_read_whole(
    translator: TorchTranslator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(windows, "WINDOW", 2)
    long = " ".join(["house"] * 300 + ["moon"])
    seen: list[int] = []
    encode = Transformer.encode
    monkeypatch.setattr(Transformer, "encode", lambda self, src: (seen.append(src.size(1)), encode(self, src))[1])
    with caplog.at_level(logging.WARNING, "mtcli"):
        found = list(translator.translate([LINES[0], "", LINES[1], long], replace(GREEDY, max_length=3)))
    tokens = len(translator.tokenizer.encode_src([long])[0])
    assert tokens > 300
    assert max(seen) == tokens + 1  # </s>
    assert len(found) == 4
    assert found[3].source == long
    usual = translator.usual_src
    told = f"line 4: longer than nearly all training sources ({usual} tokens): the translation may be poor"
    assert [r.getMessage() for r in caplog.records] == [told]
    caplog.clear()
    list(translator.translate([long], GREEDY, Reading(warn=False)))
    assert not caplog.records


def test_a_warning_names_the_first_lines_and_counts_the_others(
    translator: TorchTranslator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(windows, "WINDOW", 7)
    monkeypatch.setattr(line_warnings, "MAX_LINES_NAMED", 5)
    monkeypatch.setattr(translator, "usual_src", 1)
    with caplog.at_level(logging.WARNING, "mtcli"):
        list(translator.translate(["moon red house"] * 9, replace(GREEDY, max_length=1)))
    found = [m.partition(":")[0] for m in caplog.messages if "longer than nearly all" in m]
    assert found == ["lines 1, 2, 3, 4, 5 and 2 more", "lines 8, 9"]


def test_every_shortened_line_is_named(
    translator: TorchTranslator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(line_warnings, "MAX_LINES_NAMED", 1)
    monkeypatch.setattr(windows, "MAX_LINE_TOKENS", 20)
    monkeypatch.setattr(line_warnings, "MAX_LINE_TOKENS", 20)
    monkeypatch.setattr(translator, "usual_src", 2)
    long = "moon red house " * 10
    with caplog.at_level(logging.WARNING, "mtcli"):
        list(
            translator.translate(["moon red house", long, "moon red house", long, long], replace(GREEDY, max_length=1))
        )
    assert "lines 2, 4, 5: too long; only the first 20 tokens are translated" in caplog.messages


def test_a_line_that_is_too_long_is_shortened(
    translator: TorchTranslator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(windows, "MAX_LINE_TOKENS", 20)
    monkeypatch.setattr(line_warnings, "MAX_LINE_TOKENS", 20)
    lines = [LINES[0], "moon red house" * 100, "\u3042" * 1000]
    with caplog.at_level(logging.WARNING, "mtcli"):
        found = list(translator.translate(lines, GREEDY))
    assert [one.source for one in found] == lines
    assert "lines 2, 3: too long; only the first 20 tokens are translated" in caplog.text
    for line, one in zip(lines, found, strict=True):
        (ids,) = translator.tokenizer.encode_src([line])
        beginning, rows = shortened_line(line, ids, translator.tokenizer)
        assert line.startswith(beginning)
        assert [rows] == translator.tokenizer.encode_src([beginning])
        assert len(ids) <= 20 or 15 <= len(rows) <= 20
        assert one.text == run(translator, [beginning], GREEDY)[0].text


def test_lines_before_a_pause_are_translated_at_once(translator: TorchTranslator) -> None:
    drawn = []

    def lines():
        for line in LINES[:5]:
            drawn.append(line)
            yield line

    def ready() -> bool:
        return len(drawn) not in (1, 3)

    stream = translator.translate(lines(), GREEDY, Reading(ready=ready))
    seen = [(next(stream).source, len(drawn)) for _ in range(5)]
    assert seen == list(zip(LINES[:5], [1, 3, 3, 5, 5], strict=True))


# ---- sampling ----


def test_sampling_is_a_function_of_the_seed(translator: TorchTranslator) -> None:
    first = texts(run(translator, LINES, SAMPLE))
    assert texts(run(translator, LINES, SAMPLE)) == first
    other = texts(run(translator, LINES, replace(SAMPLE, seed=5)))
    assert sum(a != b for a, b in zip(first, other, strict=True)) > 12
    assert texts(run(translator, LINES, replace(SAMPLE, seed=-5)))
    assert all(len(set(draws)) > 1 for draws in first)  # the draws of a line differ


def test_sampling_depends_only_on_the_line_and_its_number(translator: TorchTranslator) -> None:
    whole = texts(run(translator, LINES, SAMPLE))
    for keep in ([3], [0, 3, 9], [16, 3]):
        lines = [line if i in keep else "" for i, line in enumerate(LINES)]
        part = texts(run(translator, lines, SAMPLE))
        assert [part[i] for i in keep] == [whole[i] for i in keep]
    one = texts(run(translator, LINES, replace(SAMPLE, n_best=1)))
    assert one == [draws[:1] for draws in whole]
    same = texts(run(translator, LINES[:1] * 8, SAMPLE))  # each line number has its own draws
    assert len({tuple(draws) for draws in same}) > 4


def test_sampling_from_the_most_likely_token_is_greedy(translator: TorchTranslator) -> None:
    alone = replace(SAMPLE, top_k=1, n_best=2)
    found = run(translator, LINES, alone)
    assert texts(found) == texts(run(translator, LINES, GREEDY))
    assert {one.candidates[0].draws for one in found} == {8}
    cold = replace(SAMPLE, temperature=1e-4, n_best=1)
    assert texts(run(translator, LINES, cold)) == texts(run(translator, LINES, GREEDY))


def test_load_the_translator_of_a_run(toy_run: Path) -> None:
    loaded, options, languages = load([toy_run], "cpu")
    assert (options.beam_size, options.length_penalty, options.max_extra) == (4, 1.5, 5)
    assert isinstance(loaded.backend, PyTorchBackend)
    assert not loaded.backend.model.training
    assert languages == ("en", "xx")
    found = list(loaded.translate(LINES[:3], replace(options, max_length=8)))
    assert [one.source for one in found] == LINES[:3]


@pytest.mark.parametrize("alignments", [False, True])
def test_cores_do_not_change_translations(alignments: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    translator, options = toy(), Options(alignments=alignments)
    attend = [layer.cross_attention.attend for layer in translator.model.decoder]
    lines = [f"one {a} {b}." for a in ("red", "dog", "cat") for b in ("sees", "big", "one")] + ["", "red dog cat."]
    before = list(translator.translate(lines, options))
    monkeypatch.setattr("mtcli.translate.backends.pytorch.all_cores", lambda: Cores(3))
    found = list(translator.translate(lines, options))
    assert [t.candidates for t in found] == [t.candidates for t in before]  # the same bits of scores
    assert [t.text for t in found] == [t.text for t in before]
    assert [t.source for t in found] == lines
    assert [t.candidates[0].alignment for t in found] == [t.candidates[0].alignment for t in before]
    assert [layer.cross_attention.attend for layer in translator.model.decoder] == attend


@pytest.mark.parametrize(
    ("text", "repetition"),
    [
        ("ein schwuuuuuuuuu im bild", "uuuuuuuuu"),
        ("am suuuuu", "uuuuu"),
        ("am suuuu", ""),
        ("ein ein ein hund", "ein ein ein"),
        ("der mann, der mann, der mann, hat", "der mann, der mann, der mann,"),
        ("nein, nein, nein!", ""),
        ("1.000.000.000 + 100000000", ""),
        ("...................", ""),
        ("so: " + "«" * 50, "«" * 50),
        ("- " * 15 + "x", ("- " * 15).strip()),
        (" " * 50 + "x", ""),
        ("haha, hmmmm, www.schifffahrt.de", ""),
    ],
)
def test_repetition_in(text: str, repetition: str) -> None:
    assert repetition_in(text) == repetition


def repetition_by_definition(text: str, max_unit: int | str = "") -> str:
    """`repetition_in` with the regular expression only; units have `max_unit` characters at most."""
    for found in re.finditer(rf"(.{{1,{max_unit}}}?)\1{{2,}}", f" {text}"):
        whole = found[0].strip()
        min_length = repetitions.MIN_RUN if len(found[1]) == 1 else repetitions.MIN_LENGTH
        if len(found[0]) >= min_length and any(map(str.isalpha, found[1])):
            return whole
        if len(whole) >= repetitions.MIN_SIGNS:
            return whole
    return ""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("dog 😀", False),
        ("😀", False),
        ("ok 😀😀😀", False),
        ("«»—…", False),
        ("", False),
        ("日本語の猫 dog", True),
        ("猫 big dog", False),
        ("Ωψφ", True),
    ],
)
def test_lines_of_unseen_letters(line: str, expected: bool) -> None:
    tokenizer = toy().tokenizer
    (ids,) = tokenizer.encode_src([line])
    assert line_warnings.is_unseen(line, ids, tokenizer) == expected
    found = line_warnings.warnings_of(Translation(line, (Candidate("«" * 50, 0, 0),)), tokenizer)
    assert found == [line_warnings.UNSEEN] * expected + [f"the translation repeats itself ({'«' * 40})"]


def test_other_numbers_are_among_the_warnings_of_a_line() -> None:
    translation = Translation("a 3.14 b", (Candidate("a 2.7 b", 0, 0),))
    warning = "the translation has other numbers than the line (3.14 missing, 2.7 added)"
    assert warning in line_warnings.warnings_of(translation, toy().tokenizer)


SYLLABLES = st.sampled_from(["a", "b", "ab", "1", ".", " ", "der mann, ", "ein "])


@given(st.lists(SYLLABLES, max_size=30).map("".join) | st.text("ab .", max_size=40))
def test_bounds_do_not_matter_in_short_texts(text: str) -> None:
    for short in (text[: repetitions.MAX_UNIT], 3 * text[: repetitions.MAX_UNIT // 3]):
        assert repetition_in(short) == repetition_by_definition(short)


@settings(max_examples=25)
@given(st.lists(SYLLABLES | st.text("abc\u0161 \u0261\n", min_size=1, max_size=3), min_size=80, max_size=300))
def test_repetitions_of_long_texts_are_those_of_the_regular_expression(parts: list[str]) -> None:
    text = "".join(parts)
    assert repetition_in(text) == repetition_by_definition(text, repetitions.MAX_UNIT)


@pytest.mark.parametrize("unit_size", [1, 2, 3, 7, 50, 99, 100])
def test_a_repetition_is_found_anywhere_in_a_long_text(unit_size: int) -> None:
    random_characters = random.Random(unit_size)
    text = "".join(chr(random_characters.randrange(0x400, 0x4FF)) for _ in range(1000))
    unit = text[:unit_size]
    num_units = repetitions.MIN_RUN if unit_size == 1 else max(3, -(-repetitions.MIN_LENGTH // unit_size))
    assert repetition_in(text) == ""
    for position in (500, 999):
        assert repetition_in(text[:position] + num_units * unit + text[position + 1 :]) == num_units * unit
        assert repetition_in(text[:position] + (num_units - 1) * unit + text[position + 1 :]) == ""


def test_the_search_for_a_repetition_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a text of any length, `MAX_SEARCHED` characters are searched for units of up to `MAX_UNIT`."""
    searched: list[str] = []

    class Spy:
        def finditer(self, text: str) -> Iterator[re.Match[str]]:
            searched.append(text)
            return expression.finditer(text)

    expression = repetitions.REPETITION
    monkeypatch.setattr(repetitions, "REPETITION", Spy())
    cube_free = "".join(
        "ab"[n.bit_count() % 2] for n in range(100_000)
    )  # the Thue–Morse sequence has nothing three times in a row
    assert repetition_in(cube_free) == ""
    assert searched == []
    assert repetition_in("." * 10 + cube_free) == ""
    assert repetition_in("one two. " * 30_000).startswith("one two. one two.")
    assert [len(text) for text in searched] == 2 * [repetitions.MAX_SEARCHED + 1]
    words = random.Random(5).sample(range(10**6, 10**7), 9)
    unit = " ".join(map(str, words)).replace("1", "x")
    assert len(unit) < repetitions.MAX_UNIT
    assert repetition_in(3 * f"{unit} ") == (3 * f"{unit} ").strip()
    assert repetition_in(3 * (2 * f"{unit} " + ".")) == ""  # the unit is longer than `MAX_UNIT`


def test_the_regular_expression_is_rarely_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repetitions, "REPETITION", None)
    assert repetition_in("Ein Mann in einem blauen Hemd steht auf einer Leiter und putzt ein Fenster.") == ""
    assert repetition_in(" ".join(f"Ein Mann sieht einen Hund und {number} Katzen." for number in range(99))) == ""


def test_a_translation_that_repeats_itself_causes_a_warning(
    translator: TorchTranslator, caplog: pytest.LogCaptureFixture
) -> None:
    found = list(translator.translate(LINES, GREEDY))
    repeating = [n for n, one in enumerate(found, 1) if repetition_in(one.text)]
    assert 1 < len(repeating) < len(LINES)  # otherwise the test shows nothing
    (message,) = {m for m in caplog.messages if "repeats itself" in m}
    assert message.startswith(f"lines {', '.join(map(str, repeating[:10]))}")
    assert message.endswith("--no-repeat-ngram 3 may prevent that")
    caplog.clear()
    assert not any(repetition_in(one.text) for one in translator.translate(LINES, replace(GREEDY, no_repeat_ngram=2)))
    assert "repeats itself" not in caplog.text


def test_a_repetition_of_the_source_causes_no_warning(
    translator: TorchTranslator, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    line = next(one.source for one in run(translator, LINES, GREEDY) if repetition_in(one.text))
    list(translator.translate([line], GREEDY))
    assert "line 1: the translation repeats itself" in caplog.text
    caplog.clear()
    monkeypatch.setattr(translator.tokenizer, "encode_src", lambda lines: [[3]] * len(lines))
    list(translator.translate(["blablablabla"], GREEDY))
    assert "repeats itself" not in caplog.text


def test_a_beam_too_large_for_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = Options(beam_size=60, max_length=100)
    (found,) = toy().translate(["red dog."], wide)
    assert found.text
    monkeypatch.setattr(memory, "available", lambda: 1_000_000)
    with pytest.raises(StorageError, match=r"a beam of 60 needs about .* GB of memory"):
        list(toy().translate(["red dog."], wide))
    with pytest.raises(StorageError, match="a beam of 60"):
        list(toy().translate(["red dog."], replace(wide, terms=parse_terms(["red\tverde"], ""), terms_mode="hard")))
    assert list(toy().translate(["red dog."], Options(beam_size=4, max_length=100)))


def test_the_lines_of_an_argument_are_those_of_a_file(tmp_path: Path) -> None:
    content = "red\r\n\r\nblue\rsun \r\nmoon"
    (tmp_path / "text").write_text(content, encoding="utf-8", newline="")
    assert arguments([content]) == list(read_lines(tmp_path / "text")) == ["red", "", "blue\rsun ", "moon"]
    assert arguments(["red\r"]) == ["red"]  # as a shell passes the content of a file, without its last line feed


def test_notices_about_a_file_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    report_counts(Counts(notices=["\x1b[2J.txt: dropped the byte-order mark at its start"]))
    assert capsys.readouterr().err == "\\x1b[2J.txt: dropped the byte-order mark at its start\n"


@pytest.mark.parametrize(
    "options", [GREEDY, BEAM, SAMPLE, replace(BEAM, terms=parse_terms(["zzz\tuno"], ""), terms_mode="hard")]
)
@pytest.mark.parametrize("members", [1, 2])
def test_no_hypothesis_is_empty(options: Options, members: int) -> None:
    """Greedy search, beam search, sampling and required terms, with one model and with an ensemble."""
    trained = toy(bias=True)
    model = copy.deepcopy(trained.model)
    with torch.no_grad():
        model.output.bias[EOS] += 20  # nearly all of the probability
    translator = TorchTranslator(model, trained.tokenizer, 64, others=(members - 1) * [model])
    lines = ["one red dog.", "zzz big cat."]
    for candidates in (one.candidates for one in run(translator, lines, options)):
        assert all(candidate.ids for candidate in candidates)
    of_any_length = run(translator, lines, replace(options, min_length=0))
    assert not of_any_length[0].candidates[0].ids


LOOP = "ein Mann und ein Mann und ein Mann und ein Mann und"
SHORTER_LOOP = "ein Mann ein Mann ein Mann"


class Looping(Backend):
    """Finds other hypotheses, each with a probability, where n-grams of some size are blocked."""

    def __init__(self, by_ngram: dict[int, Sequence[tuple[str, float]]], *, best_only: bool = False):
        super().__init__(toy().tokenizer, toy_info())
        self.by_ngram = by_ngram
        self.best_only = best_only
        self.searches: list[Options] = []

    def max_batch_tokens(self, options: Options) -> int:
        return 1000

    def search(self, sources: Sequence[SourceLine], options: Options) -> Any:
        self.searches.append(options)
        size = max(size for size in self.by_ngram if size in (0, options.no_repeat_ngram))
        found = scripted(*self.by_ngram[size])
        is_short = self.best_only and options.n_best == 1 and not options.scores
        return [found[:1] if is_short else found] * len(sources)

    @property
    def ngrams(self) -> list[int]:
        return [options.no_repeat_ngram for options in self.searches]


REPAIR = Options(repair=True)


@pytest.mark.parametrize("bad", [LOOP, "", " "])
@pytest.mark.parametrize("n_best", [1, 2, 3])
@pytest.mark.parametrize("best_only", [False, True])
def test_the_next_hypothesis_takes_the_place_of_one_that_fails(bad: str, n_best: int, best_only: bool) -> None:
    hypotheses = [(bad, 0.4), ("ein Hund", 0.2), (SHORTER_LOOP, 0.1), ("eine Katze", 0.05)]
    backend = Looping({0: hypotheses}, best_only=best_only)
    options = replace(REPAIR, n_best=n_best, scores=n_best > 1)
    (one,) = run(ModelTranslator(backend), ["x"], options)
    usable = [("ein Hund", 0.2), ("eine Katze", 0.05)][:n_best]
    assert [(c.text, pytest.approx(math.exp(c.log_prob))) for c in one.candidates] == usable
    assert one.candidates[0].score == pytest.approx(math.log(0.2) / 2)
    assert set(backend.ngrams) == {0}
    (plain,) = run(ModelTranslator(Looping({0: hypotheses})), ["x"], replace(options, repair=False))
    assert plain.text == bad


@pytest.mark.parametrize(
    ("given", "solution", "expected"),
    [
        (0, 3, [0, 3]),
        (0, 2, [0, 3, 2]),
        (5, 3, [5, 3]),
        (3, 2, [3, 2]),
        (2, 1, [2]),
        (1, 3, [1]),
    ],
)
def test_a_search_without_repetitions_follows(
    given: int, solution: int, expected: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """It blocks the n-grams that the user blocks, and shorter ones."""
    loops = [(LOOP, 0.4), (SHORTER_LOOP, 0.2)]
    backend = Looping({0: loops, solution: [(LOOP, 0.3), ("ein Hund", 0.1)]})
    (one,) = ModelTranslator(backend).translate(["x"], replace(REPAIR, no_repeat_ngram=given))
    assert backend.ngrams == expected
    is_solved = solution in expected
    assert one.text == ("ein Hund" if is_solved else LOOP)
    assert one.candidates[0].log_prob == pytest.approx(math.log(0.1 if is_solved else 0.4))
    assert ("repeats itself" in caplog.text) != is_solved


def test_the_backend_of_a_translation_searches_again() -> None:
    """Another backend for the further searches would have to be loaded, for a few lines of a text."""
    backend = Looping({0: [(LOOP, 0.4)], 3: [("ein Hund", 0.1)]})
    other = Looping({0: [("eine Katze", 0.1)]})
    backend.for_options = lambda options: other if options.no_repeat_ngram else backend  # type: ignore[method-assign]
    assert run(ModelTranslator(backend), ["x"], REPAIR)[0].text == "ein Hund"
    assert not other.searches
    assert run(ModelTranslator(backend), ["x"], replace(REPAIR, no_repeat_ngram=3))[0].text == "eine Katze"


def test_the_best_hypothesis_stays_if_all_searches_fail(caplog: pytest.LogCaptureFixture) -> None:
    backend = Looping({0: [(LOOP, 0.4), (SHORTER_LOOP, 0.2)]})
    found = list(ModelTranslator(backend).translate(["x", "", "y"], REPAIR))
    assert [one.text for one in found] == [LOOP, "", LOOP]
    assert backend.ngrams == [0, 3, 2]
    assert f"lines 1, 3: the translation repeats itself ({LOOP[:40]}" in caplog.text
    assert "no-repeat-ngram" not in caplog.text


@pytest.mark.parametrize("options", [Options(), replace(REPAIR, prefix="one"), replace(REPAIR, sample=True)])
def test_what_is_not_repaired(options: Options) -> None:
    backend = Looping({0: [(LOOP, 0.4), ("ein Hund", 0.2)]})
    assert run(ModelTranslator(backend), ["x"], options)[0].text == LOOP
    assert backend.ngrams == [0]


@pytest.mark.parametrize(("line", "text"), [("dog " * 4, LOOP), ("1 + 1 =", "")])
def test_a_line_that_repeats_itself_or_has_no_words_is_not_repaired(line: str, text: str) -> None:
    backend = Looping({0: [(text, 0.4), ("ein Hund", 0.2)]})
    assert run(ModelTranslator(backend), [line], REPAIR)[0].text == text
    assert backend.ngrams == [0]


def test_lines_without_repetitions_are_searched_once() -> None:
    backend = Looping({0: [("ein Hund", 0.4), (LOOP, 0.2)]})
    assert [one.text for one in run(ModelTranslator(backend), ["x", "y"], REPAIR)] == ["ein Hund"] * 2
    assert len(backend.searches) == 1


@pytest.mark.parametrize("options", [replace(GREEDY, max_length=25), replace(BEAM, max_length=25)])
def test_repaired_translations_have_their_own_scores_and_alignments(
    translator: TorchTranslator, options: Options
) -> None:
    """A random model repeats itself often."""
    plain = run(translator, LINES, options)
    repaired = run(translator, LINES, replace(options, repair=True, alignments=True))
    changed = [one for one, before in zip(repaired, plain, strict=True) if one.text != before.text]
    assert changed, "the test needs a repetition"
    for one, before in zip(repaired, plain, strict=True):
        assert one.text == before.text or repetition_in(before.text)
        assert not repetition_in(one.text)
        (best,) = one.candidates
        (scored,) = log_probs(translator, [one.source], [best.ids])
        assert best.log_prob == pytest.approx(scored, abs=1e-6)
        assert best.score == pytest.approx(best.log_prob / best.penalty)
        assert best.alignment
        assert max(tgt for _, tgt in best.alignment) < len(one.text.split())


def log_probs(translator: TorchTranslator, lines: Sequence[str], targets: Sequence[Sequence[int]]) -> list[float]:
    """Return log P of each target with `</s>`, by teacher forcing."""
    found = []
    for src, ids in zip(translator.tokenizer.encode_src(lines), targets, strict=True):
        with torch.inference_mode():
            log_p = translator.model(torch.tensor([[*src, EOS]]), torch.tensor([[BOS, *ids]]))[0].log_softmax(-1)
        found.append(sum(log_p[t, token].item() for t, token in enumerate([*ids, EOS])))
    return found
