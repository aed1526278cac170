"""Reads regular files alone: a named pipe would block for ever, and a device may have no end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegular(OSError):
    """Says what a path is instead of a regular file; the message does not repeat the path."""


def check_regular(path: str | os.PathLike[str]) -> os.stat_result:
    """Returns what is known of a regular file. Raises NotRegular for anything else, and OSError."""
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(f"is {_KINDS.get(stat.S_IFMT(found.st_mode), 'special')}; expected a regular file")
    return found


def read_regular(path: Path, most: int) -> bytes:
    """Returns a regular file's content. Raises OSError, NotRegular among them, also for more bytes than
    `most`."""
    check_regular(path)
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(f"it has more than {most:,} bytes")
    return content


def why(error: Exception) -> str:
    """Returns why a file cannot be read, without its path and number."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
