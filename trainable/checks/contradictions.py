"""Finds images that occur twice, with two labels or two masks: one of them is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainable.checks.finding import Finding, passed
from trainable.checks.mask_sampling import masks_at
from trainable.data import DataSet, Split
from trainable.data.source import Pixels
from trainable.errors import listed

CONTRADICTING = 0.001
"""From this share on, images with another label elsewhere are a warning; published sets have some too, but
fewer (CIFAR, ImageNet)."""

DIFFERENT = 0.02
"""Masks of one image that differ in more than this share of its pixels contradict each other: borders drawn
twice by hand differ by less, in most images; ours."""
GROUPS = 200
"""So many images that occur twice are compared by their masks."""
COPIES = 20  # of an image that occurs more often, so many masks are compared with the first


@dataclass(frozen=True)
class NamedImage:
    """Says where an image is, and what its label is."""

    part: Split
    position: int
    label: int
    name: str


def check_contradictions(groups: Sequence[list[NamedImage]], classes: Sequence[str]) -> Finding:
    """Return the finding about equal images, in groups, that have different labels."""
    seen = sum(map(len, groups))
    torn = [(group, other) for group in groups if (other := _labelled_otherwise(group)) is not None]
    if not torn:
        return passed("contradictions", "no image has two labels")
    count = sum(len(group) for group, _ in torn)
    named = [
        " = ".join(f"{image.name} ({classes[image.label]})" for image in (group[0], other))
        for group, other in torn
    ]
    return Finding(
        "contradictions",
        "warning" if count >= CONTRADICTING * seen else "note",
        f"{count:,} of {seen:,} images also occur with another label: {listed(named, 3)}",
        "at least one of the labels is wrong, and no model can get both right",
        "look at them, and correct or remove them",
    )


def _labelled_otherwise(group: Sequence[NamedImage]) -> NamedImage | None:
    return next((image for image in group if image.label != group[0].label), None)


def check_mask_contradictions(data: DataSet, groups: Sequence[list[NamedImage]]) -> Finding:
    """Return the finding about equal images, in groups, that have different masks."""
    twice = [group for group in groups if len(group) > 1][:GROUPS]
    torn = [(group, other) for group in twice if (other := _differing(data, group)) is not None]
    if not torn:
        return passed("contradictions", "no image has two masks")
    named = [f"{group[0].name} = {other.name}" for group, other in torn]
    count, seen = sum(len(group) for group, _ in torn), sum(map(len, groups))
    return Finding(
        "contradictions",
        "warning" if count >= CONTRADICTING * seen else "note",
        f"{count:,} of {seen:,} images also occur with another mask: {listed(named, 3)}",
        "at least one of the masks is wrong, or each shows a part: no model can get both right",
        "look at them; correct them, or join masks that show one object each",
    )


def _differing(data: DataSet, group: Sequence[NamedImage]) -> NamedImage | None:
    """Return the first of some equal images whose mask differs from the first one's."""
    masks = (
        next(masks_at(data, data.parts[image.part], np.array([image.position]))) for image in group[:COPIES]
    )
    first = next(masks)
    return next(
        (image for image, mask in zip(group[1:], masks, strict=False) if _apart(first, mask) > DIFFERENT),
        None,
    )


def _apart(first: Pixels, second: Pixels) -> float:
    """Return the share of pixels in which two masks differ; all if they have different sizes."""
    return float((first != second).mean()) if first.shape == second.shape else 1.0
