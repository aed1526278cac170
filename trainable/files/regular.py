"""Opens regular files alone: a named pipe would block for ever, and a device may have no end.

A folder may be somebody else's: what is written there is not written through a link, which may lead anywhere.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from trainable.errors import UserError

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


class NotRegular(OSError):
    """What a path is instead of a regular file; the message does not repeat the path."""


def check_regular(path: str | os.PathLike[str]) -> os.stat_result:
    """Return what is known of a regular file. Raises NotRegular for anything else, and OSError."""
    return _checked(os.stat(path), path)


def open_to_write(path: str | os.PathLike[str], flags: int, mode: int = 0o644) -> int:
    """Open a regular file, which `flags` may create, and return its descriptor.

    Raises NotRegular for anything else, also for a link, and OSError.
    """
    try:
        # a named pipe would not be opened before somebody reads it
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, mode)
    except OSError as error:
        check_no_link(path)
        raise error
    try:
        _checked(os.fstat(handle), path)
    except OSError:
        os.close(handle)
        raise
    return handle


def check_no_link(path: str | os.PathLike[str]) -> None:
    """Raise NotRegular for what is there and is neither a regular file nor a folder."""
    with suppress(FileNotFoundError):
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode):
            _checked(found, path)


def refuse_links(folder: Path) -> None:
    """Raise UserError for a folder with a link in it, at whatever depth; the folder may be one itself."""
    for above, folders, files in os.walk(folder):
        for name in (*folders, *files):
            if (path := Path(above, name)).is_symlink():
                raise UserError(
                    f"{path}: is a link, and in a search's folder nothing is written through one; remove it, "
                    "or put what it leads to in its place"
                )


def _checked(found: os.stat_result, path: str | os.PathLike[str]) -> os.stat_result:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(found.st_mode):
        raise NotRegular(f"is {_KINDS.get(stat.S_IFMT(found.st_mode), 'special')}; expected a regular file")
    return found


def read_regular(path: Path, most: int) -> bytes:
    """Return a regular file's content. Raises OSError, NotRegular among them, also for more bytes than
    `most`."""
    check_regular(path)
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(f"it has more than {most:,} bytes")
    return content


def why(error: Exception) -> str:
    """Return why a file cannot be read, without its path and number."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def sync_folder(folder: Path) -> None:
    """Make sure that the names of new files in a folder survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
