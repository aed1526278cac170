"""Splits images so that all images of a group are in one part: a patient, a series, an origin.

scikit-learn's StratifiedGroupKFold makes folds of equal size alone: 15 % would need 20 folds, and so at least
20 groups; and it leaves out classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainable.data.source import Integers
from trainable.data.split import REDRAWN, SplitPlan
from trainable.errors import DataError, listed

GROUPED = 2  # this purpose of a shuffle has its own stream, beside those of `split`

# The numbers of parts; 0 is for training. A group may leave training while so many others remain there.
VALIDATION, TEST = 1, 2
ATTEMPTS = 50  # so many orders of the groups are tried where classes would be missing in a part

Split3 = tuple[Integers, Integers, Integers]


@dataclass(frozen=True)
class Group:
    """How many images of which classes a group has."""

    labels: Integers  # the classes of its images, each once
    counts: Integers  # the number of images of each of these classes


class _NotInEachPart(Exception):
    """Names the class that is missing in a part."""


def grouped_split(labels: Integers, groups: Sequence[str], classes: Sequence[str], plan: SplitPlan) -> Split3:
    """Return positions of the training, validation and test images, ascending; test is empty at fraction 0.

    All images of a group are in one part, and each class is in every part. Groups are taken in random order,
    one after the other, while that brings the classes' shares nearer to the fraction. Where each group has
    images of one class, a class misses its fraction by at most half of its largest group, or has a single
    group in the part. With `plan.validation_seed` the test part stays, and the validation part is drawn by
    that from the others. Raises DataError if a class has fewer groups than there are parts, or no order of
    the groups was found that leaves each class in each part.
    """
    plan.check()
    names, of_image = np.unique(np.array(groups, dtype=object), return_inverse=True)
    found = _groups(labels, of_image, len(names))
    _check_groups(found, labels, classes, needed=3 if plan.test > 0.0 else 2)
    everything = np.zeros(len(found), np.int64)
    wanted = {TEST: plan.test, VALIDATION: plan.validation}
    part = _drawn(found, labels, classes, everything, wanted, (plan.seed, GROUPED))
    if plan.validation_seed is not None:
        only_test = np.where(part == TEST, TEST, 0)
        wanted = {VALIDATION: plan.validation}
        part = _drawn(found, labels, classes, only_test, wanted, (plan.validation_seed, REDRAWN))
    return tuple(np.flatnonzero(part[of_image] == each) for each in range(3))  # type: ignore[return-value]


def _drawn(
    groups: Sequence[Group],
    labels: Integers,
    classes: Sequence[str],
    before: Integers,
    fractions: Mapping[int, float],
    seed: tuple[int, int],
) -> Integers:
    """Return each group's part, by the first order of the groups that leaves each class in each part."""
    for attempt in range(ATTEMPTS):
        luck = np.random.default_rng([seed[0], attempt, seed[1]])
        try:
            return _parts_of(groups, labels, classes, before.copy(), fractions, luck)
        except _NotInEachPart as error:
            missing = error
    raise DataError(
        f"data.group: no way was found to keep each group in one part and have class {missing} in every "
        "part; use coarser classes or finer groups, or say the parts yourself"
    )


def _groups(labels: Integers, of_image: Integers, count: int) -> list[Group]:
    order = np.argsort(of_image, kind="stable")
    ends = np.cumsum(np.bincount(of_image, minlength=count))
    return [Group(*np.unique(each, return_counts=True)) for each in np.split(labels[order], ends[:-1])]


def _check_groups(groups: Sequence[Group], labels: Integers, classes: Sequence[str], needed: int) -> None:
    held, images = _groups_by_class(groups, len(classes)), np.bincount(labels, minlength=len(classes))
    few = held < needed
    if not few.any():
        return
    small = [f"{classes[label]!r} has {held[label]}" for label in np.flatnonzero(few).tolist()]
    most, others = int(images[few].max()), images[~few]
    may_leave_out = len(others) > 1 and others.min() > most  # by images, and without losing other classes
    raise DataError(
        f"data.group: too few groups to split: class {listed(small, 20)}; {needed} are needed, one for each "
        "part. Make finer groups, or say the parts yourself, by folders train, val and test or a column"
        + (f", or leave such classes out by data.min_images: {most + 1}" if may_leave_out else "")
    )


def _groups_by_class(groups: Sequence[Group], classes: int) -> Integers:
    held = np.zeros(classes, np.int64)
    for group in groups:
        held[group.labels] += 1
    return held


def _parts_of(
    groups: Sequence[Group],
    labels: Integers,
    classes: Sequence[str],
    part: Integers,
    fractions: Mapping[int, float],
    luck: np.random.Generator,
) -> Integers:
    """Draw parts from the groups that are in training, 0, and return each group's part. The test part comes
    first, so that it does not depend on the validation fraction."""
    sizes = np.bincount(labels, minlength=len(classes))
    for number, fraction in fractions.items():
        if fraction > 0.0:
            free = luck.permutation(np.flatnonzero(part == 0))
            taken = _taken([groups[each] for each in free], sizes, classes, fraction, least=number)
            part[free[taken]] = number
    return part


def _taken(
    groups: Sequence[Group], sizes: Integers, classes: Sequence[str], fraction: float, least: int
) -> list[int]:
    """Return positions of the groups that make a part. At least `least` groups of each class remain."""
    missing = -fraction * sizes.astype(np.float64)
    remaining, here = _groups_by_class(groups, len(classes)), np.zeros(len(classes), np.int64)
    taken: dict[int, None] = {}
    of_class: list[list[int]] = [[] for _ in classes]
    for position, group in enumerate(groups):
        for label in group.labels.tolist():
            of_class[label].append(position)

    def gain(group: Group) -> float:
        before = missing[group.labels]
        return float(((before**2 - (before + group.counts) ** 2) / sizes[group.labels]).sum())

    def take(position: int) -> None:
        group = groups[position]
        missing[group.labels] += group.counts
        remaining[group.labels] -= 1
        here[group.labels] += 1
        taken[position] = None

    def may_go(group: Group) -> bool:
        return bool((remaining[group.labels] > least).all())

    for position, group in enumerate(groups):
        if may_go(group) and gain(group) > 0.0:
            take(position)
    for label in np.flatnonzero(here == 0).tolist():
        if here[label]:
            continue
        others = [each for each in of_class[label] if each not in taken and may_go(groups[each])]
        if not others:
            raise _NotInEachPart(repr(classes[label]))
        take(max(others, key=lambda each: gain(groups[each])))
    return list(taken)
