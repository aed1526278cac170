"""The parts of a data set: decoded images in memory, or image files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

from trainable.array_types import Integers
from trainable.data.arrays import as_tensor
from trainable.data.decode import Form, decode, raise_broken
from trainable.data.source import Pixels, Selection
from trainable.recipe.data import Split

if TYPE_CHECKING:  # torch takes seconds to import
    from torch import Tensor


class Part(Protocol):
    """The images of one part."""

    @property
    def labels(self) -> Integers:
        """What a split keeps in proportion, int64 [N]: an image's class, or its stratum."""

    @property
    def selection(self) -> Selection | None:
        """The images as they are stored; None where they are in memory."""

    @property
    def sizes(self) -> Integers | None:
        """Heights and widths, int64 [N, 2]; None where all images are of one size."""

    def name(self, position: int) -> str:
        """Return an image's name for people: a path, or its number."""

    def squares(self, positions: Integers, form: Form, where: str) -> Pixels:
        """Return some images as uint8 [n, C, form.side, form.side].

        Raises DataError, which says `where` they are, naming images that cannot be decoded.
        """

    def __len__(self) -> int: ...


@final
@dataclass(frozen=True, eq=False)
class ArrayPart:
    """Decoded images in memory; the arrays may be read-only views of shared memory."""

    images: Pixels  # uint8 [N, C, H, W]
    labels: Integers  # int64 [N]

    selection = None
    sizes = None

    def name(self, position: int) -> str:
        return str(position)

    def squares(self, positions: Integers, form: Form, where: str) -> Pixels:
        return shrunk(self.images[positions], form.side)

    def __len__(self) -> int:
        return len(self.labels)

    def tensors(self) -> tuple[Tensor, Tensor]:
        """Return images and labels as tensors over the same memory: do not write to them."""
        return as_tensor(self.images), as_tensor(self.labels)


@final
@dataclass(frozen=True, eq=False)
class FilePart:
    """Images that are read and decoded each time they are used."""

    selection: Selection

    sizes = None

    @property
    def labels(self) -> Integers:
        return self.selection.labels

    def name(self, position: int) -> str:
        return self.selection.name(position)

    def squares(self, positions: Integers, form: Form, where: str) -> Pixels:
        return decoded_squares(self.selection, positions, form, where)

    def __len__(self) -> int:
        return len(self.selection.indices)


def decoded_squares(selection: Selection, positions: Integers, form: Form, where: str) -> Pixels:
    """Return some images of a selection, as `Part.squares` does."""
    found, broken = decode(Selection(selection.source, selection.indices[positions]), form)
    raise_broken(broken, len(found), where)
    return found


def shrunk(images: Pixels, side: int) -> Pixels:
    """Return square images, uint8 [n, C, side, side], without enlarging smaller ones."""
    if images.shape[-1] <= side:
        return images
    from torch import from_numpy, uint8
    from torch.nn.functional import interpolate

    resized = interpolate(from_numpy(images).float(), (side, side), mode="bilinear", antialias=True)
    result: Pixels = resized.round_().to(uint8).numpy()
    return result


Members = dict[Split, Selection]  # members are the images of each part

PartView = tuple[Split, int]  # a view is a part, and the side in pixels of its squares
Views = Mapping[PartView, Pixels]  # views are images that are decoded already, uint8 [N, C, side, side]
