"""Translating through a third language: the same as two translations, one after the other."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.command import call
from helpers.documents import translate_text
from helpers.toy import PAIRS, SEVERAL_PAIRS, TorchTranslator, disturbed, save_toy, several_toy, toy

from mtcli.documents.lines import BySentence
from mtcli.errors import UsageError
from mtcli.text.languages import Direction
from mtcli.translate import pivot
from mtcli.translate.pivot import PivotTranslator
from mtcli.translate.translation import Options
from mtcli.translate.translator import Translator

LINES = [*(src for src, _ in PAIRS[::20]), "", " "]
BEAM = Options(beam_size=3)


def second_model() -> TorchTranslator:
    """Return a model with other translations than the first one. It need not translate well."""
    return disturbed(toy(), 2)


@pytest.mark.parametrize("options", [BEAM, replace(BEAM, beam_size=1), replace(BEAM, n_best=2)])
def test_the_same_as_two_steps(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pivot, "PIVOT_WINDOW", 3)
    between = list(toy().translate(LINES, BEAM))
    after = list(second_model().translate([one.text for one in between], options))
    found = list(PivotTranslator(toy(), BEAM, second_model()).translate(LINES, options))
    assert [one.source for one in found] == LINES
    for one, first, second in zip(found, between, after, strict=True):
        assert [each.text for each in one.candidates] == [each.text for each in second.candidates]
        for joined, own in zip(one.candidates, second.candidates, strict=True):
            # The second model has other batches here, so the last bits of its scores differ.
            assert joined.log_prob == pytest.approx(first.candidates[0].log_prob + own.log_prob, abs=1e-4)
            assert joined.score == pytest.approx(first.candidates[0].score + own.score, abs=1e-4)


def test_words_are_aligned_where_both_steps_align_them() -> None:
    options = replace(BEAM, alignments=True)
    (between,) = toy().translate(["one red dog."], options)
    (after,) = second_model().translate([between.text], options)
    (found,) = PivotTranslator(toy(), BEAM, second_model()).translate(["one red dog."], options)
    first, second = between.candidates[0].alignment, after.candidates[0].alignment
    assert first
    assert second
    sources = range(3)
    targets = range(len(found.text.split()))
    met = {(s, t) for s in sources for t in targets if any((s, p) in first and (p, t) in second for p in range(9))}
    assert set(found.candidates[0].alignment) == met


def test_what_pivoting_refuses() -> None:
    translator = PivotTranslator(toy(), BEAM, second_model())
    with pytest.raises(UsageError, match="--sample: not with --pivot"):
        list(translator.translate(["one red dog."], Options(sample=True)))


@pytest.mark.parametrize(
    ("first", "second", "between_to", "to"),
    [(several_toy, toy, "xx", ""), (toy, several_toy, "", "xx"), (several_toy, several_toy, "xx", "es")],
)
@pytest.mark.parametrize("path", ["lines", "sentences", "paragraphs"])
def test_each_model_is_given_its_own_tag(
    first: Callable[[], TorchTranslator], second: Callable[[], TorchTranslator], between_to: str, to: str, path: str
) -> None:
    lines = LINES[:4]
    between = [one.text for one in first().translate(lines, replace(BEAM, to=between_to))]
    expected = [one.text for one in second().translate(between, replace(BEAM, to=to))]
    options = replace(BEAM, to=to)
    translator: Translator = PivotTranslator(first(), replace(BEAM, to=between_to), second())
    if path == "paragraphs":
        found = [translate_text(line, translator, options, src="en", tgt="yy") for line in lines]
    else:
        translator = BySentence(translator, "en", "yy") if path == "sentences" else translator
        found = [one.text for one in translator.translate(lines, options)]
    assert found == expected


@pytest.mark.parametrize("to", ["", "fr"])
def test_a_missing_or_unknown_tag_is_an_error_that_names_the_choices(to: str) -> None:
    with pytest.raises(UsageError, match="es, xx"):
        PivotTranslator(several_toy(), replace(BEAM, to=to), toy())
    for translator in (toy(), several_toy()):
        pivoting = PivotTranslator(
            translator, replace(BEAM, to="xx" if translator is several_toy() else ""), several_toy()
        )
        for each in (pivoting, BySentence(pivoting, "en", "es")):
            with pytest.raises(UsageError, match="es, xx"):
                list(each.translate(["one red dog."], replace(BEAM, to=to)))


def test_a_line_with_a_tag_of_its_own_is_refused() -> None:
    """It would choose the target language of the first model."""
    for translator in (
        PivotTranslator(several_toy(), replace(BEAM, to="xx"), toy()), PivotTranslator(toy(), BEAM, several_toy())
    ):  # fmt: skip
        options = replace(BEAM, to="es" if translator.target_tokenizer.tags else "")
        for each in (translator, BySentence(translator, "en", "es")):
            with pytest.raises(UsageError, match=r"^>>es<<: .* with --to"):
                list(each.translate([">>es<< one red dog."], options))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An English–Spanish model, and a Spanish–French one that translates otherwise."""
    folder = tmp_path_factory.mktemp("models")
    first, second = folder / "en-es", folder / "es-fr"
    first.mkdir()
    second.mkdir()
    return save_toy(first), save_toy(second, second_model(), "es", "fr")


