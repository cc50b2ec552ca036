"""Transfer: a run that starts from a model of other languages has a tokenizer of its own and the model's weights."""

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TOY_SETTINGS, toy_pairs, write_tsv
from helpers.spm import handmade
from torch import Tensor

from mtcli.config.build import build
from mtcli.config.schema import Config
from mtcli.corpus.cache.parent import Parent, origins
from mtcli.corpus.cache.prepare import prepare
from mtcli.errors import MtcliError, UsageError
from mtcli.model.transformer import Transformer
from mtcli.report.info import summary
from mtcli.storage.events import read_events
from mtcli.storage.model_file import load_model, parameters
from mtcli.text.languages import Direction, are_different
from mtcli.text.tokenizer.learning import extend, train_tokenizer
from mtcli.text.tokenizer.matching import Matched, match
from mtcli.text.tokenizer.sentencepiece import MarianVocabulary, SentencePieceSide
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.training.defaults.choose import with_defaults
from mtcli.training.defaults.describe import describe_choice
from mtcli.training.defaults.workload import Workload
from mtcli.training.dry_run import dry_run
from mtcli.training.request import InitialModel, TrainingRequest, resolve
from mtcli.training.run import train, transplanted
from mtcli.training.trainer import Trainer

CPU = torch.device("cpu")

SETTINGS = [*(text for text in TOY_SETTINGS if "model." not in text and "vocab_size" not in text), "train.engine=false"]
"""Settings of a child: its model gives the shape."""

EMBEDDINGS = ("src_embedding.tokens.weight", "tgt_embedding.tokens.weight", "output.weight", "output.bias")
"""The parameters with a row for each token."""


def other_pairs(n: int = 300) -> list[tuple[str, str]]:
    """Return pairs with the sources of `toy_pairs`, and targets with other letters."""
    letters = str.maketrans("abdeioru", "ñõдзéжçß")
    return [(src, tgt.translate(letters)) for src, tgt in toy_pairs(n, seed=5)]


@pytest.fixture(scope="module")
def child_tsv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tsv(tmp_path_factory.mktemp("child") / "child.tsv", other_pairs())


