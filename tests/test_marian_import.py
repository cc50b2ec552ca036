import codecs
import json
import math
import resource
import shutil
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from helpers.command import call
from helpers.marian import TAGS, generated, lines, marian_folder
from helpers.servers import started
from helpers.spm import marian_tokenizer
from helpers.toy import save_toy
from safetensors.torch import load_file, save_file

from mtcli.cli import main
from mtcli.config.build import build
from mtcli.config.toml_file import load as load_config
from mtcli.corpus.cache.parent import Parent
from mtcli.corpus.cache.prepare import Prepared, prepare
from mtcli.documents.lines import BySentence
from mtcli.errors import DataError, ModelError, StorageError, UsageError
from mtcli.evaluation.confidence import calibrate_import
from mtcli.exchange import marian_weights
from mtcli.exchange.export import export
from mtcli.exchange.marian_import import default_folder, import_model
from mtcli.report.info import summary
from mtcli.serve.app import ServerSettings, load_app
from mtcli.storage.model_file import load_model
from mtcli.text.special_tokens import BOS, PAD
from mtcli.translate.backends.ctranslate2 import load_native
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.confidence import read_confidence
from mtcli.translate.loading import load
from mtcli.translate.translation import Options
from mtcli.translate.windows import Reading

transformers = pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

FORMS: dict[str, dict[str, Any]] = {
    "opus-mt": {"activation_function": "swish"},
    "tc-big": {"activation_function": "relu", "half": True, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64},
    "gelu": {"activation_function": "gelu", "decoder_layers": 1},
}


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marian_folder(tmp_path_factory.mktemp("origin") / "opus-mt-en-es", tags=TAGS)


@pytest.fixture(scope="module")
def imported(origin: Path) -> Path:
    out = origin.with_name("imported")
    import_model(str(origin), out)
    return out


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Path]]:
    """A briefly trained model of each form, whose translations have different lengths, and its import."""

    @cache
    def folders(form: str) -> tuple[Path, Path]:
        origin = marian_folder(tmp_path_factory.mktemp("trained") / "opus-mt-en-es", steps=100, **FORMS[form])
        imported = origin.with_name("imported")
        import_model(str(origin), imported)
        return origin, imported

    return folders


GREETING = "Good morning."
QUICK = ("--set", "train.precision=fp32", "--set", "decode.max_extra=5")


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def command(*arguments: object) -> int:
    """The exit code of a command."""
    sys.argv = ["mtcli", *map(str, arguments)]
    with pytest.raises(SystemExit) as end:
        main()
    return int(end.value.code or 0)


def theirs(folder: Path) -> tuple[Any, Any]:
    """The model and the tokenizer of transformers, in float32."""
    model = transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    return model, marian_tokenizer(folder)


def assert_same_logits(origin: Path, imported: Path, texts: list[str]) -> None:
    """Compare logits and log-probabilities in float64, and the rounding errors of both models in float32.

    In float32, the two add the same products in different orders, and the processor chooses the order.
    """
    model, tokenizer = theirs(origin)
    ours, _, our_tokenizer = load_model(imported)
    assert our_tokenizer.sentencepiece
    order = torch.tensor(our_tokenizer.sentencepiece[0].vocabulary.origin_ids)
    inputs = tokenizer(texts, text_target=texts, padding=True, return_tensors="pt")
    labels = inputs.pop("labels")
    start = torch.full((len(texts), 1), model.config.decoder_start_token_id)
    tgt = torch.cat((start, labels[:, :-1]), dim=1)
    to_ours = torch.empty(len(order) - 1, dtype=torch.long)
    to_ours[order] = torch.arange(len(order))
    to_ours[order[PAD]] = PAD
    our_tgt = to_ours[tgt]
    our_tgt[:, 0] = BOS
    real = [*range(BOS), *range(BOS + 1, len(order))]

    def logits() -> tuple[torch.Tensor, torch.Tensor]:
        with torch.inference_mode():
            expected = model(**inputs, decoder_input_ids=tgt).logits[:, :, order]
            found = ours(to_ours[inputs["input_ids"]], our_tgt)
        return found, expected

    found, expected = logits()
    assert float(found.softmax(dim=-1)[..., BOS].max()) == 0  # which the origin does not have
    model.double()
    ours.double()
    exact, expected_exact = logits()
    assert float(expected_exact[..., real].std()) > 0.5
    torch.testing.assert_close(exact[..., real], expected_exact[..., real], rtol=0, atol=1e-10)
    torch.testing.assert_close(
        exact.log_softmax(dim=-1)[..., real], expected_exact[..., real].log_softmax(dim=-1), rtol=0, atol=1e-10
    )
    error = (found.double() - exact)[..., real].abs().max()
    expected_error = (expected.double() - expected_exact)[..., real].abs().max()
    assert 0 < float(error) < 4 * float(expected_error)


@pytest.mark.parametrize("form", FORMS)
def test_logits_are_those_of_transformers(form: str, tmp_path: Path) -> None:
    origin = marian_folder(tmp_path / "origin", **FORMS[form])
    import_model(str(origin), tmp_path / "out")
    assert_same_logits(origin, tmp_path / "out", lines(20))


@pytest.mark.parametrize("length_penalty", [1.0, 1.5])
@pytest.mark.parametrize("early_stopping", [True, False])
def test_the_search_stops_when_that_of_transformers_does(
    early_stopping: bool, length_penalty: float, trained: Callable[[str], tuple[Path, Path]]
) -> None:
    origin, imported = trained("opus-mt")
    found = translations(imported, length_penalty, early_stopping)
    search = {"num_beams": 4, "length_penalty": length_penalty, "early_stopping": early_stopping}
    expected, lengths = generated(origin, lines(50), 30, **search)
    ended = [i for i, length in enumerate(lengths) if length < 30]  # at the maximum length, both differ
    assert len(ended) > 40
    assert [found[i] for i in ended] == [expected[i] for i in ended]
    assert found != translations(imported, length_penalty, not early_stopping) or length_penalty == 1.0


