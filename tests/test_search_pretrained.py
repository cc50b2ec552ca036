"""A real pretrained model, trained and stored by other tools, in our Transformer.

It is the test model of CTranslate2: it transliterates Arabic words into Latin letters, character by character. It is
pre-norm with separate vocabularies, an output bias, and sinusoids of another formula, which the learned positions hold.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.ctranslate2_file import read_weights
from helpers.spm import shared
from torch import Tensor

from mtcli.config.schema import ModelConfig
from mtcli.corpus.batching import pad
from mtcli.model.transformer import Transformer
from mtcli.search.beam import beam_search
from mtcli.search.constraints import Limits
from mtcli.search.greedy import greedy_search
from mtcli.search.step import Hypothesis
from mtcli.text.special_tokens import BOS, EOS
from mtcli.text.tokenizer.vocabulary_file import SPECIALS
from mtcli.translate.backends.ctranslate2 import load_native

MAX_LENGTH = 40
"""Maximum number of tokens of a transliteration, without `</s>`. The longest one below is much shorter."""

CONFIG = ModelConfig(
    d_model=32, d_ff=128, num_heads=8, num_encoder_layers=6, num_decoder_layers=6, dropout=0.0,
    norm="pre", positions="learned", max_positions=MAX_LENGTH + 1, tie_embeddings=False, output_bias=True,
)  # fmt: skip

TEXT = """
    آتزمون محمد أحمد علي حسن حسين فاطمة عائشة خديجة مريم يوسف إبراهيم
    موسى عيسى داود سليمان يعقوب إسماعيل إسحاق نوح عمر عثمان خالد سعيد
    كريم جميل سمير نبيل عادل ماجد ناصر طارق زياد وليد هشام رامي
    سامي فادي باسم حاتم ليلى سلمى هدى نور سارة زينب رقية أسماء
    سعاد نادية سميرة كريمة جميلة لطيفة أمينة حنان إيمان رانيا دينا لينا
    القاهرة بغداد دمشق بيروت عمان الرياض مكة المدينة جدة صنعاء عدن مسقط
    دبي الدوحة الكويت المنامة الخرطوم طرابلس تونس الجزائر لندن باريس برلين مدريد
    روما فيينا موسكو طوكيو واشنطن شيكاغو شكسبير بيتهوفن موزارت نيوتن أينشتاين داروين
    غاليليو كولومبوس ماركس فرويد
"""
WORDS = TEXT.split()
"""A hundred words: names of people and places."""


def folder() -> Path:
    return shared("ctranslate2-aren")


def vocabulary(side: str) -> list[str]:
    """The tokens of a side by id. CTranslate2 appends the token for unknown text, which the file does not have."""
    text = (folder() / f"{side}_vocabulary.txt").read_text(encoding="utf-8")
    tokens = [*text.removesuffix("\n").split("\n"), "<unk>"]
    assert tokens[: len(SPECIALS)] == ["<blank>", *SPECIALS[1:]]
    return tokens


def positions(length: int) -> Tensor:
    """CTranslate2's positional encodings, (length, D): all sines, then all cosines, of positions that start at 1.

    The exponents are i / (d_model/2 − 1), where the paper (§3.5) has i / (d_model/2).
    """
    half = CONFIG.d_model // 2
    exponent = torch.arange(half, dtype=torch.float64) / (half - 1)
    angle = torch.arange(1, length + 1, dtype=torch.float64)[:, None] / 10000**exponent
    return torch.cat((angle.sin(), angle.cos()), dim=1).float()


LAYER = {
    "self_attention/linear_0": ("self_attention.w_q", "self_attention.w_k", "self_attention.w_v"),
    "self_attention/linear_1": ("self_attention.w_o",),
    "self_attention/layer_norm": ("self_residual.norm",),
    "attention/linear_0": ("cross_attention.w_q",),
    "attention/linear_1": ("cross_attention.w_k", "cross_attention.w_v"),
    "attention/linear_2": ("cross_attention.w_o",),
    "attention/layer_norm": ("cross_residual.norm",),
    "ffn/linear_0": ("feed_forward.w_1",),
    "ffn/linear_1": ("feed_forward.w_2",),
    "ffn/layer_norm": ("ffn_residual.norm",),
}
"""CTranslate2's name of each part of a layer, and ours; several of ours are concatenated there."""

