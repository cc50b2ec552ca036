"""Which tokenizer scores which language, and which score selects the model."""

import sys
from types import ModuleType

import pytest

from mtcli.config import scores
from mtcli.config.build import build
from mtcli.evaluation import metrics
from mtcli.evaluation.metrics import by_source_length, lengths_to_text, looks_tokenised, score

CHINESE = ["zh", "zh-CN", "zh_Hans", "zh-Hant-TW", "ZH", "zho", "zho_Hant", "chi", "cmn", "yue_Hant", "Chinese", "cn"]


@pytest.mark.parametrize(
    ("codes", "tokenizer", "metric"),
    [
        (CHINESE, "zh", "chrf"),
        (["ja", "ja_JP", "jpn", "jpn_Jpan", "Japanese", "jp"], "char", "chrf"),
        (["ko", "kor_Hang", "ko-KR"], "char", "chrf"),
        (
            ["th", "tha_Thai", "lo", "lao_Laoo", "km", "khm", "my", "mya_Mymr", "bur", "bo", "bod", "tib"],
            "char",
            "chrf",
        ),
        (["de", "en", "es", "ar", "arb_Arab", "hi", "hin_Deva", "vi", "xx", "tgt", "zz-ZZ", "zh_Latn"], "13a", "bleu"),
    ],
)
def test_the_language_decides(codes: list[str], tokenizer: str, metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "find_spec", lambda name: None)  # as without sacrebleu's extras
    for code in codes:
        assert (scores.bleu_tokenizer(code), scores.selection_metric(code)) == (tokenizer, metric), code


@pytest.mark.parametrize("language", ["ja", "ko"])
def test_installed_extras_are_used_and_do_not_change_what_selects(
    language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "find_spec", lambda name: ModuleType(name))
    assert scores.bleu_tokenizer(language) == f"{language}-mecab"
    assert scores.selection_metric(language) == "chrf"


def test_a_given_tokenizer_goes_before_the_language() -> None:
    options = {"data.train": ["x.tsv"], "data.tgt": "zh"}
    assert scores.tokenizer_of(build(None, options)) == "zh"
    assert scores.tokenizer_of(build(None, options, ['train.bleu_tokenizer="intl"'])) == "intl"


def test_every_tokenizer_that_a_language_has_is_one_of_sacrebleu() -> None:
    from sacrebleu.metrics import BLEU

    assert set(BLEU.TOKENIZERS) >= {*scores._TOKENIZERS.values(), scores.DEFAULT}
    assert BLEU._TOKENIZER_MAP.items() <= scores._TOKENIZERS.items()


@pytest.mark.parametrize(
    ("text", "better"),
    [
        ("猫在椅子上睡觉。", "zh"),
        ("猫は椅子の上で眠る。", "char"),
        ("แมวนอนหลับอยู่บนเก้าอี้", "char"),
        ("ឆ្មាដេកលើកៅអី", "char"),
    ],
)
def test_a_tokenizer_that_needs_spaces_is_advised_against(text: str, better: str) -> None:
    assert (scores.advice([text], "13a") or "").endswith(f"use {better}")
    assert scores.advice([text], better) is None


@pytest.mark.parametrize(
    "text", ["The cat sleeps.", "القطة تنام.", "बिल्ली सोती है।", "고양이가 의자에서 잔다.", "I live in 東京.", "", "…"]
)
def test_a_text_with_spaces_is_not_advised_on(text: str) -> None:
    assert scores.advice([text], "13a") is None


def test_near_perfect_and_bad_chinese_score_apart() -> None:
    references = ["猫在椅子上睡觉。", "我每天早上喝茶。", "今天的天气非常好。"]
    good = ["猫在椅子上睡觉。", "我每天早上喝茶。", "今天的天气真的好。"]
    bad = ["狗狗狗狗", "的的的", "门门门门门门"]
    tokenizer = scores.bleu_tokenizer("zh")
    (high,), (low,) = (score(found, [references], tokenize=tokenizer) for found in (good, bad))
    assert high.value > 60
    assert low.value < 5
    assert "tok:zh" in high.signature
    (blind,) = score(["猫在椅子上睡觉。。", "我每天早上喝了茶。", good[2]], [references])
    assert blind.value == 0.0  # which is why 13a will not do


def test_length_is_counted_in_characters_where_there_are_no_spaces() -> None:
    sources = ["猫睡觉。", "猫在椅子上睡觉,我每天早上喝茶。", "猫" * 50]
    buckets = by_source_length(sources, sources, [sources], tokenize="zh")
    assert [(b.label, b.unit, b.sentences) for b in buckets] == [
        ("0–10", "characters", 1),
        ("11–20", "characters", 1),
        ("41–60", "characters", 1),
    ]
    assert lengths_to_text([buckets]).splitlines()[1].startswith("0–10 characters: ")


def test_tokenised_chinese_is_told_from_raw() -> None:
    assert looks_tokenised(["猫 在 椅子 上 睡觉 。"])
    assert not looks_tokenised(["猫在椅子上睡觉。"])


def test_a_tokenizer_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics.check_tokenizer("13a")
    monkeypatch.setitem(sys.modules, "MeCab", None)
    with pytest.raises(metrics.UsageError, match="'ja-mecab' cannot be used"):
        metrics.check_tokenizer("ja-mecab")
