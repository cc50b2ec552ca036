"""Write a small Marian model with random weights and the tokenizer of an OPUS-MT model, which `mtcli import` reads.

Trained on plain pairs, it shows what `mtcli translate` does for imported models (docs/results.md):
    python scripts/random_marian.py OPUS_FOLDER FOLDER
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from transformers import MarianConfig, MarianMTModel

KEPT = ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id", "forced_eos_token_id", "decoder_start_token_id")
"""Settings that belong to the tokenizer."""

TOKENIZER_FILES = ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json")


def main() -> None:
    """Write the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("opus", type=Path, help="folder of an OPUS-MT model; its weights are not needed")
    parser.add_argument("folder", type=Path, help="folder to write")
    arguments = parser.parse_args()
    original = json.loads((arguments.opus / "config.json").read_text())
    config = MarianConfig(
        **{name: original[name] for name in KEPT if name in original},
        d_model=128,
        encoder_layers=3,
        decoder_layers=3,
        encoder_ffn_dim=512,
        decoder_ffn_dim=512,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        max_position_embeddings=512,
        activation_function="swish",
        scale_embedding=True,
        static_position_embeddings=True,
        share_encoder_decoder_embeddings=True,
    )
    torch.manual_seed(1)
    MarianMTModel(config).save_pretrained(arguments.folder)
    for name in TOKENIZER_FILES:
        shutil.copy(arguments.opus / name, arguments.folder / name)


if __name__ == "__main__":
    main()
