"""The start of a run: claim the run folder, prepare the data, choose the unset options; then `Trainer` trains."""

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from mtcli.config.schema import Config
from mtcli.config.toml_file import to_toml
from mtcli.data.prepare import check_inputs, has_info, prepare, reopen
from mtcli.errors import UsageError
from mtcli.runtime import files, torchrun
from mtcli.runtime.device import describe
from mtcli.runtime.distributed import join
from mtcli.runtime.memory import keep_freed_memory
from mtcli.runtime.signals import noted_signals
from mtcli.storage import model_file
from mtcli.storage.run_folder import claim, with_split_of
from mtcli.storage.run_lock import lock
from mtcli.training.defaults import Facts, in_words, settle
from mtcli.training.trainer import Trainer

log = logging.getLogger(__name__)


def train(
    config: Config,
    run: Path,
    device: torch.device,
    *,
    init: Path | None = None,
    overwrite: bool = False,
    started: float | None = None,
) -> None:
    """Train in a run folder, or resume the run in it; on all ranks, if torchrun started several.

    Args:
        config: What to train.
        run: The run folder; made if needed.
        device: Where to compute.
        init: A model to start from, with its tokenizer (fine-tuning).
        overwrite: Delete the run that is there.
        started: What `time.monotonic` showed when the command began, for a budget of time; None: now.

    Raises:
        UsageError: The folder holds a run of another configuration, or something else.
        DataError: The pairs cannot be used.
        ModelError: No checkpoint is whole, or `init` is no model.
        StorageError: The disk is full or read-only.
        DivergedError: The loss is no longer finite.
        LockedError: Another process trains here.
        InterruptedTrainingError: A signal came; a checkpoint was written first.
        RankError: Another rank has ended or hangs.
    """
    started = time.monotonic() if started is None else started
    keep_freed_memory()
    with join(device) as group, ExitStack() as held:
        each = f" for each of {group.size} ranks" if group.size > 1 else ""
        log.info("device: %s%s, PyTorch %s", describe(device), each, torch.__version__)
        initial = model_file.load_model(init) if init else None
        start = (initial[2], model_file.checksum(model_file.parameters(initial[0]), None)) if initial else None
        if group.is_main:
            if overwrite and torchrun.restarted():
                log.warning("restarted after a failure: resuming the run, --overwrite is ignored")
            began = held.enter_context(_claimed(config, run, overwrite and not torchrun.restarted()))
            config = with_split_of(config, began)
            data = prepare(config, run, init=start)
            config = settle(config, facts := Facts.of(data, device.type, group.size), began)
            log.info("%s", in_words(config, facts, began=began is not None))
            if (toml := to_toml(config).encode()) != (run / "config.toml").read_bytes():
                files.replace_file(run / "config.toml", toml)  # before anything can resume with it
        config = group.broadcast(config)  # all ranks use the options that rank 0 chose
        if not group.is_main:
            data = reopen(run)
        trainer = Trainer(config, run, device, data, started, group)
        if not trainer.resume() and data.init:
            if not initial:
                raise UsageError(f"{run}: has no checkpoint of the model it starts from yet; name it again with --init")
            trainer.start_from(initial[0], init)
            trainer.save_everywhere()  # so that the run resumes from these weights even if it is killed early
        with noted_signals() as received:
            trainer.run_until_done(received)


@contextmanager
def _claimed(config: Config, run: Path, overwrite: bool) -> Iterator[Config | None]:
    """The run folder, held for this process, and the configuration of the run in it that is resumed, if one is."""
    if run.exists() and not run.is_dir():
        raise UsageError(f"{run}: is a file; choose another --out")
    # Before anything is created or deleted. A resumed run does not need its data sets, nor the network.
    check_inputs(config, open_data_sets=overwrite or not has_info(run))
    with files.storage_errors(run):
        run.mkdir(parents=True, exist_ok=True)
    with lock(run):
        yield claim(config, run, overwrite)
