"""An exported model translates with CTranslate2: no PyTorch is loaded, so a first sentence takes half a second.

CTranslate2's beam search grows the same hypotheses as `decode.beam_search`, and differs in what it makes of them:

- It ranks by log P / n^α and gives back that score, n pieces with `</s>`. The whole beam is asked for, log P recovered,
  and ranked by log P / lp(y). While it searches it compares hypotheses of one length only, so α changes nothing there;
  but at α = 0 it stops at the first translation instead of the W-th, so it is never given 0.
- It has one limit of length for a batch, and cuts what has not ended there. Pieces that may not come would be taken out
  before the softmax, ours are after, which moves log P. So both are left to a second search of the one sentence that
  meets its limit or such a piece.

The best translation is then the same. Of several that end in the last step it may keep others behind the best.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ValidationError

from mtcli import limits
from mtcli.config.fields import Within
from mtcli.config.schema import DecodeConfig
from mtcli.data.tokenizer import EOS, Tokenizer
from mtcli.errors import ModelError, UsageError
from mtcli.inference.line_translator import Draft, LineTranslator, Options, Translation
from mtcli.runtime.regular_file import open_regular, read_regular
from mtcli.storage.names import PROVENANCE

INSTEAD = "name the run itself with --model, without --engine"
"""What does all that an exported model does not."""

FORMAT = 2
"""Version of the exported folder; another one is refused."""

BATCH_TOKENS = 2048
"""Source pieces that one worker translates at a time."""

NEARLY_ZERO = 1e-6

SUPPORTED = {"beam_size", "length_penalty", "n_best", "max_length", "max_extra"}
"""The search options that this engine takes."""


class Engine(LineTranslator):
    """A folder that `mtcli export --to ctranslate2` wrote."""

    def __init__(self, folder: Path, device: str = "auto"):
        """Open it on `cpu`, `cuda` or, with `auto`, the better one.

        Raises:
            ModelError: It is no such folder, or damaged.
            UsageError: The library or the device is missing.
        """
        about = provenance(folder)
        if about is None:
            raise ModelError(f"{folder}: no exported model here; `mtcli export {folder} --to ctranslate2` makes one")
        if about.get("to") != "ctranslate2":
            raise ModelError(f"{folder}: exported to {about.get('to')}, which other programs run; {INSTEAD}")
        if device not in ("auto", "cpu", "cuda"):
            raise UsageError(f"--device {device}: choose from auto, cpu, cuda for an exported model, or {INSTEAD}")
        try:
            import ctranslate2
        except ImportError:
            raise UsageError("ctranslate2 is not installed; `pip install ctranslate2` installs it") from None
        if device == "cuda" and not ctranslate2.get_cuda_device_count():
            raise UsageError("--device cuda: CTranslate2 finds no such device; use --device auto")
        try:
            found = _Exported.model_validate(about)
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in problem["loc"])[:100]
            raise ModelError(
                f"{folder / PROVENANCE}: damaged ({where}: {problem['msg']}); export the model again"
            ) from None
        self.max_positions = found.max_positions
        self.defaults = Options.of(found.model.decode)
        self.languages = found.model.src, found.model.tgt
        _verify(folder, found.files)
        super().__init__(Tokenizer.load(folder / "tokenizer.json"), found.model.longest_src)
        self._tgt_ids = {piece: i for i, piece in enumerate(self.tokenizer.tgt_vocabulary)}
        self._forbidden = {self.tokenizer.tgt_vocabulary[i] for i in self.tokenizer.forbidden}
        self._end = self.tokenizer.tgt_vocabulary[EOS]
        # Workers of one thread each share the weights and need not wait for each other within a sentence.
        workers = 1 if device == "cuda" else _threads()
        try:
            self.native: Any = ctranslate2.Translator(
                str(folder), device=device, inter_threads=workers, intra_threads=1
            )
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"{folder}: CTranslate2 cannot use it ({error}); export the model again") from None

    def translate(self, lines: Iterable[str], options: Options, **how: Any) -> Iterator[Translation]:
        """See `LineTranslator.translate`.

        Raises:
            UsageError: An option that this engine does not take.
        """
        _refuse(options)
        return super().translate(lines, options, **how)

    def _budget(self, options: Options) -> int:
        return BATCH_TOKENS * 16  # CTranslate2 sorts and cuts this into batches for its workers

    def _drafts(
        self, window: Sequence[str], ids: Sequence[Sequence[int]], rows: Sequence[int], options: Options, first: int
    ) -> list[list[Draft]]:
        vocabulary = self.tokenizer.src_vocabulary
        sources = [[vocabulary[i] for i in ids[row]] for row in rows]
        limits = [min(options.max_length or len(s) + options.max_extra, self.max_positions - 1) for s in sources]
        pending = self._ask(sources, max(limits) + 1, options)
        drafts = []
        for source, limit, result in zip(sources, limits, pending, strict=True):
            found = result.result()
            if any(self._wrong(pieces, limit) for pieces in found.hypotheses):
                found = self._within(source, limit, options)
            drafts.append(self._ranked(source, found, options))
        return drafts

    def _wrong(self, pieces: list[str], limit: int) -> bool:
        """Whether a hypothesis was cut, is past its limit or holds a forbidden piece."""
        return pieces[-1] != self._end or len(pieces) > limit + 1 or not self._forbidden.isdisjoint(pieces)

    def _within(self, source: list[str], limit: int, options: Options) -> Any:
        """The same search, the long way: every hypothesis found before the limit, and those that were alive there."""
        many = {"num_hypotheses": 100 * options.beam_size, "patience": 100} if options.beam_size > 1 else {}
        suppressed = [[piece] for piece in self._forbidden]
        return self._ask([source], limit, options, suppress_sequences=suppressed, **many)[0].result()

    def _ask(self, sources: list[list[str]], steps: int, options: Options, **more: Any) -> list[Any]:
        """CTranslate2's results, on their way."""
        asked = {
            "beam_size": options.beam_size,
            "num_hypotheses": options.beam_size,
            "length_penalty": _exponent(options),
            "max_decoding_length": steps,
            "min_decoding_length": 0,
            "max_input_length": 0,
            "return_scores": True,
            "return_end_token": True,
            "max_batch_size": BATCH_TOKENS,
            "batch_type": "tokens",
            "asynchronous": True,
        }
        results: list[Any] = self.native.translate_batch(sources, **(asked | more))
        return results

    def _ranked(self, source: list[str], found: Any, options: Options) -> list[Draft]:
        """One sentence's hypotheses under our score, best first."""
        finished = []
        for pieces, score in zip(found.hypotheses, found.scores, strict=True):
            if pieces[-1] == self._end:
                finished.append((pieces, score * len(pieces) ** _exponent(options)))
            else:  # alive at the limit: it ends there
                (scored,) = self.native.score_batch([source], [pieces], max_input_length=0)
                finished.append(([*pieces, self._end], sum(scored.log_probs)))
        # Ours stops with the first W: of one length they were found together, the likelier first.
        finished.sort(key=lambda hypothesis: (len(hypothesis[0]), -hypothesis[1]))
        ranked = []
        for pieces, log_p in finished[: options.beam_size]:
            penalty = ((5 + len(pieces)) / 6) ** options.length_penalty if options.beam_size > 1 else 1.0
            ranked.append((log_p / penalty, log_p, [self._tgt_ids[piece] for piece in pieces[:-1]]))
        best = sorted(ranked, key=lambda found: -found[0])
        texts = self.tokenizer.decode([ids for _, _, ids in best])
        return [Draft(text, tuple(ids), log_p, score) for text, (score, log_p, ids) in zip(texts, best, strict=True)]


