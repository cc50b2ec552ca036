"""The checkpoints of a training: saving its state, and resuming from it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from copy import deepcopy
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from mtcli.errors import UsageError
from mtcli.runtime import files
from mtcli.runtime.wording import counted
from mtcli.storage import checkpoint, model_file
from mtcli.storage.run_folder import publish
from mtcli.storage.state import State
from mtcli.storage.tensors import Tensors
from mtcli.training.learner import Learner, diverged
from mtcli.training.session import Session


class HostCopy:
    """A copy of tensors in the memory of the host, which is allocated once and used for every copy.

    On CUDA, the copies are queued on the current stream: they see the values of this step, and the next step, which is
    queued after them, cannot change these. Pinned memory lets the host continue without waiting for them.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._copied: torch.cuda.Event | None = None

    def take(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Start to copy tensors, and return the copies. They are complete after `wait`.

        Args:
            tensors: Tensors by name. Their names and shapes may not change between calls.
        """
        for name, tensor in tensors.items():
            if name not in self._buffers:
                pinned = tensor.is_cuda
                self._buffers[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pinned)
            self._buffers[name].copy_(tensor.detach(), non_blocking=True)
        if any(tensor.is_cuda for tensor in tensors.values()):
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()
        return {name: self._buffers[name] for name in tensors}

    def wait(self) -> None:
        """Wait until the copies are complete. Any thread may call this."""
        if self._copied is not None:
            self._copied.synchronize()


class BackgroundTask:
    """Runs one task at a time in a thread."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mtcli-background")
        self._task: Future[None] | None = None

    def start(self, task: Callable[[], None]) -> None:
        """Wait for the task before, then start this one. Errors are those of `wait`."""
        self.wait()
        self._task = self._executor.submit(task)

    def wait(self) -> None:
        """Wait until the task has ended. If it failed, raise its error, once."""
        if self._task is None:
            return
        task = self._task
        self._task = None
        task.result()


