"""What a user asks `mtcli improve` for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mtcli.config.schema import Config
from mtcli.corpus.cache.info import input_files
from mtcli.corpus.cache.tokenizer_file import given_tokenizer, tokenizer_path
from mtcli.errors import UsageError
from mtcli.recipes.improve.budget import SharedBudget
from mtcli.recipes.recipe import check_settings
from mtcli.runtime.outputs import check_folder
from mtcli.training.request import resolve
from mtcli.translate.backends.exported import sha256

DEFAULT_TIME = "3h"


@dataclass(frozen=True)
class ImproveRequest:
    """A request that was checked."""

    config: Config
    """Names the pairs, the held-out pairs and the languages."""
    out: Path
    budget: SharedBudget
    mono_tgt: Path | None = None
    """Text in the target language."""
    mono_src: Path | None = None
    """Text in the source language."""
    preset: str | None = None
    sets: tuple[str, ...] = ()
    """`--set` of every training."""
    device: str = "auto"

    @property
    def tokenizer(self) -> Path:
        """The tokenizer that the stages train."""
        return self.out / "pairs" / "tokenizer.json"

    @property
    def trains_tokenizer(self) -> bool:
        """True if one tokenizer is trained for all models, which can then be combined in an ensemble."""
        return self.config.tokenizer.joint and not self.config.tokenizer.file

    @property
    def has_one_tokenizer(self) -> bool:
        """True if all models have the same tokenizer."""
        return self.config.tokenizer.joint

    def inputs(self) -> list[Path]:
        """Return the local files that are read.

        Raises:
            DataError: The pairs cannot be read.
        """
        places = [*input_files(self.config), self.mono_tgt, self.mono_src, tokenizer_path(self.config)]
        return [path for path in places if path is not None]

    @cached_property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each of the `inputs`, as they were when the command began."""
        return {str(path): sha256(path) for path in self.inputs()}

    def identity(self) -> dict[str, Any]:
        """Return everything that decides the result, by the names of the options.

        Raises:
            DataError: The pairs cannot be read.
        """
        data = self.config.data
        return {
            "--train": list(data.train),
            "--valid": data.valid,
            "--test": data.test,
            "--src": data.src,
            "--tgt": data.tgt,
            "--swap": data.swap,
            "--replace": data.replace,
            "--mono-tgt": str(self.mono_tgt) if self.mono_tgt else None,
            "--mono-src": str(self.mono_src) if self.mono_src else None,
            "--preset": self.preset,
            "--set": list(self.sets),
            "--out": str(self.out),
            "--device": self.device,
            "tokenizer": "one for all models" if self.trains_tokenizer else None,
            self.budget.option: self.budget.total,
            **{f"SHA-256 of {name}": digest[:16] for name, digest in self.digests.items()},
        }


def resolve_request(
    options: Mapping[str, Any],
    sets: Sequence[str],
    *,
    out: Path | None,
    mono_tgt: Path | None,
    mono_src: Path | None,
    device: str,
) -> ImproveRequest:
    """Build the configuration of the trainings, and find languages and folder.

    Args:
        options: Values of the command line by dotted name, as for `mtcli train`; None means unset.
        sets: `section.key=value` strings.
        out: The folder; None: chosen by the data.
        mono_tgt: Text in the target language.
        mono_src: Text in the source language.
        device: The device of all stages.

    Raises:
        UsageError: A wrong setting, languages that cannot be found, or a folder that cannot be used.
        DataError: Training pairs are missing.
        ModelError: `tokenizer.file` is missing or damaged.
    """
    check_settings(sets, "improve")
    given = dict(options)
    if given.get("train.time") is None and given.get("train.max_steps") is None:
        given["train.time"] = DEFAULT_TIME
    request = resolve(None, given, sets, out=out)
    config = request.config
    if len(config.data.directions) > 1:
        directions = ", ".join(map(str, config.data.directions))
        raise UsageError(
            f"mtcli improve: for one pair of languages, and these are {directions}; improve each by itself"
        )
    tokenizer = given_tokenizer(config)
    if tokenizer is not None and not tokenizer.joint:
        raise UsageError(
            f"tokenizer.file {config.tokenizer.file}: has two vocabularies, and models of both directions are trained; "
            "name one with a joint vocabulary"
        )
    folder = out or request.run.with_name(f"{request.run.name}-improved")
    texts = [path for path in (mono_tgt, mono_src) if path is not None]
    check_folder(folder, [*input_files(config), *texts], option="--out")
    if config.train.max_steps is not None:
        budget = SharedBudget(config.train.max_steps, "steps")
    else:
        budget = SharedBudget(config.train.time or 0.0, "seconds")
    preset = given.get("preset")
    return ImproveRequest(config, folder, budget, mono_tgt, mono_src, preset, tuple(sets), device)
