import pytest

from mtcli.evaluation.remarks import in_words, remarks, too_few_pairs, what_it_means


@pytest.mark.parametrize(
    ("metric", "score", "remark"),
    [
        ("BLEU", 0.0, "BLEU below 5: "),
        ("BLEU", 4.9, "hardly usable"),
        ("BLEU", 5.0, None),
        ("BLEU", 38.4, None),
        ("BLEU", 90.0, None),
        ("BLEU", 90.1, "BLEU above 90 is rare"),
        ("chrF2", 19.9, "chrF2 below 20"),
        ("chrF2", 20.0, None),
        ("chrF2", 95.1, "chrF2 above 95"),
        ("TER", 0.0, None),
        ("TER", 250.0, None),
    ],
)
def test_remarks_on_unusual_scores(metric: str, score: float, remark: str | None) -> None:
    found = what_it_means(metric, score)
    if remark is None:
        assert found is None
    else:
        assert found is not None
        assert remark in found
        assert "mtcli data check" in found


@pytest.mark.parametrize("bleu", [0.0, 4.9, 5.0, 14.9, 15.0, 29.9, 30.0, 49.9, 50.0, 89.9, 90.0, 90.1, 100.0])
def test_each_bleu_is_put_into_words_once(bleu: float) -> None:
    remark = what_it_means("BLEU", bleu)
    words = in_words(bleu)
    assert (remark is None) != (words is None)
    assert words is None or words.startswith(f"BLEU {bleu:.1f}: ")


def test_few_test_pairs_are_reported_instead_of_a_high_score() -> None:
    few = "1 test pair is too few for a score, an interval or a comparison to mean anything: use at least 30"
    (found,) = remarks([("BLEU", 100.0)], 1)
    assert found.startswith(few)
    low = remarks([("BLEU", 1.0)], 29)
    assert [text.split(":")[0] for text in low][1] == "BLEU below 5"
    assert low[0].startswith("29 test pairs are too few")
    assert too_few_pairs(30) is None
    assert remarks([("BLEU", 38.0), ("chrF2", 55.0)], 30) == []
