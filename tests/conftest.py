import gc
import logging
import multiprocessing
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from multiprocessing.context import ForkServerProcess
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
sys.path[:0] = [str(TESTS), str(TESTS / "cuda")]
pytest.register_assert_rewrite("helpers")


PLAIN = Path(__file__).parents[1] / "scripts" / "plain"


def drop_developer_variables() -> None:
    """Keep only the variables that `scripts/plain` keeps, so that tests do not depend on the others."""
    names = [PLAIN, sys.executable, "-c", "import os; print(*os.environ)"]
    kept = subprocess.run(names, capture_output=True, text=True, check=True).stdout.split()
    for name in set(os.environ) - set(kept):
        if not name.startswith("PYTEST_"):
            del os.environ[name]


drop_developer_variables()

# The variants of `scripts/test --processors`. PyTorch, MKL, oneDNN and CTranslate2 read these variables at their start.
INSTRUCTION_SETS = {
    "default": ("default", "SSE4_2", "SSE41", "GENERIC"),
    "avx2": ("avx2", "AVX2", "AVX2", "AVX2"),
}
LIBRARIES = ("ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "CT2_FORCE_CPU_ISA")
if os.environ.get("MTCLI_TEST_CPU"):
    os.environ.update(zip(LIBRARIES, INSTRUCTION_SETS[os.environ["MTCLI_TEST_CPU"]], strict=True))
if os.environ.get("MTCLI_TEST_CBWR"):
    os.environ["MKL_CBWR"] = os.environ["MTCLI_TEST_CBWR"]

from helpers.command import build_commands_once, identify_languages_once  # noqa: E402

build_commands_once()  # before `typer.testing` imports the function

NUM_CORES = int(os.environ.get("MTCLI_TEST_CORES", 1))
SEED = int(os.environ.get("MTCLI_TEST_SEED", 0))

# An example may take long where other work has all the cores.
settings.register_profile("mtcli", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mtcli")

TOY_SETTINGS = [
    "model.d_model=16",
    "model.d_ff=32",
    "model.num_heads=2",
    "model.num_encoder_layers=1",
    "model.num_decoder_layers=1",
    "model.dropout=0.2",
    "train.batch_tokens=256",
    "train.warmup_steps=10",
    "train.valid_every=10",
    "train.save_every=5",
    'train.precision="fp32"',  # PyTorch makes a kernel for each shape of a bf16 product: longer than these trainings
    "tokenizer.vocab_size=320",
    'data.variants="off"',  # the toy has too few pairs and steps to learn them
    "decode.max_extra=5",  # a model that has learned nothing writes as many tokens as it may
]
if SEED:
    TOY_SETTINGS.append(f"train.seed={SEED + 1}")


def toy_pairs(n: int = 300, seed: int = 0) -> list[tuple[str, str]]:
    """Return pairs of distinct sentences of one to eight words. The translation reverses the letters of each word."""
    rng = random.Random(seed)
    words = ["red", "blue", "tree", "house", "sun", "moon", "river", "stone", "bird", "Ana", "Tom", "42"]
    sources: dict[str, None] = {}
    while len(sources) < n:
        sources[" ".join(rng.choice(words) for _ in range(rng.randint(1, 8))) + rng.choice([".", "?", "!"])] = None
    return [(s, " ".join(w[::-1] for w in s[:-1].split()) + s[-1]) for s in sources]


def descend(optimizer: Any, learning_rate: float) -> None:
    """Take a step of `Adam` along the gradients of its parameters, and remove them."""
    optimizer.step([parameter.grad for parameter in optimizer.parameters], learning_rate)
    for parameter in optimizer.parameters:
        parameter.grad = None


def write_tsv(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    return path


ONE_PROCESS = ("cuda", "faults")
"""Folders whose tests share what takes long to make: the process with the simulated device, and a trained run."""

LONGEST = (
    "tests/faults",
    "tests/test_train.py",
    "tests/test_marian_import.py",
    "tests/cuda",
    "tests/test_transfer.py",
    "tests/test_distributed.py",
    "tests/test_export.py",
    "tests/test_several_pairs.py",
    "tests/test_distill.py",
    "tests/test_readme.py",
    "tests/test_terms.py",
    "tests/test_search.py",
    "tests/test_fine_tuning.py",
)
"""What takes longest, in this order. It begins first, so that no process has to wait for it at the end."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, run the tests of a file in one process, and also those of a folder in ONE_PROCESS."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    config.option.loadscopereorder = False  # xdist's own order is by the number of tests
    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: place_of(scope_of(item.nodeid)))


def scope_of(nodeid: str) -> str:
    """Return the file or the folder whose tests run in one process."""
    file = nodeid.partition("::")[0]
    folder = PurePosixPath(file).parent
    return str(folder) if folder.name in ONE_PROCESS else file


def place_of(scope: str) -> int:
    return LONGEST.index(scope) if scope in LONGEST else len(LONGEST)


def pytest_collection_finish() -> None:
    """Keep imported modules out of garbage collections: 360,000 objects take 0.2 CPU seconds each time."""
    toys = sys.modules.get("helpers.toy")
    if toys and toys.toy.cache_info().misses:
        raise pytest.UsageError("a test file trains a toy model at its import, so every process does")
    gc.freeze()
    gc.set_threshold(20_000)  # the default of 700 takes 4% of the time of the tests


NUMERIC = re.compile(
    r"^ *(?:import torch|from (?:torch|mtcli\.model|mtcli\.search|helpers\.marian|helpers\.toy))\b", re.MULTILINE
)
"""An import that makes the tests of a file numeric: they compute with PyTorch or CTranslate2."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of each file that computes. So a new file takes part in `scripts/test --processors`."""
    if is_numeric(item.path):
        item.add_marker("numeric")


@cache
def is_numeric(path: Path) -> bool:
    source = path.read_text(encoding="utf-8")
    return bool(NUMERIC.search(source)) or "toy_run" in source or "train_toy" in source


@pytest.fixture(scope="session", autouse=True)
def _cores() -> None:
    """Use one core, unless the environment says otherwise: models of this size are slower with two."""
    import torch

    from mtcli.runtime import cores

    torch.set_num_threads(1)
    identify_languages_once()
    cores.usable_cores = lambda: NUM_CORES
    cores.all_cores.cache_clear()


@pytest.fixture(autouse=True)
def _same_process() -> Iterator[None]:
    """Restore what a command changes that runs in this process: the environment, the arguments and the log."""
    environment = dict(os.environ)
    arguments = sys.argv
    log = logging.getLogger("mtcli")
    handlers, level, propagate = log.handlers[:], log.level, log.propagate
    yield
    for name in os.environ.keys() - environment.keys() - {"PYTEST_CURRENT_TEST"}:
        del os.environ[name]
    sys.argv = arguments
    log.handlers[:] = handlers
    log.setLevel(level)
    log.propagate = propagate


@pytest.fixture(autouse=True)
def _no_command_left() -> Iterator[None]:
    """Kill the commands that a failed test leaves running: at its end, Python waits for all processes it started."""
    yield
    for process in multiprocessing.active_children():
        if isinstance(process, ForkServerProcess):
            process.kill()
            process.join()


@pytest.fixture(scope="session")
def toy_tsv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tsv(tmp_path_factory.mktemp("toy") / "toy.tsv", toy_pairs())


@pytest.fixture(scope="session")
def train_toy(toy_tsv: Path) -> Callable[..., Path]:
    """Return a function that trains in a folder with the settings of the toy and further `--set` strings."""
    import torch

    from mtcli.config.build import build
    from mtcli.training.request import InitialModel
    from mtcli.training.run import train

    def run(out: Path, *sets: str, spec: str | Path | None = None, init: Path | None = None, **options: object) -> Path:
        values = {"data.train": [str(spec or toy_tsv)], "data.src": "en", "data.tgt": "xx"}
        config = build(None, values, [*TOY_SETTINGS, *sets])
        initial = InitialModel.load(init) if init else None
        train(config, out, torch.device("cpu"), init=initial, **options)  # type: ignore[arg-type]
        return out

    return run


@pytest.fixture(scope="session")
def toy_run(train_toy: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of a few steps."""
    return train_toy(tmp_path_factory.mktemp("runs") / "toy", "train.max_steps=20")
