"""Reads Cityscapes' layout: leftImg8bit with gtFine, each with folders of parts, and in these of cities."""

from __future__ import annotations

from collections.abc import Container, Mapping
from pathlib import Path

from trainable.data.image_files import subfolders
from trainable.data.part_names import part_named
from trainable.data.source import Split
from trainable.errors import DataError, listed
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data.names import CITYSCAPES_LABEL_IDS, CITYSCAPES_TRAIN_IDS
from trainable.tasks.segmentation.data.pairing import Files, check_paired, files_below, in_order, paired
from trainable.tasks.segmentation.data.pairs import Pairs

IMAGES, MASKS = "leftImg8bit", "gtFine"
IMAGE = "_leftImg8bit"
NAMINGS = {
    "_gtFine_labelTrainIds": CITYSCAPES_TRAIN_IDS,
    "_gtFine_labelIds": CITYSCAPES_LABEL_IDS,
}
"""Masks are of the first kind that all images have. Its names end so."""


def is_cityscapes(root: Path) -> bool:
    return all((root / each).is_dir() for each in (IMAGES, MASKS))


def read(
    root: Path, named: Mapping[Split, str | None], masks: Masks, left_out: Container[Split] = ()
) -> Pairs:
    """Return the pairs of the parts train, val and test; `named` are folders of parts with other names.

    Images without a folder of fine masks, as those of train_extra, are left alone. The test part is left out
    where its masks are missing, or show nothing, as the public ones. Raises DataError for other images
    without masks.
    """
    folders = {part: name for part, name in _part_folders(root, named).items() if part not in left_out}
    images = {part: _ending(files_below(root, root / IMAGES / name), IMAGE) for part, name in folders.items()}
    found = {part: files_below(root, root / MASKS / name) for part, name in folders.items()}
    suffix = next(
        (
            each
            for each in NAMINGS
            if all(_ending(found[part], each).keys() >= images[part].keys() for part in images)
        ),
        tuple(NAMINGS)[-1],
    )
    parts = {}
    for part in images:
        of_part = _ending(found[part], suffix)
        if part == "test" and not of_part:
            continue
        check_paired(root / IMAGES / folders[part], images[part], of_part, part)
        parts[part] = paired(root, images[part], of_part, in_order(images[part]), masks)
    return Pairs(
        str(root), "folder", parts, NAMINGS[suffix], ("horizontal",), secret=frozenset[Split](("test",))
    )


def _part_folders(root: Path, named: Mapping[Split, str | None]) -> dict[Split, str]:
    """Return the names of the folders of parts that have masks."""
    children = [child.name for child in subfolders(root / IMAGES) if (root / MASKS / child.name).is_dir()]
    found = {part: name for name in children if (part := part_named(name, named)) is not None}
    if "train" not in found:
        there = listed(children, 20) or "none"
        raise DataError(
            f"{root}: no training folder in both {IMAGES}/ and {MASKS}/, but {there}; name one of these by "
            "data.train"
        )
    return found


def _ending(files: Files, suffix: str) -> Files:
    """Return the files whose names end with the suffix, by their names without it."""
    return {name.removesuffix(suffix): path for name, path in files.items() if name.endswith(suffix)}
