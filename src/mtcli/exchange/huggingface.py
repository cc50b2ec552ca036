"""Write a model as a Marian model, an encoder-decoder of Hugging Face `transformers` with the same layers.

`marian.py` renames and reorders the tensors. A model that was imported from Marian is exported with its original
tokenizer (`source.spm`, `target.spm` and `vocab.json`) and its original token ids.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtcli.exchange.marian_weights import EMBEDDING, OUTPUT_BIAS, to_marian
from mtcli.model.transformer import Transformer
from mtcli.runtime.files import json_bytes
from mtcli.storage.model_file import ModelInfo, parameters
from mtcli.storage.tensors import Tensors, to_bytes
from mtcli.storage.translation_info import TranslationInfo
from mtcli.text.special_tokens import BOS, EOS, PAD
from mtcli.text.tokenizer.sentencepiece import SentencePieceSide
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.text.tokenizer.vocabulary_file import SPECIALS
from mtcli.translate.backends.backend import Backend
from mtcli.translate.translation import Candidate, Options
from mtcli.translate.windows import SourceLine

FILES = (
    "config.json", "generation_config.json", "model.safetensors", "source.spm", "target.spm", "tokenizer.json",
    "tokenizer_config.json", "vocab.json",
)  # fmt: skip
"""All files that a folder for `transformers` may have: `tokenizer.json`, or three files of an imported tokenizer."""

MAX_POSITIONS = 1024
"""Positions of source and target each."""


@dataclass(frozen=True)
class Ids:
    """The token ids of the exported model."""

    order: Sequence[int]
    """Our id of each token of the exported model."""
    pad: int = PAD
    eos: int = EOS
    start: int = BOS
    """The token that a translation starts with."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, model: Transformer) -> "Ids":
        """Return our ids for a tokenizer that mtcli trained, and the original ids for an imported one.

        The start token of an imported model is a copy of `<pad>`. If training has changed it, it becomes another token
        at the end of the vocabulary.
        """
        if tokenizer.sentencepiece is None:
            return cls(range(tokenizer.tgt_size))
        vocabulary = tokenizer.sentencepiece[0].vocabulary
        origin = {vocabulary.origin_ids[i]: i for i in range(tokenizer.tgt_size) if i != BOS}
        order = [origin[i] for i in range(len(origin))]
        rows = model.tgt_embedding.tokens.weight
        if torch.equal(rows[PAD], rows[BOS]):
            return cls(order, vocabulary.pad, vocabulary.eos, vocabulary.pad)
        return cls([*order, BOS], vocabulary.pad, vocabulary.eos, len(order))

    def to_config(self) -> dict[str, int]:
        """Return the keys of `config.json` and `generation_config.json`."""
        return {
            "pad_token_id": self.pad,
            "bos_token_id": self.start,
            "eos_token_id": self.eos,
            "decoder_start_token_id": self.start,
            "forced_eos_token_id": self.eos,
        }


def convert(model: Transformer, info: ModelInfo, tokenizer: Tokenizer, folder: Path) -> None:
    """Write `model.safetensors`, `config.json`, `generation_config.json` and the tokenizer's files into a folder.

    Args:
        model: A model without `targets.obstacles`.
        info: The model's information.
        tokenizer: The model's.
        folder: An existing folder.
    """
    ids = Ids.of(tokenizer, model)
    (folder / "config.json").write_bytes(json_bytes(_config(model, ids)))
    (folder / "generation_config.json").write_bytes(json_bytes(_generation(info, tokenizer, ids)))
    if tokenizer.sentencepiece:
        _write_marian_tokenizer(tokenizer.sentencepiece, ids, info, folder)
    else:
        (folder / "tokenizer.json").write_bytes(json_bytes(_tokenizer(tokenizer)))
        (folder / "tokenizer_config.json").write_bytes(json_bytes(_tokenizer_config()))
    (folder / "model.safetensors").write_bytes(to_bytes(_tensors(model, ids), {"format": "pt"}))


def _config(model: Transformer, ids: Ids) -> dict[str, Any]:
    shape = model.config
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "vocab_size": len(ids.order),
        "d_model": shape.d_model,
        "encoder_layers": shape.num_encoder_layers,
        "decoder_layers": shape.num_decoder_layers,
        "encoder_attention_heads": shape.num_heads,
        "decoder_attention_heads": shape.num_heads,
        "encoder_ffn_dim": shape.d_ff,
        "decoder_ffn_dim": shape.d_ff,
        "activation_function": shape.activation,
        "dropout": shape.dropout,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "max_position_embeddings": MAX_POSITIONS,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "dtype": "float32",
        **ids.to_config(),
    }


