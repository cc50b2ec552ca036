"""Synthetic pairs: filters, noise, the tag, and commands that are interrupted and continued."""

import gzip
import io
import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.harness import mtcli
from helpers.toy import PAIRS, save_toy, toy
from hypothesis import given
from hypothesis import strategies as st

from mtcli.corpus.readers.sources import parse_source
from mtcli.errors import DataError, LockedError, StoppedError, StorageError, UsageError
from mtcli.exchange.export import export
from mtcli.recipes.augment import MAX_MOVE, AugmentModels, AugmentReport, Synthesis, augment, dual_score, with_noise
from mtcli.recipes.augment_output import (
    RECORDS,
    STATE,
    AugmentState,
    PairOutput,
    Unfinished,
    unfinished_output,
    write_best_pairs,
)
from mtcli.recipes.monolingual import has_wrong_script, is_in_other_language, main_script, problem_of
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG, Tokenizer
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.scoring import likelihoods
from mtcli.translate.translation import Options, Translation
from mtcli.translate.windows import MAX_LINE_TOKENS

SOURCES = list(dict.fromkeys(src for src, _ in PAIRS))[:40]
OPTIONS = Options(beam_size=2)


def text_file(folder: Path, lines: list[str]) -> Path:
    path = folder / "mono.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def toy_models(scorer: PyTorchBackend | None = None) -> AugmentModels:
    return AugmentModels(toy(), OPTIONS, ("en", "es"), scorer=scorer)


def run(path: Path, output: Path, wanted: Synthesis, models: AugmentModels | None = None) -> AugmentReport:
    models = models or toy_models()
    src, tgt = models.languages if wanted.forward else models.languages[::-1]
    return augment(path, PairOutput(output, src, tgt), models, wanted, {"options": str(wanted)})


def pairs_of(path: Path) -> list[tuple[str, str]]:
    _, *rows = path.read_text(encoding="utf-8").splitlines()
    return [(row.split("\t")[0], row.split("\t")[1]) for row in rows]


def test_back_translations_are_sources_and_forward_translations_targets(tmp_path: Path) -> None:
    path = text_file(tmp_path, SOURCES)
    run(path, tmp_path / "back.tsv", Synthesis())
    run(path, tmp_path / "forward.tsv", Synthesis(forward=True))
    translations = {line: found.text for line, found in zip(SOURCES, toy().translate(SOURCES, OPTIONS), strict=True)}
    back = pairs_of(tmp_path / "back.tsv")
    assert len(back) > len(SOURCES) / 2
    assert all(translations[tgt] == src for src, tgt in back)
    assert [(tgt, src) for src, tgt in back] == pairs_of(tmp_path / "forward.tsv")
    assert (tmp_path / "back.tsv").read_text().startswith("es\ten\tlog_prob\tscore\n")
    assert not list(tmp_path.glob("*.unfinished"))


def test_every_line_is_written_or_counted(tmp_path: Path) -> None:
    lines = [*SOURCES[:6], "", SOURCES[0], "собака видит кота и большой дом", "  "]
    report = run(text_file(tmp_path, lines), tmp_path / "out.tsv", Synthesis())
    assert report.lines == len(lines)
    assert report.written + report.dropped.total() == len(lines)
    assert report.dropped["blank line"] == 2
    assert report.dropped["duplicate line"] == 1
    assert report.dropped["wrong script in the text"] == 1


def test_a_line_that_a_model_would_shorten_is_dropped(tmp_path: Path) -> None:
    lines = [*SOURCES[:3], " ".join(["cat"] * (MAX_LINE_TOKENS + 1))]
    models = toy_models(scorer=toy().backend)
    report = run(text_file(tmp_path, lines), tmp_path / "out.tsv", Synthesis(), models)
    assert report.dropped["too many tokens in the text"] == 1
    assert report.written + report.dropped.total() == len(lines)


def test_a_translation_that_the_scorer_cannot_score_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtcli.recipes.augment.MAX_LINE_TOKENS", 40)
    long_translation = " ".join(["gato"] * 50)
    models = toy_models(scorer=toy().backend)
    assert models.fits(SOURCES[0])
    assert not models.fits(SOURCES[0], long_translation)


