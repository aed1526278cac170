"""Reads a folder of images beside a folder of masks, or both in one folder, with or without parts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from trainable.data.folder import check_left_out
from trainable.data.image_files import ENDINGS, is_image, subfolders
from trainable.data.part_names import PartChoice, excluding, none_leaves_out, part_named
from trainable.errors import DataError, listed
from trainable.recipe.data import Split
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data.pairs import (
    PairedSource,
    PairedSources,
    check_paired,
    files_below,
    in_order,
    paired,
    split_by_suffix,
    without_suffix,
)

USUAL = (Masks().images, Masks().folder)
IMAGE_FOLDERS = ("images", "image", "imgs", "img", "img_dir", "jpegimages")
# Published sets call the two folders so, in any case of letters. They are found where there is one of each
# and the recipe names none.
MASK_FOLDERS = ("masks", "mask", "labels", "label", "annotations", "ann_dir", "segmentationclass")
# Or the folder of a part's masks is called as that of its images, and so behind it: CamVid has trainannot
MASK_ENDINGS = (*MASK_FOLDERS, "annot", "gt", "seg")


class MaskFolders(NamedTuple):
    """The folders of one part's images and masks; they may be one."""

    images: Path
    masks: Path
    beside: tuple[Path, ...] = ()  # other folders where these two are


def read(root: Path, choice: PartChoice, masks: Masks) -> PairedSources:
    """Return the pairs below a folder, with the parts that a recipe chooses there.

    Images are in `images` and masks in `masks`, or in folders that a person names so. There may be folders of
    parts in both of them, or around them, or of a part's masks beside that of its images; otherwise all is
    one tree. Other folders beside the two are not read, but named in `Pairs.found`. With `masks.suffix`, both
    may be in one folder. An image and its mask have the same path below their folders, but for the suffix and
    the file's ending. Hidden files and files that are no images are ignored. Raises DataError for anything
    that would leave images of these folders out.
    """
    places = _places(root, choice, masks)
    pairs = {part: _pair(root, part, place, masks) for part, place in places.items()}
    return PairedSources(str(root), "folder", pairs, found=_said(root, places, masks))


