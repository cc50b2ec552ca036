"""Budgets of the work that training and translating ask of a GPU, counted on the simulated device.

Each budget is a ceiling. A change that needs more launches, memory traffic or waits than before fails here.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from base_step import base_step, small_batch, small_model
from conftest import TOY_SETTINGS, toy_pairs, write_tsv
from simulated_cuda import Counts, counting, needs_simulated_cuda, run

from mtcli.config.build import build
from mtcli.corpus.batching import Batch
from mtcli.model.transformer import Transformer
from mtcli.runtime.device import pick_device
from mtcli.search.beam import beam_search
from mtcli.search.constraints import Limits
from mtcli.search.greedy import greedy_search, sampler
from mtcli.text.special_tokens import BOS, PAD
from mtcli.training.gradients import Objective
from mtcli.training.loading import LoadedBatch
from mtcli.training.run import train
from mtcli.training.trainer import Trainer

pytestmark = needs_simulated_cuda

Change = Callable[[pytest.MonkeyPatch], None]
"""Makes the product worse."""

TRAINING_SYNCS = 1
"""Waits of the host in a training step. A wait for the current step lets the GPU run out of work; one for
the step before does not, if it is the only one."""

TRAINING_LAUNCHES = 1_060
"""Launches in a training step of the paper's models, which have 6 + 6 layers. The host takes 5 to 8 µs for each. With
5,000 it would take as long as the GPU takes for a step of base."""

TRAINING_GIGABYTES = 58
"""Memory traffic of a training step of base with 25,000 tokens, in addition to that of the matrix products. An H200
takes 1 ms for 3 GB, and about 35 ms for the step."""

TRAINING_TERAFLOP = 10.5
"""Floating-point operations of the same step."""

DECODING_SYNCS = 1
"""Waits of the host in a decoding step: it has to know which translations have ended."""

SEARCH_SYNCS = 1
"""Waits of the host before the first step of a search and after the last one."""

DECODING_LAUNCHES = {"greedy": 125, "beam": 152}
DECODING_MEGABYTES = {"greedy": 4.8, "beam": 12.5}
"""Work of a decoding step of 16 sentences in bf16, with base at an eighth of its size. Its kernels are small. So the
speed is that of the host, which launches them. The memory traffic is that of the weights and of the cache."""


def count_training(folder: Path) -> dict[str, Counts]:
    """Train in bf16 with the loop of `mtcli train`, and count its last steps.

    Returns:
        The counts of one step as it is, `normal`, and those of steps made worse by each of CHANGES.
    """
    tsv = write_tsv(folder / "toy.tsv", toy_pairs(60))
    layers = ["model.num_encoder_layers=6", "model.num_decoder_layers=6"]
    steps = f"train.max_steps={WARMUP_STEPS + len(CHANGES) + 2}"
    rarely = ["train.valid_every=1000", "train.save_every=1000", "train.average=1", "decode.max_extra=3", steps]
    values = {"data.train": [str(tsv)], "data.src": "en", "data.tgt": "xx"}
    config = build(None, values, [*TOY_SETTINGS, *layers, *rarely, 'train.precision="bf16"'])
    found: dict[str, Counts] = {}
    with pytest.MonkeyPatch.context() as patch:
        count_steps(patch, found)
        train(config, folder / "run", pick_device("auto"))
    return found


WARMUP_STEPS = 3
"""Steps that are not counted: the first one creates the optimizer's state."""


def count_steps(patch: pytest.MonkeyPatch, found: dict[str, Counts]) -> None:
    """Count the work from the beginning of a step to that of the next one, so that the loop around it is included."""
    take_step = Trainer.step
    names = iter(["warm-up"] * WARMUP_STEPS + ["normal", *CHANGES, "last"])
    blocks = ExitStack()

    def step(self: Trainer, batches: Iterator[LoadedBatch]) -> None:
        blocks.close()
        name = next(names)
        if name in CHANGES:
            change = blocks.enter_context(pytest.MonkeyPatch.context())
            CHANGES[name](change)
        found[name] = blocks.enter_context(counting())
        take_step(self, batches)

    patch.setattr(Trainer, "step", step)