def test_n_best_makes_several_pairs_of_a_line(tmp_path: Path) -> None:
    report = run(text_file(tmp_path, SOURCES[:5]), tmp_path / "out.tsv", Synthesis(forward=True, n_best=2))
    assert report.written + report.dropped.total() == 10
    assert report.written > 5


def test_each_window_and_each_pair_has_random_numbers_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: list[int] = []
    numbers: list[int] = []
    translator = toy()
    translate = translator.translate

    def noted_seed(lines: Sequence[str], options: Options, *how: Any) -> Iterator[Translation]:
        seeds.append(options.seed)
        return translate(lines, options, *how)

    def noted_number(text: str, seed: int, number: int) -> str:
        numbers.append(number)
        return text

    monkeypatch.setattr("mtcli.recipes.augment.WINDOW", 10)
    monkeypatch.setattr("mtcli.recipes.augment.with_noise", noted_number)
    monkeypatch.setattr(translator, "translate", noted_seed)
    path = text_file(tmp_path, SOURCES)
    run(path, tmp_path / "sampled.tsv", Synthesis("sample"))
    assert len(set(seeds)) == len(seeds) == len(SOURCES) / 10
    run(path, tmp_path / "noisy.tsv", Synthesis("noise", n_best=2))
    assert len(numbers) > len(SOURCES)
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize("wanted", [Synthesis(), Synthesis("sample", seed=3), Synthesis("noise", tag=True, keep=0.7)])
def test_an_interrupted_command_writes_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: Synthesis
) -> None:
    monkeypatch.setattr("mtcli.recipes.augment.WINDOW", 7)
    path = text_file(tmp_path, SOURCES)
    run(path, tmp_path / "whole.jsonl", wanted)
    append = Unfinished.append
    calls = 0

    def interrupted(self: Unfinished, *args: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % 2:
            append(self, *args)
            self._file.write(b'{"half a record')
            self._file.flush()
        raise KeyboardInterrupt

    monkeypatch.setattr(Unfinished, "append", interrupted)
    output = tmp_path / "parts.jsonl"
    messages = []
    for _ in range(6):
        with pytest.raises(StoppedError) as caught:
            run(path, output, wanted)
        messages.append(str(caught.value))
        assert not output.exists()
    assert messages[:2] == ["stopped by Ctrl-C; run the same command again to continue after line 7"] * 2
    monkeypatch.setattr(Unfinished, "append", append)
    run(path, output, wanted)
    assert output.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_text_that_is_not_utf8_is_reported_before_it_is_translated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtcli.recipes.augment.WINDOW", 1)
    path = tmp_path / "mono.txt"
    path.write_bytes(f"{SOURCES[0]}\n".encode() + b"caf\xe9\n")
    with pytest.raises(DataError, match=r"mono\.txt:2: byte 4 is not UTF-8"):
        run(path, tmp_path / "out.tsv", Synthesis())
    assert [found.name for found in tmp_path.iterdir()] == ["mono.txt"]


def test_another_command_does_not_continue_an_unfinished_one(tmp_path: Path) -> None:
    Unfinished(tmp_path, {"--seed": 1, "--input": "a"}).append([{"a": 1}], AugmentState(lines=1))
    with pytest.raises(UsageError, match="differs in --seed"):
        Unfinished(tmp_path, {"--seed": 2, "--input": "a"})
    assert Unfinished(tmp_path, {"--seed": 1, "--input": "a"}).state.lines == 1
    assert Unfinished(tmp_path, {"--seed": 1, "--input": "a"}, force=True).state.lines == 1
    assert Unfinished(tmp_path, {"--seed": 2, "--input": "a"}, force=True).state.lines == 0


def test_records_are_on_disk_before_the_state_that_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, int]] = []

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path.name, path.stat().st_size))

    unfinished = Unfinished(tmp_path, {})
    monkeypatch.setattr(os, "fsync", fsync)
    unfinished.append([{"a": 1}], AugmentState(lines=1))
    assert synced[0] == (RECORDS, unfinished.state.bytes)
    assert STATE in synced[1][0]


