"""`mtcli augment`: translate monolingual text into synthetic training pairs, filter them and write them.

The text is read in windows. Each window is translated, filtered and saved before the next one is read. So a command
that was killed continues after its last whole window, and on a CPU writes the same bytes as one that was not.
"""

import hashlib
import logging
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from mtcli.corpus.quality.rules import tidy
from mtcli.errors import DataError, UsageError
from mtcli.recipes.augment_output import AugmentState, PairOutput, unfinished_output, write_best_pairs
from mtcli.recipes.monolingual import (
    BLANK,
    DUPLICATE,
    TOO_LONG,
    WRONG_SCRIPT,
    Record,
    has_wrong_script,
    is_in_other_language,
    main_script,
    problem_of,
)
from mtcli.runtime.progress import Progress
from mtcli.runtime.wording import counted
from mtcli.text.languages import Direction, same
from mtcli.text.lines import Counts, read_lines
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG, Tokenizer
from mtcli.text.writing_systems import UNSPACED, unspaced
from mtcli.translate.backends.backend import Backend
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.line_warnings import MAX_TAGS_NAMED
from mtcli.translate.scoring import likelihoods
from mtcli.translate.streams import report_counts
from mtcli.translate.translation import Candidate, Options
from mtcli.translate.translator import Translator
from mtcli.translate.windows import MAX_LINE_TOKENS, WINDOW, Reading

log = logging.getLogger(__name__)

SynthesisMethod = Literal["beam", "sample", "noise"]

LOW_SCORE = "low score"

DROP_PROBABILITY = 0.1
"""Probability of dropping a word."""

MAX_MOVE = 3
"""Words are moved by at most this many places (Lample et al. 2018)."""

_UNIT = re.compile(rf"{UNSPACED.pattern}|(?:(?!{UNSPACED.pattern})\S)+")
"""A unit of text without spaces: a character of its script, or a run of others, such as a name or a number."""


@dataclass(frozen=True)
class Synthesis:
    """What `augment` makes of a monolingual text."""

    method: SynthesisMethod = "beam"
    """The synthetic side is the best of a beam search, a sample, or the best of a beam search with noise."""
    forward: bool = False
    """The synthetic side is the target (forward translation); otherwise it is the source (back-translation)."""
    tag: bool = False
    """Begin each synthetic source with `BACK_TRANSLATION_TAG`."""
    n_best: int = 1
    """Translations of each line, each of which makes a pair."""
    keep: float = 1.0
    """Share of the pairs to keep, those with the best scores."""
    seed: int = 1
    """Seed of sampling and of noise."""


@dataclass(frozen=True)
class AugmentModels:
    """The models of an `augment` command."""

    translator: Translator
    """Translates the monolingual text."""
    options: Options
    languages: tuple[str, str]
    """The direction of the translations."""
    scorer: PyTorchBackend | None = None
    """Scores each pair in the opposite direction, if it is given."""

    def fits(self, line: str, translation: str = "") -> bool:
        """Return True if no model would have to shorten the line or its translation, see `MAX_LINE_TOKENS`."""
        if max(len(line.encode()), len(translation.encode())) < MAX_LINE_TOKENS:
            return True  # a token has at least one byte, except the one for the space before the text
        tokenizer = self.translator.tokenizer
        encoded = [*tokenizer.encode_src([line]), *tokenizer.encode_tgt([translation])]
        if self.scorer is not None:
            encoded += self.scorer.tokenizer.encode_src([translation])
            encoded += self.scorer.tokenizer.encode_tgt([line])
        return max(map(len, encoded)) <= MAX_LINE_TOKENS


@dataclass(frozen=True)
class AugmentReport:
    """The result of a command.

    Each line that is not dropped makes at most `Synthesis.n_best` pairs. Each pair is written or dropped.
    """

    lines: int
    written: int
    dropped: Counter[str]

    def __str__(self) -> str:
        parts = [f"{counted(self.lines, 'line')} read", f"{counted(self.written, 'pair')} written"]
        parts += [f"{number:,} dropped: {reason}" for reason, number in self.dropped.most_common()]
        return "\n".join(parts)


