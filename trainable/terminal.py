"""Prints for people. Names of classes and files, and errors, are somebody's text: a terminal may obey it."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
import time
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Self, TextIO

from trainable.errors import visible

GIB = 2**30  # bytes
TOLD_AFTER, FIRST_AGAIN = 2.0, 15.0  # seconds of work until a line tells of it, and until the next one


def tell(text: str, to: TextIO | None = None) -> None:
    """Print lines to standard output, or `to` another stream, with escapes for what a terminal would obey."""
    stream = sys.stdout if to is None else to
    print(encodable(visible_lines(text), stream), file=stream, flush=True)


def tell_json(text: str) -> None:
    """Print a JSON text, in ASCII: so it stays JSON in every encoding."""
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


def show_what_can_be_shown() -> None:
    """Have standard output and errors show an escape for each character that their encoding has not."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _as_json(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"


class StageLines:
    """The lines on standard error about work that a person waits for (`trainable.stages`): one once work has
    gone on for TOLD_AFTER without one, more where it takes long, and one with its seconds when it ends. Short
    pieces of work, one after the other, are told of as well."""

    def __init__(self) -> None:
        self._stages: list[_Stage] = []
        self._untold = 0.0  # seconds of work, in stages that have ended, since the last line
        self._told_at = 0.0  # when the last line was told
        self._lock = threading.Lock()  # of all these
        self._ends = threading.Event()
        self._looks = threading.Thread(target=self._look, name="stages", daemon=True)

    def __enter__(self) -> Self:
        self._looks.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._looks.join()

    def began(self, what: str) -> None:
        """Note work that begins, within what has begun and not ended."""
        with self._lock:
            self._stages.append(_Stage(what))

    def ended(self, what: str) -> None:
        """Note that work has ended, and tell how long it took, if it was told of."""
        with self._lock:
            quiet = self._quiet_seconds()
            at = max(at for at, each in enumerate(self._stages) if each.what == what)
            stage = self._stages.pop(at)
            if stage.is_told:
                self._tell(f"{stage.what}: {stage.seconds():.0f} s")
            elif not self._stages:
                self._untold = quiet

    def _look(self) -> None:
        while not self._ends.wait(TOLD_AFTER / 4.0):
            with self._lock:
                if self._stages and (line := self._stages[-1].line(self._quiet_seconds())):
                    self._tell(line)

    def _quiet_seconds(self) -> float:
        """Return for how long work has gone on since the last line."""
        return self._untold + min(self._stages[0].seconds(), time.monotonic() - self._told_at)

    def _tell(self, line: str) -> None:
        tell(line, sys.stderr)
        self._untold, self._told_at = 0.0, time.monotonic()


@dataclass
class _Stage:
    what: str
    began: float = field(default_factory=time.monotonic)
    is_told: bool = False
    again_at: float = field(default_factory=lambda: FIRST_AGAIN)  # seconds after it began

    def seconds(self) -> float:
        return time.monotonic() - self.began

    def line(self, quiet: float) -> str:
        """Return the line that is due after so many quiet seconds, and after ever longer times where one was
        told; nothing where none is."""
        if not self.is_told:
            self.is_told = quiet >= TOLD_AFTER
            return f"{self.what} ..." if self.is_told else ""
        if (seconds := self.seconds()) < self.again_at:
            return ""
        while self.again_at <= seconds:
            self.again_at *= 2.0
        return f"{self.what} ... {seconds:.0f} s"
