"""Says cheaply whether a data set's files are unchanged: by names, sizes and times, without opening any."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from trainable.data.source import changed_ns
from trainable.data.walk import Walk


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
