"""`tensorboard/` of a run: the curves of `metrics.jsonl` as TensorBoard reads them. Needs the extra `tensorboard`.

Nothing reads it back. Each start of a run writes it anew from `metrics.jsonl`, which was cut back to the checkpoint
before: so it shows no step twice after a kill, and no resumption depends on it.
"""

import logging
import shutil
import time
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from mtcli.progress import Pace

log = logging.getLogger(__name__)


class EventFile:
    """The one event file of a run; one that cannot be written is a warning, for the run matters more.

    Written without the thread that TensorBoard's own writer has: a full disk is met here, not in the background.
    """

    def __init__(self, run: Path, before: list[dict[str, Any]]):
        self.pace, self.file = Pace(), None
        folder = run / "tensorboard"
        self.began = time.time() - max((e["seconds"] for e in before if "seconds" in e), default=0.0)
        try:
            if folder.exists():
                shutil.rmtree(folder)
            folder.mkdir()
            self.file = (folder / f"events.out.tfevents.{time.time_ns()}").open("wb")
        except OSError as error:
            self._give_up(error)
        # A TensorBoard that watches goes on to the file of the later name, and drops at START what it had before.
        self._write(0.0, file_version="brain.Event:2")
        self._write(0.0, session_log=SessionLog(status=SessionLog.START))
        for event in before:
            self.append(event)

    def append(self, happened: dict[str, Any]) -> None:
        """Show what `metrics.jsonl` has just been told, if it is a point of a curve."""
        event, pace = happened["event"], self.pace.after(happened)
        if event in ("train", "valid"):
            figures = {k: v for k, v in happened.items() if isinstance(v, float) and k != "seconds"}
            figures |= {} if pace is None else {"tokens_per_second": pace}
            values = [Summary.Value(tag=f"{event}/{name}", simple_value=value) for name, value in figures.items()]
            self._write(happened["seconds"], step=happened["step"], summary=Summary(value=values))

    def _write(self, seconds: float, **fields: Any) -> None:
        """A record; its clock is the time used, in which a pause between two resumptions does not count."""
        if self.file is None:
            return
        try:
            RecordWriter(self.file).write(Event(wall_time=self.began + seconds, **fields).SerializeToString())
            self.file.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        log.warning("tensorboard/ cannot be written (%s); metrics.jsonl has its figures", error)
        self.file = None
