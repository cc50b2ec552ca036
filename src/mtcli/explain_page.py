"""An explanation to be read: on the terminal, as JSON for programs, and as one HTML page that needs nothing else."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any
from unicodedata import combining, east_asian_width

from torch import Tensor

from mtcli.explain import (
    DECIMALS,
    Explanation,
    Stage,
    decoder_stages,
    embedding_stages,
    encoder_stages,
    memory_stage,
    output_stages,
    rounded,
    stages,
)

ROWS, COLUMNS, MOST = 4, 6, 3
"""Of a matrix on the terminal, unless it is shown in full: rows, columns, and weights of each row."""
PAGE_COLUMNS, PAGE_DECIMALS = 8, 4
"""Of the page's tables."""
COLOURS = ((0.9, "\033[32m"), (0.6, "\033[36m"), (0.3, "\033[33m"), (0.0, "\033[31m"))
"""Probability from which a piece is written in green, cyan, yellow or red."""


def to_dict(found: Explanation, layer: int, head: int, decimals: int = DECIMALS) -> dict[str, Any]:
    """Everything as plain values; the README lists the keys.

    Args:
        found: What to tell.
        layer: The layer of `stages`, from 0.
        head: Its head, from 0.
        decimals: Of every number.
    """
    return _common(found, decimals) | {
        "layer": layer + 1,
        "head": head + 1,
        "stages": [_stage(stage, decimals) for stage in stages(found, layer, head)],
    }


def _common(found: Explanation, decimals: int) -> dict[str, Any]:
    translator, config = found.translator, found.translator.model.config

    def number(x: float | None) -> float | None:
        return None if x is None else round(x, decimals)

    return {
        "format": "mtcli-explain-1",
        "decimals": decimals,
        "source": found.source,
        "translation": found.texts[0],
        "model": {
            "d_model": config.d_model,
            "d_ff": config.d_ff,
            "num_heads": config.num_heads,
            "d_k": config.d_k or config.d_model // config.num_heads,
            "d_v": config.d_v or config.d_model // config.num_heads,
            "num_encoder_layers": config.num_encoder_layers,
            "num_decoder_layers": config.num_decoder_layers,
            "norm": config.norm,
            "positions": config.positions,
            "parameters": sum(p.numel() for p in translator.model.parameters()),
            "src_vocab": translator.tokenizer.src_size,
            "tgt_vocab": translator.tokenizer.tgt_size,
        },
        "search": {"beam_size": found.options.beam_size, "length_penalty": found.options.length_penalty},
        "src": {"ids": list(found.src_ids), "pieces": found.src_pieces},
        "tgt": {"ids": list(found.tgt_ids), "pieces": found.tgt_pieces, "read": found.decoder_pieces},
        "steps": [
            {
                "piece": step.piece,
                "id": step.id,
                "log_prob": number(step.log_prob),
                "probability": number(step.probability),
                "top": [{"piece": piece, "id": i, "probability": number(p)} for i, piece, p in step.top],
            }
            for step in found.steps
        ],
        "hypotheses": [
            {"text": text, "ids": h.ids, "log_prob": number(h.log_prob), "score": number(h.score)}
            for text, h in zip(found.texts, found.hypotheses, strict=True)
        ],
        "beam": [
            {
                "parent": node.parent,
                "step": node.step,
                "piece": node.piece,
                "id": node.id,
                "log_prob": number(node.log_prob),
                "state": node.state,
                "score": number(node.score),
                "rank": node.rank,
                "on_path": node.on_path,
            }
            for node in found.tree
        ],
        "attention": {
            kind: [rounded(weights, decimals) for weights in found.weights(kind)]
            for kind in ("encoder", "decoder", "cross")
        },
        "neighbours": {
            side: [
                {"piece": n.piece, "near": [{"piece": piece, "cosine": number(c)} for piece, c in n.near]} for n in rows
            ]
            for side, rows in found.neighbours.items()
        },
    }


def _stage(stage: Stage, decimals: int) -> dict[str, Any]:
    return {
        "key": stage.key,
        "title": stage.title,
        "paper": stage.paper,
        "formula": stage.formula,
        "shape": list(stage.values.shape),
        "rows": list(stage.rows),
        "columns": None if stage.columns is None else list(stage.columns),
        # The logits, V for each step, would be most of the file; their best are in `steps`.
        "values": None if stage.key == "logits" else rounded(stage.values, decimals),
    }


