"""Pauses Python's garbage collector, above all while a process imports much."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from trainable.stages import stage


@contextmanager
def paused() -> Iterator[None]:
    """Switch the collector off for a block.

    Importing torch and Ray makes half a million objects that stay. Without the pause the collector looks
    through them several times, which takes a third of the import's time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def loading_torch() -> Iterator[None]:
    """Import torch, then what the block imports of what needs it: one stage, as it takes seconds."""
    with stage("loading torch"), paused():
        import torch  # noqa: F401 - first, as it is what a person is told to install

        yield


def load_torch() -> None:
    """Import torch, which takes seconds, and is shown as a stage."""
    with loading_torch():
        pass
