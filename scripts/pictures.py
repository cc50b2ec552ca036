#!/usr/bin/env python3
"""Make the pictures of the documentation from a real run: docs/pictures/explain.png and docs/pictures/serve.png.

    scripts/pictures.py RUN [NAME]...

RUN is a run folder of the demo, such as runs/demo. NAME is `explain` or `serve`; without it both are made. Needs
Chromium (the variable CHROMIUM names another executable). Pillow, where it is installed, makes the files smaller.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
MTCLI = ROOT / ".venv" / "bin" / "mtcli"
SENTENCE = "I don't know the old king's name."
WIDTH = 1280
HEIGHTS = {"explain": 880, "serve": 860}
MAX_BYTES = 150_000
COLOURS = 256


def main() -> None:
    """Make the pictures named on the command line."""
    run, *names = sys.argv[1:] or ["-h"]
    if run in ("-h", "--help") or not set(names) <= PICTURE_OF.keys():
        sys.exit(__doc__)
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in names or PICTURE_OF:
        with tempfile.TemporaryDirectory() as scratch:
            picture = PICTURES / f"{name}.png"
            PICTURE_OF[name](Path(run), picture, Path(scratch))
        shrink(picture)
        size = picture.stat().st_size
        print(f"{picture.relative_to(ROOT)}: {size:,} bytes")
        if size > MAX_BYTES:
            sys.exit(f"{picture}: more than {MAX_BYTES:,} bytes")


def picture_of_explain(run: Path, picture: Path, scratch: Path) -> None:
    """The page of `mtcli explain`."""
    page = scratch / "explain.html"
    command: list[str | Path] = [MTCLI, "explain", SENTENCE, "--beam-size", "4", "--model", run, "--html", page]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    screenshot(page.as_uri(), picture, HEIGHTS["explain"], scratch)


def picture_of_serve(run: Path, picture: Path, scratch: Path) -> None:
    """The page of `mtcli serve` with a translation; the page translates the text after `#q=`."""
    command: list[str | Path] = [MTCLI, "serve", "--model", run, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            address = address_of(server)
            screenshot(f"{address}#q={quote(SENTENCE)}", picture, HEIGHTS["serve"], scratch)
        finally:
            server.terminate()


PICTURE_OF: dict[str, Callable[[Path, Path, Path], None]] = {"explain": picture_of_explain, "serve": picture_of_serve}


def address_of(server: "subprocess.Popen[str]") -> str:
    """The address that a starting server prints."""
    assert server.stderr is not None
    for line in server.stderr:
        if match := re.search(r"http://\S+/", line):
            return match.group()
    sys.exit("mtcli serve ended without an address")


def screenshot(address: str, picture: Path, height: int, scratch: Path) -> None:
    """Save what headless Chromium shows at this address once its network requests are done."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("Chromium is not installed; CHROMIUM names its executable")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--hide-scrollbars",
        "--blink-settings=preferredColorScheme=1",
        f"--user-data-dir={scratch / 'profile'}",
        f"--window-size={WIDTH},{height}",
        "--virtual-time-budget=10000",
        f"--screenshot={picture}",
    ]
    subprocess.run([chromium, *options, address], check=True, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def shrink(picture: Path) -> None:
    """Reduce a picture to a palette, if Pillow is installed."""
    try:
        from PIL import Image
    except ImportError:
        return
    with Image.open(picture) as image:
        reduced = image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    reduced.save(picture, optimize=True)


if __name__ == "__main__":
    main()
