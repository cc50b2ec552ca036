"""Translate lines with an exported model and CTranslate2, without PyTorch: the first sentence takes half a second.

CTranslate2's beam search finds the same hypotheses as `search.beam.beam_search`, and treats them differently:

- It ranks them by log P / n^α, where n tokens include `</s>`, and returns the W best. Our search keeps the first W that
  end, and of those that end in the last step the most likely. So CTranslate2 is given an α of nearly 0, which ranks by
  log P, and the whole beam is ranked again by the model's own length penalty. What CTranslate2 drops is less likely
  than a hypothesis of the last step, and no longer, so it is not the best by any α. During the search it only compares
  hypotheses of equal length. With α = 0 it would stop at the first finished hypothesis instead of the W-th.
- It has one maximum length for a batch, and cuts hypotheses there. It removes forbidden tokens before the softmax,
  which changes log P; our search removes them after it. So the search of a batch uses neither. A sentence with a
  hypothesis beyond its maximum length, or with a forbidden token, is searched again alone, and the log P of what this
  search finds is computed separately.
- It removes `</s>` below the minimum length in the same way. So the search of a batch has no minimum length. Sentences
  with a shorter hypothesis, usually an empty one, are searched again together.
- It also blocks repeated n-grams before the softmax, so the log P of what such a search finds is computed separately.
  It may find other hypotheses, so only a repair blocks them (`translate.translator`).
- It always stops early, also for a model with `decode.early_stopping = false`.
- In the step that reaches the maximum length, it keeps the W best continuations, those with `</s>` among them. Our
  search keeps W unfinished ones besides. So for each of the W that has `</s>`, CTranslate2 loses an unfinished
  hypothesis: the W-th first, then the one before it. A lost one may be among the best when `</s>` has been added to all
  of them.

If no hypothesis reaches the maximum length, the best translation is the same, and of several hypotheses that end in one
step, the two searches may keep different ones behind the best. Otherwise CTranslate2 may find another translation.
"""

import math
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtcli.errors import ModelError, NotFiniteError, UsageError
from mtcli.runtime import torchrun
from mtcli.runtime.cores import prefetch_map, usable_cores
from mtcli.search.length import length_penalty
from mtcli.text.special_tokens import EOS
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.backends.backend import Backend, R, T
from mtcli.translate.backends.exported import GIVE_THE_RUN, provenance, read_export
from mtcli.translate.translation import Candidate, Options
from mtcli.translate.windows import SourceLine

if TYPE_CHECKING:
    from mtcli.translate.alignment import Weights

BATCH_TOKENS = 2048
"""Source tokens × beams that one thread translates at a time. With many more, the memory of a step does not fit in the
caches of some processors; with many fewer, the last steps of a batch cost too much. See docs/performance.md."""

SCORED_TOKENS = 2048
"""Source tokens of a batch of given translations, whose scores or attention are computed."""

CALL_TOKENS = 16_384
"""Source tokens of each thread in one call of CTranslate2, or fewer of short lines. A call cannot be cancelled and
shows no progress."""

NEARLY_ZERO = 1e-6
"""The α of CTranslate2's length penalty in a beam search, which it ranks by log P then."""

ScoredTokens = tuple[list[str], float]
"""The tokens of a hypothesis, and its score."""

GROUP = 64
"""Sentences whose hypotheses are ranked together, or pairs of similar length whose attention is computed together."""

SUPPORTED = {
    "beam_size", "length_penalty", "length_normalization", "n_best", "min_length", "max_length", "max_extra", "to",
    "precision", "alignments", "align_characters", "terms", "retry_terms", "scores", "repair",
}  # fmt: skip
"""The options of a search that this engine supports. The precision is that of the exported weights in any case."""

SAMPLING = ("temperature", "top_k", "seed")
"""Options that have an effect only with `Options.sample`."""