def add_item(patch: pytest.MonkeyPatch) -> None:
    """Let the host read the loss of each batch."""
    forward = Objective.forward

    def reading(self: Objective, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        loss, nll = forward(self, batch)
        loss.item()
        return loss, nll

    patch.setattr(Objective, "forward", reading)


def add_boolean_index(patch: pytest.MonkeyPatch) -> None:
    """Select the target tokens by a boolean mask."""
    at_targets = Batch.at_targets

    def masking(self: Batch, states: torch.Tensor) -> torch.Tensor:
        selected = at_targets(self, states)
        return selected[self.target != PAD]

    patch.setattr(Batch, "at_targets", masking)


def add_item_to_decoding(patch: pytest.MonkeyPatch) -> None:
    """Let the host read a log-probability in each decoding step."""
    take_step = Transformer.step

    def reading(self: Transformer, *args: Any) -> Any:
        for block, log_p in take_step(self, *args):
            log_p[0, 0].item()
            yield block, log_p

    patch.setattr(Transformer, "step", reading)


CHANGES: dict[str, Change] = {"item": add_item, "boolean index": add_boolean_index}
"""Changes of a training step that its budget must notice."""


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counts]:
    return run(count_training, tmp_path_factory.mktemp("budgets"))


def test_a_training_step_waits_within_its_budget(training: dict[str, Counts]) -> None:
    counts = training["normal"]
    assert counts.num_syncs <= TRAINING_SYNCS, counts
    assert {kind for kind, _ in counts.uploads} == {"asynchronous"}, counts
    assert training["item"].num_syncs == counts.num_syncs + 1
    assert training["boolean index"].num_syncs == counts.num_syncs + 2  # one in the backward pass


def test_a_training_step_launches_within_its_budget(training: dict[str, Counts]) -> None:
    counts = training["normal"]
    assert counts.num_launches <= TRAINING_LAUNCHES, counts.launches_of().most_common()
    assert {kernel.split()[0] for kernel in counts.attention} == {"flash", "efficient"}  # cuDNN prepares each new shape


def test_a_step_of_base_moves_and_computes_within_its_budget() -> None:
    step = run(base_step)
    assert step.syncs == 0
    assert step.launches <= TRAINING_LAUNCHES
    assert step.other_bytes <= TRAINING_GIGABYTES * 1e9
    assert step.flops <= TRAINING_TERAFLOP * 1e12


@dataclass(frozen=True)
class Decoding:
    """The counts of a search, and its decoding steps."""

    counts: Counts
    steps: int


SEARCHES: dict[str, Callable[[Transformer, torch.Tensor, Limits], object]] = {
    "greedy": greedy_search,
    "sampling": partial(greedy_search, choose=sampler(1.0, 5, [torch.Generator()] * 64)),
    "beam": partial(beam_search, beam_size=4, alpha=0.6),
}


def count_search(name: str, limits: Limits, change: Change | None = None) -> Decoding:
    """Search the translations of a batch in bf16 with base at an eighth of its size, and random weights."""
    device = pick_device("auto")
    model = small_model("base").eval().to(torch.bfloat16)
    src = small_batch().src[: len(limits.max_length)].to(device)
    steps = 0

    def count_step(*_: object) -> None:
        nonlocal steps
        steps += 1

    with pytest.MonkeyPatch.context() as patch, counting() as counts:
        patch.setattr(Transformer, "step", called_before(Transformer.step, count_step))
        if change:
            change(patch)
        SEARCHES[name](model, src, limits)
    return Decoding(counts, steps)


def called_before(function: Callable[..., Any], before: Callable[..., None]) -> Callable[..., Any]:
    def both(*args: Any) -> Any:
        before(*args)
        return function(*args)

    return both


def count_decoding_step(search: str) -> tuple[float, float]:
    """Return the launches and the megabytes of one step: the difference between long and short translations."""
    short, long = (
        count_search(search, Limits([length] * 16, forbidden=(PAD, BOS), min_length=length)) for length in (4, 12)
    )
    launches = long.counts.num_launches - short.counts.num_launches
    num_bytes = long.counts.num_bytes - short.counts.num_bytes
    steps = long.steps - short.steps
    return launches / steps, num_bytes / steps / 1e6


@pytest.mark.parametrize("search", list(DECODING_LAUNCHES))
def test_a_decoding_step_works_within_its_budget(search: str) -> None:
    launches, megabytes = run(count_decoding_step, search)
    assert launches <= DECODING_LAUNCHES[search]
    assert megabytes <= DECODING_MEGABYTES[search]


@pytest.mark.parametrize("search", list(SEARCHES))
def test_a_decoding_step_waits_once_with_constraints_and_when_translations_end(search: str) -> None:
    limits = Limits(
        max_length=[4 + i % 8 for i in range(16)],
        forbidden=(PAD, BOS),
        prefix=[[5, 6, 7][: i % 4] for i in range(16)],
        no_repeat_ngram=2,
        min_length=2,
    )
    found = run(count_search, search, limits)
    assert found.counts.num_syncs <= DECODING_SYNCS * found.steps + SEARCH_SYNCS, found.counts
    worse = run(count_search, search, limits, add_item_to_decoding)
    assert worse.counts.num_syncs == found.counts.num_syncs + found.steps