@cache
def translations(model: Path, length_penalty: float, early_stopping: bool) -> list[str]:
    """Translate sentences of the demo with these options. Two tests compare each result."""
    translator, options, _ = load([model], "cpu")
    chosen = replace(options, max_length=29, length_penalty=length_penalty, early_stopping=early_stopping)
    return [one.text for one in translator.translate(lines(50), chosen, Reading(warn=False))]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"early_stopping": False}, False),
        ({"early_stopping": None}, False),
        ({"early_stopping": True}, True),
    ],
)
def test_early_stopping_is_that_of_the_origin(
    settings: dict[str, object], expected: bool, origin: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "origin"
    shutil.copytree(origin, changed)
    path = changed / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    import_model(str(changed), tmp_path / "out")
    assert load_model(tmp_path / "out")[1].decode.early_stopping == expected
    assert load_config(tmp_path / "out" / "config.toml").decode.early_stopping == expected
    export(tmp_path / "out", "huggingface", tmp_path / "exported")
    exported = json.loads((tmp_path / "exported" / "generation_config.json").read_text())
    assert exported["early_stopping"] == expected


@pytest.mark.parametrize("form", FORMS)
def test_translations_are_those_of_transformers(form: str, trained: Callable[[str], tuple[Path, Path]]) -> None:
    origin, imported = trained(form)
    translator, options, languages = load([imported], "cpu")
    assert languages == ("en", "es")
    assert (options.beam_size, options.length_penalty, options.length_normalization) == (4, 1.0, "power")
    texts = lines(40)
    for beam_size in (1, 4):
        chosen = replace(options, beam_size=beam_size, max_length=30, early_stopping=True)
        found = list(translator.translate(texts, chosen, Reading(warn=False)))
        ended = [i for i, t in enumerate(found) if len(translator.tokenizer.encode_tgt([t.text])[0]) < 25]
        # The model is no trivial one. How many translations differ depends on the processor that trained it.
        assert len(ended) > 5
        assert len({t.text for t in found}) > 5
        expected, _ = generated(origin, texts, 30, num_beams=beam_size, early_stopping=True)
        different = [i for i in ended if found[i].text != expected[i]]
        assert not different


def test_an_import_and_an_export_give_the_same_tensors_and_files(origin: Path, imported: Path, tmp_path: Path) -> None:
    export(imported, "huggingface", tmp_path / "out")
    before, after = (load_file(folder / "model.safetensors") for folder in (origin, tmp_path / "out"))
    before.setdefault("final_logits_bias", torch.zeros_like(after["final_logits_bias"]))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    for name in ("source.spm", "target.spm"):
        assert (origin / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert json.loads((origin / "vocab.json").read_text()) == json.loads((tmp_path / "out" / "vocab.json").read_text())
    old, new = theirs(origin)[0].config, theirs(tmp_path / "out")[0].config
    for key in ("pad_token_id", "eos_token_id", "decoder_start_token_id", "activation_function", "vocab_size"):
        assert getattr(old, key) == getattr(new, key), key
    again = tmp_path / "again"
    import_model(str(tmp_path / "out"), again)
    assert (again / "tokenizer.json").read_bytes() == (imported / "tokenizer.json").read_bytes()


def test_an_export_of_a_trained_start_token_keeps_it_as_a_further_token(imported: Path, tmp_path: Path) -> None:
    from mtcli.storage.model_file import model_bytes, parameters

    model, info, _ = load_model(imported)
    with torch.no_grad():
        model.tgt_embedding.tokens.weight[BOS] += 0.1
    shutil.copytree(imported, tmp_path / "tuned")
    (tmp_path / "tuned" / "model.safetensors").write_bytes(model_bytes(parameters(model), info))
    export(tmp_path / "tuned", "huggingface", tmp_path / "out")
    config = theirs(tmp_path / "out")[0].config
    assert config.decoder_start_token_id == config.vocab_size - 1 != config.pad_token_id
    texts = lines(10)
    translator, options, _ = load([tmp_path / "tuned"], "cpu")
    found = [
        t.text for t in translator.translate(texts, replace(options, beam_size=1, max_length=12), Reading(warn=False))
    ]
    expected, _ = generated(tmp_path / "out", texts, 12, num_beams=1, suppress_tokens=[config.decoder_start_token_id])
    assert found == expected


def test_an_export_to_ctranslate2_translates_as_we_do(imported: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    export(imported, "ctranslate2", tmp_path / "ct2")
    engine, options, _ = load([tmp_path / "ct2"], "cpu")
    ours, _, _ = load([imported], "cpu")
    assert options.length_normalization == "power"
    for chosen in (replace(options, max_length=20), replace(options, max_length=20, to="fra", beam_size=1)):
        for a, b in zip(*(x.translate(lines(20), chosen, Reading(warn=False)) for x in (ours, engine)), strict=True):
            assert a.text == b.text
            assert a.candidates[0].score == pytest.approx(b.candidates[0].score, abs=1e-3)


def test_ctranslate2_translates_as_with_its_own_converter(
    trained: Callable[[str], tuple[Path, Path]], tmp_path: Path
) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    origin = shutil.copytree(trained("opus-mt")[0], tmp_path / "origin")
    model, tokenizer = theirs(origin)
    pad = model.config.pad_token_id
    with torch.no_grad():  # as published models have it: their converter removes <pad> and starts from zeros
        model.model.shared.weight[pad] = 0
        model.final_logits_bias[0, pad] = -50
    model.save_pretrained(origin)
    ctranslate2.converters.TransformersConverter(str(origin)).convert(str(tmp_path / "theirs"))
    import_model(str(origin), tmp_path / "imported")
    export(tmp_path / "imported", "ctranslate2", tmp_path / "ours")
    sources = [tokenizer.convert_ids_to_tokens(row) for row in tokenizer(lines(30))["input_ids"]]
    found = []
    for name, rows in (("ours", [row[:-1] for row in sources]), ("theirs", sources)):  # ours adds </s> itself
        translator = load_native(tmp_path / name, device="cpu")
        for beam_size in (1, 4):
            results = translator.translate_batch(rows, beam_size=beam_size, max_decoding_length=30)
            found.append([result.hypotheses[0] for result in results])
    assert found[:2] == found[2:]


def test_the_folder_says_where_the_model_is_from(
    origin: Path, imported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = json.loads((imported / "origin.json").read_text())
    assert about["source"] == str(origin)
    assert about["revision"] is None
    card = (imported / "README.md").read_text()
    assert f"imported from `{origin}`" in card
    assert "the origin's model card names none" in card
    rows = dict(summary(imported))
    assert rows["targets"].startswith("deu, fra")
    assert rows["languages"] == "en → es"
    config = load_config(imported / "config.toml")
    assert (config.tokenizer.type, config.model.activation, config.data.src) == ("sentencepiece", "swish", "en")
    shutil.copytree(origin, tmp_path / "opus-mt-en-es")
    (tmp_path / "opus-mt-en-es" / "README.md").write_text(
        "---\nlanguage: en\nlicense: cc-by-4.0\n---\nlicense: other\n"
    )
    out = tmp_path / "my model"
    assert command("import", tmp_path / "opus-mt-en-es", "-o", out) == 0
    said = capsys.readouterr().err
    assert "target languages: deu, fra" in said
    assert f"translate with it: mtcli translate --model '{out}' --to deu \"…\"\n" in said
    assert "license: cc-by-4.0" in (out / "README.md").read_text()


def test_a_multilingual_model_translates_into_the_language_of_the_option_or_of_the_tag(
    imported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log: list[str] = []

    def translated(*options: str, text: str = "Good morning.") -> str:
        assert command("translate", text, "--model", imported, "--max-length", 9, "-b", 1, *options) == 0
        printed = capsys.readouterr()
        log.append(printed.err)
        return printed.out

    tagged = translated("--to", "fra")
    assert tagged == translated("--to", "fr") == translated(text=">>fra<< Good morning.")
    assert translated("--to", "deu") not in (tagged, translated())
    assert "line 1: no target language, and this model has several (deu, fra)" in log[-1]
    assert command("translate", "x", "--model", imported, "--to", "spa") == 2
    assert "--to spa: choose from deu, fra" in capsys.readouterr().err


def test_typed_forms_of_a_multilingual_model_need_a_target_language(
    imported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "pairs.tsv", f"{GREETING}\tBonjour.\n")
    arguments = ("eval", "--robust", "--model", imported, "-b", 1, "--pairs", tmp_path / "pairs.tsv")
    assert command(*arguments) == 2
    assert "this model has several target languages; choose one with --to" in capsys.readouterr().err
    assert command(*arguments, "--to", "fra") == 0
    assert "capitals" in capsys.readouterr().out


def test_synthetic_pairs_of_a_multilingual_model_need_tags(
    imported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "mono.en"
    arguments = ("augment", "--model", imported, "--forward", "-b", 1, "-i", text, "-o", tmp_path / "out.tsv")
    write(text, f">>fra<< {GREETING}\n\n{GREETING}\n")
    assert command(*arguments) == 3
    assert f"{text}:3: names no target language" in capsys.readouterr().err
    write(text, f">>fra<< {GREETING}\n\n")
    assert command(*arguments) == 0


@pytest.mark.parametrize("name", ["score", "eval", "explain"])
def test_the_target_language_is_that_of_the_option_or_of_the_tag(
    name: str, imported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    target = write(tmp_path / "target", "Buenos días.\n")
    arguments = {
        "score": ("--src-file", source, "--tgt-file", target),
        "eval": ("--src-file", source, "--ref-file", target, "--chrf", "--json"),
        "explain": ("--json", "-b", 1),
    }[name]

    log: list[str] = []

    def result(text: str, to: str) -> str:
        write(source, f"{text}\n")
        texts = [text] if name == "explain" else []
        assert command(name, *texts, *arguments, "--model", imported, "--to", to) == 0
        printed = capsys.readouterr()
        log.append(printed.err)
        if name == "explain":
            about = json.loads(printed.out)
            return str([about["src"], about["tgt"]])
        return printed.out

    french = result(GREETING, "fra")
    assert result(GREETING, "fr") == french
    assert result(f">>fra<< {GREETING}", "") == french
    assert result(f">>fra<< {GREETING}", "deu") == french
    assert "no target language" not in "".join(log)
    assert result(GREETING, "deu") != french
    assert result(GREETING, "") != french
    assert "line 1: no target language, and this model has several (deu, fra)" in log[-1]


def test_bleu_is_tokenized_for_the_target_language(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import_model(str(marian_folder(tmp_path / "origin", tags=(">>fra<<", ">>zho<<"))), tmp_path / "out")
    source = write(tmp_path / "source", f"{GREETING}\n")
    target = write(tmp_path / "target", "早上好。\n")
    files = ("--src-file", source, "--ref-file", target)
    for to, tokenizer in (("fra", "13a"), ("zho", "zh"), ("zh", "zh")):
        assert command("eval", *files, "-b", 1, "--json", "--model", tmp_path / "out", "--to", to) == 0
        assert json.loads(capsys.readouterr().out)["tok"] == tokenizer


@pytest.mark.parametrize("name", ["translate", "score", "eval", "explain"])
def test_an_unknown_target_language_is_refused(
    name: str, origin: Path, imported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "file", f"{GREETING}\n")
    arguments = {
        "translate": ("-i", file),
        "score": ("--src-file", file, "--tgt-file", file),
        "eval": ("--src-file", file, "--ref-file", file),
        "explain": (GREETING,),
    }[name]
    assert command(name, *arguments, "--model", imported, "--to", "spa") == 2
    assert "mtcli: --to spa: choose from deu, fra" in capsys.readouterr().err
    assert command(name, *arguments, "--model", save_toy(tmp_path), "--to", "fra") == 2
    assert "mtcli: --to fra: this model translates into one language only; omit --to" in capsys.readouterr().err


def test_a_multilingual_model_is_compared_with_one_of_one_language(
    imported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "source", "one red dog.\n")
    target = write(tmp_path / "target", "uno rojo perro.\n")
    files = ("--src-file", source, "--ref-file", target)
    models = (imported, save_toy(tmp_path))
    for model, other in (models, models[::-1]):
        assert command("eval", *files, "--model", model, "--compare", other, "--to", "fra") == 0
        assert "BLEU" in capsys.readouterr().out
    assert command("eval", "--hyp-file", target, "--ref-file", target, "--to", "fra") == 2
    assert "--to: only with a model that translates" in capsys.readouterr().err


def test_a_request_to_the_server_names_the_target_language(imported: Path) -> None:
    translator, options, _ = load([imported], "cpu")

    @cache
    def expected(to: str) -> tuple[int, dict[str, str]]:
        by_sentence = BySentence(translator, "en", to)
        (found,) = by_sentence.translate([GREETING], replace(options, to=to, repair=True), Reading(warn=False))
        return 200, {"translatedText": found.text}

    app, _ = load_app([imported], ServerSettings(), "cpu")
    with started(app) as site:

        def answer(text: str, **fields: str) -> tuple[int, dict[str, str]]:
            return site.json("/translate", q=text, source="en", **fields)[:2]

        assert expected("fra") != expected("deu")
        for text, target in ((GREETING, "fra"), (GREETING, "fr"), (f">>fra<< {GREETING}", "deu")):
            assert answer(text, target=target) == expected("fra")
        assert answer(GREETING, target="deu") == expected("deu")
        several = "target: this model has several target languages; choose from deu, fra"
        assert answer(GREETING) == (400, {"error": several})
        unknown = "no model for en → spa; there is one for en → deu, fra"
        assert answer(GREETING, target="spa") == (400, {"error": unknown})


def test_the_server_lists_the_target_languages(imported: Path) -> None:
    app, _ = load_app([imported], ServerSettings(), "cpu")
    with started(app) as site:
        assert site.send("/languages")[1] == [
            {"code": "en", "name": "English", "targets": ["deu", "fra"]},
            {"code": "deu", "name": "German", "targets": []},
            {"code": "fra", "name": "French", "targets": []},
        ]
        assert '"targets": ["deu", "fra"]' in site.send("/")[1]


def test_a_line_without_a_token_needs_no_tag(imported: Path) -> None:
    translator, options, _ = load([imported], "cpu")
    chosen = replace(options, max_length=3, beam_size=1)
    found = list(translator.translate(["\u200b", "", "Good morning."], chosen))
    assert [one.source for one in found] == ["\u200b", "", "Good morning."]


def test_a_line_without_a_token_has_an_empty_translation(imported: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    export(imported, "ctranslate2", tmp_path / "ct2")
    for model in (imported, tmp_path / "ct2"):
        translator, options, _ = load([model], "cpu")
        for chosen in (options, replace(options, beam_size=1, to="fra")):
            chosen = replace(chosen, max_length=5, alignments=True)
            first, second, third = translator.translate(
                ["\u200b", "\ufffd \u200b", "Good."], chosen, Reading(warn=False)
            )
            assert (first.text, second.text) == ("", "")
            assert third.text


def test_a_tag_is_no_word_of_the_line(imported: Path) -> None:
    translator, options, _ = load([imported], "cpu")
    chosen = replace(options, alignments=True, max_length=9, beam_size=1, to="fra")
    (found,) = translator.translate(["Good morning."], chosen, Reading(warn=False))
    assert {src for src, _ in found.candidates[0].alignment} <= {0, 1}
    words = found.text.split()
    assert {tgt for _, tgt in found.candidates[0].alignment} == set(range(len(words)))


def test_one_language_needs_no_tag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import_model(str(marian_folder(tmp_path / "origin")), tmp_path / "out")
    assert command("translate", "x", "--model", tmp_path / "out", "--to", "fra") == 2
    assert "translates into one language only" in capsys.readouterr().err


def test_a_file_of_pickled_tensors_gives_the_same_model(origin: Path, imported: Path, tmp_path: Path) -> None:
    shutil.copytree(origin, tmp_path / "origin")
    (tmp_path / "origin" / "model.safetensors").unlink()
    model, _ = theirs(origin)
    state = model.state_dict()
    state["lm_head.weight"] = state["model.shared.weight"]
    torch.save(state, tmp_path / "origin" / "pytorch_model.bin")
    import_model(str(tmp_path / "origin"), tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (imported / "model.safetensors").read_bytes()


def test_the_hub_is_asked_for_what_is_needed_and_the_revision_is_pinned(
    origin: Path, imported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    asked: list[tuple[str, str | None, list[str]]] = []

    def snapshot_download(name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((name, revision, allow_patterns))
        folder = tmp_path / "models--Helsinki-NLP--opus-mt-en-es" / "snapshots" / commit
        folder.mkdir(parents=True, exist_ok=True)
        for name in set(allow_patterns) & {path.name for path in origin.iterdir()} - {"model.safetensors"}:
            shutil.copy(origin / name, folder)
        if "pytorch_model.bin" in allow_patterns:
            torch.save(load_file(origin / "model.safetensors"), folder / "pytorch_model.bin")
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    monkeypatch.chdir(tmp_path)
    assert default_folder("Helsinki-NLP/opus-mt-en-es") == Path("runs/opus-mt-en-es")
    assert command("import", "Helsinki-NLP/opus-mt-en-es", "--revision", "main") == 0
    assert [(name, revision) for name, revision, _ in asked] == [
        ("Helsinki-NLP/opus-mt-en-es", "main"), ("Helsinki-NLP/opus-mt-en-es", commit),
    ]  # fmt: skip
    assert asked[1][2] == ["pytorch_model.bin"]
    out = tmp_path / "runs" / "opus-mt-en-es"
    assert json.loads((out / "origin.json").read_text())["revision"] == commit
    assert f"revision: `{commit}`" in (out / "README.md").read_text()
    assert (out / "model.safetensors").read_bytes() == (imported / "model.safetensors").read_bytes()


@pytest.mark.network
def test_a_real_model_of_the_hub(tmp_path: Path) -> None:
    import_model("Helsinki-NLP/opus-mt-en-de", tmp_path / "out")
    translator, options, languages = load([tmp_path / "out"], "cpu")
    assert languages == ("en", "de")
    (found,) = translator.translate(["Good morning."], options)
    assert found.text == "Guten Morgen."


def test_a_name_that_is_nowhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.errors import LocalEntryNotFoundError

    def snapshot_download(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("offline")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    with pytest.raises(ModelError, match="no such folder, and the Hugging Face Hub cannot be reached"):
        import_model("Helsinki-NLP/opus-mt-en-de", tmp_path / "out")
    with pytest.raises(ModelError, match="no such folder; name one"):
        import_model(str(tmp_path / "absent" / "model" / "x"), tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match="is a file"):
        import_model(str(tmp_path / "file"), tmp_path / "out")


def test_a_connection_that_breaks_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.errors import HfHubHTTPError

    broken, *_ = HfHubHTTPError.__bases__  # the base of all errors of the HTTP library

    def snapshot_download(*_: object, **__: object) -> str:
        raise broken("the server closed the connection")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    with pytest.raises(StorageError, match=r"cannot be downloaded \(the server closed the connection\); run the same"):
        import_model("Helsinki-NLP/opus-mt-en-de", tmp_path / "out")


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "pre-norm": ({"normalize_before": True}, "normalize_before = true"),
    "embedding norm": ({"normalize_embedding": True}, "normalize_embedding = true"),
    "final norm": ({"add_final_layer_norm": True}, "add_final_layer_norm = true"),
    "learned positions": ({"static_position_embeddings": False}, "static_position_embeddings = false"),
    "unscaled": ({"scale_embedding": False}, "scale_embedding = false"),
    "two vocabularies": ({"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings = false"),
    "untied output": ({"tie_word_embeddings": False}, "tie_word_embeddings = false"),
    "other heads": ({"decoder_attention_heads": 8}, "encoder_attention_heads = 4 and decoder_attention_heads = 8"),
    "other widths": ({"decoder_ffn_dim": 64}, "encoder_ffn_dim = 48 and decoder_ffn_dim = 64"),
    "activation": ({"activation_function": "tanh"}, 'activation_function = "tanh"'),
    "another model": ({"model_type": "bart"}, 'model_type = "bart"'),
    "vocabularies": ({"decoder_vocab_size": 7}, "decoder_vocab_size = 7"),
    "two things": ({"model_type": "bart", "normalize_before": True}, 'model_type = "bart", normalize_before = true'),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_transformer_cannot_express_is_named(name: str, origin: Path, tmp_path: Path) -> None:
    changes, message = REFUSED[name]
    changed = tmp_path / "origin"
    shutil.copytree(origin, changed)
    config = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(ModelError) as error:
        import_model(str(changed), tmp_path / "out")
    assert str(error.value).endswith(f"a model that mtcli cannot express: {message}")
    assert not (tmp_path / "out").exists()


def test_a_shape_that_no_transformer_has_is_refused(origin: Path, tmp_path: Path) -> None:
    changed = shutil.copytree(origin, tmp_path / "origin")
    config = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps({**config, "d_model": 33}))
    message = rf"^{changed}/config\.json: d_model = 33: must be even, and a multiple of the 4 heads$"
    with pytest.raises(ModelError, match=message):
        import_model(str(changed), tmp_path / "out")


ODD_VALUES = {
    "list": [], "object": {}, "boolean": True, "null": None, "text": "x/y", "fraction": 1.5, "negative": -1,
    "huge": 10**30, "infinity": math.inf, "NaN": math.nan,
}  # fmt: skip

VALID: dict[str, tuple[str, ...]] = {
    "_name_or_path": ("text", "null"),
    "activation_dropout": (),
    "activation_function": (),
    "add_final_layer_norm": (),
    "attention_dropout": (),
    "d_model": (),
    "decoder_attention_heads": (),
    "decoder_ffn_dim": (),
    "decoder_layerdrop": (),
    "decoder_layers": (),
    "decoder_start_token_id": (),
    "decoder_vocab_size": ("null",),
    "dropout": (),
    "encoder_attention_heads": (),
    "encoder_ffn_dim": (),
    "encoder_layerdrop": (),
    "encoder_layers": (),
    "eos_token_id": (),
    "extra_pos_embeddings": (),
    "is_encoder_decoder": ("boolean",),
    "max_position_embeddings": (),
    "model_type": (),
    "normalize_before": (),
    "normalize_embedding": (),
    "pad_token_id": (),
    "scale_embedding": ("boolean",),
    "share_encoder_decoder_embeddings": ("boolean",),
    "static_position_embeddings": ("boolean",),
    "tie_word_embeddings": ("boolean",),
    "vocab_size": (),
}
"""The fields of `config.json` that an import reads, with the odd values that it takes."""

VALID_SEARCH = {"num_beams": ("null",), "length_penalty": ("null", "fraction"), "early_stopping": ("null", "boolean")}
VALID_TOKENIZER: dict[str, tuple[str, ...]] = {
    "source_lang": ("null",), "target_lang": ("null",), "separate_vocabs": (),
}  # fmt: skip


@pytest.mark.parametrize(
    ("file", "field", "valid"),
    [
        *(("config.json", *row) for row in (VALID | VALID_SEARCH).items()),
        *(("generation_config.json", *row) for row in VALID_SEARCH.items()),
        *(("tokenizer_config.json", *row) for row in VALID_TOKENIZER.items()),
        ("vocab.json", "<unk>", ()),
    ],
)
def test_an_odd_value_is_refused_by_file_and_field(
    file: str, field: str, valid: tuple[str, ...], origin: Path, tmp_path: Path
) -> None:
    changed = tmp_path / "opus-mt-en-es"
    shutil.copytree(origin, changed)
    content = json.loads((changed / file).read_text())
    for name, value in ODD_VALUES.items():
        if name in valid:
            continue
        (changed / file).write_text(json.dumps({**content, field: value}))
        with pytest.raises(ModelError) as error:
            import_model(str(changed), tmp_path / "out")
        message = str(error.value)
        assert str(changed / file) in message, name
        assert field in message or file == "vocab.json", name
        assert len(message) < 500, name
        assert "\n" not in message, name


def test_a_vocabulary_with_half_a_surrogate_pair_is_refused(origin: Path, tmp_path: Path) -> None:
    changed = tmp_path / "origin"
    shutil.copytree(origin, changed)
    vocab = json.loads((changed / "vocab.json").read_text())
    token = next(iter(vocab.keys() - {"</s>", "<unk>", "<pad>"}))
    vocab["\ud800"] = vocab.pop(token)
    (changed / "vocab.json").write_text(json.dumps(vocab))
    with pytest.raises(ModelError, match=r"vocab\.json: a token of its vocabulary is not valid Unicode"):
        import_model(str(changed), tmp_path / "out")


def test_a_language_that_the_model_names_wrongly_can_be_given(
    origin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = tmp_path / "origin"
    shutil.copytree(origin, changed)
    about = changed / "tokenizer_config.json"
    about.write_text(json.dumps({"source_lang": "en/us", "target_lang": "es"}))
    assert command("import", changed, "-o", tmp_path / "out") == 4
    message = capsys.readouterr().err
    assert f"{about}: source_lang: 'en/us': a language is named by letters" in message
    assert "give --src" in message
    assert import_model(str(changed), tmp_path / "out", src="en").src == "en"


def test_dropout_that_is_ignored_is_named(origin: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    changed = tmp_path / "origin"
    shutil.copytree(origin, changed)
    config = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps({**config, "attention_dropout": 0.2}))
    import_model(str(changed), tmp_path / "out")
    assert "attention_dropout = 0.2 is ignored" in caplog.text


def test_a_search_setting_that_is_ignored_is_named(
    origin: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changed = tmp_path / "origin"
    shutil.copytree(origin, changed)
    path = changed / "generation_config.json"
    settings = {"renormalize_logits": True, "min_length": 0, "repetition_penalty": None, "no_repeat_ngram_size": 3}
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    import_model(str(changed), tmp_path / "out")
    named = [message.split(" is ignored")[0] for message in caplog.messages if " is ignored" in message]
    assert named == [f"{path}: no_repeat_ngram_size = 3", f"{path}: renormalize_logits = True"]


def test_weights_that_are_no_such_model_are_named(origin: Path, tmp_path: Path) -> None:
    changed = tmp_path / "origin"
    shutil.copytree(origin, changed)
    weights = load_file(origin / "model.safetensors")
    first = "model.encoder.layers.0.fc1.weight"
    cases: list[tuple[dict[str, torch.Tensor | None], str]] = [
        ({first: None}, f"the weights lack {first}"),
        ({first: torch.zeros(3, 3)}, f"{first} has the shape"),
        ({first: torch.zeros(48, 32, dtype=torch.int64)}, f"{first} is of type torch.int64"),
        ({first: torch.full((48, 32), torch.nan)}, f"{first} holds NaN"),
        ({"model.encoder.layer_norm.weight": torch.ones(32)}, "the weights hold model.encoder.layer_norm.weight"),
        ({"lm_head.weight": torch.ones(2, 2)}, "lm_head.weight differs from model.shared.weight"),
        ({"model.encoder.embed_positions.weight": torch.ones(8, 32)}, "is not a table of sinusoids"),
        ({"model.shared.weight": torch.zeros(9, 32)}, "model.shared.weight has the shape"),
    ]
    for changes, message in cases:
        tensors = {name: tensor for name, tensor in {**weights, **changes}.items() if tensor is not None}
        save_file(tensors, changed / "model.safetensors")
        with pytest.raises(ModelError, match=message):
            import_model(str(changed), tmp_path / "out")


WIDEST = "model.encoder.layers.0.fc1.weight"


def with_weights(origin: Path, folder: Path, changes: dict[str, torch.Tensor], *, pickled: bool = False) -> Path:
    """Copy a Marian model and replace some of its tensors."""
    shutil.copytree(origin, folder)
    tensors = {**load_file(origin / "model.safetensors"), **changes}
    (folder / "model.safetensors").unlink()
    if pickled:
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("pickled", [False, True])
@pytest.mark.parametrize(
    "value",
    [
        torch.tensor(1e300, dtype=torch.float64),
        torch.tensor(-torch.inf, dtype=torch.float16),
        torch.tensor(torch.nan, dtype=torch.bfloat16),
    ],
    ids=["float64", "float16", "bfloat16"],
)
def test_a_weight_that_is_not_finite_in_float32_is_refused(
    value: torch.Tensor, pickled: bool, origin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = {WIDEST: value.repeat(48, 32)}
    folder = with_weights(origin, tmp_path / "odd", changed, pickled=pickled)
    assert command("import", folder, "-o", tmp_path / "out") == 4
    assert f"{WIDEST} holds NaN" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_model_whose_scores_are_not_finite_ends_with_exit_code_4(
    origin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = with_weights(origin, tmp_path / "odd", {WIDEST: torch.full((48, 32), 3e38)})
    model = tmp_path / "out"
    import_model(str(folder), model)
    export(model, "ctranslate2", tmp_path / "ct2")
    for name in ("src", "tgt"):
        (tmp_path / name).write_text("Good morning.\n")
    text = ("translate", "Good morning.", "--max-length", 5)
    for arguments in (
        (*text, "--model", model, "--beam-size", 4),
        (*text, "--model", model, "--beam-size", 1),
        (*text, "--model", model, "--sample"),
        (*text, "--model", tmp_path / "ct2", "--beam-size", 4),
        (*text, "--model", tmp_path / "ct2", "--beam-size", 1),
        ("score", "--model", model, "--src-file", tmp_path / "src", "--tgt-file", tmp_path / "tgt"),
        ("explain", "Good morning.", "--model", model),
    ):
        assert command(*arguments) == 4, arguments
        captured = capsys.readouterr()
        assert "mtcli: the model's scores are not finite numbers" in captured.err.splitlines()[-1]
        assert not captured.out


def test_an_import_takes_the_place_of_an_earlier_one_only(origin: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    import_model(str(origin), out)
    import_model(str(origin), out, src="en", tgt="pt")
    assert load_model(out)[1].tgt == "pt"
    (out / "mine.txt").touch()
    with pytest.raises(UsageError, match=r"holds mine\.txt"):
        import_model(str(origin), out)
    with pytest.raises(UsageError, match="holds no imported model"):
        import_model(str(origin), origin)


def test_languages_come_from_the_files_or_the_name(origin: Path, tmp_path: Path) -> None:
    named = tmp_path / "opus-mt-tc-big-fr-en"
    shutil.copytree(origin, named)
    (named / "tokenizer_config.json").unlink()
    assert import_model(str(named), tmp_path / "out").src == "fr"
    nameless = named.rename(tmp_path / "model")
    with pytest.raises(UsageError, match="does not name its languages; give --src"):
        import_model(str(nameless), tmp_path / "out")
    with pytest.raises(UsageError, match="--tgt a/b"):
        import_model(str(nameless), tmp_path / "out", src="fr", tgt="a/b")
    with pytest.raises(UsageError, match="source and target are both fr"):
        import_model(str(nameless), tmp_path / "out", src="fr", tgt="fr")


def test_explain_and_score_work(imported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("explain", ">>fra<< Good morning.", "--model", imported, "--full", "-b", 2) == 0
    shown = capsys.readouterr().out
    assert "u · σ(u), u = x W_1 + b_1" in shown
    assert "/ n^1" in shown
    (tmp_path / "src").write_text("Good morning.\n")
    (tmp_path / "tgt").write_text("Buenos días.\n")
    assert command("score", "--model", imported, "--src-file", tmp_path / "src", "--tgt-file", tmp_path / "tgt") == 0


def test_fine_tuning_starts_from_the_imported_weights(imported: Path, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{text}\tuno {i}\n" for i, text in enumerate(lines(60))))
    out = tmp_path / "tuned"
    done = command("train", "--init", imported, "--train", pairs, "--tgt", "fr", "--out", out, "--max-steps", 2,
                   "--set", "train.lr=1e-4", "--set", "train.warmup_steps=1", *QUICK)  # fmt: skip
    assert done == 0
    (before, _, pieces), (after, info, _) = load_model(imported), load_model(out)
    assert pieces.kind == "sentencepiece"
    assert info.decode.length_normalization == "power"
    moved = [float((a - b).detach().abs().max()) for a, b in zip(before.parameters(), after.parameters(), strict=True)]
    assert 0 < max(moved) < 1e-2
    assert load_config(out / "config.toml").tokenizer.type == "sentencepiece"


def test_training_pairs_of_a_multilingual_model_need_tags(imported: Path, tmp_path: Path) -> None:
    tokenizer = load_model(imported)[2]

    def prepared(name: str, untagged: int, tgt: str) -> Prepared:
        pairs = tmp_path / f"{name}.tsv"
        sources = ["" if i < untagged else ">>fra<< " for i in range(20)]
        pairs.write_text("".join(f"{tag}This is line {i}.\tC'est {i}.\n" for i, tag in enumerate(sources)))
        options = {"data.train": [str(pairs)], "data.valid": str(pairs), "data.test": str(pairs)}
        config = build(None, options | {"data.src": "en", "data.tgt": tgt})
        return prepare(config, tmp_path / name, init=Parent(tokenizer, "", "en", "es"))

    with pytest.raises(
        DataError, match="no target language in 9 of 20 sources, and the model has several; give one of"
    ):
        prepared("some", 9, "es")
    prepared("none", 0, "es")
    data = prepared("given", 9, "de")  # those without a tag are German
    tags = [int(data.train[row][0][0]) for row in range(20)]
    assert tags == [tokenizer.tags["deu"]] * 9 + [tokenizer.tags["fra"]] * 11


@pytest.mark.parametrize(("pair", "is_child"), [(("en", "de"), False), (("en", "gn"), True), (("es", "en"), True)])
def test_other_languages_make_a_child_of_the_imported_model(
    pair: tuple[str, str], is_child: bool, imported: Path, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{text}\tuno {i}\n" for i, text in enumerate(lines(30))))
    run = tmp_path / "run"
    arguments = ("--train", pairs, "--out", run, "--src", pair[0], "--tgt", pair[1], "--max-steps", 1)
    assert command("train", "--init", imported, *arguments, *QUICK) == 0
    assert load_config(run / "config.toml").tokenizer.type == "sentencepiece"
    start, _, tokenizer = load_model(run / "checkpoints" / "step-00000000")
    before, _, own_tokenizer = load_model(imported)
    assert tokenizer.src_vocabulary == own_tokenizer.src_vocabulary
    assert all(map(torch.equal, start.parameters(), before.parameters()))
    assert ("a model of en → es" in (run / "README.md").read_text()) == is_child


def test_a_translator_of_torch_is_what_an_import_loads(imported: Path) -> None:
    translator, _, _ = load([imported], "cpu")
    assert isinstance(translator.backend, PyTorchBackend)
    assert isinstance(Options().to, str)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(1).expand(10**12),
        torch.empty(10**12, device="meta"),
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        torch.ones(2, 2, dtype=torch.float8_e4m3fn),
    ],
    ids=["expanded", "meta", "nested", "float8"],
)
def test_a_tensor_without_its_values_is_refused(
    tensor: torch.Tensor, origin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "odd"
    shutil.copytree(origin, folder)
    (folder / "model.safetensors").unlink(missing_ok=True)
    torch.save({"model.shared.weight": tensor}, folder / "pytorch_model.bin")
    assert command("import", folder, "-o", tmp_path / "out") == 4
    assert "model.shared.weight" in capsys.readouterr().err


class Calls:
    """Pickled as calls of a function that PyTorch's restricted reader allows, each with the same argument."""

    def __init__(self, function: Any, argument: Any, number: int):
        self.function = function
        self.argument = argument
        self.number = number

    def __reduce__(self) -> Any:
        calls = [Call(self.function, self.argument) for _ in range(self.number)]
        return OrderedDict, ([(str(number), call) for number, call in enumerate(calls)],)


class Call:
    def __init__(self, function: Any, argument: Any):
        self.function = function
        self.argument = argument

    def __reduce__(self) -> Any:
        return self.function, self.argument


def shared_storage(folder: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a model whose layers have their values in one storage."""
    config = json.loads((folder / "config.json").read_text())
    config["encoder_layers"] = 500
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    first = "model.encoder.layers.0."
    layer = {name.removeprefix(first): tensor for name, tensor in tensors.items() if name.startswith(first)}
    return tensors | {
        f"model.encoder.layers.{number}.{name}": tensor for number in range(500) for name, tensor in layer.items()
    }


def repacked(path: Path, compression: int) -> None:
    """Write an archive again with compressed records."""
    with ZipFile(path) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    with ZipFile(path, "w", compression) as archive:
        for name, content in records.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("attack", ["shared", "compressed", "bytes", "copies", "dictionaries", "legacy"])
def test_pickled_tensors_take_no_more_memory_than_their_file(
    attack: str, origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(marian_weights, "READER_BYTES", 2**26)
    folder = tmp_path / "odd"
    shutil.copytree(origin, folder)
    weights = folder / "pytorch_model.bin"
    half = torch.ones(2**20, dtype=torch.float16)
    to_double = (half, torch.float64, "cpu", False)
    saved: dict[str, Any] = {
        "shared": shared_storage(folder),
        "legacy": shared_storage(folder),
        "compressed": {"model.shared.weight": torch.zeros(400, 32)},
        "bytes": {"a": Calls(codecs.encode, ("a" * 2**20, "latin1"), 1000)},
        "copies": {"a": Calls(torch._utils._rebuild_device_tensor_from_cpu_tensor, to_double, 100)},
        "dictionaries": {"a": Calls(OrderedDict, (dict.fromkeys(range(10_000)),), 5000)},
    }
    torch.save(saved[attack], weights, _use_new_zipfile_serialization=attack != "legacy")
    if attack == "compressed":
        repacked(weights, ZIP_DEFLATED)
    (folder / "model.safetensors").unlink()
    before = resource.getrlimit(resource.RLIMIT_DATA)
    assert command("import", folder, "-o", tmp_path / "out") == 4
    messages = {"compressed": "compressed records", "shared": "tensors share", "legacy": "tensors share"}
    assert messages.get(attack, "unpacks to far more") in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_two_tensors_with_the_same_values_are_imported(origin: Path, imported: Path, tmp_path: Path) -> None:
    tensors = load_file(origin / "model.safetensors")
    first, second = (f"model.encoder.layers.{number}.fc1.bias" for number in range(2))
    folder = with_weights(origin, tmp_path / "equal", {second: tensors[first]}, pickled=True)
    shared = torch.load(folder / "pytorch_model.bin")
    shared[second] = shared[first]
    torch.save(shared, folder / "pytorch_model.bin")
    import_model(str(folder), tmp_path / "out")
    found, _, _ = load_model(tmp_path / "out")
    assert torch.equal(found.encoder[0].feed_forward.w_1.bias, found.encoder[1].feed_forward.w_1.bias)


def test_an_import_can_be_calibrated(
    trained: Callable[[str], tuple[Path, Path]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    origin, _ = trained("opus-mt")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{line}\t{line}\n" for line in lines(110)), encoding="utf-8")
    out = tmp_path / "out"
    call(capsys, "import", origin, "-o", out, "--calibrate", pairs)
    confidence = read_confidence(out)
    assert confidence is not None
    assert confidence.pairs == 110
    (record,) = call(capsys, "translate", "--model", out, "--format", "json", lines(1)[0]).splitlines()
    assert 0 <= json.loads(record)["confidence"] <= 100
    call(capsys, "import", origin, "-o", out)  # replaces the folder
    assert read_confidence(out) is None


@pytest.mark.parametrize(("number", "message"), [(99, "99 pairs; give --calibrate 100 or more"), (100, ">>fra<<")])
def test_pairs_that_calibrate_nothing(imported: Path, tmp_path: Path, number: int, message: str) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{line}\t{line}\n" for line in lines(number)), encoding="utf-8")
    with pytest.raises((DataError, UsageError), match=message):
        calibrate_import(imported, str(pairs), "en", "es", ["fra", "deu"])
