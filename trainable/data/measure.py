"""Measures images: channels, size, mean, spread; and computes a digest of which image is in which part."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median
from typing import Literal, NamedTuple

import numpy as np

from trainable.array_types import Integers
from trainable.bench import DeviceKind
from trainable.data.decode import Form, detail_side, to_array, upright
from trainable.data.source import Pixels, Selection, Source
from trainable.files.host_memory import available_bytes
from trainable.recipe.data import Split
from trainable.recipe.training import Stretch

Histograms = Integers  # counts are [C, 256]: how often each value occurs in each channel

SAMPLE = 2000  # so many images are looked at if looking at all would take too long

# The default size is the images' own, up to what the device trains in reasonable time
LARGEST_SIDE: dict[DeviceKind, int] = {"cpu": 64, "cuda": 224}

# A digest looks at so many pixels: 700 photographs of 500 x 375, which take a second to decode
DIGEST_PIXELS = 2**27

# A digest reads the files of larger sets in a sample alone: one processor hashes a gigabyte in a second
DIGEST_BYTES = 2**32

DIGEST_FORM = "2-"  # every digest begins with it; raise it when the same images would have another one

BLOCK = 256  # a thread computes the digests of so many images at a time

RARE = 0.001  # of all pixels

HEADERS, DEEP = 256, 32  # so many images are asked for their depth, and of those of 16 bits so many decoded
# No more of them than have so many pixels, for which PNGs take a second of one processor; but one at least
DEEP_PIXELS = 2**25
WHITE, MARKS = 255, 0.1  # white of a smaller share of all pixels may be scale bars and frames

HELD_BYTES_ON_CPU = 2**30
GREY_MODES = frozenset({"1", "L", "LA", "La", "I;16", "I;16B", "I;16L", "I;16N", "I", "F"})


def some(count: int, most: int) -> Integers:
    """Return at most `most` positions below `count`, at random but always the same ones, ascending."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, most, replace=False))


def sample(selection: Selection, count: int = SAMPLE) -> Selection:
    """Return at most `count` of the images, the same ones every time, in order."""
    if len(selection.indices) <= count:
        return selection
    return Selection(selection.source, selection.indices[some(len(selection.indices), count)])


def channels_and_side(selection: Selection) -> tuple[Literal[1, 3], int] | None:
    """Return grey or colour, as most of the images are, and their median short side; None if no image opens.

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
    """Return the side of the squares that resized crops are cut from, if most images have more pixels than
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


def count_values(pixels: Pixels) -> Histograms:
    """Count how often each value occurs in each channel: uint8 [N, C, H, W] -> [C, 256]."""
    counts = np.zeros((pixels.shape[1], 256), np.int64)
    for start in range(0, len(pixels), 1024):  # bincount widens its input to eight bytes a pixel
        for channel, values in enumerate(np.moveaxis(pixels[start : start + 1024], 1, 0)):
            counts[channel] += np.bincount(values.ravel(), minlength=256)
    return counts


def mean_and_std(counts: Histograms) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return each channel's exact mean and standard deviation on [0, 1],
    from the counts [C, 256] of its values.

    The deviation of a channel with a single value is 1, so that it can be divided by.
    """
    values = np.arange(256) / 255.0
    totals = counts.sum(axis=1)
    means = counts @ values / totals
    deviations = np.sqrt((counts * (values - means[:, None]) ** 2).sum(axis=1) / totals)
    deviations[np.count_nonzero(counts, axis=1) == 1] = 1.0
    return tuple(means.tolist()), tuple(deviations.tolist())


def span(counts: Histograms) -> int:
    """Return how many levels lie between the darkest pixels and the brightest, RARE ones at each end aside.

    A hot pixel or a frame does not hide that a camera's 12 bits fill the lower part of 16.
    """
    share = np.cumsum(counts.sum(axis=0)) / counts.sum()
    return int(np.searchsorted(share, 1.0 - RARE) - np.searchsorted(share, RARE, "right"))


def deep_span(train: Selection) -> int | None:
    """Return the `span` of the upper eight bits of images of 16, in some of the training images; None if none
    of these has so many.

    Scale bars and frames that are drawn into images of 12 bits are white of all 16: where white is as rare,
    it is left out, unless black and its neighbour are all else, as in drawings in white.
    """
    if not train.source.encoded:
        return None
    chosen = np.random.default_rng(0).permutation(train.indices)[:HEADERS].tolist()
    headers = ((index, _header(train.source, index)) for index in chosen)
    found = ((index, each) for index, each in headers if each and each[0].startswith("I;16"))
    deep = list(itertools.islice(found, DEEP))
    pixels = np.cumsum([width * height for _, (_, width, height) in deep])
    decoded = [index for index, _ in deep[: max(1, int((pixels <= DEEP_PIXELS).sum()))]]
    counts = np.zeros((1, 256), np.int64)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for each in pool.map(partial(_count_upper_bytes, train.source), decoded):
            counts += each
    if not counts.any():
        return None
    others = np.where(np.arange(256) < WHITE, counts, 0)
    is_mark = counts[0, WHITE] <= MARKS * counts.sum() and span(others) > 1
    return span(others if is_mark else counts)


def _count_upper_bytes(source: Source, index: int) -> Histograms:
    """Count how often each upper byte occurs in an image of 16 bits, [1, 256]; none if it is broken."""
    try:
        with source.open(index) as image:
            upper = (np.asarray(image) >> 8).astype(np.uint8)
    except Exception:  # as in decode, which will say what is wrong with it
        return np.zeros((1, 256), np.int64)
    return count_values(upper[None, None])


class StoredFiles(NamedTuple):
    """How a data set's images are stored: in which files, and whether those have changed."""

    names: str  # a digest of each image's part, name, class and stored size
    sizes: str  # a digest of the files' sizes in the order of the images
    times: str  # the same with each file's time of change, and the names
    size: int  # the files have so many bytes