@pytest.fixture(scope="module")
def parent(train_toy: Callable[..., Path], toy_tsv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of English to German."""
    config = build(None, {"data.train": [str(toy_tsv)], "data.src": "en", "data.tgt": "de"}, parent_settings())
    out = tmp_path_factory.mktemp("parent") / "parent"
    train(config, out, CPU)
    return out


def parent_settings() -> list[str]:
    return [*TOY_SETTINGS, "train.max_steps=20", "train.engine=false"]


def request(init: Path | None, tsv: Path, out: Path, *sets: str, src: str = "en", tgt: str = "gn") -> TrainingRequest:
    options = {"data.train": [str(tsv)], "data.src": src, "data.tgt": tgt}
    return resolve(None, options, [*SETTINGS, "train.max_steps=10", *sets], out=out, init=init)


def trained(init: Path | None, tsv: Path, out: Path, *sets: str, **languages: str) -> Path:
    asked = request(init, tsv, out, *sets, **languages)
    train(asked.config, asked.run, CPU, init=asked.init)
    return out


def parent_of(languages: str = "en de", *, joint: bool = True, kind: str = "bpe") -> Parent:
    """Return a parent whose tokenizer was trained on the toy."""
    src, tgt = languages.split()
    return Parent(train_tokenizer(toy_pairs(), vocab_size=None, joint=joint, kind=kind), "weights", src, tgt)


def child_of(parent: Parent, config: Config, tmp_path: Path) -> Tokenizer:
    return prepare(config, tmp_path / "run", init=parent).tokenizer


def child_config(tsv: Path, *sets: str, src: str = "en", tgt: str = "gn") -> Config:
    return build(None, {"data.train": [str(tsv)], "data.src": src, "data.tgt": tgt}, sets)


# ---- languages ----


@pytest.mark.parametrize(
    ("code", "other", "different"),
    [
        ("en", "de", True), ("en", "eng", False), ("pt_BR", "pt", False), ("hch", "cni", True), ("hch", "hch", False),
        ("en", "hch", True), ("hch_Latn", "HCH", False),
        ("src", "de", False),  # the name of a side is of any language
        ("xx", "de", False),  # and so is what is no code
    ],
)  # fmt: skip
def test_languages_are_compared_by_their_codes(code: str, other: str, different: bool) -> None:
    assert are_different(code, other) == different
    assert are_different(other, code) == different


# ---- vocabularies ----


def test_an_extended_vocabulary_keeps_its_tokens_and_writes_the_new_text_with_fewer() -> None:
    old = train_tokenizer(toy_pairs(), vocab_size=320)
    texts = [tgt for _, tgt in other_pairs()]
    side = extend(old.sides[0], texts)
    new = Tokenizer(side, side)
    assert new.src_vocabulary[: old.src_size] == old.src_vocabulary
    assert new.src_size > old.src_size
    assert new.decode(new.encode_tgt(texts)) == texts
    assert sum(map(len, new.encode_tgt(texts))) < sum(map(len, old.encode_tgt(texts))) / 2
    assert not {i for row in new.encode_tgt(texts) for i in row} & new.tgt_byte_of.keys()
    assert Tokenizer.from_json(new.to_json()).to_json() == new.to_json()


def test_text_without_new_neighbors_is_split_as_before() -> None:
    old = train_tokenizer(toy_pairs(), vocab_size=320)
    side = extend(old.sides[0], ["жжжж ззз жжжж ззз"] * 3)
    texts = [text for pair in toy_pairs() for text in pair]
    assert Tokenizer(side, side).encode_src(texts) == old.encode_src(texts)


@pytest.mark.parametrize("size", [0, 1, 7, 40])
def test_an_extended_vocabulary_has_at_most_the_given_size(size: int) -> None:
    old = train_tokenizer(toy_pairs(), vocab_size=320)
    assert len(extend(old.sides[0], [tgt for _, tgt in other_pairs()], 320 + size).tokens) == 320 + size


@pytest.mark.parametrize("kind", ["word", "char"])
def test_only_a_bpe_vocabulary_is_extended(kind: str) -> None:
    old = train_tokenizer(toy_pairs(), kind=kind)
    with pytest.raises(UsageError, match="only a bpe vocabulary can be extended"):
        extend(old.sides[0], ["text"])


def test_tokens_are_matched_by_text_then_by_their_parts() -> None:
    old = train_tokenizer([("ab ab", "cd cd")] * 3, kind="char").sides[0]
    new = train_tokenizer([("ab ab abc", "q q abc")] * 3).sides[0]
    found = match(new, [old])
    by_text = dict(zip(new.tokens, found, strict=True))
    for token in ("<pad>", "</s>", "<0x41>", "a", " "):
        assert by_text[token].same
        assert [old.tokens[i] for i in by_text[token].ids] == [token]
    assert [old.tokens[i] for i in by_text[" abc"].ids] == [" ", "a", "b", "c"]
    assert by_text["q"].ids == ()
    counts = Matched.of(found)
    assert counts.same + counts.parts + counts.new == len(new.tokens)
    assert counts.new == 1


# ---- weights ----


def random_model(tokenizer: Tokenizer, *sets: str) -> Transformer:
    torch.manual_seed(3)
    config = build(None, {}, [*TOY_SETTINGS, *sets]).model
    model = Transformer(config, tokenizer.src_size, tokenizer.tgt_size, joint=tokenizer.joint)
    for parameter in model.parameters():
        parameter.data += torch.randn_like(parameter)
    return model.eval()


def rows_by_text(tokens: Sequence[str], matrix: Tensor) -> dict[str, Tensor]:
    return dict(zip(tokens, matrix, strict=True))


SHAPES = ("model.tie_embeddings=true", "model.tie_embeddings=false", "model.output_bias=true")


@pytest.mark.parametrize("sets", SHAPES)
@pytest.mark.parametrize("choice", ["keep", "extend", "new"])
@pytest.mark.parametrize("joint", [True, False])
def test_tokens_with_the_same_text_have_the_embeddings_of_the_parent(
    joint: bool, choice: str, sets: str, child_tsv: Path, tmp_path: Path
) -> None:
    parent = parent_of(joint=joint)
    model = random_model(parent.tokenizer, sets)
    config = child_config(child_tsv, f"tokenizer.transfer={choice}", f"tokenizer.joint={str(joint).lower()}")
    tokenizer = child_of(parent, config, tmp_path)
    child = transplanted(model, parent, tokenizer, "en", "gn")
    old = parent.tokenizer
    triples = [
        (
            old.src_vocabulary,
            model.src_embedding.tokens.weight,
            tokenizer.src_vocabulary,
            child.src_embedding.tokens.weight,
        ),
        (
            old.tgt_vocabulary,
            model.tgt_embedding.tokens.weight,
            tokenizer.tgt_vocabulary,
            child.tgt_embedding.tokens.weight,
        ),
        (old.tgt_vocabulary, model.output.weight, tokenizer.tgt_vocabulary, child.output.weight),
    ]
    if model.output.bias is not None:
        triples.append((old.tgt_vocabulary, model.output.bias, tokenizer.tgt_vocabulary, child.output.bias))
    for old_tokens, old_rows, tokens, rows in triples:
        before = rows_by_text(old_tokens, old_rows)
        after = rows_by_text(tokens, rows)
        shared = before.keys() & after.keys()
        assert len(shared) > 260
        for token in shared:
            assert torch.equal(before[token], after[token]), token
    others = {name: tensor for name, tensor in parameters(model).items() if name not in EMBEDDINGS}
    assert others.keys() == parameters(child).keys() - {*EMBEDDINGS}
    for name, tensor in others.items():
        assert torch.equal(parameters(child)[name], tensor), name
    if choice == "keep":
        assert tokenizer.to_json() == old.to_json()
        assert parameters(child).keys() == parameters(model).keys()
        for name, tensor in parameters(model).items():
            assert torch.equal(parameters(child)[name], tensor), name


def test_another_token_starts_from_the_mean_of_its_parts(child_tsv: Path, tmp_path: Path) -> None:
    parent = parent_of()
    model = random_model(parent.tokenizer)
    tokenizer = child_of(parent, child_config(child_tsv, "tokenizer.transfer=new"), tmp_path)
    child = transplanted(model, parent, tokenizer, "en", "gn")
    old = model.tgt_embedding.tokens.weight
    _, found = origins(parent, tokenizer, "en", "gn")
    kinds = set()
    for i, origin in enumerate(found):
        expected = old[list(origin.ids)].mean(dim=0) if origin.ids else old.mean(dim=0)
        torch.testing.assert_close(child.tgt_embedding.tokens.weight[i], expected)
        kinds.add((len(origin.ids) > 1, bool(origin.ids)))
    assert kinds == {(False, True), (True, True), (False, False)}


def test_a_language_on_the_other_side_brings_its_embeddings(child_tsv: Path, tmp_path: Path) -> None:
    parent = parent_of("en de", joint=False)
    model = random_model(parent.tokenizer)
    config = child_config(child_tsv, "tokenizer.joint=false", src="de", tgt="en")
    tokenizer = child_of(parent, config, tmp_path)
    assert tokenizer.src_vocabulary == parent.tokenizer.tgt_vocabulary
    assert tokenizer.tgt_vocabulary == parent.tokenizer.src_vocabulary
    child = transplanted(model, parent, tokenizer, "de", "en")
    assert torch.equal(child.src_embedding.tokens.weight, model.tgt_embedding.tokens.weight)
    assert torch.equal(child.tgt_embedding.tokens.weight, model.src_embedding.tokens.weight)


@pytest.mark.parametrize(
    ("src", "tgt", "extended"), [("en", "gn", [1]), ("gn", "de", [0]), ("gn", "nah", [0, 1]), ("en", "de", [])]
)
def test_only_new_languages_extend_separate_vocabularies(
    src: str, tgt: str, extended: list[int], tmp_path: Path
) -> None:
    parent = parent_of(joint=False)
    letters = [tgt for _, tgt in other_pairs()]  # on both sides
    tsv = write_tsv(tmp_path / "pairs.tsv", list(zip(letters, letters, strict=True)))
    config = child_config(tsv, "tokenizer.joint=false", "tokenizer.transfer=extend", src=src, tgt=tgt)
    tokenizer = child_of(parent, config, tmp_path)
    sizes = [
        (len(new.tokens), len(old.tokens)) for new, old in zip(tokenizer.sides, parent.tokenizer.sides, strict=True)
    ]
    assert [number for number, (new, old) in enumerate(sizes) if new > old] == extended
    assert all(new == old for number, (new, old) in enumerate(sizes) if number not in extended)


def test_a_parents_tag_serves_its_language_under_any_code(child_tsv: Path, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(toy_pairs(), target_languages=("deu", "fra"))
    directions = (Direction("eng", "deu"), Direction("eng", "fra"))
    parent = Parent(tokenizer, "weights", "eng", "deu", directions)
    corpora = [{"train": str(child_tsv), "src": "en", "tgt": tgt} for tgt in ("de", "it")]
    child = child_of(parent, build(None, {"data.corpora": corpora}, []), tmp_path)
    assert set(child.tags) == {"deu", "fra", "it"}


def test_a_joint_child_of_a_parent_with_two_vocabularies_takes_from_both(child_tsv: Path, tmp_path: Path) -> None:
    parent = parent_of(joint=False)
    model = random_model(parent.tokenizer)
    tokenizer = child_of(parent, child_config(child_tsv), tmp_path)
    assert tokenizer.joint
    child = transplanted(model, parent, tokenizer, "en", "gn")
    src_rows = rows_by_text(parent.tokenizer.src_vocabulary, model.src_embedding.tokens.weight)
    tgt_rows = rows_by_text(parent.tokenizer.tgt_vocabulary, model.tgt_embedding.tokens.weight)
    rows = rows_by_text(tokenizer.src_vocabulary, child.tgt_embedding.tokens.weight)
    only_src = (src_rows.keys() - tgt_rows.keys()) & rows.keys()
    assert only_src
    assert all(torch.equal(rows[token], src_rows[token]) for token in only_src)
    assert all(torch.equal(rows[token], tgt_rows[token]) for token in tgt_rows.keys() & rows.keys())


# ---- runs ----


def events(run: Path) -> list[dict[str, Any]]:
    found, damaged = read_events(run / "metrics.jsonl")
    assert not damaged
    return [{key: value for key, value in event.items() if key != "seconds"} for event in found]


def test_step_0_of_a_child_is_the_transplanted_model(parent: Path, child_tsv: Path, tmp_path: Path) -> None:
    run = trained(parent, child_tsv, tmp_path / "run", "train.keep=10")
    model, _, tokenizer = load_model(run / "checkpoints" / "step-00000000")
    initial = InitialModel.load(parent)
    expected = parameters(transplanted(initial.model, initial.parent, tokenizer, "en", "gn"))
    for name, tensor in parameters(model).items():
        assert torch.equal(tensor, expected[name]), name
    assert tokenizer.src_vocabulary[: initial.tokenizer.src_size] == initial.tokenizer.src_vocabulary
    validations = [event["step"] for event in events(run) if event["event"] == "valid"]
    assert validations == [10]  # the parent does not translate this language, so it is not scored


def test_a_child_with_the_tokenizer_of_its_parent_starts_as_the_parent(
    parent: Path, child_tsv: Path, tmp_path: Path
) -> None:
    run = trained(parent, child_tsv, tmp_path / "run", "tokenizer.transfer=keep", "train.keep=10")
    assert (run / "tokenizer.json").read_bytes() == (parent / "tokenizer.json").read_bytes()
    start = parameters(load_model(run / "checkpoints" / "step-00000000")[0])
    for name, tensor in parameters(load_model(parent)[0]).items():
        assert torch.equal(start[name], tensor), name


@pytest.fixture(scope="module")
def undisturbed(parent: Path, child_tsv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A child of `model` in the same folder, a copy of the parent that is deleted."""
    folder = tmp_path_factory.mktemp("undisturbed")
    model = shutil.copytree(parent, folder / "model")
    child = trained(model, child_tsv, folder / "child")
    shutil.rmtree(model)
    return child


@pytest.mark.parametrize("moment", ["step", "_write_report", "run_until_done"])
def test_a_killed_child_ends_like_an_undisturbed_one(
    moment: str, parent: Path, undisturbed: Path, child_tsv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    model = shutil.copytree(parent, undisturbed.with_name("model"))
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, moment, killed)
        with pytest.raises(KeyboardInterrupt):
            trained(model, child_tsv, tmp_path / "run")
    shutil.rmtree(model)
    run = trained(None, child_tsv, tmp_path / "run")
    assert events(run) == events(undisturbed)
    for name in ("model.safetensors", "tokenizer.json", "checkpoints/step-00000010/model.safetensors"):
        assert (run / name).read_bytes() == (undisturbed / name).read_bytes()


def test_damaged_data_of_a_child_is_prepared_again(parent: Path, child_tsv: Path, tmp_path: Path) -> None:
    run = trained(parent, child_tsv, tmp_path / "run")
    before = {name: (run / name).read_bytes() for name in ("tokenizer.json", "data/train.arrow", "data/info.json")}
    (run / "data" / "train.arrow").write_bytes(b"")
    trained(None, child_tsv, run, "train.max_steps=12")
    assert (run / "tokenizer.json").read_bytes() == before["tokenizer.json"]
    assert (run / "data" / "train.arrow").read_bytes() == before["data/train.arrow"]
    transfer = json.loads((run / "data" / "info.json").read_bytes())["transfer"]
    assert transfer == json.loads(before["data/info.json"])["transfer"]


def test_the_same_languages_are_fine_tuned_as_before(parent: Path, child_tsv: Path, tmp_path: Path) -> None:
    run = trained(parent, child_tsv, tmp_path / "run", tgt="de")
    assert (run / "tokenizer.json").read_bytes() == (parent / "tokenizer.json").read_bytes()
    assert json.loads((run / "data" / "info.json").read_bytes())["transfer"] is None
    assert [event["step"] for event in events(run) if event["event"] == "valid"] == [0, 10]
    assert "parent:" not in (run / "README.md").read_text()


def test_plan_card_report_and_info_say_what_was_taken_over(
    parent: Path, child_tsv: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mtcli")
    asked = request(parent, child_tsv, tmp_path / "run")
    planned = dict(dry_run(asked.config, asked.run, CPU, init=asked.init))["parent"]
    assert planned.startswith("a model of en → de; its tokenizer, extended; embeddings: 320 tokens by text, ")
    run = trained(parent, child_tsv, tmp_path / "run")
    assert planned in caplog.text
    assert f"- parent: {planned}" in (run / "README.md").read_text()
    assert planned in (run / "report.html").read_text()
    assert ("parent", planned) in summary(run)


@pytest.mark.parametrize("languages", [{"tgt": "gn"}, {"src": "gn", "tgt": "de"}, {"src": "de", "tgt": "en"}])
def test_a_child_that_is_begun_again_with_its_parent_is_resumed(
    languages: dict[str, str], parent: Path, child_tsv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "start_from", killed)  # no checkpoint has the weights yet
        with pytest.raises(KeyboardInterrupt):
            trained(parent, child_tsv, tmp_path / "run", **languages)
    with pytest.raises(UsageError, match="name it again with --init"):
        trained(None, child_tsv, tmp_path / "run", **languages)
    run = trained(parent, child_tsv, tmp_path / "run", **languages)
    assert events(run) == events(trained(parent, child_tsv, tmp_path / "straight", **languages))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("es-gn.tsv", "es → gn"), ("es-gn.tsv en-fi.tsv", "es → gn, en → fi"), ("pairs.tsv", "en → de"),
        ("de-en.tsv", "en → de"), ("en-nah.tsv en-hch.tsv", "en → nah, en → hch"), ("nah-de.tsv", "nah → de"),
    ],
)  # fmt: skip
def test_a_child_has_the_languages_of_its_file_names_if_they_differ_from_the_parents(
    names: str, expected: str, parent: Path, toy_tsv: Path, tmp_path: Path
) -> None:
    """The languages of the parent are for pairs whose names say none, or those of the parent in the other order."""
    files = [tmp_path / name for name in names.split()]
    for file in files:
        shutil.copy(toy_tsv, file)
    asked = resolve(None, {"data.train": [str(file) for file in files]}, SETTINGS, out=tmp_path / "run", init=parent)
    assert ", ".join(map(str, asked.config.data.directions)) == expected


