"""Ten thousand malformed files and lines: each is read or refused with one line; counts add up, pairs stay aligned."""

import gzip
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.harness import Job
from helpers.processes import no_hang
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from faults.conftest import Case
from faults.inputs import FORMS, PACKED, PAIRS, PREFIX, TWO, Count, aligned, raw, read, write
from mtcli.config.build import build
from mtcli.config.schema import Config
from mtcli.config.toml_file import load, to_toml
from mtcli.errors import DataError, ModelError, MtcliError, UsageError
from mtcli.storage.model_file import load_model
from mtcli.text.lines import read_lines
from mtcli.translate import loading
from mtcli.translate.streams import formatted, lines_of
from mtcli.translate.translation import Options

BYTES = [b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n", b"\t", b'"', b"\\", b"{", b"\x1f\x8b", b""]
"""The bytes that a mutation inserts. The last inserts nothing."""


def examples(n: int) -> settings:
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    return settings(
        max_examples=n,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=quiet,
        phases=(Phase.generate,),
    )


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Return the content with a few bytes changed, inserted or deleted, or truncated."""
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(content) + 1)
        end = at + rng.choice([0, 0, 1, 1, 7])
        content = content[:at] + rng.choice([*BYTES, rng.randbytes(3), content[: at % 40]]) + content[end:]
    return content[: rng.randrange(len(content) + 1)] if rng.random() < 0.1 else content


def attempt(call: Callable[[], Any], refusal: type[MtcliError]) -> tuple[Any, str]:
    """Return the result of a call, or the message of its refusal, which must be one line of reasonable length."""
    with no_hang():
        try:
            return call(), ""
        except refusal as error:
            message = str(error)
    assert "\n" not in message
    assert 10 < len(message) < 1000
    return None, message


def test_72_fuzzed_files_of_pairs(case: Case, tmp_path: Path, rng: random.Random, count: Count) -> None:
    used = refused = 0
    forms = [form for form in FORMS if form != "folder"]
    for number in range(count(5000, 300)):
        form = forms[number % len(forms)]
        folder = tmp_path / str(number)
        spec = write(folder, form, PAIRS[: rng.choice([1, 5, 40])], end=rng.choice([b"\n", b"\r\n"]))
        file = rng.choice(sorted(folder.iterdir()))
        content = file.read_bytes()
        inside = file.suffix == ".gz" and rng.random() < 0.7
        file.write_bytes(gzip.compress(mutated(gzip.decompress(content), rng)) if inside else mutated(content, rng))
        replace = rng.random() < 0.3
        with case.fault():
            found, message = attempt(lambda: read(spec, replace=replace), DataError)  # noqa: B023 - called at once
            if message:  # `read` asserts that the counts add up
                refused += 1
                continue
            used += 1
            pairs = found[0]
            known = [pair for pair in pairs if raw([pair])[0] in PAIRS]
            assert known == sorted(known, key=lambda pair: PAIRS.index(raw([pair])[0]))
            if form not in (
                PREFIX,
                TWO,
                PACKED,
            ):  # a line break that is inserted into one of two files shifts its lines
                assert aligned(known)
    assert used
    assert refused


def test_73_fuzzed_lines(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    translator = loading.load([job.clean], "cpu", "torch").translator
    options = Options(beam_size=1, max_length=2)
    pieces = st.sampled_from(
        ["red", " ", "\t", "\r", "\u2028", "\x85", "\x0b", "</s>", "猫", "e\u0301", "\u200d", "🙂" * 40]
    )
    any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\0"), max_size=30)
    lines = st.lists(st.one_of(any_text, st.lists(pieces, max_size=6).map("".join)), min_size=1, max_size=20)

    @examples(count(300, 8))
    @given(lines, st.booleans(), st.sampled_from(["text", "json"]), st.booleans())
    def check(texts: list[str], last: bool, format_: str, scores: bool) -> None:
        texts = [text.rstrip("\r") for text in texts]  # a CR before LF is part of the line end
        texts[0] = texts[0].lstrip("\ufeff")
        (tmp_path / "in").write_bytes(("\n".join(texts) + "\n" * (last or not texts[-1])).encode())
        with case.fault(len(texts)), no_hang():
            found = list(translator.translate(lines_of(str(tmp_path / "in")), options))
            assert [one.source for one in found] == texts
            for number, (one, text) in enumerate(zip(found, texts, strict=True)):
                out = list(formatted(one, number, format_, scores=scores, alignments=False))
                assert len(out) == 1
                assert "\n" not in out[0]
                assert text.strip() or not one.text

    check()

    @examples(count(2000, 60))
    @given(st.lists(st.binary(max_size=20), max_size=6))
    def any_bytes(chunks: list[bytes]) -> None:
        (tmp_path / "raw").write_bytes(content := b"\n".join(chunks))
        with case.fault():
            found, message = attempt(lambda: list(read_lines(tmp_path / "raw", replace=True)), DataError)
            if message:
                assert re.search(
                    rb"\0|^(\x1f\x8b|\xff\xfe|\xfe\xff|BZh|\x28\xb5\x2f\xfd|PK\x03\x04|7z\xbc\xaf)", content
                )
            else:
                content = content.removeprefix(b"\xef\xbb\xbf")
                assert len(found) == content.count(b"\n") + bool(content and not content.endswith(b"\n"))

    any_bytes()


def test_74_fuzzed_configurations(case: Case, tmp_path: Path, rng: random.Random, count: Count) -> None:
    good = to_toml(build(None, {"data.train": ["a.tsv"]})).encode()
    path = tmp_path / "config.toml"
    for _ in range(count(800, 40)):
        path.write_bytes(mutated(good, rng))
        with case.fault():
            builds(lambda: build(path), tmp_path)

    keys = st.sampled_from([*sorted(re.findall(r"^(\w+) =", good.decode(), re.M)), "x", "", "."])
    sections = st.sampled_from(["train", "model", "data", "tokenizer", "decode", "preset", "x", ""])
    values = st.one_of(
        st.text(max_size=12), st.integers().map(str), st.floats().map(str), st.sampled_from(["[]", "{}", "true"])
    )

    @examples(count(700, 40))
    @given(sections, keys, values)
    def sets(section: str, key: str, value: str) -> None:
        with case.fault():
            builds(lambda: build(None, None, [f"{section}.{key}={value}"]), tmp_path)

    sets()


def builds(make: Callable[[], Config], folder: Path) -> None:
    """Assert that a configuration is unchanged after writing and reading, or refused with one line."""
    made, message = attempt(make, UsageError)
    if not message:
        folder.joinpath("again.toml").write_text(to_toml(made), encoding="utf-8")
        assert load(folder / "again.toml") == made


def test_75_fuzzed_model_folders(case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    files = {name: (job.clean / name).read_bytes() for name in ("model.safetensors", "tokenizer.json")}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    load_model(tmp_path)
    for number in range(count(1000, 40)):
        name = list(files)[number % 2]
        content = files[name]
        head = 2000 if rng.random() < 0.8 else len(content)  # mostly in the header with the names and sizes
        broken = mutated(content[:head], rng) + content[head:]
        (tmp_path / name).write_bytes(broken)
        with case.fault():
            _, message = attempt(lambda: load_model(tmp_path), ModelError)
            assert message or broken == content or name == "tokenizer.json"  # a change of white space has no effect
        (tmp_path / name).write_bytes(content)