def augment(
    path: Path,
    output: PairOutput,
    models: AugmentModels,
    synthesis: Synthesis,
    identity: dict[str, Any],
    *,
    replace_invalid: bool = False,
    force: bool = False,
) -> AugmentReport:
    """Write synthetic pairs of a monolingual text.

    Args:
        path: The text, one sentence per line.
        output: The file to write.
        models: The models.
        synthesis: What to make.
        identity: Digests of text and models, and all options: a command continues another only if they are equal.
        replace_invalid: Read invalid UTF-8 as U+FFFD.
        force: Delete what another command left, or what is damaged.

    Raises:
        DataError: The text cannot be read, or a line lacks the tag of a target language, which the model needs.
        UsageError: Another command left an unfinished output.
        StorageError: The output cannot be written.
        StoppedError: A signal arrived. The finished lines are kept for the same command.
    """
    # All lines are read once before the work, which may take hours: one that cannot be used is reported at once.
    tokenizer = models.translator.tokenizer
    tags = frozenset(() if models.options.to else tokenizer.tags.values())
    total = _checked_lines(path, tokenizer, tags, replace=replace_invalid)
    with unfinished_output(output.path, identity, force=force) as unfinished:
        if unfinished.state.lines:
            log.info("continuing after line %s of %s", f"{unfinished.state.lines:,}", path)
        counts = Counts()
        lines = read_lines(path, replace=replace_invalid, counts=counts)
        # The lines that were processed before the interruption are read again, to recognise their duplicates.
        seen = {_digest(tidy(line)) for line in islice(lines, unfinished.state.lines)}
        with Progress("translating", total=total, done=unfinished.state.lines, unit="lines") as bar:
            while window := list(islice(lines, WINDOW)):
                if unfinished.state.lines == 0:
                    _warn_of_language(window, path, models.languages)
                records, state = _process_window(window, unfinished.state, seen, models, synthesis)
                unfinished.append(records, state)
                bar.update(len(window))
        report_counts(counts)
        state = unfinished.state
        written, low = write_best_pairs(unfinished.records, output, synthesis.keep)
    return AugmentReport(state.lines, written, Counter(state.dropped) + Counter({LOW_SCORE: low}))


def chosen_direction(backend: Backend, src: str | None, to: str | None) -> Direction:
    """Return the direction in which a model translates a text.

    Args:
        backend: The model.
        src: The language of the text; None: the model has one, or `to` decides.
        to: The language to translate into; None: the model has one, or `src` decides, or the lines have tags.

    Raises:
        UsageError: The model has no such direction, or several.
    """
    info = backend.info
    if not info.directions:
        if src is not None and not same(src, info.src):
            raise UsageError(f"--from {src}: this model translates from {info.src} only; omit --from")
        if to is None:
            return info.languages
        backend.tokenizer.tag_of(to)
        return Direction(info.src, to)
    found = [
        direction
        for direction in info.directions
        if (src is None or same(src, direction.src)) and (to is None or same(to, direction.tgt))
    ]
    if len(found) != 1:
        given = " ".join(f"{name} {code}" for name, code in (("--from", src), ("--to", to)) if code is not None)
        directions = ", ".join(map(str, info.directions))
        problem = "the model has several directions" if found else "the model has no such direction"
        where = f"{given}: " if given else ""
        raise UsageError(f"{where}{problem}; choose with --from and --to: {directions}")
    return found[0]


def _checked_lines(path: Path, tokenizer: Tokenizer, tags: frozenset[int], *, replace: bool) -> int:
    """Return the number of lines of a text.

    Args:
        path: The text.
        tokenizer: The model's.
        tags: The tags of target languages, of which each line needs one; empty: the lines need none.
        replace: Read invalid UTF-8 as U+FFFD.

    Raises:
        DataError: It cannot be read, or a line lacks the tag of a target language, which the model needs.
    """
    number = 0
    for number, line in enumerate(read_lines(path, replace=replace), 1):
        first_ids = tokenizer.encode_src([tidy(line)])[0][:1] if tags else []
        if not tags.issuperset(first_ids):
            names = ", ".join(f">>{name}<<" for name in sorted(tokenizer.tags)[:MAX_TAGS_NAMED])
            raise DataError(
                f"{path}:{number}: names no target language, and the model has several; begin each line with the tag "
                f"of one ({names})"
            )
    return number


def _warn_of_language(window: Sequence[str], path: Path, languages: tuple[str, str]) -> None:
    """Warn if the text is in the language that the model translates into: the model is probably the wrong one."""
    src, tgt = languages
    if is_in_other_language(window, src, tgt):
        log.warning(
            "%s: is probably in %s, but the model translates from %s; use a model of %s → %s",
            path, tgt, src, tgt, src,
        )  # fmt: skip


def _process_window(
    window: Sequence[str], state: AugmentState, seen: set[bytes], models: AugmentModels, synthesis: Synthesis
) -> tuple[list[Record], AugmentState]:
    """Translate and filter the lines of one window.

    Args:
        window: The lines.
        state: The state before this window.
        seen: Digests of all earlier lines. Those of this window are added.
        models: The models.
        synthesis: What to make.

    Returns:
        The records of the pairs that are kept, and the state after this window.
    """
    dropped = Counter(state.dropped)
    lines = _new_lines(window, seen, dropped)
    text_script = state.text_script or main_script(lines)
    in_script = [line for line in lines if not has_wrong_script(line, text_script)]
    dropped[f"{WRONG_SCRIPT} in the text"] += len(lines) - len(in_script)
    accepted = [line for line in in_script if models.fits(line)]
    dropped[f"{TOO_LONG} in the text"] += len(in_script) - len(accepted)
    drafts = list(_translated(accepted, state.lines, models, synthesis))
    synthetic_script = state.synthetic_script or main_script(candidate.text for _, candidate in drafts)
    kept = []
    for line, candidate in drafts:
        problem = problem_of(line, candidate.text, synthetic_script)
        if not problem and not models.fits(line, candidate.text):
            problem = TOO_LONG
        if problem:
            dropped[problem] += 1
        else:
            kept.append((line, candidate))
    records = _records(kept, state.lines, models, synthesis)
    new_state = AugmentState(
        lines=state.lines + len(window),
        dropped=dict(+dropped),
        text_script=text_script,
        synthetic_script=synthetic_script,
    )
    return records, new_state


