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


@dataclass(frozen=True)
class NamedImage:
    """Says where an image is, and what its label is."""

    part: Split
    position: int
    label: int
    name: str


def check_contradictions(groups: Sequence[list[NamedImage]], classes: Sequence[str]) -> Finding:
    """Returns the finding about equal images, in groups, that have different labels."""
    seen = sum(map(len, groups))
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


def check_mask_contradictions(data: DataSet, groups: Sequence[list[NamedImage]]) -> Finding:
    """Returns the finding about equal images, in groups, that have different masks."""
    twice = [group for group in groups if len(group) > 1][:GROUPS]
    torn = [group for group in twice if _apart(*_masks(data, group)) > DIFFERENT]
    if not torn:
        return passed("contradictions", "no image has two masks")
    named = [" = ".join(image.name for image in group[:2]) for group in torn]
    count, seen = sum(map(len, torn)), sum(map(len, groups))
    return Finding(
        "contradictions",
        "warning" if count >= CONTRADICTING * seen else "note",
        f"{count:,} of {seen:,} images also occur with another mask: {listed(named, 3)}",
        "at least one of the masks is wrong, or each shows a part: no model can get both right",
        "look at them; correct them, or join masks that show one object each",
    )


def _masks(data: DataSet, group: Sequence[NamedImage]) -> tuple[Pixels, Pixels]:
    first, second = (
        next(masks_at(data, data.parts[image.part], np.array([image.position]))) for image in group[:2]
    )
    return first, second


def _apart(first: Pixels, second: Pixels) -> float:
    """Returns the share of pixels in which two masks differ; all if they have different sizes."""
    return float((first != second).mean()) if first.shape == second.shape else 1.0
