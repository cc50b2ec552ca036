"""The presets (model sizes that have a name), and the settings of the built-in demo."""

from typing import Any, Literal

Preset = Literal["tiny", "small", "base", "big"]

Values = dict[str, Any]
"""Values by section and key."""

# base and big are rows of the paper's Table 3. tiny is the size published for Multi30K. small lies between.
PRESETS: dict[Preset, Values] = {
    "tiny": {
        "model": {
            "d_model": 128,
            "d_ff": 256,
            "num_heads": 4,
            "num_encoder_layers": 4,
            "num_decoder_layers": 4,
        },
        "train": {"lr": 3e-3, "warmup_steps": 500},
    },
    "small": {
        "model": {
            "d_model": 256,
            "d_ff": 1024,
            "num_heads": 4,
            "num_encoder_layers": 6,
            "num_decoder_layers": 6,
        },
        "train": {"lr": 1e-3, "warmup_steps": 2000},
    },
    "base": {
        "model": {
            "d_model": 512,
            "d_ff": 2048,
            "num_heads": 8,
            "num_encoder_layers": 6,
            "num_decoder_layers": 6,
        },
        "train": {"lr": 7e-4, "warmup_steps": 4000, "batch_tokens": 25000},
    },
    "big": {
        "model": {
            "d_model": 1024,
            "d_ff": 4096,
            "num_heads": 16,
            "num_encoder_layers": 6,
            "num_decoder_layers": 6,
            "dropout": 0.3,
        },
        "train": {"lr": 5e-4, "warmup_steps": 4000, "batch_tokens": 25000},
    },
}

# The built-in corpus is small and regular: a few epochs with little dropout take two minutes.
DEMO: Values = {
    "tokenizer": {"vocab_size": 2500},
    "model": {"dropout": 0.05},
    "train": {
        "batch_tokens": 1024,
        "micro_batches": 2,
        "max_steps": 1200,
        "warmup_steps": 200,
        "valid_every": 500,
        "save_every": 500,
        "average": 1,
    },
    "decode": {"length_penalty": 0.6},
}
