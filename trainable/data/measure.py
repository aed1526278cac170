"""Measures images: channels, size, mean, spread; and computes a digest of which image is in which part."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Literal, NamedTuple

import numpy as np

from trainable.data.decode import Form, detail_side, to_array, upright
from trainable.data.source import Integers, Pixels, Selection, Source, Split
from trainable.files.host_memory import available_bytes
from trainable.recipe.training import Stretch

DeviceKind = Literal["cpu", "cuda"]

Counts = Integers
"""Counts are [C, 256]: how often each value occurs in each channel."""

SAMPLE = 2000
"""So many images are looked at if looking at all would take too long."""

LARGEST_SIDE: dict[DeviceKind, int] = {"cpu": 64, "cuda": 224}
"""The default size is the images' own, up to what the device trains in reasonable time."""

DIGEST_PIXELS = 2**27
"""A digest looks at so many pixels: 700 photographs of 500 x 375, which take a second to decode."""

HELD_BYTES_ON_CPU = 2**30
GREY_MODES = frozenset({"1", "L", "LA", "La", "I;16", "I;16B", "I;16L", "I;16N", "I", "F"})


def some(count: int, most: int) -> Integers:
    """Returns at most `most` positions below `count`, at random but always the same ones, ascending."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, most, replace=False))


def sample(selection: Selection, count: int = SAMPLE) -> Selection:
    """Returns at most `count` of the images, the same ones every time, in order."""
    if len(selection.indices) <= count:
        return selection
    return Selection(selection.source, selection.indices[some(len(selection.indices), count)])


def channels_and_side(selection: Selection) -> tuple[Literal[1, 3], int] | None:
    """Returns grey or colour, as most of the images are, and their median short side; None if no image opens.

    It reads headers, not pixels. Images that cannot be opened are named later, when they are decoded.
    """
    modes: Counter[bool] = Counter()
    sides = []
    for index in selection.indices:
        if (header := _header(selection.source, int(index))) is not None:
            modes[header[0] in GREY_MODES] += 1
            sides.append(min(header[1:]))
    if not sides:
        return None
    return (1 if modes[True] > modes[False] else 3), int(median(sides))


def detail_size_of(train: Selection, form: Form) -> int | None:
    """Returns the side of the squares that resized crops are cut from, if most images have more pixels than
    the recipe's."""
    measured = channels_and_side(sample(train))
    seen = 1.0 if isinstance(form.resize, Stretch) else form.resize.ratio
    return detail_side(form.side) if measured is not None and measured[1] * seen > form.side else None


def _header(source: Source, index: int) -> tuple[str, int, int] | None:
    try:
        with source.open(index) as image:
            return (image.mode, image.width, image.height)
    except Exception:  # as in decode: Pillow raises nearly anything
        return None


def count_values(pixels: Pixels) -> Counts:
    """Counts how often each value occurs in each channel: uint8 [N, C, H, W] -> [C, 256]."""
    counts = np.zeros((pixels.shape[1], 256), np.int64)
    for start in range(0, len(pixels), 1024):  # bincount widens its input to eight bytes a pixel
        for channel, values in enumerate(np.moveaxis(pixels[start : start + 1024], 1, 0)):
            counts[channel] += np.bincount(values.ravel(), minlength=256)
    return counts


def mean_and_std(counts: Counts) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns each channel's exact mean and standard deviation on [0, 1],
    from the counts [C, 256] of its values.

    The deviation of a channel with a single value is 1, so that it can be divided by.
    """
    values = np.arange(256) / 255.0
    totals = counts.sum(axis=1)
    means = counts @ values / totals
    deviations = np.sqrt((counts * (values - means[:, None]) ** 2).sum(axis=1) / totals)
    deviations[np.count_nonzero(counts, axis=1) == 1] = 1.0
    return tuple(means.tolist()), tuple(deviations.tolist())


class StoredFiles(NamedTuple):
    """Says how a data set's images are stored: in which files, and whether those have changed."""

    names: str
    """This is a digest of each image's part, name, class and stored size."""
    times: str
    """This is a digest of each file's size and time of change too."""


def stored_files(parts: Mapping[Split, Selection], classes: Sequence[str]) -> StoredFiles:
    """Looks at every file once, without opening it."""
    lines, times = [], hashlib.sha256()
    for part in sorted(parts):
        source, indices = parts[part]
        found = source.sizes_and_times(indices)
        times.update(found.tobytes())
        lines += [
            f"{part}\t{source.name(index)}\t{classes[label]}\t{size}\n"
            for index, label, size in zip(
                indices.tolist(), parts[part].labels.tolist(), found[:, 0].tolist(), strict=True
            )
        ]
    names = hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()[:16]
    times.update(names.encode())
    return StoredFiles(names, times.hexdigest()[:16])


def membership_digest(parts: Mapping[Split, Selection]) -> str:
    """Returns sixteen hexadecimal digits over which image is in which part with which label, in whatever form
    the images are stored; up to SAMPLE images, in whatever order, too.

    An image counts by its pixels at their own size, in colour; of more than SAMPLE images, a sample of each
    part's positions does, in proportion, and no more of them than have DIGEST_PIXELS pixels. The others count
    by their part and label. A label counts by its number: an array has no names for them.
    """
    total = sum(len(selection.indices) for selection in parts.values())
    lines = list[str]()
    for part in sorted(parts):
        held = np.bincount(parts[part].labels).tolist()
        lines.append(f"{part}\t{held}\n")
        some = sample(parts[part], max(1, SAMPLE * len(parts[part].indices) // max(total, SAMPLE)))
        sizes = [(_header(some.source, index) or ("", 0, 0))[1:] for index in some.indices.tolist()]
        fits = (
            np.cumsum([width * height for width, height in sizes])
            <= DIGEST_PIXELS * len(parts[part].indices) // total
        )
        chosen = Selection(some.source, some.indices[fits])
        lines += [
            f"{part}\t{label}\t{pixels}\n"
            for label, pixels in zip(chosen.labels.tolist(), _pixel_digests(chosen), strict=True)
        ]
        lines += [
            f"{part}\t{size}\n" for size, fitting in zip(sizes, fits.tolist(), strict=True) if not fitting
        ]
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()[:16]


def _pixel_digests(selection: Selection) -> list[str]:
    def digest(index: int) -> str:
        try:
            with selection.source.open(index) as image:
                return hashlib.sha256(to_array(upright(image, 3)).tobytes()).hexdigest()
        except Exception as error:  # as in decode, which will say what is wrong with it
            return type(error).__name__

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(digest, selection.indices.tolist()))


def may_be_held(size: int, device_kind: DeviceKind, most: int | None = None) -> bool:
    """Returns whether so many decoded bytes fit in memory: a quarter of what is free, at most 1 GiB on a CPU,
    and at most `most`, which is what other machines can hold."""
    limit = min(available_bytes() // 4, size if most is None else most)
    return size <= (min(limit, HELD_BYTES_ON_CPU) if device_kind == "cpu" else limit)
