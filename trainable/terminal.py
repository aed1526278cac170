"""Prints for people. Names of classes and files, and errors, are somebody's text: a terminal may obey it."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from dataclasses import dataclass, field
from io import TextIOWrapper
from typing import IO, Self, TextIO

from trainable.errors import visible

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


def show_what_can_be_shown() -> None:
    """Have standard output and errors show an escape for each character that their encoding has not."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _as_json(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"


class StageLines:
    """Tells on standard errors what work is done that a person waits for (`trainable.stages`): a line once it
    has taken TOLD_AFTER, more lines where it goes on for long, and one with its seconds when it ends."""

    def __init__(self) -> None:
        self._stages: list[_Stage] = []
        self._lock = threading.Lock()  # of the stages
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
            at = max(at for at, each in enumerate(self._stages) if each.what == what)
            stage = self._stages.pop(at)
            if stage.tell_at > TOLD_AFTER:
                tell(f"{stage.what}: {stage.seconds():.0f} s", sys.stderr)

    def _look(self) -> None:
        while not self._ends.wait(TOLD_AFTER / 4.0):
            with self._lock:
                if self._stages:
                    self._stages[-1].tell()


@dataclass
class _Stage:
    what: str
    tell_at: float = field(default_factory=lambda: TOLD_AFTER)  # seconds after it began
    began: float = field(default_factory=time.monotonic)

    def seconds(self) -> float:
        return time.monotonic() - self.began

    def tell(self) -> None:
        """Tell of it, at first after TOLD_AFTER, then after times of its that are ever longer."""
        if (seconds := self.seconds()) < self.tell_at:
            return
        tell(f"{self.what} ..." + (f" {seconds:.0f} s" if self.tell_at > TOLD_AFTER else ""), sys.stderr)
        while self.tell_at <= seconds:
            self.tell_at = max(FIRST_AGAIN, 2.0 * self.tell_at)
