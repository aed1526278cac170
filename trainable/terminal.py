"""Prints for people. Names of classes and files, and errors, are somebody's text: a terminal may obey it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self, TextIO

from trainable.errors import visible
from trainable.stages import Stage

if TYPE_CHECKING:  # only a terminal needs it
    from rich.progress import Progress

GIB = 2**30  # bytes
CLONE = Path(__file__).resolve().parents[1]  # where this package is no clone, site-packages
TOLD_AFTER = 2.0  # seconds of work without a line until one tells of it
FIRST_AGAIN, AGAIN = 15.0, 60.0  # quiet seconds until a line says how far it is, and until each further one
LOOKS = 0.5  # seconds between two looks at the work
PASSED_ON = "rich_proxied_file"  # what a stream has that rich passes on to a live table


def tell(text: str, to: TextIO | None = None) -> None:
    """Print lines to standard output, or `to` another stream, with escapes for what a terminal would obey."""
    stream = sys.stdout if to is None else to
    line_comes()
    print(encodable(visible_lines(text), stream), file=stream, flush=True)


def tell_json(text: str) -> None:
    """Print a JSON text, in ASCII: so it stays JSON in every encoding."""
    line_comes()
    print(re.sub(r"[^\n -~]", _as_json, text), flush=True)


def visible_lines(text: str) -> str:
    """Return a text in which all but line ends and tabs is escaped that a terminal would obey."""
    return re.sub(r"[^\n\t]+", lambda found: visible(found[0]), text)


def encodable(text: str, stream: IO[str]) -> str:
    """Replace each character that a stream's encoding has not by its escape."""
    encoding = getattr(stream, "encoding", None) or "utf-8"  # a StringIO has none
    return text.encode(encoding, "backslashreplace").decode(encoding)


def program_name() -> str:
    """Return how this program was called, so that the commands it prints can be typed as they are."""
    called = sys.argv[0]
    return called if Path(called).name == "tunebook" and shutil.which("tunebook") is None else "tunebook"


def document(name: str) -> str:
    """Return where a page of docs/ is: its path in a clone of the repository; a wheel has no pages."""
    if not (CLONE / name.partition("#")[0]).is_file():
        return f"{name} (in tunebook's repository)"
    with suppress(ValueError, OSError):  # the working folder is elsewhere, or gone
        return str((CLONE / name).relative_to(Path.cwd()))
    return str(CLONE / name)


def show_what_can_be_shown() -> None:
    """Have standard output and errors show an escape for each character that their encoding has not."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _as_json(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"


class StageLines:
    """What standard error shows of work that a person waits for (`trainable.stages`).

    A terminal has a bar below all that is printed. Elsewhere there is a line once work has gone on for
    TOLD_AFTER without one, later lines that say how far it is, and one with its seconds when it ends. Short
    pieces of work, one after the other, are told of as well.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._work: list[_Begun] = []
        self._untold = 0.0  # seconds of work, in stages that have ended, since the last line
        self._line_at = 0.0  # when the last line was printed, whoever printed it
        self._told_last: _Begun | None = None  # of which work the last line is, if it is of any
        self._bar: Progress | None = None
        self._lock = threading.RLock()  # of all these
        self._ends = threading.Event()
        self._looks = threading.Thread(target=self._look_on, name="stages", daemon=True)

    def __enter__(self) -> Self:
        global _shown
        _shown = self
        self._looks.start()
        return self

    def __exit__(self, *error: object) -> None:
        global _shown
        _shown = None
        self._ends.set()
        self._looks.join()
        self._hide_bar()

    def began(self, stage: Stage) -> None:
        """Note work that begins, within what has begun and not ended."""
        with self._lock:
            self._work.append(_Begun(stage, self._clock()))

    def ended(self, stage: Stage) -> None:
        """Note that work has ended, and tell how long it took, if it was told of."""
        with self._lock:
            quiet = self._quiet_seconds()
            work = next(each for each in self._work if each.stage is stage)
            self._work.remove(work)
            if stage.what:
                self._hide_bar()
            if work is self._told_last:  # else what was printed since shows that it goes on
                self._tell(work, f"{stage.what}: {self._clock() - work.began:.0f} s")
            elif not self._work:
                self._untold = quiet

    def line_comes(self) -> None:
        """Make room for a line that is printed now."""
        with self._lock:
            self._hide_bar()
            self._untold, self._line_at, self._told_last = 0.0, self._clock(), None

    def look(self) -> None:
        """Show what goes on now, as far as it is due."""
        with self._lock:
            named = [at for at, each in enumerate(self._work) if each.stage.what]
            if not named:
                return
            work, quiet = self._work[named[-1]], self._quiet_seconds()
            counts = [each.stage for each in self._work[named[-1] + 1 :] if each.stage.progress]
            if _has_room_for_bar():
                if quiet >= LOOKS:
                    self._draw(work, counts)
            elif quiet >= (TOLD_AFTER, FIRST_AGAIN, AGAIN)[min(work.lines, 2)]:
                seconds = [f"{self._clock() - work.began:.0f} s"] if work.lines else []
                far = ", ".join((*seconds, *(each.progress for each in counts)))
                work.lines += 1
                self._tell(work, f"{work.stage.what} ... {far}".rstrip())

    def _look_on(self) -> None:
        while not self._ends.wait(min(LOOKS, TOLD_AFTER / 4.0)):
            self.look()

    def _quiet_seconds(self) -> float:
        """Return for how long work has gone on since the last line."""
        if not self._work:
            return self._untold
        return self._untold + self._clock() - max(self._work[0].began, self._line_at)

    def _tell(self, work: _Begun, line: str) -> None:
        self.line_comes()
        tell(line, sys.stderr)
        self._told_last = work

    def _draw(self, work: _Begun, counts: Sequence[Stage]) -> None:
        if self._bar is None:
            self._bar = _new_bar()
            self._bar.start()
            self._bar.add_task("", far="")
        far = ", ".join((*(each.progress for each in counts), f"{self._clock() - work.began:.0f} s"))
        share = 0.0
        for each in reversed(counts):
            share = min(1.0, (each.done + share) / each.total)
        what, total = visible(work.stage.what), 1.0 if counts else None
        (task,) = self._bar.task_ids
        self._bar.update(task, description=what, completed=share, total=total, far=far, refresh=True)

    def _hide_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


@dataclass(eq=False)
class _Begun:
    """Work that goes on, and how many lines have told of it."""

    stage: Stage
    began: float
    lines: int = 0


_shown: StageLines | None = None  # what shows the stages of this process


def line_comes() -> None:
    """Make room for a line that is printed in another way than by `tell`: a bar may stand where it goes."""
    if _shown is not None:
        _shown.line_comes()


def _has_room_for_bar() -> bool:
    """Return whether standard error is a terminal that redraws lines, and no live table stands in it."""
    is_table = hasattr(sys.stderr, PASSED_ON)
    return sys.stderr.isatty() and not is_table and os.environ.get("TERM", "dumb") != "dumb"


def _new_bar() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[far]}", markup=False),
        console=Console(stderr=True),
        transient=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
