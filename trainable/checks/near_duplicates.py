"""Finds images of two parts that are nearly the same: saved anew, smaller, or brighter.

Small grey copies are compared after whitening, which weighs each direction by how little the set varies in
it. Without it all shirts of a catalogue, or all hands before one wall, are alike; with it, what remains is
what tells one image from the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Set
from itertools import combinations
from typing import NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor

from trainable.array_types import Integers
from trainable.checks.finding import Finding, Level, passed
from trainable.checks.sampling import DECODED, MOST, chosen_positions, extent_of, pixels
from trainable.data import DataSet, Part, Split
from trainable.data.measure import some
from trainable.errors import listed

# From this share of a part on, images that are also in training make its scores worthless: a perfect memory
# gains up to five points, more than recipes differ by
LEAKING = 0.05

SIDE = 16  # images are compared at this side in pixels, in grey

# From this cosine on, two images are nearly the same. docs/decisions/0022 has how many of the copies are
# found that are saved anew, smaller, brighter or with noise, and how many other images are reported
SAME = 0.93

# So many images of a set without copies may look like copies: of clothes up to 1.4 %, of which a third were
# other things (docs/decisions/0022)
FALSE_ALARMS = 0.02

# A direction's variance counts as at least FLOOR of the mean one: below it is noise of saving. In a small set
# most directions have no variance at all, and FEW / images of the mean one is the least.
FLOOR, FEW = 0.1, 32

# Of images in files at most MOST_FILES are decoded, and no more than have FILE_BYTES bytes, which takes some
# seconds; but always DECODED of them
MOST_FILES, FILE_BYTES = 10_000, 2**29

BLOCK = 2048

Copies = Set[tuple[Split, int]]  # images, by part and position, known to be in an earlier part as well


class _Pair(NamedTuple):
    later: int  # the position of an image of a later part
    earlier: int  # that of the most similar image of an earlier part


def leak_level(share: float, images: int) -> Level:
    """Return the level by the effect on the score: hidden in its noise, visible, or decisive."""
    if share >= LEAKING:
        return "error"
    return "note" if share < math.sqrt(0.25 / images) and share < 0.01 else "warning"


def check_near_duplicates(data: DataSet, copies: Copies, *, full: bool = False) -> Iterator[Finding]:
    """Yield a finding for each two parts that have nearly the same images; `copies` are not named again.

    Levels are those of equal images, but a note below FALSE_ALARMS and never an error: similar images may be
    different things, and only a person can say. Raises DataError naming images that cannot be decoded.
    """
    chosen = chosen_positions(data, None if full else most_compared(data))
    known = descriptors(data, chosen)
    extent = extent_of(data, chosen)
    found = False
    for first, second in combinations([part for part in get_args(Split) if part in known], 2):
        pairs = [
            pair
            for pair in _pairs(known[first], known[second], chosen[first], chosen[second])
            if (second, pair.later) not in copies
        ]
        if pairs:
            found = True
            yield _finding(data, (first, second), pairs, len(chosen[second]), extent)
    if not found:
        yield passed("near-duplicates", f"no image is nearly the same as one of another part ({extent})")


def _finding(
    data: DataSet, between: tuple[Split, Split], pairs: list[_Pair], compared: int, extent: str
) -> Finding:
    first, second = between
    share = len(pairs) / compared
    named = [
        f"{second} {data.parts[second].name(pair.later)} ~ {first} {data.parts[first].name(pair.earlier)}"
        for pair in pairs
    ]
    return Finding(
        "near-duplicates",
        "note" if share < FALSE_ALARMS or leak_level(share, compared) == "note" else "warning",
        f"{len(pairs):,} {second} images ({share:.1%}) are nearly the same as one of {first}: "
        f"{listed(named, 3)} ({extent})",
        f"if the images of a pair show the same thing, the {second} score is too good by up to "
        f"{100 * share:.1f} points",
        "look at these pairs: `tunebook check DATA --write-exclusions FILE` lists them, and data.exclude: "
        "FILE leaves them out; keep what was taken together in one part, by data.group or a manifest's "
        "column group" + _naming_files(data),
        copies_in=second,
    )


def _naming_files(data: DataSet) -> str:
    """Return how to see the names of files, where images in memory have numbers instead."""
    has_files = data.info.in_memory and data.info.format in ("folder", "manifest", "datasets")
    return "; data.in_memory=false names their files" if has_files else ""


def most_compared(data: DataSet) -> int:
    """Return how many images are compared."""
    if data.train.selection is None:
        return MOST
    source, indices = data.train.selection
    stored = source.sizes_and_times(indices[some(len(indices), 100)])[:, 0]
    return max(DECODED, min(MOST_FILES, FILE_BYTES // max(1, int(stored.mean()))))


def descriptors(data: DataSet, chosen: Mapping[Split, Integers]) -> dict[Split, Tensor]:
    """Return a vector of length 1 for each chosen image, [n, SIDE^2]: the scalar product of two is near 1 if
    the images are nearly the same, and near 0 if they have no more in common than any two of the set.

    An image of a single grey has the vector 0: it is like no other.
    """
    small = {name: _standardised(data, part, chosen[name]) for name, part in data.parts.items()}
    everything = torch.cat(list(small.values()))
    mean, count = everything.mean(0), len(everything)
    variances, directions = torch.linalg.eigh(torch.cov(everything.T, correction=0))
    least = max(FLOOR, FEW / count) * variances.mean()
    weights = directions / (variances.clamp(min=0.0) + least).sqrt()
    return {
        name: torch.nn.functional.normalize((each - mean) @ weights) * each.any(1, keepdim=True)
        for name, each in small.items()
    }


def _standardised(data: DataSet, part: Part, positions: Integers) -> Tensor:
    """Return grey copies [n, SIDE^2] with mean 0 and length 1, so that brightness and contrast do not
    count."""
    side = min(SIDE, data.info.image_size)
    blocks = [
        torch.from_numpy(pixels(data, part, positions[start : start + BLOCK], side))
        .float()
        .mean(1)
        .flatten(1)
        for start in range(0, len(positions), BLOCK)
    ]
    grey = torch.cat(blocks) if blocks else torch.zeros(0, side * side)
    return torch.nn.functional.normalize(grey - grey.mean(1, keepdim=True))


def _pairs(earlier: Tensor, later: Tensor, at_earlier: Integers, at_later: Integers) -> Iterator[_Pair]:
    """Yield each image of the later part that is nearly the same as one of the earlier part."""
    for start in range(0, len(later) if len(earlier) else 0, BLOCK):
        similar, nearest = _nearest(later[start : start + BLOCK], earlier)
        for row in np.flatnonzero(similar.numpy() >= SAME):
            yield _Pair(int(at_later[start + row]), int(at_earlier[int(nearest[row])]))


def most_similar(these: Tensor, others: Tensor) -> Tensor:
    """Return for each of these descriptors the largest product with the others; -1 where there are none."""
    return _nearest(these, others)[0] if len(these) and len(others) else torch.full((len(these),), -1.0)


def _nearest(these: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Return for each of these descriptors the largest product with the others [N, d], and whose it is."""
    found = [(block @ these.T).max(0) for block in others.split(BLOCK)]
    values, block = torch.stack([each.values for each in found]).max(0)
    within = torch.stack([each.indices for each in found])
    return values, block * BLOCK + within.gather(0, block[None])[0]
