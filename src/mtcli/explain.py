"""One translation opened up: every number between the sentence and its translation, from the run itself.

The sentence is searched as `translate` searches it, with an observer who notes what the beam kept. Then one pass of
the same model over source and translation, recorded (`record`), gives what the search computed piece by piece. From
the record come `Stage`s: matrices with a name, the place in the paper, and the pieces their rows belong to.

Shapes: S source pieces with `</s>`, T target pieces with `</s>`, D d_model, K size of a head, V vocabulary.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtcli.batching import pad
from mtcli.decode import Expansion, Hypothesis, length_penalty
from mtcli.errors import UsageError
from mtcli.model import DecoderLayer, Embedding, EncoderLayer, MultiHeadAttention, Residual
from mtcli.record import Record, recording
from mtcli.tokenizer import BOS, EOS, RESERVED
from mtcli.translate import Options, Translator

DECIMALS = 5
"""Of every number in `to_dict`."""
TOP = 5
NEIGHBOURS = 5


@dataclass(frozen=True)
class Stage:
    """One matrix on the way, of which each row belongs to a piece."""

    key: str
    """Its name in JSON, such as `encoder.q`."""
    title: str
    paper: str
    """Section and equation."""
    formula: str
    rows: Sequence[str]
    values: Tensor
    """(rows, columns)."""
    columns: Sequence[str] | None = None
    """The pieces that the columns belong to, in the matrices of an attention."""
    of_head: bool = False
    """One head's; else the same for every head."""


@dataclass
class Node:
    """One continuation that a beam search looked at."""

    parent: int
    """The node it continues; −1: `<s>`."""
    step: int
    """The length of its hypothesis, 1 for the first piece."""
    id: int
    piece: str
    log_prob: float
    """Of the hypothesis up to here."""
    state: str
    """`kept`, `finished` or `dropped`."""
    score: float | None = None
    """Of a finished one: what translations are ranked by."""
    rank: int | None = None
    """Of a finished one: 1 is the translation."""
    on_path: bool = False
    """Part of the translation."""


@dataclass(frozen=True)
class Neighbours:
    """The pieces whose learned embeddings point most nearly the same way, with their cosines."""

    piece: str
    near: Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Step:
    """One target step: the piece taken, and the likeliest pieces."""

    id: int
    piece: str
    log_prob: float
    top: Sequence[tuple[int, str, float]]
    """Id, piece and probability, likeliest first."""

    @property
    def probability(self) -> float:
        """Of the piece taken."""
        return math.exp(self.log_prob)


@dataclass(frozen=True)
class Explanation:
    """All of one translation."""

    translator: Translator
    options: Options
    source: str
    texts: Sequence[str]
    """The finished hypotheses as text, best first; the first is the translation."""
    hypotheses: Sequence[Hypothesis]
    src_ids: Sequence[int]
    tgt_ids: Sequence[int]
    record: Record
    steps: Sequence[Step]
    tree: Sequence[Node]
    """Empty with a beam of 1, which keeps no others."""
    neighbours: dict[str, list[Neighbours]] = field(default_factory=dict)
    """`src` and `tgt`, where they were asked for."""

    @property
    def src_pieces(self) -> list[str]:
        """The source as the encoder reads it, `</s>` last."""
        return self.translator.tokenizer.src_pieces(self.src_ids)

    @property
    def tgt_pieces(self) -> list[str]:
        """What the decoder wrote, `</s>` last."""
        return self.translator.tokenizer.tgt_pieces(self.tgt_ids)

    @property
    def decoder_pieces(self) -> list[str]:
        """What the decoder read, shifted right: `<s>` first."""
        return self.translator.tokenizer.tgt_pieces([BOS, *self.tgt_ids[:-1]])

    def layers(self, kind: str) -> Sequence[nn.Module]:
        """The attentions of `encoder`, `decoder` (masked) or `cross`, layer by layer."""
        model = self.translator.model
        if kind == "encoder":
            return [cast(EncoderLayer, layer).self_attention for layer in model.encoder]
        name = "self_attention" if kind == "decoder" else "cross_attention"
        return [cast(MultiHeadAttention, getattr(layer, name)) for layer in model.decoder]

    def weights(self, kind: str) -> list[Tensor]:
        """The attention weights (H, rows, columns) of each layer; see `layers`."""
        return [self.record.attended[module].weights[0] for module in self.layers(kind)]


