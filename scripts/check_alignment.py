#!/usr/bin/env python3
"""Compare the word alignment of each decoder layer with IBM Model 1.

    scripts/check_alignment.py MODEL [--train SOURCES TARGETS --test SOURCES TARGETS] [--count 300]

Without files, the built-in demo is used. The files have one tokenized sentence a line. Prints, for each decoder layer,
the share of the links that it finds of those between words that translate each other with a probability of at least
0.5 in both directions, by IBM Model 1 trained on the training pairs. Only words that occur once in a sentence count.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch
from ibm_model1 import sure_translations

from mtcli.corpus import demo
from mtcli.translate.alignment import Weights, align
from mtcli.translate.backends.pytorch import PyTorchBackend, cross_attention
from mtcli.translate.translation import Candidate, Links
from mtcli.translate.windows import SourceLine

MIN_PROBABILITY = 0.5

Pairs = Sequence[tuple[str, str]]


def read_pairs(files: Sequence[Path] | None, of_demo: Pairs) -> Pairs:
    """Return the pairs of two files, or those of the demo."""
    if files is None:
        return of_demo
    src, tgt = (path.read_text().splitlines() for path in files)
    return list(zip(src, tgt, strict=True))


def sure_links(src: str, tgt: str, sure: set[tuple[str, str]]) -> Iterator[tuple[int, int]]:
    """Yield the links between words that occur once and translate each other."""
    src_words = src.split()
    tgt_words = tgt.split()
    for src_index, src_word in enumerate(src_words):
        for tgt_index, tgt_word in enumerate(tgt_words):
            is_unique = src_words.count(src_word) == 1 and tgt_words.count(tgt_word) == 1
            if is_unique and (src_word, tgt_word) in sure:
                yield src_index, tgt_index


def links_of_layer(backend: PyTorchBackend, pairs: Pairs, layer: int) -> list[Links]:
    """Return the alignment of each pair by one decoder layer."""

    def weights(sources: Sequence[SourceLine], tgt: Sequence[Sequence[int]]) -> Sequence[Weights]:
        return list(cross_attention(backend.model, [source.ids for source in sources], tgt, layer=layer).numpy())

    tokenizer = backend.tokenizer
    found = []
    for src, tgt in pairs:
        (src_ids,) = tokenizer.encode_src([src])
        (tgt_ids,) = tokenizer.encode_tgt([tgt])
        candidates = [[Candidate(tgt, 0.0, 0.0, tuple(tgt_ids))]]
        ((aligned,),) = align(tokenizer, [SourceLine(0, src, src_ids)], candidates, weights)
        found.append(aligned.alignment)
    return found


def main() -> int:
    """Print the share of each layer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--train", type=Path, nargs=2, metavar="FILE")
    parser.add_argument("--test", type=Path, nargs=2, metavar="FILE")
    parser.add_argument("--count", type=int, default=300)
    given = parser.parse_args()
    corpus = demo.load()
    train = read_pairs(given.train, corpus.train)
    test = list(islice(read_pairs(given.test, corpus.test), given.count))
    sure = sure_translations([src.split() for src, _ in train], [tgt.split() for _, tgt in train], MIN_PROBABILITY)
    expected = [list(sure_links(src, tgt, sure)) for src, tgt in test]
    total = sum(map(len, expected))
    backend = PyTorchBackend.load(given.model, torch.device("cpu"))
    for layer in range(len(backend.model.decoder)):
        links = links_of_layer(backend, test, layer)
        found = sum(len(set(wanted) & set(own)) for wanted, own in zip(expected, links, strict=True))
        print(f"decoder layer {layer + 1}: {found / total:.1%} of {total:,} links")
    return 0


if __name__ == "__main__":
    sys.exit(main())
