"""Keeps the cache of decoded images within a part of its disk: sets that were used least recently are
removed, and none that a process uses."""

from __future__ import annotations

import fcntl
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from trainable.bench import Say
from trainable.files.alone import alone
from trainable.files.cache import free_bytes

SHARE = 2  # the cache may take one part in so many of what it has and what is free on its disk


class NoRoom(Exception):
    """The disk cannot hold the images."""


def limit_of(root: Path) -> int:
    """Return how many bytes the decoded images below `root` may take on its disk."""
    return (sum(map(taken, sets_of(root))) + free_bytes(root)) // SHARE


def sets_of(root: Path) -> list[Path]:
    """Return the folders of the decoded sets below `root`, those used least recently first."""
    found = {file.parent for file in root.glob("*/*.pixels") if (file.parent / ".lock").is_file()}
    return sorted(found, key=lambda folder: (folder / ".lock").stat().st_mtime_ns)


def taken(folder: Path) -> int:
    """Return how many bytes of the disk a set takes; what is not yet written takes none."""
    return sum(file.stat().st_blocks * 512 for file in folder.iterdir())


def keep_within(limit: int, folder: Path, needed: int, say: Say) -> None:
    """Remove other sets beside `folder` until it may take `needed` more bytes, and say which.

    Raises NoRoom, and removes nothing, if the limit is too low even without all sets that no process uses.
    """
    with alone(folder.parent), ExitStack() as held:
        sets = sets_of(folder.parent)
        excess, chosen = sum(map(taken, sets)) + needed - limit, list[Path]()
        for each in sets:
            if excess > 0 and each != folder and _is_free(each, held):
                chosen.append(each)
                excess -= taken(each)
        if excess > 0:
            raise NoRoom(
                f"decoded images need {needed:,} bytes in {folder}, {excess:,} more than remain of the "
                f"{limit:,} that all of them may take: one part in {SHARE} of what they take and what is free"
            )
        for each in chosen:
            say(f"removing {taken(each):,} bytes of decoded images, not used for the longest time: {each}")
            _remove(each)


def _is_free(folder: Path, held: ExitStack) -> bool:
    """Return whether no process fills or reads a set, and keep others from it while `held` is open."""
    files = (folder / ".lock", *_pixels(folder))
    return all(_locked(held.enter_context(file.open("r+b"))) for file in files)  # NFS locks only such files


def _locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _remove(folder: Path) -> None:
    """Remove the marks first, without which nothing is taken for whole, and leave the lock: others may be
    waiting for it."""
    others = (file for ending in ("marks", "checked", "sums") for file in folder.glob(f"*.{ending}"))
    for file in (*others, *_pixels(folder)):
        file.unlink()


def _pixels(folder: Path) -> list[Path]:
    return list(folder.glob("*.pixels"))
