"""Terms: reading and finding them, and searches for translations that contain them."""

import itertools
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from helpers.documents import identity
from helpers.harness import mtcli
from helpers.searches import CLOSE, all_translations, build, draw_sources, ids_of, limits, pad
from helpers.toy import PAIRS, SEVERAL_PAIRS, WORDS, ExportedTranslator, TorchTranslator, save_toy, several_toy, toy

from mtcli.config.schema import Config
from mtcli.corpus.batching import BatchPlan
from mtcli.corpus.cache.build import TERMS_FILE, build_data
from mtcli.corpus.cache.info import DataInfo
from mtcli.corpus.cache.prepare import prepare, reopen
from mtcli.corpus.variants import Variants
from mtcli.documents.lines import BySentence
from mtcli.errors import DataError, UsageError
from mtcli.evaluation.evaluate import EvaluationRequest, evaluate
from mtcli.exchange.export import export
from mtcli.model.transformer import Transformer
from mtcli.search.length import length_penalty
from mtcli.search.required import PhraseState, RequiredPhrases, WordParts, required_search
from mtcli.search.step import Hypothesis
from mtcli.storage.model_file import load_model, model_bytes, parameters
from mtcli.terms import term_phrases
from mtcli.terms.annotation import (
    MIN_FREQUENT,
    NUM_TOKENS,
    TermAnnotator,
    TermInventor,
    annotators_to_json,
    translations,
    without_annotations,
)
from mtcli.terms.term_phrases import TermPhrases
from mtcli.terms.terms import Terms, parse_terms, read_terms, uses
from mtcli.text.languages import Direction
from mtcli.text.special_tokens import BOS, EOS
from mtcli.text.tokenizer.tokenizer import MARKER_BYTES, Annotation, Tokenizer, marker_id
from mtcli.text.words import continues_word
from mtcli.translate import windows
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.translation import Options
from mtcli.translate.windows import Reading, SourceLine

LINES = [src for src, _ in PAIRS[::31]]
NO_WORDS = WordParts(begins=np.zeros(6, dtype=bool), ends=np.zeros(6, dtype=bool))


def terms_of(folder: Path, text: str) -> Terms:
    path = folder / "terms.tsv"
    path.write_text(text, encoding="utf-8")
    return read_terms(path)


def found(terms: Terms, line: str) -> list[str]:
    return [line[match.start : match.end] for match in terms.matches(line)]


def test_a_file_has_translations_other_forms_and_terms_to_copy(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, "bank\tUfer\tUfers| Ufern|Ufer\n\nMoscow\nACME\tnever-translate\r\n")
    assert [(term.source, term.forms) for term in terms.terms] == [
        ("bank", ("Ufer", "Ufers", "Ufern")),
        ("Moscow", ()),
        ("ACME", ()),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a\tb\tc\td\n", r":1: 4 columns"),
        ("a\tb\n\tx\n", r":2: no source term"),
        ("a\tb\nc\td\na\tx\n", r":3: 'a' has another translation in line 1"),
        ("a\t\tforms\n", r":1: other forms of a term without a translation"),
        ("\n \n", r"no terms"),
        ("a" * 301, r":1: 301 characters \(a{20} …\); the limit of a term is 300"),
        ("a\t" + "b " * 151, r":1: 301 characters"),
        ("a\tb\t" + "|".join("c" * 301), r":1: 302 forms of a translation; the limit is 100"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        terms_of(tmp_path, text)


def test_terms_are_whole_words_and_the_longest_is_found_first(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, "new york\ta\nyork times square\tb\ntimes\tc\nbank\td\n")
    assert found(terms, "New  York, York Times Square; times (bank) banks embank") == [
        "New  York", "York Times Square", "times", "bank",
    ]  # fmt: skip
    assert found(terms, "the New York Times Square") == ["York Times Square"]


def test_a_term_with_capitals_is_found_as_written_and_preferred(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, "Turkey\tTürkei\nturkey\tTruthahn\nUS\tUSA\n")
    forms = [match.forms[0] for match in terms.matches("Turkey eats turkey and TURKEY with us in the US")]
    assert forms == ["Türkei", "Truthahn", "Truthahn", "USA"]


def test_a_form_without_capitals_may_begin_a_sentence(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, "bank\tla rive\nphone\tiPhone\n")
    assert [match.forms for match in terms.matches("Bank and bank, Phone")] == [
        ("La rive", "la rive"), ("la rive",), ("iPhone",),
    ]  # fmt: skip
    (match,) = terms.matches("bank")
    assert [uses([match], text)[0].start for text in ("La rive", "à La rive", "à la rive")] == [0, None, 2]
    assert [uses([match], text)[0].start for text in ("¿La rive?", "« La rive »", "1. à La rive")] == [1, 2, None]


def test_terms_are_found_in_capitals_and_title_case(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, "Bank of England\tx\niPhone\ty\nhot dog\tz\nStraße\tw\nWaters\tv\n")
    line = "THE BANK OF ENGLAND, The Bank Of England; IPHONE iPHONE HOT DOG, Hot Dog STRASSE, waters bank of England"
    assert found(terms, line) == [
        "BANK OF ENGLAND", "Bank Of England", "IPHONE", "iPHONE", "HOT DOG", "Hot Dog", "STRASSE",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("term", "capitals"),
    [("τράπεζα", "ΤΡΑΠΕΖΑ"), ("iyi", "İYİ"), ("İzmir", "İZMİR"), ("ılık", "ILIK")],
)
def test_capitals_are_those_of_any_language(tmp_path: Path, term: str, capitals: str) -> None:
    assert found(terms_of(tmp_path, f"{term}\tx\n"), f"A {capitals}.") == [capitals]
    (match,) = terms_of(tmp_path, f"bank\t{term}\n").matches("THE BANK")
    assert [use.start for use in uses([match], f"A {capitals}.")] == [2]


def test_accents_distinguish_words(tmp_path: Path) -> None:
    assert found(terms_of(tmp_path, "ή\tor\n"), "η Ή ή") == ["Ή", "ή"]


def test_a_form_is_in_capitals_only_if_its_source_is(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, "bank\tla rive\n")
    (match,) = terms.matches("THE BANK")
    assert match.forms[-1] == "la rive", "the model is given the line in lower case"
    assert [use.form for use in uses([match], "À LA RIVE")] == ["LA RIVE"]
    (match,) = terms.matches("the bank")
    assert [use.form for use in uses([match], "À LA RIVE")] == [None]


def test_the_language_tag_of_a_line_is_no_term(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, "it\tesso\n")
    assert [match.start for match in terms.matches(">>it<< Is it good?")] == [10]
    assert [match.start for match in terms.matches(">>pt_BR<< it")] == [10]
    assert [match.start for match in terms.matches("Is >>it<< good?")] == [5]


def test_protected_text_has_no_terms(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, "dog\tcan\nbig red\tx\nNode.js\ty\nred.net framework\tz\n")
    line = "http://a.b/dog, dog@dog.com, www.dog.com, @dog, {dog}, `dog`, </dog> big red.net dog"
    assert found(terms, line) == ["dog"]
    assert terms.matches(line)[0].start == len(line) - 3
    assert found(terms, "a Node.js, red.net framework") == ["Node.js", "red.net framework"], "a term may have some"
    (match,) = terms.matches("dog")
    assert uses([match], "http://can.es/can can@can.es")[0].start is None
    assert uses([match], "http://can.es/can can.")[0].start == 18


CASED_TERMS = "red\tverde\nDog\tCan\niPhone\nbig\tel ojo\n"


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("ONE RED DOG.", ["VERDE", "CAN"]),
        ("THE iPHONE SEES A BIG DOG.", ["iPHONE", "EL OJO", "CAN"]),
        ("IPHONE, SEE http://Red.dog/DOG AND BIG", ["IPHONE", "EL OJO"]),
        ("One Red Dog Sees Big Cat.", ["verde", "Can", "el ojo"]),
        ("one red Dog. THE CAT SEES RED.", ["verde", "Can", "VERDE"]),
        ("RED CAFE\u0301 DOG.", ["VERDE", "CAN"]),
    ],
)
def test_terms_are_used_in_capitals_and_title_case(tmp_path: Path, line: str, written: list[str]) -> None:
    terms = terms_of(tmp_path, CASED_TERMS)
    options = toy().with_terms(Options(), terms, "auto")
    (translation,) = BySentence(toy(), "en", "es").translate([line], options, Reading(warn=False, quiet=True))
    assert [use.form for use in translation.terms] == written
    for use in translation.terms:
        assert use.start is not None
        assert translation.text[use.start :].startswith(str(use.form))


