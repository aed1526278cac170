"""Lets one process at a time work in a folder,
and waits while an orphan of a killed search still writes there."""

from __future__ import annotations

import fcntl
import os
import socket
import time
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
