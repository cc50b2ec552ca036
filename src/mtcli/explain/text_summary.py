"""An explanation on one screen: the steps with their tokens and attention, and the best hypotheses."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from torch import Tensor

from mtcli.explain.explanation import CROSS, Explanation, Step
from mtcli.explain.text_parts import CONFIDENCE_STYLES, coloured, heading, hypotheses_table, more, plain_table
from mtcli.explain.votes import Vote
from mtcli.runtime.terminal import printable

MAX_STEPS = 20
"""Maximum number of decoder steps in the summary."""
MAX_SOURCE_TOKENS = 60
"""Maximum number of source tokens in the summary."""
MAX_HYPOTHESES = 5
"""Maximum number of hypotheses in the summary."""
MAX_HEAT_COLUMNS = 15
"""The summary draws the attention weights of sentences up to this length: each source token takes three columns."""
SHADES = ((0.7, "██"), (0.4, "▓▓"), (0.2, "▒▒"), (0.05, "░░"), (0.0, " ·"))
"""(weight, characters): a weight is drawn with the characters of the first row whose weight it reaches."""


def summary(explanation: Explanation, layer: int | None, head: int | None, colour: bool) -> Iterator[RenderableType]:
    """Yield the lines and tables of the summary.

    Args:
        explanation: The explanation.
        layer: The decoder layer whose cross-attention is shown, from 0. None: the first one.
        head: Its head, from 0. None: the first one. Without layer and head: the mean of the sharpest layer's heads.
        colour: Explain the colours of the tokens.
    """
    yield Text(printable(explanation.source))
    yield Text(printable(explanation.texts[0]), style="bold")
    yield heading("Source tokens")
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
    yield heading("Translation, step by step")
    yield Text(f"Each row: one token, its probability, and the {which}.", style="dim")
    yield _steps_table(explanation, weights.float().cpu())
    if len(explanation.steps) > MAX_STEPS:
        yield more(len(explanation.steps) - MAX_STEPS, "steps")
    if colour:
        yield _confidence_legend()
    if explanation.votes:
        yield heading("Votes of the models")
        yield Text("p of the token above, and in brackets what a model would choose instead.", style="dim")
        yield _votes_table(explanation)
    yield heading("Beam search")
    yield from hypotheses_table(explanation, MAX_HYPOTHESES)
    yield heading("More: add one of these to the command")
    yield _next_options(len(explanation.weights(CROSS)))


def _numbered(tokens: Sequence[str]) -> Text:
    """Return the tokens with their numbers, from 1."""
    shown = [f"{number}:{printable(token)}" for number, token in enumerate(tokens[:MAX_SOURCE_TOKENS], 1)]
    if len(tokens) > MAX_SOURCE_TOKENS:
        shown.append(f"… {len(tokens) - MAX_SOURCE_TOKENS} more")
    return Text("  ".join(shown))


def _steps_table(explanation: Explanation, weights: Tensor) -> Table:
    """Return a table with a row for each decoder step.

    The attention weights (T, S) are drawn as shades under the numbers of the source tokens.
    """
    draws_heat = len(explanation.src_ids) <= MAX_HEAT_COLUMNS
    numbers = "".join(f"{number:2} " for number in range(1, len(explanation.src_ids) + 1))
    heat = [numbers] if draws_heat else []
    table = plain_table("step", "token", "p", *heat, "attends most to", "next most probable", right=("step", "p"))
    rows = list(zip(explanation.steps, weights.tolist(), strict=True))
    for number, (step, row) in enumerate(rows[:MAX_STEPS], 1):
        largest = max(range(len(row)), key=row.__getitem__)
        attended = f"{printable(explanation.src_tokens[largest])} {row[largest]:.2f}"
        cells: list[str | Text] = [str(number), coloured(step), f"{step.probability:.2f}"]
        if draws_heat:
            cells.append(" ".join(_shade(weight) for weight in row))
        table.add_row(*cells, attended, _runner_up(step))
    return table


def _votes_table(explanation: Explanation) -> Table:
    """Return a table with a row for each decoder step and a column for each model of an ensemble."""
    models = [f"model {number}" for number in range(1, len(explanation.votes[0]) + 1)]
    table = plain_table("step", "token", *models, right=("step",))
    rows = list(zip(explanation.steps, explanation.votes, strict=True))
    for number, (step, of_step) in enumerate(rows[:MAX_STEPS], 1):
        table.add_row(str(number), printable(step.token), *map(_vote, of_step))
    return table


def _vote(vote: Vote) -> str:
    if vote.agrees:
        return f"{vote.probability:.2f}"
    return f"{vote.probability:.2f} ({printable(vote.favourite)} {vote.favourite_probability:.2f})"


def _shade(weight: float) -> str:
    return next(shade for least, shade in SHADES if weight >= least)


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
    table = plain_table("option", "what", header=False)
    table.add_row("--html page.html", "a page with every layer and head, the beam tree and all matrices")
    table.add_row(f"--layer {min(2, num_layers)} --head 1", "another layer and head")
    table.add_row("--step 1", "one decoder step: its matrices, attention and probabilities")
    table.add_row("--full", "every matrix of a layer and head, and every step")
    table.add_row("--neighbours", "with --full or --html: the nearest embeddings of each token")
    return table
