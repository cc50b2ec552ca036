"""Rerank the hypotheses of a beam search with a model of the reverse direction, as a noisy channel.

The search of a model finds translations y of a source x with a high P(y | x). Among them, those from which the reverse
model can predict x omit less of it: Li and Jurafsky 2016; Yee, Dauphin and Auli 2019. The score of a hypothesis is

    (log P(y | x) + λ log P(x | y)) / length penalty of y.
"""

from collections.abc import Sequence
from dataclasses import replace

from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.scoring import log_probs_of
from mtcli.translate.translation import Candidate, sorted_by_score
from mtcli.translate.windows import MAX_LINE_TOKENS

DEFAULT_WEIGHT = 0.3
"""λ. It has the highest BLEU on the validation pairs of Multi30K, see docs/results.md."""


class Reranker:
    """A reverse model, and its weight in the score of a hypothesis.

    Args:
        reverse: The model that translates from the target language to the source language.
        weight: λ, the weight of its log-probability.
    """

    def __init__(self, reverse: PyTorchBackend, weight: float = DEFAULT_WEIGHT):
        self.reverse = reverse
        self.weight = weight

    def rerank(self, lines: Sequence[str], candidates: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Return the candidates of each line in the order of their new scores, the best one first.

        Args:
            lines: The source of each line.
            candidates: The candidates of each line, with different texts.

        Raises:
            NotFiniteError: The scores of the reverse model are not finite numbers.
        """
        tokenizer = self.reverse.tokenizer
        texts = [candidate.text for of_line in candidates for candidate in of_line]
        src_ids = [ids[:MAX_LINE_TOKENS] for ids in tokenizer.encode_src(texts)]
        line_ids = [ids[:MAX_LINE_TOKENS] for ids in tokenizer.encode_tgt(lines)]
        tgt_ids = [ids for ids, of_line in zip(line_ids, candidates, strict=True) for _ in of_line]
        log_probs = iter(log_probs_of(self.reverse, src_ids, tgt_ids))
        return [
            sorted_by_score(self._rescored(candidate, next(log_probs)) for candidate in of_line)
            for of_line in candidates
        ]

    def _rescored(self, candidate: Candidate, reverse_log_prob: float) -> Candidate:
        """Give a candidate the score of both models; `reverse_log_prob` is log P(x | y) in nats."""
        score = (candidate.log_prob + self.weight * reverse_log_prob) / candidate.penalty
        return replace(candidate, reverse_log_prob=reverse_log_prob, score=score)
