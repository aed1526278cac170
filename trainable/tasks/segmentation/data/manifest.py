"""Reads a manifest with a column of masks: a CSV or Parquet file with a row for each image."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from trainable.data.manifest import path_of, rows_by_part
from trainable.data.manifest_rows import files_here, rows_of
from trainable.data.source import Split
from trainable.files.store import is_uri
from trainable.recipe.data import Data
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data.pairs import Pairs, pair_of_files


def read(spec: Data, masks: Masks) -> Pairs:
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
    return Pairs(
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
