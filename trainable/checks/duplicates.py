"""Checks for images that occur twice: in two parts, or with two labels."""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import get_args

import numpy as np

from trainable.checks.finding import Finding, Level, passed
from trainable.checks.sampling import pixels
from trainable.data import ArrayPart, DataSet, FilePart, Part, Split
from trainable.data.measure import some
from trainable.data.source import FileSource, Integers
from trainable.errors import listed

MOST = 50_000
"""At most so many images are compared; a larger set is sampled."""

DECODED = 2_000
"""Up to so many images in files, all are decoded.
Of more, the files are compared: a copy is an equal file."""

BLOCK = 512
TAIL_BYTES = 4096
"""So many bytes of every file are read. At its end are compressed pixels, which differ between images."""

LEAKING = 0.05
"""From this share of a part on, images that are also in training make its scores worthless: a perfect memory
gains up to five points, more than recipes differ by."""

CONTRADICTING = 0.001
"""From this share on, images with another label elsewhere are a warning; published sets have some too, but
fewer (CIFAR, ImageNet)."""


@dataclass(frozen=True)
class NamedImage:
    """Says where an image is, and what its label is."""

    part: Split
    position: int
    label: int
    name: str


def check_duplicates(data: DataSet, *, full: bool = False) -> Iterator[Finding]:
    """Yields findings about equal images, by a hash of their decoded pixels,
    or of their bytes for files of a large set.

    `full` decodes all of them and takes no sample.
    """
    images, extent = _by_fingerprint(data, full)
    groups = [group for group in images.values() if len(group) > 1]
    seen = Counter(image.part for group in images.values() for image in group)
    leaks = list(_leaks(groups, seen, extent))
    yield from leaks
    if not leaks:
        yield passed("duplicates", f"no image is in two parts ({extent})")
    yield _contradictions(groups, sum(seen.values()), data.info.classes)


def _leaks(groups: Sequence[list[NamedImage]], seen: Counter[Split], extent: str) -> Iterator[Finding]:
    for first, second in combinations(get_args(Split), 2):
        both = [group for group in groups if {first, second} <= {image.part for image in group}]
        if not both:
            continue
        count = sum(image.part == second for group in both for image in group)
        share = count / seen[second]
        pairs = [f"{_named(group, second)} = {_named(group, first)}" for group in both]
        yield Finding(
            "duplicates",
            _level(share, seen[second]),
            f"{count:,} {second} images ({share:.1%}) are also in {first}: {listed(pairs, 3)} ({extent})",
            f"the {second} score rewards memory: it is too good by up to {100 * share:.1f} points",
            f"remove them from {second}, and put all images of one origin into one part",
        )


def _level(share: float, images: int) -> Level:
    """Returns the level by the effect on the score: hidden in its noise, visible, or decisive."""
    if share >= LEAKING:
        return "error"
    return "note" if share < math.sqrt(0.25 / images) and share < 0.01 else "warning"


def _contradictions(groups: Sequence[list[NamedImage]], seen: int, classes: Sequence[str]) -> Finding:
    torn = [group for group in groups if len({image.label for image in group}) > 1]
    if not torn:
        return passed("contradictions", "no image has two labels")
    count = sum(map(len, torn))
    named = [" = ".join(f"{image.name} ({classes[image.label]})" for image in group[:2]) for group in torn]
    return Finding(
        "contradictions",
        "warning" if count >= CONTRADICTING * seen else "note",
        f"{count:,} of {seen:,} images also occur with another label: {listed(named, 3)}",
        "at least one of the labels is wrong, and no model can get both right",
        "look at them, and correct or remove them",
    )


def _named(group: Sequence[NamedImage], part: str) -> str:
    return f"{part} {next(image.name for image in group if image.part == part)}"


def _by_fingerprint(data: DataSet, full: bool) -> tuple[dict[bytes, list[NamedImage]], str]:
    """Returns where each image is, by its fingerprint; and in words, what was compared."""
    total = sum(map(len, data.parts.values()))
    chosen = {name: np.arange(len(part)) for name, part in data.parts.items()} if full else _chosen(data)
    compared = sum(map(len, chosen.values()))
    by_pixels = full or total <= DECODED
    images: dict[bytes, list[NamedImage]] = defaultdict(list)
    for name, part in data.parts.items():
        prints = _fingerprints(data, part, chosen[name], by_pixels)
        for position, fingerprint in zip(chosen[name].tolist(), prints, strict=True):
            label = int(part.labels[position])
            images[fingerprint].append(NamedImage(name, position, label, _name(part, position)))
    extent = (
        f"all {total:,} compared" if compared == total else f"a sample of {compared:,} of {total:,} compared"
    )
    if isinstance(data.train, FilePart) and not by_pixels:
        return _of_whole_files(data, images), f"{extent}, by their files; --full decodes them"
    return images, extent


def _chosen(data: DataSet) -> dict[Split, Integers]:
    """Returns positions by part, at most MOST:
    the parts that are scored come first, as each of their images counts."""
    left, chosen = MOST, {}
    for name, part in sorted(data.parts.items(), key=lambda item: len(item[1])):
        share = left if name == "train" else min(left, MOST // 4)
        chosen[name] = some(len(part), share)
        left -= len(chosen[name])
    return chosen


def _fingerprints(data: DataSet, part: Part, positions: Integers, by_pixels: bool) -> Iterator[bytes]:
    if isinstance(part, FilePart) and isinstance(part.selection.source, FileSource) and not by_pixels:
        yield from (_tail(_path(part, position)) for position in positions.tolist())
        return
    for start in range(0, len(positions), BLOCK):
        for image in pixels(data, part, positions[start : start + BLOCK]):
            yield hashlib.blake2b(image.tobytes(), digest_size=16).digest()


def _of_whole_files(data: DataSet, images: dict[bytes, list[NamedImage]]) -> dict[bytes, list[NamedImage]]:
    """Separates files with equal ends by all their bytes."""
    sure: dict[bytes, list[NamedImage]] = defaultdict(list)
    for fingerprint, group in images.items():
        for image in group:
            whole = fingerprint
            part = data.parts[image.part]
            if (
                len(group) > 1
                and isinstance(part, FilePart)
                and isinstance(part.selection.source, FileSource)
            ):
                with open(_path(part, image.position), "rb") as file:
                    whole = hashlib.file_digest(file, "blake2b").digest()
            sure[whole].append(image)
    return sure


def _tail(path: str) -> bytes:
    """Returns a fingerprint of a file's length and end."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TAIL_BYTES))
        return hashlib.blake2b(file.read(), digest_size=16, key=size.to_bytes(8, "big")).digest()


def _path(part: FilePart, position: int) -> str:
    source = part.selection.source
    assert isinstance(source, FileSource)
    return os.path.join(source.root, source.paths[int(part.selection.indices[position])])


def _name(part: Part, position: int) -> str:
    if isinstance(part, ArrayPart):
        return str(position)
    return part.selection.source.name(int(part.selection.indices[position]))