def test_a_given_language_of_a_child_is_completed_from_its_file_name(
    parent: Path, toy_tsv: Path, tmp_path: Path
) -> None:
    file = tmp_path / "es-gn.tsv"
    shutil.copy(toy_tsv, file)
    options = {"data.train": [str(file)], "data.src": "es"}
    asked = resolve(None, options, SETTINGS, out=tmp_path / "run", init=parent)
    assert [str(direction) for direction in asked.config.data.directions] == ["es → gn"]


def test_a_table_of_corpora_of_a_child_has_the_languages_of_its_names(
    parent: Path, toy_tsv: Path, tmp_path: Path
) -> None:
    tables = ""
    for name in ("es-gn", "es-fi"):
        shutil.copy(toy_tsv, tmp_path / f"{name}.tsv")
        tables += f'[[data.corpora]]\ntrain = "{tmp_path / name}.tsv"\n'
    (tmp_path / "run.toml").write_text(tables)
    asked = resolve(tmp_path / "run.toml", {}, SETTINGS, out=tmp_path / "run", init=parent)
    assert [str(direction) for direction in asked.config.data.directions] == ["es → gn", "es → fi"]


# ---- imported parents ----


def imported(tags: Sequence[str] = ()) -> Parent:
    """Return a parent with SentencePiece models, as imported models have them."""
    words = ("▁red", "▁blue", "▁tree", "▁house", "▁", *"abdehinorstuvw.?!", "der", "eul")
    vocabulary = MarianVocabulary.of(
        {token: i for i, token in enumerate(["</s>", "<unk>", *tags, *words, "<pad>"])}, len(words) + len(tags) + 2, 0
    )
    side = SentencePieceSide(handmade(" ".join(words)), vocabulary)
    return Parent(Tokenizer(side, SentencePieceSide(handmade(" ".join(words)), vocabulary)), "weights", "en", "de")


