"""Reads images with masks in whatever format they have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from trainable.bench import Bench
from trainable.data.array_files import arrays_in
from trainable.data.arrays import Arrays, check_images
from trainable.data.manifest import files_here, is_manifest, path_of, rows_by_part, rows_of
from trainable.data.part_names import PartChoice, refuse_excluded, telling_how_to_leave_out
from trainable.data.reading import DataFormat, checked_format, named
from trainable.data.source import ArraySource, Collection
from trainable.errors import DataError
from trainable.files.store import is_uri
from trainable.recipe.data import Data, Split
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data.collection import surveyed
from trainable.tasks.segmentation.data.folder import read as read_folder
from trainable.tasks.segmentation.data.pairs import PairedSource, PairedSources, pair_of_files
from trainable.tasks.segmentation.data.published import (
    is_cityscapes,
    is_voc,
    read_cityscapes,
    read_torchvision,
    read_voc,
)
from trainable.tasks.segmentation.data.stores import MaskArray, in_bytes


def read(spec: Data, bench: Bench, masks: Masks) -> Collection:
    """Return the images with masks that a recipe's `data` section names; every mask is read once. Raises
    DataError."""
    with named(spec):
        return surveyed(read_pairs(spec, bench, masks), spec, masks)


def read_pairs(spec: Data, bench: Bench, masks: Masks) -> PairedSources:
    """Return the images and masks that a recipe's `data` section names, before a mask is read. Raises
    DataError."""
    if spec.min_images is not None or spec.unscored == "allow":
        field = "min_images" if spec.min_images is not None else "unscored"
        raise DataError(
            f"data.{field}: is for images with labels; with masks, task.masks.void leaves classes out, and "
            "a part may lack any"
        )
    if is_manifest(spec):
        return read_manifest(spec, masks)
    with named(spec) as path:
        pairs = _pairs(checked_format(spec, path), spec, path, bench, masks)
    parts = {part: pair for part, pair in pairs.parts.items() if part not in spec.parts_left_out}
    return replace(pairs, parts=parts)


def _pairs(form: DataFormat, spec: Data, path: Path, bench: Bench, masks: Masks) -> PairedSources:
    match form:
        case "folder":
            return _masked_folder(path, spec, masks)
        case "manifest":
            return read_manifest(spec, masks)
        case "npz":
            return pairs_of_arrays(str(path), arrays_in(path, "masks", spec.parts_left_out), masks)
        case "torchvision":
            return read_torchvision(spec.name, path, bench.may_fetch, masks, spec.parts_left_out)
        case "digits" | "datasets" | "idx":
            raise DataError(
                f"data.path: {spec.path} has format {form}, which has no masks; a segmentation needs a "
                "folder of images and masks, a manifest, an .npz file, or data.name for one of torchvision's"
            )
        case _:
            assert_never(form)


def _masked_folder(path: Path, spec: Data, masks: Masks) -> PairedSources:
    """Return the pairs below a folder, which may be laid out as published data sets are."""
    named = spec.named_parts
    if is_voc(path) or is_cityscapes(path):
        refuse_excluded(spec, f"{path}, as a published data set is laid out,")
    if is_voc(path):
        return read_voc(path, named, masks, spec.parts_left_out)
    if is_cityscapes(path):
        return read_cityscapes(path, named, masks, spec.parts_left_out)
    return read_folder(path, PartChoice.of(spec), masks)


def pairs_of_arrays(path: str, parts: Mapping[Split, Arrays], masks: Masks) -> PairedSources:
    """Return the pairs of arrays of an .npz file: images uint8 [N, H, W] or [N, H, W, 1 or 3], masks of whole
    numbers or truth values [N, H, W] or [N, H, W, 1].

    Raises DataError for arrays of the wrong type or shape, and for values that no byte holds.
    """
    checked = dict[Split, PairedSource]()
    for part, arrays in parts.items():
        with telling_how_to_leave_out(part):
            checked[part] = _pair_of_arrays(f"{path}: {part}", *arrays, masks)
    return PairedSources(path, "npz", checked)


def _pair_of_arrays(where: str, images: NDArray[Any], masks: NDArray[Any], spec: Masks) -> PairedSource:
    check_images(where, images)
    if masks.ndim == 4 and masks.shape[-1] == 1:
        masks = masks[..., 0]
    if masks.ndim != 3 or masks.dtype.kind not in "iub":
        got = f"{masks.dtype} {list(masks.shape)}"
        raise DataError(
            f"{where}: masks must be one whole number a pixel, [N, H, W], got {got}; convert them, such as "
            "by masks.astype(np.uint8)"
        )
    if masks.shape != images.shape[:3] or not masks.size:
        raise DataError(
            f"{where}: the images are {list(images.shape)} and the masks {list(masks.shape)}; expected a "
            "mask for each image, of its height and width; save the two arrays from the same images"
        )
    try:
        store = MaskArray(in_bytes(masks, spec.values == "binary"))
    except ValueError as error:
        raise DataError(f"{where}: the array of masks {error}") from None
    return PairedSource(ArraySource(images, np.zeros(len(images), np.int64)), store, None)


def read_manifest(spec: Data, masks: Masks) -> PairedSources:
    """Return the pairs that a manifest lists, by path; labels are not looked at.

    Images and masks behind URIs are copied to this machine, once. Raises DataError with the numbers of rows
    that have no file, no mask, or an unknown part, or occur twice.
    """
    rows = rows_of(spec, masks.column)
    chosen: dict[Split, list[int]] = {
        part: sorted(found, key=lambda row: PurePosixPath(rows.paths[row]).parts)
        for part, found in rows_by_part(spec, rows).items()
    }
    files = rows.files + rows.mask_files
    root, here = files_here(spec, files, rows.paths + rows.masks)
    images, found_masks = here[: len(rows.files)], here[len(rows.files) :]
    objects = tuple(each for each in files if is_uri(each))
    return PairedSources(
        path_of(spec),
        "manifest",
        {
            part: pair_of_files(
                root,
                [images[row] for row in found],
                [found_masks[row] for row in found],
                [rows.paths[row] for row in found],
                masks,
            )
            for part, found in chosen.items()
        },
        groups=None
        if rows.groups is None
        else {part: tuple(rows.groups[row] for row in found) for part, found in chosen.items()},
        objects=objects,
        copy=Path(root) if objects else None,
    )
