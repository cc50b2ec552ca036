"""A model small enough to be trained in a test, so that its translations are better than chance."""

import copy
import json
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from mtcli.config.schema import DecodeConfig, ModelConfig
from mtcli.corpus.batching import pad
from mtcli.model.transformer import Transformer
from mtcli.storage.model_file import ModelInfo, model_bytes, parameters
from mtcli.storage.translation_info import TranslationInfo
from mtcli.text.languages import Direction
from mtcli.text.special_tokens import BOS, EOS
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.backends.ctranslate2 import CTranslate2Backend
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.translation import Options
from mtcli.translate.translator import ModelTranslator, Translator
from mtcli.translate.windows import Reading

WORDS = {"one": "uno", "red": "rojo", "dog": "perro", "cat": "gato", "sees": "ve", "big": "grande"}
PAIRS = [(f"{a} {b} {c}.", f"{WORDS[a]} {WORDS[b]} {WORDS[c]}.") for a in WORDS for b in WORDS for c in WORDS]

SEVERAL_PAIRS = {
    Direction("en", "es"): PAIRS,
    Direction("en", "xx"): [(src, " ".join(word[::-1] for word in src[:-1].split()) + ".") for src, _ in PAIRS],
}
"""Pairs of two directions."""

SEED = 3 + int(os.environ.get("MTCLI_TEST_SEED", 0))
"""`scripts/test --processors` sets the variable."""

MIN_STEPS = 120
MAX_STEPS = 1000


def toy_info(longest_src: int = 64, **about: Any) -> TranslationInfo:
    return TranslationInfo(decode=DecodeConfig(), src="en", tgt="es", longest_src=longest_src, **about)


class TorchTranslator(ModelTranslator):
    """A translator with PyTorch, and its model."""

    backend: PyTorchBackend

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        longest_src: int,
        *,
        others: Sequence[Transformer] = (),
        **about: Any,
    ):
        super().__init__(PyTorchBackend(model, tokenizer, toy_info(longest_src, **about), others=others))
        self.model = model


class ExportedTranslator(ModelTranslator):
    """A translator with CTranslate2."""

    backend: CTranslate2Backend

    def __init__(self, folder: Path, device: str = "auto"):
        super().__init__(CTranslate2Backend(folder, device))


def knows_its_pairs(translator: Translator, known: Sequence[tuple[str, str]]) -> bool:
    """Return True if greedy search translates all pairs as in training, and the default search those with "one".

    The default search ends with W finished hypotheses, so it misses a few pairs, however well the model knows them.
    """
    with_one = [pair for pair in known if pair[0].removeprefix(">>es<< ").startswith("one ")]
    for options, pairs in ((Options(beam_size=1), known), (Options(), with_one)):
        found = translator.translate([src for src, _ in pairs], options, Reading(warn=False, quiet=True))
        if [translation.text for translation in found] != [tgt for _, tgt in pairs]:
            return False
    return True


@cache
def toy(
    norm: str = "post", joint: bool = True, positions: str = "sinusoidal", activation: str = "relu", bias: bool = False
) -> TorchTranslator:
    """Return a trained word-by-word translator with two encoder layers, two decoder layers and two heads.

    It is trained until it knows its pairs, so that its translations depend neither on the seed nor on the processor.
    """
    config = ModelConfig(
        d_model=32, d_ff=48, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0,
        norm=norm, positions=positions, max_positions=64, activation=activation, output_bias=bias,
    )  # fmt: skip
    return _trained(config, train_tokenizer(PAIRS, joint=joint), PAIRS, joint=joint)


@cache
def several_toy() -> TorchTranslator:
    """Return the same with two target languages: `es`, and `xx`, in which the words have their letters reversed."""
    config = ModelConfig(
        d_model=32, d_ff=48, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0, max_positions=64,
    )  # fmt: skip
    pairs = [pair for direction in SEVERAL_PAIRS.values() for pair in direction]
    pieces = train_tokenizer(pairs, target_languages=("es", "xx"))
    tagged = [(f">>{tgt}<< {pair[0]}", pair[1]) for (_, tgt), own in SEVERAL_PAIRS.items() for pair in own]
    return _trained(config, pieces, tagged, joint=True)


def _trained(
    config: ModelConfig, pieces: Tokenizer, known: Sequence[tuple[str, str]], *, joint: bool
) -> TorchTranslator:
    """Train a model until it knows its pairs."""
    generator_state = torch.get_rng_state()
    torch.manual_seed(SEED)
    model = Transformer(config, pieces.src_size, pieces.tgt_size, joint=joint)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    src, tgt = pieces.encode_src([s for s, _ in known]), pieces.encode_tgt([t for _, t in known])
    for step in range(1, MAX_STEPS + 1):
        rows = torch.randint(len(known), (32,)).tolist()
        wanted = pad([tgt[r] for r in rows], after=(EOS,))
        logits = model.train()(pad([src[r] for r in rows], after=(EOS,)), pad([tgt[r] for r in rows], before=(BOS,)))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=0).backward()
        optimizer.step()
        if step >= MIN_STEPS and step % 20 == 0:
            translator = TorchTranslator(model.eval(), pieces, longest_src=64)
            if knows_its_pairs(translator, known):
                break
    else:
        raise AssertionError(f"the toy model with seed {SEED} has not learned its pairs")
    torch.set_rng_state(generator_state)
    return translator


def save_toy(
    folder: Path,
    translator: TorchTranslator | None = None,
    src: str = "en",
    tgt: str = "es",
    decode: DecodeConfig | None = None,
    directions: Sequence[Direction] = (),
) -> Path:
    """Write the toy model into a folder, as a run does, and return the folder."""
    translator = translator or toy()
    model, pieces = translator.model, translator.tokenizer
    info = ModelInfo(
        model=model.config, decode=decode or DecodeConfig(), src=src, tgt=tgt, joint=pieces.joint, step=1,
        longest_src=64, src_vocab=pieces.src_size, tgt_vocab=pieces.tgt_size, tokenizer=pieces.digest(),
        directions=tuple(directions),
    )  # fmt: skip
    (folder / "model.safetensors").write_bytes(model_bytes(parameters(model), info))
    pieces.save(folder / "tokenizer.json")
    return folder


def disturbed(translator: TorchTranslator, seed: int) -> TorchTranslator:
    """Return a copy of a model with noise on its weights."""
    model = copy.deepcopy(translator.model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)
    return TorchTranslator(model, translator.tokenizer, translator.longest_src)


def save_run(folder: Path, translator: TorchTranslator, decode: DecodeConfig | None = None) -> Path:
    (folder / "data").mkdir(parents=True)
    rows = [json.dumps({"translation": {"en": src, "es": tgt}}) for src, tgt in PAIRS[::3]]
    (folder / "data" / "test.jsonl").write_text("\n".join(rows) + "\n")
    return save_toy(folder, translator, decode=decode)