def test_a_signal_is_reported_with_what_is_left(tmp_path: Path) -> None:
    output = tmp_path / "out.tsv"
    with (
        pytest.raises(StoppedError, match=r"signal SIGTERM; run the same command again to continue$") as caught,
        unfinished_output(output, {}),
    ):
        signal.raise_signal(signal.SIGTERM)
    assert caught.value.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_one_process_writes_an_output_at_a_time(tmp_path: Path) -> None:
    output = tmp_path / "out.tsv"
    with (
        unfinished_output(output, {}),
        pytest.raises(LockedError, match="is writing this output"),
        unfinished_output(output, {}),
    ):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b'{"identity": {}}', b'{"identity": {}, "state": {"x": 1}}', b'{"identity": [], "state": {}}',
        b'{"identity": {}, "state": {"lines": "7"}}', b'{"identity": {}, "state": {"bytes": -1}}',
    ],
)  # fmt: skip
def test_a_damaged_state_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / STATE).write_bytes(content)
    with pytest.raises(StorageError, match="--force"):
        Unfinished(tmp_path, {})
    assert Unfinished(tmp_path, {}, force=True).state == AugmentState()


def test_the_scores_are_those_of_both_models(tmp_path: Path) -> None:
    models = toy_models(scorer=toy().backend)
    run(text_file(tmp_path, SOURCES[:8]), tmp_path / "out.jsonl", Synthesis(forward=True), models)
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    pairs = [(record["translation"]["en"], record["translation"]["es"]) for record in records]
    ours = [found.mean for found in likelihoods(toy().backend, pairs) if found]
    reverse = [found.mean for found in likelihoods(toy().backend, [(tgt, src) for src, tgt in pairs]) if found]
    assert [record["log_prob"] for record in records] == pytest.approx(ours, abs=1e-3)
    assert [record["reverse_log_prob"] for record in records] == pytest.approx(reverse, abs=1e-5)
    for record in records:
        assert record["score"] == dual_score(record["log_prob"], record["reverse_log_prob"])


def test_dual_score_prefers_pairs_on_which_both_models_agree() -> None:
    assert dual_score(-1.0, -1.0) == -1.0
    assert dual_score(-1.0, -3.0) == -4.0
    assert dual_score(-2.0, -2.0) > dual_score(-1.0, -3.0)


def test_keep_writes_the_best_pairs_in_their_order(tmp_path: Path) -> None:
    path = text_file(tmp_path, SOURCES)
    everything = run(path, tmp_path / "all.jsonl", Synthesis())
    best = run(path, tmp_path / "best.jsonl.gz", Synthesis(keep=0.5))
    records = (tmp_path / "all.jsonl").read_text().splitlines()
    kept = gzip.decompress((tmp_path / "best.jsonl.gz").read_bytes()).decode().splitlines()
    scores: dict[str, float] = {record: json.loads(record)["score"] for record in records}
    assert len(kept) == best.written == round(everything.written / 2)
    assert best.dropped["low score"] == everything.written - best.written
    assert kept == [record for record in records if record in set(kept)]
    assert min(scores[record] for record in kept) >= max(scores[r] for r in records if r not in set(kept))


def test_a_tab_in_a_translation_begins_no_column(tmp_path: Path) -> None:
    output = PairOutput(tmp_path / "out.tsv", "es", "en")
    record = {"translation": {"es": "un\tperro.", "en": "one dog."}, "log_prob": -1.0, "score": -1.0}
    assert write_best_pairs(lambda: [record], output, keep=1.0) == (1, 0)
    assert pairs_of(output.path) == [("un perro.", "one dog.")]


def test_filters_name_the_problem() -> None:
    line = "one big dog sees the cat."
    assert problem_of(line, "uno grande perro ve al gato.", "Latin") == ""
    assert problem_of(line, " ", "Latin") == "empty translation"
    assert problem_of(line, line, "Latin") == "untranslated"
    assert problem_of(line, "большая собака видит кота", "Latin") == "wrong script"
    assert problem_of(line, "perro " * 9, "Latin") == "repetition"
    assert problem_of("dog " * 9, "perro " * 9, "Latin") == ""
    assert problem_of("a", "uno grande perro ve al gato " * 5, "Latin") == "unlike lengths"
    assert main_script(["uno", "dos", "большая собака видит кота"]) == "Latin"


