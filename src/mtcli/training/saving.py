"""The checkpoints of a training: saving its state, and resuming from it."""

from collections.abc import Sequence
from pathlib import Path

from mtcli.errors import UsageError
from mtcli.runtime import files
from mtcli.runtime.wording import counted
from mtcli.storage import checkpoint, model_file
from mtcli.storage.run_folder import publish
from mtcli.storage.state import State
from mtcli.training.learner import Learner, diverged
from mtcli.training.optimizer import set_state_tensors, state_tensors
from mtcli.training.session import Session


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

    def paths(self, steps: Sequence[int]) -> list[Path]:
        """Return the folders of the checkpoints of these steps."""
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
        found = checkpoint.latest(self.folder) if group.is_main else None
        name = group.broadcast(found.path.name if found else None)
        if name is None:
            session.cut_metrics()
            return False
        if found is None:
            found = checkpoint.load(self.folder / name)
        model_file.set_parameters(self.learner.model, found.model, found.path)
        set_state_tensors(self.learner.optimizer, self.learner.model, found.optimizer)
        session.state = State.of(found.path)
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

        Raises:
            DivergedError: A weight, or a moment of Adam, is not finite. Nothing is written.
            StorageError: The checkpoint cannot be written. Earlier ones are untouched.
        """
        session = self.session
        if not session.group.is_main:
            return
        state = session.state
        weights = model_file.parameters(self.learner.model)
        optimizer_state = state_tensors(self.learner.optimizer, self.learner.model)
        for tensor in (*weights.values(), *optimizer_state.values()):
            if not tensor.isfinite().all():
                raise diverged(state.step, "it left weights that are not finite")  # no loss has shown it yet
        content = model_file.model_bytes(weights, session.info.model_copy(update={"step": state.step}))
        session.count_time()
        started_at = state.seconds
        checkpoint.write(self.folder, state.step, content, optimizer_state, state.values())
        if state.step in state.best_steps or (state.finished and state.start_is_best):
            publish(session.run, state.best_steps, session.info)
        self._delete_old()
        session.count_time()
        if session.config.train.time:
            state.saved_at = state.seconds
            state.save_seconds = state.seconds - started_at

    def _delete_old(self) -> None:
        """Delete old checkpoints, except those that are needed later.

        These are the best one, those that the average at the end may need, and the model that fine-tuning started
        from, which is compared with the best one at the end.
        """
        settings = self.session.config.train
        best = self.session.state.best_step or 0
        pinned = {0, best, *self.scheduled()[-settings.average :]}
        with files.storage_errors(self.session.run):
            checkpoint.prune(self.folder, settings.keep, pinned)

    def scheduled(self) -> list[int]:
        """Return the steps of the checkpoints that exist, for averaging.

        In a run without a time budget, steps at which a signal stopped the run are omitted: an uninterrupted run does
        not have them.
        """
        settings = self.session.config.train
        steps = [checkpoint.step_of(path) for path in checkpoint.steps(self.folder)]
        steps = [step for step in steps if step > 0]
        if settings.time:
            return steps
        return [step for step in steps if step % settings.save_every == 0 or step % settings.valid_every == 0]
