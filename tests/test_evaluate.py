"""Every number and every byte of JSON is compared with the real `sacrebleu` command on the same files."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.harness import forks
from helpers.processes import HANGS

from mtcli.errors import DataError, UsageError
from mtcli.evaluation.comparison import compare
from mtcli.evaluation.metrics import (
    by_source_length,
    lengths_to_text,
    looks_tokenised,
    score,
    to_json,
    to_text,
)

REFERENCE = [
    "The cat sat on the mat, and it was happy.",
    "A small boy reads a book in the garden.",
    "It costs $3.50 at the shop – not a cent more!",
    "¿Dónde está la biblioteca del pueblo?",
    "",
    "She said: “I will come tomorrow.”",
] * 4
SECOND = [
    "A cat was sitting on the mat, happily.",
    "A little boy is reading a book in the garden.",
    "In the shop it costs $3.50 and no more!",
    "¿Dónde queda la biblioteca del pueblo?",
    "",
    "“I will come tomorrow”, she said.",
] * 4
HYPOTHESIS = [
    "the cat sat on the mat and was happy.",
    "A small boy reads the book in a garden.",
    "It costs $3.50 in the shop – not a cent more!  ",
    "¿Dónde está la Biblioteca del pueblo?",
    "Hello.",
    "",
] * 4
BETTER = [line.replace("the cat", "The cat").replace("the book", "a book") for line in HYPOTHESIS]
SOURCES = ["one two three", "w " * 6, "w " * 10, "w " * 11, "", "w " * 60] * 4


def sacrebleu(folder: Path, hypotheses: list[list[str]], references: list[list[str]], *options: str) -> str:
    names = []
    for i, lines in enumerate(references + hypotheses):
        names.append(f"text{i}")
        (folder / names[-1]).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    refs, hyps = names[: len(references)], names[len(references) :]
    process = forks.Process(target=run_sacrebleu, args=(folder, [*refs, "-i", *hyps, *options]))
    process.start()
    process.join(HANGS)
    assert process.exitcode == 0
    return (folder / "output").read_text(encoding="utf-8")


def run_sacrebleu(folder: Path, arguments: list[str]) -> None:
    """Run the command `sacrebleu` in a forked process, with its standard output in a file."""
    from sacrebleu.sacrebleu import main

    os.chdir(folder)
    os.dup2(os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
    sys.argv = ["sacrebleu", *arguments]
    main()


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({}, "-m bleu"),
        ({"metrics": ["chrf"]}, "-m chrf"),
        ({"metrics": ["ter"]}, "-m ter"),
        ({"metrics": ["ter", "bleu", "chrf", "bleu"]}, "-m bleu chrf ter"),
        ({"lowercase": True}, "-m bleu -lc"),
        ({"lowercase": True, "metrics": ["chrf", "ter"]}, "-m chrf ter --chrf-lowercase"),
        ({"tokenize": "none"}, "-m bleu -tok none"),
        ({"tokenize": "char", "lowercase": True}, "-m bleu -tok char -lc"),
        ({"confidence": True}, "-m bleu --confidence"),
        ({"confidence": True, "metrics": ["bleu", "chrf", "ter"]}, "-m bleu chrf ter --confidence"),
    ],
)
@pytest.mark.parametrize("references", [[REFERENCE], [REFERENCE, SECOND]], ids=["one", "two"])
def test_json_is_sacrebleus_to_the_byte(tmp_path, references, options, arguments):
    theirs = sacrebleu(tmp_path, [HYPOTHESIS], references, *arguments.split())
    assert to_json(score(HYPOTHESIS, references, **options)) + "\n" == theirs


def test_full_precision_equals_sacrebleu(tmp_path):
    (bleu,) = score(HYPOTHESIS, [REFERENCE])
    assert f"{bleu.value:.12f}\n" == sacrebleu(tmp_path, [HYPOTHESIS], [REFERENCE], "-b", "-w", "12")


def test_no_match_and_confidence_around_zero(tmp_path):
    hypotheses = ["xyz"] * len(REFERENCE)
    theirs = sacrebleu(tmp_path, [hypotheses], [REFERENCE], "--confidence")
    (bleu,) = score(hypotheses, [REFERENCE], confidence=True)
    assert (bleu.value, bleu.confidence) == (0.0, None)
    assert to_json([bleu]) + "\n" == theirs


def test_scale_is_0_to_100():
    scores = score(REFERENCE, [REFERENCE], metrics=["bleu", "chrf", "ter"])
    assert [(s.name, round(s.value, 9)) for s in scores] == [("BLEU", 100), ("chrF2", 100), ("TER", 0)]


def test_text_has_a_line_and_a_signature_for_each_metric():
    plain = score(HYPOTHESIS, [REFERENCE], metrics=["bleu", "ter"])
    assert to_text(plain).splitlines() == [
        f"BLEU = {plain[0].value:.1f}",
        plain[0].signature,
        f"TER = {plain[1].value:.1f}",
        plain[1].signature,
    ]
    assert plain[0].signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    (bleu,) = score(HYPOTHESIS, [REFERENCE, SECOND], confidence=True)
    mean, half = bleu.confidence
    assert to_text([bleu]).splitlines()[0] == f"BLEU = {bleu.value:.1f} (μ = {mean:.1f} ± {half:.1f})"
    assert "nrefs:2|bs:1000|seed:12345" in bleu.signature


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        (["a", "b"], [["a", "b"], ["a", "b", "c"]], "2 translations but 3 lines in reference 2"),
        ([], [[]], "there are no translations"),
        (["a"], [], "there is no reference"),
    ],
)
def test_unusable_texts(hypotheses, references, message):
    with pytest.raises(DataError, match=message):
        score(hypotheses, references)


def test_lengths_of_other_texts_are_checked():
    with pytest.raises(DataError, match="1 translation but 2 lines in system B"):
        compare(["a"], ["a", "b"], [["a"]])
    with pytest.raises(DataError, match="1 translation but 0 lines in the source"):
        compare(["a"], ["a"], [["a"]], sources=[])
    with pytest.raises(DataError, match="1 translation but 2 lines in the source"):
        by_source_length(["a", "b"], ["a"], [["a"]])


def test_unknown_tokenizer_lists_the_valid_ones():
    with pytest.raises(UsageError, match=r"unknown tokenizer 'moses'; choose from 13a, .*intl.*none.*zh"):
        score(["a"], [["a"]], tokenize="moses")


def test_tokenizer_whose_package_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(UsageError, match="'flores200' cannot be used: Please install the sentencepiece"):
        score(["a"], [["a"]], tokenize="flores200")


def test_comparison_is_sacrebleus_paired_bootstrap(tmp_path):
    systems, references = [HYPOTHESIS, BETTER], [REFERENCE, SECOND]
    found = compare(*systems, references, metrics=["bleu", "chrf", "ter"])
    ours = json.loads(found.to_json())["differences"]  # sacrebleu 2.6 fails to write its own for chrF and TER
    baseline, other = json.loads(sacrebleu(tmp_path, systems, references, "--paired-bs", "-f", "json"))
    assert (ours[0]["a"], ours[0]["b"]) == (baseline["BLEU"], other["BLEU"])
    options = ["-m", "bleu", "chrf", "ter", "--paired-bs", "-f", "latex", "-w", "4", "-nc"]
    table = sacrebleu(tmp_path, systems, references, *options)
    for one in ours:
        a, b = one["a"], one["b"]
        assert f"{a['score']:.4f} ({a['mean']:.4f} ± {a['ci']:.4f})" in table
        assert f"{b['score']:.4f} ({b['mean']:.4f} ± {b['ci']:.4f}) (p = {b['p_value']:.4f})" in table
        assert f"{one['name']:<11}{one['signature']}\n" in table


def test_comparison_shows_the_largest_changes():
    mixed = [*BETTER[:-5], "nothing like it at all", *BETTER[-4:]]
    found = compare(HYPOTHESIS, mixed, [REFERENCE], SOURCES, top=2)
    assert (found.better, found.worse, found.same) == (7, 1, 16)
    first = found.changes[0]
    assert (first.line, first.b, first.source) == (20, "nothing like it at all", SOURCES[19])
    assert len(found.changes) == 2
    lines = found.to_text().splitlines()
    assert re.fullmatch(r"BLEU = [\d.]+ \(.*\) in A, [\d.]+ \(.*\) in B: [+-][\d.]+, p = 0\.\d+", lines[0])
    assert lines[2] == "Sentences: 7 better in B by chrF, 1 worse, 16 the same"
    assert lines[3].startswith("line 20: ")
    assert f"  reference  {REFERENCE[19]}" in lines


def test_identical_systems_do_not_differ():
    found = compare(HYPOTHESIS, HYPOTHESIS, [REFERENCE])
    assert found.differences[0].b.p_value == 1.0
    assert (found.better, found.worse, found.same, found.changes) == (0, 0, len(HYPOTHESIS), ())


def test_buckets_of_source_length():
    buckets = by_source_length(SOURCES, HYPOTHESIS, [REFERENCE, SECOND])
    assert [(b.label, b.sentences) for b in buckets] == [("0–5", 8), ("6–10", 8), ("11–20", 4), (">50", 4)]
    rows = [i for i, source in enumerate(SOURCES) if len(source.split()) in (6, 10)]
    pick = [[lines[i] for i in rows] for lines in (HYPOTHESIS, REFERENCE, SECOND)]
    assert buckets[1].score == score(pick[0], pick[1:])[0]
    head, first, *_ = lengths_to_text([buckets]).splitlines()
    assert head == "BLEU by length of the source"
    assert first == f"0–5 words: {buckets[0].score.value:.1f}, 8 sources"


def test_looks_tokenised(capfd):
    raw = ["A full stop.", "None", "wait . . ", "Yes!"] * 50
    assert not looks_tokenised(raw)
    assert looks_tokenised([*raw, *["a full stop ."] * 30])
    score(["a full stop ."] * 200, [["a full stop ."] * 200])
    assert capfd.readouterr().err == ""  # sacrebleu's own remark tells of an option that is not ours


def test_importing_loads_no_sacrebleu():
    code = "import mtcli.evaluation.metrics, sys; assert not {'sacrebleu', 'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