OTHERS = {
    "encoder/embeddings": "src_embedding.tokens",
    "encoder/layer_norm": "encoder_norm",
    "decoder/embeddings": "tgt_embedding.tokens",
    "decoder/layer_norm": "decoder_norm",
    "decoder/projection": "output",
}
VALUES = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}


def our_modules(module: str) -> list[str]:
    """Our modules for one of CTranslate2's: `encoder/layer_0/ffn/linear_0` gives `encoder.0.feed_forward.w_1`."""
    if module in OTHERS:
        return [OTHERS[module]]
    stack, layer, part = module.split("/", 2)
    index = layer.removeprefix("layer_")
    return [f"{stack}.{index}.{ours}" for ours in LAYER[part]]


def our_parameters(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """CTranslate2's variables under the names of our parameters."""
    parameters = {}
    for name, tensor in weights.items():
        module, _, value = name.rpartition("/")
        modules = our_modules(module)
        for ours, rows in zip(modules, tensor.chunk(len(modules)), strict=True):
            parameters[f"{ours}.{VALUES[value]}"] = rows
    for side in ("src", "tgt"):
        parameters[f"{side}_embedding.learned.weight"] = positions(CONFIG.max_positions)
    return parameters


@cache
def model() -> Transformer:
    weights = read_weights(folder() / "model.bin")
    ours = Transformer(CONFIG, len(vocabulary("source")), len(vocabulary("target")), joint=False)
    ours.load_state_dict(our_parameters(weights))
    return ours.eval()


@cache
def native() -> Any:
    pytest.importorskip("ctranslate2")
    return load_native(folder(), device="cpu")


def sources() -> Tensor:
    """The words as ids. The model reads no `</s>` after a word."""
    ids = {token: i for i, token in enumerate(vocabulary("source"))}
    return pad([[ids[letter] for letter in word] for word in WORDS])


def search(beam_size: int) -> list[list[Hypothesis]]:
    """Our hypotheses of each word, best first."""
    limits = Limits([MAX_LENGTH] * len(WORDS))
    if beam_size == 1:
        return [[found] for found in greedy_search(model(), sources(), limits)]
    return beam_search(model(), sources(), limits, beam_size=beam_size, alpha=1.0, normalization="power")


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_a_pretrained_model_translates_as_in_ctranslate2(beam_size: int) -> None:
    words = [list(word) for word in WORDS]
    limits = {"max_decoding_length": MAX_LENGTH, "min_decoding_length": 0}  # a minimum changes the probabilities
    expected = native().translate_batch(words, beam_size=beam_size, return_scores=True, **limits)
    tokens = vocabulary("target")
    best = [found[0] for found in search(beam_size)]
    assert [[tokens[i] for i in found.ids] for found in best] == [result.hypotheses[0] for result in expected]
    if beam_size > 1:
        scores = [result.scores[0] for result in expected]
        assert [found.score for found in best] == pytest.approx(scores, abs=1e-5)


def test_a_pretrained_model_scores_as_in_ctranslate2() -> None:
    tokens = vocabulary("target")
    targets = [found.ids for (found,) in search(1)]
    named = [[tokens[i] for i in target] for target in targets]
    expected = native().score_batch([list(word) for word in WORDS], named)
    wanted = pad(targets, after=(EOS,))
    with torch.inference_mode():
        log_p = model()(sources(), pad(targets, before=(BOS,))).log_softmax(dim=-1)
    ours = log_p.gather(2, wanted[:, :, None]).squeeze(2)
    for row, result, target in zip(ours, expected, targets, strict=True):
        assert row[: len(target) + 1].tolist() == pytest.approx(result.log_probs, abs=1e-5)
