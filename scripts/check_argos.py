#!/usr/bin/env python3
"""Install an exported package in Argos Translate itself, and compare its translations with those of mtcli.

    python scripts/check_argos.py MODEL LINES [--argos PYTHON] [--libretranslate PYTHON]

MODEL is a run folder, LINES a text file with one sentence per line. `--argos` names the Python of an environment that
has Argos Translate, by default the Python of this script. `--libretranslate` names one that has LibreTranslate; without
this option, LibreTranslate is not tried. Both environments need spaCy. These commands make them:

    python3 -m venv argos && argos/bin/pip install argostranslate
    python3 -m venv libre && libre/bin/pip install libretranslate spacy

The steps:

1. `mtcli export MODEL --to argos`.
2. `argospm update` and `argospm install`, from an index that this script serves on 127.0.0.1.
3. Argos Translate and mtcli translate LINES with the search of Argos Translate, in float32.
4. LibreTranslate starts with the installed package, lists its languages and translates the first line.

Nothing is downloaded. By default, Argos Translate splits text into sentences with a model that it downloads, and it has
no setting for text that is already split (its settings.py names `ARGOS_CHUNK_TYPE=NONE` as not supported yet). The
script chooses `ARGOS_CHUNK_TYPE=SPACY` and puts an empty pipeline of spaCy where Argos Translate looks for the
downloaded one. It then splits by punctuation marks alone. Lines that it splits are counted, and not compared.

The script prints the versions, the lines that differ, and how many are equal. It exits with 1 if more than 0.5% differ.
"""

import argparse
import http.server
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError

MTCLI = [sys.executable, "-m", "mtcli"]
HOST = "127.0.0.1"
CLOSED_PORT = 9
"""A port on which no server listens: that of the discard protocol."""
MAX_UNEQUAL_SHARE = 0.005
"""Share of the lines that may differ: two translations with nearly the same score."""
MAX_SECONDS = 120
"""Seconds within which LibreTranslate must start."""

MAKE_PIPELINE = """
import pathlib, spacy, sys
cache = pathlib.Path(sys.argv[1])
spacy.blank("xx").to_disk(cache)
(cache / "senter").mkdir()
(cache / "senter" / "model").touch()
"""
"""Run by the Python that has spaCy. Argos Translate takes the folder for its download if it has `senter/model`."""

TRANSLATE = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
from argostranslate import translate
translation = translate.get_translation_from_codes(*sys.argv[1:])
split = translation.underlying.sentencizer.split_sentences
versions = {}
for name in ("argostranslate", "argos-translate-lt", "ctranslate2", "sentencepiece", "spacy"):
    try:
        versions[name] = version(name)
    except PackageNotFoundError:
        pass
found = []
for line in json.load(sys.stdin):
    found.append([translation.translate(line), len(split(line))])
json.dump({"versions": versions, "found": found}, sys.stdout)
"""
"""Run by the Python that has Argos Translate: the translation of each line, and its number of sentences."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="a run folder")
    parser.add_argument("lines", type=Path, help="a text file, one sentence per line")
    parser.add_argument("--argos", default=sys.executable, metavar="PYTHON", help="it has argostranslate and spacy")
    parser.add_argument("--libretranslate", metavar="PYTHON", help="it has libretranslate and spacy")
    args = parser.parse_args()
    lines = [line for line in args.lines.read_text(encoding="utf-8").split("\n") if line.strip()]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        package = export(args.model, folder / "export")
        metadata = metadata_of(package)
        environment = settings(folder / "argos")
        make_pipeline(args.argos, folder / "argos")
        install(args.argos, package, metadata, environment)
        unequal_share = compare(args.argos, args.model, metadata, environment, lines)
        if args.libretranslate:
            try_libretranslate(args.libretranslate, metadata, environment, lines[0], folder)
    return int(unequal_share > MAX_UNEQUAL_SHARE)


def export(model: Path, out: Path) -> Path:
    """Export a model, and return the path of its package."""
    subprocess.run([*MTCLI, "export", str(model), "--to", "argos", "-o", str(out)], check=True)
    (package,) = out.glob("*.argosmodel")
    return package


def metadata_of(package: Path) -> dict[str, Any]:
    with zipfile.ZipFile(package) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/metadata.json"))
        metadata: dict[str, Any] = json.loads(archive.read(name))
    return metadata


