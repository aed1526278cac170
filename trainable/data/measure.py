"""Measures images: channels, size, mean, spread; and computes a digest of which image is in which part."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Literal, NamedTuple

import numpy as np

from trainable.data.decode import Form, detail_side
from trainable.data.source import FileSource, Integers, Pixels, Selection, Source, Split
from trainable.files.host_memory import available_bytes
from trainable.recipe.training import Stretch

DeviceKind = Literal["cpu", "cuda"]

Counts = Integers
"""Counts are [C, 256]: how often each value occurs in each channel."""

SAMPLE = 2000
"""So many images are looked at if looking at all would take too long."""

LARGEST_SIDE: dict[DeviceKind, int] = {"cpu": 64, "cuda": 224}
"""The default size is the images' own, up to what the device trains in reasonable time."""

HELD_BYTES_ON_CPU = 2**30
GREY_MODES = frozenset({"1", "L", "LA", "La", "I;16", "I;16B", "I;16L", "I;16N", "I", "F"})


def sample(selection: Selection, count: int = SAMPLE) -> Selection:
    """Returns at most `count` of the images, the same ones every time, in order."""
    if len(selection.indices) <= count:
        return selection
    chosen = np.random.default_rng(0).choice(len(selection.indices), count, replace=False)
    return Selection(selection.source, selection.indices[np.sort(chosen)])


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
    """Says how many bytes a data set's files have, with a digest of each file's size and time of change."""

    bytes: int
    digest: str


def stored_files(parts: Mapping[Split, Selection]) -> StoredFiles:
    """Looks at every file once, without opening it."""
    size, digest = 0, hashlib.sha256()
    for part in sorted(parts):
        source, indices = parts[part]
        if isinstance(source, FileSource):
            found = source.sizes_and_times(indices)
            size += int(found[:, 0].sum())
            digest.update(found.tobytes())
        else:
            size += source.stored_bytes(indices)
    return StoredFiles(size, digest.hexdigest()[:16])


def membership_digest(
    parts: Mapping[Split, Selection], classes: Sequence[str], size: int | None = None
) -> str:
    """Returns sixteen hexadecimal digits over which image is in which part with which label,
    and the stored size in bytes, which is asked for if it is not given."""
    lines = sorted(
        f"{part}\t{selection.source.name(int(index))}\t{classes[label]}\n"
        for part, selection in parts.items()
        for index, label in zip(selection.indices, selection.labels, strict=True)
    )
    stored = stored_files(parts).bytes if size is None else size
    digest = hashlib.sha256("".join(lines).encode())
    digest.update(f"{stored}\n".encode())
    return digest.hexdigest()[:16]


def may_be_held(size: int, device_kind: DeviceKind, most: int | None = None) -> bool:
    """Returns whether so many decoded bytes fit in memory: a quarter of what is free, at most 1 GiB on a CPU,
    and at most `most`, which is what other machines can hold."""
    limit = min(available_bytes() // 4, size if most is None else most)
    return size <= (min(limit, HELD_BYTES_ON_CPU) if device_kind == "cpu" else limit)
