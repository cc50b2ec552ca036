"""One translation with all its intermediate results: tokens, attention, probabilities, beam search.

`explain` searches for the translation as `translate` does and observes the beam. It then runs the same model once over
source and translation and records the forward pass: the attention weights, and the matrices that `stages.py` names.

Shapes: S source tokens and T target tokens, both with `</s>`; D d_model, H heads, K head size, V vocabulary size.
"""

import math
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcli.corpus.batching import pad
from mtcli.errors import UsageError
from mtcli.model.ensemble import log_mean
from mtcli.model.hooks import Recording, record_forward
from mtcli.model.multi_head import MultiHeadAttention
from mtcli.model.transformer import DecoderLayer, Embedding, EncoderLayer
from mtcli.search.length import length_penalty
from mtcli.search.step import Expansion, Hypothesis
from mtcli.text.special_tokens import BOS, EOS
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.text.tokenizer.vocabulary_file import SPECIALS
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.line_warnings import check_tags, warn_about_missing_tags
from mtcli.translate.translation import Options
from mtcli.translate.windows import MAX_LINE_TOKENS, Window, tagged

TOP_K = 5
"""The most probable tokens listed for each decoder step."""
NUM_NEIGHBOURS = 5

ENCODER_SELF = "encoder"
DECODER_SELF = "decoder"
CROSS = "cross"
ATTENTIONS = (ENCODER_SELF, DECODER_SELF, CROSS)
"""The three uses of attention in the model (§3.2.3), as they are named in JSON."""


@dataclass
class BeamNode:
    """A token by which beam search extended a hypothesis."""

    parent: int
    """Index of the node before it; −1 is `<s>`."""
    step: int
    """Length of the hypothesis in tokens; 1 for the first token."""
    token: str
    id: int
    log_prob: float
    """Log-probability of the whole hypothesis up to this token, in nats."""
    state: str
    """`kept`, `finished` or `dropped`."""
    score: float | None = None
    """Finished hypotheses only: log-probability divided by the length penalty (§6.1)."""
    rank: int | None = None
    """Finished hypotheses only: 1 is the translation."""
    on_path: bool = False
    """True for the tokens of the translation."""


@dataclass(frozen=True)
class Neighbours:
    """The tokens whose learned embeddings are nearest to that of `token`."""

    token: str
    near: Sequence[tuple[str, float]]
    """Token and cosine similarity, nearest first."""


@dataclass(frozen=True)
class Step:
    """One decoder step: the token chosen and the `TOP_K` most probable tokens."""

    id: int
    token: str
    log_prob: float
    top: Sequence[tuple[int, str, float]]
    """Id, token and probability, most probable first."""

    @property
    def probability(self) -> float:
        """Probability of the chosen token."""
        return math.exp(self.log_prob)


@dataclass(frozen=True)
class Vote:
    """What one model of an ensemble finds at one decoder step."""

    probability: float
    """Of the chosen token."""
    favourite: str
    """The most probable token."""
    favourite_probability: float
    agrees: bool
    """The favourite is the chosen token."""


@dataclass(frozen=True)
class Explanation:
    """One translation and all intermediate results."""

    backend: PyTorchBackend
    options: Options
    source: str
    texts: Sequence[str]
    """The finished hypotheses as text, best first. The first is the translation."""
    hypotheses: Sequence[Hypothesis]
    src_ids: Sequence[int]
    tgt_ids: Sequence[int]
    recording: Recording
    steps: Sequence[Step]
    tree: Sequence[BeamNode]
    """Empty with a beam of 1: greedy search considers no other hypothesis."""
    neighbours: dict[str, list[Neighbours]] = field(default_factory=dict)
    """By side (`src`, `tgt`); empty unless requested."""
    votes: Sequence[Sequence[Vote]] = ()
    """For each step the vote of each model of an ensemble; empty for one model. `steps` has the means of their
    probabilities; all other figures are those of the first model."""

    @property
    def src_tokens(self) -> list[str]:
        """The encoder's input, with `</s>`."""
        return self.backend.tokenizer.src_tokens(self.src_ids)

    @property
    def tgt_tokens(self) -> list[str]:
        """The decoder's output, with `</s>`."""
        return self.backend.tokenizer.tgt_tokens(self.tgt_ids)

    @property
    def decoder_tokens(self) -> list[str]:
        """The decoder's input: the output shifted right, `<s>` first."""
        return self.backend.tokenizer.tgt_tokens([BOS, *self.tgt_ids[:-1]])

    def attention_modules(self, kind: str) -> list[MultiHeadAttention]:
        """Return the attention module of each layer; `kind` is one of `ATTENTIONS`."""
        model = self.backend.model
        if kind == ENCODER_SELF:
            return [cast(EncoderLayer, layer).self_attention for layer in model.encoder]
        decoder = [cast(DecoderLayer, layer) for layer in model.decoder]
        if kind == DECODER_SELF:
            return [layer.self_attention for layer in decoder]
        return [layer.cross_attention for layer in decoder]

    def weights(self, kind: str) -> list[Tensor]:
        """Return the attention weights (H, rows, columns) of each layer; `kind` is one of `ATTENTIONS`."""
        return [self.recording.attention[module].weights[0] for module in self.attention_modules(kind)]

    def sharpness(self) -> list[float]:
        """Return the `alignment_sharpness` of each decoder layer's cross-attention, averaged over its heads."""
        return [alignment_sharpness(weights.mean(dim=0)) for weights in self.weights(CROSS)]

    def sharpest_layer(self) -> int:
        """Return the decoder layer, from 0, with the highest sharpness."""
        values = self.sharpness()
        return values.index(max(values))


