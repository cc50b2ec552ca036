"""A training step on a GPU: how often the host waits for it, and what the steps do to the weights and the metrics."""

from pathlib import Path

import pytest
from conftest import TOY_SETTINGS, toy_pairs, write_tsv
from simulated_cuda import Counts, counting, needs_simulated_cuda, run

from mtcli.config.build import build
from mtcli.corpus.cache.prepare import prepare
from mtcli.runtime.device import pick_device
from mtcli.runtime.distributed import Group
from mtcli.training.trainer import Trainer

pytestmark = needs_simulated_cuda

NUM_STEPS = 4


def take_steps(folder: Path, *sets: str) -> tuple[list[Counts], Counts, float]:
    """Take steps, then read the figures of the last one.

    Returns:
        The work of each step, that of the reading, and the mean loss in nats per token.
    """
    values = {"data.train": [str(folder / "toy.tsv")], "data.src": "en", "data.tgt": "xx"}
    config = build(None, values, [*TOY_SETTINGS, "model.dropout=0", "train.max_steps=100", *sets])
    device = pick_device("auto")
    trainer = Trainer(config, folder / device.type, device, prepare(config, folder / device.type), 0.0, Group())
    steps = []
    batches = trainer.batches()
    for _ in range(NUM_STEPS):
        with counting() as counts:
            trainer.step(batches)
        steps.append(counts)
    with counting() as reading:
        trainer.read_figures()
    batches.close()
    state = trainer.session.state
    return steps, reading, state.loss / state.tokens


def test_a_step_of_several_batches_waits_once_for_the_step_before_it(tmp_path: Path) -> None:
    write_tsv(tmp_path / "toy.tsv", toy_pairs())
    accumulate = 3
    (first, *others), reading, loss = run(take_steps, tmp_path, f"train.accumulate={accumulate}")
    assert first.num_syncs == 0, first
    for step in others:
        assert step.num_syncs == 1, step
        assert step.uploads.total() == 4 * accumulate, step
        assert {kind for kind, _ in step.uploads + step.downloads} == {"asynchronous"}, step
        assert not step.background_syncs, step
    assert reading.num_syncs == 1, reading
    assert loss == pytest.approx(take_steps(tmp_path, f"train.accumulate={accumulate}")[2], rel=1e-5)
