"""Terms: reading and finding them, and searches for translations that contain them."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from test_cli import mtcli
from test_decode import CLOSE, all_translations, build, draw_sources, limits, pad
from toy import PAIRS, save_toy, toy

from mtcli.errors import DataError, UsageError
from mtcli.inference.search.phrases import RequiredPhrases, State, WordParts
from mtcli.inference.search.required import required_search
from mtcli.inference.term_phrases import TermPhrases
from mtcli.inference.terms import Terms, read_terms, uses
from mtcli.inference.translation import Options

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


def test_scripts_without_spaces_are_searched_by_character(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, "東京\tTokyo\n京都\tKyoto\nカメラ\t相机\n")
    assert found(terms, "私は東京都でカメラを買う") == ["東京", "カメラ"]
    (match,) = terms.matches("カメラ")
    assert [use.form for use in uses([match], "我买了相机。")] == ["相机"]


def test_each_match_needs_a_place_of_its_own(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, "dog\tHund\tHunde\nhot dog\tHund Wurst\n")
    matches = terms.matches("dog, dog, hot dog")
    found = [(use.form, use.start) for use in uses(matches, "Hunde: Hundehütte, Hund Wurst.")]
    assert found == [("Hunde", 0), (None, None), ("Hund Wurst", 19)]


def test_a_phrase_within_a_longer_word_is_not_met() -> None:
    words = WordParts(begins=np.array([False] * 4 + [True] * 2), ends=np.ones(6, dtype=bool))
    phrases = RequiredPhrases([((3,), (3, 5)), ((3, 4),)], words)

    def after(*tokens: int) -> State:
        state = State()
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
    monkeypatch.setattr("mtcli.inference.search.required.MAX_WIDTH", 200)
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
                state = State()
                for token in hypothesis.ids:
                    state = phrases.after(state, token)
                assert state.met == phrases.all_met
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


def test_every_form_can_be_written(tmp_path: Path) -> None:
    phrases = TermPhrases(toy().tokenizer)
    forms = ["perro", "Älteste Straße", "C++", "%s", "3.14", "中国", "(x)", "😀"]
    for form in forms:
        terms = terms_of(tmp_path, f"dog\t{form}\n")
        required = phrases.of(terms.matches("a dog"))
        assert required.total > 0, form


def test_terms_without_training_need_a_search(tmp_path: Path) -> None:
    terms = terms_of(tmp_path, "dog\tcan\n")
    with pytest.raises(UsageError, match="not trained with terms"):
        toy().with_terms(Options(), terms, "soft")
    with pytest.raises(UsageError, match="omit --sample"):
        toy().with_terms(Options(sample=True), terms, "auto")


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