def test_a_child_of_an_imported_model_keeps_its_tokenizer(
    child_tsv: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parent = imported()
    config = child_config(child_tsv, 'tokenizer.type="sentencepiece"')
    assert parent.choice(config) == "keep"
    data = prepare(config, tmp_path / "run", init=parent)
    assert data.tokenizer.to_json() == parent.tokenizer.to_json()
    assert data.transfer is not None
    assert data.transfer.tgt_tokens == Matched(parent.tokenizer.tgt_size, 0, 0)
    assert "of the targets have characters that the model's vocabulary lacks" in caplog.text
    model = random_model(parent.tokenizer, "model.output_bias=true")
    child = transplanted(model, parent, data.tokenizer, "en", "gn")
    for name, tensor in parameters(model).items():
        assert torch.equal(parameters(child)[name], tensor), name


def test_a_new_tokenizer_takes_the_tokens_of_an_imported_model_by_text(child_tsv: Path, tmp_path: Path) -> None:
    parent = imported()
    model = random_model(parent.tokenizer, "model.output_bias=true")
    tokenizer = child_of(parent, child_config(child_tsv, "tokenizer.transfer=new"), tmp_path)
    assert tokenizer.kind == "bpe"
    child = transplanted(model, parent, tokenizer, "en", "gn")
    old = {token.replace("▁", " "): row for row, token in enumerate(parent.tokenizer.tgt_vocabulary)}
    for token in (" red", " tree", "e", " ", "</s>"):
        new = tokenizer.tgt_vocabulary.index(token)
        assert torch.equal(child.output.weight[new], model.output.weight[old[token]]), token
        assert child.output.bias[new] == model.output.bias[old[token]]


def test_an_imported_vocabulary_is_not_extended(child_tsv: Path) -> None:
    config = child_config(child_tsv, 'tokenizer.type="sentencepiece"', "tokenizer.transfer=extend")
    with pytest.raises(UsageError, match="only a bpe vocabulary can be extended"):
        imported().choice(config)


def test_a_multilingual_model_is_fine_tuned_on_each_of_its_languages(child_tsv: Path) -> None:
    parent = imported((">>fra<<", ">>spa<<"))
    assert not parent.has_child(child_config(child_tsv, tgt="fr"))
    assert parent.has_child(child_config(child_tsv, tgt="gn"))


# ---- refusals ----


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["model.d_model=32"], "--init: .* has the shape"),
        (["model.num_heads=4"], "--init: .* has 2 heads, where this model has 4"),
        (['model.activation="swish"'], "--init: .* has the activation relu, where this model has swish"),
        (["model.tie_embeddings=false"], "--init: .* output.weight is missing"),
        (["tokenizer.transfer=keep", "tokenizer.joint=false"], "the model has a joint bpe vocabulary"),
        (["tokenizer.transfer=extend", 'tokenizer.type="char"'], "the model has a joint bpe vocabulary"),
        (["data.placeholders=true"], "data.placeholders: the given tokenizer has no placeholder tokens"),
    ],
)
def test_what_cannot_work_is_refused(
    sets: list[str], message: str, parent: Path, child_tsv: Path, tmp_path: Path
) -> None:
    with pytest.raises(MtcliError, match=message):
        trained(parent, child_tsv, tmp_path / "run", *sets)


