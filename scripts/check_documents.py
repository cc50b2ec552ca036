#!/usr/bin/env python3
"""Read and write files of all document types: unchanged, they must come back byte for byte, and broken ones be refused.

    scripts/check_documents.py FILE_OR_FOLDER... [--types .po .srt] [--fuzz 1000] [--most 300]

Prints a table with a row for each type: files read, files refused with a message (broken or unsafe ones), files that
did not come back, and mutated files that were read, refused, or stopped the reader with another error. The exit code is
1 if a file did not come back, or if there was another error.
"""

import argparse
import io
import os
import random
import re
import sys
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath

from mtcli.documents.formats.archive import ArchiveEntry, read_archive, write_archive
from mtcli.documents.formats.format import ReadOptions
from mtcli.documents.formats.registry import MODULES, read_document
from mtcli.documents.markup.inline import Inline
from mtcli.errors import MtcliError

MAX_BYTES = 1 << 20
"""Larger files are skipped, to keep the check short."""
SOURCE_LANGUAGE = re.compile(rb'\b(?:source-language|srcLang|srclang)="([A-Za-z-]+)"')
TARGET_LANGUAGE = re.compile(rb'\b(?:target-language|trgLang)="([A-Za-z-]+)"')
SNIPPETS = (
    b"",
    b"\0",
    b"\xff",
    b"\xc3",
    b"\r",
    b"\n",
    b"\n\n",
    b'"',
    b"\\",
    b"<",
    b">",
    b"&",
    b"{",
    b"-->",
    b"#",
    b"\t",
    b",",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--types", nargs="*", default=sorted(MODULES), help="suffixes; default: all")
    parser.add_argument("--fuzz", type=int, default=0, help="mutated files of each type")
    parser.add_argument("--most", type=int, default=300, help="files of each type")
    given = parser.parse_args()
    found = files_by_type(given.paths, given.types, given.most)
    failed = False
    print("| type | files | unchanged | refused | changed | mutated: read | refused | other errors |")
    print("|---|---|---|---|---|---|---|---|")
    for suffix, files in sorted(found.items()):
        results = {path: check(path.read_bytes(), str(path)) for path in files}
        counts = Counter(results.values())
        readable = [path for path, result in results.items() if result != "refused"]
        fuzzed = Counter(check(content, name) for content, name in mutations(readable, given.fuzz if readable else 0))
        failed = failed or bool(counts["changed"] or counts["error"] or fuzzed["changed"] or fuzzed["error"])
        row = (suffix, len(files), counts["same"], counts["refused"], counts["changed"] + counts["error"])
        fuzz_row = (fuzzed["same"], fuzzed["refused"], fuzzed["error"] + fuzzed["changed"])
        print("| " + " | ".join(map(str, row + fuzz_row)) + " |", flush=True)
    return int(failed)


def files_by_type(
    paths: Iterable[Path], suffixes: Sequence[str], most: int, most_bytes: int = MAX_BYTES
) -> dict[str, list[Path]]:
    """Return up to `most` files of each type, chosen at random but always the same."""
    found = defaultdict(list)
    for path in paths:
        for file in sorted(walk(path)):
            suffix = file.suffix.lower()
            if suffix in suffixes and 0 < file.stat().st_size <= most_bytes:
                found[suffix].append(file)
    return {suffix: random.Random(1).sample(files, min(most, len(files))) for suffix, files in found.items()}


def walk(path: Path) -> Iterator[Path]:
    """Yield the files in a folder, or the file itself."""
    if path.is_file():
        yield path
    for folder, _, names in os.walk(path):
        for name in names:
            file = Path(folder) / name
            if file.is_file():
                yield file


def check(content: bytes, name: str) -> str:
    """Read a file and write it with its own segments. Return what happened, and print what is wrong."""
    try:
        document = read_document(content, options_of(content, name))
        written = document.write(document.segments)
        translated = document.write([changed(segment) for segment in document.segments])
    except MtcliError:
        return "refused"
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error} ({content[:200]!r})", file=sys.stderr)
        return "error"
    try:
        read_document(translated, options_of(content, name))
    except MtcliError as error:
        print(f"{name}: a translation of it cannot be read: {error} ({content[:200]!r})", file=sys.stderr)
        return "error"
    if written != content and not is_same_archive(written, content):
        print(f"{name}: changed", file=sys.stderr)
        return "changed"
    return "same"


def options_of(content: bytes, name: str) -> ReadOptions:
    """Return options that read the first column of a table, and the languages that an XML file declares."""
    is_table = PurePath(name).suffix.lower() in (".csv", ".tsv")
    src = SOURCE_LANGUAGE.search(content)
    tgt = TARGET_LANGUAGE.search(content)
    return ReadOptions(
        name, src[1].decode() if src else "en", tgt[1].decode() if tgt else "de", ("1",) if is_table else ()
    )


def is_same_archive(written: bytes, content: bytes) -> bool:
    """Return True if both are zip archives with the same files. Their compression may differ."""
    if not zipfile.is_zipfile(io.BytesIO(written)):
        return False
    with zipfile.ZipFile(io.BytesIO(written)) as new, zipfile.ZipFile(io.BytesIO(content)) as old:
        return new.namelist() == old.namelist() and all(new.read(name) == old.read(name) for name in old.namelist())


def changed(segment: Inline) -> Inline:
    """Return a translation that differs from its segment: longer, and with characters that need escapes."""
    return (*segment, ' "ü", <&> \\ x')


def mutations(files: Sequence[Path], number: int) -> Iterator[tuple[bytes, str]]:
    """Yield mutated files: bytes or tags replaced, deleted, doubled or inserted; every second archive in its parts."""
    rng = random.Random(2)
    for index in range(number):
        path = rng.choice(files)
        content = path.read_bytes()
        if zipfile.is_zipfile(path) and index % 2:
            mutated = mutated_archive(content, rng)
        else:
            mutated = mutated_bytes(content, rng)
        yield mutated, f"mutation-{index}-of-{path.name}"


def mutated_bytes(content: bytes, rng: random.Random) -> bytes:
    """Return content with a few changes."""
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(content) + 1)
        end = min(len(content), start + rng.choice((0, 1, 1, 5, 80)))
        middle = rng.choice((rng.choice(SNIPPETS), bytes([rng.randrange(256)]), content[start:end] * 2))
        if rng.random() < 0.3:  # whole tags
            start = max(0, content.find(b"<", start))
            end = max(start, content.find(b"<", start + rng.choice((1, 1, 80))))
            middle = content[start:end] * rng.choice((0, 2))
        content = content[:start] + middle + content[end:]
    return content


def mutated_archive(content: bytes, rng: random.Random) -> bytes:
    """Return an archive in which one of the XML files has a few changes."""
    entries = read_archive(content, "archive")
    is_text = re.compile(r"\.(?:xml|rels|xhtml|html?|opf|ncx)$|^mimetype$")
    chosen = rng.choice([entry.name for entry in entries if is_text.search(entry.name) and entry.content])
    return write_archive(
        [
            ArchiveEntry(entry.info, mutated_bytes(entry.content, rng)) if entry.name == chosen else entry
            for entry in entries
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
