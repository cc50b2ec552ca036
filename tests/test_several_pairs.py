"""One model for several pairs of languages: its data, training, validation and translation."""

import json
import shutil
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import TOY_SETTINGS, toy_pairs, write_tsv
from helpers.harness import outcome, refused, run, start, until, whole
from helpers.servers import started
from helpers.toy import PAIRS, SEVERAL_PAIRS, save_toy, several_toy, toy, toy_info
from hypothesis import given
from hypothesis import strategies as st

from mtcli.config.build import build
from mtcli.config.schema import Config
from mtcli.config.toml_file import load, to_toml
from mtcli.corpus.batching import BatchPlan
from mtcli.corpus.cache.build import by_weight
from mtcli.corpus.cache.prepare import Prepared, prepare
from mtcli.corpus.cache.training_sources import by_temperature
from mtcli.corpus.held_out import read_directions, write_split
from mtcli.corpus.readers.language_guess import guess_each
from mtcli.documents.lines import BySentence
from mtcli.errors import DataError, UsageError
from mtcli.exchange import argos
from mtcli.exchange.export import export
from mtcli.recipes.augment import chosen_direction
from mtcli.serve.app import ServerSettings, load_app
from mtcli.serve.models import ServedModel
from mtcli.serve.page import PageData
from mtcli.storage.model_file import load_model
from mtcli.text.languages import Direction
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.training.request import resolve
from mtcli.training.validation import PairsToScore, in_turn, score_test, validate
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.loading import load as load_translator
from mtcli.translate.memory import read_memory
from mtcli.translate.translation import Options
from mtcli.translate.translator import ModelTranslator
from mtcli.translate.windows import Reading

XX = Direction("en", "xx")
YY = Direction("en", "yy")
TOY_SOURCES = list(dict.fromkeys(src for src, _ in PAIRS))[:40]
SETTINGS = [*TOY_SETTINGS, "train.engine=false", "train.average=1"]
QUICK = ("--set", "train.engine=false", "--set", "train.precision=fp32", "--set", "decode.max_extra=5")


