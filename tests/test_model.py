"""The model against `torch.nn.Transformer`, against itself without a cache, and against its own padding."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtcli.config.schema import ModelConfig
from mtcli.model.loss import projected_loss
from mtcli.model.multi_head import MultiHeadAttention
from mtcli.model.transformer import Dropout, FeedForward, Residual, Transformer, sinusoids
from mtcli.text.special_tokens import BOS, EOS, PAD

V = 13
EXACT = {"rtol": 1e-11, "atol": 1e-12}
"""float64 has 16 digits; sums in another order in a few layers leave 12 of them."""


def build(seed: int = 1, src_vocab: int = V, joint: bool = True, dtype: torch.dtype = torch.float64, **changes: Any):
    torch.manual_seed(seed)
    shape = {"d_model": 12, "d_ff": 20, "num_heads": 3, "num_encoder_layers": 2, "num_decoder_layers": 3, "dropout": 0}
    model = Transformer(ModelConfig(**{**shape, **changes}), src_vocab, V, joint=joint)
    for name, p in model.named_parameters():  # a bias of 0 or a gain of 1 would hide a misplaced one
        if name.endswith("bias") or "norm" in name:
            nn.init.normal_(p, mean=p.detach().mean().item(), std=0.3)
    return model.to(dtype)


def pad(rows: list[list[int]], width: int = 0) -> Tensor:
    width = max(width, *map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def draw_pairs(seed: int = 2) -> tuple[list[list[int]], list[list[int]]]:
    torch.manual_seed(seed)
    sources = [[*torch.randint(3, V, (n,)).tolist(), EOS] for n in (6, 1, 3, 4)]
    return sources, [torch.randint(3, V, (n,)).tolist() for n in (2, 5, 4, 1)]


def theirs_from(ours: Transformer) -> nn.Transformer:
    """PyTorch's Transformer with our weights."""
    c = ours.config
    theirs = nn.Transformer(
        c.d_model,
        c.num_heads,
        c.num_encoder_layers,
        c.num_decoder_layers,
        c.d_ff,
        dropout=0.0,
        batch_first=True,
        norm_first=c.norm == "pre",
        dtype=torch.float64,
    )
    if c.norm == "post":  # PyTorch always adds a final norm; Figure 1 of the paper has none
        theirs.encoder.norm = theirs.decoder.norm = None
    with torch.no_grad():
        for parts, parameter in same_parameters(ours, theirs):
            parameter.copy_(torch.cat([p.detach() for p in parts]))
    return theirs


def same_parameters(ours: Transformer, theirs: nn.Transformer) -> Iterator[tuple[list[Tensor], Tensor]]:
    """Pairs of our parameters and the one of PyTorch's that concatenates them."""

    def attention(a: MultiHeadAttention, b: nn.MultiheadAttention) -> Iterator[tuple[list[Tensor], Tensor]]:
        yield [a.w_q.weight, a.w_k.weight, a.w_v.weight], b.in_proj_weight
        yield [a.w_q.bias, a.w_k.bias, a.w_v.bias], b.in_proj_bias
        yield from same(a.w_o, b.out_proj)

    def same(a: Any, b: Any) -> Iterator[tuple[list[Tensor], Tensor]]:
        yield [a.weight], b.weight
        yield [a.bias], b.bias

    def feed_forward(a: FeedForward, b: Any) -> Iterator[tuple[list[Tensor], Tensor]]:
        yield from same(a.w_1, b.linear1)
        yield from same(a.w_2, b.linear2)

    for a, b in zip(ours.encoder, theirs.encoder.layers, strict=True):
        yield from attention(a.self_attention, b.self_attn)
        yield from same(a.self_residual.norm, b.norm1)
        yield from feed_forward(a.feed_forward, b)
        yield from same(a.ffn_residual.norm, b.norm2)
    for a, b in zip(ours.decoder, theirs.decoder.layers, strict=True):
        yield from attention(a.self_attention, b.self_attn)
        yield from same(a.self_residual.norm, b.norm1)
        yield from attention(a.cross_attention, b.multihead_attn)
        yield from same(a.cross_residual.norm, b.norm2)
        yield from feed_forward(a.feed_forward, b)
        yield from same(a.ffn_residual.norm, b.norm3)
    if ours.config.norm == "pre":
        yield from same(ours.encoder_norm, theirs.encoder.norm)
        yield from same(ours.decoder_norm, theirs.decoder.norm)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # PyTorch has a fast path, but not for three heads