def named_parts(folder: Path, choice: PartChoice) -> dict[Split, Path]:
    """Return the folders of parts that are directly in a folder, by part; none if there is no training part.

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


def _places(root: Path, choice: PartChoice, masks: Masks) -> dict[Split, MaskFolders]:
    """Return the folders of each part: parts in the folders of images and masks, else around them."""
    if (place := _two_folders(root, masks)) is not None:
        parts = named_parts(place.images, choice)
        return _parts_within(place, parts, choice) if parts else {"train": place}
    beside = _masks_beside(root, choice)
    without = (*choice.excluded, *(each.name for each in beside.values()))
    if parts := named_parts(root, choice._replace(excluded=without)):
        return {part: _place_in(folder, part, masks, beside.get(folder)) for part, folder in parts.items()}
    return {"train": _place_in(root, "train", masks)}


def _masks_beside(root: Path, choice: PartChoice) -> dict[Path, Path]:
    """Return the folders of masks that are called as a part's beside them and `MASK_ENDINGS`, by these; also
    of a part that `data.exclude_parts` leaves out, whose masks go with it."""
    folders = subfolders(root)
    return {
        images: masks
        for images in folders
        if part_named(images.name, choice.named) is not None
        for masks in folders
        if masks.name not in choice.excluded
        and masks.name.startswith(images.name)
        and masks.name.removeprefix(images.name).strip("_- ").lower() in MASK_ENDINGS
        and _has_images(masks)
    }


def _has_images(folder: Path) -> bool:
    return any(is_image(name) for *_, files in os.walk(folder) for name in files)


def _parts_within(
    place: MaskFolders, images: Mapping[Split, Path], choice: PartChoice
) -> dict[Split, MaskFolders]:
    here = [name for name in choice.excluded if (place.masks / name).is_dir()]  # most have images alone
    masks = named_parts(place.masks, choice._replace(excluded=here))
    if images.keys() != masks.keys():
        raise DataError(
            f"{place.images} has folders of the parts {listed(list(images))}, and {place.masks} of "
            f"{listed(list(masks)) or 'none'}; expected the same ones: rename the folders, or name them by "
            "data.train, data.validation and data.test; none leaves a validation or test part out"
        )
    return {part: MaskFolders(images[part], masks[part], place.beside) for part in images}


def _place_in(folder: Path, part: Split, masks: Masks, beside: Path | None = None) -> MaskFolders:
    """Return the places of a part in its folder; its masks may be in the folder `beside`."""
    if (place := _two_folders(folder, masks)) is not None:
        return place
    if beside is not None and not _has_pair(folder, masks):
        return MaskFolders(folder, beside)
    if masks.suffix is not None:
        return MaskFolders(folder, folder, () if beside is None else (beside,))
    children = subfolders(folder)
    there = listed([f"{child.name}/" for child in children], 10) or "no folders"
    sets = [child for child in children if _two_folders(child, masks) or _has_parts(child)]
    around = f"; data.path should be {sets[0]}" if len(sets) == 1 else ""
    raise DataError(
        f"{folder}: expected the folders {masks.images}/ with images and {masks.folder}/ with masks; found "
        f"{there}. task.masks.images and task.masks.folder give them other names; for masks beside their "
        f"images, task.masks.suffix says what their names add, such as _mask{none_leaves_out(part)}{around}"
    )


def _has_parts(folder: Path) -> bool:
    return any(part_named(child.name, {}) == "train" for child in subfolders(folder))


def _two_folders(folder: Path, masks: Masks) -> MaskFolders | None:
    images, found = (_below_or_beside(folder, each) for each in (masks.images, masks.folder))
    children = subfolders(folder)
    if not (images.is_dir() and found.is_dir()):
        if (masks.images, masks.folder) != USUAL or _has_pair(folder, masks):
            return None
        named = [
            [child for child in children if child.name.lower() in names]
            for names in (IMAGE_FOLDERS, MASK_FOLDERS)
        ]
        if [len(each) for each in named] != [1, 1]:
            return None
        (images,), (found,) = named
    beside = [child for child in children if not _within(child, images) and not _within(child, found)]
    return MaskFolders(images, found, tuple(beside))


def _below_or_beside(folder: Path, name: str) -> Path:
    return folder / (os.path.relpath(name, folder) if os.path.isabs(name) else name)


def _has_pair(folder: Path, masks: Masks) -> bool:
    """Return whether an image and its mask, by their suffix, are in one folder, there or below."""
    if masks.suffix is None:
        return False
    for _, _, files in os.walk(folder):
        names = {os.path.splitext(name)[0] for name in files if is_image(name)}
        if any(f"{name}{masks.suffix}" in names for name in names):
            return True
    return False


def _within(first: Path, second: Path) -> bool:
    """Return whether one folder has the other in it, or is it."""
    return first.is_relative_to(second) or second.is_relative_to(first)


def _said(root: Path, places: Mapping[Split, MaskFolders], masks: Masks) -> str:
    """Return in words which folders were found, where they have not the names that the recipe says, and
    which have images that are not read."""
    place, said = places["train"], []
    images, found = (each.relative_to(root).as_posix() for each in place[:2])
    usual = (masks.images, masks.folder) == USUAL
    as_said = masks.images in images.split("/") and masks.folder in found.split("/")
    if usual and not as_said and place.images != place.masks:
        said.append(f"images are in {images}/ and masks in {found}/, by the names of these folders")
    beside = dict.fromkeys(folder for each in places.values() for folder in each.beside)
    if unread := [f"{each.relative_to(root).as_posix()}/" for each in beside if _has_images(each)]:
        said.append(f"images in {listed(unread, 10)} are not read")
    return "; ".join(said)


def _pair(root: Path, part: Split, place: MaskFolders, masks: Masks) -> PairedSource:
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
