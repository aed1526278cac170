"""Turns stored images into the square, upright uint8 pixels that a model sees, many of them in parallel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple, assert_never

import numpy as np
from PIL import Image, ImageOps

from trainable.data.source import ArraySource, Integers, Pixels, Selection
from trainable.errors import DataError
from trainable.recipe.training import CenterCrop, Stretch

Resize = Stretch | CenterCrop
Channels = Literal[1, 3]

SHRINK_MARGIN = 2
"""JPEGs may be decoded at 1/2, 1/4 or 1/8 of their size, if twice the size asked for remains."""

NAMED = 10
"""So many broken images are named in an error; the rest are counted."""

CHUNK = 64
"""A thread takes so many images at a time."""


class Form(NamedTuple):
    """Describes what every image becomes."""

    channels: Channels
    side: int
    """This is the side in pixels."""
    resize: Resize = Stretch()


class Broken(NamedTuple):
    """Names an image that could not be decoded, and says why."""

    name: str
    reason: str


def square(image: Image.Image, form: Form) -> Image.Image:
    """Returns the image upright, in mode L or RGB, `form.side` pixels square.
    Raises whatever Pillow raises."""
    _draft(image, form, form.side)
    image = upright(image, form.channels)
    box = _box(image.width, image.height, form.resize)
    return image.resize((form.side, form.side), Image.Resampling.BILINEAR, box=box)


def part_of_square(image: Image.Image, form: Form, box: Integers) -> Image.Image:
    """Returns a box of what `square` makes, `form.side` pixels square, in finer detail:
    it is cut from the image itself.

    `box` is (top, left, height, width) in pixels of that square. Raises whatever Pillow raises.
    """
    top, left, height, width = (box / form.side).tolist()
    _draft(image, form, form.side / min(height, width))
    image = upright(image, form.channels)
    x, y, right, bottom = _box(image.width, image.height, form.resize)
    across, down = right - x, bottom - y
    part = (x + left * across, y + top * down, x + (left + width) * across, y + (top + height) * down)
    return image.resize((form.side, form.side), Image.Resampling.BILINEAR, box=part)


def is_finer(image: Image.Image, form: Form) -> bool:
    """Returns whether an image that is not decoded yet has more pixels than its square,
    in either direction."""
    left, top, right, bottom = _box(image.width, image.height, form.resize)
    return max(right - left, bottom - top) > form.side


def upright(image: Image.Image, channels: int) -> Image.Image:
    """Decodes the image and turns it as its EXIF orientation says, in mode L (1 channel) or RGB (3).

    Transparent parts become white; 16-bit greys lose their lower eight bits. Raises ValueError for 32-bit
    images, whose white is unknown, and whatever Pillow raises.
    """
    ImageOps.exif_transpose(image, in_place=True)
    image.load()
    if image.mode in ("I", "F"):
        raise ValueError("32-bit pixels have no known white: save it with 8 or 16 bits")
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("L" if channels == 1 else "RGB")


def to_array(image: Image.Image) -> Pixels:
    """Returns an image of mode L or RGB as [C, H, W]."""
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)


def decode(selection: Selection, form: Form) -> tuple[Pixels, list[Broken]]:
    """Returns the images [N, C, side, side], and the broken ones, whose pixels are undefined.

    They are decoded in threads, one for each processor: Pillow releases the interpreter's lock.
    """
    if (ready := _as_they_are(selection, form)) is not None:
        return ready, []
    pixels = np.empty((len(selection.indices), form.channels, form.side, form.side), np.uint8)

    def fill(positions: Integers) -> list[Broken]:
        found = (_fill(pixels[position], selection, position, form) for position in positions)
        return [fault for fault in found if fault]

    chunks = np.array_split(np.arange(len(pixels)), max(1, len(pixels) // CHUNK))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return pixels, [fault for faults in pool.map(fill, chunks) for fault in faults]


def raise_broken(broken: Sequence[Broken], looked_at: int, where: str) -> None:
    """Raises DataError, naming the data set, if any image is broken."""
    if broken:
        named = [f"{name}: {reason}" for name, reason in broken[:NAMED]]
        more = [f"and {len(broken) - NAMED:,} more"] if len(broken) > NAMED else []
        count = f"{len(broken):,} of {looked_at:,} images cannot be decoded"
        head = f"{where}: {count}; repair or remove them:"
        raise DataError("\n  ".join([head, *named, *more]))


def _draft(image: Image.Image, form: Form, side: float) -> None:
    """Lets a JPEG be decoded smaller, if its square has twice `side` pixels in both directions then."""
    reach = SHRINK_MARGIN * side
    if isinstance(form.resize, CenterCrop):
        reach /= form.resize.ratio
    image.draft("L" if form.channels == 1 else "RGB", (round(reach), round(reach)))


def _fill(pixels: Pixels, selection: Selection, position: int, form: Form) -> Broken | None:
    """Decodes one image into `pixels` [C, side, side]. Returns the fault if it is broken."""
    index = int(selection.indices[position])
    try:
        with selection.source.open(index) as image:
            pixels[:] = to_array(square(image, form))
    except Exception as error:  # Pillow's plug-ins raise nearly anything: OSError, SyntaxError, struct.error
        return Broken(selection.source.name(index), str(error) or type(error).__name__)
    return None


def _as_they_are(selection: Selection, form: Form) -> Pixels | None:
    """Returns arrays that already have the form, without using Pillow; None for everything else."""
    source = selection.source
    if not isinstance(source, ArraySource) or _box(1, 1, form.resize) != (0, 0, 1, 1):
        return None
    images = source.images[..., None] if source.images.ndim == 3 else source.images
    if images.shape[1:] != (form.side, form.side, form.channels):
        return None
    return np.ascontiguousarray(np.moveaxis(images[selection.indices], -1, 1))


def _box(width: int, height: int, resize: Resize) -> tuple[float, float, float, float]:
    """Returns the part of the image that is used: (left, top, right, bottom) in pixels."""
    match resize:
        case Stretch():
            return (0, 0, width, height)
        case CenterCrop(ratio=ratio):
            side = min(width, height) * ratio
            left, top = (width - side) / 2, (height - side) / 2
            return (left, top, left + side, top + side)
        case _:
            assert_never(resize)
