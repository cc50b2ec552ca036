"""An exported model translates with CTranslate2: no PyTorch is loaded, so a first sentence takes half a second.

CTranslate2's search is ours but for three points, which are met here:

- it ranks by log P / n^α and gives back that score, n pieces with `</s>`: the whole beam is asked for, log P recovered
  and ranked by log P / lp(y) as in `decode.beam_search`. Both compare hypotheses of one length while they search, so
  the penalty changes nothing there; but with α = 0 it stops at the first translation instead of the W-th, so it is
  never given 0;
- it has one limit of length for a whole batch, and cuts there: a sentence that ran past its own limit is searched
  again under that, and a hypothesis that was cut ends at the limit with the probability of doing so;
- it takes forbidden pieces out before the softmax, ours after: log P is higher by what they would have got, for a
  trained model about 1e-4 a sentence.
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mtcli.config import DecodeConfig
from mtcli.errors import DataError, ModelError, UsageError
from mtcli.tokenizer import EOS, Tokenizer
from mtcli.translation import Candidate, LineTranslator, Options

PROVENANCE = "mtcli.json"
"""The file of an exported folder that says what it is and which model it was made from."""

FORMAT = 1
"""Version of the exported folder; another one is refused."""

BATCH_TOKENS = 2048
"""Source pieces that one worker translates at a time."""

NEARLY_ZERO = 1e-6


class Engine(LineTranslator):
    """A folder that `mtcli export --to ctranslate2` wrote."""

    def __init__(self, folder: Path, device: str = "auto"):
        """Open it on `cpu`, `cuda` or, with `auto`, the better one.

        Raises:
            ModelError: It is no such folder, or damaged.
            UsageError: The library or the device is missing.
        """
        about = provenance(folder)
        if about is None or about.get("to") != "ctranslate2":
            raise ModelError(
                f"{folder}: no model exported to ctranslate2; make one with `mtcli export {folder} --to ctranslate2`"
            )
        if device == "mps":
            raise UsageError("--device mps: ctranslate2 has no such device; leave it out, or use --engine torch")
        try:
            import ctranslate2
        except ImportError:
            raise UsageError("ctranslate2 is not installed; `pip install 'mtcli[export]'` installs it") from None
        try:
            model, self.max_positions = about["model"], int(about["max_positions"])
            self.defaults = Options.of(DecodeConfig.model_validate(model["decode"]))
            longest, digest = int(model["longest_src"]), str(model["tokenizer"])
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{folder / PROVENANCE}: damaged ({error}); export the model again") from None
        super().__init__(Tokenizer.load(folder / "tokenizer.json"), longest)
        if self.tokenizer.digest() != digest:
            raise ModelError(f"{folder}: tokenizer.json is not the one this model was exported with; export it again")
        self._tgt_ids = {piece: i for i, piece in enumerate(self.tokenizer.tgt_vocabulary)}
        # Workers of one thread each share the weights and beat one worker of several threads (two sentences at once
        # need no waiting for each other), as long as there are several sentences.
        workers = int(os.environ.get("OMP_NUM_THREADS") or 0) or _cores()
        try:
            self.native: Any = ctranslate2.Translator(
                str(folder), device=device, inter_threads=workers if device != "cuda" else 1, intra_threads=1
            )
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"{folder}: CTranslate2 cannot use it ({error}); export the model again") from None

    def _budget(self, options: Options) -> int:
        refuse(options)
        return BATCH_TOKENS * 16  # CTranslate2 sorts and cuts this into batches for its workers

    def _candidates(
        self, window: Sequence[str], ids: Sequence[Sequence[int]], rows: Sequence[int], options: Options, first: int
    ) -> Iterator[tuple[Candidate, ...]]:
        for row in rows:
            if len(ids[row]) >= self.max_positions:
                raise DataError(
                    f"line {first + row + 1} has {len(ids[row])} pieces; the exported model reads at most "
                    f"{self.max_positions - 1}; shorten it, or use --engine torch"
                )
        vocabulary = self.tokenizer.src_vocabulary
        sources = [[vocabulary[i] for i in ids[row]] for row in rows]
        limits = [min(options.max_length or len(s) + options.max_extra, self.max_positions - 1) for s in sources]
        pending = self._ask(sources, max(limits), options)
        for source, limit, result in zip(sources, limits, pending, strict=True):
            found = result.result()
            if any(len(pieces) > limit + 1 for pieces in found.hypotheses):
                found = self._ask([source], limit, options)[0].result()
            yield self._ranked(source, found, limit, options)

    def _ask(self, sources: list[list[str]], limit: int, options: Options) -> list[Any]:
        """CTranslate2's results, on their way."""
        results: list[Any] = self.native.translate_batch(
            sources,
            beam_size=options.beam_size,
            num_hypotheses=options.beam_size,
            length_penalty=_exponent(options),
            max_decoding_length=limit + 1,  # with </s>
            min_decoding_length=0,
            max_input_length=0,
            suppress_sequences=[[self.tokenizer.tgt_vocabulary[i]] for i in self.tokenizer.forbidden],
            return_scores=True,
            return_end_token=True,
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
            asynchronous=True,
        )
        return results

    def _ranked(self, source: list[str], found: Any, limit: int, options: Options) -> tuple[Candidate, ...]:
        """One sentence's hypotheses under our score, best first."""
        end = self.tokenizer.tgt_vocabulary[EOS]
        log_probs: dict[tuple[str, ...], float] = {}
        for pieces, score in zip(found.hypotheses, found.scores, strict=True):
            if pieces[-1] == end:
                log_probs[tuple(pieces[:-1])] = score * len(pieces) ** _exponent(options)
            else:
                (scored,) = self.native.score_batch([source], [pieces[:limit]], max_input_length=0)
                log_probs[tuple(pieces[:limit])] = sum(scored.log_probs)
        ranked = []
        for pieces, log_p in log_probs.items():
            penalty = ((5 + len(pieces) + 1) / 6) ** options.length_penalty if options.beam_size > 1 else 1.0
            (text,) = self.tokenizer.decode([[self._tgt_ids[piece] for piece in pieces]])
            ranked.append(Candidate(text, log_p, log_p / penalty))
        return tuple(sorted(ranked, key=lambda c: -c.score)[: options.n_best])


