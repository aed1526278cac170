"""Reads a folder of images beside a folder of masks, or both in one folder, with or without parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from trainable.data.folder import check_left_out
from trainable.data.image_files import ENDINGS, is_image, subfolders
from trainable.data.masks.pairing import (
    check_paired,
    files_below,
    in_order,
    paired,
    split_by_suffix,
    without_suffix,
)
from trainable.data.masks.pairs import Pair, Pairs
from trainable.data.part_names import PartChoice, excluding, none_leaves_out, part_named
from trainable.data.source import Split
from trainable.errors import DataError, listed
from trainable.recipe.tasks import Masks

USUAL = (Masks().images, Masks().folder)
IMAGE_FOLDERS = ("images", "image", "imgs", "img", "img_dir", "jpegimages")
# Published sets call the two folders so, in any case of letters. They are found where there is one of each
# and the recipe names none.
MASK_FOLDERS = ("masks", "mask", "labels", "label", "annotations", "ann_dir", "segmentationclass")


class Place(NamedTuple):
    """Names the folders of one part's images and masks; they may be one."""

    images: Path
    masks: Path


def read(root: Path, choice: PartChoice, masks: Masks) -> Pairs:
    """Returns the pairs below a folder, with the parts that a recipe chooses there.

    Images are in `images` and masks in `masks`, or in folders that a person names so. There may be folders of
    parts in both of them, or around them; otherwise all is one tree. With `masks.suffix`, both may be in one
    folder. An image and its mask have the same path below their folders, but for the suffix and the file's
    ending. Hidden files and files that are no images are ignored. Raises DataError for anything that would
    leave images out.
    """
    places = _places(root, choice, masks)
    pairs = {part: _pair(root, part, place, masks) for part, place in places.items()}
    return Pairs(str(root), "folder", pairs, found=_said(root, places["train"], masks))


def named_parts(folder: Path, choice: PartChoice) -> dict[Split, Path]:
    """Returns the folders of parts that are directly in a folder, by part; none if there is no training part.

    Raises DataError for a part that is named and missing, two folders of one part, and images beside parts.
    """
    named, found = choice.named, dict[Split, Path]()
    children = [folder / name for name in choice.used([each.name for each in subfolders(folder)], folder)]
    for part, name in named.items():
        if name is not None and name not in [child.name for child in children]:
            there = listed([child.name for child in children], 20) or "none"
            raise DataError(
                f"{folder}: data.{part} is {name!r}, but the folders there are {there}; name one of these, "
                f"or leave data.{part} out where it is called as usual"
            )
    for child in children:
        found_part = part_named(child.name, named)
        if found_part is not None and (first := found.setdefault(found_part, child)) != child:
            raise DataError(
                f"{folder}: {first.name} and {child.name} could both be the {found_part} part; name one by "
                f"data.{found_part}, or leave one out by {excluding([child.name])}"
            )
    if "train" not in found:
        return {}
    check_left_out(folder, [child for child in children if child not in found.values()])
    if loose := sorted(each.name for each in folder.iterdir() if is_image(each.name) and each.is_file()):
        raise DataError(
            f"{folder}: images beside the folders of parts would be left out: {listed(loose)}; expected all "
            "of them in these folders: move them into one, or away"
        )
    return found


def _places(root: Path, choice: PartChoice, masks: Masks) -> dict[Split, Place]:
    """Returns the folders of each part: parts in the folders of images and masks, else around them."""
    if (place := _two_folders(root, masks)) is not None:
        parts = named_parts(place.images, choice)
        return _parts_within(place, parts, choice) if parts else {"train": place}
    if parts := named_parts(root, choice):
        return {part: _place_in(folder, part, masks) for part, folder in parts.items()}
    return {"train": _place_in(root, "train", masks)}


def _parts_within(place: Place, images: Mapping[Split, Path], choice: PartChoice) -> dict[Split, Place]:
    here = [name for name in choice.excluded if (place.masks / name).is_dir()]  # most have images alone
    masks = named_parts(place.masks, choice._replace(excluded=here))
    if images.keys() != masks.keys():
        raise DataError(
            f"{place.images} has folders of the parts {listed(list(images))}, and {place.masks} of "
            f"{listed(list(masks)) or 'none'}; expected the same ones: rename the folders, or name them by "
            "data.train, data.validation and data.test; none leaves a validation or test part out"
        )
    return {part: Place(images[part], masks[part]) for part in images}


def _place_in(folder: Path, part: Split, masks: Masks) -> Place:
    if (place := _two_folders(folder, masks)) is not None:
        return place
    if masks.suffix is not None:
        return Place(folder, folder)
    there = listed([f"{child.name}/" for child in subfolders(folder)], 10) or "no folders"
    raise DataError(
        f"{folder}: expected the folders {masks.images}/ with images and {masks.folder}/ with masks; found "
        f"{there}. task.masks.images and task.masks.folder give them other names; for masks beside their "
        f"images, task.masks.suffix says what their names add, such as _mask{none_leaves_out(part)}"
    )


def _two_folders(folder: Path, masks: Masks) -> Place | None:
    place = Place(folder / masks.images, folder / masks.folder)
    if all(each.is_dir() for each in place):
        return place
    if (masks.images, masks.folder) != USUAL or masks.suffix is not None:
        return None
    children = subfolders(folder)
    images = [child for child in children if child.name.lower() in IMAGE_FOLDERS]
    found = [child for child in children if child.name.lower() in MASK_FOLDERS]
    return Place(images[0], found[0]) if len(images) == len(found) == 1 else None


def _said(root: Path, place: Place, masks: Masks) -> str:
    """Return in words which folders were found, where they have not the names that the recipe says."""
    images, found = (each.relative_to(root).as_posix() for each in place)
    as_said = masks.images in images.split("/") and masks.folder in found.split("/")
    if as_said or place.images == place.masks:
        return ""
    return f"images are in {images}/ and masks in {found}/, by the names of these folders"


def _pair(root: Path, part: Split, place: Place, masks: Masks) -> Pair:
    found = files_below(root, place.images)
    if place.images == place.masks:
        images, found_masks = split_by_suffix(found, masks.suffix or "")
    else:
        images, found_masks = found, files_below(root, place.masks)
        if masks.suffix is not None:
            found_masks = without_suffix(found_masks, masks.suffix)
    if not images:
        raise DataError(
            f"{place.images}: no images (known endings: {' '.join(ENDINGS)}); task.masks.images names the "
            "folder that has them"
        )
    check_paired(place.images, images, found_masks, part)
    return paired(root, images, found_masks, in_order(images), masks)
