"""Reads in /proc which of Ray's actors other processes are, and who started them."""

from __future__ import annotations

import os
from pathlib import Path


def everyone() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def is_trial(pid: int) -> bool:
    """Ray names an actor's process by its class, of which it makes another one for a trial's resources."""
    title = _read(pid, "cmdline")
    return title.startswith("ray::") and "Trainable" in title


def is_rank(pid: int) -> bool:
    return _read(pid, "cmdline").startswith("ray::Rank")


def is_below(pid: int, ancestor: int) -> bool:
    """Says whether a process was started by another one, or by what that one started."""
    while pid > 1 and pid != ancestor:
        pid = int(_read(pid, "status").partition("PPid:")[2].split("\n")[0] or 0)
    return pid == ancestor


def _read(pid: int, name: str) -> str:
    """Returns nothing where the process is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
