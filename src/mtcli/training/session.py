"""What the parts of a training share: its inputs, its state, the clock, the metrics, and the other ranks."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from mtcli.config.schema import Config
from mtcli.config.scores import selection_metric_of_run
from mtcli.corpus.cache.prepare import Prepared
from mtcli.corpus.variants import SourceLengths
from mtcli.runtime.device import runs_ahead
from mtcli.runtime.distributed import Group
from mtcli.storage.events import Metrics
from mtcli.storage.model_file import ModelInfo
from mtcli.storage.state import State
from mtcli.training.time.budget import Budget
from mtcli.training.time.timed_parts import Clock

AGREEMENT_SECONDS = 0.5
"""Time between two agreements of several ranks: a signal and the end of the time are noticed this much later."""

MAX_STEPS_BETWEEN_AGREEMENTS = 50


class Session:
    """One process's share in the training of a run.

    Args:
        config: The complete configuration.
        run: The run folder.
        device: The device of this rank.
        data: The prepared data.
        group: The ranks that train together.
        started: What `clock` showed when the command began. The time budget counts from there.
    """

    def __init__(
        self,
        config: Config,
        run: Path,
        device: torch.device,
        data: Prepared,
        group: Group,
        started: float,
    ):
        self.config = config
        self.run = run
        self.device = device
        self.data = data
        self.group = group
        self.clock: Clock = time.monotonic
        """A monotonic clock, in seconds."""
        self.counted_until = started
        """What `clock` showed when `state.seconds` was last updated."""
        joins = config.data.variants == "on"
        self.lengths = SourceLengths.of(data.train, data.tokenizer, joins=joins, max_length=config.data.max_length)
        # The sources that an imported model is trained on may begin with tags of other languages.
        is_tagged = not data.tokenizer.sentencepiece and data.tokenizer.has_tag(config.data.tgt)
        self.info = ModelInfo(
            model=config.model,
            decode=config.decode,
            src=config.data.src,
            tgt=config.data.tgt,
            src_vocab=data.tokenizer.src_size,
            tgt_vocab=data.tokenizer.tgt_size,
            joint=data.tokenizer.joint,
            tokenizer=data.tokenizer.digest(),
            step=0,
            longest_src=data.train.longest_src,
            usual_src=self.lengths.usual,
            terms=config.data.terms,
            bleu_tokenizer=config.train.bleu_tokenizer,
            directions=data.directions if len(data.directions) > 1 or is_tagged else (),
        )
        self.num_valid = {direction: len(data.valid_split.get(direction, ())) for direction in data.directions}
        """Number of validation pairs of each direction."""
        valid = [(direction.tgt, number) for direction, number in self.num_valid.items()]
        metric = "corrections" if data.corrections else selection_metric_of_run(valid)
        self.state = State(ranks=group.size, metric=metric)
        self.budget = Budget.of(
            config,
            len(data.valid),
            len(data.test),
            group.size,
            fine_tunes=data.fine_tunes,
            on_gpu=device.type == "cuda",
        )
        self.metrics = Metrics(run)

    def count_time(self) -> None:
        """Add the time since the last call to `state.seconds`."""
        now = self.clock()
        self.state.seconds += now - self.counted_until
        self.counted_until = now

    def steps_between_agreements(self, step_seconds: float) -> int:
        """Return after how many steps the ranks agree on time and signals again. It is equal on all ranks.

        An exchange waits for the slowest rank, which in every step would cost a GPU, whose host runs ahead, some of its
        work. So GPUs exchange only every `AGREEMENT_SECONDS`. In between, `state.seconds` does not change.

        Args:
            step_seconds: Seconds per step; 0 if unknown.
        """
        if self.group.size == 1 or not runs_ahead(self.device) or not step_seconds:
            return 1
        return min(max(int(AGREEMENT_SECONDS / step_seconds), 1), MAX_STEPS_BETWEEN_AGREEMENTS)

    def agree_on_time(self, received: Sequence[int]) -> int:
        """Set the time used on all ranks to that of rank 0. All ranks must call this.

        Args:
            received: Numbers of the signals that this rank has received.

        Returns:
            The first signal that this rank or another one has received, or 0.
        """
        self.count_time()
        signal_number = received[0] if received else 0
        seconds = self.state.seconds if self.group.is_main else 0.0
        any_signal, self.state.seconds = self.group.all_reduce_max([signal_number, seconds])
        return int(any_signal)

    def on_main_rank(self, *work: Callable[[], None]) -> None:
        """Call these functions on rank 0, then copy its state to the other ranks, which wait. All ranks must call this.

        Args:
            work: Functions that may change the state.
        """
        if self.group.is_main:
            for function in work:
                function()
        self.state.set_values(self.group.broadcast(self.state.values()))

    def record(self, event: str, **values: Any) -> None:
        """Append an event to `metrics.jsonl`. Only rank 0 does this."""
        if self.group.is_main:
            self.state.metrics_bytes += self.metrics.append(event, self.state.step, values)

    def cut_metrics(self) -> None:
        """Remove the events after the checkpoint that training resumes from. Only rank 0 does this."""
        if not self.group.is_main:
            return
        self.state.metrics_bytes = self.metrics.cut(self.state.metrics_bytes)
        if self.config.train.tensorboard:
            from mtcli.training.tensorboard import CurveWriter  # an extra, which need not be installed

            history, _ = self.metrics.read()
            self.metrics.on_event = CurveWriter(self.run, history).add
