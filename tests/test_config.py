import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtcli.config.build import build
from mtcli.config.fields import parse_duration
from mtcli.config.schema import NAMES, DataConfig
from mtcli.config.toml_file import load, to_toml
from mtcli.errors import ModelError, UsageError
from mtcli.storage.run_folder import differences
from mtcli.text.languages import code_of_name, is_plausible


def write(folder: Path, text: str) -> Path:
    path = folder / "c.toml"
    path.write_text(text, encoding="utf-8")
    return path


# ---- which value wins ----


def test_set_overrides_options_then_the_file_then_the_preset(tmp_path: Path) -> None:
    file = write(
        tmp_path, 'preset = "small"\n[data]\ntrain = ["x.tsv"]\n[train]\nlr = 0.5\nwarmup_steps = 7\nseed = 3\n'
    )
    config = build(file, {"train.warmup_steps": 8, "train.seed": 4, "train.time": None}, ["train.seed=5"])
    assert (config.model.d_model, config.model.d_ff) == (256, 1024)  # the preset
    assert config.train.lr == 0.5  # the file over the preset
    assert config.train.warmup_steps == 8  # an option over the file
    assert config.train.seed == 5  # --set over all
    assert build(file).train.seed == 3
    assert build(file, {"preset": "base"}).model.d_model == 512
    assert build(file, {}, ["train.seed=6", "train.seed=7"]).train.seed == 7


def test_the_demo_has_its_own_defaults_which_given_values_override(tmp_path: Path) -> None:
    demo = build()
    assert (demo.data.train, demo.train.max_steps) == ((), 1200)
    assert build(None, {"train.max_steps": 9}).train.max_steps == 9
    other = build(None, {"data.train": ["x.tsv"]})
    assert (other.train.max_steps, other.train.batch_tokens) == (None, 4096)


def test_other_training_pairs_drop_the_splits_and_the_note_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, '[data]\ntrain = ["a"]\nvalid = "b"\ntest = "c"\nnote = "d"\nsrc = "de"\ntgt = "en"\n')
    assert build(file).data == DataConfig(train=("a",), valid="b", test="c", note="d", src="de", tgt="en")
    for options, sets in (({"data.train": ["z"]}, []), ({}, ['data.train=["z"]'])):
        data = build(file, options, sets).data
        assert data == DataConfig(train=("z",), src="de", tgt="en")
    kept = build(file, {"data.train": ["z"], "data.valid": "y"}).data
    assert (kept.valid, kept.test) == ("y", None)
    assert build(file, {"data.valid": "y"}).data.test == "c"


def test_the_language_code_no_is_not_a_boolean(tmp_path: Path) -> None:
    file = write(tmp_path, '[data]\ntgt = "no"\n')
    assert build(file).data.tgt == "no"
    assert build(None, {}, ["data.tgt=no"]).data.tgt == "no"
    assert build(None, {"data.tgt": "no"}).data.tgt == "no"


def test_set_reads_toml_or_plain_text() -> None:
    config = build(None, {}, ["train.betas=[0.8, 0.9]", "train.time=30m", "data.swap=true", "data.note=a = 'b"])
    assert config.train.betas == (0.8, 0.9)
    assert config.train.time == 1800
    assert config.data.swap is True
    assert config.data.note == "a = 'b"


