"""The files that `mtcli eval` reads."""

from pathlib import Path

import pytest

from mtcli.errors import DataError
from mtcli.inference.line_translator import LineTranslator
from mtcli.report.evaluation import EvaluationRequest, evaluate


@pytest.mark.parametrize("short", ["source", "second", "other"])
def test_files_of_unequal_length_are_refused_before_translating(
    toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: str
) -> None:
    monkeypatch.setattr(LineTranslator, "translate", lambda *_, **__: pytest.fail("translated"))
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