def test_the_command_gives_what_two_commands_give(
    models: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = models
    between = call(capsys, "translate", "--model", first, "one red dog.")
    expected = call(capsys, "translate", "--model", second, between.strip())
    assert call(capsys, "translate", "--model", first, "--pivot", second, "one red dog.") == expected


def test_a_document_keeps_its_tags(
    models: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.html").write_text("<p>one <b>red</b> dog.</p>")
    out = tmp_path / "page.fr.html"
    call(capsys, "translate", "--model", models[0], "--pivot", models[1], "-i", tmp_path / "page.html", "-o", out)
    assert "<b>" in out.read_text()


def test_the_command_gives_each_model_its_tag(
    models: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever of the models has several target languages."""
    one = models[0]
    several = tmp_path / "several"
    into_spanish = tmp_path / "into-spanish"
    from_spanish = tmp_path / "from-spanish"
    for folder in (several, into_spanish, from_spanish):
        folder.mkdir()
    save_toy(several, several_toy(), directions=list(SEVERAL_PAIRS))
    save_toy(into_spanish, toy(), "xx", "es")
    save_toy(from_spanish, several_toy(), "qq", "xx", directions=[Direction("qq", "xx"), Direction("es", "xx")])

    between = call(capsys, "translate", "--model", several, "--to", "xx", "one red dog.").strip()
    expected = call(capsys, "translate", "--model", into_spanish, between)
    assert call(capsys, "translate", "--model", several, "--pivot", into_spanish, "one red dog.") == expected

    between = call(capsys, "translate", "--model", one, "one red dog.").strip()
    expected = call(capsys, "translate", "--model", from_spanish, "--to", "xx", between)
    found = call(capsys, "translate", "--model", one, "--pivot", from_spanish, "--to", "xx", "one red dog.")
    assert found == expected
    found = call(capsys, "translate", "--model", one, "--pivot", from_spanish, "one red dog.")
    assert found == expected, "both of its directions have the same target"
    for to, reason in (
        (["--to", "fr"], "--to fr: choose from es, xx"),
        (["--to", "es"], "--to es: choose from xx"),
    ):
        with pytest.raises(UsageError, match=reason):
            call(capsys, "translate", "--model", one, "--pivot", from_spanish, *to, "one")
    with pytest.raises(UsageError, match="translates from en, and --model translates into es, xx; give"):
        call(capsys, "translate", "--model", several, "--pivot", one, "one")
    with pytest.raises(UsageError, match="--to xx: this model translates into one language only"):
        call(capsys, "translate", "--model", several, "--pivot", models[1], "--to", "xx", "one")


def test_models_that_do_not_meet_are_refused(models: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    first, second = models
    with pytest.raises(UsageError, match="translates from en, and --model translates into es; give a model that"):
        call(capsys, "translate", "--model", first, "--pivot", first, "one")
    for more in (["--sample"], ["--terms", "terms.tsv"], ["--prefix", "x"]):
        with pytest.raises(UsageError, match="not with --pivot"):
            call(capsys, "translate", "--model", first, "--pivot", second, *more, "one")
