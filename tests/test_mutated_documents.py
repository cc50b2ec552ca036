import random

import pytest
from check_documents import check, mutated_archive, mutated_bytes
from helpers.sample_documents import WITH_MARKUP


@pytest.mark.parametrize("name", WITH_MARKUP)
def test_a_mutated_file_is_read_or_refused(name: str) -> None:
    rng = random.Random(3)
    content = WITH_MARKUP[name]
    assert check(content, name) == "same"
    for number in range(60):
        mutate = mutated_archive if content.startswith(b"PK") and number % 2 else mutated_bytes
        assert check(mutate(content, rng), name) in ("same", "refused")
