"""Published layouts of images and masks: PASCAL VOC, Cityscapes, and the data sets of torchvision."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from trainable.data.image_files import subfolders
from trainable.data.part_names import USUAL_NAMES, none_leaves_out, part_named
from trainable.data.torchvision_sets import HORIZONTAL, Layout, open_part
from trainable.errors import DataError, listed, quoted
from trainable.files.regular import read_regular
from trainable.recipe.data import Split
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data.mask_values import (
    CITYSCAPES_LABEL_IDS,
    CITYSCAPES_TRAIN_IDS,
    PETS,
    VOC,
    Naming,
)
from trainable.tasks.segmentation.data.pairs import (
    Files,
    PairedSource,
    PairedSources,
    check_paired,
    files_below,
    in_order,
    pair_of_files,
    paired,
)

VOC_IMAGES, VOC_MASKS, VOC_LISTS = "JPEGImages", "SegmentationClass", "ImageSets/Segmentation"
MOST_BYTES = 2**28  # a larger file is no list of images


def is_voc(root: Path) -> bool:
    return all((root / each).is_dir() for each in (VOC_IMAGES, VOC_MASKS, VOC_LISTS))


def read_voc(
    root: Path, named: Mapping[Split, str | None], masks: Masks, left_out: Container[Split] = ()
) -> PairedSources:
    """Return the pairs of the lists train.txt, or else trainval.txt, and of val.txt and test.txt if any;
    `named` are lists with other names.

    A test list whose images have no masks, as VOC 2012 has one, makes no part. Raises DataError for other
    images that have no file or no mask, and for one that is listed twice.
    """
    images, found = files_below(root, root / VOC_IMAGES), files_below(root, root / VOC_MASKS)
    lists = _voc_lists(root / VOC_LISTS, named)
    listed_names = {part: _voc_names(path, part) for part, path in lists.items() if part not in left_out}
    if not any(name in found for name in listed_names.get("test", ())):
        listed_names.pop("test", None)
    _check_once(root, listed_names)
    parts = {part: _voc_pair(root, part, names, images, found, masks) for part, names in listed_names.items()}
    return PairedSources(str(root), "folder", parts, VOC, ("horizontal",))


def _voc_lists(folder: Path, named: Mapping[Split, str | None]) -> dict[Split, Path]:
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


def _voc_names(path: Path, part: Split) -> list[str]:
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
            f"{root / VOC_LISTS}: {listed(twice)} is listed more than once in {listed(list(names))}; take it "
            "out of one list"
        )


def _voc_pair(
    root: Path, part: Split, names: list[str], images: Files, found: Files, masks: Masks
) -> PairedSource:
    for files, folder in ((images, VOC_IMAGES), (found, VOC_MASKS)):
        if missing := [name for name in names if name not in files]:
            raise DataError(
                f"{root}: {len(missing):,} of {len(names):,} names in the {part} list have no file in "
                f"{folder}/: {listed(missing, 10)}; add the files, or take the names "
                f"out{none_leaves_out(part)}"
            )
    return paired(root, images, found, names, masks)


CITYSCAPES_IMAGES, CITYSCAPES_MASKS = "leftImg8bit", "gtFine"
CITYSCAPES_IMAGE = "_leftImg8bit"
# Masks are of the first kind that all images have. Its names end so.
CITYSCAPES_NAMINGS = {
    "_gtFine_labelTrainIds": CITYSCAPES_TRAIN_IDS,
    "_gtFine_labelIds": CITYSCAPES_LABEL_IDS,
}


def is_cityscapes(root: Path) -> bool:
    return all((root / each).is_dir() for each in (CITYSCAPES_IMAGES, CITYSCAPES_MASKS))


def read_cityscapes(
    root: Path, named: Mapping[Split, str | None], masks: Masks, left_out: Container[Split] = ()
) -> PairedSources:
    """Return the pairs of the parts train, val and test; `named` are folders of parts with other names.

    Images without a folder of fine masks, as those of train_extra, are left alone. The test part is left out
    where its masks are missing, or show nothing, as the public ones. Raises DataError for other images
    without masks.
    """
    folders = {part: name for part, name in _part_folders(root, named).items() if part not in left_out}
    images = {
        part: _ending(files_below(root, root / CITYSCAPES_IMAGES / name), CITYSCAPES_IMAGE)
        for part, name in folders.items()
    }
    found = {part: files_below(root, root / CITYSCAPES_MASKS / name) for part, name in folders.items()}
    suffix = next(
        (
            each
            for each in CITYSCAPES_NAMINGS
            if all(_ending(found[part], each).keys() >= images[part].keys() for part in images)
        ),
        tuple(CITYSCAPES_NAMINGS)[-1],
    )
    parts = {}
    for part in images:
        of_part = _ending(found[part], suffix)
        if part == "test" and not of_part:
            continue
        check_paired(root / CITYSCAPES_IMAGES / folders[part], images[part], of_part, part)
        parts[part] = paired(root, images[part], of_part, in_order(images[part]), masks)
    return PairedSources(
        str(root),
        "folder",
        parts,
        CITYSCAPES_NAMINGS[suffix],
        ("horizontal",),
        secret=frozenset[Split](("test",)),
    )


def _part_folders(root: Path, named: Mapping[Split, str | None]) -> dict[Split, str]:
    """Return the names of the folders of parts that have masks."""
    children = [
        child.name
        for child in subfolders(root / CITYSCAPES_IMAGES)
        if (root / CITYSCAPES_MASKS / child.name).is_dir()
    ]
    found = {part: name for name in children if (part := part_named(name, named)) is not None}
    if "train" not in found:
        there = listed(children, 20) or "none"
        raise DataError(
            f"{root}: no training folder in both {CITYSCAPES_IMAGES}/ and {CITYSCAPES_MASKS}/, but {there}; "
            "name one of these by data.train"
        )
    return found


def _ending(files: Files, suffix: str) -> Files:
    """Return the files whose names end with the suffix, by their names without it."""
    return {name.removesuffix(suffix): path for name, path in files.items() if name.endswith(suffix)}


class Known(NamedTuple):
    """How a data set's parts are asked for, under which names it lists its files, and its classes."""

    layout: Layout
    images: str
    masks: str
    naming: Naming


SBD = {"mode": "segmentation"}
# The data sets with masks known here: photographs, in which left and right mean nothing
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


def read_torchvision(
    name: str | None, root: Path, may_fetch: bool, masks: Masks, left_out: Container[Split] = ()
) -> PairedSources:
    """Return the data set called `name` under `root`;
    fetches it only with `may_fetch`, and only if it is missing.

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
    parts: dict[Split, PairedSource] = {}
    for part, arguments in asked.items():
        if arguments is not None and part not in left_out:
            files = vars(open_part(name, root, arguments, may_fetch))
            images, found = (_below(root, files[each]) for each in (known.images, known.masks))
            parts[part] = pair_of_files(str(root), images, found, images, masks)
    return PairedSources(str(root), "torchvision", parts, known.naming, known.layout.flips)


def _below(root: Path, files: Iterable[str | Path]) -> list[str]:
    return [os.path.relpath(each, root) for each in files]