def test_a_recased_line_has_the_terms_as_the_file_has_them(tmp_path: Path) -> None:
    translator = identity()
    options = replace(Options(), terms=terms_of(tmp_path, CASED_TERMS))
    list(
        BySentence(translator, "en", "es").translate(
            ["IN RED IPHONE, DOG.", "in RED DOG."], options, Reading(quiet=True)
        )
    )
    assert translator.lines == ["In red IPHONE, Dog.", "in RED DOG."]


def test_scripts_without_spaces_are_searched_by_character(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, "東京\tTokyo\n京都\tKyoto\nカメラ\t相机\n")
    assert found(terms, "私は東京都でカメラを買う") == ["東京", "カメラ"]
    (match,) = terms.matches("カメラ")
    assert [use.form for use in uses([match], "我买了相机。")] == ["相机"]


@pytest.mark.parametrize(("term", "longer"), [("राज", "राजा"), ("வர", "வரும்"), ("كتاب", "كتابٌ"), ("e", "e\u0329")])
def test_vowel_signs_and_other_marks_belong_to_their_word(tmp_path: Path, term: str, longer: str) -> None:
    terms = terms_of(tmp_path, f"{term}\tx\nx\t{term}\n")
    assert found(terms, f"({term}) {longer}. {longer}{term} \u2764\ufe0f{term}") == [term, term]
    (match,) = terms.matches("x")
    assert uses([match], f"{longer}, {term}.")[0].start == len(longer) + 2
    assert uses([match], longer)[0].start is None
    assert continues_word(longer[len(term) :])


def test_each_match_needs_a_place_of_its_own(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, "dog\tHund\tHunde\nhot dog\tHund Wurst\n")
    matches = terms.matches("dog, dog, hot dog")
    found = [(use.form, use.start) for use in uses(matches, "Hunde: Hundehütte, Hund Wurst.")]
    assert found == [("Hunde", 0), (None, None), ("Hund Wurst", 19)]


def test_a_phrase_within_a_longer_word_is_not_met() -> None:
    words = WordParts(begins=np.array([False] * 4 + [True] * 2), ends=np.ones(6, dtype=bool))
    phrases = RequiredPhrases([((3,), (3, 5)), ((3, 4),)], words)

    def after(*tokens: int) -> PhraseState:
        state = PhraseState()
        for token in tokens:
            state = phrases.after(state, token)
        return state

    assert phrases.remaining(after()) == 3
    assert after(3).met == 0b01
    assert after(3, 5).met == 0b01
    assert after(3, 4).met == 0b10
    assert after(3, 4, 3).met == 0b11
    assert after(3, 4, 5).met == 0b00, "the token 5 extends the word"
    assert phrases.next_tokens(after(3, 4)) == [3]
    assert phrases.next_tokens(after(3, 4, 3)) == []