def test_another_parent_is_refused_when_a_child_is_resumed(
    parent: Path, toy_tsv: Path, child_tsv: Path, tmp_path: Path
) -> None:
    run = trained(parent, child_tsv, tmp_path / "run")
    config = build(
        None,
        {"data.train": [str(toy_tsv)], "data.src": "en", "data.tgt": "de"},
        [*parent_settings(), "train.seed=7", "train.max_steps=1"],
    )
    train(config, tmp_path / "other", CPU)
    with pytest.raises(UsageError, match="began with other weights than this model's"):
        trained(tmp_path / "other", child_tsv, run, "train.max_steps=12")


def test_a_given_tokenizer_is_used_for_a_child_only(parent: Path, child_tsv: Path, tmp_path: Path) -> None:
    given = train_tokenizer(other_pairs(), vocab_size=330)
    given.save(tmp_path / "given.json")
    setting = f'tokenizer.file="{tmp_path / "given.json"}"'
    run = trained(parent, child_tsv, tmp_path / "run", setting)
    assert Tokenizer.load(run / "tokenizer.json").to_json() == given.to_json()
    assert "the tokenizer of tokenizer.file" in (run / "README.md").read_text()
    with pytest.raises(UsageError, match="--init brings the tokenizer of its model"):
        request(parent, child_tsv, tmp_path / "other", setting, tgt="de")