def alignment_sharpness(weights: Tensor) -> float:
    """Return how clearly attention weights (T, S), with `</s>` last on both sides, align two sentences: 0 to 1.

    The mean of the largest weight of each target token and the largest weight of each source token. It is 1 when every
    token has one partner of its own, and low when the weights are spread or all rows attend to the same column.
    `</s>` is excluded, because many heads attend to it when they have nothing to attend to.
    """
    words = weights[:-1, :-1].float()
    if not words.numel():
        words = weights.float()
    largest = torch.cat((words.amax(dim=1), words.amax(dim=0)))
    return float(largest.mean())


@torch.inference_mode()
def explain(backend: PyTorchBackend, text: str, options: Options, *, neighbours: bool = False) -> Explanation:
    """Translate one line and record every intermediate result.

    Args:
        backend: The model and its tokenizer.
        text: One sentence.
        options: Options of the search. All finished hypotheses are returned; `n_best` is ignored.
        neighbours: Also find the nearest embeddings of each token.

    Raises:
        UsageError: The line is blank, contains a line break, or has more than `MAX_LINE_TOKENS` tokens; or the model
            has no such target language.
    """
    if not text.strip() or "\n" in text:
        raise UsageError("explain takes one sentence, on one line")
    model = backend.model
    tokenizer = backend.tokenizer
    ids = _source_ids(tokenizer, text, options.to)
    if len(ids) > MAX_LINE_TOKENS:
        raise UsageError(f"the sentence has {len(ids)} tokens; explain takes {MAX_LINE_TOKENS} at most")
    expansions: list[Expansion] = []
    options = replace(options, n_best=sys.maxsize, precision="fp32")  # as the other numbers of the explanation
    hypotheses = backend.search_ids([ids], options, observe=expansions.append)[0]
    best = hypotheses[0].ids
    src_batch = pad([ids], after=(EOS,)).to(backend.device)
    tgt_batch = pad([best], before=(BOS,)).to(backend.device)
    with record_forward(model) as recording:
        logits = model(src_batch, tgt_batch)
    others = [member(src_batch, tgt_batch) for member in backend.members[1:]]
    log_probs = [scores[0].float().log_softmax(dim=-1) for scores in (logits, *others)]
    src_ids = [*ids, EOS]
    tgt_ids = [*best, EOS]
    return Explanation(
        backend=backend,
        options=options,
        source=text,
        texts=tokenizer.decode([hypothesis.ids for hypothesis in hypotheses]),
        hypotheses=hypotheses,
        src_ids=src_ids,
        tgt_ids=tgt_ids,
        recording=recording,
        steps=_steps(log_mean([log_p.clone() for log_p in log_probs]), tgt_ids, tokenizer.tgt_tokens),
        tree=_beam_tree(expansions, hypotheses, options, tokenizer.tgt_tokens),
        neighbours=_neighbours_by_side(backend, src_ids, tgt_ids) if neighbours else {},
        votes=_votes(log_probs, tgt_ids, tokenizer.tgt_tokens) if others else [],
    )


def _source_ids(tokenizer: Tokenizer, text: str, to: str) -> Sequence[int]:
    """Encode the sentence, with the tag of the target language if `to` names it."""
    check_tags([text], 0, tokenizer, to)
    window = Window(0, [text], tokenizer.encode_src([text]))
    if to:
        window = tagged(window, tokenizer, to)
    else:
        warn_about_missing_tags(window, tokenizer)
    return window.ids[0]


ShowTokens = Callable[[Sequence[int]], list[str]]
"""`Tokenizer.src_tokens` or `Tokenizer.tgt_tokens`."""