def contains(ids: Sequence[int], phrase: Sequence[int]) -> bool:
    return any(tuple(ids[i : i + len(phrase)]) == tuple(phrase) for i in range(len(ids)))


@pytest.mark.parametrize("alternatives", [[((5,),)], [((3, 4),)], [((4, 4), (5, 3, 3))], [((3,),), ((5,),)]])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_wide_search_equals_enumeration(
    seed: int, alternatives: list[tuple[tuple[int, ...], ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtcli.search.required.MAX_WIDTH", 200)
    model = build(seed)
    sources = draw_sources(seed, lengths=(3, 1))
    phrases = RequiredPhrases(alternatives, NO_WORDS)
    results = required_search(model, pad(sources), limits(2, 3), [phrases] * 2, beam_size=64, alpha=0.6)
    for source, hypotheses in zip(sources, results, strict=True):
        expected = [
            h
            for h in all_translations(model, source, 3, 0.6)
            if all(any(contains(h.ids, tokens) for tokens in phrase) for phrase in alternatives)
        ]
        assert sorted(h.ids for h in hypotheses) == sorted(h.ids for h in expected)
        assert hypotheses[0].ids == expected[0].ids
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in expected], abs=CLOSE)


def num_begun(ids: Sequence[int], phrase: Sequence[int]) -> int:
    """Return how many tokens of a phrase a hypothesis ends with."""
    return max(n for n in range(len(phrase)) if n <= len(ids) and tuple(ids[len(ids) - n :]) == tuple(phrase[:n]))


def num_lacking(ids: Sequence[int], phrases: Sequence[Sequence[int]]) -> int:
    """Return how many more tokens a hypothesis needs to contain all phrases, which have no common tokens."""
    lacking = [phrase for phrase in phrases if not contains(ids, phrase)]
    return sum(map(len, lacking)) - max((num_begun(ids, phrase) for phrase in lacking), default=0)


def repeats_ngram(ids: Sequence[int], n: int) -> bool:
    """Return True if the last n tokens occur before."""
    ngrams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return 0 < n < len(ids) and ngrams[-1] in ngrams[:-1]


def plain_required_search(
    model: Transformer,
    source: Sequence[int],
    phrases: Sequence[Sequence[int]],
    prefix: Sequence[int],
    *,
    W: int,
    most: int,
    alpha: float,
    ngram: int,
) -> list[Hypothesis]:
    """`required_search` as its docstrings describe it, for one sentence, with lists and without a cache."""
    total = sum(map(len, phrases))
    most = max(most, len(prefix) + total)
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[Hypothesis] = []
    is_complete = False
    while live and not is_complete:
        banks: dict[int, list[tuple[float, list[int]]]] = {}
        tgt = torch.tensor([[BOS, *ids] for _, ids in live])
        log_probs = model(torch.tensor([source] * len(live)), tgt).log_softmax(-1)[:, -1].tolist()
        for (log_prob, ids), log_p in zip(live, log_probs, strict=True):
            if len(ids) < len(prefix):
                allowed = [prefix[len(ids)]]
                chosen = set(allowed)
            else:
                allowed = [EOS] if len(ids) == most else list(range(2, len(log_p)))
                free = [token for token in allowed if not repeats_ngram([*ids, token], ngram)]
                chosen = set(sorted(free, key=lambda token: -log_p[token])[: W + 1])
            for phrase in phrases:
                if not contains(ids, phrase):
                    chosen |= {phrase[0], phrase[num_begun(ids, phrase)]}.intersection(allowed)
            for token in chosen:
                grown = [*ids, token]
                lacking = num_lacking(grown, phrases)
                if lacking <= (0 if token == EOS else most - len(grown)):
                    banks.setdefault(lacking, []).append((log_prob + log_p[token], grown))
        for bank in banks.values():
            bank.sort(key=lambda h: -h[0])
        for log_prob, ids in banks.get(0, [])[:W]:
            if ids[-1] == EOS:
                finished.append(Hypothesis(ids[:-1], log_prob, length_penalty(len(ids), alpha)))
        unfinished = [[h for h in banks[lacking] if h[1][-1] != EOS] for lacking in sorted(banks)]
        in_turn = [h for rank in itertools.zip_longest(*unfinished) for h in rank if h is not None]
        live = in_turn[: 2 * (W + total)]
        if live and len(finished) >= W:
            best_score = max(log_prob for log_prob, _ in live) / length_penalty(len(live[0][1]), alpha)
            is_complete = max(h.score for h in finished) >= best_score
    return sorted(finished, key=lambda h: -h.score)


@torch.inference_mode()
@pytest.mark.parametrize(("W", "alpha", "ngram"), [(1, 0.6, 0), (2, 0.0, 0), (2, 0.6, 2), (3, 3.0, 0), (2, 3.0, 1)])
def test_a_narrow_search_equals_a_plain_implementation(W: int, alpha: float, ngram: int) -> None:
    """In a batch of sentences with different phrases and prefixes."""
    V = 9
    words = WordParts(begins=np.zeros(V, dtype=bool), ends=np.zeros(V, dtype=bool))
    wanted = ([(3, 4)], [(5,)], [(4, 4), (5,)], [(3,), (4, 5)], [(4, 3), (5, 8)])
    prefixes = ((), (6, 6, 6, 6), (7,), (), (3, 6, 7))
    required = [RequiredPhrases([(phrase,) for phrase in phrases], words) for phrases in wanted]
    for seed in range(4):
        model = build(seed, V=V)
        sources = draw_sources(seed, V=V)
        constraints = limits(5, 6, prefix=prefixes, no_repeat_ngram=ngram)
        results = required_search(model, pad(sources), constraints, required, beam_size=W, alpha=alpha)
        for source, phrases, prefix, found in zip(sources, wanted, prefixes, results, strict=True):
            expected = plain_required_search(model, source, phrases, prefix, W=W, most=6, alpha=alpha, ngram=ngram)
            assert ids_of(found) == ids_of(expected), (seed, phrases, prefix)
            assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=CLOSE)


