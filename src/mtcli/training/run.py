"""The start of a run: claim the run folder, prepare the data, choose the unset options; then `Trainer` trains."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import torch
from torch import Tensor

from mtcli.config.schema import Config
from mtcli.config.toml_file import to_toml
from mtcli.corpus.cache.parent import Parent, origins
from mtcli.corpus.cache.prepare import Prepared, check_inputs, has_info, prepare, reopen
from mtcli.errors import DataError, ModelError, UsageError
from mtcli.model.precision import warn_of_emulated_bf16
from mtcli.model.transformer import Transformer
from mtcli.report.plan import describe_transfer
from mtcli.runtime import files, torchrun
from mtcli.runtime.device import describe, deterministic_algorithms
from mtcli.runtime.distributed import Group, join
from mtcli.runtime.files import folder_lock
from mtcli.runtime.memory import keep_freed_memory
from mtcli.runtime.signals import noted_signals
from mtcli.storage.model_file import parameters
from mtcli.storage.run_folder import (
    check_freezing,
    claim,
    delete_unbegun,
    has_run,
    refuse_other_files,
    resumable_state,
)
from mtcli.text.tokenizer.matching import Origin, match
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.training.corrections import check_validation
from mtcli.training.defaults.choose import with_defaults
from mtcli.training.defaults.describe import describe_choice, describe_given
from mtcli.training.defaults.workload import Workload
from mtcli.training.request import InitialModel
from mtcli.training.time.budget import Budget
from mtcli.training.trainer import Trainer
from mtcli.training.validation import check_bleu_tokenizer

log = logging.getLogger(__name__)


def train(
    config: Config,
    run: Path,
    device: torch.device,
    *,
    init: InitialModel | None = None,
    overwrite: bool = False,
    started: float | None = None,
) -> None:
    """Train in a run folder, or resume the run in it; on all ranks, if torchrun started several.

    Args:
        config: The configuration, with some options unset.
        run: The run folder; it is created if it does not exist.
        device: The device of this rank.
        init: A model to start from, with its tokenizer (fine-tuning).
        overwrite: Delete the run that is in the folder.
        started: What `time.monotonic` showed when the command began, for a time budget; None: now.

    Raises:
        UsageError: The folder holds a run of another configuration, or something else; or parameters are frozen without
            a model to start from.
        DataError: The pairs cannot be used.
        ModelError: All checkpoints are damaged.
        StorageError: The disk is full or read-only, or there is too little memory.
        DivergedError: The loss is no longer finite.
        LockedError: Another process trains in this folder.
        InterruptedTrainingError: A signal arrived. A checkpoint was written first.
        RankError: Another rank has ended, or does not answer.
    """
    if started is None:
        started = time.monotonic()
    keep_freed_memory()
    operations = deterministic_algorithms(device) if config.train.deterministic else nullcontext()
    with operations, join(device) as group:
        each = f" for each of {group.size} ranks" if group.size > 1 else ""
        log.info("device: %s%s, PyTorch %s", describe(device), each, torch.__version__)
        warn_of_emulated_bf16(config.train, device)
        with _prepared_run(config, run, device, group, init, overwrite=overwrite) as (config, data):
            trainer = Trainer(config, run, device, data, started, group)
            resumed = trainer.checkpoints.resume()
            if not resumed and data.init:
                if init is None:
                    remedy = "name it again with --init"
                    raise UsageError(f"{run}: has no checkpoint of the model it starts from yet; {remedy}")
                model = init.model
                if data.transfer is not None:
                    for name, text in describe_transfer(data.transfer):
                        log.info("%s: %s", name, text)
                    model = transplanted(model, init.parent, data.tokenizer, config.data.src, config.data.tgt)
                trainer.start_from(model, init.path)
            with noted_signals() as received:
                trainer.run_until_done(received)


@contextmanager
def _prepared_run(
    config: Config,
    run: Path,
    device: torch.device,
    group: Group,
    init: InitialModel | None,
    *,
    overwrite: bool,
) -> Iterator[tuple[Config, Prepared]]:
    """Prepare the run folder and the data on rank 0, and open the data on the other ranks. All ranks must call this.

    Rank 0 locks the folder until the context ends.

    Args:
        config: The configuration, with some options unset.
        run: The run folder.
        device: The device of this rank.
        group: The ranks that train together.
        init: The model to start from.
        overwrite: Delete the run that is in the folder, unless torchrun restarted the ranks after a failure.

    Yields:
        The complete configuration, as rank 0 chose it, and the data.
    """
    if not group.is_main:
        config = group.broadcast(config)  # waits until rank 0 has prepared the data
        yield config, reopen(run)
        return
    if overwrite and torchrun.restarted():
        log.warning("restarted after a failure: resuming the run, --overwrite is ignored")
        overwrite = False
    check_freezing(config, run, fine_tunes=init is not None, overwrite=overwrite)
    with _claimed(config, run, overwrite) as existing_config:
        config, data = _set_up(config, run, device, group.size, existing_config, init)
        yield group.broadcast(config), data


@contextmanager
def _claimed(config: Config, run: Path, overwrite: bool) -> Iterator[Config | None]:
    """Create and lock the run folder, and check that it is empty or holds this run.

    If the block refuses to train a new run, or its data cannot be used, the folder is left as it was found.

    Yields:
        The configuration of the run in the folder, which training resumes; None for a new run.
    """
    if run.exists() and not run.is_dir():
        raise UsageError(f"{run}: is a file; choose another --out")
    # Before anything is created or deleted. A resumed run does not need its data sets, nor the network.
    check_bleu_tokenizer(config)
    check_inputs(config, open_data_sets=overwrite or not has_info(run))
    if run.exists():
        refuse_other_files(run, overwrite)
    is_new = not has_run(run)
    created = [folder for folder in (run, *run.parents) if not folder.exists()]
    with files.storage_errors(run):
        run.mkdir(parents=True, exist_ok=True)
    try:
        with folder_lock(run):
            existing_config = claim(config, run, overwrite)
            try:
                yield existing_config
            except (DataError, ModelError, UsageError):
                if is_new:
                    delete_unbegun(run)
                raise
    except (DataError, ModelError, UsageError):
        with suppress(OSError):  # a folder that is not empty stays
            for folder in created:
                folder.rmdir()
        raise


def _set_up(
    config: Config,
    run: Path,
    device: torch.device,
    num_ranks: int,
    existing_config: Config | None,
    init: InitialModel | None,
) -> tuple[Config, Prepared]:
    """Prepare the data, choose the unset options, and write `config.toml`. Only rank 0 does this.

    Args:
        config: The configuration, with some options unset.
        run: The run folder.
        device: The device of this rank.
        num_ranks: Number of processes that train together.
        existing_config: The configuration of the run that is resumed; None for a new run.
        init: The model to start from.

    Returns:
        The complete configuration, and the data.
    """
    data = prepare(config, run, init=init.parent if init else None)
    check_validation(data)
    workload = Workload.of(data, device, num_ranks)
    config = with_defaults(config, workload, existing_config)
    if existing_config is not None and _is_finished(config, existing_config, run):
        log.warning("%s: has finished, and this budget is not larger than the one it used: nothing changes", run)
        return existing_config, data
    log.info("%s", describe_choice(config, workload, resumed=existing_config is not None))
    if given := describe_given(config, fine_tunes=workload.fine_tunes, initial=init.values() if init else None):
        log.info("given: %s", given)
    content = to_toml(config).encode()
    if content != (run / "config.toml").read_bytes():
        files.replace_file(run / "config.toml", content)  # before a checkpoint exists that could be resumed
    return config, data


def _is_finished(config: Config, existing_config: Config, run: Path) -> bool:
    """Return True if the run in a folder has ended under another budget, and the new one is not larger.

    Args:
        config: The complete configuration with the new budget.
        existing_config: The configuration of the run in the folder.
        run: The run folder.

    Raises:
        ModelError: The state of the run is of another version.
    """
    new_budget = Budget(config.train)
    old_budget = Budget(existing_config.train)
    if new_budget.limits == old_budget.limits:
        return False
    state = resumable_state(run)
    return state.budget == old_budget.limits and new_budget.remains_finished(state)


def transplanted(model: Transformer, parent: Parent, tokenizer: Tokenizer, src: str, tgt: str) -> Transformer:
    """Return a child before its training: the weights of its parent, with embeddings for another vocabulary.

    A token that both vocabularies have keeps the parent's embedding, bit for bit. Another one gets the mean of the
    embeddings of its parts, or that of all tokens if it has none.

    Args:
        model: The parent.
        parent: Its languages and its tokenizer.
        tokenizer: The child's tokenizer.
        src: Language code of the child's source.
        tgt: Language code of the child's target.
    """
    child = Transformer(model.config, tokenizer.src_size, tokenizer.tgt_size, joint=tokenizer.joint)
    own = parameters(child)
    for name, tensor in parameters(model).items():
        if name in own and own[name].shape == tensor.shape:
            own[name].copy_(tensor)
    embeddings = [model.src_embedding.tokens.weight.data, model.tgt_embedding.tokens.weight.data]
    src_origins, tgt_origins = origins(parent, tokenizer, src, tgt)
    child.src_embedding.tokens.weight.data.copy_(_rows(embeddings, src_origins))
    child.tgt_embedding.tokens.weight.data.copy_(_rows(embeddings, tgt_origins))  # last: it may be shared
    in_target = match(tokenizer.sides[1], [parent.tokenizer.sides[1]])
    if not model.config.tie_embeddings:
        child.output.weight.data.copy_(_rows([model.output.weight.data], in_target))
    if child.output.bias is not None:
        child.output.bias.data.copy_(_rows([model.output.bias.data], in_target))
    return child.eval()


def _rows(matrices: Sequence[Tensor], token_origins: Sequence[Origin]) -> Tensor:
    """Return a row for each token: that of its origin, the mean of several, or that of the whole matrix."""
    mean = matrices[token_origins[0].side].mean(dim=0)
    rows = []
    for origin in token_origins:
        matrix = matrices[origin.side]
        if origin.same:
            rows.append(matrix[origin.ids[0]])
        elif origin.ids:
            rows.append(matrix[list(origin.ids)].mean(dim=0))
        else:
            rows.append(mean)
    return torch.stack(rows)
