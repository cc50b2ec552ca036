"""Text to text with PyTorch: the search of a `LineTranslator`, and what belongs to it."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from mtcli.data.batching import ahead, pad
from mtcli.data.tokenizer import EOS, Tokenizer
from mtcli.inference.alignment import align
from mtcli.inference.line_translator import Candidate, Draft, LineTranslator, Links, Options, R, Translation
from mtcli.inference.search import Expansion, Hypothesis, Limits, beam_search, greedy_search, sampler
from mtcli.nn.transformer import Transformer
from mtcli.runtime.memory import keep_freed_memory, release_freed_memory, require
from mtcli.storage.model_file import load_model

__all__ = ["BATCH_TOKENS", "Candidate", "Options", "Translation", "Translator"]

BATCH_TOKENS = {"cpu": 20_000, "cuda": 200_000, "mps": 20_000}
"""Rows × width × beam of one search, see `_batches`; on a CPU several run at once, see `Translator.workers`."""


WIDE = 50
"""Beam from which its memory is checked beforehand."""


class Translator(LineTranslator):
    """A model with its tokenizer, on a device."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer, longest_src: int):
        """Wrap a model in evaluation mode; `longest_src` is the longest source in its training, in pieces."""
        super().__init__(tokenizer, longest_src)
        self.model = model
        self.device = next(model.parameters()).device

    @classmethod
    def load(cls, folder: Path, device: torch.device) -> tuple["Translator", Options, tuple[str, str]]:
        """The translator of a run folder, the search options its configuration asks for, and its languages.

        Raises:
            ModelError: There is no usable model.
        """
        keep_freed_memory()
        model, info, tokenizer = load_model(folder)
        return cls(model.to(device), tokenizer, info.longest_src), Options.of(info.decode), (info.src, info.tgt)

    def workers(self, options: Options) -> int:
        """Batches that are searched at a time: on a CPU, as many as there are threads, and each on one of them.

        A step's many small operations gain little from a second thread, and lose much where the cores are shared.
        Alignments are looked up in the model while it computes, which only one can do.
        """
        return torch.get_num_threads() if self.device.type == "cpu" and not options.alignments else 1

    def _map(self, search: Callable[[list[int]], R], batches: list[list[int]], workers: int) -> Iterator[R]:
        if workers == 1 or len(batches) == 1:
            yield from map(search, batches)
            return
        release_freed_memory()  # otherwise the fragments that each window leaves add up
        threads = torch.get_num_threads()

        def alone(rows: list[int]) -> R:
            torch.set_num_threads(1)  # of this thread, and of those begun from now on
            return search(rows)

        try:
            yield from ahead(alone, batches, workers=workers)
        finally:
            torch.set_num_threads(threads)

    def _budget(self, options: Options) -> int:
        return BATCH_TOKENS[self.device.type] // (1 if options.sample else options.beam_size)

    def _check_memory(self, limits: Limits, beam_size: int) -> None:
        """Refuse a wide beam that could take more memory than there is; the batches of narrow ones are small anyhow.

        Raises:
            StorageError: There is too little for translations as long as they may get.
        """
        if beam_size < WIDE or self.device.type != "cpu":
            return
        shape, vocabulary = self.model.config, self.model.output.out_features
        share = shape.d_model // shape.num_heads
        heads = shape.num_heads * ((shape.d_k or share) + (shape.d_v or share))
        longest = max(limits.max_length) + 1
        cache = 2 * shape.num_decoder_layers * heads * longest  # the old one and the one that replaces it
        needed = 4 * len(limits.max_length) * beam_size * (cache + 3 * vocabulary)
        require(needed, f"a beam of {beam_size}", "give a smaller --beam-size or --max-length")

    def search(
        self,
        ids: Sequence[Sequence[int]],
        options: Options,
        *,
        numbers: Sequence[int] | None = None,
        observe: Callable[[Expansion], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The `n_best` translations of each source, ids to ids.

        Args:
            ids: Sources without `</s>`.
            options: How to search.
            numbers: Of the lines, which sampling depends on besides the seed; none: 0, 1, 2, …
            observe: Is shown every step of a beam search.
        """
        src = pad(ids, after=(EOS,)).to(self.device)
        prefix = self.tokenizer.encode_tgt([options.prefix])[0] if options.prefix else []
        limits = Limits(
            max_length=[options.max_length or len(row) + options.max_extra for row in ids],
            forbidden=self.tokenizer.forbidden,
            prefix=[prefix] * len(ids) if prefix else None,
            no_repeat_ngram=options.no_repeat_ngram,
        )
        if options.sample:
            draws = []
            for draw in range(options.n_best):
                generators = [_generator(options.seed, line, draw) for line in numbers or range(len(ids))]
                choose = sampler(options.temperature, options.top_k, generators)
                draws.append(greedy_search(self.model, src, limits, choose))
            return [list(drawn) for drawn in zip(*draws, strict=True)]
        if options.beam_size == 1:
            return [[hypothesis] for hypothesis in greedy_search(self.model, src, limits)]
        self._check_memory(limits, options.beam_size)
        found = beam_search(
            self.model, src, limits, beam_size=options.beam_size, alpha=options.length_penalty, observe=observe
        )
        return [hypotheses[: options.n_best] for hypotheses in found]

    def _drafts(
        self, window: Sequence[str], ids: Sequence[Sequence[int]], rows: Sequence[int], options: Options, first: int
    ) -> list[list[Draft]]:
        all_found = options if options.sample else replace(options, n_best=options.beam_size)
        found = self.search([ids[row] for row in rows], all_found, numbers=[first + row for row in rows])
        texts = iter(self.tokenizer.decode([h.ids for hypotheses in found for h in hypotheses]))
        return [[Draft(next(texts), tuple(h.ids), h.log_prob, h.score) for h in hypotheses] for hypotheses in found]

    def _links(
        self, window: Sequence[str], ids: Sequence[Sequence[int]], rows: Sequence[int], best: Sequence[Sequence[Draft]]
    ) -> list[list[Links]]:
        lines = [window[row] for row in rows]
        texts = [[draft.text for draft in drafts] for drafts in best]
        tgt = [[draft.ids for draft in drafts] for drafts in best]
        return align(self.model, self.tokenizer, lines, [ids[row] for row in rows], texts, tgt)


def _generator(seed: int, line: int, draw: int) -> torch.Generator:
    """Random numbers of their own for each draw for each line."""
    digest = hashlib.sha256(f"{seed} {line} {draw}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