def _exponent(options: Options) -> float:
    """The α that CTranslate2 is given."""
    return max(options.length_penalty, NEARLY_ZERO) if options.beam_size > 1 else 0.0


def refuse(options: Options) -> None:
    """Refuse what this engine cannot do.

    Raises:
        UsageError: Names the option.
    """
    wanted = {"--sample": options.sample, "--prefix": options.prefix, "--alignments": options.alignments}
    for name, value in wanted.items():
        if value:
            raise UsageError(f"{name}: not with the ctranslate2 engine; use --engine torch and the run's own folder")


def provenance(folder: Path) -> dict[str, Any] | None:
    """What an exported folder says of itself; None: it is none.

    Raises:
        ModelError: It cannot be read.
    """
    path = folder / PROVENANCE
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); export the model again") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ModelError(f"{path}: not of a format that this version of mtcli reads; export the model again")
    return found


def load(folder: Path, device: str = "auto", engine: str | None = None) -> tuple[LineTranslator, Options]:
    """What translates with the model in a folder, and the search options that the model asks for.

    Args:
        folder: A run, a checkpoint or an exported model.
        device: `auto`, `cpu`, `cuda` or `mps`.
        engine: `torch` or `ctranslate2`; None: what the folder is for.

    Raises:
        ModelError: There is no usable model.
        UsageError: There is no such engine or device.
    """
    if engine not in (None, "torch", "ctranslate2"):
        raise UsageError(f"--engine {engine}: choose from torch, ctranslate2")
    if engine == "ctranslate2" or (engine is None and provenance(folder) is not None):
        exported = Engine(folder, device)
        return exported, exported.defaults
    from mtcli.distributed import pick_device
    from mtcli.translate import Translator

    return Translator.load(folder, pick_device(device))


def _cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
