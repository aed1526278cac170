"""What work is done that may take seconds, and how far it is, for a person who waits.

Such work names itself, `with stage("timing steps"): ...`, and does not know who looks on. What it counts it
says as well: `with stage("decoding the images"), counting("image", 900) as images: images.done += 1`.
Commands show their stages (`trainable.terminal.StageLines`); called from Python, nothing is shown. Each is
logged when it ends, with its seconds; a search has these lines in its log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

logger = logging.getLogger(__name__)
Item = TypeVar("Item")


@dataclass(eq=False)
class Stage:
    """Work that has a name, or work within it that counts what is done."""

    what: str  # "decoding the images"; empty where it only counts
    unit: str = ""  # what is counted, in the singular: "image"
    total: int = 0
    done: int = 0  # so many of the total; the work sets it as it goes on

    @property
    def progress(self) -> str:
        """How far it is, such as `3 of 20 epochs`; empty where nothing is counted."""
        if not self.total:
            return ""
        return f"{self.done:,} of {self.total:,} {self.unit}{'s' if self.total > 1 else ''}"


class Count(NamedTuple):
    """How far something is, as a process tells another."""

    unit: str
    total: int
    done: int


class Onlooker(Protocol):
    """Who shows stages. One may begin within another, and ends before it."""

    def began(self, stage: Stage) -> None: ...

    def ended(self, stage: Stage) -> None: ...


class Counts:
    """An onlooker that shows nothing, and knows what is counted now: for a process whose parent shows it."""

    def __init__(self) -> None:
        self._counted: list[Stage] = []

    def began(self, stage: Stage) -> None:
        if stage.total:
            self._counted = [*self._counted, stage]  # another thread may be reading the old list

    def ended(self, stage: Stage) -> None:
        self._counted = [each for each in self._counted if each is not stage]

    @property
    def outermost(self) -> Count | None:
        """What is counted now; the epochs where an epoch counts its steps as well."""
        return next((Count(each.unit, each.total, each.done) for each in self._counted), None)


_onlooker: ContextVar[Onlooker | None] = ContextVar("onlooker", default=None)
_waits_since: ContextVar[float | None] = ContextVar("waits_since", default=None)


@contextmanager
def waited_for() -> Iterator[None]:
    """Count for how long a person waits in this thread: from the beginning of the outermost such block."""
    since = _waits_since.get()
    before = _waits_since.set(time.monotonic() if since is None else since)
    try:
        yield
    finally:
        _waits_since.reset(before)


def waited_seconds() -> float:
    """Return for how long a person has waited; 0 where nothing counts it."""
    since = _waits_since.get()
    return 0.0 if since is None else time.monotonic() - since


@contextmanager
def shown_by(onlooker: Onlooker) -> Iterator[None]:
    """Show the stages of the block, those of this thread, to an onlooker."""
    before = _onlooker.set(onlooker)
    try:
        yield
    finally:
        _onlooker.reset(before)


@contextmanager
def stage(what: str) -> Iterator[None]:
    """Name what the block does, as in "reading images". One that fails has ended, too."""
    began = time.monotonic()
    try:
        with _shown(Stage(what)):
            yield
    finally:
        logger.info("%s: %.2f s", what, time.monotonic() - began)


@contextmanager
def counting(unit: str, total: int) -> Iterator[Stage]:
    """Let the block say how far the work around it is: it sets `done`, of so many units."""
    with _shown(Stage("", unit, total)) as counted:
        yield counted


def track(items: Iterable[Item], unit: str, total: int, *, done: int = 0) -> Iterator[Item]:
    """Yield the items, and count each as done when the next one is asked for."""
    with counting(unit, total) as count:
        count.done = done
        for item in items:
            yield item
            count.done += 1


@contextmanager
def _shown(work: Stage) -> Iterator[Stage]:
    onlooker = _onlooker.get()
    if onlooker is not None:
        onlooker.began(work)
    try:
        yield work
    finally:
        if onlooker is not None:
            onlooker.ended(work)