@pytest.mark.parametrize("attention", ["reference", "fused"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_equals_torch_nn_transformer(norm: str, attention: str) -> None:
    """Logits, loss and the gradient of every parameter. PyTorch's has no embeddings: they are computed here."""
    ours = build(norm=norm, attention=attention)
    theirs = theirs_from(ours)
    matrix = ours.output.weight.detach().clone().requires_grad_()
    sources, targets = draw_pairs()
    src, tgt, out = pad(sources), pad([[BOS, *y] for y in targets]), pad([[*y, EOS] for y in targets])
    real = out != PAD

    def embed(ids: Tensor) -> Tensor:
        D = matrix.size(1)
        table = torch.zeros(ids.size(1), D, dtype=torch.float64)
        for pos in range(ids.size(1)):
            for i in range(D // 2):
                angle = pos / 10000 ** (2 * i / D)
                table[pos, 2 * i], table[pos, 2 * i + 1] = math.sin(angle), math.cos(angle)
        return F.embedding(ids, matrix) * math.sqrt(D) + table.float()  # ours is kept in float32

    later = (
        torch.ones(tgt.size(1), tgt.size(1)).triu(1).bool()
    )  # PyTorch's masks are True where attention is not allowed
    hidden = theirs(
        embed(src),
        embed(tgt),
        tgt_mask=later,
        src_key_padding_mask=src == PAD,
        memory_key_padding_mask=src == PAD,
    )
    logits = hidden @ matrix.t()
    torch.testing.assert_close(ours(src, tgt), logits, **EXACT)

    their_loss = F.cross_entropy(logits[real], out[real], label_smoothing=0.1, reduction="sum")
    loss, _ = projected_loss(ours.decode(tgt, *ours.encode(src))[real], ours.output.weight, out[real], 0.1)
    torch.testing.assert_close(loss, their_loss, **EXACT)

    loss.backward()
    their_loss.backward()
    torch.testing.assert_close(ours.output.weight.grad, matrix.grad, rtol=1e-10, atol=1e-11)
    compared = {id(ours.output.weight)}
    for parts, parameter in same_parameters(ours, theirs):
        compared |= {id(p) for p in parts}
        torch.testing.assert_close(torch.cat([p.grad for p in parts]), parameter.grad, rtol=1e-10, atol=1e-11)
    assert compared == {id(p) for p in ours.parameters()}


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("sizes", [{}, {"d_k": 2, "d_v": 5}])
def test_fused_equals_reference_model(sizes: dict[str, int], norm: str) -> None:
    sources, targets = draw_pairs()
    src, tgt = pad(sources), pad([[BOS, *y] for y in targets])
    logits = [build(attention=attention, norm=norm, **sizes)(src, tgt) for attention in ("reference", "fused")]
    torch.testing.assert_close(*logits, **EXACT)


@pytest.mark.parametrize("changes", [{}, {"norm": "pre"}, {"positions": "learned"}, {"attention": "reference"}])
@pytest.mark.parametrize("share_rows", [False, True])
@pytest.mark.parametrize("W", [1, 3])
@torch.no_grad()
def test_cached_step_equals_uncached_decoding(W: int, share_rows: bool, changes: dict[str, str]) -> None:
    """At every position, after hypotheses are reordered, and after a sentence is removed from the batch."""
    model = build(**changes)
    sources, _ = draw_pairs()
    sentences = list(range(len(sources)))
    cache, live = model.start(pad(sources), share_rows=share_rows), 1
    history = torch.full((len(sources), 1, 1), BOS)  # (B, W, t)
    generator = torch.Generator().manual_seed(5)
    for t in range(7):
        ((_, log_p),) = model.step(history[:, :, -1].flatten(), cache)
        assert cache.length == t + 1
        for row, sentence in enumerate(sentences):
            alone = torch.tensor([sources[sentence]]).expand(live, -1)
            expected = model(alone, history[row])[:, -1].log_softmax(-1)
            torch.testing.assert_close(log_p.view(-1, live, V)[row], expected, **EXACT)
        B = len(sentences)
        parent = torch.randint(live, (B, W), generator=generator)
        kept = None
        history = history.gather(1, parent[:, :, None].expand(-1, -1, t + 1))
        history = torch.cat((history, torch.randint(3, V, (B, W, 1), generator=generator)), dim=2)
        if t in (2, 4):
            del sentences[t // 2 - 1]
            kept = np.array([row for row in range(B) if row != t // 2 - 1])
            parent, history = parent[kept], history[kept]
        cache.select(parent, kept)
        live = W
    assert sentences == [1, 3]


def test_padding_and_other_rows_have_no_influence() -> None:
    model = build()
    sources, targets = draw_pairs()
    targets = [[BOS, *y] for y in targets]
    for width in (0, 20):
        memory, mask = model.encode(pad(sources, width))
        logits = model(pad(sources, width), pad(targets, width))
        for row, (x, y) in enumerate(zip(sources, targets, strict=True)):
            assert mask[row].flatten().tolist() == [True] * len(x) + [False] * (mask.size(-1) - len(x))
            torch.testing.assert_close(memory[row, : len(x)], model.encode(torch.tensor([x]))[0][0], **EXACT)
            alone = model(torch.tensor([x]), torch.tensor([y]))[0]
            torch.testing.assert_close(logits[row, : len(y)], alone, **EXACT)


def test_a_prediction_depends_on_earlier_tokens_and_the_whole_source() -> None:
    model = build()
    sources, targets = draw_pairs()
    x, y = sources[0], [BOS, *targets[1]]
    before = model(torch.tensor([x]), torch.tensor([y]))[0]
    for t in range(1, len(y)):
        other = [*y[:t], *(3 + (token - 2) % (V - 3) for token in y[t:])]
        after = model(torch.tensor([x]), torch.tensor([other]))[0]
        torch.testing.assert_close(after[:t], before[:t], **EXACT)
        assert (after[t:] - before[t:]).abs().amax(-1).min() > 1e-3
    for s in range(len(x) - 1):
        other = [*x[:s], 3 + (x[s] - 2) % (V - 3), *x[s + 1 :]]
        assert (model(torch.tensor([other]), torch.tensor([y]))[0] - before).abs().amax(-1).min() > 1e-6


def test_sinusoids_equal_the_formula() -> None:
    table = sinusoids(600, 16)
    for pos in (0, 1, 7, 511, 512, 599):
        for i in range(8):
            angle = pos / 10000 ** (2 * i / 16)
            assert float(table[pos, 2 * i]) == pytest.approx(math.sin(angle), abs=1e-7)  # half of float32's last bit
            assert float(table[pos, 2 * i + 1]) == pytest.approx(math.cos(angle), abs=1e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sinusoids_continue_exactly_past_the_table(dtype: torch.dtype) -> None:
    embedding = build(dtype=dtype).src_embedding
    rows = len(embedding.table)
    whole = embedding.positions(0, rows + 100)
    assert whole.dtype == dtype
    assert torch.equal(whole[:rows], embedding.positions(0, rows))
    for start in (rows - 1, rows, rows + 60):
        assert torch.equal(whole[start : start + 3], embedding.positions(start, 3))


def test_embedding_is_scaled_and_has_positions() -> None:
    embedding = build(d_model=64, num_heads=4).tgt_embedding
    ids = torch.tensor([[5, 6, 5]])
    expected = embedding.tokens.weight[ids[0]] * 8 + sinusoids(10, 64)[4:7]
    torch.testing.assert_close(embedding(ids, 4)[0], expected, **EXACT)


def test_learned_positions() -> None:
    model = build(positions="learned", max_positions=8)
    source, target = model.src_embedding.learned, model.tgt_embedding.learned
    assert source is not target
    ids = torch.full((1, 11), 5)
    rows = torch.tensor([*range(8), 7, 7, 7])  # later positions use the last row
    expected = model.src_embedding.tokens(ids) * math.sqrt(12) + source(rows)
    torch.testing.assert_close(model.src_embedding(ids), expected, **EXACT)
    torch.testing.assert_close(
        model.tgt_embedding(ids[:, :2], 3)[0] - model.tgt_embedding.tokens(ids[0, :2]) * math.sqrt(12),
        target(torch.tensor([3, 4])),
        **EXACT,
    )
    model(ids, ids)[0, 3, 7].backward()
    assert source.weight.grad.any(dim=1).all()  # every source position
    assert target.weight.grad.any(dim=1).tolist() == [True] * 4 + [False] * 4  # target positions up to the prediction


def test_tied_embeddings_share_one_matrix() -> None:
    """§3.4: all three with a joint vocabulary; target and output with separate ones; none when not tied."""

    def distinct(model: Transformer) -> int:
        return len(
            {id(w) for w in (model.src_embedding.tokens.weight, model.tgt_embedding.tokens.weight, model.output.weight)}
        )

    separate = build(src_vocab=21, joint=False)
    assert distinct(build()) == 1
    assert distinct(separate) == 2
    assert separate.tgt_embedding.tokens.weight is separate.output.weight
    assert distinct(build(tie_embeddings=False)) == 3
    sizes = {
        name: sum(p.numel() for p in m.parameters())
        for name, m in {"one": build(), "two": separate, "three": build(tie_embeddings=False)}.items()
    }
    assert sizes["two"] == sizes["one"] + 21 * 12
    assert sizes["three"] == sizes["one"] + 2 * V * 12


def test_separate_vocabularies_have_separate_ids() -> None:
    model = build(src_vocab=21, joint=False)
    logits = model(torch.tensor([[20, 14, EOS]]), torch.tensor([[BOS, 12]]))
    assert logits.shape == (1, 2, V)
    with pytest.raises(IndexError):
        model(torch.tensor([[EOS]]), torch.tensor([[BOS, 20]]))


def test_initial_weights() -> None:
    """Xavier's bound, halved where a projection leads to a sub-layer's output. Scaled embeddings have variance 1."""
    torch.manual_seed(1)
    model = Transformer(ModelConfig(d_model=64, d_ff=256), 500, 500, joint=True)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and name != "output":
            gain = 0.5 if name.endswith(("w_v", "w_o", "w_1", "w_2")) else 1.0
            bound = gain * math.sqrt(6 / (module.in_features + module.out_features))
            assert 0.98 * bound < module.weight.abs().max().item() <= bound
            assert not module.bias.any()
    scaled = model.src_embedding.tokens.weight * model.src_embedding.scale
    assert scaled.var().item() == pytest.approx(1, rel=0.05)  # 32,000 draws: a standard error of 0.8%
    assert model.output.weight is model.src_embedding.tokens.weight


def test_dropout_does_nothing_outside_training() -> None:
    x = torch.ones(3, 5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_dropout_is_where_the_paper_puts_it() -> None:
    """§5.4: on each sub-layer's output before it is added, and on the sums of embeddings and positions."""
    model = build(dropout=0.5, dtype=torch.float32)
    assert sum(isinstance(m, Dropout) for m in model.modules()) == 2 + 2 * 2 + 3 * 3
    embedded = model.src_embedding(torch.full((4, 50), 5))
    assert 0.4 < float((embedded == 0).float().mean()) < 0.6
    residual = Residual(ModelConfig(d_model=12, num_heads=3, dropout=0.5, norm="pre"))
    x, sublayer = torch.randn(50, 12), torch.randn(50, 12)
    added = residual.after(x, sublayer) - x
    kept = added != 0
    assert 0.4 < float(kept.float().mean()) < 0.6
    torch.testing.assert_close(added[kept], 2 * sublayer[kept], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("d_k", "d_v"), [(4, 4), (2, 7)])
def test_each_head_has_its_own_rows_of_a_projection(d_k: int, d_v: int) -> None:
    attention = build(d_k=d_k, d_v=d_v).encoder[0].self_attention
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    for linear, size in ((attention.w_q, d_k), (attention.w_k, d_k), (attention.w_v, d_v)):
        heads = attention.split_heads(linear(x))
        assert heads.shape == (2, 3, 5, size)
        for head in range(3):  # head i owns rows i · size … of W^Q, which is W_i^Q
            rows = slice(head * size, (head + 1) * size)
            expected = F.linear(x, linear.weight[rows], linear.bias[rows])
            torch.testing.assert_close(heads[:, head], expected, **EXACT)


@pytest.mark.parametrize("sizes", [{}, {"d_k": 2, "d_v": 7}])
def test_joint_projection_equals_one_product_for_each(sizes: dict[str, int]) -> None:
    """Values, and the gradients of the parameters, which stay separate."""
    attention = build(**sizes).encoder[0].self_attention
    projections = (attention.w_q, attention.w_k, attention.w_v)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    expected = [attention.split_heads(projection(x)) for projection in projections]
    found = [attention.split_heads(projected) for projected in attention.joint_qkv()(x)]
    for one_product, separate in zip(found, expected, strict=True):
        torch.testing.assert_close(one_product, separate, **EXACT)
    for memory_projection, separate in zip(attention.keys_values(x), expected[1:], strict=True):
        torch.testing.assert_close(memory_projection, separate, **EXACT)
    parameters = [p for projection in projections for p in projection.parameters()]
    gradients = torch.autograd.grad(sum(y.pow(2).sum() for y in found), parameters)
    separate_gradients = torch.autograd.grad(sum(y.pow(2).sum() for y in expected), parameters)
    for joint, separate in zip(gradients, separate_gradients, strict=True):
        torch.testing.assert_close(joint, separate, **EXACT)