def _exponent(options: Options) -> float:
    """The α that CTranslate2 is given."""
    return max(options.length_penalty, NEARLY_ZERO) if options.beam_size > 1 else 0.0


def _refuse(options: Options) -> None:
    """Refuse what this engine cannot do."""
    for field in fields(options):
        if field.name not in SUPPORTED and getattr(options, field.name) != field.default:
            name = field.name.replace("_", "-")
            raise UsageError(f"--{name}: not with an exported model; {INSTEAD}")


class _Model(BaseModel):
    """The part of a model's information that translating needs."""

    decode: DecodeConfig
    src: str
    tgt: str
    longest_src: Annotated[int, Within(limits.COUNT)]


class _Exported(BaseModel):
    """What `mtcli.json` must say of an exported folder."""

    max_positions: Annotated[int, Within(limits.EXPORTED_POSITIONS)]
    model: _Model
    files: dict[str, str]


READ = ("config.json", "model.bin", "tokenizer.json")
"""What every folder for CTranslate2 holds, besides vocabularies."""


def sha256(path: Path, inside: Path | None = None) -> str:
    """The checksum of a file, in hexadecimal digits; see `open_regular`."""
    with open_regular(path, inside) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _verify(folder: Path, files: dict[str, str]) -> None:
    """Make sure that an exported folder holds what was exported, and nothing more that CTranslate2 would read.

    Raises:
        ModelError: A file is missing, damaged, not listed or not a plain file of the folder.
    """
    present = {path.name for path in folder.iterdir() if "vocabulary" in path.name or path.name == "vmap.txt"}
    for name in sorted({*READ, *present} - files.keys()):
        raise ModelError(f"{folder / PROVENANCE}: has no checksum of {name}; export the model again")
    for name, digest in files.items():
        if Path(name).name != name:
            raise ModelError(f"{folder / PROVENANCE}: names {name!r}, which is no file's name; export the model again")
        try:
            found = sha256(folder / name, folder)
        except (OSError, ValueError) as error:
            raise ModelError(f"{folder / name}: cannot be read ({error}); export the model again") from None
        if found != digest:
            raise ModelError(f"{folder / name}: is not what was exported: damaged; export the model again")


def provenance(folder: Path) -> dict[str, Any] | None:
    """What an exported folder says of itself; None: it is none.

    Raises:
        ModelError: It cannot be read.
    """
    path = folder / PROVENANCE
    try:
        found = json.loads(read_regular(path))
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        raise ModelError(f"{folder}: is a file; name the folder of a run or model") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); export the model again") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ModelError(f"{path}: not of a format that this version of mtcli reads; export the model again")
    return found


def load(
    folder: Path, device: str = "auto", engine: str | None = None
) -> tuple[LineTranslator, Options, tuple[str, str]]:
    """What translates with the model in a folder, the search options that the model asks for, and its languages.

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
    exported = provenance(folder) is not None
    if engine == "ctranslate2" or (engine is None and exported):
        found = Engine(folder, device)
        return found, found.defaults, found.languages
    if exported:
        raise ModelError(f"{folder}: an exported model, not for --engine torch; {INSTEAD}")
    from mtcli.inference.pytorch_backend import Translator
    from mtcli.runtime.device import pick_device

    return Translator.load(folder, pick_device(device))


def _threads() -> int:
    """As many as OMP_NUM_THREADS says, else as this process has cores."""
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if wanted.isdigit() and int(wanted):
        return int(wanted)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
