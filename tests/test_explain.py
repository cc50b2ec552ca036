"""`explain` shows what `translate` computes: the same search and the same numbers."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.toy import TorchTranslator, save_toy, toy, toy_info
from typer.testing import CliRunner

from mtcli import cli
from mtcli.errors import UsageError
from mtcli.explain.as_json import to_dict
from mtcli.explain.explanation import Explanation, alignment_sharpness, explain
from mtcli.explain.page import to_html
from mtcli.explain.stages import stages
from mtcli.explain.text import to_text
from mtcli.model.hooks import record_forward
from mtcli.model.multi_head import MultiHeadAttention
from mtcli.model.transformer import Transformer
from mtcli.text.special_tokens import EOS
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.translation import Options

SENTENCES = ["one red dog.", "big cat sees dog.", "zzz </script><b>! 猫 é"]
KINDS = [("post", True, "sinusoidal"), ("pre", True, "sinusoidal"), ("post", False, "learned")]


@pytest.fixture(params=KINDS, ids=lambda kind: "-".join(map(str, kind)))
def translator(request: pytest.FixtureRequest) -> TorchTranslator:
    return toy(*request.param)


def options(beam: int = 4) -> Options:
    return Options(beam_size=beam, max_length=14)


def by_key(found: Explanation, layer: int = 0, head: int = 0) -> dict[str, torch.Tensor]:
    return {stage.key: stage.values for stage in stages(found, layer, head)}


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize("sentence", SENTENCES)
def test_explain_decodes_the_translation_of_translate(translator: TorchTranslator, sentence: str, beam: int) -> None:
    found = explain(translator.backend, sentence, options(beam))
    (expected,) = translator.translate([sentence], replace(options(beam), n_best=beam))
    assert list(found.texts) == [c.text for c in expected.candidates]
    assert [h.score for h in found.hypotheses] == [c.score for c in expected.candidates]


def test_the_toy_model_translates() -> None:  # or the tests here would look at noise
    assert explain(toy().backend, "one red dog.", options()).texts[0] == "uno rojo perro."


@pytest.mark.parametrize("sentence", SENTENCES)
def test_the_steps_add_up_to_the_probability_of_the_translation(translator: TorchTranslator, sentence: str) -> None:
    found = explain(translator.backend, sentence, options())
    assert sum(step.log_prob for step in found.steps) == pytest.approx(found.hypotheses[0].log_prob, abs=1e-4)
    assert [step.id for step in found.steps] == [*found.hypotheses[0].ids, EOS]
    for step in found.steps:
        probabilities = [p for _, _, p in step.top]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) < 1 + 1e-5


def test_attention_rows_sum_to_one_and_ignore_later_positions(translator: TorchTranslator) -> None:
    found = explain(translator.backend, SENTENCES[1], options())
    S = len(found.src_ids)
    T = len(found.tgt_ids)
    for kind, shape in (("encoder", (S, S)), ("decoder", (T, T)), ("cross", (T, S))):
        for weights in found.weights(kind):
            assert weights.shape == (2, *shape)
            torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, shape[0]))
            if kind == "decoder":
                assert not weights.triu(diagonal=1).any()


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("head", [0, 1])
@torch.inference_mode()
def test_each_stage_follows_from_the_previous_one(translator: TorchTranslator, layer: int, head: int) -> None:
    found = explain(translator.backend, SENTENCES[0], options())
    value = by_key(found, layer, head)
    model = translator.model
    pre = model.config.norm == "pre"
    for side in ("src", "tgt"):
        torch.testing.assert_close(value[f"{side}.embedding"] + value[f"{side}.position"], value[f"{side}.sum"])
    for stack, attentions in (("encoder", ["self"]), ("decoder", ["self", "cross"])):
        key = f"{stack}.{layer + 1}"
        module = getattr(model, stack)[layer]
        for name in attentions:
            at = f"{key}.{name}"
            mha = getattr(module, f"{name}_attention")
            around = getattr(module, f"{name}_residual")
            q, k, v = (value[f"{at}.{x}"] for x in "qkv")
            scores = q @ k.T / math.sqrt(q.size(-1))
            seen = value[f"{at}.scores"].isfinite()
            torch.testing.assert_close(value[f"{at}.scores"][seen], scores[seen])
            torch.testing.assert_close(value[f"{at}.scores"].softmax(dim=-1), value[f"{at}.weights"])
            torch.testing.assert_close(value[f"{at}.weights"] @ v, value[f"{at}.head"])
            heads = found.recording.attention[mha].output[0].transpose(0, 1).flatten(1)
            torch.testing.assert_close(mha.w_o(heads), value[f"{at}.multihead"])
            summed = value[f"{at}.residual"]
            if pre:
                before = found.recording.input(around.norm)[0]
                torch.testing.assert_close(around.norm(before), value[f"{at}.norm"])
                torch.testing.assert_close(before + value[f"{at}.multihead"], summed)
            else:
                torch.testing.assert_close(around.norm(summed), value[f"{at}.norm"])
        read = value[f"{key}.ffn.norm"] if pre else value[f"{key}.{attentions[-1]}.norm"]
        torch.testing.assert_close(module.feed_forward.w_1(read).relu(), value[f"{key}.ffn.inner"])
        torch.testing.assert_close(module.feed_forward.w_2(value[f"{key}.ffn.inner"]), value[f"{key}.ffn.output"])
        if pre:
            before = value[f"{key}.{attentions[-1]}.residual"]
            torch.testing.assert_close(before + value[f"{key}.ffn.output"], value[f"{key}.ffn.residual"])
        else:
            torch.testing.assert_close(read + value[f"{key}.ffn.output"], value[f"{key}.ffn.residual"])
    torch.testing.assert_close(model.output(value["hidden"]), value["logits"])


def test_the_memory_is_the_output_of_encode(translator: TorchTranslator) -> None:
    found = explain(translator.backend, SENTENCES[0], options())
    memory, _ = translator.model.encode(torch.tensor([list(found.src_ids)]))
    torch.testing.assert_close(by_key(found)["memory"], memory[0].detach())


def test_recording_does_not_change_the_model() -> None:
    model = toy().model
    before = {m: m.attend for m in model.modules() if isinstance(m, MultiHeadAttention)}

    def fail() -> None:
        with record_forward(model):
            assert all(m.attend is not attend for m, attend in before.items())
            model(torch.tensor([[10**6]]), torch.tensor([[1]]))

    with pytest.raises(IndexError):
        fail()
    assert all(m.attend is attend for m, attend in before.items())
    assert not any(m._forward_hooks for m in model.modules())


@pytest.mark.parametrize("beam", [2, 4])
def test_the_tree_leads_to_the_translations(translator: TorchTranslator, beam: int) -> None:
    found = explain(translator.backend, SENTENCES[1], options(beam))
    nodes = found.tree
    for at, node in enumerate(nodes):
        assert node.parent < at
        parent = nodes[node.parent] if node.parent >= 0 else None
        assert node.step == (parent.step + 1 if parent else 1)
        assert parent is None or (parent.state == "kept" and node.log_prob <= parent.log_prob)
        assert (node.state == "finished") == (node.id == EOS and node.rank is not None)
    for step in range(1, max(node.step for node in nodes) + 1):
        assert sum(node.step == step and node.state == "kept" for node in nodes) <= beam
    finished = sorted((node for node in nodes if node.state == "finished"), key=lambda node: node.rank or 0)
    assert [node.score for node in finished] == [h.score for h in found.hypotheses]
    assert [node.id for node in nodes if node.on_path] == list(found.tgt_ids)
    assert finished[0].on_path
    assert not explain(translator.backend, SENTENCES[1], options(1)).tree


def test_neighbours_are_nearest_by_cosine() -> None:
    found = explain(toy().backend, SENTENCES[0], options(), neighbours=True)
    table = toy().model.src_embedding.tokens.weight.detach()
    first = found.neighbours["src"][0]
    cosines = torch.cosine_similarity(table, table[found.src_ids[0]], dim=-1)[259:]
    assert first.near[0][1] == pytest.approx(float(cosines.sort().values[-2]), abs=1e-5)
    assert first.token not in [token for token, _ in first.near]


def test_json_has_every_key_and_only_finite_numbers(translator: TorchTranslator) -> None:
    found = explain(translator.backend, SENTENCES[2], options(), neighbours=True)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    data = json.loads(json.dumps(to_dict(found, 1, 0)), parse_constant=refuse)
    assert set(data) == {
        "format", "decimals", "source", "translation", "model", "search", "src", "tgt", "steps", "hypotheses",
        "beam", "attention", "sharpest_cross_attention", "votes", "neighbours", "layer", "head", "stages",
    }  # fmt: skip
    assert (data["layer"], data["head"], data["translation"]) == (2, 1, found.texts[0])
    for stage in data["stages"]:
        rows, columns = stage["shape"]
        assert len(stage["rows"]) == rows
        assert stage["key"] == "logits" or [len(row) for row in stage["values"]] == [columns] * rows
    weights = torch.tensor(data["attention"]["cross"])
    torch.testing.assert_close(weights, torch.stack(found.weights("cross")), atol=1e-5, rtol=0)


def page_data(page: str) -> dict[str, Any]:
    """Return the data in the script of the page."""
    line = next(line for line in page.splitlines() if line.startswith("const data = "))
    data: dict[str, Any] = json.loads(line.removeprefix("const data = ").removesuffix(";"))
    return data


def test_the_page_loads_nothing_and_does_not_execute_text(translator: TorchTranslator) -> None:
    found = explain(translator.backend, SENTENCES[2], options(), neighbours=True)
    page = to_html(found, 0, 0)
    assert page.count("<script") == page.count("</script") == 1
    assert not re.search(r"(src|href)=[\"'](?!data:)|@import|url\(|fetch\(|XMLHttpRequest", page)
    data = page_data(page)
    assert data["source"] == SENTENCES[2]
    config = translator.model.config
    assert len(data["attention"]["encoder"]) == config.num_encoder_layers
    for layer in data["trace"]["decoder"]:
        of_head = [stage for stage in layer if stage.get("heads")]
        assert len(of_head) == 12
        assert all(len(stage["heads"]) == config.num_heads for stage in of_head)


def test_the_summary_is_one_screen_of_plain_text(translator: TorchTranslator) -> None:
    found = explain(translator.backend, SENTENCES[0], options())
    text = to_text(found)
    lines = text.splitlines()
    assert lines[:2] == [SENTENCES[0], found.texts[0]]
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert "\033" not in text
    assert f"decoder layer {found.sharpest_layer() + 1}, mean of heads" in text
    assert "decoder layer 2, head 1." in to_text(found, 1, 0)
    assert "\033[32m" in to_text(found, colour=True)


def test_the_summary_proposes_a_layer_that_the_model_has() -> None:
    config = toy().model.config.model_copy(update={"num_decoder_layers": 1})
    tokenizer = toy().tokenizer
    model = Transformer(config, tokenizer.src_size, tokenizer.tgt_size, joint=True)
    found = explain(PyTorchBackend(model.eval(), tokenizer, toy_info()), SENTENCES[0], options())
    assert "--layer 1 --head 1 " in to_text(found)
    assert "--layer 2 --head 1 " in to_text(explain(toy().backend, SENTENCES[0], options()))


def test_a_long_sentence_has_a_summary_of_one_screen() -> None:
    found = explain(toy().backend, "big cat sees one red dog. " * 9, Options(beam_size=8, max_length=40))
    text = to_text(found)
    assert len(text.splitlines()) <= 45
    assert max(map(len, text.splitlines())) <= 100
    assert f"… {len(found.src_ids) - 60} more" in text
    assert "… 3 more hypotheses; --full shows all" in text
    assert "more hypotheses" not in to_text(found, full=True)


def test_the_full_text_has_every_stage_and_step(translator: TorchTranslator) -> None:
    found = explain(translator.backend, SENTENCES[0], options(), neighbours=True)
    text = to_text(found, 0, 1, full=True)
    assert text.splitlines()[-1] == found.texts[0]
    assert "[5 × 16]" in text  # Q of one head: S × d_k
    for step in range(1, len(found.steps) + 1):
        assert f"Step {step} of {len(found.steps)}" in text
    numbers = [line for line in text.splitlines() if line.startswith("▁one") and line.count(".") >= 32]
    assert numbers  # whole rows of d_model = 32 where no width is given
    assert max(map(len, to_text(found, 0, 1, full=True, width=80).splitlines())) <= 80


def test_one_step_has_the_rows_that_it_uses(translator: TorchTranslator) -> None:
    found = explain(translator.backend, SENTENCES[0], options())
    text = to_text(found, 1, 0, step=1)
    steps = [line.split(":")[0] for line in text.splitlines() if line.startswith("Step ")]
    assert steps == [f"Step 2 of {len(found.steps)}"]
    assert "[2 × 16]" in text  # keys of the decoder's self-attention: two positions × d_k


def test_every_sublayer_has_a_heading(translator: TorchTranslator) -> None:
    """Self-attention and cross-attention have stages with the same titles."""
    found = explain(translator.backend, SENTENCES[0], options())
    decoder = [
        "Decoder layer 2: self-attention (masked)",
        "Decoder layer 2: cross-attention",
        "Decoder layer 2: feed-forward network",
    ]
    for step in (0, 1):
        lines = to_text(found, 1, 0, step=step).splitlines()
        assert [line for line in lines if " layer 2: " in line] == decoder
    lines = to_text(found, 1, 0, full=True).splitlines()
    encoder = ["Encoder layer 2: self-attention", "Encoder layer 2: feed-forward network"]
    assert [line for line in lines if " layer 2: " in line] == encoder + decoder


def test_sharpness_is_high_for_one_partner_each_and_low_for_one_column() -> None:
    assert alignment_sharpness(torch.eye(4)) == pytest.approx(1)
    same_column = torch.zeros(4, 4)
    same_column[:, 0] = 1
    assert alignment_sharpness(same_column) == pytest.approx(4 / 6)
    assert alignment_sharpness(torch.full((4, 4), 0.25)) == pytest.approx(0.25)
    only_end = torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    assert alignment_sharpness(only_end) == 0
    assert alignment_sharpness(torch.ones(1, 1)) == 1


def test_the_sharpest_layer_is_named_in_json_and_opens_the_page(translator: TorchTranslator) -> None:
    found = explain(translator.backend, SENTENCES[0], options())
    sharpest = to_dict(found, 0, 0)["sharpest_cross_attention"]
    assert sharpest["sharpness"][sharpest["layer"] - 1] == max(sharpest["sharpness"])
    assert page_data(to_html(found))["start"] == {"layer": found.sharpest_layer(), "head": None}
    assert page_data(to_html(found, 1))["start"] == {"layer": 1, "head": 0}
    assert page_data(to_html(found, None, 1))["start"] == {"layer": 0, "head": 1}


def test_control_characters_of_a_sentence_do_not_reach_the_terminal() -> None:
    found = explain(toy().backend, "one \x1b[31mdog \u202e", options(), neighbours=True)
    for text in (to_text(found), to_text(found, full=True), to_text(found, step=0)):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert r"\x1b[31m" in to_text(found)


@pytest.mark.parametrize("text", ["", "  ", "one\ntwo"])
def test_one_sentence_at_a_time(text: str) -> None:
    with pytest.raises(UsageError, match="one sentence"):
        explain(toy().backend, text, options())


def test_a_sentence_too_long_for_its_matrices_is_refused() -> None:
    with pytest.raises(UsageError, match=r"tokens; explain takes 2000 at most"):
        explain(toy().backend, "é" * 2001, options())


def test_the_page_is_not_written_to_a_file_named_dash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.app, ["explain", "Hello", "--html", "-"])
    assert "--html -: is written to a file" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_the_command(tmp_path: Path) -> None:
    call = CliRunner().invoke
    base = ["explain", "one red dog.", "--model", str(save_toy(tmp_path)), "--device", "cpu"]
    page = tmp_path / "page.html"
    result = call(cli.app, [*base, "--html", str(page), "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["translation"] == "uno rojo perro."
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert call(cli.app, base).stdout.splitlines()[:2] == ["one red dog.", "uno rojo perro."]
    all_steps = (["--step", "1", "--json"], ["--step", "1", "--html", str(page)])
    for wrong in (["--layer", "3"], ["--head", "3"], ["--step", "99"], *all_steps):
        assert isinstance(call(cli.app, [*base, *wrong]).exception, UsageError)
