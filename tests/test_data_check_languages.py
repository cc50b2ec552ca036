"""Languages other than the declared ones in sentence pairs."""

from itertools import pairwise
from pathlib import Path

import pytest

from mtcli.corpus.quality.clean import clean
from mtcli.corpus.quality.clean import to_text as clean_text
from mtcli.corpus.quality.corpus import Corpus
from mtcli.corpus.quality.languages import MIN_SAMPLE, SAMPLE, LanguageCheck
from mtcli.corpus.quality.report import check
from mtcli.corpus.quality.report import to_text as report_text
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.text.language_identifier import MAX_CHARACTERS, LanguageIdentifier
from mtcli.text.lines import Counts

PAIRS = [
    ("The dog sleeps in the garden.", "Der Hund schläft im Garten."),
    ("My sister reads a good book.", "Meine Schwester liest ein gutes Buch."),
    ("We often eat bread and cheese.", "Wir essen oft Brot und Käse."),
    ("The children are playing with the ball.", "Die Kinder spielen mit dem Ball."),
    ("Yesterday it was very cold here.", "Gestern war es hier sehr kalt."),
    ("She does not want to go home.", "Sie will nicht nach Hause gehen."),
]


def corpus(folder: Path, pairs: list[tuple[str, str]], src: str = "en", tgt: str = "de") -> Corpus:
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{first}\t{second}\n" for first, second in pairs))
    return Corpus([str(path)], src, tgt)


def test_a_swapped_pair_is_found_and_removed(tmp_path: Path) -> None:
    short = [("Berlin", "Berlin"), ("Ja, gerne!", "Yes, please!")]
    pairs = corpus(tmp_path, [*PAIRS, PAIRS[2][::-1], *short])
    report = check(pairs)
    (finding,) = [finding for finding in report.findings if finding.rule.name == "swapped sides"]
    assert [example.where for example in finding.examples] == [f"{pairs.paths[0]}:7"]
    assert clean(pairs, tmp_path / "out.tsv").removed["swapped sides"] == 1


@pytest.mark.parametrize(
    ("src", "tgt", "says"),
    [
        ("en", "de", None),
        ("eng_Latn", "de-AT", None),
        ("src", "tgt", None),
        ("de", "en", "the sides look swapped: in 100% of 12 pairs, the source is en and the target de; use --swap"),
        ("en", "gn", None),  # a language that cannot be identified
        ("gn", "de", None),
        ("de", "gn", "the sides look swapped: 0% of the sources look like de, and 100% of the targets; use --swap"),
        ("gn", "en", "the sides look swapped: 0% of the targets look like en, and 100% of the sources; use --swap"),
        ("fr", "de", "--src is fr, but 100% of 12 sentences look like English (en); correct --src"),
        ("en", "nl", "--tgt is nl, but 100% of 12 sentences look like German (de); correct --tgt"),
    ],
)
def test_wrong_declared_languages(tmp_path: Path, src: str, tgt: str, says: str | None) -> None:
    variants = [(f"{first} Twice.", f"{second} Zweimal.") for first, second in PAIRS]
    pairs = corpus(tmp_path, [*PAIRS, *variants], src, tgt)
    report = check(pairs)
    problems = report.survey.languages
    assert [says in problem for problem in problems] == [True] if says else problems == []
    shown = f"warning: {says}" if says else "warning: "
    cleaned = clean(pairs, tmp_path / "out.tsv")
    assert (shown in report_text(report), shown in clean_text(cleaned)) == (bool(says), bool(says))


def test_swapping_pairs_that_were_right_is_reported(tmp_path: Path) -> None:
    right = corpus(tmp_path, [*PAIRS, *PAIRS])
    swapped = Corpus(right.paths, "en", "de", swap=True)
    assert check(right).survey.languages == []
    (problem,) = check(swapped).survey.languages
    assert problem.endswith("the source is de and the target en; omit --swap, or --src de --tgt en")


@pytest.mark.parametrize("start", ["½ ¼ ¾ ⅓ ⅔", "7 " * MAX_CHARACTERS + "The dog sleeps here"])
def test_texts_whose_language_cannot_be_identified(tmp_path: Path, start: str) -> None:
    unclear = [(f"{start} {number}", f"{start} {number}.") for number in range(MIN_SAMPLE)]
    assert check(corpus(tmp_path, unclear)).survey.languages == []
    assert check(corpus(tmp_path, [*unclear, PAIRS[0], PAIRS[1][::-1]])).survey.languages == []


def test_the_sample_is_from_all_parts_of_the_corpus() -> None:
    checked = LanguageCheck("src", "tgt")
    for number in range(10 * SAMPLE):
        checked.is_swapped(f"one two three four {number}", "five six seven eight")
    numbers = [int(src.split()[-1]) for src, _ in checked.sample.pairs]
    assert SAMPLE <= len(numbers) < 2 * SAMPLE
    assert len({after - before for before, after in pairwise(numbers)}) == 1
    assert numbers[-1] > 9 * SAMPLE


def test_identifying_languages() -> None:
    identifier = LanguageIdentifier(["eng", "de", "pt_BR", "pt_PT", "src"])
    assert identifier.identify("Der Hund schläft im Garten.")[0].language == "de"
    assert identifier.identify("O cão dorme no jardim da casa.")[0].language == "pt_BR"
    assert sum(guess.probability for guess in identifier.identify("The dog")) == pytest.approx(1)
    assert identifier.identify("12 ?") == LanguageIdentifier([]).identify("The dog") == []


def test_a_notice_about_further_columns(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    path.write_text("one\teins\tCC-BY 1\ntwo\tzwei\nthree\tdrei\tCC-BY 2\n")
    counts = Counts()
    assert len(list(read_pairs(str(path), "en", "de", counts=counts))) == 3
    assert counts.notices == [
        f"{path}: 2 lines with more than two columns; the first two are read; to choose others, name the columns "
        "source and target in line 1"
    ]


def test_names_from_the_source_say_nothing_about_the_language_of_a_translation() -> None:
    identifier = LanguageIdentifier.learned(
        {
            "es": [
                "la casa de los niños está en la calle",
                "el perro corre por la ciudad",
                "María vive con su hermana",
            ],
            "de": ["das Haus der Kinder steht in der Straße", "der Hund läuft durch die Stadt", "Maria wohnt bei ihr"],
        }
    )
    sources = ["Juan de la Calle y María de los Ángeles de la Ciudad viven en casa"] * 2
    with_names = "Juan de la Calle und María de los Ángeles de la Ciudad wohnen im Haus"
    assert identifier.identify(with_names)[0].language == "es"
    assert identifier.share_of_others([with_names, with_names], sources, "de") == 0
    assert identifier.share_of_others([with_names, sources[1]], sources, "de") == 0.5
