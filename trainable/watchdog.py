"""A deadline for work that may hang: past it the process leaves a note and ends itself."""

from __future__ import annotations

import faulthandler
import json
import os
import threading
from pathlib import Path
from types import TracebackType

NOTE = "watchdog.json"
TRACE = "watchdog.txt"
EXIT_CODE = 75


class Watchdog:
    """A context that kills this process when it is not left within `seconds`.

    Ray has no hard timeout for a trial, and a step that hangs inside C code cannot be interrupted: ending the
    process is the only way to free what it holds. The note and every thread's stack go to `folder`.
    """

    def __init__(self, seconds: float, folder: Path) -> None:
        self.seconds = seconds
        self.folder = folder
        self._timer = threading.Timer(seconds, self._bite)
        self._timer.daemon = True

    def __enter__(self) -> Watchdog:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def _bite(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / TRACE).open("w") as file:
            faulthandler.dump_traceback(file)
        reason = f"an epoch took more than limits.step_seconds = {self.seconds:g} s"
        (self.folder / NOTE).write_text(json.dumps({"reason": reason, "pid": os.getpid()}))
        os._exit(EXIT_CODE)


def take_note(folder: Path) -> str | None:
    """The reason that a watchdog left in this folder, once; None where there is none."""
    path = folder / NOTE
    try:
        reason = str(json.loads(path.read_text())["reason"])
    except (OSError, ValueError, KeyError):
        return None
    path.unlink()
    return reason
