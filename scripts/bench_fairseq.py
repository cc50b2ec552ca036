#!/usr/bin/env python3
"""Warm latency of one sentence: our decoder and fairseq 0.12.2 with the same weights, run alternately.

    PYTHONPATH=FAIRSEQ python scripts/bench_fairseq.py --model DIR --input FILE [--beam 5] [--runs 5]

FAIRSEQ is the unpacked source package of fairseq 0.12.2. It needs hydra-core 1.0.7, omegaconf 2.0.6, bitarray and
regex, but no compiled extension. The model must have a joint vocabulary, sinusoidal positions and post-norm.

Each side translates the first 50 lines one at a time, tokenization included, after a round that is not timed. fairseq
divides the log-probability by another function of the length, so with a beam a few translations differ.

The script prints each run and, as the last line, JSON. `ratio` is the median of the ratios of the runs, ours to
fairseq's.
"""

import argparse
import dataclasses
import inspect
import json
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from mtcli.model.transformer import Transformer, sinusoids
from mtcli.storage.model_file import load_model
from mtcli.text.lines import read_lines
from mtcli.text.special_tokens import BOS, EOS, PAD
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.loading import load
from mtcli.translate.windows import Reading

NUM_LINES = 50
MAX_POSITIONS = 1024

# From our names of modules to those of fairseq.
ATTENTION = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
PROJECTION = {"w_q": "q_proj", "w_k": "k_proj", "w_v": "v_proj", "w_o": "out_proj", "w_1": "fc1", "w_2": "fc2"}
NORM = {
    "self_residual": "self_attn_layer_norm",
    "cross_residual": "encoder_attn_layer_norm",
    "ffn_residual": "final_layer_norm",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="a run folder")
    parser.add_argument("--input", type=Path, required=True, help="source lines")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    lines = list(read_lines(args.input))[:NUM_LINES]
    found, options, _ = load([args.model], "cpu")
    options = replace(options, beam_size=args.beam)
    sides: dict[str, Callable[[str], str]] = {
        "ours": lambda line: next(found.translate([line], options, Reading(warn=False, quiet=True))).text,
        "fairseq": fairseq(args.model, args.beam, options.length_penalty),
    }
    texts = {side: [translate(line) for line in lines] for side, translate in sides.items()}
    latencies: dict[str, list[float]] = {side: [] for side in sides}
    for run in range(args.runs):
        for side in sides if run % 2 == 0 else reversed(sides):
            taken = []
            for line in lines:
                started = time.perf_counter()
                sides[side](line)
                taken.append(1000 * (time.perf_counter() - started))
            latencies[side].append(median(taken))
        print(f"run {run + 1}: " + ", ".join(f"{side} {values[-1]:.1f} ms" for side, values in latencies.items()))
    ratio = median(ours / theirs for ours, theirs in zip(latencies["ours"], latencies["fairseq"], strict=True))
    equal = sum(ours == theirs for ours, theirs in zip(*texts.values(), strict=True)) / len(lines)
    medians = {f"{side}_warm_sentence_ms": round(median(values), 1) for side, values in latencies.items()}
    print(json.dumps({"ratio": round(ratio, 3), **medians, "equal_share": equal, "beam_size": args.beam}))


def fairseq(folder: Path, beam: int, penalty: float) -> Callable[[str], str]:
    """Return a function that translates a line with fairseq's search and model, with the weights of a run.

    Args:
        folder: The run folder.
        beam: Beam size.
        penalty: Length penalty.
    """
    support_old_python()
    from fairseq.data import Dictionary
    from fairseq.models.transformer import TransformerModel
    from fairseq.models.transformer.transformer_legacy import base_architecture
    from fairseq.sequence_generator import SequenceGenerator

    model, info, tokenizer = load_model(folder)
    dictionary = Dictionary()  # its id of <s> is 0, and that of <pad> is 1
    for token_id in range(4, tokenizer.tgt_size):
        dictionary.add_symbol(f"token {token_id}")
    config = info.model
    shape = {"ffn_embed_dim": config.d_ff, "attention_heads": config.num_heads, "embed_dim": config.d_model}
    settings = Namespace(
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in shape.items()},
        encoder_layers=config.num_encoder_layers,
        decoder_layers=config.num_decoder_layers,
        share_all_embeddings=True,
        max_source_positions=MAX_POSITIONS,
        max_target_positions=MAX_POSITIONS,
    )
    base_architecture(settings)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    theirs = TransformerModel.build_model(settings, task).eval()
    order = [BOS, PAD, *range(2, tokenizer.tgt_size)]
    mismatch = theirs.load_state_dict(weights(model, order), strict=False)
    if mismatch.missing_keys or mismatch.unexpected_keys:
        raise SystemExit(f"the weights do not fit: {mismatch}")
    # fairseq counts positions from 2, and orders sines and cosines differently.
    positions = torch.cat((torch.zeros(2, config.d_model), sinusoids(MAX_POSITIONS, config.d_model)))
    for side in (theirs.encoder, theirs.decoder):
        side.embed_positions.weights = positions
        side.embed_positions.max_positions = MAX_POSITIONS
    penalty = penalty if beam > 1 else 0
    search = SequenceGenerator([theirs], dictionary, beam_size=beam, max_len_a=1, max_len_b=50, len_penalty=penalty)
    return lambda line: translate_with_fairseq(line, tokenizer, theirs, search, order)


def support_old_python() -> None:
    """Restore two features of older versions that fairseq needs: mutable dataclass defaults, and `np.float`."""
    source = inspect.getsource(vars(dataclasses)["_get_field"])
    exec(source.replace("f.default.__class__.__hash__ is None", "False"), vars(dataclasses))
    vars(np).update(float=float, int=int, bool=bool, object=object)


@torch.inference_mode()
def translate_with_fairseq(line: str, tokenizer: Tokenizer, model: Any, search: Any, order: list[int]) -> str:
    """Translate one line.

    Args:
        line: The line.
        tokenizer: Our tokenizer.
        model: fairseq's model.
        search: fairseq's search.
        order: fairseq's id of each of our ids, and the reverse: the first two are swapped.
    """
    ids = [*tokenizer.encode_src([line])[0], EOS]
    src = torch.tensor([[order[token_id] for token_id in ids]])
    sample = {"net_input": {"src_tokens": src, "src_lengths": torch.tensor([src.size(1)])}}
    best = search.generate([model], sample, bos_token=order[BOS])[0][0]
    return tokenizer.decode([[order[token_id] for token_id in best["tokens"].tolist()]])[0]


def weights(model: Transformer, order: list[int]) -> dict[str, torch.Tensor]:
    """Return our weights under fairseq's names."""
    ours = model.state_dict()
    found = dict.fromkeys(
        ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight"),
        ours["tgt_embedding.tokens.weight"][order],
    )
    for name, value in ours.items():
        side, *rest = name.split(".")
        if side not in ("encoder", "decoder"):
            continue
        layer, part, *inner, kind = rest
        path = NORM[part] if part in NORM else PROJECTION[inner[0]]
        if part in ATTENTION:
            path = f"{ATTENTION[part]}.{path}"
        found[f"{side}.layers.{layer}.{path}.{kind}"] = value
    return found


if __name__ == "__main__":
    main()
