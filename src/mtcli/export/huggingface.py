"""Write a model as a Marian model, an encoder-decoder of Hugging Face `transformers` with the same layers.

Marian does not store sinusoids. It computes all sines, then all cosines, where the paper alternates them (§3.5). So the
D dimensions of the residual stream are written in Marian's order, in every weight that reads or writes them.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mtcli.data.tokenizer import BOS, EOS, PAD, SPECIALS, Tokenizer
from mtcli.inference.line_translator import Draft, LineTranslator, Options, Window
from mtcli.nn.transformer import MultiHeadAttention, Residual, Transformer
from mtcli.storage.model_file import ModelInfo
from mtcli.storage.tensors import Tensors, to_bytes

FILES = (
    "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
)  # fmt: skip
"""All files of a folder for `transformers`."""

MAX_POSITIONS = 1024
"""Positions of source and target each."""


def convert(model: Transformer, info: ModelInfo, tokenizer: Tokenizer, folder: Path) -> None:
    """Write `model.safetensors`, `config.json`, `generation_config.json` and the tokenizer's files into a folder.

    Args:
        model: A model without `export.obstacles`.
        info: The model's information.
        tokenizer: The model's.
        folder: An existing folder.
    """
    files = {
        "config.json": _config(model, info),
        "generation_config.json": _generation_config(info, tokenizer),
        "tokenizer.json": _tokenizer(tokenizer),
        "tokenizer_config.json": _tokenizer_config(),
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(to_bytes(_MarianTensors(model).tensors, {"format": "pt"}))


def _special_ids() -> dict[str, int]:
    return {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": EOS,
    }


def _config(model: Transformer, info: ModelInfo) -> dict[str, Any]:
    shape = model.config
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": info.tgt_vocab,
        "d_model": shape.d_model,
        "encoder_layers": shape.num_encoder_layers,
        "decoder_layers": shape.num_decoder_layers,
        "encoder_attention_heads": shape.num_heads,
        "decoder_attention_heads": shape.num_heads,
        "encoder_ffn_dim": shape.d_ff,
        "decoder_ffn_dim": shape.d_ff,
        "activation_function": "relu",
        "dropout": shape.dropout,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "max_position_embeddings": MAX_POSITIONS,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "dtype": "float32",
        **_special_ids(),
    }


def _generation_config(info: ModelInfo, tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        **_special_ids(),
        "max_length": MAX_POSITIONS // 2,
        "num_beams": info.decode.beam_size,
        "length_penalty": info.decode.length_penalty,
        "early_stopping": True,  # stop as soon as there are as many translations as beams, as our search does
        "suppress_tokens": tokenizer.forbidden,
    }


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": SPECIALS[PAD],
        "bos_token": SPECIALS[BOS],
        "eos_token": SPECIALS[EOS],
        "split_special_tokens": True,  # `</s>` in a sentence is ordinary text
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": MAX_POSITIONS,
    }


def _tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """Our tokenizer file, which also appends `</s>` to every line and marks the three special tokens."""
    spec: dict[str, Any] = json.loads(tokenizer.to_json())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    first = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 0}}
    end = {"SpecialToken": {"id": SPECIALS[EOS], "type_id": 0}}
    return spec | {
        "added_tokens": [{"id": i, "content": content, **flags} for i, content in enumerate(SPECIALS)],
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, end],
            "pair": [first, second, end],
            "special_tokens": {SPECIALS[EOS]: {"id": SPECIALS[EOS], "ids": [EOS], "tokens": [SPECIALS[EOS]]}},
        },
    }


class _MarianTensors:
    """Our parameters under Marian's names, with the dimensions of the residual stream in Marian's order."""

    def __init__(self, model: Transformer):
        d_model = model.config.d_model
        even = torch.arange(0, d_model, 2)
        self.order = torch.cat((even, even + 1))
        self.tensors: Tensors = {
            "model.shared.weight": model.tgt_embedding.tokens.weight[:, self.order],
            "final_logits_bias": torch.zeros(1, model.output.out_features),
        }
        for side in ("encoder", "decoder"):
            layers: Any = getattr(model, side)
            for i, layer in enumerate(layers):
                prefix = f"model.{side}.layers.{i}"
                self._add_attention(f"{prefix}.self_attn", layer.self_attention, layer.self_residual)
                if side == "decoder":
                    self._add_attention(f"{prefix}.encoder_attn", layer.cross_attention, layer.cross_residual)
                self._add_reader(f"{prefix}.fc1", layer.feed_forward.w_1)
                self._add_writer(f"{prefix}.fc2", layer.feed_forward.w_2)
                self._add_norm(f"{prefix}.final_layer_norm", layer.ffn_residual)

    def _add_attention(self, name: str, module: MultiHeadAttention, residual: Residual) -> None:
        self._add_reader(f"{name}.q_proj", module.w_q)
        self._add_reader(f"{name}.k_proj", module.w_k)
        self._add_reader(f"{name}.v_proj", module.w_v)
        self._add_writer(f"{name}.out_proj", module.w_o)
        self._add_norm(f"{name}_layer_norm", residual)

    def _add_reader(self, name: str, layer: nn.Linear) -> None:
        """Add a projection whose input is the residual stream."""
        self.tensors[f"{name}.weight"] = layer.weight[:, self.order]
        self.tensors[f"{name}.bias"] = layer.bias

    def _add_writer(self, name: str, layer: nn.Linear) -> None:
        """Add a projection whose output is added to the residual stream."""
        self.tensors[f"{name}.weight"] = layer.weight[self.order]
        self.tensors[f"{name}.bias"] = layer.bias[self.order]

    def _add_norm(self, name: str, residual: Residual) -> None:
        self.tensors[f"{name}.weight"] = residual.norm.weight[self.order]
        self.tensors[f"{name}.bias"] = residual.norm.bias[self.order]


class Exported(LineTranslator):
    """An exported folder as `transformers` reads it: its tokenizer, and its greedy search."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, longest_src: int):
        """Load it.

        Args:
            folder: A folder that `convert` wrote.
            tokenizer: Our tokenizer of the model.
            longest_src: Tokens of the longest source in training.

        Raises:
            ImportError: transformers is not installed.
        """
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
        super().__init__(tokenizer, longest_src)
        self.exported_tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.exported_model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()

    def _budget(self, options: Options) -> int:
        return 2000

    def _batches(self, window: Window, options: Options) -> Iterator[list[int]]:
        """Divide the rows into batches of equal length, because `generate` has one maximum length for a batch."""
        for rows in super()._batches(window, options):
            for _, same_length in groupby(rows, key=lambda row: len(window.ids[row])):
                yield list(same_length)

    @torch.inference_mode()
    def _drafts(self, window: Window, rows: Sequence[int], options: Options) -> list[list[Draft]]:
        lines = [window.lines[row] for row in rows]
        inputs = self.exported_tokenizer(lines, padding=True, return_tensors="pt")
        max_length = options.max_length or len(window.ids[rows[0]]) + options.max_extra
        ids: Tensor = self.exported_model.generate(**inputs, num_beams=1, max_length=max_length + 2)  # <s> and </s>
        logits = self.exported_model(**inputs, decoder_input_ids=ids[:, :-1]).logits
        log_p = logits.log_softmax(dim=-1).gather(2, ids[:, 1:, None]).squeeze(2)  # (B, T)
        log_probs = log_p.masked_fill(ids[:, 1:] == PAD, 0.0).sum(dim=1).tolist()
        texts = self.exported_tokenizer.batch_decode(ids, skip_special_tokens=True)
        drafts = []
        for text, row_ids, log_prob in zip(texts, ids.tolist(), log_probs, strict=True):
            drafts.append([Draft(text, tuple(row_ids), log_prob, log_prob)])
        return drafts
