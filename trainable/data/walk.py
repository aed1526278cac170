"""Walks through folders of images, through links too, and never twice through the same folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from trainable.errors import DataError

Identity = tuple[int, int]
"""This is (device, inode): a file or folder has it under whatever name it is reached."""


def identity_of(path: str | Path) -> Identity:
    """Return what tells a file or folder from all others, through links. Raises OSError."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or leads to one; a link that leads to itself does not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


class Walk:
    """Walks through the folders below one root, which gives their images labels or a fingerprint.

    A link to the root or to a folder above is an error, since it makes endless copies of the images. For a
    folder that is reached a second time, `again` gets its two paths, and the walk does not enter it.
    """

    def __init__(
        self, root: Path, is_hidden: Callable[[str], bool], again: Callable[[str, str], None]
    ) -> None:
        self._is_hidden, self._again = is_hidden, again
        self._above = {identity_of(each): str(each) for each in (root.resolve(), *root.resolve().parents)}
        self._seen: dict[Identity, str] = {}

    def enter(self, folder: str | Path) -> bool:
        """Return whether a folder is new. Raises DataError for one that holds the root, or is the root."""
        key = identity_of(folder)
        if key in self._above:
            raise DataError(
                f"{folder} is a link to {self._above[key]}, which holds it: images would be found again and "
                "again; remove the link"
            )
        if (first := self._seen.setdefault(key, str(folder))) != str(folder):
            self._again(first, str(folder))
            return False
        return True

    def files(self, folder: str | Path) -> Iterator[os.DirEntry[str]]:
        """Yield whatever is below a folder that is no folder itself and not hidden. Raises OSError."""
        waiting = [os.fspath(folder)]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if self._is_hidden(entry.name):
                        continue
                    if not is_folder(entry):
                        yield entry
                    elif self.enter(entry.path):
                        waiting.append(entry.path)