@torch.inference_mode()
def explain(translator: Translator, text: str, options: Options, *, neighbours: bool = False) -> Explanation:
    """Translate one line and keep every number.

    Raises:
        UsageError: The line is blank, or several.
    """
    if not text.strip() or "\n" in text:
        raise UsageError("explain takes one sentence, on one line")
    model, tokenizer = translator.model, translator.tokenizer
    ids = tokenizer.encode_src([text])[0]
    seen: list[Expansion] = []
    options = replace(options, n_best=options.beam_size)
    hypotheses = translator.search([ids], options, observe=seen.append)[0]
    chosen = hypotheses[0].ids
    with recording(model) as record:
        logits = model(
            pad([ids], after=(EOS,)).to(translator.device), pad([chosen], before=(BOS,)).to(translator.device)
        )
    tgt_ids = [*chosen, EOS]
    found = Explanation(
        translator=translator,
        options=options,
        source=text,
        texts=tokenizer.decode([h.ids for h in hypotheses]),
        hypotheses=hypotheses,
        src_ids=[*ids, EOS],
        tgt_ids=tgt_ids,
        record=record,
        steps=list(_steps(logits[0], tgt_ids, translator)),
        tree=_tree(seen, hypotheses, options, translator),
    )
    if neighbours:
        found.neighbours["src"] = list(_neighbours(model.src_embedding, found.src_ids, tokenizer.src_pieces))
        found.neighbours["tgt"] = list(_neighbours(model.tgt_embedding, tgt_ids, tokenizer.tgt_pieces))
    return found


def _steps(logits: Tensor, tgt_ids: Sequence[int], translator: Translator) -> Iterator[Step]:
    """From logits (T, V)."""
    log_p = logits.float().log_softmax(dim=-1)
    best = log_p.topk(min(TOP, log_p.size(-1)), dim=-1)
    pieces = translator.tokenizer.tgt_pieces
    for t, (taken, values, ids) in enumerate(zip(tgt_ids, best.values.tolist(), best.indices.tolist(), strict=True)):
        top = [(i, piece, math.exp(value)) for i, piece, value in zip(ids, pieces(ids), values, strict=True)]
        yield Step(taken, pieces([taken])[0], float(log_p[t, taken]), top)


def _tree(
    seen: Sequence[Expansion], hypotheses: Sequence[Hypothesis], options: Options, translator: Translator
) -> list[Node]:
    """The expansions of one sentence as nodes, each after its parent."""
    nodes: list[Node] = []
    live = [-1]
    ids: dict[int, list[int]] = {-1: []}  # the pieces up to each node
    for t, step in enumerate(seen, 1):
        finished = {at for _, at in step.finished}
        kept = step.kept[0].tolist() if t < len(seen) else []  # those still going at the end go nowhere
        of: dict[int, int] = {}  # node of each continuation
        for at, log_prob in enumerate(step.log_prob[0].tolist()):
            if log_prob == -math.inf:
                continue
            parent, piece = live[int(step.parent[0, at])], int(step.piece[0, at])
            state = "finished" if at in finished else "kept" if at in kept else "dropped"
            of[at] = len(nodes)
            ids[len(nodes)] = [*ids[parent], piece]
            nodes.append(Node(parent, t, piece, translator.tokenizer.tgt_pieces([piece])[0], log_prob, state))
            if state == "finished":
                nodes[-1].score = log_prob / float(length_penalty(t, options.length_penalty))
        live = [of.get(at, -1) for at in kept]
    ranks = {(*h.ids, EOS): rank for rank, h in enumerate(hypotheses, 1)}
    for at, node in enumerate(nodes):
        if node.state == "finished":
            node.rank = ranks[tuple(ids[at])]
    at = next((at for at, node in enumerate(nodes) if node.rank == 1), -1)
    while at >= 0:
        nodes[at].on_path = True
        at = nodes[at].parent
    return nodes