def test_text_in_the_language_of_the_translations_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    english = [f"The woman buys {n} books for her brother." for n in range(10)]
    run(text_file(tmp_path, english), tmp_path / "right.tsv", Synthesis())
    assert "is probably in" not in caplog.text
    run(
        text_file(tmp_path, [f"La mujer compra {n} libros para su hermano." for n in range(10)]),
        tmp_path / "wrong.tsv",
        Synthesis(),
    )
    assert "mono.txt: is probably in es, but the model translates from en; use a model of es → en" in caplog.text


def test_text_without_spaces_in_the_language_of_the_translations_is_recognised() -> None:
    lines = [f"他今年读了{n}本很好看的书。" for n in range(10)]
    assert is_in_other_language(lines, "en", "zh")
    assert not is_in_other_language(lines, "zh", "en")


def test_text_in_chinese_or_japanese_has_the_script_of_its_lines() -> None:
    lines = ["一只大狗看见了猫。", "犬が猫を見る。", "OK"]
    expected = main_script(lines)
    assert not any(has_wrong_script(line, expected) for line in lines)
    assert has_wrong_script("большая собака видит кота", expected)


@given(st.lists(st.text("abcde", min_size=1), min_size=1, max_size=30), st.integers(0, 99))
def test_noise_drops_and_moves_words_a_little(words: list[str], line: int) -> None:
    marked = [f"{word}{place}" for place, word in enumerate(words)]
    noisy = with_noise(" ".join(marked), 1, line).split()
    assert noisy
    assert set(noisy) <= set(marked)
    assert noisy == with_noise(" ".join(marked), 1, line).split()
    kept = [word for word in marked if word in noisy]
    assert all(abs(kept.index(word) - place) <= MAX_MOVE for place, word in enumerate(noisy))


def test_noise_changes_most_long_lines() -> None:
    text = " ".join(map(str, range(20)))
    assert sum(with_noise(text, 1, line) != text for line in range(20)) > 15
    assert with_noise(text, 1, 0) != with_noise(text, 2, 0)
    kept = len(with_noise(" ".join(["word"] * 10_000), 1, 0).split())
    assert kept == pytest.approx(9000, abs=150)  # a tenth is dropped: five standard errors


def test_noise_drops_and_moves_characters_of_text_without_spaces() -> None:
    text = "他昨天用iPhone给我打了三个电话，我没有接到。"
    noisy = [with_noise(text, 1, line) for line in range(20)]
    assert sum(each != text for each in noisy) > 15
    assert all(len(each) > len(text) / 2 and set(each) <= set(text) for each in noisy)
    assert sum("iPhone" in each for each in noisy) > 10


@pytest.mark.parametrize("joint", [True, False])
def test_the_tag_is_one_token_that_text_does_not_have(joint: bool) -> None:
    tokenizer = train_tokenizer(PAIRS, joint=joint)
    plain, tagged = tokenizer.encode_src(["one dog.", BACK_TRANSLATION_TAG + "one dog."])
    assert tagged[1:] == plain
    assert tokenizer.src_vocabulary[tagged[0]] == "<0xFF>"
    every_character = "".join(map(chr, [*range(32, 0xD800, 7), *range(0xE000, 0x110000, 997)]))
    assert tagged[0] not in tokenizer.encode_src([every_character])[0]
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.encode_src([BACK_TRANSLATION_TAG + "one dog."]) == [tagged]


def test_tags_do_not_change_the_vocabulary() -> None:
    tagged = [(BACK_TRANSLATION_TAG + src, tgt) for src, tgt in PAIRS]
    assert train_tokenizer(tagged).to_json() == train_tokenizer(PAIRS).to_json()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("model"))


