"""Variants of training pairs: what an epoch has, and that they depend on the seed and the epoch alone."""

from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from conftest import TOY_SETTINGS, toy_pairs, write_tsv
from helpers.command import call

from mtcli.config.toml_file import load
from mtcli.corpus import batching, variants
from mtcli.corpus.batching import BatchPlan, PairSource, Position, collate
from mtcli.corpus.cache.encoded_pairs import EncodedPairs, encode_pairs
from mtcli.corpus.cache.info import DataInfo
from mtcli.corpus.variants import SourceLengths, Variants, with_capitals
from mtcli.errors import StorageError
from mtcli.text.languages import Direction
from mtcli.text.lines import Counts
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG, Tokenizer

LANGUAGES = Direction("en", "xx")
PAIRS = [(BACK_TRANSLATION_TAG * (i % 5 == 0) + src, tgt) for i, (src, tgt) in enumerate(toy_pairs(400))]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    pairs = with_capitals(((0, pair) for pair in PAIRS), [LANGUAGES])
    return train_tokenizer([pair for _, pair in pairs], vocab_size=340)


@pytest.fixture(scope="module")
def cache(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> EncodedPairs:
    path = tmp_path_factory.mktemp("cache") / "c.arrow"
    encode_pairs(((0, pair) for pair in PAIRS), tokenizer, path, max_length=256, counts=Counts())
    return EncodedPairs(path)


def plan_of(cache: EncodedPairs, tokenizer: Tokenizer, *, seed: int = 3, max_length: int = 256) -> BatchPlan:
    return BatchPlan(
        cache, 400, 5, [(len(cache), 1.0)], Variants(tokenizer, [(len(cache), LANGUAGES)], max_length, seed)
    )


def rows_of(pairs: PairSource, rows: list[int]) -> list[tuple[list[int], list[int]]]:
    sides = [np.split(ids, lengths.cumsum())[:-1] for ids, lengths in pairs.gather(np.array(rows))]
    return [(src.tolist(), tgt.tolist()) for src, tgt in zip(*sides, strict=True)]


def text_of(tokenizer: Tokenizer, row: tuple[list[int], list[int]]) -> tuple[str, str]:
    src, tgt = row
    tag = BACK_TRANSLATION_TAG if src[0] == tokenizer.back_translation_tag else ""
    return tag + tokenizer.decode_src([src[len(tag) > 0 :]])[0], tokenizer.decode([tgt])[0]


def test_an_epoch_has_every_pair_as_it_is_and_variants_of_some(cache: EncodedPairs, tokenizer: Tokenizer) -> None:
    plan = plan_of(cache, tokenizer)
    for epoch in range(3):
        block = plan.block(epoch, 0)
        drawn = Counter(row for batch in block.batches for row in block.rows[batch].tolist())
        assert drawn == Counter(range(len(block.rows)))
        share = sum(variants.SHARES.values())
        assert share / 2 < len(block.rows) / len(cache) - 1 < 1.3 * share  # some forms do not apply to some pairs
        for row in range(len(cache), len(block.rows)):
            changed = text_of(tokenizer, rows_of(block.pairs, [row])[0])
            assert changed != PAIRS[int(block.pairs.origins(np.array([row]))[0])]
            assert "\n" not in "".join(changed)


def test_a_variant_belongs_to_its_pair(cache: EncodedPairs, tokenizer: Tokenizer) -> None:
    """Without the second form, a variant in capitals is its pair in capitals, and joined pairs begin with it."""
    block = plan_of(cache, tokenizer).block(0, 0)
    num_capitals = num_joined = 0
    for row in range(len(cache), len(block.rows)):
        src, tgt = text_of(tokenizer, rows_of(block.pairs, [row])[0])
        (origin,) = block.pairs.origins(np.array([row])).tolist()
        own_src, own_tgt = PAIRS[origin]
        assert src.startswith(BACK_TRANSLATION_TAG) == own_src.startswith(BACK_TRANSLATION_TAG)
        num_joined += src.startswith(own_src + " ") and tgt.startswith(own_tgt + " ")
        num_capitals += tgt == own_tgt.upper() and src.upper().removeprefix("<BT> ") == own_src.upper().removeprefix(
            "<BT> "
        )
    assert num_capitals > 5
    assert num_joined > 5


def test_single_words_are_words_of_a_pair_and_their_translations(
    cache: EncodedPairs, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variants, "MIXED", 0)
    all_words = Variants(tokenizer, [(len(cache), LANGUAGES)], 256, 3, shares={variants.SINGLE_WORD: 1})
    block = BatchPlan(cache, 400, 5, [(len(cache), 1.0)], all_words).block(0, 0)
    found: Counter[str] = Counter()
    for row in range(len(cache), len(block.rows)):
        src, tgt = text_of(tokenizer, rows_of(block.pairs, [row])[0])
        (origin,) = block.pairs.origins(np.array([row])).tolist()
        assert src.startswith(BACK_TRANSLATION_TAG) == PAIRS[origin][0].startswith(BACK_TRANSLATION_TAG)
        word = src.removeprefix(BACK_TRANSLATION_TAG).strip()
        assert word in PAIRS[origin][0].removeprefix(BACK_TRANSLATION_TAG)[:-1].split()
        assert tgt == word[::-1]  # the toy's translation
        found[word] += 1
    words = {word for src, _ in PAIRS for word in src.removeprefix(BACK_TRANSLATION_TAG)[:-1].split()}
    assert found.keys() == {word for word in words if word.isalpha()}


def test_each_direction_has_the_words_of_its_own_pairs(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few pairs of the second direction have the sources of the first, and words that are doubled."""
    monkeypatch.setattr(variants, "MIXED", 0)
    many = toy_pairs(400)
    few = [(src, " ".join(word.strip(".?") * 2 for word in src.split()) + ".") for src, _ in many[:20]]
    encode_pairs(
        ((0, pair) for pair in (*many, *few)), tokenizer, tmp_path / "c.arrow", max_length=256, counts=Counts()
    )
    pairs = EncodedPairs(tmp_path / "c.arrow")
    parts = [(len(many), LANGUAGES), (len(few), Direction("en", "yy"))]
    all_words = Variants(tokenizer, parts, 256, 3, shares={variants.SINGLE_WORD: 1})
    drawn = all_words.draw(pairs, np.arange(len(pairs)), "0")
    texts = [tokenizer.decode([ids.tolist()])[0] for ids in np.split(drawn.tgt[0], drawn.tgt[1].cumsum())[:-1]]
    of_few = [text for origin, text in zip(drawn.origins.tolist(), texts, strict=True) if origin >= len(many)]
    assert len(of_few) > len(few) / 2  # some have one word only
    assert all(text[: len(text) // 2] * 2 == text for text in of_few)


def test_variants_depend_on_the_seed_and_the_epoch_alone(cache: EncodedPairs, tokenizer: Tokenizer) -> None:
    def content(plan: BatchPlan, epoch: int) -> list[tuple[list[int], list[int]]]:
        block = plan.block(epoch, 0)
        return rows_of(block.pairs, block.rows.tolist())

    plan = plan_of(cache, tokenizer)
    first = content(plan, 0)
    assert content(plan, 1) != first
    assert content(plan, 0) == first
    assert content(plan_of(cache, tokenizer), 0) == first
    assert content(plan_of(cache, tokenizer, seed=4), 0) != first


def test_batches_with_variants_from_any_position_are_the_tail_of_all_batches(
    cache: EncodedPairs, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "BLOCK_ROWS_WITH_VARIANTS", 150)

    def drawn(n: int, position: Position) -> list[tuple[list[int], list[list[int]], Position]]:
        batches = islice(plan_of(cache, tokenizer).batches_from(position), n)
        return [(b.origins.tolist(), collate(b.pairs, b.rows).src.tolist(), b.after) for b in batches]

    whole = drawn(120, Position())
    assert len({position.block for *_, position in whole}) > 1 or whole[-1][2].epoch > 1
    for start in (1, 17, 63):
        assert drawn(120 - start, whole[start - 1][2]) == whole[start:]


def test_processes_that_draw_ahead_change_no_batch(
    cache: EncodedPairs, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "BLOCK_ROWS_WITH_VARIANTS", 150)
    monkeypatch.setattr(variants, "PORTION_VARIANTS", 20)

    def drawn(plan: BatchPlan) -> list[tuple[list[int], list[list[int]], Position]]:
        batches = islice(plan.batches_from(Position()), 120)
        return [(b.origins.tolist(), collate(b.pairs, b.rows).tgt_in.tolist(), b.after) for b in batches]

    expected = drawn(plan_of(cache, tokenizer))
    plan = plan_of(cache, tokenizer)
    monkeypatch.setattr(Variants, "draw", None)  # this process draws nothing itself
    with plan.drawing_ahead(cores=3):
        assert drawn(plan) == expected


def test_an_ended_process_that_draws_is_reported(cache: EncodedPairs, tokenizer: Tokenizer) -> None:
    plan = plan_of(cache, tokenizer)
    with plan.drawing_ahead(cores=2):
        plan.block(0, 0)
        assert plan._processes is not None
        (process,) = plan._processes._processes
        process.kill()
        process.wait()
        with pytest.raises(StorageError, match=r"lack of memory.*data\.variants=off"):
            plan.block(1, 0)


def test_the_processes_end_with_the_training(cache: EncodedPairs, tokenizer: Tokenizer) -> None:
    plan = plan_of(cache, tokenizer)
    with plan.drawing_ahead(cores=2):
        plan.block(0, 0)
        assert plan._processes is not None
        (process,) = plan._processes._processes
        assert process.poll() is None
    assert process.returncode == 0


def test_rows_come_in_the_order_in_which_they_are_asked_for(cache: EncodedPairs, tokenizer: Tokenizer) -> None:
    block = plan_of(cache, tokenizer).block(0, 0)
    rows = np.random.default_rng(1).permutation(len(block.rows)).tolist()
    assert rows_of(block.pairs, rows) == [rows_of(block.pairs, [row])[0] for row in rows]


def test_no_variant_is_longer_than_the_limit(cache: EncodedPairs, tokenizer: Tokenizer) -> None:
    block = plan_of(cache, tokenizer, max_length=20).block(0, 0)
    assert max(max(map(len, pair)) for pair in rows_of(block.pairs, list(range(len(cache), len(block.rows))))) <= 20


def test_the_usual_length_of_a_source_counts_joined_pairs(tokenizer: Tokenizer, cache: EncodedPairs) -> None:
    lengths = np.sort([len(cache[row][0]) for row in range(len(cache))])
    alone = SourceLengths.of(cache, tokenizer, joins=False, max_length=256)
    assert alone.median == lengths[len(lengths) // 2]
    assert (lengths <= alone.usual).mean() >= 0.99 > (lengths < alone.usual).mean()
    assert alone.longest == cache.longest_src
    words = sum(len(src.removeprefix(BACK_TRANSLATION_TAG).split()) for src, _ in PAIRS)
    assert (alone.unit, alone.tokens_per_unit) == ("words", pytest.approx(lengths.sum() / words, rel=0.05))
    with_joined = SourceLengths.of(cache, tokenizer, joins=True, max_length=256)
    assert alone.usual < with_joined.usual <= 4 * alone.longest
    limited = SourceLengths.of(cache, tokenizer, joins=True, max_length=alone.longest)
    assert limited.usual <= alone.longest
    assert SourceLengths.of(cache, tokenizer, joins=True, max_length=256) == with_joined


def test_a_run_of_version_02_is_resumed_without_variants(
    train_toy: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its configuration and its data do not have the setting."""
    data = write_tsv(tmp_path / "pairs.tsv", toy_pairs())
    run = train_toy(tmp_path / "run", "train.max_steps=10", spec=data)
    config = run / "config.toml"
    config.write_text("".join(line for line in config.read_text().splitlines(True) if "variants" not in line))
    path = run / "data" / "info.json"
    info = DataInfo.read(run)
    del info.settings["data"]["variants"]
    info.write(run)
    built = path.stat().st_mtime_ns
    languages = ["--src", "en", "--tgt", "xx"]
    sets = [argument for text in TOY_SETTINGS if "variants" not in text for argument in ("--set", text)]
    call(capsys, "train", "--train", str(data), *languages, "--max-steps", "12", "--out", str(run), *sets)
    assert load(config).data.variants == "off"
    assert path.stat().st_mtime_ns == built
