"""Measures how much memory this process may still take on the machine that it runs on."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
MEMORY_SHARE = 4  # what is remembered takes at most one part in so many of the free memory

logger = logging.getLogger(__name__)


def available_bytes(root: Path = ROOT) -> int:
    """Return what the machine has free, or what the process's control groups allow if that is less.

    Linux says both; elsewhere it is the machine's whole memory. /proc and /sys are below `root`.
    """
    return min([_machine_bytes(root), *_group_bytes(root)])


def fits_on_host(what: str, needed: int) -> bool:
    """Return whether so many bytes may be remembered; where not, the log says so, and of `what`."""
    free = available_bytes()
    if fits := needed * MEMORY_SHARE <= free:
        return fits
    logger.warning(
        "%s are not remembered: they need %s bytes, more than one part in %s of the %s that are free",
        *(what, f"{needed:,}", MEMORY_SHARE, f"{free:,}"),
    )
    return False


def _machine_bytes(root: Path) -> int:
    """Return MemAvailable, which counts what caches would give back (proc(5)), or else the whole memory."""
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group_bytes(root: Path) -> Iterator[int]:
    """Yield what every group of the process, and each above it, has left: version 2, then version 1."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, limit, used = root / "sys/fs/cgroup", "memory.max", "memory.current"
        elif controllers == "memory":
            top = root / "sys/fs/cgroup/memory"
            limit, used = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        folder = top / path.strip().lstrip("/")
        for each in (folder, *folder.parents):
            if each.is_relative_to(top) and (most := _number(each / limit)) is not None:
                yield max(0, most - (_number(each / used) or 0) + _cached(each / "memory.stat"))


def _cached(statistics: Path) -> int:
    """Return the file pages that the kernel would free first; they count as used."""
    for line in _lines(statistics):
        name, value = line.split()
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0


def _number(path: Path) -> int | None:
    """Return the file's number, or None if it is missing or say `max`."""
    text = next(iter(_lines(path)), "")
    return int(text) if text.strip().isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
