"""Keeps Python's garbage collector away from what a process imports."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Switches the collector off for a block that imports much.

    Importing torch makes 300,000 objects, which stay; the collector would look through all of them several
    times meanwhile, for a third of the time that the import takes.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
