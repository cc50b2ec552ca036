"""The library CTranslate2: import it, load a model with it, and choose a device and a number of threads."""

import os
import sys
from pathlib import Path
from typing import Any

from mtcli.errors import UsageError
from mtcli.runtime import torchrun


def import_ctranslate2() -> Any:
    """Import the library.

    Raises:
        UsageError: It is not installed.
    """
    try:
        import ctranslate2
    except ImportError:
        raise UsageError("ctranslate2 is not installed; install it with `pip install ctranslate2`") from None
    return ctranslate2


def load_native(folder: Path, **options: Any) -> Any:
    """Load a model of CTranslate2.

    CTranslate2 sets the number of OpenMP threads of the calling thread, which is also PyTorch's. It is restored here,
    because another number of threads changes PyTorch's speed and the last bits of its results.

    Args:
        folder: The converted model.
        options: Arguments of `ctranslate2.Translator`.
    """
    ctranslate2 = import_ctranslate2()
    torch = sys.modules.get("torch")  # not imported here, because an exported model is used without it
    threads_before = torch.get_num_threads() if torch is not None else None
    try:
        return ctranslate2.Translator(str(folder), **options)
    finally:
        if torch is not None:
            torch.set_num_threads(threads_before)


def placement_of(device: str, compute_type: str) -> dict[str, Any]:
    """Return the arguments of `ctranslate2.Translator` that decide where and in which type it computes.

    Under torchrun, each rank uses the GPU of its local rank.

    Args:
        device: `cpu`, `cuda`, or `auto` for a GPU if there is one.
        compute_type: The type of the exported weights. A device without it uses the type that CTranslate2 chooses.

    Raises:
        UsageError: There is no GPU, or none for this rank.
    """
    ctranslate2 = import_ctranslate2()
    num_gpus = ctranslate2.get_cuda_device_count()
    if device == "auto":
        device = "cuda" if num_gpus else "cpu"
    index = 0
    num_workers = 1
    if device == "cpu":
        # Several workers with one thread each share the weights, and do not wait for each other within a sentence.
        num_workers = num_default_threads()
    elif num_gpus == 0:
        raise UsageError("--device cuda: CTranslate2 finds no such device; use --device auto")
    elif torchrun.size() > 1:
        index = torchrun.local_rank()
        if index >= num_gpus:
            remedy = f"give torchrun --nproc-per-node {num_gpus}"
            raise UsageError(f"local rank {index} has no GPU of its own; there are {num_gpus}: {remedy}")
    if compute_type not in ctranslate2.get_supported_compute_types(device, index):
        compute_type = "default"
    return {
        "device": device,
        "device_index": index,
        "compute_type": compute_type,
        "inter_threads": num_workers,
        "intra_threads": 1,
    }


def num_default_threads() -> int:
    """Return `OMP_NUM_THREADS` if it is set, otherwise the number of cores that this process may use."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if wanted.isdigit() and int(wanted) > 0:
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
