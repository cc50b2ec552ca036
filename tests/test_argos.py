"""Packages for Argos Translate: the SentencePiece model, the archive, and the translations of what is installed."""

import copy
import json
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.marian import lines, marian_folder
from helpers.toy import PAIRS, TorchTranslator, save_run, toy

from mtcli.errors import UsageError
from mtcli.exchange import argos, sentencepiece_model
from mtcli.exchange.export import export
from mtcli.exchange.marian_import import import_model
from mtcli.report.info import summary
from mtcli.text.special_tokens import EOS
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.translator import ModelTranslator, Translator
from mtcli.translate.windows import Reading

ctranslate2 = pytest.importorskip("ctranslate2")
pytest.importorskip("sentencepiece")

NAME = "translate-en_es-1_0"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_run(tmp_path_factory.mktemp("argos") / "run", toy())


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    out = run.with_name("out")
    export(run, "argos", out)
    return out


def test_pytorch_keeps_its_one_thread(run: Path, tmp_path: Path) -> None:
    """CTranslate2 sets the number of threads of the OpenMP that both use."""
    for target in ("argos", "ctranslate2"):
        export(run, target, tmp_path / target)
        assert torch.get_num_threads() == 1, target


def translations(translator: Translator, sources: list[str]) -> list[str]:
    return [translation.text for translation in translator.translate(sources, argos.SEARCH, Reading(warn=False))]


def demo_tokenizer(**how: Any) -> Tokenizer:
    from mtcli.corpus.demo import load

    return train_tokenizer(load().train[:2000], **how)


@pytest.mark.parametrize("how", [{}, {"joint": False}, {"kind": "char"}], ids=str)
def test_sentencepiece_splits_and_joins_as_our_tokenizer_does(how: dict[str, Any]) -> None:
    from mtcli.corpus.demo import load

    tokenizer = demo_tokenizer(**how)
    odd = [
        "", " two  spaces ", "日本 🙂", "</s> <s> <pad> <0x41>", "x1234,56.7!?", "tab\there", "don't", "a_b", "¿Qué?"
    ]  # fmt: skip
    pairs = [*load().test, *load().valid, *((line, line) for line in odd)]
    sentencepiece_model.check(sentencepiece_model.to_sentencepiece(tokenizer), tokenizer, pairs)


@pytest.mark.parametrize("side", [0, 1])
def test_a_sentence_that_sentencepiece_treats_differently_is_named(side: int) -> None:
    tokenizer = demo_tokenizer()
    model = sentencepiece_model.to_sentencepiece(tokenizer)
    odd = "▁"
    pair = [("Hello.", "Hola."), ("Hello.", "Hola.")]
    pair[1] = (odd, "Hola.") if side == 0 else ("Hello.", f"Hola{odd}.")
    verb = ("splits source", "joins target")[side]
    with pytest.raises(UsageError, match=f"SentencePiece {verb} sentence 2 of 2 differently"):
        sentencepiece_model.check(model, tokenizer, pair)


def test_obstacles_name_the_reason() -> None:
    assert sentencepiece_model.obstacles(demo_tokenizer()) == []
    (found,) = sentencepiece_model.obstacles(demo_tokenizer(kind="word"))
    assert found.startswith("tokenizer.type = word")
    (found,) = sentencepiece_model.obstacles(train_tokenizer([("a▁b a▁b", "a b")] * 9))
    assert found.startswith("a token contains ▁")


def test_the_archive_holds_what_argos_translate_reads(exported: Path) -> None:
    assert sorted(path.name for path in exported.iterdir()) == ["mtcli.json", "parity.json", f"{NAME}.argosmodel"]
    with zipfile.ZipFile(exported / f"{NAME}.argosmodel") as file:
        names = {name.removeprefix(f"{NAME}/") for name in file.namelist()}
        metadata = json.loads(file.read(f"{NAME}/metadata.json"))
    assert {"metadata.json", "sentencepiece.model", "README.md", "model/model.bin", "model/config.json"} <= names
    assert not any(name.startswith(("/", "..")) or name == f"{NAME}/" for name in names)
    assert metadata == {
        "type": "translate", "package_version": "1.0", "argos_version": "1.9", "from_code": "en",
        "from_name": "English", "to_code": "es", "to_name": "Spanish", "links": [],
    }  # fmt: skip


def test_an_installed_package_translates_like_the_run(exported: Path, tmp_path: Path) -> None:
    ours = toy()
    installed = argos.Installed(
        argos.install(exported / f"{NAME}.argosmodel", tmp_path), ours.tokenizer, ours.backend.info
    )
    sources = [src for src, _ in PAIRS[::5]] + ["日本 dog.", "one  red dog"]
    found = [
        translation.text
        for translation in ModelTranslator(installed).translate(sources, argos.SEARCH, Reading(warn=False))
    ]
    assert found == translations(ours, sources)
    parity = json.loads((exported / "parity.json").read_text())
    assert (parity["equal"], parity["sentences"], parity["length_penalty"]) == (72, 72, 0.2)
    assert parity["max_score_difference"] < 0.01  # ours adds the probabilities of hypotheses with the same text