class CTranslate2Backend(Backend):
    """A folder written by `mtcli export --to ctranslate2`."""

    reads_ahead = True
    requires_terms = False

    def __init__(self, folder: Path, device: str = "auto"):
        """Load the model.

        Args:
            folder: The folder.
            device: `cpu`, `cuda`, or `auto` for the better one.

        Raises:
            ModelError: The folder holds no model exported to CTranslate2, or a damaged one.
            UsageError: The library or the device is missing.
        """
        about = provenance(folder)
        if about is None:
            command = f"mtcli export {shlex.quote(str(folder))} --to ctranslate2"
            raise ModelError(f"{folder}: no exported model here; create one: `{command}`")
        if about.get("to") != "ctranslate2":
            target = about.get("to")
            raise ModelError(f"{folder}: exported to {target}, with which mtcli cannot translate; {GIVE_THE_RUN}")
        if device not in ("auto", "cpu", "cuda"):
            raise UsageError(f"--device {device}: choose from auto, cpu, cuda for an exported model, or {GIVE_THE_RUN}")
        placement = placement_of(device, about.get("quantization") or "float32")
        export = read_export(folder, about)
        super().__init__(Tokenizer.load(folder / "tokenizer.json"), export.model)
        self.default_options = replace(self.default_options, early_stopping=True)
        self.max_positions = export.max_positions
        vocabulary = self.tokenizer.tgt_vocabulary
        self._end = vocabulary[EOS]
        self._forbidden = {vocabulary[i] for i in self.tokenizer.forbidden}
        self._has_finite_scores = False
        """A search has had finite scores. Weights that are too large give NaN for every sentence."""
        self._tgt_ids = {token: i for i, token in enumerate(vocabulary)}
        try:
            self.native = load_native(folder, **placement)
        except (RuntimeError, ValueError) as error:
            raise ModelError(f"{folder}: CTranslate2 cannot use it ({error}); export the model again") from None

    def check(self, options: Options) -> None:
        """See `Backend.check`."""
        for name in unsupported_options(options):
            raise UsageError(f"--{name.replace('_', '-')}: not with an exported model; {GIVE_THE_RUN}")
        super().check(options)

    def max_batch_tokens(self, options: Options) -> int:
        """See `Backend.max_batch_tokens`."""
        return CALL_TOKENS * int(self.native.num_translators)

    def map_batches(self, search: Callable[[T], R], batches: Iterable[T], options: Options) -> Iterator[R]:
        """See `Backend.map_batches`."""
        # The next call begins before the last one ends, so that no thread of CTranslate2 waits for another.
        return prefetch_map(search, batches, workers=2)

    def search(self, sources: Sequence[SourceLine], options: Options) -> list[list[Candidate]]:
        """See `Backend.search`."""
        best_only = options.n_best == 1 and not options.scores
        if options.beam_size > 1 or not self._has_finite_scores:
            options = replace(options, scores=True)
        vocabulary = self.tokenizer.src_vocabulary
        tokens = [[vocabulary[i] for i in source.ids] for source in sources]
        max_lengths = [self._max_length(source, options) for source in tokens]
        searches = self._submit(tokens, max(max_lengths) + 1, options)
        candidates: list[list[Candidate]] = [[] for _ in tokens]
        too_short: list[int] = []
        unscored: dict[int, list[ScoredTokens]] = {}
        unfinished: dict[int, list[ScoredTokens]] = {}
        # The first rows, which are the longest, are ranked while CTranslate2 still searches the others.
        for first in range(0, len(tokens), GROUP):
            finished: dict[int, list[ScoredTokens]] = {}
            for index in range(first, min(first + GROUP, len(tokens))):
                hypotheses = _hypotheses(searches[index])
                if self._has_too_short(hypotheses, max_lengths[index], options):
                    too_short.append(index)
                elif not self._are_finished(hypotheses, max_lengths[index]):
                    unfinished[index] = hypotheses
                elif options.no_repeat_ngram:
                    unscored[index] = hypotheses
                else:
                    finished[index] = hypotheses
            self._rank(candidates, _with_log_probs(finished, options), options, best_only=best_only)
        for index, hypotheses in self._searched_longer(too_short, tokens, max_lengths, options).items():
            is_finished = self._are_finished(hypotheses, max_lengths[index])
            (unscored if is_finished else unfinished)[index] = hypotheses
        unscored |= self._completed(unfinished, tokens, max_lengths, options)
        self._rank(candidates, self._scored(unscored, tokens, options), options, best_only=best_only)
        self._has_finite_scores = True
        return candidates

    def _searched_longer(
        self,
        indices: Sequence[int],
        sources: Sequence[Sequence[str]],
        max_lengths: Sequence[int],
        options: Options,
    ) -> dict[int, list[ScoredTokens]]:
        """Search some sentences again, with the minimum length. The scores of what is found are not log P."""
        if not indices:
            return {}
        max_steps = max(max_lengths[index] for index in indices) + 1
        min_length = min(options.min_length, max_steps)
        searches = self._submit(
            [sources[index] for index in indices], max_steps, options, min_decoding_length=min_length
        )
        return {index: _hypotheses(search) for index, search in zip(indices, searches, strict=True)}

    def _completed(
        self,
        unfinished: Mapping[int, list[ScoredTokens]],
        sources: Sequence[Sequence[str]],
        max_lengths: Sequence[int],
        options: Options,
    ) -> dict[int, list[ScoredTokens]]:
        """Return the hypotheses of sentences whose search broke a limit: cut if that is enough, or searched again.

        Their scores are not log P: that of a hypothesis that was cut lacks its end, and a search without forbidden
        tokens divides the probability of each token by that of all tokens that are allowed.
        """
        completed: dict[int, list[ScoredTokens]] = {}
        repeated: dict[int, Any] = {}
        for index, hypotheses in unfinished.items():
            has_forbidden = any(not self._forbidden.isdisjoint(tokens) for tokens, _ in hypotheses)
            if options.beam_size > 1 or has_forbidden:
                repeated[index] = self._search_alone(sources[index], max_lengths[index], options)
            else:
                completed[index] = [self._shortened(hypotheses[0], max_lengths[index])]
        for index, search in repeated.items():
            completed[index] = self._first(_hypotheses(search), options.beam_size)
        return completed

    def _first(self, hypotheses: Sequence[ScoredTokens], number: int) -> list[ScoredTokens]:
        """Return this number of hypotheses that end first, and all others that end in the step of the last of them."""
        lengths = [len(self._ended(tokens)) for tokens, _ in hypotheses]
        longest = sorted(lengths)[:number][-1]
        return [each for each, length in zip(hypotheses, lengths, strict=True) if length <= longest]

    def _rank(
        self,
        candidates: list[list[Candidate]],
        found: Mapping[int, list[ScoredTokens]],
        options: Options,
        *,
        best_only: bool,
    ) -> None:
        """Rank the hypotheses of some sentences, with `</s>` and log P, and put them into `candidates`, by index.

        Raises:
            NotFiniteError: The log-probability of one is NaN or infinite, and the options need scores.
        """
        log_probs = (log_p for hypotheses in found.values() for _, log_p in hypotheses)
        if options.scores and not all(map(math.isfinite, log_probs)):
            raise NotFiniteError
        for index, ranked in zip(found, self._ranked(list(found.values()), options, best_only=best_only), strict=True):
            candidates[index] = ranked

    def _max_length(self, source: Sequence[str], options: Options) -> int:
        """Return the maximum number of tokens of a translation, without `</s>`."""
        wanted = options.max_length or len(source) + options.max_extra
        return min(wanted, self.max_positions - 1)

    def _shortened(self, hypothesis: ScoredTokens, max_length: int) -> ScoredTokens:
        """Cut a hypothesis of greedy search at its maximum length: a search with this limit finds the same tokens."""
        tokens, score = hypothesis
        if len(tokens) <= max_length or (len(tokens) == max_length + 1 and tokens[-1] == self._end):
            return hypothesis
        return tokens[:max_length], score

    def _are_finished(self, hypotheses: Sequence[ScoredTokens], max_length: int) -> bool:
        """Return True if all hypotheses end in `</s>` within their maximum length, without a forbidden token."""
        return all(
            tokens[-1] == self._end and len(tokens) <= max_length + 1 and self._forbidden.isdisjoint(tokens)
            for tokens, _ in hypotheses
        )

    def _has_too_short(self, hypotheses: Sequence[ScoredTokens], max_length: int, options: Options) -> bool:
        """Return True if a hypothesis ends before its minimum length."""
        min_length = min(options.min_length, max_length)
        return any(tokens[-1:] == [self._end] and len(tokens) <= min_length for tokens, _ in hypotheses)

    def _search_alone(self, source: Sequence[str], max_length: int, options: Options) -> Any:
        """Search one sentence with its own maximum length and without forbidden tokens.

        With beam search, the result holds all hypotheses that end before the maximum length, not only the first W, and
        those of the W best continuations that reach it. The W-th unfinished one may be missing, see above.
        """
        more: dict[str, Any] = {
            "min_decoding_length": min(options.min_length, max_length),
            "suppress_sequences": [[token] for token in self._forbidden],
        }
        if options.beam_size > 1:
            more["num_hypotheses"] = 100 * options.beam_size
            more["patience"] = 100
        (search,) = self._submit([source], max_length, options, **more)
        return search

    def _submit(self, sources: Sequence[Sequence[str]], max_steps: int, options: Options, **more: Any) -> list[Any]:
        """Start a search with CTranslate2.

        Args:
            sources: Source tokens without `</s>`.
            max_steps: Maximum number of tokens of a hypothesis, with `</s>`.
            options: Options of the search.
            more: Further arguments of `translate_batch`.

        Returns:
            A future of the result of each source.
        """
        arguments = {
            "beam_size": options.beam_size,
            "num_hypotheses": options.beam_size,
            "length_penalty": _neutral_exponent(options),
            "max_decoding_length": max_steps,
            "min_decoding_length": 0,
            "no_repeat_ngram_size": options.no_repeat_ngram,
            "max_input_length": 0,
            "return_scores": options.scores,
            "return_end_token": True,
            "max_batch_size": max(1, BATCH_TOKENS // options.beam_size),
            "batch_type": "tokens",
            "asynchronous": True,
        }
        results: list[Any] = self.native.translate_batch(sources, **(arguments | more))
        return results

    def cross_attention(self, sources: Sequence[SourceLine], targets: Sequence[Sequence[int]]) -> "Sequence[Weights]":
        """See `Backend.cross_attention`."""
        src_vocabulary = self.tokenizer.src_vocabulary
        tgt_vocabulary = self.tokenizer.tgt_vocabulary
        src_tokens = [[src_vocabulary[i] for i in source.ids] for source in sources]
        tgt_tokens = [[tgt_vocabulary[i] for i in ids] for ids in targets]
        return forced_attention(self.native, src_tokens, tgt_tokens, padding=self._end)

    def _scored(
        self, found: Mapping[int, list[ScoredTokens]], sources: Sequence[Sequence[str]], options: Options
    ) -> dict[int, list[ScoredTokens]]:
        """Return the hypotheses of some sentences with `</s>`, and with log P if the options need scores."""
        ended = [(index, self._ended(tokens)) for index, hypotheses in found.items() for tokens, _ in hypotheses]
        log_probs = len(ended) * [math.nan]
        if options.scores:
            log_probs = self._log_probs([sources[index] for index, _ in ended], [tokens[:-1] for _, tokens in ended])
        scored: dict[int, list[ScoredTokens]] = {index: [] for index in found}
        for (index, tokens), log_p in zip(ended, log_probs, strict=True):
            scored[index].append((tokens, log_p))
        return scored

    def _ended(self, tokens: list[str]) -> list[str]:
        """Return the tokens of a hypothesis with `</s>`, which one that was cut does not have."""
        return tokens if tokens[-1:] == [self._end] else [*tokens, self._end]

    def _log_probs(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[float]:
        """Return log P of each target with `</s>`, given its source; both are tokens without `</s>`."""
        if not sources:
            return []
        found = self.native.score_batch(
            sources, targets, max_input_length=0, max_batch_size=SCORED_TOKENS, batch_type="tokens"
        )
        return [sum(scored.log_probs) for scored in found]

    def _ranked(
        self, found: Sequence[list[ScoredTokens]], options: Options, *, best_only: bool
    ) -> list[list[Candidate]]:
        """Return the W hypotheses of each sentence that our search would find, ranked by our score.

        Args:
            found: Hypotheses of each sentence, with `</s>` and log P.
            options: Options of the search.
            best_only: Return only the best one, without adding the probability of others with the same text.
        """
        kept: list[list[tuple[ScoredTokens, float]]] = []
        for hypotheses in found:
            # Our search stops with the first W. Of equal length are those that end in the same step, the most likely
            # first.
            first = sorted(hypotheses, key=lambda hypothesis: (len(hypothesis[0]), -hypothesis[1]))
            penalized = [(each, _penalty(each, options)) for each in first[: options.beam_size]]
            penalized.sort(key=lambda each: -each[0][1] / each[1])
            kept.append(penalized[:1] if best_only else penalized)
        all_ids = [
            [self._tgt_ids[token] for token in tokens[:-1]] for hypotheses in kept for (tokens, _), _ in hypotheses
        ]
        texts = iter(zip(self.tokenizer.decode(all_ids), all_ids, strict=True))
        ranked = []
        for penalized in kept:
            candidates = []
            for (_, log_p), penalty in penalized:
                text, ids = next(texts)
                candidates.append(Candidate(text, log_p, log_p / penalty, tuple(ids), penalty))
            ranked.append(candidates)
        return ranked


def _penalty(hypothesis: ScoredTokens, options: Options) -> float:
    """Return our length penalty of a hypothesis, which greedy search does not have."""
    if options.beam_size == 1:
        return 1.0
    tokens, _ = hypothesis
    return length_penalty(len(tokens), options.length_penalty, options.length_normalization)


def _hypotheses(search: Any) -> list[ScoredTokens]:
    """Wait for a search, and return its hypotheses with CTranslate2's scores, or NaN if it returns none."""
    result = search.result()
    scores = result.scores or len(result.hypotheses) * [math.nan]
    return list(zip(result.hypotheses, scores, strict=True))


def _with_log_probs(found: Mapping[int, list[ScoredTokens]], options: Options) -> dict[int, list[ScoredTokens]]:
    """Return hypotheses with log P in place of CTranslate2's scores, by the index of their sentences."""
    exponent = _neutral_exponent(options)
    return {
        index: [(tokens, score * len(tokens) ** exponent) for tokens, score in hypotheses]
        for index, hypotheses in found.items()
    }


def _neutral_exponent(options: Options) -> float:
    """Return the α of CTranslate2's length penalty, which must not be 0 in a beam search."""
    return NEARLY_ZERO if options.beam_size > 1 else 0.0


def unsupported_options(options: Options) -> list[str]:
    """Return the names of the options that this engine does not support, that are set and that have an effect."""
    without_effect = () if options.sample else SAMPLING
    return [
        field.name
        for field in fields(options)
        if field.name not in (*SUPPORTED, *without_effect) and getattr(options, field.name) != field.default
    ]


def forced_attention(
    native: Any, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], *, padding: str
) -> "list[Weights]":
    """Return the attention weights of given translations, see `alignment.CrossAttention`.

    CTranslate2 returns attention for searches only. A search for alternatives decodes its prefix in one step, and ends
    there if the prefix has the maximum length of a translation. So the prefix is the translation, and shorter
    translations of a group are padded, which does not change the attention of earlier tokens.

    Args:
        native: A `ctranslate2.Translator`, exported with `alignment_heads=0`.
        sources: The source tokens of N pairs, without `</s>`.
        targets: The target tokens of N pairs, without `</s>`.
        padding: Any target token, with which shorter translations are padded.
    """
    import numpy as np  # not needed without alignments

    weights: list[Weights] = [np.zeros((0, len(tokens)), dtype=np.float32) for tokens in sources]
    by_length = sorted((pair for pair, tokens in enumerate(targets) if tokens), key=lambda pair: len(targets[pair]))
    for first in range(0, len(by_length), GROUP):
        group = by_length[first : first + GROUP]
        length = len(targets[group[-1]])
        found = native.translate_batch(
            [sources[pair] for pair in group],
            target_prefix=[[*targets[pair], *[padding] * (length - len(targets[pair]))] for pair in group],
            max_decoding_length=length,
            max_input_length=0,
            return_alternatives=True,
            return_attention=True,
            max_batch_size=SCORED_TOKENS,
            batch_type="tokens",
        )
        for pair, result in zip(group, found, strict=True):
            weights[pair] = np.array(result.attention[0], dtype=np.float32)
    return weights


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
