"""Turns stored images into the square, upright uint8 pixels that a model sees, many of them in parallel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, assert_never

import numpy as np

from trainable.data.source import ArraySource, Channels, Pixels, Selection
from trainable.errors import BrokenImages
from trainable.recipe.data import Interpolation
from trainable.recipe.training import CenterCrop, Stretch
from trainable.stages import counting

if TYPE_CHECKING:  # who only reads what is known of images needs neither torch nor Pillow
    from PIL import Image
    from torch import Tensor

Resize = Stretch | CenterCrop

# JPEGs may be decoded at 1/2, 1/4 or 1/8 of their size, if twice the size asked for remains
SHRINK_MARGIN = 2

REPAIR = (
    "repair or remove them, or leave them out by data.exclude: a CSV file that lists them in a column image"
)
NAMED = 10  # so many broken images are named in an error; the rest are counted

CHUNK = 64  # a thread takes so many images at a time


class Form(NamedTuple):
    """What every image becomes."""

    channels: Channels
    side: int  # the side in pixels
    resize: Resize = Stretch()
    interpolation: Interpolation = "bilinear"


class Broken(NamedTuple):
    """An image that could not be decoded, and why."""

    name: str
    reason: str


def detail_side(side: int) -> int:
    """Return the side of the larger squares that resized crops are cut from: 256 for images of 224 pixels.

    A box of half the area of a square of 224 pixels has a side of 158, and of one of 256 a side of 181.
    """
    return -(-side * 8 // 7)


def enough_pixels(form: Form) -> int:
    """Return the height and width that a JPEG needs at least after it is decoded smaller: the larger of its
    squares then has twice its pixels in both directions."""
    enough = SHRINK_MARGIN * detail_side(form.side)
    return round(enough / form.resize.ratio) if isinstance(form.resize, CenterCrop) else enough


def square(image: Image.Image, form: Form) -> Pixels:
    """Return the image upright, uint8 [C, form.side, form.side]. Raises whatever Pillow raises."""
    return squares(image, form, [form.side])[0]


def squares(image: Image.Image, form: Form, sides: Sequence[int]) -> list[Pixels]:
    """Return one square of the upright image at each side, uint8 [C, side, side].

    Each is resized from the stored pixels by torch's antialiased filters, which are faster than Pillow's and
    at most one level apart. Raises whatever Pillow raises.
    """
    from torch import from_numpy  # torch takes seconds to import: only where images are decoded

    small = _draft(image, form)
    pixels = None if small else jpeg_pixels(image, form.channels)
    if pixels is None:
        pixels = from_numpy(to_array(upright(image, form.channels)))
    left, top, right, bottom = _box(pixels.shape[2], pixels.shape[1], form.resize)
    box = pixels[:, top:bottom, left:right]
    return [resized(box, side, form.interpolation) for side in sides]


def upright(image: Image.Image, channels: int) -> Image.Image:
    """Decode the image and turn it as its EXIF orientation says, in mode L (1 channel) or RGB (3).

    Transparent parts become white; 16-bit greys lose their lower eight bits. Raises ValueError for 32-bit
    images, whose white is unknown, and whatever Pillow raises.
    """
    from PIL import Image, ImageOps

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
    """Return a copy of an image of mode L or RGB as [C, H, W]."""
    pixels = np.array(image)
    return pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)


def decode(selection: Selection, form: Form) -> tuple[Pixels, list[Broken]]:
    """Return the images [N, C, side, side], and the broken ones, whose pixels are undefined.

    They are decoded in threads, one for each processor: the decoders release the interpreter's lock.
    """
    if (ready := _as_they_are(selection, form)) is not None:
        return ready, []
    source, indices = selection
    pixels = np.empty((len(indices), form.channels, form.side, form.side), np.uint8)

    def fill(start: int) -> list[Broken]:
        some = slice(start, start + CHUNK)
        return decode_into([pixels[some]], Selection(source, indices[some]), form)

    broken: list[Broken] = []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool, counting("image", len(indices)) as decoded:
        for faults in pool.map(fill, range(0, len(indices), CHUNK)):
            broken += faults
            decoded.done = min(decoded.done + CHUNK, len(indices))
    return pixels, broken


def decode_into(arrays: Sequence[Pixels], selection: Selection, form: Form) -> list[Broken]:
    """Write the images into arrays [N, C, side, side], one for each side; each image is decoded once.
    Return the broken ones, whose pixels are undefined."""
    found = (
        _fill([array[position] for array in arrays], selection, position, form)
        for position in range(len(selection.indices))
    )
    return [fault for fault in found if fault]


def raise_broken(
    broken: Sequence[Broken],
    looked_at: int,
    where: str,
    problem: str = "images cannot be decoded",
    advice: str = REPAIR,
) -> None:
    """Raise BrokenImages, naming the data set, if any image is broken."""
    if broken:
        named = [f"{name}: {reason}" for name, reason in broken[:NAMED]]
        more = [f"and {len(broken) - NAMED:,} more"] if len(broken) > NAMED else []
        count = f"{len(broken):,} of {looked_at:,} {problem}"
        head = f"{where}: {count}; {advice}:"
        raise BrokenImages("\n  ".join([head, *named, *more]))


def _draft(image: Image.Image, form: Form) -> bool:
    """Let a JPEG be decoded smaller, if enough pixels remain in both directions then. Return whether it
    will be smaller."""
    enough, before = enough_pixels(form), image.size
    image.draft("L" if form.channels == 1 else "RGB", (enough, enough))
    return image.size != before


def resized(pixels: Tensor, side: int, interpolation: Interpolation) -> Pixels:
    """Return an image uint8 [C, H, W] as a square [C, side, side]."""
    from torch.nn.functional import interpolate

    square: Pixels = interpolate(pixels[None], (side, side), mode=interpolation, antialias=True)[0].numpy()
    return square


def _fill(targets: Sequence[Pixels], selection: Selection, position: int, form: Form) -> Broken | None:
    """Decode one image into each target [C, side, side]. Return the fault if it is broken."""
    index = int(selection.indices[position])
    try:
        with selection.source.open(index) as image:
            made = squares(image, form, [target.shape[-1] for target in targets])
    except Exception as error:  # Pillow's plug-ins raise nearly anything: OSError, SyntaxError, struct.error
        return Broken(selection.source.name(index), str(error) or type(error).__name__)
    for target, pixels in zip(targets, made, strict=True):
        target[:] = pixels
    return None


def _as_they_are(selection: Selection, form: Form) -> Pixels | None:
    """Return arrays that already have the form, without using Pillow; None for everything else."""
    source = selection.source
    if not isinstance(source, ArraySource) or _box(form.side, form.side, form.resize)[2:] != (form.side,) * 2:
        return None
    images = source.images[..., None] if source.images.ndim == 3 else source.images
    if images.shape[1:] != (form.side, form.side, form.channels):
        return None
    return np.ascontiguousarray(np.moveaxis(images[selection.indices], -1, 1))


def _box(width: int, height: int, resize: Resize) -> tuple[int, int, int, int]:
    """Return the part of the image that is used: (left, top, right, bottom) in pixels."""
    match resize:
        case Stretch():
            return (0, 0, width, height)
        case CenterCrop(ratio=ratio):
            side = max(1, round(min(width, height) * ratio))
            left, top = (width - side) // 2, (height - side) // 2
            return (left, top, left + side, top + side)
        case _:
            assert_never(resize)


def jpeg_pixels(image: Image.Image, channels: int) -> Tensor | None:
    """Return the pixels, uint8 [channels, H, W], of a JPEG file that Pillow has opened but not decoded.

    Return None for what Pillow must read: other formats, CMYK, images that EXIF turns, and files that
    torchcodec refuses, of which Pillow then says what is wrong.
    """
    stream = getattr(image, "fp", None)
    if image.format != "JPEG" or stream is None or image.mode not in ("L", "RGB"):
        return None
    from PIL import ExifTags

    from trainable.data.jpeg_decoder import decode  # with torch, which takes seconds to import

    if decode is None or image.getexif().get(ExifTags.Base.Orientation, 1) != 1:
        return None
    stream.seek(0)
    try:
        pixels: Tensor = decode(stream.read(), mode="GRAY" if channels == 1 else "RGB")
    except (RuntimeError, ValueError):
        return None
    return pixels
