"""Finds the image files in folders and below them, through links too."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainable.data.walk import Walk
from trainable.errors import DataError
from trainable.files.regular import NotRegular, check_regular, why

ENDINGS = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".jp2", ".avif"),
)
"""Files with these endings are read as images; others (README, labels.csv) are ignored."""

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