def test_a_given_tokenizer_needs_no_settings_of_the_parents(child_tsv: Path, toy_tsv: Path, tmp_path: Path) -> None:
    separate = trained(None, toy_tsv, tmp_path / "separate", "tokenizer.joint=false", "train.max_steps=1", tgt="de")
    train_tokenizer(other_pairs(), vocab_size=330).save(tmp_path / "given.json")
    setting = f'tokenizer.file="{tmp_path / "given.json"}"'
    assert request(separate, child_tsv, tmp_path / "child", setting).config.tokenizer.joint


@pytest.mark.parametrize("setting", ['tokenizer.type="word"', "tokenizer.joint=false"])
def test_fine_tuning_refuses_another_tokenizer(parent: Path, child_tsv: Path, tmp_path: Path, setting: str) -> None:
    name = setting.partition("=")[0]
    with pytest.raises(UsageError, match=rf"--init brings the tokenizer of its model \(.*\), so omit {name}"):
        request(parent, child_tsv, tmp_path / "run", setting, tgt="de")
    request(parent, child_tsv, tmp_path / "run", 'tokenizer.type="bpe"', tgt="de")


def test_fine_tuning_says_that_a_size_of_the_vocabulary_has_no_effect(
    parent: Path, child_tsv: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    request(parent, child_tsv, tmp_path / "run", "tokenizer.vocab_size=5000", tgt="de")
    assert "tokenizer.vocab_size has no effect: --init brings its tokenizer" in caplog.text


# ---- choices and defaults ----


@pytest.mark.parametrize(
    ("kind", "joint", "sets", "choice"),
    [
        ("bpe", True, [], "extend"),
        ("bpe", False, ["tokenizer.joint=false"], "extend"),
        ("bpe", True, ["tokenizer.joint=false"], "new"),
        ("bpe", True, ['tokenizer.type="char"'], "new"),
        ("word", True, ['tokenizer.type="word"'], "new"),
        ("bpe", True, ["tokenizer.transfer=keep"], "keep"),
    ],
)
def test_how_a_child_gets_its_tokenizer(kind: str, joint: bool, sets: list[str], choice: str, child_tsv: Path) -> None:
    assert parent_of(kind=kind, joint=joint).choice(child_config(child_tsv, *sets)) == choice


def test_a_child_has_its_own_defaults() -> None:
    config = build(None, {"data.train": ["x.tsv"]}, initial={"model.d_model": 128})
    workload = Workload(3000, 28_000, "cpu", fine_tunes=True, has_parent=True)
    chosen = with_defaults(config, workload)
    settings = chosen.train
    assert (settings.lr, settings.batch_tokens, settings.max_steps, settings.patience) == (2e-3, 1024, 1100, 10)
    assert (settings.warmup_steps, chosen.model.dropout) == (100, 0.3)
    assert describe_choice(chosen, workload, resumed=False).startswith("transfer to 3,000 pairs, no budget, CPU, about")
    many = with_defaults(config, Workload(200_000, 3_000_000, "cpu", fine_tunes=True, has_parent=True))
    assert (many.train.batch_tokens, many.model.dropout) == (4096, 0.2)
