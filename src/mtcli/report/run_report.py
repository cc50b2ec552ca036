"""Write the report of a run: `report.html`, a self-contained page, and `README.md`, the model card.

Both are made from the files of the run folder, at every validation and at the end.
"""

import logging
from pathlib import Path

from mtcli.report.model_card import to_card
from mtcli.report.run_page import to_html
from mtcli.report.run_record import RecipeRecord, read_run
from mtcli.runtime import files

log = logging.getLogger(__name__)


def write_report(folder: Path, device: str, recipe: RecipeRecord | None = None) -> bool:
    """Write `report.html` and `README.md`, and return True. A failure is a warning: it must not end the training.

    Args:
        folder: The run folder.
        device: The device that trains, in words.
        recipe: The recipe that made the run, if one did.
    """
    try:
        record = read_run(folder, device, recipe)
        files.replace_file(folder / "report.html", to_html(record).encode())
        files.replace_file(folder / "README.md", to_card(record).encode())
    except Exception as error:
        log.warning("the report could not be written: %s", error)
        return False
    return True
