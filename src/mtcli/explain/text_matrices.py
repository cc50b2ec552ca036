"""The matrices of an explanation as text: every stage of one layer and head, or one decoder step."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.cells import cell_len, set_cell_size
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from torch import Tensor

from mtcli.explain.explanation import CROSS, DECODER_SELF, BeamNode, Explanation
from mtcli.explain.stage import Stage
from mtcli.explain.stages import decoder_stages, embedding_stages, encoder_stages, memory_stage, output_stages
from mtcli.explain.text_parts import coloured, heading, hypotheses_table, plain_table
from mtcli.runtime.terminal import printable
from mtcli.runtime.wording import counted

NUMBER_WIDTH = 8
NUM_ATTENDED = 3
"""Number of attended tokens listed for each query."""
MIN_WEIGHT = 0.0005
"""Attention weights below this are not listed."""
SUBLAYERS = {"self": "self-attention", "cross": "cross-attention", "ffn": "feed-forward network"}
"""Sub-layers by their part of the key of a stage."""


def details(explanation: Explanation, layer: int, head: int, step: int | None, width: int) -> Iterator[RenderableType]:
    """Yield the matrices of one layer and head, with the tokens that each step chooses from.

    Args:
        explanation: The explanation.
        layer: Layer, from 0; a stack with fewer layers shows its last one.
        head: Head, from 0.
        step: The only decoder step to show, from 0; None: all.
        width: Columns of the terminal, to which matrices are cut.
    """
    model = explanation.backend.model
    yield Text(printable(explanation.source))
    heads = counted(model.config.num_heads, "head")
    yield Text(
        f"{len(model.encoder)} encoder and {len(model.decoder)} decoder layers, {heads}, "
        f"d_model {model.config.d_model}. Sections (§) are those of “Attention Is All You Need”.",
        style="dim",
    )
    if step is None:
        yield from _all_stages(explanation, layer, head, width)
    else:
        yield from _one_step(explanation, step, layer, head, width)
    yield heading("Translations, best first")
    yield from hypotheses_table(explanation)
    yield Text()
    yield Text(printable(explanation.texts[0]), style="bold")


def _all_stages(explanation: Explanation, layer: int, head: int, width: int) -> Iterator[RenderableType]:
    """Yield every stage of one layer and head in the order of computation, then every step."""
    model = explanation.backend.model
    encoder_layer = min(layer, len(model.encoder) - 1)
    decoder_layer = min(layer, len(model.decoder) - 1)
    yield heading("Source tokens and ids (§5.1)")
    yield _ids_table(explanation.src_tokens, explanation.src_ids)
    yield from _matrices(embedding_stages(explanation, "src"), head, width)
    yield heading(f"Encoder layer {encoder_layer + 1}, head {head + 1}")
    yield from _matrices(encoder_stages(explanation, encoder_layer, head), head, width)
    yield from _matrices([memory_stage(explanation)], head, width)
    yield heading(f"Decoder layer {decoder_layer + 1}, head {head + 1}, all steps")
    yield from _matrices(_target_stages(explanation, decoder_layer, head), head, width)
    for position in range(len(explanation.steps)):
        yield _step_heading(explanation, position)
        yield from _step_details(explanation, position, decoder_layer, head)
    if explanation.neighbours:
        yield heading("Nearest learned embeddings, by cosine similarity (§3.4)")
        yield _neighbours_table(explanation)


def _one_step(explanation: Explanation, step: int, layer: int, head: int, width: int) -> Iterator[RenderableType]:
    """Yield the decoder stages that one step computes, and its probabilities."""
    decoder_layer = min(layer, len(explanation.backend.model.decoder) - 1)
    yield _step_heading(explanation, step)
    stages = [_at_step(stage, step) for stage in _target_stages(explanation, decoder_layer, head)]
    yield from _matrices(stages, head, width)
    yield from _step_details(explanation, step, decoder_layer, head)


def _target_stages(explanation: Explanation, layer: int, head: int) -> list[Stage]:
    """Return the stages of the target without the logits, whose most probable tokens are listed in the steps."""
    return [
        *embedding_stages(explanation, "tgt"),
        *decoder_stages(explanation, layer, head),
        output_stages(explanation)[0],
    ]


def _ids_table(tokens: Sequence[str], ids: Sequence[int]) -> Table:
    table = plain_table("token", "id", right=("id",))
    for token, token_id in zip(tokens, ids, strict=True):
        table.add_row(printable(token), str(token_id))
    return table


def _neighbours_table(explanation: Explanation) -> Table:
    table = plain_table("side", "token", "nearest")
    for side, rows in explanation.neighbours.items():
        for row in rows:
            nearest = "  ".join(f"{printable(token)} {cosine:.3f}" for token, cosine in row.near)
            table.add_row(side, printable(row.token), nearest)
    return table


def _matrices(stages: Sequence[Stage], head: int, width: int) -> Iterator[RenderableType]:
    """Yield each stage, with a heading where a sub-layer begins."""
    previous = ""
    for stage in stages:
        sublayer = _sublayer(stage.key)
        if sublayer not in ("", previous):
            yield heading(sublayer)
        previous = sublayer
        shape = " × ".join(map(str, stage.values.shape))
        of_head = f" (head i = {head + 1})" if stage.of_head else ""
        formula = stage.formula.replace("{", "(").replace("}", ")")
        yield Text(f"\n{stage.title}{of_head}   {formula}   [{shape}]   {stage.paper}")
        yield Text(stage.description, style="dim")
        yield _matrix(stage, width)


def _sublayer(key: str) -> str:
    """Name the sub-layer that a stage belongs to, by the key of the stage; empty for stages outside of the layers."""
    stack, *names = key.split(".")
    if stack not in ("encoder", "decoder"):
        return ""
    layer, sublayer, _ = names
    masked = " (masked)" if stack == "decoder" and sublayer == "self" else ""
    return f"{stack.capitalize()} layer {layer}: {SUBLAYERS[sublayer]}{masked}"


def _matrix(stage: Stage, width: int) -> Table:
    """Return a matrix, cut to `width`, with the token of each row, and of each column if it belongs to one."""
    label_width = max(cell_len(printable(token)) for token in stage.rows)
    num_shown = max(1, (width - label_width - 6) // (NUMBER_WIDTH + 1))
    ellipsis = " …" if num_shown < stage.values.size(1) else ""
    names = ""
    if stage.columns is not None:
        names = " ".join(_right(token, NUMBER_WIDTH) for token in stage.columns[:num_shown])
    table = plain_table("", names, header=bool(names))
    for token, row in zip(stage.rows, stage.values.float().cpu().tolist(), strict=True):
        numbers = " ".join(_number(value) for value in row[:num_shown])
        table.add_row(printable(token), numbers + ellipsis)
    return table


def _right(token: str, width: int) -> str:
    """Return a token right-aligned in `width` columns, and cut if it is wider."""
    shown = printable(token)
    missing = width - cell_len(shown)
    return " " * missing + shown if missing >= 0 else set_cell_size(shown, width)


def _number(value: float) -> str:
    text = "−∞" if value == -float("inf") else f"{value:.4f}"
    return f"{text:>{NUMBER_WIDTH}}"


def _at_step(stage: Stage, step: int) -> Stage:
    """Return the part of a decoder stage that one step uses: its own row, and all keys and values up to it."""
    is_self_attention = ".self." in stage.key
    name = stage.key.rpartition(".")[2]
    if name in ("k", "v"):
        if not is_self_attention:
            return stage
        return replace(stage, rows=stage.rows[: step + 1], values=stage.values[: step + 1])
    values = stage.values[step : step + 1]
    columns = stage.columns
    if is_self_attention and columns is not None:
        values = values[:, : step + 1]
        columns = columns[: step + 1]
    return replace(stage, rows=stage.rows[step : step + 1], values=values, columns=columns)


def _step_heading(explanation: Explanation, step: int) -> Text:
    read = [printable(token) for token in explanation.decoder_tokens[: step + 1]]
    if len(read) > 8:
        read = ["…", *read[-8:]]
    return heading(f"Step {step + 1} of {len(explanation.steps)}: the decoder has read {' '.join(read)}")


def _step_details(explanation: Explanation, position: int, layer: int, head: int) -> Iterator[RenderableType]:
    """Yield the tokens that one step attends to, its most probable tokens, and the hypotheses that the beam keeps."""
    step = explanation.steps[position]
    own = explanation.weights(DECODER_SELF)[layer][head, position, : position + 1]
    cross = explanation.weights(CROSS)[layer][head, position]
    attended = plain_table("attention", "paper", "tokens", header=False)
    attended.add_row("decoder self-attention (masked)", "§3.2.3", _most_attended(own, explanation.decoder_tokens))
    attended.add_row("cross-attention", "§3.2.3", _most_attended(cross, explanation.src_tokens))
    yield attended
    top = plain_table("most probable (§3.4)", "p", "", right=("p",))
    for token_id, token, probability in step.top:
        chosen = " ← chosen" if token_id == step.id else ""
        top.add_row(printable(token), f"{probability:.4f}", "█" * round(20 * probability) + chosen)
    yield top
    total = sum(earlier.log_prob for earlier in explanation.steps[: position + 1])
    chosen_line = Text("chosen: ")
    chosen_line.append_text(coloured(step))
    chosen_line.append(f"   p = {step.probability:.4f}   log p = {step.log_prob:.4f}   sum {total:.4f}")
    yield chosen_line
    nodes = [node for node in explanation.tree if node.step == position + 1]
    if nodes:
        yield Text(_beam_line(nodes))


def _beam_line(nodes: Sequence[BeamNode]) -> str:
    kept = [f"{printable(node.token)} {node.log_prob:.3f}" for node in nodes if node.state == "kept"]
    finished = [f"score {node.score:.3f} (rank {node.rank})" for node in nodes if node.state == "finished"]
    line = f"beam (§6.1): keeps {'   '.join(kept) or 'none'}"
    if finished:
        line += f"; finished: {'   '.join(finished)}"
    return line


def _most_attended(weights: Tensor, tokens: Sequence[str]) -> str:
    """Return the largest weights of one row with their tokens."""
    best = weights.float().cpu().topk(min(NUM_ATTENDED, len(weights)))
    pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
    return "   ".join(f"{printable(tokens[index])} {weight:.3f}" for weight, index in pairs if weight >= MIN_WEIGHT)
