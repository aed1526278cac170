"""Finds the folders of what lasts between commands, among the person's own (XDG Base Directory
Specification)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# So much of a disk stays free beside what is cached there, for checkpoints and the search's own files
SPARE_BYTES = 2**30


def free_bytes(folder: Path) -> int:
    """Return how much is free on the disk of a folder, which need not exist yet."""
    return shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.exists())).free


def cache_root() -> Path:
    """Return $XDG_CACHE_HOME/tunebook, or ~/.cache/tunebook: all of it may be deleted at any time."""
    return _below("XDG_CACHE_HOME", ".cache")


def state_root() -> Path:
    """Return $XDG_STATE_HOME/tunebook, or ~/.local/state/tunebook,
    for what must last although nobody named a folder."""
    return _below("XDG_STATE_HOME", ".local/state")


def _below(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    root = Path(value) if os.path.isabs(value) else Path.home() / default
    return root / "tunebook"
