"""What work is done that may take seconds, for a person who waits.

Such work names itself, `with stage("timing steps"): ...`, and does not know who looks on. Commands show their
stages (`trainable.terminal.StageLines`); called from Python, nothing is shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Onlooker(Protocol):
    """Who shows stages. One may begin within another, and ends before it."""

    def began(self, what: str) -> None: ...

    def ended(self, what: str) -> None: ...


_onlooker: ContextVar[Onlooker | None] = ContextVar("onlooker", default=None)


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
    if (onlooker := _onlooker.get()) is None:
        yield
        return
    onlooker.began(what)
    try:
        yield
    finally:
        onlooker.ended(what)
