"""Render an explanation as text for the terminal: a summary on one screen by default, every matrix on request.

`rich` lays out the tables. Without colour the result is plain text. Control characters in tokens are escaped.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text
from torch import Tensor

from mtcli.explain.explanation import CROSS, DECODER_SELF, BeamNode, Explanation, Step, Vote
from mtcli.explain.stages import (
    ModelStage,
    decoder_stages,
    embedding_stages,
    encoder_stages,
    memory_stage,
    output_stages,
)
from mtcli.runtime.wording import counted, printable
from mtcli.search.length import penalty_formula

DEFAULT_WIDTH = 100
UNLIMITED_WIDTH = 100_000
MAX_STEPS = 20
"""Maximum number of decoder steps in the summary."""
MAX_SOURCE_TOKENS = 60
"""Maximum number of source tokens in the summary."""
MAX_HYPOTHESES = 5
"""Maximum number of hypotheses in the summary."""
NUMBER_WIDTH = 8
NUM_ATTENDED = 3
"""Number of attended tokens listed for each query."""
MIN_WEIGHT = 0.0005
"""Attention weights below this are not listed."""
SUBLAYERS = {"self": "self-attention", "cross": "cross-attention", "ffn": "feed-forward network"}
"""Sub-layers by their part of the key of a stage."""
CONFIDENCE_STYLES = ((0.9, "green"), (0.6, "cyan"), (0.3, "yellow"), (0.0, "red"))
"""(probability, colour): a token has the colour of the first row whose probability it reaches."""


def to_text(
    explanation: Explanation,
    layer: int | None = None,
    head: int | None = None,
    *,
    step: int | None = None,
    full: bool = False,
    colour: bool = False,
    width: int | None = None,
) -> str:
    """Return the explanation as lines of text.

    Args:
        explanation: The explanation.
        layer: Layer, from 0. None: the sharpest cross-attention in the summary, otherwise the first layer.
        head: Head, from 0. None: the mean of the heads in the summary without `layer`, otherwise the first head.
        step: Show this decoder step only, from 0, with its matrices.
        full: Show every stage and every step instead of the summary; with `step`, whole matrices.
        colour: Colour tokens by probability.
        width: Columns of the terminal; None: matrices are not cut to a width.
    """
    if step is None and not full:
        parts = _summary(explanation, layer, head, colour)
        return _render(parts, width or DEFAULT_WIDTH, colour)
    if width is None and not full:
        width = DEFAULT_WIDTH
    columns = width or UNLIMITED_WIDTH
    parts = _details(explanation, layer or 0, head or 0, step, columns)
    return _render(parts, columns, colour)


def _render(parts: Iterable[RenderableType], width: int, colour: bool) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
    for part in parts:
        console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())


def _summary(explanation: Explanation, layer: int | None, head: int | None, colour: bool) -> Iterator[RenderableType]:
    """Yield the lines and tables of the summary.

    Args:
        explanation: The explanation.
        layer: The decoder layer whose cross-attention is shown, from 0. None: the first one.
        head: Its head, from 0. None: the first one. Without layer and head: the mean of the sharpest layer's heads.
        colour: Explain the colours of the tokens.
    """
    yield Text(printable(explanation.source))
    yield Text(printable(explanation.texts[0]), style="bold")
    yield _heading("Source tokens")
    yield _numbered(explanation.src_tokens)
    if layer is None and head is None:
        layer = explanation.sharpest_layer()
        weights = explanation.weights(CROSS)[layer].mean(dim=0)
        which = f"cross-attention of decoder layer {layer + 1}, mean of heads (the sharpest alignment)"
    else:
        layer = min(layer or 0, len(explanation.weights(CROSS)) - 1)
        head = head or 0
        weights = explanation.weights(CROSS)[layer][head]
        which = f"cross-attention of decoder layer {layer + 1}, head {head + 1}"
    yield _heading("Translation, step by step")
    yield Text(f"Each row: one token, its probability, and the {which}.", style="dim")
    yield _steps_table(explanation, weights.float().cpu())
    if len(explanation.steps) > MAX_STEPS:
        yield _more(len(explanation.steps) - MAX_STEPS, "steps")
    if colour:
        yield _confidence_legend()
    if explanation.votes:
        yield _heading("Votes of the models")
        yield Text("p of the token above, and in brackets what a model would choose instead.", style="dim")
        yield _votes_table(explanation)
    yield _heading("Beam search")
    yield from _hypotheses_table(explanation, MAX_HYPOTHESES)
    yield _heading("More: add one of these to the command")
    yield _next_options(len(explanation.weights(CROSS)))


def _numbered(tokens: Sequence[str]) -> Text:
    """Return the tokens with their numbers, from 1."""
    shown = [f"{number}:{printable(token)}" for number, token in enumerate(tokens[:MAX_SOURCE_TOKENS], 1)]
    if len(tokens) > MAX_SOURCE_TOKENS:
        shown.append(f"… {len(tokens) - MAX_SOURCE_TOKENS} more")
    return Text("  ".join(shown))


def _steps_table(explanation: Explanation, weights: Tensor) -> Table:
    """Return a table with a row for each decoder step. The attention weights are (T, S)."""
    table = _plain_table("step", "token", "p", "attends most to", "next most probable", right=("step", "p"))
    rows = list(zip(explanation.steps, weights.tolist(), strict=True))
    for number, (step, row) in enumerate(rows[:MAX_STEPS], 1):
        largest = max(range(len(row)), key=row.__getitem__)
        attended = f"{printable(explanation.src_tokens[largest])} {row[largest]:.2f}"
        table.add_row(str(number), _coloured(step), f"{step.probability:.2f}", attended, _runner_up(step))
    return table


def _votes_table(explanation: Explanation) -> Table:
    """Return a table with a row for each decoder step and a column for each model of an ensemble."""
    models = [f"model {number}" for number in range(1, len(explanation.votes[0]) + 1)]
    table = _plain_table("step", "token", *models, right=("step",))
    rows = list(zip(explanation.steps, explanation.votes, strict=True))
    for number, (step, of_step) in enumerate(rows[:MAX_STEPS], 1):
        table.add_row(str(number), printable(step.token), *map(_vote, of_step))
    return table


def _vote(vote: Vote) -> str:
    if vote.agrees:
        return f"{vote.probability:.2f}"
    return f"{vote.probability:.2f} ({printable(vote.favourite)} {vote.favourite_probability:.2f})"


def _runner_up(step: Step) -> str:
    """Return the most probable token that was not chosen."""
    for token_id, token, probability in step.top:
        if token_id != step.id:
            return f"{printable(token)} {probability:.2f}"
    return ""


def _confidence_legend() -> Text:
    legend = Text("p  ", style="dim")
    for least, style in CONFIDENCE_STYLES:
        label = f"≥ {least}" if least else f"< {CONFIDENCE_STYLES[-2][0]}"
        legend.append(label, style=style)
        legend.append("  ")
    return legend


def _next_options(num_layers: int) -> Table:
    """Return a table of options, for a model with this number of decoder layers."""
    table = _plain_table("option", "what", header=False)
    table.add_row("--html page.html", "a page with every layer and head, the beam tree and all matrices")
    table.add_row(f"--layer {min(2, num_layers)} --head 1", "another layer and head")
    table.add_row("--step 1", "one decoder step: its matrices, attention and probabilities")
    table.add_row("--full", "every matrix of a layer and head, and every step")
    table.add_row("--neighbours", "with --full or --html: the nearest embeddings of each token")
    return table


def _details(explanation: Explanation, layer: int, head: int, step: int | None, width: int) -> Iterator[RenderableType]:
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
    yield _heading("Translations, best first")
    yield from _hypotheses_table(explanation)
    yield Text()
    yield Text(printable(explanation.texts[0]), style="bold")


def _all_stages(explanation: Explanation, layer: int, head: int, width: int) -> Iterator[RenderableType]:
    """Yield every stage of one layer and head in the order of computation, then every step."""
    model = explanation.backend.model
    encoder_layer = min(layer, len(model.encoder) - 1)
    decoder_layer = min(layer, len(model.decoder) - 1)
    yield _heading("Source tokens and ids (§5.1)")
    ids = _plain_table("token", "id", right=("id",))
    for token, token_id in zip(explanation.src_tokens, explanation.src_ids, strict=True):
        ids.add_row(printable(token), str(token_id))
    yield ids
    yield from _matrices(embedding_stages(explanation, "src"), head, width)
    yield _heading(f"Encoder layer {encoder_layer + 1}, head {head + 1}")
    yield from _matrices(encoder_stages(explanation, encoder_layer, head), head, width)
    yield from _matrices([memory_stage(explanation)], head, width)
    yield _heading(f"Decoder layer {decoder_layer + 1}, head {head + 1}, all steps")
    yield from _matrices(_target_stages(explanation, decoder_layer, head), head, width)
    for position in range(len(explanation.steps)):
        yield _step_heading(explanation, position)
        yield from _step_details(explanation, position, decoder_layer, head)
    if explanation.neighbours:
        yield _heading("Nearest learned embeddings, by cosine similarity (§3.4)")
        yield _neighbours_table(explanation)


def _one_step(explanation: Explanation, step: int, layer: int, head: int, width: int) -> Iterator[RenderableType]:
    """Yield the decoder stages that one step computes, and its probabilities."""
    decoder_layer = min(layer, len(explanation.backend.model.decoder) - 1)
    yield _step_heading(explanation, step)
    stages = [_at_step(stage, step) for stage in _target_stages(explanation, decoder_layer, head)]
    yield from _matrices(stages, head, width)
    yield from _step_details(explanation, step, decoder_layer, head)


def _target_stages(explanation: Explanation, layer: int, head: int) -> list[ModelStage]:
    """Return the stages of the target without the logits, whose most probable tokens are listed in the steps."""
    return [
        *embedding_stages(explanation, "tgt"),
        *decoder_stages(explanation, layer, head),
        output_stages(explanation)[0],
    ]


def _neighbours_table(explanation: Explanation) -> Table:
    table = _plain_table("side", "token", "nearest")
    for side, rows in explanation.neighbours.items():
        for row in rows:
            nearest = "  ".join(f"{printable(token)} {cosine:.3f}" for token, cosine in row.near)
            table.add_row(side, printable(row.token), nearest)
    return table


def _matrices(stages: Sequence[ModelStage], head: int, width: int) -> Iterator[RenderableType]:
    """Yield each stage, with a heading where a sub-layer begins."""
    previous = ""
    for stage in stages:
        sublayer = _sublayer(stage.key)
        if sublayer not in ("", previous):
            yield _heading(sublayer)
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


def _matrix(stage: ModelStage, width: int) -> Table:
    """Return a matrix, cut to `width`, with the token of each row, and of each column if it belongs to one."""
    label_width = max(cell_len(printable(token)) for token in stage.rows)
    num_shown = max(1, (width - label_width - 6) // (NUMBER_WIDTH + 1))
    ellipsis = " …" if num_shown < stage.values.size(1) else ""
    names = ""
    if stage.columns is not None:
        names = " ".join(_right(token, NUMBER_WIDTH) for token in stage.columns[:num_shown])
    table = _plain_table("", names, header=bool(names))
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


def _at_step(stage: ModelStage, step: int) -> ModelStage:
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
    return _heading(f"Step {step + 1} of {len(explanation.steps)}: the decoder has read {' '.join(read)}")


def _step_details(explanation: Explanation, position: int, layer: int, head: int) -> Iterator[RenderableType]:
    """Yield the tokens that one step attends to, its most probable tokens, and the hypotheses that the beam keeps."""
    step = explanation.steps[position]
    own = explanation.weights(DECODER_SELF)[layer][head, position, : position + 1]
    cross = explanation.weights(CROSS)[layer][head, position]
    attended = _plain_table("attention", "paper", "tokens", header=False)
    attended.add_row("decoder self-attention (masked)", "§3.2.3", _most_attended(own, explanation.decoder_tokens))
    attended.add_row("cross-attention", "§3.2.3", _most_attended(cross, explanation.src_tokens))
    yield attended
    top = _plain_table("most probable (§3.4)", "p", "", right=("p",))
    for token_id, token, probability in step.top:
        top.add_row(printable(token), f"{probability:.4f}", "← chosen" if token_id == step.id else "")
    yield top
    total = sum(earlier.log_prob for earlier in explanation.steps[: position + 1])
    chosen_line = Text("chosen: ")
    chosen_line.append_text(_coloured(step))
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


def _plain_table(*columns: str, right: Sequence[str] = (), header: bool = True) -> Table:
    """Return a table without lines. Cells that do not fit end in `…`."""
    table = Table(box=None, show_header=header, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True, overflow="ellipsis")
    return table


def _heading(text: str) -> Text:
    """Return a bold line with a blank line above it."""
    return Text(f"\n{text}", style="bold")


def _more(count: int, what: str) -> Text:
    """Return the line that says how much the summary omits."""
    return Text(f"… {count} more {what}; --full shows all", style="dim")


def _hypotheses_table(explanation: Explanation, most: int | None = None) -> Iterator[RenderableType]:
    """Yield a table of the finished hypotheses, best first, with at most `most` rows."""
    options = explanation.options
    if options.beam_size == 1:
        yield Text("beam size 1: greedy search, which keeps one hypothesis", style="dim")
    else:
        penalty = penalty_formula(options.length_penalty, options.length_normalization)
        score = f"score = log P(y | x) / {penalty}, n tokens (§6.1)"
        yield Text(f"beam size {options.beam_size}; {score}", style="dim")
    table = _plain_table("rank", "score", "log P", "translation", right=("rank", "score", "log P"))
    ranked = list(zip(explanation.texts, explanation.hypotheses, strict=True))
    for rank, (text, hypothesis) in enumerate(ranked[:most], 1):
        is_repeated = text in explanation.texts[: rank - 1]
        shown = (printable(text) or "(empty)") + ("  (same text, other tokens)" if is_repeated else "")
        table.add_row(str(rank), f"{hypothesis.score:.4f}", f"{hypothesis.log_prob:.4f}", shown)
    yield table
    if most is not None and len(ranked) > most:
        yield _more(len(ranked) - most, "hypotheses")


def _coloured(step: Step) -> Text:
    """Return the token of a step in the colour of its probability."""
    style = next(style for least, style in CONFIDENCE_STYLES if step.probability >= least)
    return Text(printable(step.token), style=style)