def _steps(log_probs: Tensor, tgt_ids: Sequence[int], show: ShowTokens) -> list[Step]:
    """Return the decoder steps from log-probabilities (T, V)."""
    best = log_probs.topk(min(TOP_K, log_probs.size(-1)), dim=-1)
    steps = []
    for position, chosen in enumerate(tgt_ids):
        top_ids = best.indices[position].tolist()
        probabilities = best.values[position].exp().tolist()
        top = list(zip(top_ids, show(top_ids), probabilities, strict=True))
        steps.append(Step(chosen, show([chosen])[0], float(log_probs[position, chosen]), top))
    return steps


def _votes(log_probs: Sequence[Tensor], tgt_ids: Sequence[int], show: ShowTokens) -> list[list[Vote]]:
    """Return the vote of each model at each step.

    Args:
        log_probs: Log-probabilities of each model, (T, V).
        tgt_ids: The chosen tokens, (T,).
        show: `Tokenizer.tgt_tokens`.

    Returns:
        T lists with a vote for each model.
    """
    found = []
    for position, chosen in enumerate(tgt_ids):
        of_step = []
        for log_p in log_probs:
            best = int(log_p[position].argmax())
            probability = float(log_p[position, chosen].exp())
            of_step.append(Vote(probability, show([best])[0], float(log_p[position, best].exp()), best == chosen))
        found.append(of_step)
    return found


def _beam_tree(
    expansions: Sequence[Expansion], hypotheses: Sequence[Hypothesis], options: Options, show: ShowTokens
) -> list[BeamNode]:
    """Return the observed steps of one sentence's beam search as a tree. Parents come before their children."""
    nodes: list[BeamNode] = []
    live = [-1]  # the node of each hypothesis in the beam
    for step, expansion in enumerate(expansions, 1):
        finished = {place for _, place in expansion.finished}
        kept: list[int] = []
        if step < len(expansions):  # after the last step nothing is continued
            kept = expansion.kept[0].tolist()
        node_of_place: dict[int, int] = {}
        for place, log_prob in enumerate(expansion.log_prob[0].tolist()):
            if log_prob == -math.inf:
                continue
            if place in finished:
                state = "finished"
            elif place in kept:
                state = "kept"
            else:
                state = "dropped"
            token_id = int(expansion.token[0, place])
            parent = live[int(expansion.parent[0, place])]
            node_of_place[place] = len(nodes)
            nodes.append(BeamNode(parent, step, show([token_id])[0], token_id, log_prob, state))
        live = [node_of_place.get(place, -1) for place in kept]
    _rank_finished(nodes, hypotheses, options)
    for node in nodes:
        if node.rank == 1:  # the translation
            for ancestor in _path(nodes, node):
                ancestor.on_path = True
    return nodes


def _rank_finished(nodes: Sequence[BeamNode], hypotheses: Sequence[Hypothesis], options: Options) -> None:
    """Set score and rank of the finished nodes."""
    ranks = {(*hypothesis.ids, EOS): rank for rank, hypothesis in enumerate(hypotheses, 1)}
    for node in nodes:
        if node.state != "finished":
            continue
        ids = tuple(ancestor.id for ancestor in _path(nodes, node))
        node.score = node.log_prob / length_penalty(node.step, options.length_penalty, options.length_normalization)
        node.rank = ranks[ids]


def _path(nodes: Sequence[BeamNode], node: BeamNode) -> list[BeamNode]:
    """Return the nodes from the first token to `node`."""
    path = [node]
    while path[-1].parent >= 0:
        path.append(nodes[path[-1].parent])
    return path[::-1]


def _neighbours_by_side(
    backend: PyTorchBackend, src_ids: Sequence[int], tgt_ids: Sequence[int]
) -> dict[str, list[Neighbours]]:
    model = backend.model
    tokenizer = backend.tokenizer
    return {
        "src": _neighbours(model.src_embedding, src_ids, tokenizer.src_tokens, tokenizer.src_byte_of),
        "tgt": _neighbours(model.tgt_embedding, tgt_ids, tokenizer.tgt_tokens, tokenizer.tgt_byte_of),
    }


def _neighbours(
    embedding: Embedding, ids: Sequence[int], show: ShowTokens, byte_of: Collection[int]
) -> list[Neighbours]:
    """Return the nearest embeddings of each distinct token.

    Special tokens and bytes are not listed as neighbours, because they are rarely trained.
    """
    table = F.normalize(embedding.tokens.weight.float(), dim=-1)
    excluded = [*range(len(SPECIALS)), *byte_of]
    num_candidates = max(1, len(table) - len(excluded) - 1)
    found = []
    for token_id in dict.fromkeys(ids):
        cosines = table @ table[token_id]
        cosines[excluded] = -torch.inf
        cosines[token_id] = -torch.inf
        best = cosines.topk(min(NUM_NEIGHBOURS, num_candidates))
        near = list(zip(show(best.indices.tolist()), best.values.tolist(), strict=True))
        found.append(Neighbours(show([token_id])[0], near))
    return found
