"""What work is done that may take seconds, for a person who waits.

Such work names itself, `with stage("timing steps"): ...`, and does not know who looks on. Commands show their
stages (`trainable.terminal.StageLines`); called from Python, nothing is shown. Each is logged when it ends,
with its seconds; a search has these lines in its log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

logger = logging.getLogger(__name__)


class Onlooker(Protocol):
    """Who shows stages. One may begin within another, and ends before it."""

    def began(self, what: str) -> None: ...

    def ended(self, what: str) -> None: ...


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
    onlooker, began = _onlooker.get(), time.monotonic()
    if onlooker is not None:
        onlooker.began(what)
    try:
        yield
    finally:
        if onlooker is not None:
            onlooker.ended(what)
        logger.info("%s: %.2f s", what, time.monotonic() - began)