def yy_pairs(number: int, seed: int = 1) -> list[tuple[str, str]]:
    """Return sentences in another language: each word twice."""
    return [(src, " ".join(f"{word}{word}" for word in src.split())) for src, _ in toy_pairs(number, seed)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pairs")
    return write_tsv(folder / "en-xx.tsv", toy_pairs(300)), write_tsv(folder / "more.tsv", yy_pairs(100))


def arguments(files: tuple[Path, Path], out: Path, *more: str | int) -> list[str]:
    xx, yy = map(str, files)
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    pairs = ["--train", xx, "--tgt", "xx", "--train", yy, "--tgt", "yy", "--src", "en"]
    return ["train", *pairs, *sets, "--out", str(out), "--device", "cpu", *map(str, more)]


@pytest.fixture(scope="module")
def trained(files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two directions, of a few steps."""
    out = tmp_path_factory.mktemp("several") / "run"
    done = run(*arguments(files, out, "--max-steps", 20))
    assert done.code == 0, done.err
    assert "    en → xx: loss" in done.err
    assert "mean of 2 directions" in done.err
    return out


def config_of(files: tuple[Path, Path], *sets: str, **options: object) -> Config:
    values = {"data.train": [*map(str, files)], "data.src": "en", "data.tgt": ["xx", "yy"]}
    values |= {f"data.{name}": value for name, value in options.items()}
    has_tokenizer = any(text.startswith("tokenizer.file") for text in sets)
    settings = [text for text in SETTINGS if not (has_tokenizer and text.startswith("tokenizer."))]
    return resolve(None, values, [*settings, *sets], out=Path("does-not-exist")).config


def test_the_kth_language_belongs_to_the_kth_corpus(files: tuple[Path, Path], tmp_path: Path) -> None:
    config = config_of(files)
    assert config.data.directions == (XX, YY)
    assert config.data.train == ()
    (tmp_path / "config.toml").write_text(to_toml(config))
    assert load(tmp_path / "config.toml") == config


def test_languages_are_given_once_or_once_for_each_corpus(files: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="--tgt: given 3 times for 2 training corpora; give it once, or once for each"):
        config_of(files, tgt=["xx", "yy", "zz"])
    with pytest.raises(UsageError, match="--test: given once for 2 pairs of languages; give it once for each --train"):
        config_of(files, test=str(files[0]))
    with pytest.raises(UsageError, match=r"data\.valid: not with data.corpora"):
        config_of(files, "data.valid=x.tsv")


def test_a_language_is_not_given_beside_a_table_whose_corpora_name_theirs(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    toml = tmp_path / "pairs.toml"
    toml.write_text("".join(f'[[data.corpora]]\ntrain = "{path}"\ntgt = "{path.stem[-2:]}"\n' for path in files))
    with pytest.raises(UsageError, match="--tgt fr: each corpus of the table names its own language; omit the option"):
        resolve(toml, {"data.src": "en", "data.tgt": "fr"}, [], out=Path("does-not-exist"))
    config = resolve(toml, {"data.src": "en"}, [], out=Path("does-not-exist")).config
    assert {direction.src for direction in config.data.directions} == {"en"}


def test_languages_are_taken_from_the_names_of_each_corpus(tmp_path: Path) -> None:
    for name in ("train.gn-es.es", "train.gn-es.gn", "train.es-nah.es", "train.es-nah.nah"):
        (tmp_path / name).write_text("a\n")
    prefixes = [str(tmp_path / "train.gn-es"), str(tmp_path / "train.es-nah")]
    assert [(guess.src, guess.tgt) for guess in guess_each(prefixes, None, None)] == [("gn", "es"), ("es", "nah")]
    assert [(guess.src, guess.tgt) for guess in guess_each(prefixes, "es", None)] == [("es", "gn"), ("es", "nah")]
    for name in ("es-gn.tsv", "new-es.tsv", "plain.tsv"):
        (tmp_path / name).write_text("a\tb\n")
    (guess,) = guess_each([str(tmp_path / "es-gn.tsv")], None, None)
    assert (guess.src, guess.tgt) == ("es", "gn")
    (guess,) = guess_each([str(tmp_path / "new-es.tsv")], "es", None)
    assert (guess.src, guess.tgt) == ("es", "new")
    with pytest.raises(UsageError, match="no name of a file or column"):
        guess_each([str(tmp_path / "new-es.tsv")], None, None)  # "new" may be a word
    with pytest.raises(UsageError, match=r"plain.tsv: no name says which languages .* once for each --train"):
        guess_each([*prefixes, str(tmp_path / "plain.tsv")], "es", None)
    config = resolve(None, {"data.train": prefixes, "data.src": "es"}, [], out=Path("does-not-exist")).config
    assert config.data.directions == (Direction("es", "gn"), Direction("es", "nah"))
    with pytest.raises(UsageError, match=r"--valid: one for several pairs of languages \(es → gn, es → nah\)"):
        resolve(None, {"data.train": prefixes, "data.src": "es", "data.valid": "v.tsv"}, [])


def test_codes_of_one_language_are_one_direction(tmp_path: Path) -> None:
    names = ("a.en-de.tsv", "b.eng-deu.tsv", "c.en-fr.tsv")
    paths = [str(write_tsv(tmp_path / name, toy_pairs(3))) for name in names]
    config = resolve(None, {"data.train": paths}, [], out=Path("does-not-exist")).config
    assert config.data.directions == (Direction("en", "de"), Direction("en", "fr"))
    assert config.data.target_languages == ("de", "fr")
    config = resolve(
        None, {"data.train": paths, "data.src": "en", "data.tgt": ["pt", "pt_BR", "fr"]}, [], out=Path("no")
    ).config
    assert config.data.target_languages == ("pt", "pt_BR", "fr")


def test_a_table_of_one_corpus_trains_the_same_model(files: tuple[Path, Path], tmp_path: Path) -> None:
    xx, _ = files
    toml = tmp_path / "pairs.toml"
    toml.write_text(f'[[data.corpora]]\ntrain = "{xx}"\nsrc = "en"\ntgt = "xx"\n')
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    assert run("train", toml, *sets, "--max-steps", "6", "--out", tmp_path / "table").code == 0
    old = ("train", xx, "--src", "en", "--tgt", "xx")
    assert run(*old, *sets, "--max-steps", "6", "--out", tmp_path / "plain").code == 0
    assert outcome(tmp_path / "table") == outcome(tmp_path / "plain")


def test_a_killed_training_resumes_bit_for_bit(files: tuple[Path, Path], trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    child = start(*arguments(files, out, "--max-steps", 20))
    until(lambda: whole(out), child)
    child.send(signal.SIGKILL)
    assert child.wait().code == -signal.SIGKILL
    resumed = run(*arguments(files, out, "--max-steps", 20))
    assert resumed.code == 0, resumed.err
    assert "resuming at step" in resumed.err
    assert outcome(out) == outcome(trained)


@given(
    sizes=st.lists(st.integers(1, 10**7), min_size=2, max_size=6),
    temperature=st.floats(1, 100),
    weight=st.floats(0.1, 10),
)
def test_shares_are_those_of_the_temperature(sizes: list[int], temperature: float, weight: float) -> None:
    directions = [Direction("en", f"l{number}") for number in range(len(sizes))]
    weights = [(size, weight if number == 0 else 1.0) for number, size in enumerate(sizes)]
    drawn = [rows * own for rows, own in by_temperature(weights, directions, temperature)]
    effective = [rows * own for rows, own in weights]
    expected = [size ** (1 / temperature) for size in effective]
    shares = [number / sum(drawn) for number in drawn]
    assert shares == pytest.approx([part / sum(expected) for part in expected])
    assert sum(drawn) == pytest.approx(sum(effective))
    assert by_temperature(weights, directions[:1] * len(sizes), temperature) == weights  # one direction


def prepared(files: tuple[Path, Path], run_folder: Path, *sets: str, **options: object) -> tuple[Config, Prepared]:
    config = config_of(files, *sets, **options)
    return config, prepare(config, run_folder)


def test_epochs_draw_each_direction_by_the_temperature(files: tuple[Path, Path], tmp_path: Path) -> None:
    config, data = prepared(files, tmp_path, "data.temperature=5", "data.variants=on")
    few, many = sorted(source.pairs for source in data.sources)
    ratio = (few / many) ** (1 / 5)
    assert [source.share for source in data.sources] == pytest.approx([1 / (1 + ratio), ratio / (1 + ratio)])
    plan = BatchPlan.of(config, data)
    drawn = Counter[str]()
    copies = Counter[int]()
    epochs = 20
    for epoch in range(epochs):
        block = plan.block(epoch, 0)
        rows = np.concatenate([block.rows[batch] for batch in block.batches])
        own = rows[rows < len(data.train)]
        copies.update(own.tolist())
        for row in own.tolist():
            drawn[data.tokenizer.src_tokens(data.train[row][0][:1].tolist())[0]] += 1
    assert set(drawn) == {">>xx<<", ">>yy<<"}
    assert drawn[">>yy<<"] / drawn.total() == pytest.approx(data.sources[1].share, rel=0.02)
    weight = data.weights[1][1]
    assert weight > 1.5
    for row in range(data.weights[0][0], len(data.train)):  # a row of the small corpus is never left out of an epoch
        assert int(weight) * epochs <= copies[row] <= (int(weight) + 1) * epochs


def test_sources_begin_with_the_tag_of_their_target_language(files: tuple[Path, Path], tmp_path: Path) -> None:
    _, data = prepared(files, tmp_path)
    tokenizer = data.tokenizer
    assert set(tokenizer.tags) == {"xx", "yy"}
    assert len(tokenizer.src_vocabulary) == 320  # with the tags
    first = data.sources[0].pairs
    for row in range(len(data.train)):
        tag = tokenizer.tags["xx" if row < first else "yy"]
        src, tgt = data.train[row]
        assert src[0] == tag
        assert not {*tokenizer.tags.values()} & {*src[1:].tolist(), *tgt.tolist()}
    assert {*tokenizer.tags.values()} <= {*tokenizer.forbidden}
    (ids,) = tokenizer.encode_src([">>xx<< red tree."])
    assert ids == [tokenizer.tags["xx"], *tokenizer.encode_src(["red tree."])[0]]
    assert tokenizer.tags["xx"] not in tokenizer.encode_src(["a >>xx<< red tree."])[0]
    assert data.valid[0][0].startswith(">>xx<< ")
    assert data.valid[-1][0].startswith(">>yy<< ")


def test_each_direction_holds_out_what_it_would_hold_out_alone(files: tuple[Path, Path], tmp_path: Path) -> None:
    _, both = prepared(files, tmp_path / "both")
    for direction, file in zip((XX, YY), files, strict=True):
        values = {"data.train": [str(file)], "data.src": direction.src, "data.tgt": direction.tgt}
        alone = prepare(build(None, values, SETTINGS), tmp_path / direction.tgt)
        assert both.valid_split[direction] == alone.valid
        assert both.test_split[direction] == alone.test
        assert both.test_split == read_directions(tmp_path / "both", "test")


def test_both_directions_hold_out_the_same_pairs(files: tuple[Path, Path], tmp_path: Path) -> None:
    _, yy = files
    # Two sources have the same target: one of them may be held out, and then the other must not be trained in reverse.
    pairs = [(f"{src} {number}", tgt) for src, tgt in toy_pairs(300) for number in range(2)]
    doubled = write_tsv(tmp_path / "doubled.tsv", pairs)
    _, data = prepared((doubled, yy), tmp_path / "run", both_directions=True)
    assert data.directions == (XX, XX.reversed(), YY, YY.reversed())
    assert set(data.tokenizer.tags) == {"xx", "yy", "en"}
    for direction in (XX, YY):
        for split in (data.valid_split, data.test_split):
            assert split[direction.reversed()] == [pair[::-1] for pair in split[direction]]
    trained = {tuple(side.tolist()) for side, _ in (data.train[row] for row in range(len(data.train)))}
    held_out = [tuple(ids) for ids in data.tokenizer.encode_src([src for src, _ in (*data.valid, *data.test)])]
    assert not trained.intersection(held_out)
    assert data.counts["skipped"]["with a held-out source in the other direction"] > 0
    assert [source.direction for source in data.sources] == [*data.directions]


def test_given_pairs_are_the_splits_of_their_direction(files: tuple[Path, Path], tmp_path: Path) -> None:
    held_out = [write_tsv(tmp_path / f"{n}.tsv", toy_pairs(40, seed=n)) for n in (2, 3)]
    _, data = prepared(files, tmp_path / "run", valid=[*map(str, held_out)], both_directions=True)
    assert data.valid_split[XX] == toy_pairs(40, seed=2)
    assert data.valid_split[YY.reversed()] == [pair[::-1] for pair in toy_pairs(40, seed=3)]
    assert len(data.test_split[XX]) > 0


def test_a_validation_scores_each_direction_as_if_it_was_alone(trained: Path) -> None:
    config = load(trained / "config.toml")
    model, info, tokenizer = load_model(trained)
    backend = PyTorchBackend(model.eval(), tokenizer, info)
    data = prepare(config, trained)
    directions = data.directions_of("test")

    def loss(batch):  # type: ignore[no-untyped-def]
        hidden = batch.at_targets(model.decode(batch.tgt_in, *model.encode(batch.src)))
        nll = torch.nn.functional.cross_entropy(model.output(hidden), batch.target, reduction="sum")
        return nll, nll

    mixed = PairsToScore(data.test, directions).in_turn()
    together = validate(backend, mixed, config, loss, 1000)

    def alone_of(direction: Direction) -> PairsToScore:
        pairs = zip(mixed.pairs, mixed.directions, strict=True)
        own = [pair for pair, each in pairs if each == direction]
        return PairsToScore(own, [direction] * len(own))

    figures = {(each.src, each.tgt): each for each in together.directions}
    assert list(figures) == [XX, YY]
    for direction in (XX, YY):
        own = alone_of(direction)
        alone = validate(backend, own, config, loss, 1000)
        of_it = figures[direction]
        assert alone.directions == [of_it]
        assert (of_it.loss, of_it.bleu, of_it.chrf) == (alone.loss, alone.bleu, alone.chrf)
        assert of_it.pairs == len(own)
    assert together.chrf == (figures[XX].chrf + figures[YY].chrf) / 2
    scores = score_test(backend, mixed, config, 1000)
    alone_scores = score_test(backend, alone_of(YY), config, 1000)
    assert scores.directions[1]["scores"] == alone_scores.scores
    mean = sum(each["scores"][1]["score"] for each in scores.directions) / 2
    assert scores.scores[1]["score"] == pytest.approx(mean)


def test_the_first_pairs_in_turn_are_of_all_directions() -> None:
    directions = [XX] * 50 + [YY] * 10
    items = list(range(60))
    mixed = in_turn(directions, items)
    assert sorted(mixed) == items
    assert sum(item >= 50 for item in mixed[:20]) == 10


def test_text_for_the_vocabulary_is_sampled_by_weight() -> None:
    pairs = [(0, ("a", "b"))] * 10 + [(1, ("c", "d"))] * 4
    found = Counter(src for src, _ in (pair for _, pair in by_weight(pairs, [0.5, 2.5])))
    assert found == {"a": 5, "c": 10}


def test_the_trained_model_translates_into_the_language_of_the_option(trained: Path) -> None:
    def translated(text: str, *options: str) -> str:
        done = run("translate", text, "--model", trained, "--engine", "torch", "--as-is", *options)
        assert done.code == 0, done.err
        return done.out

    assert translated("red tree.", "--to", "xx") == translated(">>xx<< red tree.")
    refused(run("translate", "red tree.", "--model", trained, "--to", "zz"), 2, "--to zz: choose from xx, yy")


def test_both_directions_need_pairs_of_people(files: tuple[Path, Path], tmp_path: Path) -> None:
    synthetic = tmp_path / "synthetic.tsv"
    synthetic.write_text("en\txx\tlog_prob\tscore\nred\tder\t-1\t-1\n")
    with pytest.raises(UsageError, match="made these pairs, which are for one direction only"):
        prepared((synthetic, files[1]), tmp_path / "run", both_directions=True)
    with pytest.raises(UsageError, match=r"data\.both_directions: name the training pairs"):
        build(None, {}, ["data.both_directions=true"])


def test_held_out_pairs_that_are_named_for_both_directions_count_once(files: tuple[Path, Path]) -> None:
    both = [("v.jsonl", "en", "xx"), ("v.jsonl", "xx", "en"), ("w.jsonl", "en", "yy"), ("v.jsonl", "en", "xx")]
    table = [{"train": "x.jsonl", "src": src, "tgt": tgt, "valid": valid} for valid, src, tgt in both]
    data = build(None, {"data.corpora": table}, []).data
    assert data.given_splits("valid") == [("v.jsonl", XX), ("w.jsonl", YY)]


def test_a_direction_without_pairs_is_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    empty = write_tsv(tmp_path / "empty.tsv", [("a " * 300, "b")])
    with pytest.raises(DataError, match=r"empty.tsv: no pair of en → yy to train on"):
        prepared((files[0], empty), tmp_path / "run")


def test_the_report_and_the_card_show_each_direction(trained: Path) -> None:
    card = (trained / "README.md").read_text()
    assert "# run: en → xx, en → yy\n" in card
    assert "from en to xx, from en to yy" in card
    assert "| direction | pairs | BLEU, test | chrF2, test |" in card
    assert "| en → yy | 2 |" in card
    assert '--to xx "A sentence."' in card
    page = (trained / "report.html").read_text()
    assert '<th scope="row">en → yy</th>' in page
    assert "mean of 2 directions" in page
    about = run("info", trained)
    assert "en → xx, en → yy" in about.out
    assert "--to xx" in about.out


def test_evaluation_shows_each_direction_and_the_mean(trained: Path) -> None:
    table = run("eval", "--model", trained, "--bleu", "--chrf", "-b", "1")
    assert table.code == 0, table.err
    lines = table.out.splitlines()
    assert lines[0].split() == ["direction", "pairs", "BLEU", "chrF2"]
    assert [line[:7] for line in lines[1:4]] == ["en → xx", "en → yy", "mean   "]
    found = json.loads(run("eval", "--model", trained, "--chrf", "--json", "-b", "1").out)
    scores = [each["scores"][0]["score"] for each in found["directions"]]
    assert found["mean"]["chrF2"] == pytest.approx(sum(scores) / 2, abs=0.06)  # sacrebleu rounds them
    one = json.loads(run("eval", "--model", trained, "--chrf", "--json", "-b", "1", "--to", "yy").out)
    assert one["score"] == scores[1]
    refused(
        run("eval", "--model", trained, "--compare", trained / "README.md"),
        2,
        "--compare with a file: for one direction",
        "--to",
    )
    refused(run("eval", "--model", trained, "--to", "zz"), 2, "--to zz: choose from xx, yy")
    refused(run("eval", "--model", trained, "--robust"), 2, "--robust", "--to")


def test_a_direction_is_compared_with_a_model_of_one_pair(
    files: tuple[Path, Path], trained: Path, tmp_path: Path
) -> None:
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    single = tmp_path / "single"
    pairs = ("--train", files[1], "--src", "en", "--tgt", "yy")
    assert run("train", *pairs, *sets, "--max-steps", "2", "--out", single).code == 0
    found = run("eval", "--model", trained, "--to", "yy", "--compare", single, "-b", "1")
    assert found.code == 0, found.err
    assert "training data" not in found.err
    refused(run("eval", "--model", trained, "--compare", single, "-b", "1"), 2, "does not translate en → xx", "--to")


def test_a_comparison_of_all_directions_has_that_of_each(trained: Path) -> None:
    command = ("eval", "--model", trained, "--compare", trained, "-b", "1", "--bleu", "--chrf")
    found = json.loads(run(*command, "--json").out)
    assert [(each["src"], each["tgt"]) for each in found["directions"]] == [XX, YY]
    for each in found["directions"]:
        alone = json.loads(run(*command, "--to", each["tgt"], "--json").out)
        assert each["differences"] == alone["differences"]
    assert found["mean"] == {"BLEU": 0.0, "chrF2": 0.0}
    shown = run(*command).out
    assert "en → yy, 2 pairs" in shown
    assert shown.endswith("mean of 2 directions, B against A: BLEU +0.0, chrF2 +0.0\n")


@pytest.fixture(scope="module")
def both_ways(files: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of both directions of two pairs of languages, of a few steps."""
    out = tmp_path_factory.mktemp("both") / "run"
    done = run(*arguments(files, out, "--max-steps", 20, "--both-directions"))
    assert done.code == 0, done.err
    return out


@pytest.fixture(scope="module")
def toy_of_several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a model that knows its pairs of two directions."""
    folder = tmp_path_factory.mktemp("toy") / "toy"
    (folder / "data").mkdir(parents=True)
    save_toy(folder, several_toy(), directions=list(SEVERAL_PAIRS))
    write_split(folder, "test", {direction: pairs[:12] for direction, pairs in SEVERAL_PAIRS.items()})
    return folder


@pytest.mark.parametrize("target", ["ctranslate2", "huggingface", "argos"])
def test_exports_translate_as_the_run_does(target: str, toy_of_several: Path, tmp_path: Path) -> None:
    out = tmp_path / target
    parity = export(toy_of_several, target, out)
    assert parity is not None
    assert parity.equal == parity.sentences == 2 * 12
    assert parity.max_score_difference < (0.01 if target == "argos" else 1e-4)  # see test_argos
    if target == "ctranslate2":
        found = run("translate", "one red dog.", "--model", out, "--to", "xx", "--as-is")
        assert found.out == "eno der god.\n"
    if target == "argos":
        names = ["translate-en_es-1_0", "translate-en_xx-1_0"]
        assert sorted(path.stem for path in out.glob("*.argosmodel")) == names
        assert all(name in run("info", out).out for name in names)


def test_a_package_is_for_its_own_target_language(toy_of_several: Path, tmp_path: Path) -> None:
    export(toy_of_several, "argos", tmp_path / "out")
    translator = several_toy()
    for target, text in (("es", "uno rojo perro."), ("xx", "eno der god.")):
        installed = argos.install(tmp_path / "out" / f"translate-en_{target}-1_0.argosmodel", tmp_path)
        package = ModelTranslator(argos.Installed(installed, translator.tokenizer, translator.backend.info))
        options = replace(argos.SEARCH, to=target)
        assert [found.text for found in package.translate(["one red dog."], options, Reading(warn=False))] == [text]


def test_a_missing_or_unknown_tag_is_an_error_that_names_the_choices(trained: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text(">>xx<< red tree.\n\nred tree.\n")
    target = write_tsv(tmp_path / "target", [("a", "b")] * 3)
    files = ("--src-file", source, "--tgt-file", target)
    for command in (("translate", "-i", source), ("translate", "-i", source, "--as-is"), ("score", *files)):
        refused(run(*command, "--model", trained), 2, "line 3: no target language", "(xx, yy)", "--to")
        assert run(*command, "--model", trained, "--to", "yy").code == 0
    refused(run("explain", "red tree.", "--model", trained), 2, "no target language", "(xx, yy)")
    assert run("explain", "red tree.", "--model", trained, "--to", "yy").code == 0
    refused(run("translate", ">>zz<< red.", "--model", trained, "--to", "xx"), 2, ">>zz<<; choose from xx, yy")
    page = tmp_path / "page.html"
    page.write_text("<p>Red tree. Blue <b>bird</b>.</p>\n")
    refused(run("translate", "-i", page, "--model", trained, "-o", tmp_path / "out.html"), 2, "(xx, yy)")
    done = run("translate", "-i", page, "--model", trained, "-o", tmp_path / "out.html", "--to", "yy")
    assert done.code == 0, done.err
    terms = tmp_path / "terms.tsv"
    terms.write_text("tree\tXTREE\n")
    done = run("translate", "red tree.", "--model", trained, "--to", "yy", "--terms", terms)
    assert "XTREE" in done.out


def test_a_line_with_a_tag_is_translated_into_its_language(trained: Path) -> None:
    text = "Red tree. Blue bird."
    lines = [f">>xx<< {text}", f">>yy<< {text}"]
    found = run("translate", *lines, "--model", trained, "--as-is")
    assert found.out == run("translate", *lines, "--model", trained, "--to", "xx", "--as-is").out
    backend = PyTorchBackend.load(trained, torch.device("cpu"))
    translator = BySentence(ModelTranslator(backend), *backend.info.languages)
    searched: list[list[str]] = []

    def search(sources, options):  # type: ignore[no-untyped-def]
        searched.append([backend.tokenizer.src_tokens(source.ids[:1])[0] for source in sources])
        return type(backend).search(backend, sources, options)

    backend.search = search  # type: ignore[method-assign]
    list(translator.translate(lines, replace(backend.default_options, to="")))
    assert {tag for tags in searched for tag in tags} == {">>xx<<", ">>yy<<"}


def test_each_sentence_of_a_line_has_its_tag() -> None:
    text = "one red dog. big cat sees. https://a.b/c 12"
    translator = BySentence(several_toy(), "en", "es")
    options = Options(alignments=True)
    for to in ("es", "xx"):
        (expected,) = translator.translate([text], replace(options, to=to), Reading(quiet=True))
        for line in (f">>{to}<< {text}", f">>{to}<<  {text} "):
            (found,) = translator.translate([line], options, Reading(quiet=True))
            assert found.text.strip() == expected.text
            own, other = found.candidates[0], expected.candidates[0]
            assert own.score == pytest.approx(other.score, abs=1e-4)
            assert own.alignment == tuple((src + 1, tgt) for src, tgt in other.alignment)


@pytest.mark.parametrize("limit", [4, 12])
def test_a_long_line_with_a_tag_is_divided(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was shortened to the first tokens, without a warning."""
    backend = several_toy().backend
    for module in ("translate.windows", "translate.translator", "documents.pipeline", "documents.segmentation"):
        monkeypatch.setattr(f"mtcli.{module}.MAX_LINE_TOKENS", limit)
    searched: list[str] = []

    def search(sources, options):  # type: ignore[no-untyped-def]
        searched.extend(source.line for source in sources)
        return type(backend).search(backend, sources, options)

    monkeypatch.setattr(backend, "search", search)
    text = " ".join(["one red dog."] * 9)
    list(BySentence(several_toy(), "en", "es").translate([f">>xx<< {text}"], Options(), Reading(quiet=True)))
    assert all(line.startswith(">>xx<< ") for line in searched)
    assert sorted(" ".join(searched).replace(">>xx<< ", "").split()) == sorted(text.split())


@pytest.mark.parametrize("line", [">>xx<<", ">>xx<< ", ">>xx<< https://a.b/c 12", ">>xx<< 😀"])
def test_a_tag_is_in_no_translation(line: str) -> None:
    (found,) = BySentence(several_toy(), "en", "es").translate([line], Options(), Reading(quiet=True))
    assert found.text.strip() == line.removeprefix(">>xx<<").strip()
    assert (found.candidates[0].score, found.candidates[0].log_prob) == (0.0, 0.0)


def test_a_memory_is_not_for_the_language_of_a_tag(tmp_path: Path) -> None:
    (tmp_path / "memory.tsv").write_text("one red dog.\tUNO.\n")
    memory = read_memory([tmp_path / "memory.tsv"], "en", "es")
    translator = BySentence(several_toy(), "en", "es", memory)
    lines = ["one red dog.", ">>xx<< one red dog."]
    found = list(translator.translate(lines, Options(to="es"), Reading(quiet=True)))
    assert [each.text for each in found] == ["UNO.", "eno der god."]


def test_the_server_has_each_direction(both_ways: Path) -> None:
    app, pairs = load_app([both_ways], ServerSettings(), "cpu")
    assert pairs == [("en", "xx, yy"), ("xx", "en"), ("yy", "en"), ("xx", "yy"), ("yy", "xx")]
    with started(app) as site:
        languages = {each["code"]: each["targets"] for each in site.send("/languages")[1]}
        assert languages == {"en": ["xx", "yy"], "xx": ["en", "yy"], "yy": ["en", "xx"]}

        def answer(text: str, source: str, target: str) -> tuple[int, dict[str, str]]:
            return site.json("/translate", q=text, source=source, target=target)[:2]

        backend = PyTorchBackend.load(both_ways, torch.device("cpu"))
        for source, target in (("en", "xx"), ("en", "yy"), ("xx", "en")):
            options = replace(backend.default_options, to=target, repair=True)
            found = list(
                BySentence(ModelTranslator(backend), source, target).translate(
                    ["red tree."], options, Reading(warn=False)
                )
            )
            assert answer("red tree.", source, target) == (200, {"translatedText": found[0].text})
        assert answer("red tree.", "xx", "yy")[0] == 200, "through en"
        assert '"targets": ["xx", "yy"]' in site.send("/")[1]


def test_one_direction_is_fine_tuned(files: tuple[Path, Path], trained: Path, tmp_path: Path) -> None:
    sets = (*QUICK, "--set", "train.average=1", "--max-steps", "2")
    more = write_tsv(tmp_path / "more.tsv", yy_pairs(60, seed=9))
    refused(
        run("train", "--init", trained, "--train", more, "--out", tmp_path / "x"),
        2, "has several directions (en → xx, en → yy)", "--tgt",
    )  # fmt: skip
    done = run("train", "--init", trained, "--train", more, "--tgt", "yy", *sets, "--out", tmp_path / "tuned")
    assert done.code == 0, done.err
    _, _, tokenizer = load_model(tmp_path / "tuned")
    assert tokenizer.digest() == load_model(trained)[2].digest()
    data = prepare(load(tmp_path / "tuned" / "config.toml"), tmp_path / "tuned")
    assert {int(data.train[row][0][0]) for row in range(len(data.train))} == {tokenizer.tags["yy"]}
    resumed = run(
        "train", "--train", more, *sets, "--max-steps", "3", "--src", "en", "--tgt", "yy", "--out", tmp_path / "tuned"
    )
    assert resumed.code == 0, resumed.err
    assert run("eval", "--model", tmp_path / "tuned", "-b", "1").out.startswith("BLEU = ")
    assert load_model(tmp_path / "tuned")[1].directions == (Direction("en", "yy"),)
    plain = run("translate", "red tree.", "--model", tmp_path / "tuned")
    assert plain.code == 0, plain.err
    assert plain.out == run("translate", "red tree.", "--model", tmp_path / "tuned", "--to", "yy").out
    assert "--to" not in run("info", tmp_path / "tuned").out
    refused(run("translate", "red tree.", "--model", tmp_path / "tuned", "--to", "xx"), 2, "--to xx: choose from yy")


def test_a_model_of_several_directions_learns_no_corrections(trained: Path, tmp_path: Path) -> None:
    corrections = write_tsv(tmp_path / "corrections.tsv", yy_pairs(5))
    for languages in ((), ("--src", "en", "--tgt", "yy")):
        command = ("train", "--init", trained, "--corrections", corrections, *languages, "--out", tmp_path / "out")
        refused(run(*command), 2, "--corrections: for a model of one direction")


@pytest.fixture(scope="module")
def toy_of_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one direction, whose vocabulary has the tags of two."""
    folder = tmp_path_factory.mktemp("toy") / "toy"
    (folder / "data").mkdir(parents=True)
    into_xx = Direction("en", "xx")
    save_toy(folder, several_toy(), tgt="xx", directions=[into_xx])
    for name in ("valid", "test"):
        write_split(folder, name, {into_xx: SEVERAL_PAIRS[into_xx][:12]})
    return folder


def test_a_model_of_one_direction_needs_no_target(toy_of_one: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("one red dog.\n")
    (tmp_path / "in.html").write_text("<p>one red dog.</p>")
    (tmp_path / "out").write_text("eno der god.\n")
    model = ("--model", toy_of_one)
    assert run("translate", *model, "one red dog.").out == "eno der god.\n"
    assert run("translate", *model, "-i", tmp_path / "in.html").out == "<p>eno der god.</p>"
    assert run("eval", *model).out.startswith("BLEU = 100.0")
    pair = ("--src-file", tmp_path / "in", "--tgt-file", tmp_path / "out")
    assert run("score", *model, *pair).out == run("score", *model, *pair, "--to", "xx").out
    explained = run("explain", *model, "one red dog.", "--json")
    assert explained.out == run("explain", *model, "one red dog.", "--json", "--to", "xx").out
    augmented = run("augment", *model, "-i", tmp_path / "in", "-o", tmp_path / "pairs.tsv")
    assert augmented.code == 0, augmented.err
    assert "eno der god." in (tmp_path / "pairs.tsv").read_text()
    assert export(toy_of_one, "ctranslate2", tmp_path / "exported") is not None
    assert run("translate", "--model", tmp_path / "exported", "one red dog.").out == "eno der god.\n"
    assert "--to" not in run("info", tmp_path / "exported").out


def test_another_target_than_that_of_the_model_is_refused(toy_of_one: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("one red dog.\n")
    files = ("--src-file", tmp_path / "in")
    for command in (
        ("translate", "one red dog."),
        ("eval",),
        ("eval", *files, "--ref-file", tmp_path / "in"),
        ("score", *files, "--tgt-file", tmp_path / "in"),
        ("explain", "one red dog."),
    ):
        for code in ("es", "de"):
            refused(run(*command, "--model", toy_of_one, "--to", code), 2, f"--to {code}: choose from xx")
    refused(
        run("augment", "--model", toy_of_one, "-i", tmp_path / "in", "-o", tmp_path / "o.tsv", "--to", "es"), 2, "xx"
    )


def test_the_server_offers_the_one_target(toy_of_one: Path) -> None:
    (served,) = ServedModel.all_of(load_translator([toy_of_one], "cpu"), lambda src, targets: PageData(src, targets))
    assert served.targets == ("xx",)
    assert not served.own_target("es")


def test_a_child_of_one_pair_learns_several(files: tuple[Path, Path], tmp_path: Path) -> None:
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    parent = tmp_path / "parent"
    assert run("train", files[0], "--src", "en", "--tgt", "gn", *sets, "--max-steps", "2", "--out", parent).code == 0
    pairs = ("--train", files[0], "--tgt", "gn", "--train", files[1], "--tgt", "nah", "--src", "en")
    short = ("--max-steps", "2", "--set", "data.variants=off")
    done = run("train", "--init", parent, *pairs, *QUICK, *short, "--out", tmp_path / "child")
    assert done.code == 0, done.err
    _, info, tokenizer = load_model(tmp_path / "child")
    assert set(tokenizer.tags) == {"gn", "nah"}
    old = load_model(parent)[2]
    assert tokenizer.src_vocabulary[: old.src_size] == old.src_vocabulary
    named = tmp_path / "en-nah.tsv"
    shutil.copy(files[1], named)
    asked = resolve(None, {"data.train": [str(named)]}, SETTINGS, out=tmp_path / "tuned", init=tmp_path / "child")
    assert asked.config.data.directions == (Direction("en", "nah"),)
    assert asked.init is not None
    assert not asked.init.parent.has_child(asked.config), "it fine-tunes one of its directions"
    assert info.directions == (Direction("en", "gn"), Direction("en", "nah"))


def test_each_pair_of_languages_is_checked_by_itself(tmp_path: Path) -> None:
    for name, number in (("es-gn", 40), ("es-nah", 30)):
        write_tsv(tmp_path / f"{name}.tsv", toy_pairs(number))
    paths = (tmp_path / "es-gn.tsv", tmp_path / "es-nah.tsv")
    found = run("data", "check", *paths, "--src", "es")
    assert found.code == 0, found.err
    assert f"es → gn: {paths[0]}\n" in found.out
    assert f"es → nah: {paths[1]}\n" in found.out
    counts = [each["pairs"] for each in json.loads(run("data", "check", *paths, "--src", "es", "--json").out)]
    assert counts == [40, 30]
    refused(run("data", "check", *paths, "--src", "es", "--valid", paths[0]), 2, "es → gn, es → nah")


def test_a_given_tokenizer_needs_one_vocabulary_and_the_tags(
    files: tuple[Path, Path], trained: Path, tmp_path: Path
) -> None:
    _, data = prepared(files, tmp_path / "run", f"tokenizer.file={trained}")
    assert data.tokenizer.digest() == load_model(trained)[2].digest()
    separate = train_tokenizer(toy_pairs(300), joint=False)
    separate.save(tmp_path / "tokenizer.json")
    with pytest.raises(UsageError, match="has two vocabularies, and this training has several directions"):
        prepared(files, tmp_path / "other", f"tokenizer.file={tmp_path}")
    train_tokenizer(toy_pairs(300)).save(tmp_path / "tokenizer.json")
    with pytest.raises(UsageError, match="xx: the vocabulary has no tag for this target language, for none"):
        prepared(files, tmp_path / "other", f"tokenizer.file={tmp_path}")
    train_tokenizer(toy_pairs(300), target_languages=("zh_Hans", "fr")).save(tmp_path / "tokenizer.json")
    both = ["zh_Hans", "zh_Hant"]
    with pytest.raises(UsageError, match="zh_Hant: the vocabulary has the tag of zh_Hans for this target language"):
        prepared(files, tmp_path / "other", f"tokenizer.file={tmp_path}", tgt=both)


@pytest.mark.parametrize("target", ["es", "xx"])
@pytest.mark.parametrize("forward", [False, True])
def test_a_model_of_several_directions_translates_in_the_chosen_one(
    target: str, forward: bool, toy_of_several: Path, tmp_path: Path
) -> None:
    path = tmp_path / "mono.en"
    path.write_text("".join(f"{line}\n" for line in TOY_SOURCES))
    output = tmp_path / "out.jsonl"
    options = ["--forward"] if forward else []
    done = run("augment", "--model", toy_of_several, "-i", path, "-o", output, "--to", target, *options)
    assert done.code == 0, done.err
    pairs = [json.loads(line)["translation"] for line in output.read_text().splitlines()]
    assert len(pairs) > len(TOY_SOURCES) / 2
    assert {tuple(pair) for pair in pairs} == {("en", target) if forward else (target, "en")}
    translated = several_toy().translate(TOY_SOURCES, Options(to=target), Reading(quiet=True))
    translations = {line: found.text for line, found in zip(TOY_SOURCES, translated, strict=True)}
    assert all(translations[pair["en"]] == pair[target] for pair in pairs)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "the model has several directions; choose with --from and --to: en → es, en → xx"),
        (["--to", "zz"], "--to zz: the model has no such direction; choose with --from and --to: en → es, en → xx"),
        (["--from", "xx", "--to", "es"], "--from xx --to es: the model has no such direction"),
    ],
)
def test_a_direction_that_the_model_lacks_is_refused(
    options: list[str], named: str, toy_of_several: Path, tmp_path: Path
) -> None:
    path = tmp_path / "mono.en"
    path.write_text("one red dog.\n")
    done = run("augment", "--model", toy_of_several, "-i", path, "-o", tmp_path / "out.tsv", *options)
    refused(done, 2, named)


def test_a_direction_is_chosen_by_the_language_of_the_text_or_of_the_translation() -> None:
    backend = PyTorchBackend(toy().model, toy().tokenizer, toy_info())
    assert chosen_direction(backend, "en", None) == ("en", "es")
    with pytest.raises(UsageError, match="--from fr: this model translates from en only"):
        chosen_direction(backend, "fr", None)
    with pytest.raises(UsageError, match="--to xx: this model translates into one language only"):
        chosen_direction(backend, None, "xx")
    several = toy_info(directions=(XX.reversed(), YY.reversed()))
    backend = PyTorchBackend(toy().model, toy().tokenizer, several)
    assert chosen_direction(backend, "yy", None) == ("yy", "en")
    with pytest.raises(UsageError, match="--to en: the model has several directions"):
        chosen_direction(backend, None, "en")


@pytest.mark.parametrize("code", ["gn", "GN", "gn-PY", "gn_PY"])
def test_a_rare_language_is_chosen_in_capitals_or_with_its_region_too(code: str) -> None:
    tokenizer = train_tokenizer([("a b", "c d")] * 3, target_languages=("gn", "nah"))
    assert tokenizer.tag_of(code) == tokenizer.tags["gn"]
    with pytest.raises(UsageError, match="--to gnn: choose from gn, nah"):
        tokenizer.tag_of("gnn")
