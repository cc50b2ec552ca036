"""The library CTranslate2: import it, load a model with it, and choose a device and a number of threads."""

from pathlib import Path
from typing import Any

from mtcli.errors import UsageError
from mtcli.runtime import torchrun
from mtcli.runtime.cores import usable_cores


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
    """Load a model of CTranslate2, which computes each operation with one thread, as PyTorch does here.

    Another number would also be that of PyTorch in the calling thread, because both use the same OpenMP.

    Args:
        folder: The converted model.
        options: Other arguments of `ctranslate2.Translator`.
    """
    return import_ctranslate2().Translator(str(folder), intra_threads=1, **options)


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
        num_workers = usable_cores()
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
    }