# ---- what is refused ----


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("[train]\nbatch_token = 5", "train.batch_tokens"),
        ("[train]\nwarmup = 5", "train.warmup_steps"),
        ("[model]\nheads = 5", "model.num_heads"),
        ("[data]\nd_model = 5", "model.d_model"),
        ("[train]\nbatch_size = 5", "train.batch_tokens"),
        ("[train]\ndropout = 0.1", "model.dropout"),
        ("[modle]\nd_ff = 5", "model"),
        ("presets = 'tiny'", "preset"),
    ],
)
def test_an_unknown_key_is_refused_with_its_file_and_the_nearest_key(tmp_path: Path, text: str, nearest: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(UsageError, match=rf"no such key; did you mean {re.escape(nearest)}\?") as caught:
        build(file)
    assert str(caught.value).startswith(f"{file}: ")


@pytest.mark.parametrize("key", ["train.learning_rate", "train.foo", "nonsense.foo"])
def test_an_unknown_key_without_a_similar_one_has_no_suggestion(key: str) -> None:
    with pytest.raises(UsageError, match=r"no such key; `mtcli train --list-settings` lists all$"):
        build(None, None, [f"{key}=1"])


def test_a_text_in_place_of_a_list_is_explained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"data\.train = 'a\.tsv': Input should be a list: write it in brackets$"):
        build(write(tmp_path, "[data]\ntrain = 'a.tsv'"))


@pytest.mark.parametrize(
    "assignment",
    [
        "model.d_model=0",
        "model.d_model=127",
        "model.dropout=1",
        "model.norm=middle",
        "train.lr=-1",
        "train.lr=nan",
        "train.lr=inf",
        "train.lr=quick",
        "train.max_steps=0",
        "train.time=soon",
        "train.time=0",
        "train.time=0s",
        "train.time=-5",
        "train.betas=[0.9]",
        "train.betas=[0.9, 1.0]",
        "train.betas=[-0.1, 0.9]",
        "train.seed=-1",
        "data.train=3",
        "data.src=3",
        "decode.beam_size=0",
        "decode.beam_size=1001",
        "decode.length_penalty=1e300",
        "model.d_model=100000000000000000000",
        "model.num_decoder_layers=1000000000",
        "tokenizer.vocab_size=1000000000",
        "train.time=true",
        "train.time=1e300",
        "train.lr=true",
        "train.seed='3'",
        "train.seed=0x" + "f" * 5000,
        "train.seed" + ".a" * 3000 + "=1",
        'data.src="a\\u0000"',
    ],
)
def test_a_wrong_value_is_refused_with_its_name(assignment: str) -> None:
    name = assignment.partition("=")[0].partition(".a.a")[0]
    with pytest.raises(UsageError, match=re.escape(name)):
        build(None, {"data.train": ["x"]} if name != "data.train" else {}, [assignment])


@pytest.mark.parametrize("name", ["preset", "data", "tokenizer", "model", "train", "decode"])
@pytest.mark.parametrize("value", ["3", "[1]", "'text'", "{x = 1}", "true"])
def test_a_section_that_is_not_a_table_is_refused(tmp_path: Path, name: str, value: str) -> None:
    file = write(tmp_path, f"{name} = {value}")
    for call in (lambda: build(file), lambda: build(None, {}, [f"{name}={value}"])):
        with pytest.raises(UsageError, match=name):
            call()


@pytest.mark.parametrize("text", ["train.lr", "", "lr", "preset.x=1", "=3", "train..lr=1", "train.lr=1\nb=2"])
def test_a_malformed_set_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        build(None, {}, [text])


def test_d_model_must_be_a_multiple_of_num_heads(tmp_path: Path) -> None:
    file = write(tmp_path, "[model]\nnum_heads = 3")
    with pytest.raises(UsageError, match=r"d_model = 128 is no multiple of model.num_heads = 3") as caught:
        build(file)
    assert str(caught.value).startswith(f"{file}: ")
    with pytest.raises(UsageError, match="no multiple"):
        build(file, {}, ["model.d_k=32"])
    assert build(file, {}, ["model.d_k=32", "model.d_v=40"]).model.num_heads == 3


def test_the_same_language_on_both_sides_is_refused() -> None:
    with pytest.raises(UsageError, match=r"data.src and data.tgt are both 'es'"):
        build(None, {"data.train": ["x.tsv"], "data.src": "es", "data.tgt": "es"})


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfea", b"a = ", b"[train]\n[train]", b"a = " + b"[" * 5000, b"a = 1" + b"0" * 5000, b"a = 2020-13-01"],
)
def test_a_file_that_is_not_toml_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(content)
    for read, refused in ((build, UsageError), (load, ModelError)):  # what a user gives; what is in a run
        with pytest.raises(refused, match=r"c\.toml: not a readable TOML file") as caught:
            read(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="no such configuration file"):
        build(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="not a readable"):
        build(tmp_path)