def test_the_command_reports_what_it_wrote(tmp_path: Path, model: Path) -> None:
    path = text_file(tmp_path, [*SOURCES[:5], ""])
    output = tmp_path / "out.tsv"
    done = mtcli("augment", "--model", model, "-i", path, "-o", output, "--tag", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "6 lines read" in done.stderr.decode()
    assert "1 dropped: blank line" in done.stderr.decode()
    assert all(src.startswith(BACK_TRANSLATION_TAG) for src, _ in pairs_of(output))
    assert parse_source(str(output)).path == str(output)
    again = mtcli("augment", "--model", model, "-i", path, "-o", output, cwd=tmp_path)
    assert again.returncode == 2
    assert "--force" in again.stderr.decode()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["-o", "out.txt"], "name it x.tsv or x.jsonl"),
        (["-o", "out.tsv", "--top-k", "3"], "only with --method sample"),
        (["-o", "out.tsv", "--seed", "3"], "--seed: only with --method sample or noise"),
        (["-o", "out.tsv", "--forward", "--tag"], "not with --forward"),
        (["-o", "out.tsv", "--forward", "--method", "noise"], "--method noise: not with --forward"),
        (["-o", "out.tsv", "--method", "sample", "-b", "3"], "not with --method sample"),
        (["-o", "out.tsv", "--reverse", "MODEL"], "needs a model of es → en"),
        (["-o", "out.tsv", "-i", "-"], "--input -: the text is read several times; name a file"),
        (["-o", "out.tsv", "-i", "/dev/null"], "--input /dev/null: the text is read several times; name a file"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, model: Path, given: list[str], message: str) -> None:
    path = text_file(tmp_path, SOURCES[:2])
    arguments = [str(model) if word == "MODEL" else word for word in given]
    done = mtcli("augment", "--model", model, "-i", path, *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr.decode()
    assert [found.name for found in tmp_path.iterdir()] == ["mono.txt"]


@pytest.fixture(scope="module")
def exported(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "model"
    export(model, "ctranslate2", folder)
    return folder


@pytest.mark.parametrize("options", [["--forward"], ["--tag"], ["--method", "noise", "--seed", "3"]])
def test_an_exported_model_makes_the_pairs_of_the_run(
    tmp_path: Path, model: Path, exported: Path, options: list[str]
) -> None:
    path = text_file(tmp_path, SOURCES)
    texts = []
    for folder in (model, exported):
        output = tmp_path / f"{len(texts)}.tsv"
        done = mtcli("augment", "--model", folder, "-i", path, "-o", output, *options, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        texts.append(pairs_of(output))
    assert texts[0] == texts[1]


def test_sampling_with_an_exported_model_is_refused_before_the_work(
    tmp_path: Path, model: Path, exported: Path
) -> None:
    path = text_file(tmp_path, SOURCES)
    done = mtcli("augment", "--model", exported, "-i", path, "-o", "o.tsv", "--method", "sample", cwd=tmp_path)
    assert done.returncode == 2
    assert "--method sample: not with an exported model" in done.stderr.decode()
    assert [found.name for found in tmp_path.iterdir()] == ["mono.txt"]


def test_an_empty_text_gives_no_pairs(tmp_path: Path) -> None:
    report = run(text_file(tmp_path, []), tmp_path / "out.tsv", Synthesis())
    assert (report.lines, report.written) == (0, 0)
    assert (tmp_path / "out.tsv").read_bytes() == b""


def test_invalid_bytes_are_refused_or_counted(tmp_path: Path, model: Path) -> None:
    (tmp_path / "mono.txt").write_bytes(b"one big dog.\nred \xff cat.\n")
    arguments = ["augment", "--model", model, "-i", "mono.txt", "-o", "out.tsv"]
    refused = mtcli(*arguments, cwd=tmp_path)
    assert refused.returncode == 3, refused.stderr
    done = mtcli(*arguments, "--replace", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "read 1 invalid byte as U+FFFD" in done.stderr.decode()
    assert "2 lines read" in done.stderr.decode()


def test_a_full_disk_is_reported_and_the_records_before_it_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "pairs.tsv"

    def write_to_a_full_disk() -> None:
        with unfinished_output(output, {}) as unfinished:
            unfinished.append([{"score": 1.0}], AugmentState(lines=1))
            unfinished.close()
            monkeypatch.setattr(unfinished, "_file", io.BufferedWriter(io.FileIO("/dev/full", "w")))
            unfinished.append([{"score": 2.0}], AugmentState(lines=2))

    with pytest.raises(StorageError, match=r"No space left on device; free some space and run the same command again"):
        write_to_a_full_disk()
    with unfinished_output(output, {}) as unfinished:
        assert unfinished.state.lines == 1
        assert list(unfinished.records()) == [{"score": 1.0}]