def _new_lines(window: Sequence[str], seen: set[bytes], dropped: Counter[str]) -> list[str]:
    """Return the lines with tidy white space, without blank lines and those seen before. Both are counted."""
    lines = []
    for line in map(tidy, window):
        digest = _digest(line)
        if not line:
            dropped[BLANK] += 1
        elif digest in seen:
            dropped[DUPLICATE] += 1
        else:
            lines.append(line)
        seen.add(digest)
    return lines


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()


def _translated(
    lines: Sequence[str], first: int, models: AugmentModels, synthesis: Synthesis
) -> Iterator[tuple[str, Candidate]]:
    """Yield each line with each of its translations.

    Args:
        lines: The lines.
        first: Number of the first line of the window in the text. Samples depend on it.
        models: The models.
        synthesis: What to make.
    """
    seed = int.from_bytes(_digest(f"{synthesis.seed} {first}")[:4], "big")
    options = replace(models.options, n_best=synthesis.n_best, sample=synthesis.method == "sample", seed=seed)
    for translation in models.translator.translate(lines, options, Reading(warn=False, quiet=True)):
        for candidate in translation.candidates:
            yield translation.source, candidate


def _records(
    drafts: Sequence[tuple[str, Candidate]], first: int, models: AugmentModels, synthesis: Synthesis
) -> list[Record]:
    """Return the records of the pairs of one window, with their scores.

    Args:
        drafts: Each line with one of its translations.
        first: Number of the first line of the window in the text. The noise depends on it.
        models: The models.
        synthesis: What to make.
    """
    encoded = models.translator.tokenizer.encode_tgt([candidate.text for _, candidate in drafts])
    language_of_line, language_of_translation = models.languages
    reverse = _reverse_log_probs(drafts, models.scorer, language_of_line)
    records: list[Record] = []
    for number, (line, candidate) in enumerate(drafts):
        mean_log_prob = candidate.log_prob / (len(encoded[number]) + 1)
        scores = {"log_prob": mean_log_prob, "score": mean_log_prob}
        if reverse:
            scores |= {"reverse_log_prob": reverse[number], "score": dual_score(mean_log_prob, reverse[number])}
        synthetic = candidate.text
        if synthesis.method == "noise":
            synthetic = with_noise(synthetic, synthesis.seed, first * synthesis.n_best + number)
        if synthesis.tag:
            synthetic = BACK_TRANSLATION_TAG + synthetic
        texts = [(language_of_line, line), (language_of_translation, synthetic)]
        translation = dict(texts if synthesis.forward else reversed(texts))
        records.append({"translation": translation, **scores})
    return records


def _reverse_log_probs(
    drafts: Sequence[tuple[str, Candidate]], scorer: PyTorchBackend | None, language: str
) -> list[float]:
    """Return log P(line | translation) per token in nats for each draft; nothing without a scorer.

    Args:
        drafts: Each line with one of its translations.
        scorer: The model of the opposite direction.
        language: The language of the lines.
    """
    if scorer is None:
        return []
    pairs = [(candidate.text, line) for line, candidate in drafts]
    to = language if scorer.tokenizer.has_tag(language) else ""
    found = likelihoods(scorer, pairs, to=to, quiet=True)
    return [likelihood.mean for likelihood in found if likelihood is not None]


def dual_score(log_prob: float, reverse_log_prob: float) -> float:
    """Return the negated dual conditional cross-entropy (Junczys-Dowmunt 2018, equation 2): high for good pairs.

    Two models of opposite directions must both find the pair likely, and agree.

    Args:
        log_prob: log P(y | x) per token, in nats.
        reverse_log_prob: log P(x | y) per token, in nats.
    """
    return -abs(log_prob - reverse_log_prob) + (log_prob + reverse_log_prob) / 2


def with_noise(text: str, seed: int, number: int) -> str:
    """Return a text with words dropped and moved, or characters in a language without spaces. At least one is left.

    A source translated by a beam search is more regular than human text. With noise, a model learns more from it where
    there are many synthetic pairs (Edunov et al. 2018, §2). They also replace words by a filler token; it is omitted
    here, because the vocabularies have no such token.

    Args:
        text: The text.
        seed: Seed of the command.
        number: Number of the text. Its noise depends on nothing else, so an interrupted command can resume.
    """
    digest = hashlib.sha256(f"noise {seed} {number}".encode()).digest()
    generator = random.Random(int.from_bytes(digest[:8], "big"))
    is_unspaced = unspaced([text])
    words = _UNIT.findall(text) if is_unspaced else text.split()
    kept = [word for word in words if generator.random() >= DROP_PROBABILITY]
    if not kept:
        kept = words[:1]
    keys = [place + generator.random() * (MAX_MOVE + 1) for place in range(len(kept))]
    order = sorted(range(len(kept)), key=keys.__getitem__)
    return ("" if is_unspaced else " ").join(kept[place] for place in order)