def _neighbours(embedding: Embedding, ids: Sequence[int], pieces: Any) -> Iterator[Neighbours]:
    """Of each piece once; the special pieces and the bytes, seldom trained, are not among the neighbours."""
    table = F.normalize(embedding.pieces.weight.float(), dim=-1)
    for i in dict.fromkeys(ids):
        cosines = table @ table[i]
        cosines[: len(RESERVED)] = cosines[i] = -torch.inf
        best = cosines.topk(min(NEIGHBOURS, max(1, len(table) - len(RESERVED) - 1)))
        near = list(zip(pieces(best.indices.tolist()), best.values.tolist(), strict=True))
        yield Neighbours(pieces([i])[0], near)


def stages(found: Explanation, layer: int, head: int) -> list[Stage]:
    """The whole way for one layer and head, counted from 0; a shallower stack shows its last layer."""
    encoder, decoder = found.translator.model.encoder, found.translator.model.decoder
    return [
        *embedding_stages(found, "src"),
        *encoder_stages(found, min(layer, len(encoder) - 1), head),
        memory_stage(found),
        *embedding_stages(found, "tgt"),
        *decoder_stages(found, min(layer, len(decoder) - 1), head),
        *output_stages(found),
    ]


def embedding_stages(found: Explanation, side: str) -> list[Stage]:
    """From pieces to the first layer's input; `side` is `src` or `tgt`."""
    embedding = cast(Embedding, getattr(found.translator.model, f"{side}_embedding"))
    rows = found.src_pieces if side == "src" else found.decoder_pieces
    calls = found.record.calls  # a shared table was called for the source first, then for the target
    looked_up = calls[embedding.pieces][0 if side == "src" else -1].output[0]
    name = "x" if side == "src" else "y"
    learned = embedding.learned is not None
    formula = "a learned row for each position" if learned else "PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), 2i+1: cos"
    return [
        Stage(f"{side}.embedding", "Embedding × √d_model", "§3.4", f"E[id] · {embedding.scale:.4g}", rows,
              looked_up * embedding.scale),
        Stage(f"{side}.position", "Positional encoding", "§3.5", formula, rows, embedding.positions(0, len(rows))),
        Stage(f"{side}.sum", "Embedding plus position", "§3.5", f"{name} = E[id] · √d_model + PE", rows,
              calls[embedding][-1].output[0]),
    ]  # fmt: skip


def encoder_stages(found: Explanation, layer: int, head: int) -> list[Stage]:
    """One encoder layer: self-attention, then the feed-forward network."""
    module = cast(EncoderLayer, found.translator.model.encoder[layer])
    rows, key = found.src_pieces, f"encoder.{layer + 1}"
    own = _attention(found, f"{key}.self", module.self_attention, head, rows, rows, "the source itself")
    ffn, end = _feed_forward(found, key, module, rows), found.record.calls[module][-1].output[0]
    return [
        *_around(found, f"{key}.self", module.self_residual, own, module.ffn_residual),
        *_around(found, f"{key}.ffn", module.ffn_residual, ffn, end),
    ]


def memory_stage(found: Explanation) -> Stage:
    """What the encoder hands to every decoder layer."""
    memory = found.record.calls[found.translator.model.encoder_norm][-1].output[0]
    return Stage("memory", "Memory", "§3.1, Figure 1", "the encoder's output z", found.src_pieces, memory)


def decoder_stages(found: Explanation, layer: int, head: int) -> list[Stage]:
    """One decoder layer: masked self-attention, attention over the memory, then the feed-forward network."""
    module = cast(DecoderLayer, found.translator.model.decoder[layer])
    rows, key = found.decoder_pieces, f"decoder.{layer + 1}"
    own = _attention(found, f"{key}.self", module.self_attention, head, rows, rows, "the pieces so far (masked)")
    cross = _attention(found, f"{key}.cross", module.cross_attention, head, rows, found.src_pieces, "the memory")
    ffn, end = _feed_forward(found, key, module, rows), found.record.calls[module][-1].output[0]
    return [
        *_around(found, f"{key}.self", module.self_residual, own, module.cross_residual),
        *_around(found, f"{key}.cross", module.cross_residual, cross, module.ffn_residual),
        *_around(found, f"{key}.ffn", module.ffn_residual, ffn, end),
    ]


