"""Reads PASCAL VOC's layout: lists of the images that have masks, in JPEGImages and SegmentationClass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from pathlib import Path

from trainable.data.part_names import USUAL_NAMES, none_leaves_out
from trainable.data.source import Split
from trainable.errors import DataError, listed
from trainable.files.regular import read_regular
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data.names import VOC
from trainable.tasks.segmentation.data.pairing import Files, files_below, paired
from trainable.tasks.segmentation.data.pairs import Pair, Pairs

IMAGES, MASKS, LISTS = "JPEGImages", "SegmentationClass", "ImageSets/Segmentation"
MOST_BYTES = 2**28
"""A larger file is no list of images."""


def is_voc(root: Path) -> bool:
    return all((root / each).is_dir() for each in (IMAGES, MASKS, LISTS))


def read(
    root: Path, named: Mapping[Split, str | None], masks: Masks, left_out: Container[Split] = ()
) -> Pairs:
    """Return the pairs of the lists train.txt, or else trainval.txt, and of val.txt and test.txt if any;
    `named` are lists with other names.

    A test list whose images have no masks, as VOC 2012 has one, makes no part. Raises DataError for other
    images that have no file or no mask, and for one that is listed twice.
    """
    images, found = files_below(root, root / IMAGES), files_below(root, root / MASKS)
    lists = _lists(root / LISTS, named)
    listed_names = {part: _names(path, part) for part, path in lists.items() if part not in left_out}
    if not any(name in found for name in listed_names.get("test", ())):
        listed_names.pop("test", None)
    _check_once(root, listed_names)
    parts = {part: _pair(root, part, names, images, found, masks) for part, names in listed_names.items()}
    return Pairs(str(root), "folder", parts, VOC, ("horizontal",))


def _lists(folder: Path, named: Mapping[Split, str | None]) -> dict[Split, Path]:
    usual = {**USUAL_NAMES, "train": (*USUAL_NAMES["train"], "trainval")}
    found = dict[Split, Path]()
    for part, names in usual.items():
        own = named.get(part)
        files = [folder / f"{name}.txt" for name in (names if own is None else (own,))]
        there = [file for file in files if file.is_file()]
        if not there and (own is not None or part == "train"):
            known = listed(sorted(file.name for file in folder.glob("*.txt")), 20) or "none"
            raise DataError(
                f"{folder}: there is no {' or '.join(file.name for file in files)}; its lists are {known}. "
                f"data.{part} names one, without .txt"
            )
        if there:
            found[part] = there[0]
    if found["train"].stem == "trainval":  # it holds the images of val.txt
        found.pop("validation", None)
    return found


def _names(path: Path, part: Split) -> list[str]:
    lines = read_regular(path, MOST_BYTES).decode(errors="surrogateescape").splitlines()
    if not (names := [line.strip() for line in lines if line.strip()]):
        raise DataError(
            f"{path}: is empty; expected the name of an image on each line{none_leaves_out(part)}"
        )
    return names


def _check_once(root: Path, names: Mapping[Split, list[str]]) -> None:
    counts = Counter(name for each in names.values() for name in each)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise DataError(
            f"{root / LISTS}: {listed(twice)} is listed more than once in {listed(list(names))}; take it "
            "out of one list"
        )


def _pair(root: Path, part: Split, names: list[str], images: Files, found: Files, masks: Masks) -> Pair:
    for files, folder in ((images, IMAGES), (found, MASKS)):
        if missing := [name for name in names if name not in files]:
            raise DataError(
                f"{root}: {len(missing):,} of {len(names):,} names in the {part} list have no file in "
                f"{folder}/: {listed(missing, 10)}; add the files, or take the names "
                f"out{none_leaves_out(part)}"
            )
    return paired(root, images, found, names, masks)
