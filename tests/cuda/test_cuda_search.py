"""Searches on the simulated device: one wait of the host in each step, whatever the options are, and bf16."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from helpers.toy import TorchTranslator, toy
from simulated_cuda import Counts, counting, needs_simulated_cuda, run

from mtcli.corpus.batching import pad
from mtcli.model.transformer import Transformer
from mtcli.search.beam import beam_search
from mtcli.search.constraints import Limits
from mtcli.search.greedy import greedy_search, sampler
from mtcli.text.special_tokens import EOS
from mtcli.translate.translation import Options
from mtcli.translate.windows import Reading

pytestmark = needs_simulated_cuda

LINES = ["red dog sees.", "big cat one sees red dog.", "one one one one one.", "cat.", "a word ☃ it does not know"]
LIMITS = Limits(
    max_length=[3, 12, 2, 5, 4],
    forbidden=(0, 1),
    prefix=[[5, 6], [], [7], [5, 6, 7], [8]],
    no_repeat_ngram=2,
    min_length=2,
)


def searches() -> dict[str, Callable[..., Any]]:
    """Those that tests/cuda/test_cuda_budgets.py does not count."""
    generators = [torch.Generator().manual_seed(i) for i in range(len(LINES))]
    return {
        "sampling": partial(greedy_search, choose=sampler(0.7, 0, generators)),
        "separate rows": partial(beam_search, beam_size=12, alpha=0.6),
        "late stopping": partial(beam_search, beam_size=4, alpha=1.5, early_stopping=False),
    }


def count_searches() -> dict[str, tuple[Counts, int]]:
    """Return the counts of each search, and the number of its steps."""
    model = copy.deepcopy(toy().model).to("cuda")
    src = pad(toy().tokenizer.encode_src(LINES), after=(EOS,)).to("cuda")
    found = {}
    for name, search in searches().items():
        steps = 0

        def counted(*args: Any) -> Any:
            nonlocal steps
            steps += 1
            return Transformer.step(model, *args)

        model.step = counted
        with counting() as counts:
            search(model, src, LIMITS)
        found[name] = (counts, steps)
    return found


def test_a_step_waits_once_with_every_option() -> None:
    """And once at the end: sampling reads the log-probabilities then."""
    for name, (counts, steps) in run(count_searches).items():
        assert steps > 2, name
        assert counts.num_syncs <= steps + 1, f"{name}: {steps} steps, {counts}"


def translate_in_bf16(beam_size: int) -> tuple[list[str], Counts]:
    model = copy.deepcopy(toy().model).to("cuda")
    translator = TorchTranslator(model, toy().tokenizer, 64)
    with counting() as counts:
        found = translator.translate(
            LINES[:4], Options(beam_size=beam_size, max_length=12), Reading(warn=False, quiet=True)
        )
        texts = [one.text for one in found]
    return texts, counts


@pytest.mark.parametrize("beam_size", [1, 4])
def test_translating_is_in_bf16_by_default(beam_size: int) -> None:
    texts, counts = run(translate_in_bf16, beam_size)
    assert texts == [
        one.text for one in toy().translate(LINES[:4], Options(beam_size=beam_size, max_length=12), Reading(quiet=True))
    ]
    assert {kernel.split()[1] for kernel in counts.attention} == {"bfloat16"}
    assert not [kernel for kernel in counts.attention if kernel.startswith("math")]