def test_batch_mates_change_nothing_and_every_translation_contains_its_phrases() -> None:
    model = build(4)
    sources = draw_sources(4)
    required = [
        RequiredPhrases(phrases, NO_WORDS)
        for phrases in ([((3, 3),)], [((5,),), ((5,),)], [((4, 5, 3),)], [((3,),)], [((5, 5, 5),), ((4,),)])
    ]
    for W, ngram in itertools.product((1, 3), (0, 2)):
        options = {"no_repeat_ngram": ngram}
        together = required_search(model, pad(sources), limits(5, 6, **options), required, beam_size=W, alpha=0.6)
        for source, phrases, hypotheses in zip(sources, required, together, strict=True):
            (alone,) = required_search(model, pad([source]), limits(1, 6, **options), [phrases], beam_size=W, alpha=0.6)
            assert alone[0].ids == hypotheses[0].ids
            for hypothesis in hypotheses:
                state = PhraseState()
                for token in hypothesis.ids:
                    state = phrases.after(state, token)
                assert not phrases.remaining(state)
                assert len(hypothesis.ids) <= 6


def test_phrases_have_room_beyond_the_maximum_length_and_the_prefix() -> None:
    model = build(2)
    (source,) = draw_sources(2, lengths=(3,))
    phrases = RequiredPhrases([((5, 5, 5),)], NO_WORDS)
    for prefix, expected in (((), [5, 5, 5]), ((3, 4), [3, 4, 5, 5, 5])):
        short = limits(1, 1, prefix=[prefix])
        (hypotheses,) = required_search(model, pad([source]), short, [phrases], beam_size=2, alpha=0.6)
        assert hypotheses[0].ids == expected


@pytest.mark.parametrize(
    "options", [Options(), Options(beam_size=1), Options(n_best=3), Options(prefix="uno")], ids=str
)
def test_hard_terms_are_always_used(tmp_path: Path, options: Options) -> None:
    translator = toy()
    terms = terms_of(tmp_path, "red\tverde\tverdes\ndog\tel can\nbig\n")
    hard = translator.with_terms(options, terms, "auto")
    plain = list(translator.translate(LINES, options))
    num_used = 0
    for before, translation in zip(plain, translator.translate(LINES, hard), strict=True):
        for candidate in translation.candidates:
            assert all(use.form for use in uses(terms.matches(translation.source), candidate.text))
        num_used += len(translation.terms)
        if not translation.terms:
            assert translation.text == before.text
    assert num_used >= len(LINES)


@pytest.mark.parametrize("forms", [("verde", "can"), ("abc", "def"), ("3.14", "can"), ("C++", "中国")], ids=str)
def test_terms_have_room_with_a_space_between_them(tmp_path: Path, forms: tuple[str, str]) -> None:
    translator = toy()
    terms = terms_of(tmp_path, f"red\t{forms[0]}\ndog\t{forms[1]}\n")
    options = translator.with_terms(Options(beam_size=2, max_length=1), terms, "hard")
    found = translator.translate(["red dog red.", "dog red."], options, Reading(warn=False))
    used = [[use.form for use in translation.terms] for translation in found]
    red, dog = forms
    assert used == [[red, dog, red], [dog, red]]


def test_terms_beyond_the_end_of_a_shortened_line_are_not_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows, "MAX_LINE_TOKENS", 8)
    terms = terms_of(tmp_path, "dog\tcan\nred\tverde\n")
    options = toy().with_terms(Options(max_length=10), terms, "hard")
    (found,) = toy().translate(["dog one" + " one" * 20 + " red"], options, Reading(warn=False))
    assert [use.form for use in found.terms] == ["can"]
    assert "verde" not in found.text


def test_every_form_can_be_written(tmp_path: Path) -> None:
    phrases = TermPhrases(toy().tokenizer)
    forms = ["perro", "Älteste Straße", "C++", "%s", "3.14", "中国", "(x)", "😀"]
    for form in forms:
        terms = terms_of(tmp_path, f"dog\t{form}\n")
        required = phrases.of(terms.matches("a dog"))
        assert required.total > 0, form


def test_the_tokens_that_a_translation_must_contain_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phrases = TermPhrases(toy().tokenizer)
    terms = terms_of(tmp_path, "".join(f"{word}\tla casa\n" for word in ("one", "two", "three")))
    matches = terms.matches("one two three")
    (first, _, _) = phrases.of(matches).lengths
    monkeypatch.setattr(term_phrases, "MAX_TOKENS", 2 * first + 1)
    assert phrases.of(matches).lengths == [first, first]


def test_terms_without_training_need_a_search(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, "dog\tcan\n")
    with pytest.raises(UsageError, match="not trained with terms"):
        toy().with_terms(Options(), terms, "soft")
    with pytest.raises(UsageError, match="omit --sample"):
        toy().with_terms(Options(sample=True), terms, "auto")
    trained = TorchTranslator(toy().model, toy().tokenizer, longest_src=64, terms=True)
    for translator in (toy(), trained):
        with pytest.raises(UsageError, match=r"^--terms-mode hard: hard terms need a search; omit --sample$"):
            translator.with_terms(Options(sample=True), terms, "hard")


