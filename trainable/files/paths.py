"""Paths that a person writes, checked before anything is looked for there; and the folders of what lasts
between commands, among the person's own (XDG Base Directory Specification)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

LONGEST_PATH = 4095
LONGEST_NAME = 255  # Linux allows so many bytes in a path, and in each name in it


def usable_path(text: str) -> str:
    """Return the path or URI unchanged. Raises ValueError for what no file of this system can be called."""
    if "\0" in text:
        raise ValueError("a path must not hold the character NUL")
    try:
        length = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("a path must be text in UTF-8; rename the file or folder, or link to it") from None
    if length > LONGEST_PATH or any(len(name.encode()) > LONGEST_NAME for name in text.split("/")):
        raise ValueError(
            f"a path has at most {LONGEST_PATH:,} bytes, and each name in it {LONGEST_NAME}; "
            f"got {length:,} bytes"
        )
    return text


def text_of(path: str | os.PathLike[str]) -> str:
    """Return a path as text that can be stored and shown; bytes that are not UTF-8 become `\\xff`."""
    return os.fsencode(path).decode(errors="backslashreplace")


def without_tilde(text: str) -> Path:
    """Return the path with a home folder for its first `~` or `~user`; an unknown user stays as written."""
    return Path(os.path.expanduser(text))


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
