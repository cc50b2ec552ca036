"""Our weights as a Marian model, an encoder-decoder that `transformers` has: its layers are ours under other names.

Marian does not store its sinusoids; it computes all sines, then all cosines, where the paper alternates them. So the
model's dimensions are put in that order throughout: in every weight that reads or writes the residual stream.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mtcli.data.tokenizer import BOS, EOS, PAD, SPECIALS, Tokenizer
from mtcli.inference.line_translator import Draft, LineTranslator, Options
from mtcli.nn.transformer import MultiHeadAttention, Residual, Transformer
from mtcli.storage.checkpoint import Tensors, to_bytes
from mtcli.storage.model_file import ModelInfo

FILES = (
    "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
)  # fmt: skip
"""What a folder for it holds."""

MAX_POSITIONS = 1024


def convert(model: Transformer, info: ModelInfo, tokenizer: Tokenizer, folder: Path) -> None:
    """Write `model.safetensors`, `config.json`, `generation_config.json` and the tokenizer's files into a folder.

    Args:
        model: Without `export.obstacles`.
        info: What it says of itself.
        tokenizer: The model's.
        folder: Exists.
    """
    files: dict[str, Any] = {
        "config.json": _config(model, info),
        "generation_config.json": {
            **_ids(),
            "max_length": MAX_POSITIONS // 2,
            "num_beams": info.decode.beam_size,
            "length_penalty": info.decode.length_penalty,
            "early_stopping": True,  # with as many translations as beams, as ours does
            "suppress_tokens": tokenizer.forbidden,
        },
        "tokenizer.json": _tokenizer(tokenizer),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": SPECIALS[PAD],
            "bos_token": SPECIALS[BOS],
            "eos_token": SPECIALS[EOS],
            "split_special_tokens": True,  # a `</s>` in a sentence is text
            "clean_up_tokenization_spaces": False,
            "model_input_names": ["input_ids", "attention_mask"],
            "model_max_length": MAX_POSITIONS,
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(to_bytes(_tensors(model), {"format": "pt"}))


def _ids() -> dict[str, int]:
    return {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": EOS,
    }


def _config(model: Transformer, info: ModelInfo) -> dict[str, Any]:
    shape = model.config
    sides = (("encoder", shape.num_encoder_layers), ("decoder", shape.num_decoder_layers))
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": info.tgt_vocab,
        "d_model": shape.d_model,
        **{f"{side}_layers": layers for side, layers in sides},
        **{f"{side}_attention_heads": shape.num_heads for side, _ in sides},
        **{f"{side}_ffn_dim": shape.d_ff for side, _ in sides},
        "activation_function": "relu",
        "dropout": shape.dropout,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "max_position_embeddings": MAX_POSITIONS,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "dtype": "float32",
        **_ids(),
    }


def _tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """Our file, with `</s>` put behind every line and the three special pieces marked as such."""
    spec: dict[str, Any] = json.loads(tokenizer.to_json())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    end = {"SpecialToken": {"id": SPECIALS[EOS], "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    return spec | {
        "added_tokens": [{"id": i, "content": content, **flags} for i, content in enumerate(SPECIALS)],
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, end],
            "pair": [first, second, end],
            "special_tokens": {SPECIALS[EOS]: {"id": SPECIALS[EOS], "ids": [EOS], "tokens": [SPECIALS[EOS]]}},
        },
    }


def _tensors(model: Transformer) -> Tensors:
    """Our parameters under Marian's names, their dimensions in Marian's order."""
    d_model = model.config.d_model
    order = torch.cat((torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)))
    found = {
        "model.shared.weight": model.tgt_embedding.tokens.weight[:, order],
        "final_logits_bias": torch.zeros(1, model.output.out_features),
    }

    def linear(name: str, layer: nn.Linear, *, reads: bool = False, writes: bool = False) -> None:
        """A projection that reads the residual stream, or writes it."""
        weight, bias = layer.weight, layer.bias
        found[f"{name}.weight"] = weight[:, order] if reads else weight[order] if writes else weight
        found[f"{name}.bias"] = bias[order] if writes else bias

    def attention(name: str, module: MultiHeadAttention, residual: Residual) -> None:
        for theirs, ours in (("q_proj", module.w_q), ("k_proj", module.w_k), ("v_proj", module.w_v)):
            linear(f"{name}.{theirs}", ours, reads=True)
        linear(f"{name}.out_proj", module.w_o, writes=True)
        norm(f"{name}_layer_norm", residual)

    def norm(name: str, residual: Residual) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = residual.norm.weight[order], residual.norm.bias[order]

    for side in ("encoder", "decoder"):
        layers: Any = getattr(model, side)
        for i, layer in enumerate(layers):
            prefix = f"model.{side}.layers.{i}"
            attention(f"{prefix}.self_attn", layer.self_attention, layer.self_residual)
            if side == "decoder":
                attention(f"{prefix}.encoder_attn", layer.cross_attention, layer.cross_residual)
            linear(f"{prefix}.fc1", layer.feed_forward.w_1, reads=True)
            linear(f"{prefix}.fc2", layer.feed_forward.w_2, writes=True)
            norm(f"{prefix}.final_layer_norm", layer.ffn_residual)
    return found


class Exported(LineTranslator):
    """The folder that `convert` wrote, as `transformers` reads it: its tokenizer and its greedy search."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, longest_src: int):
        """Load it.

        Raises:
            ImportError: transformers is not installed.
        """
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
        super().__init__(tokenizer, longest_src)
        self.theirs: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()

    def _budget(self, options: Options) -> int:
        return 2000

    def _batches(self, window: Sequence[str], ids: Sequence[Sequence[int]], options: Options) -> Iterator[list[int]]:
        """Rows of one length, since `generate` has one limit for all rows."""
        for rows in super()._batches(window, ids, options):
            for _, same in groupby(rows, key=lambda row: len(ids[row])):
                yield list(same)

    @torch.inference_mode()
    def _drafts(
        self, window: Sequence[str], ids: Sequence[Sequence[int]], rows: Sequence[int], options: Options, first: int
    ) -> list[list[Draft]]:
        inputs = self.theirs([window[row] for row in rows], padding=True, return_tensors="pt")
        limit = options.max_length or len(ids[rows[0]]) + options.max_extra
        found = self.model.generate(**inputs, num_beams=1, max_length=limit + 2)  # with <s> and </s>
        logits = self.model(**inputs, decoder_input_ids=found[:, :-1]).logits
        log_p = logits.log_softmax(dim=-1).gather(2, found[:, 1:, None]).squeeze(2)
        log_probs = log_p.masked_fill(found[:, 1:] == PAD, 0.0).sum(dim=1).tolist()
        texts = self.theirs.batch_decode(found, skip_special_tokens=True)
        rows_found = zip(texts, found.tolist(), log_probs, strict=True)
        return [[Draft(text, tuple(tokens), log_prob, log_prob)] for text, tokens, log_prob in rows_found]
