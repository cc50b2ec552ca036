import random

import pytest
import test_docx
import test_html
import test_markdown
import test_xliff
from check_documents import check, mutated_archive, mutated_bytes

SAMPLES = {
    "a.html": test_html.PAGE.encode(),
    "a.md": test_markdown.PAGE.encode(),
    "a.xliff": test_xliff.XLIFF1.encode(),
    "b.xliff": test_xliff.XLIFF2.encode(),
    "a.tmx": test_xliff.TMX.encode(),
    "a.docx": test_docx.packed(f"<w:p>{''.join(test_docx.CASES[case][0] for case in ('hyperlink', 'field'))}</w:p>"),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_mutated_file_is_read_or_refused(name: str) -> None:
    rng = random.Random(3)
    content = SAMPLES[name]
    assert check(content, name) == "same"
    for number in range(60):
        mutate = mutated_archive if name.endswith(".docx") and number % 2 else mutated_bytes
        assert check(mutate(content, rng), name) in ("same", "refused")
