"""The memory that a search needs, and the batch size that follows from it on a GPU."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from mtcli.config.schema import ModelConfig
from mtcli.translate.backends.backend import ROW_OVERHEAD
from mtcli.translate.windows import MAX_LINE_TOKENS

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


def free_cuda_memory(device: torch.device) -> int:
    """Return the bytes of a GPU that are free, or reserved by PyTorch and not in use."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