def test_an_empty_hypothesis_takes_no_place_in_the_beam(tmp_path: Path) -> None:
    """Argos Translate never returns an empty text: it searches on where an empty one would have ended our search."""
    model = copy.deepcopy(toy(bias=True).model)
    with torch.no_grad():
        model.output.bias[EOS] += 6
    ours = TorchTranslator(model, toy(bias=True).tokenizer, longest_src=64)
    found = export(save_run(tmp_path / "run", ours), "argos", tmp_path / "out")
    assert found is not None
    assert (found.equal, found.sentences) == (72, 72)


def test_separate_vocabularies_and_int8(tmp_path: Path) -> None:
    ours = toy("pre", joint=False, positions="learned")
    found = export(save_run(tmp_path / "run", ours), "argos", tmp_path / "out")
    assert found is not None
    assert (found.equal, found.sentences) == (72, 72)
    export(tmp_path / "run", "argos", tmp_path / "out", "int8")
    assert json.loads((tmp_path / "out" / "mtcli.json").read_text())["quantization"] == "int8"


def test_the_same_run_gives_the_same_package(run: Path, exported: Path, tmp_path: Path) -> None:
    export(run, "argos", tmp_path / "out")
    name = f"{NAME}.argosmodel"
    assert (tmp_path / "out" / name).read_bytes() == (exported / name).read_bytes()


def test_info_describes_the_package(exported: Path) -> None:
    rows = dict(summary(exported))
    assert rows["exported"].startswith(f"{exported}: to argos in float32")
    assert rows["parity"] == "72 of 72 translations equal to those of the run"
    assert rows["tokenizer"] == "SentencePiece, equal to that of the run on 72 held-out pairs"
    assert f"install_from_path('{exported / NAME}.argosmodel')" in rows["use"]


def test_an_export_is_refused_and_leaves_the_folder_as_it_was(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="holds no exported model"):
        export(run, "argos", out)
    alone = tmp_path / "alone"
    alone.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        (alone / name).write_bytes((run / name).read_bytes())
    with pytest.raises(UsageError, match="no test or valid pairs beside it to prove"):
        export(alone, "argos", tmp_path / "new")
    odd = save_run(tmp_path / "odd", toy())
    (odd / "data" / "test.jsonl").write_text(json.dumps({"translation": {"en": "one ▁ dog", "es": "x"}}) + "\n")
    with pytest.raises(UsageError, match="splits source sentence 1 of 1 differently than mtcli: 'one ▁ dog'"):
        export(odd, "argos", tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone", "odd", "out"]


def test_an_imported_model_keeps_its_sentencepiece_model(tmp_path: Path) -> None:
    origin = marian_folder(tmp_path / "origin")
    model = import_model(str(origin), tmp_path / "imported").folder
    assert export(model, "argos", tmp_path / "out") is None  # it has no pairs to compare on
    installed = argos.install(tmp_path / "out" / f"{NAME}.argosmodel", tmp_path)
    assert (installed / "sentencepiece.model").read_bytes() == (origin / "source.spm").read_bytes()
    ours = PyTorchBackend.load(model, "cpu")
    pairs = [(line, line) for line in lines(200)]
    sentencepiece_model.check((origin / "source.spm").read_bytes(), ours.tokenizer, pairs)


def test_a_multilingual_model_is_refused(tmp_path: Path) -> None:
    origin = marian_folder(tmp_path / "origin", tags=(">>fra<<", ">>spa<<"))
    model = import_model(str(origin), tmp_path / "imported").folder
    with pytest.raises(UsageError, match="an imported model with several target languages"):
        export(model, "argos", tmp_path / "out")


def test_argos_translate_itself_gives_our_translations(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sentence splitting needs a download, so a stand-in gives each line back whole."""
    models = types.SimpleNamespace(cache_dir="", list_models=lambda: ["en"])
    detector = types.SimpleNamespace(sentences=lambda text: [text])
    minisbd = types.SimpleNamespace(SBDetect=lambda *_, **__: detector, models=models)
    monkeypatch.setitem(sys.modules, "minisbd", minisbd)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "stanza", types.ModuleType("stanza"))
    monkeypatch.setenv("ARGOS_PACKAGES_DIR", str(tmp_path / "packages"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("ARGOS_COMPUTE_TYPE", "float32")
    package = pytest.importorskip("argostranslate.package")
    translate = pytest.importorskip("argostranslate.translate")
    package.install_from_path(exported / f"{NAME}.argosmodel")
    (found,) = package.get_installed_packages()
    assert str(found) == "English → Spanish"
    sources = [src for src, _ in PAIRS[::5]]
    assert [translate.translate(src, "en", "es") for src in sources] == translations(toy(), sources)
