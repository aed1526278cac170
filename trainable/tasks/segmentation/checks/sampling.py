"""Takes masks, and windows of images with their masks, out of a data set: few enough to be quick."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from torch.nn.functional import interpolate

from trainable.array_types import Integers
from trainable.data import DataSet, Part
from trainable.data.decode import Broken, raise_broken
from trainable.data.measure import DIGEST_PIXELS, some
from trainable.data.source import Pixels
from trainable.recipe.tasks import IGNORED
from trainable.tasks.segmentation.data.parts import (
    MaskedFilePart,
    MaskedPart,
    MaskedSource,
    image_planes,
    masked,
    planes_of,
)

# Of so many places the window is taken that shows classes most evenly: a background alone teaches little
TRIES = 8
MOST_OF_ONE = 8  # so many windows of one image are taken at most


def positions_within(part: Part, most: int, pixels: int = DIGEST_PIXELS) -> Integers:
    """Return the positions of a sample of a part's images: at most `most` of them, and no more than have so
    many pixels together, which take about a second to decode; but always one."""
    chosen = some(len(part), most)
    fits = np.random.default_rng(0).permutation(chosen)
    within = sizes_of(part)[fits].prod(axis=1).cumsum() <= pixels
    within[:1] = True
    return np.sort(fits[within])


def sizes_of(part: Part) -> Integers:
    """Return the heights and widths of a part's images, [N, 2]."""
    return masked(part).sizes


def planes_at(data: DataSet, part: Part, positions: Integers) -> Iterator[Pixels]:
    """Yield images with their masks as planes (`planes_of`), uint8 [C + 1, h, w]. Raises DataError naming
    an image that cannot be decoded."""
    held = masked(part)
    if isinstance(held, MaskedPart):
        yield from image_planes(held, positions, data.info.channels)
        return
    source = _source(held)
    for index in held.selection.indices[positions].tolist():
        try:
            found = planes_of(source, index, data.info.channels)
        except Exception as error:  # as in decode: Pillow raises nearly anything
            raise_broken([Broken(source.name(index), str(error) or type(error).__name__)], 1, data.info.path)
        yield found


def masks_at(data: DataSet, part: Part, positions: Integers) -> Iterator[Pixels]:
    """Yield masks, uint8 [h, w]: the class of each pixel, or IGNORED."""
    held = masked(part)
    if isinstance(held, MaskedPart):
        yield from (IGNORED - planes[-1] for planes in image_planes(held, positions, data.info.channels))
        return
    yield from (_source(held).class_mask(index) for index in held.selection.indices[positions].tolist())


def window_sample(data: DataSet, *, train: int, validation: int, side: int, shown: int) -> DataSet:
    """Return a small copy to learn from: about so many windows of training images, and one of each of so
    many validation images. A window is a square of `side` pixels, shrunk to `shown` of them if it is larger.
    Windows in which all is ignored are left out.

    Counts, means and deviations stay those of the whole set. Raises DataError as `planes_at` does.
    """
    shown = min(side, shown)
    learnt = _windows(data, data.train, train, side, shown, MOST_OF_ONE)
    scored = _windows(data, data.validation, validation, side, shown, 1)
    info = replace(
        data.info,
        image_size=shown,
        train_images=len(learnt),
        validation_images=len(scored),
        test_images=0,
        in_memory=True,
    )
    return DataSet(info, learnt, scored, None)


def part_of(windows: Pixels) -> MaskedPart:
    """Return windows, uint8 [n, C + 1, side, side], as a part of a data set."""
    count, side = len(windows), windows.shape[-1]
    return MaskedPart(
        windows.reshape(-1),
        np.full((count, 2), side, np.int64),
        np.zeros(count, np.int64),
        tuple(map(str, range(count))),
    )


def windows_of(part: MaskedPart, channels: int) -> Pixels:
    """Return the windows of such a part, uint8 [n, C + 1, side, side]."""
    side = int(part.sizes[0, 0])
    return part.values.reshape(len(part), channels + 1, side, side)


def _windows(data: DataSet, part: Part, count: int, side: int, shown: int, most: int) -> MaskedPart:
    positions = positions_within(part, count)
    each = min(most, max(1, count // len(positions)))
    found = []
    for position, planes in zip(positions.tolist(), planes_at(data, part, positions), strict=True):
        random = np.random.default_rng(position)
        found += [_shrunk(_most_even(planes, side, random), shown) for _ in range(each)]
    usable = [window for window in found if window[-1].any()]
    return part_of(np.stack(usable or found[:1]))


def _most_even(planes: Pixels, side: int, random: np.random.Generator) -> Pixels:
    """Return the square of `side` pixels whose mask shows classes most evenly, of a few at random places."""
    height, width = planes.shape[1:]
    below, beside = max(0, side - height), max(0, side - width)
    filled = np.pad(planes, ((0, 0), (0, below), (0, beside)))  # in a mask's plane, 0 is ignored
    tops = random.integers(0, filled.shape[1] - side + 1, TRIES)
    lefts = random.integers(0, filled.shape[2] - side + 1, TRIES)
    squares = [filled[:, top : top + side, left : left + side] for top, left in zip(tops, lefts, strict=True)]
    return max(squares, key=lambda square: _entropy(square[-1]))


def _entropy(plane: Pixels) -> float:
    counts = np.bincount(plane.ravel(), minlength=IGNORED + 1)[1:]
    shares = counts[counts > 0] / max(1, plane.size)
    return float(-(shares * np.log(shares)).sum())


def _shrunk(square: Pixels, side: int) -> Pixels:
    if square.shape[-1] == side:
        return square
    planes = torch.from_numpy(np.ascontiguousarray(square))[None]
    images = interpolate(planes[:, :-1].float(), (side, side), mode="bilinear", antialias=True)
    masks = interpolate(planes[:, -1:], (side, side), mode="nearest-exact")
    joined: Pixels = torch.cat([images.round_().to(torch.uint8), masks], 1)[0].numpy()
    return joined


def _source(part: MaskedFilePart) -> MaskedSource:
    assert isinstance(part.selection.source, MaskedSource)
    return part.selection.source
