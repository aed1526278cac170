"""Defines the parts of a data set: decoded images in memory, or image files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from trainable.data.arrays import as_tensor
from trainable.data.source import Integers, Pixels, Selection, Split

if TYPE_CHECKING:  # torch takes seconds to import
    from torch import Tensor


@final
@dataclass(frozen=True, eq=False)
class ArrayPart:
    """Holds decoded images in memory; the arrays may be read-only views of shared memory."""

    images: Pixels
    """The images are uint8 [N, C, H, W]."""
    labels: Integers
    """The labels are int64 [N]."""

    def __len__(self) -> int:
        return len(self.labels)

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Return images and labels as tensors over the same memory: do not write to them."""
        return as_tensor(self.images), as_tensor(self.labels)


@final
@dataclass(frozen=True, eq=False)
class FilePart:
    """Holds images that are read and decoded each time they are used."""

    selection: Selection

    @property
    def labels(self) -> Integers:
        """The labels, int64 [N]."""
        return self.selection.labels

    def __len__(self) -> int:
        return len(self.selection.indices)


@final
@dataclass(frozen=True, eq=False)
class MaskedPart:
    """Holds decoded images of different sizes with their masks in memory, one after the other."""

    values: Pixels
    """These are the images' planes, uint8 [bytes]: see `planes`."""
    sizes: Integers
    """These are the images' heights and widths, int64 [N, 2]."""
    labels: Integers
    """The labels are int64 [N]: the stratum of each image."""
    names: tuple[str, ...]
    """These are paths relative to the data set, or numbers."""

    def __len__(self) -> int:
        return len(self.labels)


@final
@dataclass(frozen=True, eq=False)
class MaskedFilePart:
    """Holds images with masks that are read and decoded each time they are used."""

    selection: Selection
    sizes: Integers
    """These are the images' heights and widths, int64 [N, 2]."""

    @property
    def labels(self) -> Integers:
        """The stratum of each image, int64 [N]."""
        return self.selection.labels

    @property
    def names(self) -> tuple[str, ...]:
        """Paths relative to the data set."""
        return tuple(map(self.selection.source.name, self.selection.indices.tolist()))

    def __len__(self) -> int:
        return len(self.selection.indices)


Part = ArrayPart | FilePart | MaskedPart | MaskedFilePart
Members = dict[Split, Selection]
"""Members are the images of each part."""

View = tuple[Split, int]
"""A view is a part, and the side in pixels of its squares."""
Views = Mapping[View, Pixels]
"""Views are images that are decoded already, uint8 [N, C, side, side]."""
