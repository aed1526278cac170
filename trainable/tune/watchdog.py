"""Sets a deadline for work that may hang: after it, the process writes its stacks and ends itself."""

from __future__ import annotations

import faulthandler
import json
from pathlib import Path
from types import TracebackType

NOTE = "watchdog.json"
TRACE = "watchdog.txt"


class Watchdog:
    """Kills this process if the context is not left within `seconds`.

    Ray has no hard timeout for a trial, and a step that hangs inside C code cannot be interrupted: ending the
    process is the only way to free what it uses. The clock is a thread of faulthandler that needs no GIL, so
    code that never releases it is ended too. That thread can only write stacks. Therefore the reason is
    written to `folder` beforehand, and removed if the context is left in time. A process has one such clock:
    two watchdogs at once are not possible.
    """

    def __init__(self, seconds: float, folder: Path) -> None:
        self.seconds = seconds
        self.folder = folder

    def __enter__(self) -> Watchdog:
        self.folder.mkdir(parents=True, exist_ok=True)
        reason = f"an epoch took more than limits.step_seconds = {self.seconds:g} s"
        self._trace = (self.folder / TRACE).open("w")  # emptied: an earlier attempt's stacks say nothing now
        (self.folder / NOTE).write_text(json.dumps({"reason": reason}))
        faulthandler.dump_traceback_later(self.seconds, exit=True, file=self._trace)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._trace.close()
        clear_notes(self.folder)


def pop_reason(folder: Path) -> str | None:
    """Reads and removes the reason that a watchdog left in this folder; None if none has ended its process.

    A process that died of something else under a watchdog leaves a note, but no stacks: that does not count.
    The file with the stacks stays, to be read.
    """
    path = folder / NOTE
    try:
        if not (folder / TRACE).stat().st_size:
            return None
        reason = str(json.loads(path.read_text())["reason"])
    except (OSError, ValueError, KeyError):
        return None
    path.unlink(missing_ok=True)
    return reason


def clear_notes(folder: Path) -> None:
    """Removes the files that watchdogs left in a folder."""
    for name in (NOTE, TRACE):
        (folder / name).unlink(missing_ok=True)
