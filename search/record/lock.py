"""Locks a search's folder: one driver at a time. The kernel drops the lock with its process."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from search.record.home import LOCK_FILE
from search.study import STUDY_FILE
from trainable.errors import UserError
from trainable.files.regular import NotRegular, open_to_write, read_regular, refuse_links, why

ATTEMPTS = 50
# `is_locked` and readers of a store hold the lock for an instant; a driver that starts then tries again
PAUSE_SECONDS = 0.02


class LockedError(UserError):
    """Another process drives the search."""

    section = "a-search-that-is-running"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let this process alone write to a search's folder for the block, and make the folder if needed.

    A folder that is no search at the end of the block is left as it was found. Raises LockedError while
    another process has the lock, and UserError where the folder cannot be written to.
    """
    made: list[Path] = []
    try:
        lock = _wait(folder, made)
    except OSError as error:
        if folder in made:
            (folder / LOCK_FILE).unlink(missing_ok=True)
        _remove(made)
        where = folder / LOCK_FILE if isinstance(error, NotRegular) else folder
        raise UserError(f"{where}: cannot be written to: {why(error)}") from None
    try:
        refuse_links(folder)
        yield
    finally:
        gone = None if (folder / STUDY_FILE).exists() else _set_aside(folder, made)
        os.close(lock)
        if gone is not None:  # closed first: NFS keeps a file that is open, and its folder
            shutil.rmtree(gone, ignore_errors=True)
            _remove(made)


def is_locked(folder: str | Path) -> bool:
    """Say whether a driver is alive. Raises UserError where the lock's file cannot be read."""
    file = Path(folder) / LOCK_FILE
    try:
        lock = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # a named pipe in its place is not waited for
    except FileNotFoundError:
        return False
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def empty(folder: Path) -> None:
    """Delete everything in a folder but its lock."""
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        elif each.name != LOCK_FILE:
            each.unlink()


def _wait(folder: Path, made: list[Path]) -> int:
    """Return the file descriptor that holds the lock; `made` gets the folders that had to be made for it."""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE_SECONDS)
        with suppress(FileNotFoundError):  # another process has just removed what it had made
            made += _make_folders(folder)
            if (lock := _try_lock(folder)) is not None:
                return lock
    holder = _holder(folder)
    raise LockedError(
        f"{folder}: this search is running already, in {holder}; stop that first, or wait for its end"
    )


def _make_folders(folder: Path) -> list[Path]:
    """Make a folder, and those above it, where there is none; return the ones that were made, from below."""
    above = [path for path in folder.parents if not path.exists()]
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return []
    return [folder, *above]


def _try_lock(folder: Path) -> int | None:
    """Return the descriptor of the lock, with this process's name in the file; None while another has it."""
    file = folder / LOCK_FILE
    lock = open_to_write(file, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(lock), file.stat()):
            raise FileNotFoundError("the lock was removed by the process that had it")
        _check_writable(folder)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError:
        os.close(lock)
        raise
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return lock


def _check_writable(folder: Path) -> None:
    """Raise OSError where no file can be made, although the lock of an earlier driver is there."""
    probe = folder / f"{LOCK_FILE}-{os.getpid()}"
    os.close(open_to_write(probe, os.O_WRONLY | os.O_CREAT))
    probe.unlink()


def _holder(folder: Path) -> str:
    try:
        said = read_regular(folder / LOCK_FILE, most=200).decode(errors="replace").strip()
        return said or "another process"
    except OSError:
        return "another process"


def _set_aside(folder: Path, made: list[Path]) -> Path | None:
    """Remove the lock from a folder; rename one that this process made, since others may be waiting for its
    lock, and return its new name."""
    with suppress(OSError):
        if folder in made:
            return folder.rename(folder.with_name(f".{folder.name}-{secrets.token_hex(4)}"))
        (folder / LOCK_FILE).unlink()
    return None


def _remove(made: list[Path]) -> None:
    for path in made:
        with suppress(OSError):
            path.rmdir()
