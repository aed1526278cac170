"""Checks arrays of images with labels, for the npz and idx formats and for a person's own arrays."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainable.data.part_names import telling_how_to_leave_out
from trainable.data.source import ArraySource, Collection, Source
from trainable.errors import DataError, listed
from trainable.files.host_memory import available_bytes
from trainable.recipe.data import Split

LARGEST_LABEL = 2**63 - 1

if TYPE_CHECKING:  # torch takes seconds to import
    from torch import Tensor

# Images uint8 [N, H, W] or [N, H, W, C], and labels integer [N] or [N, 1]
Arrays = tuple[NDArray[Any], NDArray[Any]]


def as_tensor(array: NDArray[Any]) -> Tensor:
    """Return a tensor over the same memory: do not write to it."""
    import torch

    with warnings.catch_warnings():
        # Ray's arrays are read-only, which torch cannot express; batches are copies, so none is written.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def collect(
    path: str,
    format: str,
    parts: Mapping[Split, Arrays],
    classes: Sequence[str] | None = None,
    *,
    by_class: bool = False,
) -> Collection:
    """Return the collection of some of the parts `train`, `validation`, `test`;
    `train` alone counts as one tree.

    Labels may be any integers: their sorted values are the classes, named by `classes` or by themselves. With
    `by_class`, images are used in the order of their classes.
    Raises DataError for arrays of the wrong type or shape.
    """
    checked = dict[Split, Arrays]()
    for part, arrays in parts.items():
        with telling_how_to_leave_out(part):
            checked[part] = _checked(f"{path}: {part}", *arrays)
    known = np.unique(np.concatenate([labels for _, labels in checked.values()]))
    if len(known) < 2:
        raise DataError(f"{path}: there is one class only, {_some(known)}; two are needed")
    if classes is not None and len(classes) != len(known):
        raise DataError(f"{path}: {len(classes)} class names for {len(known)} labels, {_some(known)}")
    sources: dict[Split, Source] = {
        part: ArraySource(images, np.searchsorted(known, labels).astype(np.int64), by_class=by_class)
        for part, (images, labels) in checked.items()
    }
    names = tuple(classes) if classes is not None else tuple(str(value) for value in known)
    return Collection(path, format, names, sources)


def check_fits(path: Path, size: int) -> None:
    """Raise DataError, before anything is allocated, where so many bytes are more than the free memory."""
    if size > (free := available_bytes()):
        raise DataError(
            f"{path}: its header says {size:,} bytes, and {free:,} are free in memory; a folder of images "
            "is read as it is needed"
        )


def check_images(where: str, images: NDArray[Any]) -> None:
    """Raise DataError for images that are not uint8 [N, H, W] or [N, H, W, 1 or 3]."""
    if images.dtype != np.uint8:
        raise DataError(
            f"{where}: images must be uint8 from 0 to 255, got {images.dtype}; scale all parts by one "
            "factor, such as 255 / 4095 for 12 bits, and round"
        )
    if not (images.ndim == 3 or (images.ndim == 4 and images.shape[-1] in (1, 3))):
        raise DataError(f"{where}: images must be [N, H, W] or [N, H, W, 1 or 3], got {list(images.shape)}")


def _checked(where: str, images: NDArray[Any], labels: NDArray[Any]) -> Arrays:
    """Return the two arrays, with labels as int64 [N]."""
    check_images(where, images)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        got = f"{labels.dtype} {list(labels.shape)}"
        raise DataError(f"{where}: labels must be one integer an image, [N] or [N, 1], got {got}")
    if len(images) != len(labels) or not len(images):
        raise DataError(
            f"{where}: there are {len(images)} images and {len(labels)} labels; expected a label for each "
            "image, and some images"
        )
    if not images.size:
        raise DataError(f"{where}: the images have no pixels, their array is {list(images.shape)}")
    if labels.dtype.kind == "u" and int(labels.max()) > LARGEST_LABEL:
        raise DataError(f"{where}: label {labels.max()} has more than 63 bits; number the classes from 0")
    return images, labels.astype(np.int64)


def _some(labels: NDArray[Any]) -> str:
    return f"[{listed([str(label) for label in labels], most=20)}]"
