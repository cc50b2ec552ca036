"""Read and write configurations as TOML: the file that a user gives, and the complete `config.toml` of a run."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from mtcli import limits
from mtcli.config.presets import Values
from mtcli.config.schema import SECTIONS, Config
from mtcli.config.validation import validate
from mtcli.errors import ModelError, UsageError
from mtcli.runtime.files import read_regular

MAX_KEY_PARTS = 50
"""Parts of a dotted key, such as `train.lr`. The memory of the parser grows with the square of their number."""

# Without an end, a text extends to the end of the file or line. The parser refuses it.
_STRING_OR_COMMENT = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+(?:""")?|'
    r"'''(?:[^']|'(?!''))*+(?:''')?|"
    r'"(?:[^"\\\n]|\\.)*+"?|'
    r"'[^'\n]*+'?|"
    r"#[^\n]*+",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf"(?<![\w-])[\w-]++(?:[ \t]*+\.[ \t]*+[\w-]++){{{MAX_KEY_PARTS}}}")


def read_given(path: Path) -> Values:
    """Read the file that a user names, which may be a pipe.

    Raises:
        UsageError: It is missing, too large or not TOML.
    """
    try:
        with path.open("rb") as file:
            content = file.read(limits.CONFIGURATION + 1)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such configuration file") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not a readable TOML file: {error}") from None
    if len(content) > limits.CONFIGURATION:
        raise UsageError(f"{path}: larger than {limits.CONFIGURATION:,} bytes, which no configuration is")
    return _parse(content, path)


def load(path: Path) -> Config:
    """Read the complete `config.toml` of a run.

    Raises:
        ModelError: It is missing, no regular file, damaged, or holds an unknown key.
    """
    try:
        content = read_regular(path, most=limits.CONFIGURATION)
    except OSError as error:
        raise ModelError(f"{path}: cannot read it ({error.strerror}); put the file of the run back") from None
    try:
        return validate(with_older_defaults(_parse(content, path)), f"{path}: ")
    except UsageError as error:  # the user did not write this file
        raise ModelError(f"{error}; the run is damaged, or of another version") from None


def to_toml(config: Config) -> str:
    """Return the whole configuration as TOML. Unset values are omitted, since TOML has no null."""
    lines = [f"preset = {json.dumps(config.preset)}"]
    if config.chosen:
        lines.append(f"chosen = {json.dumps(config.chosen)} # unset, so chosen from the corpus and the budget")
    for name, section in config.model_dump(mode="json", include={*SECTIONS}, exclude_none=True).items():
        lines += ["", f"[{name}]"]
        lines += [f"{key} = {_to_toml(value)}" for key, value in section.items()]
    # JSON strings are valid TOML, except for one control character.
    return "\n".join(lines).replace("\x7f", "\\u007f") + "\n"


def _to_toml(value: Any) -> str:
    """Return a value as TOML; tables in a list have a line each."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_to_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        return "[\n" + "".join(f"  {_to_toml(each)},\n" for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def with_older_defaults(values: Values) -> Values:
    """Return the recorded values of a run, completed where a newer setting would otherwise change the run.

    Runs of version 0.2 have no `data.variants`.
    """
    data = values.get("data")
    if isinstance(data, dict) and "variants" not in data:
        return {**values, "data": {**data, "variants": "off"}}
    return values


def _parse(content: bytes, path: Path) -> Values:
    try:
        text = content.decode("utf-8-sig")
        if _LONG_KEY.search(_STRING_OR_COMMENT.sub("s", text)):
            raise ValueError(f"a key has more than {MAX_KEY_PARTS} parts")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not a readable TOML file: {error}") from None