def _generation(info: ModelInfo, tokenizer: Tokenizer, ids: Ids) -> dict[str, Any]:
    forbidden = set(tokenizer.forbidden)
    return {
        **ids.to_config(),
        "max_length": MAX_POSITIONS // 2,
        "num_beams": info.decode.beam_size,
        "length_penalty": info.decode.length_penalty,
        "early_stopping": info.decode.early_stopping,
        "suppress_tokens": [theirs for theirs, ours in enumerate(ids.order) if ours in forbidden],
    }


def _write_marian_tokenizer(
    sides: tuple[SentencePieceSide, SentencePieceSide], ids: Ids, info: ModelInfo, folder: Path
) -> None:
    """Write the files that `MarianTokenizer` reads."""
    src, tgt = sides
    (folder / "source.spm").write_bytes(src.model.to_bytes())
    (folder / "target.spm").write_bytes(tgt.model.to_bytes())
    (folder / "vocab.json").write_bytes(json_bytes({src.tokens[ours]: theirs for theirs, ours in enumerate(ids.order)}))
    about = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": info.src,
        "target_lang": info.tgt,
        "pad_token": SPECIALS[PAD],
        "eos_token": SPECIALS[EOS],
        "unk_token": "<unk>",
        "separate_vocabs": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MAX_POSITIONS // 2,
    }
    (folder / "tokenizer_config.json").write_bytes(json_bytes(about))


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
    """Return our tokenizer file, which here also appends `</s>` to every line and marks the special tokens.

    The tag of a target language is found in text here, with the space behind it: `>>gn<< Hola`. A special token would
    not be, see `split_special_tokens` in `_tokenizer_config`.
    """
    spec: dict[str, Any] = json.loads(tokenizer.to_json())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tags = [
        {"id": i, "content": tokenizer.src_vocabulary[i], **flags, "rstrip": True, "special": False}
        for i in sorted(tokenizer.tags.values())
    ]
    first = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 0}}
    end = {"SpecialToken": {"id": SPECIALS[EOS], "type_id": 0}}
    return spec | {
        "added_tokens": [{"id": i, "content": content, **flags} for i, content in enumerate(SPECIALS)] + tags,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, end],
            "pair": [first, second, end],
            "special_tokens": {SPECIALS[EOS]: {"id": SPECIALS[EOS], "ids": [EOS], "tokens": [SPECIALS[EOS]]}},
        },
    }


def _tensors(model: Transformer, ids: Ids) -> Tensors:
    """Return our parameters with Marian's names, and dimensions and tokens in the order of the exported model."""
    found = to_marian(parameters(model), model.config)
    rows = torch.tensor(ids.order)
    found[EMBEDDING] = found[EMBEDDING][rows]
    found[OUTPUT_BIAS] = found[OUTPUT_BIAS][:, rows]
    return found


class Exported(Backend):
    """An exported folder as `transformers` reads it: its tokenizer, and its greedy search."""

    def __init__(self, folder: Path, tokenizer: Tokenizer, info: TranslationInfo):
        """Load it.

        Args:
            folder: A folder that `convert` wrote.
            tokenizer: Our tokenizer of the model.
            info: What the file of the model says about it.

        Raises:
            ImportError: transformers is not installed, or for an imported model sentencepiece.
        """
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
        super().__init__(tokenizer, info)
        self.exported_tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.exported_model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()

    def max_batch_tokens(self, options: Options) -> int:
        """See `Backend.max_batch_tokens`."""
        return 2000

    def search(self, sources: Sequence[SourceLine], options: Options) -> list[list[Candidate]]:
        """See `Backend.search`."""
        found: list[list[Candidate]] = []
        # `generate` has one maximum length for a batch.
        for _, same_length in groupby(sources, key=lambda source: len(source.ids)):
            found += self._search_group(list(same_length), options)
        return found

    @torch.inference_mode()
    def _search_group(self, sources: Sequence[SourceLine], options: Options) -> list[list[Candidate]]:
        """Search for the translations of sources with equally many tokens."""
        lines = [source.line for source in sources]
        inputs = self.exported_tokenizer(lines, padding=True, return_tensors="pt")
        max_length = options.max_length or len(sources[0].ids) + options.max_extra
        ids: Tensor = self.exported_model.generate(**inputs, num_beams=1, max_length=max_length + 2)  # <s> and </s>
        logits = self.exported_model(**inputs, decoder_input_ids=ids[:, :-1]).logits
        log_p = logits.log_softmax(dim=-1).gather(2, ids[:, 1:, None]).squeeze(2)  # (B, T)
        is_padding = ids[:, 1:] == self.exported_model.config.pad_token_id
        log_probs = log_p.masked_fill(is_padding, 0.0).sum(dim=1).tolist()
        texts = self.exported_tokenizer.batch_decode(ids, skip_special_tokens=True)
        found = []
        for text, row_ids, log_prob in zip(texts, ids.tolist(), log_probs, strict=True):
            found.append([Candidate(text, log_prob, log_prob, tuple(row_ids))])
        return found
