"""Translate lines with PyTorch."""

import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from mtcli.config.schema import ModelConfig
from mtcli.corpus.batching import pad
from mtcli.errors import StorageError, UsageError
from mtcli.model.ensemble import Ensemble, SearchModel
from mtcli.model.hooks import record_attention
from mtcli.model.precision import decodes_in_bf16
from mtcli.model.transformer import DecoderLayer, Transformer
from mtcli.runtime.cores import all_cores
from mtcli.runtime.memory import keep_freed_memory, release_freed_memory, require, share_freed_memory
from mtcli.search.beam import beam_search
from mtcli.search.constraints import Limits
from mtcli.search.greedy import greedy_search, sampler
from mtcli.search.required import RequiredPhrases, required_search, width_for
from mtcli.search.step import Expansion, Hypothesis
from mtcli.storage.model_file import load_model
from mtcli.storage.translation_info import TranslationInfo
from mtcli.terms.term_phrases import TermPhrases
from mtcli.text.special_tokens import BOS, EOS
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.alignment import Weights, alignment_layer
from mtcli.translate.backends.backend import ROW_OVERHEAD, Backend, R, T
from mtcli.translate.translation import Candidate, Options
from mtcli.translate.windows import MAX_LINE_TOKENS, SourceLine

BATCH_TOKENS = {"cpu": 20_000, "cuda": 200_000, "mps": 20_000}
"""Rows × tokens × beams of one search, by type of device. A CPU runs several at once: see `PyTorchBackend.num_shares`.

On CUDA, it is the figure for scoring. That of a search follows from the free memory: see `SearchMemory`.
"""

CPU_SHARES = 4
"""Batches of a window on a CPU, or a part of their number, whatever the number of cores is. Smaller batches are slower:
two times as many take 1.08 of the time with a beam."""

WIDE_BEAM = 50
"""Beam size from which the memory of a search is checked beforehand."""

LOGITS_COPIES = 4
"""Blocks of float32 of the size of the logits that a step needs at once: logits, log-probabilities, and what is made of
them to rank or to draw tokens."""

CACHE_COPIES = 2
"""When the buffers of a cache grow, or their rows are reordered, the old and the new ones are in memory."""

USABLE_SHARE = 0.8
"""Share of a GPU's free memory that batches are planned for. The rest is for fragmentation."""


@dataclass(frozen=True)
class SearchMemory:
    """Bytes that a search takes, from the sizes of a model."""

    cached_token: int
    """Keys and values of one token in all decoder layers."""
    encoded_token: int
    """Activations of one source token in an encoder layer."""
    logits: int
    """Logits of one hypothesis, with their copies."""

    @classmethod
    def of(cls, model: ModelConfig, vocabulary: int, itemsize: int) -> "SearchMemory":
        """Return the figures of a model.

        Args:
            model: Its shape.
            vocabulary: Size of the target vocabulary.
            itemsize: Bytes of a number in the precision of the search. Logits are float32.
        """
        d_k = model.d_k or model.d_model // model.num_heads
        d_v = model.d_v or model.d_model // model.num_heads
        cached = model.num_decoder_layers * model.num_heads * (d_k + d_v) * itemsize
        encoded = (model.d_ff + 8 * model.d_model) * itemsize
        return cls(cached, encoded, LOGITS_COPIES * 4 * vocabulary)

    @classmethod
    def total(cls, parts: "Sequence[SearchMemory]") -> "SearchMemory":
        """Return the figures of several models that search together."""
        return cls(
            cached_token=sum(part.cached_token for part in parts),
            encoded_token=sum(part.encoded_token for part in parts),
            logits=sum(part.logits for part in parts),
        )

    def of_sentence(self, beam_size: int, src_length: int, tgt_length: int) -> int:
        """Return the bytes of one sentence with `beam_size` translations of `tgt_length` tokens."""
        hypothesis = self.logits + CACHE_COPIES * self.cached_token * tgt_length
        return beam_size * hypothesis + (self.cached_token + self.encoded_token) * src_length

    def batch_tokens(self, free: int, beam_size: int, tgt_length: Callable[[int], int]) -> int:
        """Return the most rows × tokens of a batch for which `free` bytes are enough, whatever its lengths.

        `ROW_OVERHEAD` tokens are counted with each row, as `Translator` does.

        Args:
            free: Bytes.
            beam_size: Hypotheses of each sentence.
            tgt_length: The maximum length of a translation, from the length of its source.
        """
        budgets = []
        for length in (1, MAX_LINE_TOKENS):  # the budget is monotonic between them
            sentences = USABLE_SHARE * free / self.of_sentence(beam_size, length, tgt_length(length))
            budgets.append(int(sentences * (length + ROW_OVERHEAD)))
        return min(budgets)


