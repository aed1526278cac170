"""Reads images with masks in whatever format they have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import assert_never

from trainable.data import manifest, npz
from trainable.data.part_names import PartChoice, refuse_excluded
from trainable.data.reading import Format, checked_format, named
from trainable.data.source import Collection
from trainable.errors import DataError
from trainable.recipe.data import Data
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data import cityscapes, voc
from trainable.tasks.segmentation.data import folder as masked_folder
from trainable.tasks.segmentation.data import manifest as masked_manifest
from trainable.tasks.segmentation.data import torchvision_sets as masked_torchvision_sets
from trainable.tasks.segmentation.data.arrays import pairs_of_arrays
from trainable.tasks.segmentation.data.collection import surveyed
from trainable.tasks.segmentation.data.pairs import Pairs


def read(spec: Data, download: bool, masks: Masks) -> Collection:
    """Return the images with masks that a recipe's `data` section names; every mask is read once. Raises
    DataError."""
    with named(spec):
        return surveyed(read_pairs(spec, download, masks), spec, masks)


def read_pairs(spec: Data, download: bool, masks: Masks) -> Pairs:
    """Return the images and masks that a recipe's `data` section names, before a mask is read. Raises
    DataError."""
    if spec.min_images is not None or spec.unscored == "allow":
        field = "min_images" if spec.min_images is not None else "unscored"
        raise DataError(
            f"data.{field}: is for images with labels; with masks, task.masks.void leaves classes out, and "
            "a part may lack any"
        )
    if manifest.is_manifest(spec):
        return masked_manifest.read(spec, masks)
    with named(spec) as path:
        pairs = _pairs(checked_format(spec, path), spec, path, download, masks)
    parts = {part: pair for part, pair in pairs.parts.items() if part not in spec.parts_left_out}
    return replace(pairs, parts=parts)


def _pairs(form: Format, spec: Data, path: Path, download: bool, masks: Masks) -> Pairs:
    match form:
        case "folder":
            return _masked_folder(path, spec, masks)
        case "manifest":
            return masked_manifest.read(spec, masks)
        case "npz":
            return pairs_of_arrays(str(path), "npz", npz.arrays_in(path, "masks", spec.parts_left_out), masks)
        case "torchvision":
            return masked_torchvision_sets.read(spec.name, path, download, masks, spec.parts_left_out)
        case "digits" | "datasets" | "idx":
            raise DataError(
                f"data.path: {spec.path} has format {form}, which has no masks; a segmentation needs a "
                "folder of images and masks, a manifest, an .npz file, or data.name for one of torchvision's"
            )
        case _:
            assert_never(form)


def _masked_folder(path: Path, spec: Data, masks: Masks) -> Pairs:
    """Return the pairs below a folder, which may be laid out as published data sets are."""
    named = spec.named_parts
    if voc.is_voc(path) or cityscapes.is_cityscapes(path):
        refuse_excluded(spec, f"{path}, as a published data set is laid out,")
    if voc.is_voc(path):
        return voc.read(path, named, masks, spec.parts_left_out)
    if cityscapes.is_cityscapes(path):
        return cityscapes.read(path, named, masks, spec.parts_left_out)
    return masked_folder.read(path, PartChoice.of(spec), masks)