def test_an_exported_model_refuses_to_require_terms(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    (tmp_path / "run").mkdir()
    export(save_toy(tmp_path / "run"), "ctranslate2", tmp_path / "exported")
    engine = ExportedTranslator(tmp_path / "exported", "cpu")
    terms = terms_of(tmp_path, "dog\tcan\n")
    with pytest.raises(UsageError, match="--terms: this exported model was not trained with terms; give the run"):
        engine.with_terms(Options(), terms, "auto")
    engine.backend.info = engine.backend.info.model_copy(update={"terms": True})
    with pytest.raises(UsageError, match="--terms-mode hard: not with an exported model"):
        engine.with_terms(Options(), terms, "hard")
    assert engine.with_terms(Options(), terms, "auto").terms_mode == "soft"


def test_the_command_reports_the_terms(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    run = save_toy(tmp_path / "run")
    (tmp_path / "terms.tsv").write_text("dog\tcan\ncat\tgata\n")
    (tmp_path / "in.en").write_text("one red dog.\n\nbig big one.\ndog cat dog.\n")
    args = ["-i", "in.en", "--model", run, "--terms", "terms.tsv", "--terms-report", "report.tsv", "--format", "json"]
    result = mtcli("translate", *args, "-o", "out.jsonl", cwd=tmp_path)
    assert b"terms: 4 of 4 matches used" in result.stderr
    rows = [line.split("\t") for line in (tmp_path / "report.tsv").read_text().splitlines()]
    assert rows[0] == ["line", "source", "target", "used", "source_start", "target_start"]
    assert [row[:5] for row in rows[1:]] == [
        ["1", "dog", "can", "yes", "8"], ["4", "dog", "can", "yes", "0"], ["4", "cat", "gata", "yes", "4"],
        ["4", "dog", "can", "yes", "8"],
    ]  # fmt: skip
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [len(record.get("terms", [])) for record in records] == [1, 0, 0, 3]
    for line, source, target, _, source_start, target_start in rows[1:]:
        record = records[int(line) - 1]
        assert record["source"][int(source_start) :].startswith(source)
        assert record["translation"][int(target_start) :].startswith(target)


def test_the_report_of_a_document_has_each_sentence_once(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    run = save_toy(tmp_path / "run")
    (tmp_path / "terms.tsv").write_text("dog\tcan\nred\tverde\n")
    sentences = ["**red** dog.", "big dog.", "one %s %d red dog.", "http://red.dog/dog big red."]
    (tmp_path / "in.md").write_text("\n\n".join(sentences))
    args = ["-i", "in.md", "--model", run, "--terms", "terms.tsv", "--terms-report", "report.tsv"]
    result = mtcli("translate", *args, "-o", "out.md", cwd=tmp_path)
    rows = [line.split("\t") for line in (tmp_path / "report.tsv").read_text().splitlines()[1:]]
    expected = [("1", "red"), ("1", "dog"), ("2", "dog"), ("3", "red"), ("3", "dog"), ("4", "red")]
    assert [(line, source) for line, source, *_ in rows] == expected
    assert b" of 6 matches used" in result.stderr
    translations = (tmp_path / "out.md").read_text().replace("**", "").split("\n\n")
    for line, source, target, used, source_start, target_start in rows:
        sentence = sentences[int(line) - 1].replace("**", "")
        assert sentence[int(source_start) :].startswith(source)
        assert used == "no" or translations[int(line) - 1][int(target_start) :].startswith(target)


def test_white_space_in_a_copied_term_is_a_space(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, "red dog\n")
    (match,) = terms.matches("a red\t dog")
    assert match.forms == ("red dog",)


def marked(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Return ids as text, with markers in brackets."""
    names = {marker_id(name): f"[{name}]" for name in MARKER_BYTES}
    return "".join(names.get(i) or tokenizer.src_tokens([i])[0] for i in ids)


def test_annotations_are_written_beside_their_terms() -> None:
    tokenizer = toy().tokenizer
    line = "<bt> one dog.cat sees."
    annotations = [Annotation(9, 12, "un gato"), Annotation(13, 16, "gata")]
    annotated, plain = tokenizer.encode_annotated([line, "one dog."], [annotations, []])
    expected = "[<bt>]▁one[<term>]▁dog[<translation>]▁un▁gato[</term>]▁.[<term>]▁cat[<translation>]▁gata[</term>]▁sees."
    assert marked(tokenizer, annotated) == expected
    assert plain == tokenizer.encode_src(["one dog."])[0]


def test_a_tag_is_no_part_of_the_terms() -> None:
    tokenizer = toy().tokenizer
    annotated, literal = tokenizer.encode_annotated(
        ["<bt> dog sees.", "dog <bt> sees."], [[Annotation(5, 8, "gato")], [Annotation(0, 3, "gato")]]
    )
    term = "[<term>]▁dog[<translation>]▁gato[</term>]"
    assert marked(tokenizer, annotated) == f"[<bt>]{term}▁sees."
    assert marked(tokenizer, literal).startswith(f"{term}▁<"), "only at the start of a line is it a tag"
    annotator = TermAnnotator({"bt": {"bt": 0.9}, "dog": {"gato": 0.9}})
    assert annotator.terms(("<bt> dog", "gato bt")) == [Annotation(5, 8, "gato")]
    tagged = [(f"<bt> the {src}", f"el {tgt} x{number}") for number, (src, tgt) in enumerate(WORDS.items())]
    assert "bt" not in TermAnnotator.learn(tagged).partners


def test_terms_of_training_pairs_translate_each_other() -> None:
    partners = {src: {tgt: 0.9} for src, tgt in WORDS.items()} | {"the": {"el": 0.5}}
    annotator = TermAnnotator(partners)
    pair = ("The red dog, a cat, a cat.", "El perro rojo, un gato, un gato.")
    words = [(pair[0][term.start : term.end], term.target) for term in annotator.terms(pair)]
    assert words == [("The", "El"), ("red", "rojo"), ("dog", "perro")], "which cat is which is unknown"
    assert [term.target for term in annotator.terms(("red dog", "un rojo perro"))] == ["rojo perro"]


def test_words_alone_are_whole_words_in_the_same_place_of_a_sentence() -> None:
    partners = {src: {tgt: 0.9} for src, tgt in WORDS.items()} | {"the": {"el": 0.5}}
    annotator = TermAnnotator(partners)
    assert annotator.words_alone(("The red dog, a cat.", "El perro, un gato rojo.")) == [
        ("The", "El"),
        ("red", "rojo"),
        ("dog", "perro"),
        ("cat", "gato"),
    ]
    assert annotator.words_alone(("A dog-cat. A red's dog (cat)", "El gato-perro. Perro. (gato)")) == []
    assert annotator.words_alone(("Dog. Cat!", "Un perro. Gato!")) == [("Cat", "Gato")], "a capital by its place"


def test_associations_are_learnt_from_pairs() -> None:
    sample = [(f"the {a} {b}", f"el {WORDS[a]} {WORDS[b]}") for a in WORDS for b in WORDS if a != b]
    partners = TermAnnotator.learn(sample).partners
    assert {src: max(found, key=found.__getitem__) for src, found in partners.items()} == WORDS
    long_line = " ".join(map(str, range(300)))
    assert TermAnnotator.learn([*sample, (long_line, long_line)]).partners.keys() == partners.keys()


def test_frequent_words_of_either_side_are_no_terms() -> None:
    with_both = [(f"red {number}", f"rojo x{number}") for number in range(MIN_FREQUENT)]
    assert TermAnnotator.learn(with_both).partners["red"]["rojo"] == 1.0
    frequent_target = [*with_both, *[(f"blue{number}", "rojo") for number in range(MIN_FREQUENT)]]
    assert "red" not in TermAnnotator.learn(frequent_target).partners
    frequent_source = [*with_both, *[("red", f"azul{number}") for number in range(MIN_FREQUENT)]]
    assert "red" not in TermAnnotator.learn(frequent_source).partners


def test_invented_translations_are_the_same_on_both_sides() -> None:
    tokenizer = toy().tokenizer
    annotations = [Annotation(4, 7, "perro"), Annotation(8, 13, "gato rojo")]
    (src,) = tokenizer.encode_annotated(["one dog a cat."], [annotations])
    (tgt,) = tokenizer.encode_tgt(["un gato rojo y perro"])
    inventor = TermInventor(tokenizer, share=1)
    new_src, new_tgt = inventor.replaced(src, tgt, Random(1))
    assert (new_src, new_tgt) == inventor.replaced(src, tgt, Random(1)), "the choice depends on the random numbers only"
    dog, cat = [new_src[start:end] for start, end in translations(new_src)]
    start, middle = tokenizer.encode_tgt(["un", "y"])
    assert new_tgt == [*start, *cat, *middle, *dog]
    assert without_translations(new_src) == without_translations(src)
    for tokens in (dog, cat):
        assert NUM_TOKENS[0] <= len(tokens) <= NUM_TOKENS[1]
        assert all(text.isalpha() for text in tokenizer.decode([tokens])[0].split())


def without_translations(src: list[int]) -> list[int]:
    kept = []
    after = 0
    for start, end in translations(src):
        kept += src[after:start]
        after = end
    return kept + src[after:]


def test_a_translation_at_an_uncertain_place_is_kept() -> None:
    tokenizer = toy().tokenizer
    inventor = TermInventor(tokenizer, share=1)
    (src,) = tokenizer.encode_annotated(["dog a cat"], [[Annotation(0, 3, "perro"), Annotation(6, 9, "gato")]])
    for target, number_kept in (("perro y perro", 2), ("perro y gato y gato", 1), ("perro y gato", 0)):
        (tgt,) = tokenizer.encode_tgt([target])
        new_src, new_tgt = inventor.replaced(src, tgt, Random(1))
        remaining = [new_src[start:end] for start, end in translations(new_src)]
        kept = [tokens for tokens in remaining if tokens in tokenizer.encode_tgt(["perro", "gato"])]
        assert len(kept) == number_kept
        assert new_tgt == tgt or len(kept) < 2


EN_ES = Direction("en", "es")


@pytest.fixture(scope="module")
def prepared_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, str]]]:
    """Return a run folder with data that has terms, and its training pairs."""
    folder = tmp_path_factory.mktemp("terms")
    pairs = [(f"{src} {number} x", f"{tgt} {number} x") for number, (src, tgt) in enumerate(PAIRS)]
    (folder / "pairs.tsv").write_text("".join(f"{src}\t{tgt}\n" for src, tgt in pairs))
    (folder / "few.tsv").write_text("a\tb\n")
    data = {"train": [f"{folder}/pairs.tsv"], "valid": f"{folder}/few.tsv", "test": f"{folder}/few.tsv", "terms": True}
    config = Config.model_validate({"data": data, "tokenizer": {"vocab_size": 320}})
    (folder / "run" / "data").mkdir(parents=True)
    build_data(config, folder / "run", None, None)
    return folder / "run", pairs


def test_each_epoch_annotates_other_pairs_and_has_all_of_them_as_they_are(
    prepared_run: tuple[Path, list[tuple[str, str]]],
) -> None:
    run, pairs = prepared_run
    data = reopen(run)
    plain = data.tokenizer.encode_src([src for src, _ in pairs])
    targets = data.tokenizer.encode_tgt([tgt for _, tgt in pairs])
    assert [data.train[row][0].tolist() for row in range(len(pairs))] == plain
    parts = [(len(data.train), EN_ES)]
    variants = Variants(data.tokenizer, parts, 256, seed=1, shares={}, annotators=data.terms)
    rows = np.arange(len(pairs))
    drawn = [variants.draw(data.train, rows, (1, epoch)) for epoch in (0, 0, 1)]
    assert [d.src[0].tolist() for d in drawn[:2]] == [drawn[0].src[0].tolist()] * 2
    assert drawn[0].origins.tolist() != drawn[2].origins.tolist()
    num_invented = 0
    sides = [np.split(ids, lengths.cumsum())[:-1] for ids, lengths in (drawn[0].src, drawn[0].tgt)]
    for origin, src, tgt in zip(drawn[0].origins, *(map(np.ndarray.tolist, side) for side in sides), strict=True):
        start, middle, end = (src.index(marker_id(name)) for name in ("<term>", "<translation>", "</term>"))
        assert start < middle < end
        assert contains(tgt, src[middle + 1 : end]), "the target has the translation of the term"
        num_invented += tgt != targets[origin]
    num_annotated = len(drawn[0].origins)
    assert 0.15 * len(pairs) < num_annotated < 0.35 * len(pairs)
    assert 0.3 * num_annotated < num_invented < 0.7 * num_annotated


def test_associations_are_kept_as_they_are(prepared_run: tuple[Path, list[tuple[str, str]]]) -> None:
    run, pairs = prepared_run
    found = reopen(run).terms
    assert found is not None
    assert found[EN_ES].partners
    assert found[EN_ES].partners == TermAnnotator.learn(pairs).partners
    (run / TERMS_FILE).write_bytes(b"{}x")
    with pytest.raises(DataError, match="cannot be read"):
        reopen(run)
    (run / TERMS_FILE).write_bytes(annotators_to_json(found))


def test_the_terms_of_each_direction_are_found_in_its_pairs(tmp_path: Path) -> None:
    table = []
    for (src, tgt), own in SEVERAL_PAIRS.items():
        path = tmp_path / f"{tgt}.tsv"
        path.write_text("".join(f"{ours} n{row} x\t{theirs} {tgt}{row} x\n" for row, (ours, theirs) in enumerate(own)))
        table.append({"train": str(path), "src": src, "tgt": tgt})
    data = {"corpora": table, "both_directions": True, "terms": True}
    config = Config.model_validate({"data": data, "tokenizer": {"vocab_size": 330}})
    (tmp_path / "run" / "data").mkdir(parents=True)
    build_data(config, tmp_path / "run", None, None)
    found = reopen(tmp_path / "run")
    assert found.terms is not None
    forward = [Direction("en", "es"), Direction("en", "xx")]
    assert {*found.terms} == {*forward, *(direction.reversed() for direction in forward)}
    assert [found.terms[direction].partners["n5"] for direction in forward] == [{"es5": 1.0}, {"xx5": 1.0}]
    assert found.terms[Direction("xx", "en")].partners["xx5"] == {"n5": 1.0}
    variants = BatchPlan.of(config, found).variants
    assert variants is not None
    rows = np.arange(len(found.train))
    drawn = variants.draw(found.train, rows, (1, 0))
    tags = found.tokenizer.tags
    sides = [np.split(ids, lengths.cumsum())[:-1] for ids, lengths in (drawn.src, drawn.tgt)]
    annotated = Counter[int]()
    for origin, src, tgt in zip(drawn.origins, *(map(np.ndarray.tolist, side) for side in sides), strict=True):
        if marker_id("<term>") in src:
            middle, end = (src.index(marker_id(name)) for name in ("<translation>", "</term>"))
            assert src[0] == found.train[int(origin)][0][0], "it keeps the tag of its direction"
            assert contains(tgt, src[middle + 1 : end])
            annotated[src[0]] += 1
    assert {*annotated} == {*tags.values()}
    (tmp_path / "run" / TERMS_FILE).write_text("[]")
    with pytest.raises(DataError, match="other directions"):
        reopen(tmp_path / "run")


def test_soft_terms_keep_the_tag_of_the_target_language() -> None:
    translator = TorchTranslator(several_toy().model, several_toy().tokenizer, longest_src=64, terms=True)
    searched: list[list[int]] = []
    search = type(translator.backend).search

    def recorded(sources: Sequence[SourceLine], options: Options) -> Any:
        searched.extend(list(source.ids) for source in sources)
        return search(translator.backend, sources, options)

    options = translator.with_terms(Options(to="xx"), parse_terms(["dog\tgod"], "terms.tsv"), "soft")
    translator.backend.search = recorded  # type: ignore[method-assign]
    list(translator.translate(["one red dog.", ">>es<< one red dog."], options, Reading(warn=False)))
    assert [ids[0] for ids in searched] == [translator.tokenizer.tags[name] for name in ("xx", "es")]
    assert all(marker_id("<term>") in ids for ids in searched)


def test_a_run_of_an_older_version_keeps_the_terms_that_it_was_prepared_with(
    prepared_run: tuple[Path, list[tuple[str, str]]], tmp_path: Path
) -> None:
    """Its pairs are annotated already, and it has no associations."""
    run, _ = prepared_run
    shutil.copytree(run, tmp_path / "run")
    info = DataInfo.read(tmp_path / "run")
    del info.files[TERMS_FILE]
    info.write(tmp_path / "run")
    (tmp_path / "run" / TERMS_FILE).unlink()
    config = Config.model_validate(info.settings)
    data = prepare(config, tmp_path / "run")
    assert data.terms is None
    assert DataInfo.read(tmp_path / "run") == info, "it was not built again"


def test_pairs_that_an_older_version_annotated_count_as_trained_on(tmp_path: Path) -> None:
    """It wrote the translations of terms into the pairs of the run."""
    tokenizer = toy().tokenizer
    annotated = tokenizer.encode_annotated(["one dog sees."], [[Annotation(4, 7, "perro")]])[0]
    values = np.array(annotated, dtype=np.int32)
    ids, offsets = without_annotations(values, np.array([0, len(values)], dtype=np.int32))
    assert ids.tolist() == tokenizer.encode_src(["one dog sees."])[0]
    assert offsets.tolist() == [0, len(ids)]


def test_terms_need_one_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("a\tb\nc\td\n")
    data = {"train": [f"{tmp_path}/pairs.tsv"], "terms": True}
    config = Config.model_validate({"data": data, "tokenizer": {"joint": False}})
    with pytest.raises(UsageError, match="needs one vocabulary"):
        build_data(config, tmp_path, None, None)


def test_soft_terms_change_only_the_sources_that_have_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator = TorchTranslator(toy().model, toy().tokenizer, longest_src=64, terms=True)
    terms = terms_of(tmp_path, "dog\tgato\n")
    options = translator.with_terms(Options(alignments=True), terms, "soft")
    assert options.terms_mode == "soft"
    searched: list[list[int]] = []
    search = translator.backend.search_ids

    def record(ids: Sequence[Sequence[int]], *args: Any, **how: Any) -> Any:
        searched.extend(list(row) for row in ids)
        return search(ids, *args, **how)

    monkeypatch.setattr(translator.backend, "search_ids", record)
    lines = ["one dog.", "red cat."]
    found = list(translator.translate(lines, options))
    texts = sorted(marked(translator.tokenizer, ids) for ids in searched)
    assert texts == ["▁one[<term>]▁dog[<translation>]▁gato[</term>]▁.", "▁red▁cat."]
    assert [len(translation.terms) for translation in found] == [1, 0]
    num_words = [len(translation.source.split()) for translation in found]
    assert all(max(src for src, _ in t.candidates[0].alignment) < n for t, n in zip(found, num_words, strict=True))


def test_terms_that_a_soft_translation_lacks_are_required(tmp_path: Path) -> None:
    # It was not trained with terms, so it ignores most annotations.
    translator = TorchTranslator(toy().model, toy().tokenizer, longest_src=64, terms=True)
    terms = terms_of(tmp_path, "red\tverde\n")
    soft = list(translator.translate(LINES, translator.with_terms(Options(), terms, "soft")))
    auto = list(translator.translate(LINES, translator.with_terms(Options(), terms, "auto")))
    lacking = [any(use.form is None for use in translation.terms) for translation in soft]
    assert any(lacking)
    for before, after, is_lacking in zip(soft, auto, lacking, strict=True):
        assert all(use.form for use in after.terms)
        assert is_lacking or after == before


def test_a_model_knows_that_it_was_trained_with_terms(tmp_path: Path) -> None:
    run = save_toy(tmp_path)
    model, info, _ = load_model(run)
    assert not PyTorchBackend.load(run, torch.device("cpu")).info.terms
    content = model_bytes(parameters(model), info.model_copy(update={"terms": True}))
    (run / "model.safetensors").write_bytes(content)
    assert PyTorchBackend.load(run, torch.device("cpu")).info.terms


def test_eval_counts_the_terms_in_translations(tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("dog\tcan\tcanes\ncat\tgato\n")
    (tmp_path / "in.en").write_text("one dog.\ndogs\ndog cat\n")
    (tmp_path / "out.es").write_text("uno canes.\ncan\ncanto gato\n")
    request = EvaluationRequest(
        models=(tmp_path,), model_is_named=False, src_file=f"{tmp_path}/in.en", ref_files=(f"{tmp_path}/out.es",),
        hyp_file=f"{tmp_path}/out.es", terms=tmp_path / "terms.tsv",
    )  # fmt: skip
    evaluation = evaluate(request)
    assert evaluation.to_text().splitlines()[-1] == "terms = 66.7 (2 of 3)"
    assert json.loads(evaluation.to_json())[-1] == {"name": "terms", "score": 66.7, "used": 2, "matched": 3}
    both = evaluate(replace(request, other_file=f"{tmp_path}/in.en"))
    assert both.to_text().splitlines()[-2:] == ["A: terms = 66.7 (2 of 3)", "B: terms = 0.0 (0 of 3)"]
    assert [score["used"] for score in json.loads(both.to_json())["terms"]] == [2, 0]
    (tmp_path / "terms.tsv").write_text("http\tx\nexample\tx\n")
    (tmp_path / "in.en").write_text("http://example.com\nA DOG\nhttp a@example.com\n")
    (tmp_path / "out.es").write_text("http://example.com\nUN CAN\nx\n")
    assert evaluate(request).to_text().splitlines()[-1] == "terms = 100.0 (1 of 1)", "addresses have no terms"
    (tmp_path / "terms.tsv").write_text("zebra\tcebra\n")
    none_found = evaluate(request)
    assert none_found.to_text().splitlines()[-1] == "terms: none in the sources"
    assert json.loads(none_found.to_json())[-1] == {"name": "terms", "score": None, "used": 0, "matched": 0}


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["--terms-mode", "hard"], "--terms-mode: only with --terms"),
        (["--terms", "terms.tsv", "--terms-report", "r.txt"], "write a .tsv or .jsonl file"),
        (["--terms", "terms.tsv", "--terms-report", "terms.tsv"], "is read by this command"),
    ],
)
def test_unsuitable_options_are_refused(tmp_path: Path, args: list[str], reason: str) -> None:
    (tmp_path / "terms.tsv").write_text("dog\tcan\n")
    result = mtcli("translate", "one dog", *args, cwd=tmp_path)
    assert result.returncode == 2
    assert reason in result.stderr.decode()
