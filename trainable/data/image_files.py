"""The image files in folders and below them, through links too, and a cheap fingerprint of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from trainable.data.source import changed_ns
from trainable.errors import DataError
from trainable.files.regular import NotRegular, check_regular, why

# Files with these endings are read as images; others (README, labels.csv) are ignored
ENDINGS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".jp2", ".avif"),
)

JUNK = frozenset({"__MACOSX"})


def subfolders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not is_hidden(entry.name))


def is_hidden(name: str) -> bool:
    return name.startswith(".") or name in JUNK


def is_image(name: str) -> bool:
    return not is_hidden(name) and os.path.splitext(name)[1].lower() in ENDINGS


def walk_into(folder: Path, children: Sequence[Path]) -> Walk:
    """Return a walk through some subfolders of a folder.
    The walk begins in none before it knows that all are different."""
    walk = Walk(folder, is_hidden, _refuse_again)
    for child in children:
        walk.enter(child)
    return walk


def _refuse_again(first: str, second: str) -> None:
    raise DataError(f"{second} is the same folder as {first}, by a link: its images would count twice")


def images_below(walk: Walk, folder: Path) -> Iterator[Path]:
    """Yield every image in the folder and below it;
    links are followed, as image sets are often made of them."""
    for entry in walk.files(folder):
        if is_image(entry.name):
            if entry.is_symlink() or not entry.is_file():
                _check_file(entry.path)
            yield Path(entry.path)


def _check_file(path: str) -> None:
    try:
        check_regular(path)
    except NotRegular as error:
        raise DataError(f"{path}: {why(error)}; remove it") from None
    except OSError as error:
        raise DataError(f"{path}: is a link that leads to no file: {why(error)}; remove it") from None


Identity = tuple[int, int]  # (device, inode): a file or folder has it under whatever name it is reached


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
    """A walk through the folders below one root, which gives their images labels or a fingerprint.

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


def fingerprint(path: Path) -> str:
    """Return sixteen hexadecimal digits over the name, size and time of change of every file of a data set.

    A folder means all files below it, through links, as images are looked for. A file means itself and those
    beside it, since IDX files come in fours. Hidden files in a folder are left out. A path without files has
    a digest, too. A folder is looked into once, however many links lead to it. Raises DataError for a link to
    a folder above.
    """
    digest = hashlib.sha256()
    for line in sorted(_below(path) if path.is_dir() else _beside(path)):
        digest.update(line.encode(errors="surrogateescape"))
    return digest.hexdigest()[:16]


def _below(folder: Path) -> Iterator[str]:
    walk = Walk(folder, is_hidden=lambda name: name.startswith("."), again=lambda first, second: None)
    with suppress(OSError):  # a folder that cannot be read is reported by who reads the images
        for entry in walk.files(folder):
            yield line_of(entry.path)


def _beside(file: Path) -> Iterator[str]:
    if file.exists():
        yield from (line_of(str(each)) for each in file.parent.iterdir() if each.is_file())


def line_of(file: str) -> str:
    """Return a line with the name, size and time of change of one file."""
    try:
        found = os.stat(file)
    except OSError:  # a link to nothing
        return f"{file}\n"
    return f"{file}\t{found.st_size}\t{changed_ns(found)}\n"
