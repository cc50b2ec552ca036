"""The two options of the model that the paper does not have, and that imported models need."""

import json
import math
from pathlib import Path

import pytest
import torch
from helpers.toy import PAIRS, TorchTranslator, save_toy, toy

from mtcli.config.build import build
from mtcli.config.schema import ModelConfig
from mtcli.exchange.export import export
from mtcli.explain.explanation import explain
from mtcli.explain.stages import stages
from mtcli.model.transformer import FeedForward, Transformer
from mtcli.report.plan import count_parameters
from mtcli.storage import model_file
from mtcli.storage.model_file import load_model, parameters
from mtcli.storage.tensors import to_bytes
from mtcli.translate.translation import Options

FORMULAS = {
    "relu": lambda u: u.clamp(min=0),
    "swish": lambda u: u / (1 + (-u).exp()),
    "gelu": lambda u: u * (1 + torch.erf(u / math.sqrt(2))) / 2,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_the_feed_forward_network_has_the_activation_of_the_configuration(name: str) -> None:
    network = FeedForward(ModelConfig(d_model=4, d_ff=6, num_heads=1, activation=name)).double()
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    expected = network.w_2(FORMULAS[name](network.w_1(x)))
    torch.testing.assert_close(network(x), expected)


def test_the_defaults_are_those_of_the_paper() -> None:
    config = build().model
    assert (config.activation, config.output_bias) == ("relu", False)
    assert Transformer(config, 9, 9, joint=True).output.bias is None


def test_the_output_bias_is_added_to_every_logit_and_counted() -> None:
    config = ModelConfig(d_model=4, d_ff=6, num_heads=1, output_bias=True)
    model = Transformer(config, 9, 9, joint=True).eval()
    src, tgt = torch.tensor([[4, 5, 2]]), torch.tensor([[1, 3]])
    before = model(src, tgt)
    assert model.output.bias.tolist() == [0.0] * 9
    with torch.no_grad():
        model.output.bias += torch.arange(9)
    torch.testing.assert_close(model(src, tgt), before + torch.arange(9))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count_parameters(config, 9, 9, joint=True) == count


def with_bias(activation: str) -> TorchTranslator:
    return toy(activation=activation, bias=True)


@pytest.mark.parametrize("activation", ["swish", "gelu"])
def test_explain_shows_the_formula_and_the_numbers(activation: str) -> None:
    found = explain(with_bias(activation).backend, "one red dog.", Options(beam_size=2, max_length=6))
    by_key = {stage.key: stage for stage in stages(found, 0, 0)}
    inner, output = by_key["encoder.1.ffn.inner"], by_key["encoder.1.ffn.output"]
    symbol = {"swish": "σ", "gelu": "Φ"}[activation]
    assert inner.formula == f"u · {symbol}(u), u = x W_1 + b_1"
    assert output.formula == f"FFN(x) = (u · {symbol}(u)) W_2 + b_2"
    assert by_key["logits"].formula == "logits = h E^T + b, p = softmax(logits)"
    network = found.backend.model.encoder[0].feed_forward
    assert isinstance(network, FeedForward)
    u = found.recording.output(network.w_1)[0]
    torch.testing.assert_close(FORMULAS[activation](u), inner.values)


def test_explain_shows_the_papers_formula_for_relu() -> None:
    found = explain(toy().backend, "one red dog.", Options(beam_size=2, max_length=6))
    formulas = {stage.key: stage.formula for stage in stages(found, 0, 0)}
    assert formulas["encoder.1.ffn.inner"] == "max(0, x W_1 + b_1)"
    assert formulas["decoder.1.ffn.output"] == "FFN(x) = max(0, x W_1 + b_1) W_2 + b_2"
    assert formulas["logits"] == "logits = h E^T, p = softmax(logits)"


@pytest.mark.parametrize("activation", ["relu", "swish", "gelu"])
@pytest.mark.parametrize("target", ["ctranslate2", "huggingface"])
def test_an_export_translates_as_we_do(activation: str, target: str, tmp_path: Path) -> None:
    pytest.importorskip({"ctranslate2": "ctranslate2", "huggingface": "transformers"}[target])
    run = tmp_path / "run"
    (run / "data").mkdir(parents=True)
    rows = [json.dumps({"translation": {"en": src, "es": tgt}}) for src, tgt in PAIRS[::9]]
    (run / "data" / "test.jsonl").write_text("\n".join(rows) + "\n")
    save_toy(run, with_bias(activation))
    found = export(run, target, tmp_path / "out")
    assert found is not None
    assert found.equal == found.sentences == len(rows)
    assert found.max_score_difference < 1e-4


def test_a_model_file_of_before_these_options_loads_unchanged(tmp_path: Path) -> None:
    save_toy(tmp_path)
    model, info, _ = load_model(tmp_path)
    told = info.model_dump(mode="json")
    for name in ("activation", "output_bias"):
        del told["model"][name]
    tensors = parameters(model)
    (tmp_path / "model.safetensors").write_bytes(to_bytes(tensors, model_file.metadata_of(tensors, told)))
    again, found, _ = load_model(tmp_path)
    assert found == info
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))
