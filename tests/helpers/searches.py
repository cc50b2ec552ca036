"""Small random models, and what a search for their translations must find."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mtcli.config.schema import ModelConfig
from mtcli.model.transformer import Transformer
from mtcli.search.constraints import Limits
from mtcli.search.step import Hypothesis
from mtcli.text.special_tokens import BOS, EOS, PAD

SPECIAL = (PAD, BOS)
CLOSE = 1e-5
"""Searches add float32 log-probabilities of the size of 10; enumeration adds float64 ones."""


def build(seed: int, V: int = 6, dtype: torch.dtype = torch.float64, **changes: Any) -> Transformer:
    """A random model. Its output is scaled up because all tokens are about equally likely after initialisation."""
    torch.manual_seed(seed)
    shape = {"d_model": 8, "d_ff": 16, "num_heads": 2, "num_encoder_layers": 1, "num_decoder_layers": 2, "dropout": 0}
    model = Transformer(ModelConfig(**{**shape, "tie_embeddings": False, **changes}), V, V, joint=True)
    nn.init.normal_(model.output.weight, std=0.7)
    return model.to(dtype).eval()


def draw_sources(seed: int, V: int = 6, lengths: Sequence[int] = (4, 1, 6, 2, 3)) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [[*torch.randint(3, V, (n,), generator=generator).tolist(), EOS] for n in lengths]


def pad(rows: Sequence[Sequence[int]], width: int = 0) -> Tensor:
    width = max(width, *map(len, rows))
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])


def limits(n: int, most: int, **more: Any) -> Limits:
    return Limits([most] * n, forbidden=SPECIAL, **more)


@torch.inference_mode()
def teacher_forced(model: Transformer, source: Sequence[int], ids: Sequence[int]) -> float:
    """log P(ids </s> | source), without a cache."""
    log_p = model(torch.tensor([source]), torch.tensor([[BOS, *ids]])).double().log_softmax(-1)[0]
    return sum(log_p[t, token].item() for t, token in enumerate([*ids, EOS]))


def all_translations(
    model: Transformer, source: Sequence[int], most: int, alpha: float, V: int = 6
) -> list[Hypothesis]:
    """All translations of at most `most` tokens, best first."""
    found = []
    for n in range(most + 1):
        for ids in itertools.product(range(3, V), repeat=n):
            log_prob = teacher_forced(model, source, ids)
            found.append(Hypothesis(list(ids), log_prob, ((5 + n + 1) / 6) ** alpha))
    return sorted(found, key=lambda h: -h.score)


def ids_of(found: Sequence[Hypothesis]) -> list[list[int]]:
    return [h.ids for h in found]
