"""The files that `mtcli eval` reads."""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers.toy import save_toy

from mtcli.errors import DataError, ModelError
from mtcli.evaluation.evaluate import EvaluationRequest, evaluate
from mtcli.translate.translator import ModelTranslator


@pytest.mark.parametrize("short", ["source", "second", "other"])
def test_files_of_unequal_length_are_refused_before_translating(
    toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: str
) -> None:
    monkeypatch.setattr(ModelTranslator, "translate", lambda *_, **__: pytest.fail("translated"))
    for name in ("source", "first", "second", "other"):
        (tmp_path / name).write_text("red.\n" * (2 if name == short else 3))
    request = EvaluationRequest(
        (toy_run,),
        model_is_named=True,
        src_file=str(tmp_path / "source"),
        ref_files=(str(tmp_path / "first"), str(tmp_path / "second")),
        other_file=str(tmp_path / "other"),
    )
    with pytest.raises(DataError, match=f"{short} has 2 lines, .*first 3; line n of one"):
        evaluate(request)


def test_the_tokenizer_of_finished_translations_is_that_of_the_named_model(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_text("我喜欢猫。\n")
    (tmp_path / "model").mkdir()
    model = save_toy(tmp_path / "model", tgt="zh")
    request = EvaluationRequest((model,), model_is_named=True, hyp_file=str(file), ref_files=(str(file),))
    assert "|tok:zh|" in evaluate(request).directions[0].scores[0].signature
    assert "|tok:13a|" in evaluate(replace(request, model_is_named=False)).directions[0].scores[0].signature
    with pytest.raises(ModelError, match="no model here"):
        evaluate(replace(request, models=(tmp_path / "none",)))
