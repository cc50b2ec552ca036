"""The script that reads and writes files of all types, on small files and mutations of them."""

from pathlib import Path

import check_documents
import pytest
from helpers.sample_documents import CAPTIONS, CATALOGUE, CUES, WRAPPED

from mtcli.documents.formats.registry import MODULES

FILES = {
    ".txt": WRAPPED,
    ".srt": CUES,
    ".vtt": CAPTIONS,
    ".csv": 'a,b\n"x ""y""\nz",1\n;,"2"\n',
    ".tsv": 'a\tb\n"x ""y"""\t1\n',
    ".po": CATALOGUE,
    ".html": "<!doctype html>\n<p title='a'>One <b>two</b> &amp; three<br>four</p><script>x</script>\n",
}


@pytest.mark.parametrize("suffix", FILES)
def test_mutated_files_come_back_or_are_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"file{suffix}"
    path.write_text(FILES[suffix], encoding="utf-8")
    found = [check_documents.check(content, name) for content, name in check_documents.mutations([path], 40)]
    assert check_documents.check(path.read_bytes(), path.name) == "same"
    assert set(found) <= {"same", "refused"}
    assert found.count("same") >= 2


def test_the_check_finds_a_reader_that_loses_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.srt"
    path.write_text(CUES, encoding="utf-8")
    monkeypatch.setattr(check_documents, "read_document", lambda *_: _Empty())
    assert check_documents.check(path.read_bytes(), path.name) == "changed"
    assert set(check_documents.files_by_type([tmp_path], sorted(MODULES), 3)) == {".srt"}


class _Empty:
    segments = ()

    def write(self, translations: object) -> bytes:
        return b""