def output_stages(found: Explanation) -> list[Stage]:
    """The last hidden states; the logits are in `Explanation.steps` (there are V of them in each row)."""
    call = found.record.calls[found.translator.model.output][-1]
    tied = " with the embedding's matrix" if found.translator.model.config.tie_embeddings else ""
    return [
        Stage("hidden", "Decoder output", "§3.1, Figure 1", "what the logits are made from", found.decoder_pieces,
              call.input[0]),
        Stage("logits", "Logits", "§3.4", f"hidden · Eᵀ{tied}; softmax makes them probabilities",
              found.decoder_pieces, call.output[0]),
    ]  # fmt: skip


def _attention(
    found: Explanation,
    key: str,
    module: MultiHeadAttention,
    head: int,
    rows: Sequence[str],
    keys: Sequence[str],
    over: str,
) -> list[Stage]:
    """One head from Q to its output, and all heads joined."""
    seen, i, section = found.record.attended[module], head + 1, "§3.2.2"
    q, k, v, scores, weights, out = (
        x[0, head] for x in (seen.q, seen.k, seen.v, seen.scores, seen.weights, seen.heads)
    )
    parts = [
        Stage(f"{key}.q", f"Q, head {i}, over {over}", section, f"Q = x W_{i}^Q", rows, q),
        Stage(f"{key}.k", f"K, head {i}", section, f"K = x W_{i}^K", keys, k),
        Stage(f"{key}.v", f"V, head {i}", section, f"V = x W_{i}^V", keys, v),
        Stage(f"{key}.scores", "Scores", "§3.2.1, equation 1", f"QKᵀ / √{seen.q.size(-1)}", rows, scores, keys),
        Stage(f"{key}.weights", "Weights", "§3.2.1, equation 1", "softmax of each row", rows, weights, keys),
        Stage(f"{key}.head", f"Weighted values: head {i}", "§3.2.1, equation 1", "softmax(QKᵀ / √d_k) V", rows, out),
    ]  # fmt: skip
    every = found.record.calls[module.w_o][-1].output[0]
    joined = Stage(f"{key}.multihead", "All heads joined", section, "Concat(head_1 … head_h) W^O", rows, every)
    return [*(replace(part, of_head=True) for part in parts), joined]


def _around(
    found: Explanation, key: str, module: Residual, sublayer: list[Stage], after: Residual | Tensor
) -> list[Stage]:
    """A sub-layer in its residual; with pre-norm the sum is seen where the next part reads it, `after`."""
    rows, call = sublayer[-1].rows, found.record.calls[module.norm][-1]
    if not module.pre:
        return [
            *sublayer,
            Stage(f"{key}.residual", "Residual", "§3.1", "x + Sublayer(x)", rows, call.input[0]),
            Stage(f"{key}.norm", "Layer norm", "§3.1", "LayerNorm(x + Sublayer(x))", rows, call.output[0]),
        ]
    out = after if isinstance(after, Tensor) else found.record.calls[after.norm][-1].input[0]
    return [
        Stage(f"{key}.norm", "Layer norm first (pre-norm)", "§3.1", "LayerNorm(x)", rows, call.output[0]),
        *sublayer,
        Stage(f"{key}.residual", "Residual (pre-norm)", "§3.1", "x + Sublayer(LayerNorm(x))", rows, out),
    ]


def _feed_forward(found: Explanation, key: str, layer: EncoderLayer | DecoderLayer, rows: Sequence[str]) -> list[Stage]:
    call = found.record.calls[layer.feed_forward.w_2][-1]
    return [
        Stage(f"{key}.ffn.inner", "Feed-forward, inner layer", "§3.3, equation 2", "max(0, xW_1 + b_1)", rows,
              call.input[0]),
        Stage(f"{key}.ffn.output", "Feed-forward, output", "§3.3, equation 2", "max(0, xW_1 + b_1) W_2 + b_2", rows,
              call.output[0]),
    ]  # fmt: skip


def rounded(values: Tensor, decimals: int = DECIMALS) -> Any:
    """Nested lists of numbers with so many decimals; what is hidden by a mask (−∞) is None."""

    def walk(x: Any) -> Any:
        if isinstance(x, list):
            return [walk(y) for y in x]
        return round(x, decimals) if math.isfinite(x) else None

    return walk(values.float().cpu().tolist())