def to_html(found: Explanation, layer: int, head: int) -> str:
    """The page, with every layer and head in it; it opens at the given ones."""
    model = found.translator.model
    heads = range(model.config.num_heads)

    def cut(group: Sequence[Sequence[Stage]]) -> list[dict[str, Any]]:
        """The same stages for each head, as one list; of the values the first columns."""
        rows = []
        for alike in zip(*group, strict=True):
            values = [rounded(stage.values[:, :PAGE_COLUMNS], PAGE_DECIMALS) for stage in alike]
            one = _stage(alike[0], PAGE_DECIMALS)
            rows.append(one | ({"heads": values, "values": None} if alike[0].of_head else {"values": values[0]}))
        return rows

    trace = {
        "src": cut([embedding_stages(found, "src")]),
        "encoder": [cut([encoder_stages(found, i, h) for h in heads]) for i in range(len(model.encoder))],
        "memory": cut([[memory_stage(found)]]),
        "tgt": cut([embedding_stages(found, "tgt")]),
        "decoder": [cut([decoder_stages(found, i, h) for h in heads]) for i in range(len(model.decoder))],
        "output": cut([output_stages(found)]),
    }
    length = max(len(found.src_ids), len(found.tgt_ids), 32)
    data = _common(found, PAGE_DECIMALS) | {
        "layer": layer,
        "head": head,
        "trace": trace,
        "positions": rounded(model.src_embedding.positions(0, length), 3),
    }
    # "<" is written so that no text in the data can end the script or begin a tag.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    template = files("mtcli").joinpath("pages/explain.html").read_text(encoding="utf-8")
    return template.replace("/*DATA*/null", text, 1)


def to_text(
    found: Explanation, layer: int, head: int, *, step: int | None = None, full: bool = False, colour: bool = False
) -> Iterator[str]:
    """The lines of the terminal's page.

    Args:
        found: What to tell.
        layer: Which layer, from 0.
        head: Which of its heads, from 0.
        step: Only this target step, from 0, with the decoder's numbers for it; else all, more briefly.
        full: Whole matrices, not their first rows and columns.
        colour: Colour pieces by confidence.
    """
    model = found.translator.model
    enc, dec = min(layer, len(model.encoder) - 1), min(layer, len(model.decoder) - 1)
    yield found.source
    yield (
        f"{model.config.num_encoder_layers} + {model.config.num_decoder_layers} layers, "
        f"{model.config.num_heads} heads, d_model {model.config.d_model}; shown: encoder layer {enc + 1}, "
        f"decoder layer {dec + 1}, head {head + 1}. Sections (§) are those of “Attention Is All You Need”."
    )
    if step is None:
        yield from _heading("The source: pieces and ids (§5.1)")
        yield from _ids(found.src_pieces, found.src_ids)
        for stage in embedding_stages(found, "src"):
            yield from _matrix(stage, full)
        yield from _heading(f"Encoder layer {enc + 1}, head {head + 1}")
        for stage in [*encoder_stages(found, enc, head), memory_stage(found)]:
            yield from _matrix(stage, full)
        if full:
            yield from _heading(f"Decoder layer {dec + 1}, head {head + 1}, all steps at once")
            for stage in [*embedding_stages(found, "tgt"), *decoder_stages(found, dec, head), output_stages(found)[0]]:
                yield from _matrix(stage, full)
    for t in range(len(found.steps)) if step is None else [step]:
        yield from _heading(f"Step {t + 1} of {len(found.steps)}: the decoder has read {_read(found, t)}")
        if step is not None:
            for stage in [*embedding_stages(found, "tgt"), *decoder_stages(found, dec, head), output_stages(found)[0]]:
                yield from _matrix(_upto(stage, t), full)
        yield from _step(found, t, dec, head, colour)
    if found.neighbours and step is None:
        yield from _heading("Nearest learned embeddings, by cosine (§3.4)")
        for side, rows in found.neighbours.items():
            for n in rows:
                yield f"  {side}  {_pad(n.piece, 14)} " + "  ".join(f"{_clean(p)} {c:.3f}" for p, c in n.near)
    yield from _heading("Translations, best first (§6.1: beam search with length penalty)")
    for rank, (text, h) in enumerate(zip(found.texts, found.hypotheses, strict=True), 1):
        yield f"  {rank}  score {h.score:9.4f}   log P(y | x) {h.log_prob:9.4f}   {_clean(text)}"
    yield ""
    taken = "".join(_coloured(s.piece, s.probability, colour) for s in found.steps[:-1]).replace("▁", " ").strip()
    if colour:
        legend = "  ".join(_coloured(f"p ≥ {least}", least, True) for least, _ in COLOURS)
        yield f"{taken}    ({legend})"
        yield ""
    yield _clean(found.texts[0])


def _heading(text: str) -> Iterator[str]:
    yield ""
    yield text
    yield "─" * min(_width(text), 100)


