"""Random Marian models, made by transformers, as folders to import."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.spm import demo_lines, marian_tokenizer, trained
from mtcli.text.tokenizer.sentencepiece_file import from_bytes

TAGS = (">>fra<<", ">>deu<<")


def write_tokenizer(folder: Path, tags: tuple[str, ...] = (), size: int = 400) -> dict[str, int]:
    """Write `source.spm`, `target.spm` (each of so many tokens) and `vocab.json`, and return the vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {"source.spm": trained(0, size=size), "target.spm": trained(1, size=size)}
    for name, content in files.items():
        (folder / name).write_bytes(content)
    pieces = dict.fromkeys(piece.text for content in files.values() for piece in from_bytes(content).pieces)
    others = [text for text in pieces if text not in ("</s>", "<unk>", "<s>")]
    vocab = {name: i for i, name in enumerate(["</s>", "<unk>", *tags, *others, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "es"}))
    return vocab


def marian_model(vocab: dict[str, int], seed: int = 0, *, small: bool = False, **settings: Any) -> Any:
    """A MarianMTModel with random weights: large ones, so that the model has opinions, or small ones to be trained."""
    transformers = pytest.importorskip("transformers")
    import torch

    pad, eos = vocab["<pad>"], vocab["</s>"]
    shape = {
        "vocab_size": len(vocab), "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "max_position_embeddings": 128, "scale_embedding": True, "activation_function": "swish", "dropout": 0.1,
        "pad_token_id": pad, "eos_token_id": eos, "forced_eos_token_id": eos, "decoder_start_token_id": pad,
        "bad_words_ids": [[pad]], "num_beams": 4,
    }  # fmt: skip
    config = transformers.MarianConfig(**(shape | settings))
    generator_state = torch.get_rng_state()
    torch.manual_seed(seed)
    model = transformers.MarianMTModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.copy_(torch.randn_like(parameter) * (0.15 if small else 0.3) + ("norm.weight" in name))
        model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
    torch.set_rng_state(generator_state)
    return model.eval()


def train(
    model: Any, folder: Path, steps: int, *, pairs: Sequence[tuple[str, str]] | None = None, warmup_steps: int = 0
) -> None:
    """Train a model with `transformers`, so that its translations have different lengths.

    Args:
        model: A MarianMTModel.
        folder: Its tokenizer.
        steps: Steps of 32 pairs.
        pairs: Sentence pairs; None: some of the demo.
        warmup_steps: The learning rate rises for so many steps. If there are any, it then falls to zero.
    """
    import torch

    tokenizer = marian_tokenizer(folder)
    sources, targets = zip(*pairs, strict=True) if pairs else (demo_lines(0), demo_lines(1))
    batch = tokenizer(list(sources), text_target=list(targets))
    src, tgt = batch["input_ids"], batch["labels"]
    pad = model.config.pad_token_id
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        if warmup_steps:
            optimizer.param_groups[0]["lr"] = 3e-3 * min((step + 1) / warmup_steps, 1 - step / steps)
        rows = torch.randint(len(src), (32,), generator=generator).tolist()
        inputs, labels = (
            torch.nn.utils.rnn.pad_sequence([torch.tensor(side[row]) for row in rows], True, pad) for side in (src, tgt)
        )
        loss = model(inputs, attention_mask=inputs != pad, labels=labels.masked_fill(labels == pad, -100)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def marian_folder(
    folder: Path, *, tags: tuple[str, ...] = (), half: bool = False, steps: int = 0, seed: int = 0, **settings: Any
) -> Path:
    """A folder as the Hub has it: weights, configuration and tokenizer.

    Args:
        folder: To be written.
        tags: Target languages of a multilingual model.
        half: Store float16, as models of the kind tc-big are.
        steps: Of training; 0: random weights.
        seed: Of the random weights.
        settings: Of the configuration.
    """
    vocab = write_tokenizer(folder, tags)
    model = marian_model(vocab, seed, small=bool(steps), **settings)
    if steps:
        train(model, folder, steps)
    if half:
        model.half()
    model.save_pretrained(folder)
    return folder


def generated(folder: Path, texts: list[str], most: int, **how: Any) -> tuple[list[str], list[int]]:
    """The translations of transformers and their numbers of tokens, with `</s>`; `most` is the largest number."""
    transformers = pytest.importorskip("transformers")
    import torch

    model = transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = marian_tokenizer(folder)
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    bad = [[model.config.pad_token_id]]
    found = model.generate(**inputs, max_length=most + 1, bad_words_ids=bad, forced_eos_token_id=None, **how)
    lengths = (found != model.config.pad_token_id).sum(dim=1).tolist()
    return list(tokenizer.batch_decode(found, skip_special_tokens=True)), lengths


def lines(n: int) -> list[str]:
    """Sentences of the demo."""
    return list(demo_lines(0)[:n])
