"""Defines what a format finds: images and their masks, before any mask is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from trainable.data.source import FileSource, Flip, Source, Split
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data.code import Naming
from trainable.tasks.segmentation.data.stores import MaskFiles, MaskStore


class Pair(NamedTuple):
    """Holds the images of a part, and a mask for each."""

    images: Source
    masks: MaskStore
    paths: tuple[str, ...] | None
    """In these paths `data.group` finds groups: each image's below the folder of images. None for images that
    have no files."""


@dataclass(frozen=True)
class Pairs:
    """Holds the images and masks of a data set; `Collection` says what fields of the same names mean."""

    path: str
    format: str
    parts: Mapping[Split, Pair]
    naming: Naming | None = None
    """The classes, where the format knows them."""
    flips: tuple[Flip, ...] = ()
    groups: Mapping[Split, Sequence[str]] | None = None
    objects: tuple[str, ...] = ()
    copy: Path | None = None
    secret: frozenset[Split] = frozenset()
    """These parts may be published with masks that show nothing; then they are left out."""
    found: str = ""  # in words, the folders of images and masks, where the recipe does not name them


def pair_of_files(
    root: str, images: Sequence[str], masks: Sequence[str], paths: Sequence[str], spec: Masks
) -> Pair:
    """Return the pair of files below one root."""
    source = FileSource(root, images, np.zeros(len(images), np.int64))
    return Pair(
        source,
        MaskFiles(root, masks, spec.values == "binary", lossy=spec.threshold is not None),
        tuple(paths),
    )