def _ids(pieces: Sequence[str], ids: Sequence[int]) -> Iterator[str]:
    cells = [max(_width(_clean(piece)), len(str(i))) for piece, i in zip(pieces, ids, strict=True)]
    start = 0
    while start < len(ids):  # as many to a line as fit
        end = start + 1
        while end < len(ids) and sum(cells[start : end + 1]) + 2 * (end - start) < 96:
            end += 1
        for row in (pieces[start:end], [str(i) for i in ids[start:end]]):
            yield "  " + "  ".join(_pad(x, cell) for x, cell in zip(row, cells[start:end], strict=True)).rstrip()
        start = end


def _matrix(stage: Stage, full: bool) -> Iterator[str]:
    shape = " × ".join(map(str, stage.values.shape))
    yield ""
    yield f"{stage.title}   {stage.formula}   [{shape}]   {stage.paper}"
    values, rows = stage.values.float().cpu(), stage.rows
    label = max(_width(_clean(row)) for row in rows)
    if stage.key.endswith(".weights") and not full:
        for row, line in zip(rows, values, strict=True):
            yield f"  {_pad(row, label)}  → {_strongest(line, stage.columns or ())}"
        return
    height, width = (len(rows), values.size(1)) if full else (ROWS, COLUMNS)
    if stage.columns is not None:
        names = [_pad(_clip(name, 8), 8, right=True) for name in stage.columns[:width]]
        yield f"  {' ' * label}  " + " ".join(names)
    for row, line in list(zip(rows, values.tolist(), strict=True))[:height]:
        cells = " ".join(f"{x:8.4f}" if x > -1e30 else "      −∞" for x in line[:width])
        yield f"  {_pad(row, label)}  {cells}{'  …' if width < len(line) else ''}"
    if height < len(rows):
        yield f"  … {len(rows) - height} more rows"


def _strongest(weights: Tensor, names: Sequence[str]) -> str:
    """The largest weights of one row, with the pieces they belong to."""
    best = weights.topk(min(MOST, len(weights)))
    found = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    return "   ".join(f"{_clean(names[i])} {value:.3f}" for value, i in found if value >= 0.0005)


def _upto(stage: Stage, t: int) -> Stage:
    """What step `t` sees of a decoder's stage: its own row, and every key and value so far."""
    own, name = ".self." in stage.key, stage.key.rsplit(".", 1)[-1]
    if name in ("k", "v"):
        return replace(stage, rows=stage.rows[: t + 1], values=stage.values[: t + 1]) if own else stage
    values, columns = stage.values[t : t + 1], stage.columns
    if own and columns is not None:
        values, columns = values[:, : t + 1], columns[: t + 1]
    return replace(stage, rows=stage.rows[t : t + 1], values=values, columns=columns)


def _read(found: Explanation, t: int) -> str:
    read = [_clean(piece) for piece in found.decoder_pieces[: t + 1]]
    return " ".join(read if len(read) < 9 else ["…", *read[-8:]])


def _step(found: Explanation, t: int, layer: int, head: int, colour: bool) -> Iterator[str]:
    own, cross = (found.weights(kind)[layer][head, t].float().cpu() for kind in ("decoder", "cross"))
    yield f"  masked self-attention  §3.2.3  {_strongest(own[: t + 1], found.decoder_pieces)}"
    yield f"  attention to source    §3.2.3  {_strongest(cross, found.src_pieces)}"
    step = found.steps[t]
    label = max(_width(_clean(piece)) for _, piece, _ in step.top)
    for rank, (i, piece, p) in enumerate(step.top, 1):
        mark = "←" if i == step.id else ""
        name = "softmax of the logits  §3.4  " if rank == 1 else " " * 29
        yield f"  {name}  {_pad(piece, label)}  {p:.4f}  {'█' * round(20 * p)} {mark}".rstrip()
    so_far = sum(s.log_prob for s in found.steps[: t + 1])
    piece = _coloured(step.piece, step.probability, colour)
    yield f"  taken: {piece}   p = {step.probability:.4f}   log p = {step.log_prob:.4f}   so far {so_far:.4f}"
    here = [node for node in found.tree if node.step == t + 1]
    if here:
        kept = "   ".join(f"{_clean(n.piece)} {n.log_prob:.3f}" for n in here if n.state == "kept")
        done = "   ".join(f"score {n.score:.3f} (rank {n.rank})" for n in here if n.state == "finished")
        yield f"  beam §6.1: keeps {kept or 'none'}" + (f"; finished: {done}" if done else "")


def _coloured(text: str, p: float, colour: bool) -> str:
    code = next(code for least, code in COLOURS if p >= least)
    return f"{code}{_clean(text)}\033[0m" if colour else _clean(text)


def _clean(text: str) -> str:
    """Nothing that a terminal would obey."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _width(text: str) -> int:
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _clip(text: str, width: int) -> str:
    while _width(text) > width:
        text = text[:-1]
    return text


def _pad(text: str, width: int, *, right: bool = False) -> str:
    text = _clean(text)
    space = " " * max(0, width - _width(text))
    return space + text if right else text + space