class PyTorchBackend(Backend):
    """A model and its tokenizer on a device."""

    def __init__(
        self, model: Transformer, tokenizer: Tokenizer, info: TranslationInfo, *, others: Sequence[Transformer] = ()
    ):
        """Initialise it.

        Args:
            model: In evaluation mode.
            tokenizer: The model's.
            info: What its file says about it.
            others: Models of an ensemble with `model`, with the same vocabulary and on the same device. Each token has
                the mean of their probabilities. Alignments are those of `model`.
        """
        super().__init__(tokenizer, info)
        self.model = model
        self.members = [model, *others]
        """The model, or the models of an ensemble."""
        self.searched = _together(self.members)
        """The model as a search in its own precision uses it."""
        self.device = next(model.parameters()).device
        self._bf16_model: SearchModel | None = None
        self._term_phrases: TermPhrases | None = None  # made when terms are required first
        self._share_of_budget = 1.0  # halved whenever a GPU runs out of memory

    @classmethod
    def load(cls, folder: Path, device: torch.device) -> "PyTorchBackend":
        """Load the model of a run or checkpoint.

        Raises:
            ModelError: The folder has no usable model.
        """
        keep_freed_memory()
        share_freed_memory()
        model, info, tokenizer = load_model(folder)
        return cls(model.to(device), tokenizer, info)

    def num_shares(self, options: Options) -> int:
        """Return `CPU_SHARES` on a CPU, where each core searches one batch after the other; otherwise 1.

        A search consists of many small operations, which gain little from a second thread. Alignments need hooks in
        the model, so with them only one batch is searched at a time.
        """
        return 1 if self.device.type != "cpu" or options.alignments else CPU_SHARES

    def map_batches(self, search: Callable[[T], R], batches: Iterable[T], options: Options) -> Iterator[R]:
        """See `Backend.map_batches`."""
        if self.num_shares(options) == 1:
            yield from map(search, batches)
            return
        release_freed_memory()  # otherwise the gaps that each window leaves behind add up
        yield from all_cores().map(search, batches)

    def max_batch_tokens(self, options: Options) -> int:
        """See `Backend.max_batch_tokens`."""
        num_beams = 1 if options.sample else options.beam_size
        if self.device.type != "cuda":
            return BATCH_TOKENS[self.device.type] // num_beams
        memory = self._search_memory(options)
        free = free_cuda_memory(self.device)

        def tgt_length(src_length: int) -> int:
            return options.max_length or src_length + options.max_extra

        return int(self._share_of_budget * memory.batch_tokens(free, num_beams, tgt_length))

    def _search_memory(self, options: Options) -> SearchMemory:
        """Return the memory of a search with all models, whose sizes may differ."""
        output = self.model.output
        in_bf16 = decodes_in_bf16(options.precision, self.device)
        itemsize = torch.bfloat16.itemsize if in_bf16 else output.weight.element_size()
        parts = [SearchMemory.of(member.config, output.out_features, itemsize) for member in self.members]
        return SearchMemory.total(parts)

    def _search_model(self, options: Options) -> SearchModel:
        """Return the model that searches: with weights in bf16 if `options.precision` says so, cast once."""
        if not decodes_in_bf16(options.precision, self.device):
            return self.searched
        if self._bf16_model is None:
            self._bf16_model = _together([copy.deepcopy(member).to(torch.bfloat16) for member in self.members])
        return self._bf16_model

    def _check_memory(self, limits: Limits, options: Options) -> None:
        """Refuse a wide beam that could take more memory than is available. Batches of narrow beams are small.

        Raises:
            StorageError: There is too little memory for translations of maximum length.
        """
        beam_size = options.beam_size
        if beam_size < WIDE_BEAM or self.device.type != "cpu":
            return
        sentence = self._search_memory(options).of_sentence(beam_size, 0, max(limits.max_length) + 1)
        needed = len(limits.max_length) * sentence
        require(needed, f"a beam of {beam_size}", "give a smaller --beam-size or --max-length")

    def search_ids(
        self,
        ids: Sequence[Sequence[int]],
        options: Options,
        *,
        line_numbers: Sequence[int] | None = None,
        required: Sequence[RequiredPhrases] = (),
        observe: Callable[[Expansion], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """Search the `n_best` translations of each source.

        Args:
            ids: Source ids without `</s>`.
            options: Options of the search.
            line_numbers: The number of each line. Sampling depends on it and on the seed. None: 0, 1, 2, …
            required: The phrases that each translation must contain; empty: none.
            observe: Called with every step of a beam search without required phrases.

        Raises:
            UsageError: Phrases are required of samples.
        """
        src = pad(ids, after=(EOS,)).to(self.device)
        limits = self._limits(ids, options)
        model = self._search_model(options)
        if options.sample:
            if required:
                raise UsageError("terms cannot be required of random samples; omit --sample")
            return self._sample(model, src, limits, options, line_numbers or range(len(ids)))
        self._check_memory(limits, options)
        if required:
            found = required_search(
                model,
                src,
                limits,
                required,
                beam_size=options.beam_size,
                alpha=options.length_penalty,
                normalization=options.length_normalization,
            )
            return [hypotheses[: options.n_best] for hypotheses in found]
        if options.beam_size == 1:
            return [[hypothesis] for hypothesis in greedy_search(model, src, limits)]
        found = beam_search(
            model,
            src,
            limits,
            beam_size=options.beam_size,
            alpha=options.length_penalty,
            normalization=options.length_normalization,
            early_stopping=options.early_stopping,
            observe=observe,
        )
        return [hypotheses[: options.n_best] for hypotheses in found]

    def _limits(self, ids: Sequence[Sequence[int]], options: Options) -> Limits:
        prefix = self.tokenizer.encode_tgt([options.prefix])[0] if options.prefix else []
        return Limits(
            max_length=[options.max_length or len(row) + options.max_extra for row in ids],
            forbidden=self.tokenizer.forbidden,
            prefix=[prefix] * len(ids) if prefix else None,
            no_repeat_ngram=options.no_repeat_ngram,
            min_length=options.min_length,
        )

    def _sample(
        self,
        model: SearchModel,
        src: torch.Tensor,
        limits: Limits,
        options: Options,
        line_numbers: Sequence[int],
    ) -> list[list[Hypothesis]]:
        """Draw `n_best` translations of each of the sources (B, S)."""
        draws = []
        for draw in range(options.n_best):
            generators = [_generator(options.seed, line_number, draw) for line_number in line_numbers]
            choose = sampler(options.temperature, options.top_k, generators)
            draws.append(greedy_search(model, src, limits, choose))
        return [list(hypotheses) for hypotheses in zip(*draws, strict=True)]

    def search(self, sources: Sequence[SourceLine], options: Options) -> list[list[Candidate]]:
        """See `Backend.search`.

        Raises:
            StorageError: The GPU has too little memory for one source.
        """
        phrases = self._required_phrases(sources, options)
        if not options.sample:
            # Several hypotheses can have the same text. The caller merges them, so it needs all that the beam finds.
            options = replace(options, n_best=options.beam_size)
        by_index: dict[int, list[Hypothesis]] = {}
        for group in _groups(range(len(sources)), phrases, options):
            required = [phrases[index] for index in group if index in phrases]
            hypotheses = self._search_group([sources[index] for index in group], required, options)
            by_index.update(zip(group, hypotheses, strict=True))
        found = [by_index[index] for index in range(len(sources))]
        # One call decodes all lines, because each call of the native library has a cost.
        texts = iter(self.tokenizer.decode([hypothesis.ids for hypotheses in found for hypothesis in hypotheses]))
        return [
            [Candidate(next(texts), each.log_prob, each.score, tuple(each.ids), each.penalty) for each in hypotheses]
            for hypotheses in found
        ]

    def _required_phrases(self, sources: Sequence[SourceLine], options: Options) -> dict[int, RequiredPhrases]:
        """Return the phrases that the translation of each source must contain, by the index of those with any."""
        if options.terms_mode != "hard":
            return {}
        if self._term_phrases is None:
            self._term_phrases = TermPhrases(self.tokenizer)
        phrases = {i: self._term_phrases.of(source.terms) for i, source in enumerate(sources) if source.terms}
        return {index: required for index, required in phrases.items() if required.total}

    def _search_group(
        self, sources: Sequence[SourceLine], required: Sequence[RequiredPhrases], options: Options
    ) -> list[list[Hypothesis]]:
        """Search the translations of some sources, in smaller batches if a GPU runs out of memory.

        Args:
            sources: They all have required phrases, or none of them.
            required: These phrases; empty: none.
            options: Options of the search.

        Raises:
            StorageError: The GPU has too little memory for one source.
        """
        try:
            line_numbers = [source.number for source in sources]
            ids = [source.ids for source in sources]
            return self.search_ids(ids, options, line_numbers=line_numbers, required=required)
        except torch.OutOfMemoryError as error:
            if len(sources) == 1:
                raise self._too_little_memory(sources[0]) from error
        # Outside the `except` block, the traceback no longer keeps the tensors of the failed search.
        torch.cuda.empty_cache()
        self._share_of_budget /= 2
        middle = len(sources) // 2
        first = self._search_group(sources[:middle], required[:middle], options)
        return first + self._search_group(sources[middle:], required[middle:], options)

    def _too_little_memory(self, source: SourceLine) -> StorageError:
        remedy = "give a smaller --beam-size, shorter lines, or --device cpu"
        return StorageError(f"{self.device} has too little memory for line {source.number + 1}; {remedy}")

    def cross_attention(self, sources: Sequence[SourceLine], targets: Sequence[Sequence[int]]) -> Sequence[Weights]:
        """See `Backend.cross_attention`.

        Raises:
            StorageError: The GPU has too little memory for one pair.
        """
        try:
            return list(cross_attention(self.model, [source.ids for source in sources], targets).numpy())
        except torch.OutOfMemoryError as error:  # the attention weights of long lines take more than their search
            if len(sources) == 1:
                raise self._too_little_memory(sources[0]) from error
        torch.cuda.empty_cache()
        middle = len(sources) // 2
        first = self.cross_attention(sources[:middle], targets[:middle])
        return [*first, *self.cross_attention(sources[middle:], targets[middle:])]


def _groups(
    indices: Sequence[int], phrases: Mapping[int, RequiredPhrases], options: Options
) -> Iterator[Sequence[int]]:
    """Divide sources into groups for one search each: those without required phrases, then those with them.

    A search with required phrases has wider beams. So its groups are smaller, and have similar numbers of phrases.
    """
    free = [index for index in indices if index not in phrases]
    if free:
        yield free
    others = sorted((index for index in indices if index in phrases), key=lambda index: -phrases[index].total)
    first = 0
    while first < len(others):
        width = width_for(phrases[others[first]], options.beam_size)
        size = max(1, len(indices) * options.beam_size // width)
        yield others[first : first + size]
        first += size


def _generator(seed: int, line: int, draw: int) -> torch.Generator:
    """Return the random number generator of one draw of one line."""
    digest = hashlib.sha256(f"{seed} {line} {draw}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def _together(members: Sequence[Transformer]) -> SearchModel:
    """Return the one model, or the ensemble of several."""
    return members[0] if len(members) == 1 else Ensemble(members)


@torch.inference_mode()
def cross_attention(
    model: Transformer, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]], *, layer: int | None = None
) -> Tensor:
    """Return the weights of one decoder layer's cross-attention, averaged over its heads.

    Args:
        model: In evaluation mode.
        src: The source ids of N pairs, without `</s>`.
        tgt: The target ids of N pairs, without `<s>` and `</s>`.
        layer: Index of the layer; None: `alignment_layer`.

    Returns:
        (N, T, S) on the CPU. Row t holds the weights with which target token t was predicted.
    """
    device = next(model.parameters()).device
    if layer is None:
        layer = alignment_layer(len(model.decoder))
    attention_of_layer = cast(DecoderLayer, model.decoder[layer]).cross_attention
    src_batch = pad(src, after=(EOS,)).to(device)
    tgt_batch = pad(tgt, before=(BOS,)).to(device)  # shifted right: position t reads token t − 1 and predicts token t
    with record_attention([attention_of_layer]) as attention:
        memory, mask = model.encode(src_batch)
        model.decode(tgt_batch, memory, mask)
    return attention[attention_of_layer].weights.mean(dim=1).cpu()


def free_cuda_memory(device: torch.device) -> int:
    """Return the bytes of a GPU that are free, or reserved by PyTorch and not in use."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