def stored_files(parts: Mapping[Split, Selection], classes: Sequence[str]) -> StoredFiles:
    """Look at every file once, without opening it."""
    lines, sizes, times, size = [], hashlib.sha256(), hashlib.sha256(), 0
    for part in sorted(parts):
        source, indices = parts[part]
        found = source.sizes_and_times(indices)
        sizes.update(found[:, 0].tobytes())
        times.update(found.tobytes())
        size += int(found[:, 0].sum()) if source.encoded else 0
        lines += [
            f"{part}\t{source.name(index)}\t{classes[label]}\t{size}\n"
            for index, label, size in zip(
                indices.tolist(), parts[part].labels.tolist(), found[:, 0].tolist(), strict=True
            )
        ]
    names = hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()[:16]
    times.update(names.encode())
    return StoredFiles(names, sizes.hexdigest()[:16], times.hexdigest()[:16], size)


class Membership(NamedTuple):
    """Digests of which image is in which part with which label."""

    digest: str  # in whatever order, of up to SAMPLE images: DIGEST_FORM and sixteen hexadecimal digits
    in_order: str  # another one where two images change places
    whole: bool  # every image counts by all that is stored of it


def membership_digest(parts: Mapping[Split, Selection], stored_bytes: int = 0) -> str:
    """Return `membership(...).digest`."""
    return membership(parts, stored_bytes).digest


def membership(
    parts: Mapping[Split, Selection],
    stored_bytes: int = 0,
    targets: Mapping[Split, Sequence[str]] | None = None,
) -> Membership:
    """Return digests of which image is in which part with which label.

    An image counts by its pixels at their own size, in colour, whatever form it is stored in; of more than
    SAMPLE images, a sample of each part's positions does, in proportion, and no more of them than have
    DIGEST_PIXELS pixels. Every other image counts by the bytes that are stored of it; of files with more than
    DIGEST_BYTES bytes in all, `stored_bytes`, the others count by part and label alone.

    A label counts by its number, since an array has no names for them; `targets` stand in the labels' place.
    """
    total = sum(len(selection.indices) for selection in parts.values())
    lines, all_whole = list[str](), True
    for part in sorted(parts):
        chosen = parts[part]
        texts = targets[part] if targets is not None else list(map(str, chosen.labels.tolist()))
        whole = stored_bytes <= DIGEST_BYTES or not chosen.source.encoded
        all_whole = all_whole and whole
        contents = _contents(chosen, len(chosen.indices) / total, whole=whole)
        lines += [f"{part}\t{text}\t{content}\n" for text, content in zip(texts, contents, strict=True)]
    in_order = hashlib.sha256("".join(lines).encode()).hexdigest()[:16]
    digest = DIGEST_FORM + hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()[:16]
    return Membership(digest, in_order, all_whole)


def comparable(first: str, second: str) -> bool:
    """Return whether two digests of images are of one form, so that equal images have equal ones."""
    return first.startswith(DIGEST_FORM) == second.startswith(DIGEST_FORM)


def _contents(selection: Selection, share: float, *, whole: bool) -> list[str]:
    """Return what each image of a part counts by; `share` is the part's share of all images."""
    count = len(selection.indices)
    sampled = some(count, max(1, min(count, int(SAMPLE * share))))
    sizes = [
        (_header(selection.source, index) or ("", 0, 0))[1:] for index in selection.indices[sampled].tolist()
    ]
    fits = np.cumsum([width * height for width, height in sizes]) <= DIGEST_PIXELS * share
    found = [""] * count
    for position, size in zip(sampled[~fits].tolist(), itertools.compress(sizes, ~fits), strict=True):
        found[position] = str(size)
    by_pixels = sampled[fits]
    others = np.setdiff1d(np.arange(count), by_pixels) if whole else by_pixels[:0]
    for positions, digest in ((by_pixels, _pixel_digest), (others, _stored_digest)):
        digests = _digests(selection.source, selection.indices[positions], digest)
        for position, text in zip(positions.tolist(), digests, strict=True):
            found[position] += text
    return found


def _digests(source: Source, indices: Integers, digest: Callable[[Source, int], str]) -> Iterator[str]:
    def digests(some: Integers) -> list[str]:
        return [digest(source, index) for index in some.tolist()]

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for found in pool.map(digests, np.array_split(indices, len(indices) // BLOCK + 1)):
            yield from found


def _pixel_digest(source: Source, index: int) -> str:
    try:
        with source.open(index) as image:
            deep = image.mode.startswith(("I", "F"))  # as RGB it would lose its lower bits
            pixels = np.array(image) if deep else to_array(upright(image, 3))
            return f"{pixels.shape} {hashlib.sha256(pixels.tobytes()).hexdigest()}"
    except Exception as error:  # as in decode, which will say what is wrong with it
        return type(error).__name__


def _stored_digest(source: Source, index: int) -> str:
    try:
        return hashlib.sha256(source.content(index)).hexdigest()
    except Exception as error:  # as above
        return type(error).__name__


def may_be_held(size: int, device_kind: DeviceKind, most: int | None = None) -> bool:
    """Return whether so many decoded bytes fit in memory: a quarter of what is free, at most 1 GiB on a CPU,
    and at most `most`, which is what other machines can hold."""
    limit = min(available_bytes() // 4, size if most is None else most)
    return size <= (min(limit, HELD_BYTES_ON_CPU) if device_kind == "cpu" else limit)