@pytest.mark.parametrize(
    "key", [b"a." * 5000 + b"b = 1", b"[" + b"a . " * 5000 + b"b]", b'x = {"a".' + b"'a'.a." * 2500 + b"b = 1}"]
)
def test_a_key_of_thousands_of_parts_is_refused_before_it_fills_the_memory(tmp_path: Path, key: bytes) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(key)
    for read, refused in ((build, UsageError), (load, ModelError)):
        with pytest.raises(refused, match="a key has more than 50 parts"):
            read(path)


def test_dots_in_texts_and_comments_are_no_keys(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    dots = "a." * 60 + "tsv"
    path.write_text(
        f'\ufeff# {dots}\n[data] # "\n'
        f'train = ["{dots}", \'{dots}\', """\n\\"{dots}""", \'\'\'{dots}\'\'\']\nsrc = "en"\ntgt = "de"\n',
        encoding="utf-8",
    )
    assert build(path).data.train == (dots, dots, f'"{dots}', dots)


SCALARS = st.one_of(
    st.integers(-5, 600).map(str), st.floats().map(str), st.sampled_from(["true", '"x"', "[]", "{}", "x"])
)
KEYS = [name for name in NAMES if name != "preset"]


@given(st.lists(st.tuples(st.sampled_from([*KEYS, "preset", "train", "x.y"]), SCALARS), max_size=3))
@settings(max_examples=150, deadline=None)
def test_any_set_is_a_usage_error_or_gives_a_configuration_that_toml_preserves(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    try:
        config = build(None, {}, [f"{key}={value}" for key, value in pairs])
    except UsageError:
        pass
    else:
        path = tmp_path_factory.getbasetemp() / "any.toml"
        path.write_text(to_toml(config), encoding="utf-8")
        assert load(path) == config


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("30m", 1800),
        ("2h", 7200),
        ("1h30m", 5400),
        ("1h30m15s", 5415),
        ("1.5h", 5400),
        (" 5m ", 300),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds
    assert build(None, {"train.time": text}).train.time == seconds


@pytest.mark.parametrize("text", ["", "m", "h30", "5d", "1:30", "-5m", "30m1h", "1h30", "1e3", "ten minutes", "٣m"])
def test_other_texts_are_not_durations(text: str) -> None:
    with pytest.raises(ValueError, match="a duration is written"):
        parse_duration(text)


# ---- config.toml ----

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12) | st.sampled_from(
    ['"', "\\", "\n\r\t", "\x01\x1f\x7f\x80\x85", "é\u2028\u2029😀\ufeff", "\\u0041", "/", "'''", '"""', "# no comment"]
)


@given(train=st.lists(TEXT, max_size=3), valid=st.none() | TEXT, note=TEXT, lr=st.floats(1e-30, 1e30))
@settings(max_examples=200, deadline=None)
def test_toml_preserves_a_configuration(
    tmp_path_factory: pytest.TempPathFactory, train: list[str], valid: str | None, note: str, lr: float
) -> None:
    options = {"data.train": train, "data.valid": valid, "data.note": note, "train.lr": lr}
    config = build(None, options, ["model.d_k=8"])
    path = tmp_path_factory.getbasetemp() / "round.toml"
    path.write_bytes(to_toml(config).encode())
    assert load(path) == config
    assert differences(load(path), config) == []
    assert ("valid = " in to_toml(config)) == (valid is not None or "valid = " in note + "".join(train))


def test_toml_omits_only_unset_values() -> None:
    text = to_toml(build(None, {"data.train": ["x"], "train.time": "5m", "train.max_steps": 9}))
    found = set(re.findall(r"^(\w+) = ", text, re.MULTILINE))
    unset = {"corrections", "valid", "test", "vocab_size", "d_k", "d_v", "bleu_tokenizer"}
    assert found.isdisjoint(unset)
    assert {k.partition(".")[2] for k in KEYS} - found == unset


def test_a_path_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(UsageError, match=r"data\.train"):
        build(None, {"data.train": ["caf\udce9.tsv"]})


# ---- what may change between runs ----

CHANGES = {
    "data.note=b": None,
    "train.lr=0.5": "train.lr: 0.003 → 0.5",
    "model.num_heads=2": "model.num_heads: 4 → 2",
    "data.valid=v": "data.valid: not set → v",
    "tokenizer.joint=false": "tokenizer.joint: true → false",
    "train.max_steps=7": None,
    "train.time=7m": None,
}


@given(st.sets(st.sampled_from(sorted(CHANGES))))
@settings(max_examples=40, deadline=None)
def test_differences_are_the_changed_keys_except_the_budget(changed: set[str]) -> None:
    old = build(None, {"data.train": ["x"]})
    new = build(None, {"data.train": ["x"]}, sorted(changed))
    assert sorted(differences(old, new)) == sorted(line for c in changed if (line := CHANGES[c]))


def test_differences_are_readable() -> None:
    old = build(None, {"data.train": ["a.tsv"]})
    new = build(None, {"data.train": ["b.tsv", "c d.tsv@2"], "data.note": "x"}, ["train.betas=[0.8, 0.9]"])
    assert differences(old, new) == [
        "data.train: a.tsv → b.tsv, c d.tsv@2",
        "train.betas: 0.9, 0.98 → 0.8, 0.9",
    ]
    assert differences(build(), old)[0] == "data.train: not set → a.tsv"
    odd = build(None, {"data.train": ["a.tsv"], "data.valid": " \x1b[2J\n"})
    assert differences(old, odd) == ['data.valid: not set → " \\u001b[2J\\n"']


@pytest.mark.parametrize("code", ["en", "zh_CN", "zh-Hans-CN", "eng_Latn", "English", "src", "lang1", "a"])
def test_language_codes_are_accepted(code: str) -> None:
    assert build(None, {"data.src": code}).data.src == code


@pytest.mark.parametrize(
    "code", ["", ".", "../../x", "a/b", "a b", "en\n", "-en", "en-", "en--us", "a" * 99, "e\0", "é"]
)
def test_a_language_code_that_is_unsafe_in_a_path_is_refused(code: str) -> None:
    for side in ("src", "tgt"):
        with pytest.raises(UsageError, match=f"data.{side} = .*a language is named by letters and digits"):
            build(None, {f"data.{side}": code})


def test_the_name_of_a_language_stands_for_its_code() -> None:
    names = ("english", "English", "deutsch", "Español", "English (United States)", "chinese_tw")
    assert [code_of_name(name) for name in names] == ["en", "en", "de", "es", "en", "zh_tw"]
    for code in ("en", "EN", "eng", "eng_Latn", "zh_CN", "src", "xx", "klingon", "lang1"):
        assert code_of_name(code) == code


def test_codes_of_no_language_are_found() -> None:
    for code in ("en", "gn", "nah", "zh_CN", "src", "target", "English", "qqq"):
        assert is_plausible(code)
    for code in ("xx", "zz", "xx_CN", "klingon", "e"):
        assert not is_plausible(code)


def test_another_preset_is_a_difference() -> None:
    lines = differences(build(), build(None, {"preset": "small"}))
    assert lines[0] == "preset: tiny → small"
    assert "model.d_model: 128 → 256" in lines


def test_a_decimal_comma_is_explained() -> None:
    with pytest.raises(UsageError, match=r"train\.lr = .*0,001.*; write 0\.001$"):
        build(None, {}, ["train.lr=0,001"])
