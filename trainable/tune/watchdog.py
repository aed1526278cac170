"""Watches work that may hang: if it gives no sign for too long, its process writes its stacks and ends."""

from __future__ import annotations

import faulthandler
import json
import os
import time
from pathlib import Path
from types import TracebackType
from typing import TextIO

from trainable.files.regular import open_to_write, read_regular

NOTE = Path("watchdog.json")
TRACE = Path("watchdog.txt")
LARGEST_NOTE = 2**16
BEATS_APART = 0.02  # the clock is set anew at most once in this part of its seconds: that takes a new thread


class Watchdog:
    """A clock that kills this process if the context is not left, and `beat` is not called, for `seconds`.

    Ray has no hard timeout for a trial, and a step that hangs inside C code cannot be interrupted: ending the
    process is the only way to free what it uses. The clock is a thread of faulthandler that needs no GIL, so
    code that never releases it is ended too. That thread can only write stacks. Therefore the reason is
    written to `folder` beforehand, and removed if the context is left in time. A process has one such clock:
    two watchdogs at once are not possible. Rank 0 makes the folder; the other ranks of a trial have files of
    their own there, or none where they do not see it.
    """

    def __init__(self, seconds: float, folder: Path, rank: int = 0) -> None:
        self.seconds = seconds
        self._note, self._stacks = _files(folder, rank)
        self._in_folder = rank == 0 or folder.is_dir()

    def __enter__(self) -> Watchdog:
        if self._in_folder:
            self._note.parent.mkdir(parents=True, exist_ok=True)
            reason = f"no batch was done for more than limits.step_seconds = {self.seconds:g} s"
            with _opened(self._note) as note:
                note.write(json.dumps({"reason": reason}))
        # emptied: an earlier attempt's stacks say nothing now
        self._trace = (
            _opened(self._stacks) if self._in_folder else Path(os.devnull).open("w", encoding="utf-8")
        )
        self._start_clock()
        return self

    def beat(self) -> None:
        """Say that the work goes on. It costs next to nothing."""
        if time.monotonic() >= self._beats_from:
            self._start_clock()

    def _start_clock(self) -> None:
        self._beats_from = time.monotonic() + BEATS_APART * self.seconds
        faulthandler.dump_traceback_later(self.seconds, exit=True, file=self._trace)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._trace.close()
        if self._in_folder:
            self._note.unlink(missing_ok=True)
            self._stacks.unlink(missing_ok=True)


def pop_reason(folder: Path) -> str | None:
    """Read and remove the reason that a watchdog left in this folder; None if none has ended its process.

    A process that died of something else under a watchdog leaves a note, but no stacks: that does not count.
    The file with the stacks stays, to be read.
    """
    found = (_popped(note) for note in sorted(folder.glob(f"{NOTE.stem}*{NOTE.suffix}")))
    return next((reason for reason in found if reason is not None), None)


def _popped(note: Path) -> str | None:
    try:
        if not note.with_suffix(TRACE.suffix).stat().st_size:
            return None
        reason = str(json.loads(read_regular(note, LARGEST_NOTE))["reason"])
    except (OSError, ValueError, KeyError):
        return None
    note.unlink(missing_ok=True)
    return reason


def _opened(file: Path) -> TextIO:
    """Open a file of a trial's folder, emptied. Raises NotRegular for a link."""
    return os.fdopen(open_to_write(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w", encoding="utf-8")


def _files(folder: Path, rank: int) -> tuple[Path, Path]:
    """Return the files for the note and the stacks of a rank."""
    note, trace = (
        folder / (name.stem + (f"-{rank}" if rank else "") + name.suffix) for name in (NOTE, TRACE)
    )
    return note, trace
