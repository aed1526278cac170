"""Reads torchvision's segmentation data sets, by their names, from a root folder."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from trainable.data.source import Split
from trainable.data.torchvision_sets import HORIZONTAL, Layout, open_part
from trainable.errors import DataError, quoted
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data.code import Naming
from trainable.tasks.segmentation.data.names import PETS, VOC
from trainable.tasks.segmentation.data.pairs import Pair, Pairs, pair_of_files


class Known(NamedTuple):
    """Says how a data set's parts are asked for, under which names it lists its files, and its classes."""

    layout: Layout
    images: str
    masks: str
    naming: Naming


SBD = {"mode": "segmentation"}
KNOWN = {
    "OxfordIIITPet": Known(
        Layout({"split": "trainval"}, None, {"split": "test"}, HORIZONTAL), "_images", "_segs", PETS
    ),
    "SBDataset": Known(
        Layout({"image_set": "train", **SBD}, {"image_set": "val", **SBD}, None, HORIZONTAL),
        "images",
        "masks",
        VOC,
    ),
    "VOCSegmentation": Known(
        Layout({"image_set": "train"}, {"image_set": "val"}, None, HORIZONTAL), "images", "targets", VOC
    ),
}
"""These are the data sets with masks known here: photographs, in which left and right mean nothing."""


def read(
    name: str | None, root: Path, download: bool, masks: Masks, left_out: Container[Split] = ()
) -> Pairs:
    """Return the data set called `name` under `root`;
    fetches it only with `download`, and only if it is missing.

    Raises DataError if the name is not known, or lists of its images are missing.
    """
    if name not in KNOWN:
        raise DataError(
            f"data.name: expected one of torchvision's {', '.join(sorted(KNOWN))}, which have masks; got "
            f"{quoted(name)}; others are read from a folder, a manifest or an .npz file, as data.path names "
            "it"
        )
    known = KNOWN[name]
    asked: dict[Split, dict[str, Any] | None] = {
        "train": known.layout.train,
        "validation": known.layout.validation,
        "test": known.layout.test,
    }
    parts = {
        part: _pair(open_part(name, root, arguments, download), known, root, masks)
        for part, arguments in asked.items()
        if arguments is not None and part not in left_out
    }
    return Pairs(str(root), "torchvision", parts, known.naming, known.layout.flips)


def _pair(dataset: Any, known: Known, root: Path, masks: Masks) -> Pair:
    images, found = (_below(root, vars(dataset)[each]) for each in (known.images, known.masks))
    return pair_of_files(str(root), images, found, images, masks)


def _below(root: Path, files: Iterable[str | Path]) -> list[str]:
    return [os.path.relpath(each, root) for each in files]
