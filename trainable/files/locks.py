"""Lets one process at a time work in a folder: of the cache, or of a trial where an orphan still writes."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainable.files.regular import open_to_write

LOCK_FILE = ".lock"
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.1


class FolderInUse(RuntimeError):
    """Another process is at work in the folder and did not end in time."""


class FolderLock:
    """This process's sole right to a folder, from its making until `release` or the process's end.

    It waits up to `patience_seconds` for another process to release the folder, then raises FolderInUse.
    Within one process locks do not exclude each other: make only one for a folder.
    """

    def __init__(self, folder: Path, patience_seconds: float = PATIENCE_SECONDS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._handle = open_to_write(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT)
        try:
            _wait(self._handle, folder, patience_seconds)
        except BaseException:
            os.close(self._handle)
            raise
        os.ftruncate(self._handle, 0)
        os.pwrite(self._handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._handle)


def _wait(handle: int, folder: Path, patience_seconds: float) -> None:
    """Lock the file, but not with flock:
    loader processes would inherit that, and one that hangs would not release it."""
    until = time.monotonic() + patience_seconds
    while True:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # what a lock held elsewhere raises differs by system
            if time.monotonic() >= until:
                break
            time.sleep(PAUSE_SECONDS)
        else:
            return
    holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process"
    raise FolderInUse(f"{folder}: {holder} still used this folder after {patience_seconds:g} s")


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
