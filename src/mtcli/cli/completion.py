"""Values that the Tab key completes. Nothing here loads PyTorch, since a user waits for the answer."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

# These are defined elsewhere too, in modules that load PyTorch or other heavy packages; a test compares them.
PRESETS = ("tiny", "small", "base", "big")
DEVICES = ("auto", "cpu", "cuda", "mps")
BLEU_TOKENIZERS = (
    "13a", "char", "flores101", "flores200", "intl", "ja-mecab", "ko-mecab", "none", "spBLEU-1K", "spm", "zh",
)  # fmt: skip
QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32")

RUNS = Path("runs")
"""The default folder of runs."""

MODEL_FILES = ("model.safetensors", "config.toml", "mtcli.json")
"""A folder with one of these is a run or a model."""

NEEDS_NO_QUOTES = re.compile(r"[\w.@+,-]+")
"""Names that every shell takes as they are."""


def values(names: Sequence[str]) -> Callable[[str], list[str]]:
    """Return a function that completes one of these names."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return complete


def models(incomplete: str) -> list[str]:
    """Return the runs and models in `runs/`. Without a match, the shell completes names of files."""
    return [path for path in _paths_of_models() if path.startswith(incomplete)]


def settings(incomplete: str) -> list[str]:
    """Return `key=` for every key of `--set`, and `key=value` for settings with a fixed set of values."""
    from mtcli.config.settings import settings as all_settings

    found = []
    for setting in all_settings():
        found += [f"{setting.name}={value}" for value in setting.choices or ("",)]
    return [text for text in found if text.startswith(incomplete)]


def _paths_of_models() -> Iterator[str]:
    try:
        folders = sorted(RUNS.iterdir())
    except OSError:
        return
    for folder in folders:
        if NEEDS_NO_QUOTES.fullmatch(folder.name) and any((folder / name).is_file() for name in MODEL_FILES):
            yield str(folder)