def settings(home: Path) -> dict[str, str]:
    """Return environment variables that keep all files of Argos Translate in a folder."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ARGOS_", "LT_"))}
    return inherited | {
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "ARGOS_CHUNK_TYPE": "SPACY",
        "ARGOS_COMPUTE_TYPE": "float32",
        "ARGOS_INTRA_THREADS": "1",  # more threads are slower for one line at a time on a busy machine
        "no_proxy": HOST,
    }


def make_pipeline(python: str, home: Path) -> None:
    """Write the empty pipeline of spaCy."""
    cache = home / "cache" / "argos-translate" / "spacy"
    cache.mkdir(parents=True)
    subprocess.run([python, "-c", MAKE_PIPELINE, str(cache)], check=True)


def install(python: str, package: Path, metadata: dict[str, Any], environment: dict[str, str]) -> None:
    """Install a package by the command `argospm`, from an index with this package only."""
    argospm = Path(python).with_name("argospm")
    with served(package.parent) as address:
        index = [metadata | {"links": [f"{address}/{package.name}"]}]
        (package.parent / "index.json").write_text(json.dumps(index))
        environment = environment | {"ARGOS_PACKAGE_INDEX": f"{address}/"}
        name = f"translate-{metadata['from_code']}_{metadata['to_code']}"
        for command in (["update"], ["install", name], ["list"]):
            print(f"$ argospm {' '.join(command)}", flush=True)
            subprocess.run([str(argospm), *command], env=environment, check=True)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of a folder over HTTP, and yield the address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with http.server.ThreadingHTTPServer((HOST, 0), partial(Handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://{HOST}:{server.server_port}"
        finally:
            server.shutdown()


def compare(python: str, model: Path, metadata: dict[str, Any], environment: dict[str, str], lines: list[str]) -> float:
    """Translate the lines by Argos Translate and by mtcli, and return the share of those that differ."""
    command = [python, "-c", TRANSLATE, metadata["from_code"], metadata["to_code"]]
    done = subprocess.run(
        command, input=json.dumps(lines), env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    result = json.loads(done.stdout)
    whole = [(line, text) for line, (text, sentences) in zip(lines, result["found"], strict=True) if sentences == 1]
    ours = translated_by_mtcli(model, [line for line, _ in whole])
    unequal = 0
    for (line, theirs), text in zip(whole, ours, strict=True):
        if theirs != text:
            unequal += 1
            print(f"  {line}\n    mtcli           {text}\n    Argos Translate {theirs}")
    print(", ".join(f"{name} {version}" for name, version in result["versions"].items()))
    print(f"{len(whole) - unequal} of {len(whole)} translations are equal", end="")
    print(f"; {len(lines) - len(whole)} more lines were split into sentences" if len(whole) < len(lines) else "")
    return unequal / len(whole)


def translated_by_mtcli(model: Path, lines: list[str]) -> list[str]:
    """Translate lines as `mtcli translate` does, with the search of Argos Translate."""
    from mtcli.exchange.argos import SEARCH
    from mtcli.translate.loading import load
    from mtcli.translate.windows import Reading

    translator, _, _ = load([model], "cpu")
    return [found.text for found in translator.translate(lines, SEARCH, Reading(warn=False))]


def try_libretranslate(
    python: str, metadata: dict[str, Any], environment: dict[str, str], line: str, folder: Path
) -> None:
    """Start LibreTranslate with the installed package, list its languages, and translate a line."""
    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    src = metadata["from_code"]
    tgt = metadata["to_code"]
    arguments = ["--load-only", f"{src},{tgt}", "--host", HOST, "--port", str(port)]
    # An index with packages for these languages would make it download a model that splits sentences.
    Path(environment["XDG_DATA_HOME"], "argos-translate", "index.json").write_text("[]")
    environment = environment | {"ARGOS_PACKAGE_INDEX": f"http://{HOST}:{CLOSED_PORT}/"}
    server = subprocess.Popen(
        [str(Path(python).with_name("libretranslate")), *arguments], env=environment, cwd=folder, stdout=sys.stderr
    )
    address = f"http://{HOST}:{port}"
    try:
        languages = wait_for_languages(address, server)
        print("LibreTranslate /languages:", ", ".join(f"{each['code']} → {each['targets']}" for each in languages))
        assert any(each["code"] == src and tgt in each["targets"] for each in languages), "the pair is not listed"
        body = json.dumps({"q": line, "source": src, "target": tgt}).encode()
        request = urllib.request.Request(f"{address}/translate", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            print(f"LibreTranslate /translate: {line} → {json.load(answer)['translatedText']}")
    finally:
        server.terminate()
        server.wait()


def wait_for_languages(address: str, server: "subprocess.Popen[bytes]") -> list[dict[str, Any]]:
    """Return the answer of `/languages` as soon as the server gives one."""
    end = time.monotonic() + MAX_SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/languages") as answer:
                languages: list[dict[str, Any]] = json.load(answer)
                return languages
        except URLError:
            time.sleep(0.5)
    raise SystemExit("LibreTranslate did not start")


if __name__ == "__main__":
    sys.exit(main())
