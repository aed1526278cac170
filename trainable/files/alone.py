"""Lets one process of a machine at a time work in a folder of the cache, while the others wait."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainable.files.regular import open_to_write


@contextmanager
def alone(folder: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Let only this process work in the folder inside the block; call `on_wait` before it waits for others.

    The kernel releases the lock of a process that is killed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with os.fdopen(open_to_write(folder / ".lock", os.O_WRONLY | os.O_CREAT), "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
