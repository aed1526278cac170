"""Finds images that occur twice: in two parts, exactly or nearly, or with two labels or masks."""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import get_args

import numpy as np

from trainable.array_types import Integers
from trainable.checks.finding import Finding, passed
from trainable.checks.images import show_nothing, training_sample
from trainable.checks.near_duplicates import check_near_duplicates, leak_level
from trainable.checks.sampling import DECODED, MOST, NamedImage, chosen_positions, extent_of, pixels
from trainable.checks.subject import TaskChecks
from trainable.data import DataSet, Part, Split
from trainable.data.source import FileSource, Pixels
from trainable.errors import listed

# From this share on, images with another label elsewhere are a warning; published sets have some too, but
# fewer (CIFAR, ImageNet)
CONTRADICTING = 0.001

BLOCK = 512
# So many bytes of every file are read. At its end are compressed pixels, which differ between images.
TAIL_BYTES = 4096


class Fingerprints:
    """A data set's images by their fingerprints, once a check has asked; `full` decodes all of them."""

    def __init__(self, data: DataSet, *, full: bool = False) -> None:
        self.data, self.full = data, full

    @cached_property
    def sample(self) -> Pixels:
        """What `training_sample` returns."""
        return training_sample(self.data)

    @cached_property
    def equal(self) -> tuple[dict[bytes, list[NamedImage]], str]:
        """What `by_fingerprint` returns."""
        return by_fingerprint(self.data, self.full)

    @cached_property
    def without_blank(self) -> dict[bytes, list[NamedImage]]:
        """The images of `equal`; but each alone that is of one colour, where the check of pixels says that
        there are such: that they are equal, with whatever label, is no other fault."""
        images = self.equal[0]
        return dict(self._blank_apart(images)) if show_nothing(self.sample).any() else images

    def _blank_apart(
        self, images: Mapping[bytes, list[NamedImage]]
    ) -> Iterator[tuple[bytes, list[NamedImage]]]:
        for fingerprint, group in images.items():
            at = np.array([group[0].position])
            if len(group) > 1 and show_nothing(pixels(self.data, self.data.parts[group[0].part], at))[0]:
                yield from ((fingerprint + f"{each.part} {each.position}".encode(), [each]) for each in group)
            else:
                yield fingerprint, group


def check_duplicates(compared: Fingerprints, checks: TaskChecks) -> Iterator[Finding]:
    """Yield findings about equal images, by a hash of their decoded pixels, or of their bytes for files of a
    large set; about images of two parts that are nearly the same; and about equal images of which not the
    same is to be learnt."""
    data = compared.data
    images, extent = compared.without_blank, compared.equal[1]
    groups = [group for group in images.values() if len(group) > 1]
    seen = Counter(image.part for group in images.values() for image in group)
    exact = list(_exact_leaks(groups, seen, extent))
    yield from exact or [passed("duplicates", f"no image is in two parts ({extent})")]
    yield from check_near_duplicates(data, _copies(groups), full=compared.full)
    yield checks.contradictions(data, [*images.values()])


def _copies(groups: Sequence[list[NamedImage]]) -> set[tuple[Split, int]]:
    """Return the images that are also in an earlier part, by part and position."""
    order = {part: rank for rank, part in enumerate(get_args(Split))}
    return {
        (image.part, image.position)
        for group in groups
        for image in group
        if order[image.part] > min(order[each.part] for each in group)
    }


def _exact_leaks(groups: Sequence[list[NamedImage]], seen: Counter[Split], extent: str) -> Iterator[Finding]:
    for first, second in combinations(get_args(Split), 2):
        both = [group for group in groups if {first, second} <= {image.part for image in group}]
        if not both:
            continue
        count = sum(image.part == second for group in both for image in group)
        share = count / seen[second]
        pairs = [f"{_named(group, second)} = {_named(group, first)}" for group in both]
        yield Finding(
            "duplicates",
            leak_level(share, seen[second]),
            f"{count:,} {second} images ({share:.1%}) are also in {first}: {listed(pairs, 3)} ({extent})",
            f"the {second} score rewards memory: it is too good by up to {100 * share:.1f} points",
            "`tunebook check DATA --write-exclusions FILE` lists them, and data.exclude: FILE leaves them "
            "out; put all images of one origin into one part",
            copies_in=second,
        )


def _named(group: Sequence[NamedImage], part: str) -> str:
    return f"{part} {next(image.name for image in group if image.part == part)}"


def by_fingerprint(data: DataSet, full: bool) -> tuple[dict[bytes, list[NamedImage]], str]:
    """Return where each image is, by its fingerprint; and in words, what was compared."""
    chosen = chosen_positions(data, None if full else MOST)
    by_pixels = full or sum(map(len, data.parts.values())) <= DECODED
    images: dict[bytes, list[NamedImage]] = defaultdict(list)
    for name, part in data.parts.items():
        prints = _fingerprints(data, part, chosen[name], by_pixels)
        for position, fingerprint in zip(chosen[name].tolist(), prints, strict=True):
            label = int(part.labels[position])
            images[fingerprint].append(NamedImage(name, position, label, part.name(position)))
    extent = extent_of(data, chosen)
    if _files_of(data.train) is not None and not by_pixels:
        return _of_whole_files(data, images), f"{extent}, by their files; --full decodes them"
    return images, extent


def _fingerprints(data: DataSet, part: Part, positions: Integers, by_pixels: bool) -> Iterator[bytes]:
    files = _files_of(part)
    if files is not None and not by_pixels:
        yield from (_tail(_path(files, position)) for position in positions.tolist())
        return
    for start in range(0, len(positions), BLOCK):
        for image in pixels(data, part, positions[start : start + BLOCK]):
            yield hashlib.blake2b(image.tobytes(), digest_size=16).digest()


def _of_whole_files(data: DataSet, images: dict[bytes, list[NamedImage]]) -> dict[bytes, list[NamedImage]]:
    """Separate files with equal ends by all their bytes."""
    sure: dict[bytes, list[NamedImage]] = defaultdict(list)
    for fingerprint, group in images.items():
        for image in group:
            whole = fingerprint
            files = _files_of(data.parts[image.part])
            if len(group) > 1 and files is not None:
                with open(_path(files, image.position), "rb") as file:
                    whole = hashlib.file_digest(file, "blake2b").digest()
            sure[whole].append(image)
    return sure


def _tail(path: str) -> bytes:
    """Return a fingerprint of a file's length and end."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TAIL_BYTES))
        return hashlib.blake2b(file.read(), digest_size=16, key=size.to_bytes(8, "big")).digest()


def _files_of(part: Part) -> tuple[FileSource, Integers] | None:
    """Return a part's image files, and which of them are the part's; None where images are no files, or were
    read already."""
    if part.selection is None or (files := part.selection.source.image_files) is None:
        return None
    return files, part.selection.indices


def _path(files: tuple[FileSource, Integers], position: int) -> str:
    source, indices = files
    return os.path.join(source.root, source.paths[int(indices[position])])
