"""Waits for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 600.0  # no busy machine takes so long


def wait_until(
    holds: Callable[[], bool], *, every: float = 0.25, fault: Callable[[], str] = lambda: "waited in vain"
) -> None:
    """Ask `every` so many seconds; fails with `fault` where that takes too long.

    To read a journal or to list processes more often takes the processor from what is waited for.
    """
    until = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < until, fault()
        time.sleep(every)