class Checkpoints:
    """Saves a training to the folder `checkpoints/` of its run, and restores it.

    Args:
        session: The training.
        learner: Its model and optimizer.
    """

    def __init__(self, session: Session, learner: Learner):
        self.session = session
        self.learner = learner
        self.folder = session.run / "checkpoints"
        self._background = BackgroundTask()
        self._weights_copy = HostCopy()
        self._optimizer_copy = HostCopy()
        self._write_seconds = 0.0
        """Duration of writing the last complete checkpoint."""

    def paths(self, steps: Sequence[int]) -> list[Path]:
        """Return the folders of the checkpoints of these steps, which are complete."""
        self.wait()
        return [checkpoint.path_of(self.folder, step) for step in steps]

    def resume(self) -> bool:
        """Restore the newest undamaged checkpoint. All ranks must call this.

        Returns:
            False if there is no checkpoint.

        Raises:
            ModelError: There are checkpoints, and none can be used.
            UsageError: Another number of ranks wrote the checkpoint. The run would continue differently.
        """
        session = self.session
        group = session.group
        newest = checkpoint.latest(self.folder) if group.is_main else None
        name = group.broadcast(newest.path.name if newest else None)
        if name is None:
            session.cut_metrics()
            return False
        if newest is None:
            newest = checkpoint.load(self.folder / name)
        model_file.set_parameters(self.learner.model, newest.model, newest.path)
        self.learner.optimizer.set_state(newest.optimizer)
        session.state = State.of(newest.path)
        self._check_ranks()
        session.cut_metrics()
        if session.state.best_steps and group.is_main:  # killed between a checkpoint and its publication
            publish(session.run, session.state.best_steps, session.info)
        group.barrier()  # rank 0 must not write a checkpoint of this step again while another rank still reads it
        return True

    def _check_ranks(self) -> None:
        """Raise UsageError if another number of ranks wrote the checkpoint."""
        before = self.session.state.ranks
        now = self.session.group.size
        if before != now:
            raise UsageError(
                f"{self.session.run}: began with {counted(before, 'rank')}, and this command has {now}; "
                f"start {before} (torchrun --nproc-per-node), or start over with --overwrite"
            )

    def save(self) -> None:
        """Write a checkpoint of this step, then delete those no longer needed. Only rank 0 does this.

        On a GPU, training continues while a thread writes. Its errors are raised by the next `save` or `wait`. The
        thread before it is always complete: it writes one checkpoint at a time.

        Raises:
            DivergedError: A weight, or a moment of Adam, is not finite. Nothing is written.
            StorageError: The checkpoint cannot be written. Earlier ones are untouched.
        """
        session = self.session
        if not session.group.is_main:
            return
        session.count_time()
        started_at = session.state.seconds
        self.wait()
        weights = model_file.parameters(self.learner.model)
        optimizer_state = self.learner.optimizer.state()
        if not _all_finite([*weights.values(), *optimizer_state.values()]):
            raise diverged(session.state.step, "it left weights that are not finite")  # no loss has shown it yet
        session.count_time()
        state = deepcopy(session.state)
        if writes_in_background(session.device):
            weights = self._weights_copy.take(weights)
            optimizer_state = self._optimizer_copy.take(optimizer_state)
            self._background.start(partial(self._write, state, weights, optimizer_state))
        else:
            self._write(state, weights, optimizer_state)
        session.count_time()
        if session.config.train.time:
            session.state.saved_at = session.state.seconds
            session.state.save_seconds = session.state.seconds - started_at
            session.state.write_seconds = self._write_seconds

    def wait(self) -> None:
        """Wait until the checkpoint that a thread writes is complete.

        Raises:
            StorageError: It cannot be written. Earlier ones are untouched.
        """
        self._background.wait()

    @contextmanager
    def completed(self) -> Iterator[None]:
        """Wait at the end of the block until the last checkpoint is complete, also if the block fails.

        The run folder is locked until then. If the block fails, its error is raised and not that of the checkpoint.

        Raises:
            StorageError: The last checkpoint cannot be written.
        """
        try:
            yield
        except BaseException:
            with suppress(Exception):
                self.wait()
            raise
        self.wait()

    def _write(self, state: State, weights: Tensors, optimizer_state: Tensors) -> None:
        """Write a checkpoint, publish its model if it is the best one, and delete old checkpoints.

        Args:
            state: The state after the step. A thread gets a copy of it, and of the tensors.
            weights: The parameters of the model.
            optimizer_state: The state of the optimizer.
        """
        session = self.session
        started_at = session.clock()
        self._weights_copy.wait()
        self._optimizer_copy.wait()
        content = model_file.model_bytes(weights, session.info.model_copy(update={"step": state.step}))
        checkpoint.write(self.folder, state.step, content, optimizer_state, state.values())
        if state.step in state.best_steps or (state.finished and state.start_is_best):
            publish(session.run, state.best_steps, session.info)
        # The average needs the newest checkpoints later, and the model that fine-tuning began with is compared again.
        pinned = {0, state.best_step or 0, *self._scheduled()[-session.config.train.average :]}
        with files.storage_errors(session.run):
            checkpoint.prune(self.folder, session.config.train.keep, pinned)
        self._write_seconds = session.clock() - started_at

    def scheduled(self) -> list[int]:
        """Return the steps of the checkpoints that exist, for averaging.

        In a run without a time budget, steps at which a signal stopped the run are omitted: an uninterrupted run does
        not have them.
        """
        self.wait()
        return self._scheduled()

    def _scheduled(self) -> list[int]:
        settings = self.session.config.train
        steps = [checkpoint.step_of(path) for path in checkpoint.steps(self.folder)]
        steps = [step for step in steps if step > 0]
        if settings.time:
            return steps
        return [step for step in steps if step % settings.save_every == 0 or step % settings.valid_every == 0]


def writes_in_background(device: torch.device) -> bool:
    """Return True if a thread writes the checkpoints.

    On a GPU it costs training only the copy to the host. On a CPU it would compete with training for the cores.
    """
    return device.type == "cuda"


def _all_finite(tensors: Sequence[Tensor]) -> bool:
    """Return True if no tensor contains NaN or infinity. The host waits for a GPU once, not for each tensor."""
    return bool(torch.stack([tensor.isfinite().all() for tensor in tensors]).all())
