"""Decides which image is in which part: the data's own parts, or parts that are split off; then the limit.

Splits are stratified, seeded, and depend on nothing but labels, groups and seed. All images of a group (a
patient, a series, an origin) are in one part. scikit-learn's StratifiedGroupKFold makes folds of equal size
alone: 15 % would need 20 folds, and so at least 20 groups; and it leaves out classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

import numpy as np

from trainable.array_types import Integers
from trainable.data.measure import some
from trainable.data.parts import Members
from trainable.data.source import LEFT_OUT, Collection, Selection, Source
from trainable.errors import DataError, listed
from trainable.recipe.data import Data, Split

SPLIT, LIMIT, GROUPED, REDRAWN = range(4)  # the purposes of a shuffle; each has its own stream

# The numbers of parts; 0 is for training. A group may leave training while so many others remain there.
VALIDATION, TEST = 1, 2
ATTEMPTS = 50  # so many orders of the groups are tried where classes would be missing in a part

Split3 = tuple[Integers, Integers, Integers]  # positions of the training, validation and test images


class SplitPlan(NamedTuple):
    """The fractions of the images that validate and that test, and the seeds by which they are drawn."""

    validation: float
    test: float
    seed: int
    validation_seed: int | None = None  # draws the validation part anew, and leaves the test part as it is

    def check(self) -> None:
        """Raise DataError if nothing would be left to train on."""
        if self.validation + self.test >= 1.0:
            fractions = f"data.validation_fraction {self.validation:g} and data.test_fraction {self.test:g}"
            raise DataError(f"{fractions} leave nothing to train on; lower one of them")


def stratified_split(labels: Integers, classes: Sequence[str], plan: SplitPlan) -> Split3:
    """Return positions of the training, validation and test images, ascending; test is empty at fraction 0.

    Each class gives the nearest whole number to its fraction, at least one image to every part. The images of
    the test part do not depend on the validation fraction, nor on its seed. Raises DataError if a
    class is too small, or nothing would be left to train on.
    """
    plan.check()
    _check_sizes(labels, classes, needed=3 if plan.test > 0.0 else 2)
    parts: list[list[Integers]] = [[], [], []]
    for label in range(len(classes)):
        members = _shuffled(np.flatnonzero(labels == label), plan.seed, label, SPLIT)
        tested = _share(len(members), plan.test, most=len(members) - 2)
        validated = _share(len(members), plan.validation, most=len(members) - tested - 1)
        others = members[tested:]
        if plan.validation_seed is not None:
            others = _shuffled(others, plan.validation_seed, label, REDRAWN)
        cuts = (others[validated:], others[:validated], members[:tested])
        for part, cut in zip(parts, cuts, strict=True):
            part.append(cut)
    train, validation_part, test_part = (np.sort(np.concatenate(part)) for part in parts)
    return train, validation_part, test_part


def stratified_limit(labels: Integers, classes: Sequence[str], count: int, seed: int) -> Integers:
    """Return positions, ascending, of `count` images in the labels' proportions,
    at least one of every class.

    It returns all of them if there are no more than `count`. A smaller count takes a subset of what a larger
    one takes, up to rounding. Raises DataError if there are more classes than `count`.
    """
    if count >= len(labels):
        return np.arange(len(labels))
    if count < len(classes):
        raise DataError(
            f"data.train_limit {count} is below the number of classes, {len(classes)}; raise it, or leave "
            "small classes out by data.min_images"
        )
    sizes = np.bincount(labels, minlength=len(classes))
    shares = 1 + _apportion(count - len(classes), sizes - 1)
    chosen = [
        _shuffled(np.flatnonzero(labels == label), seed, label, LIMIT)[:share]
        for label, share in enumerate(shares)
    ]
    return np.sort(np.concatenate(chosen))


def some_of_each_class(labels: Integers, most: int) -> Integers:
    """Return at most `most` positions, ascending, always the same ones: in the labels' proportions, at least
    one of every class that the labels have; of more classes than `most`, at random."""
    present, numbers = np.unique(labels, return_inverse=True)
    if len(present) > most:
        return some(len(labels), most)
    return stratified_limit(numbers, tuple(map(str, present)), most, seed=0)


def _check_sizes(labels: Integers, classes: Sequence[str], needed: int) -> None:
    sizes = np.bincount(labels, minlength=len(classes))
    small = [f"{name!r} has {size}" for name, size in zip(classes, sizes, strict=True) if size < needed]
    if small:
        raise DataError(
            f"too few images to split: class {', '.join(small)}; {needed} are needed, one for each part; "
            f"data.min_images: {needed} leaves such classes out"
        )


def _share(size: int, fraction: float, most: int) -> int:
    """Return a part's images of a class:
    rounded, at least one, and leaving one for each part that follows."""
    return 0 if fraction == 0.0 else min(max(1, round(size * fraction)), most)


def _apportion(seats: int, weights: Integers) -> Integers:
    """Share whole seats in proportion to the weights, by largest remainders; never more than a weight."""
    shares, remainders = np.divmod(seats * weights, weights.sum())
    left = seats - int(shares.sum())
    shares[np.argsort(-remainders, kind="stable")[:left]] += 1
    return shares


def _shuffled(members: Integers, seed: int, label: int, purpose: int) -> Integers:
    return np.random.default_rng([seed, label, purpose]).permutation(members)


@dataclass(frozen=True)
class GroupCounts:
    """How many images of which classes a group has."""

    labels: Integers  # the classes of its images, each once
    counts: Integers  # the number of images of each of these classes


class _NotInEachPart(Exception):
    """A class that is missing in a part."""


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
    groups: Sequence[GroupCounts],
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


def _groups(labels: Integers, of_image: Integers, count: int) -> list[GroupCounts]:
    order = np.argsort(of_image, kind="stable")
    ends = np.cumsum(np.bincount(of_image, minlength=count))
    return [GroupCounts(*np.unique(each, return_counts=True)) for each in np.split(labels[order], ends[:-1])]


def _check_groups(
    groups: Sequence[GroupCounts], labels: Integers, classes: Sequence[str], needed: int
) -> None:
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


def _groups_by_class(groups: Sequence[GroupCounts], classes: int) -> Integers:
    held = np.zeros(classes, np.int64)
    for group in groups:
        held[group.labels] += 1
    return held


def _parts_of(
    groups: Sequence[GroupCounts],
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
    groups: Sequence[GroupCounts], sizes: Integers, classes: Sequence[str], fraction: float, least: int
) -> list[int]:
    """Return positions of the groups that make a part. At least `least` groups of each class remain."""
    missing = -fraction * sizes.astype(np.float64)
    remaining, here = _groups_by_class(groups, len(classes)), np.zeros(len(classes), np.int64)
    taken: dict[int, None] = {}
    of_class: list[list[int]] = [[] for _ in classes]
    for position, group in enumerate(groups):
        for label in group.labels.tolist():
            of_class[label].append(position)

    def gain(group: GroupCounts) -> float:
        before = missing[group.labels]
        return float(((before**2 - (before + group.counts) ** 2) / sizes[group.labels]).sum())

    def take(position: int) -> None:
        group = groups[position]
        missing[group.labels] += group.counts
        remaining[group.labels] -= 1
        here[group.labels] += 1
        taken[position] = None

    def may_go(group: GroupCounts) -> bool:
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


def members_of(collection: Collection, spec: Data) -> Members:
    """Return the images of each part:
    the data's own parts, else parts split from the training images; then the limit.

    Raises DataError if the data define the validation part that a seed is to draw anew.
    """
    if spec.validation_seed is not None and "validation" in collection.parts:
        raise DataError(
            f"data.validation_seed {spec.validation_seed}: {collection.path} has a validation part of its "
            "own, which cannot be drawn anew; data.validation: none leaves it out"
        )
    members = {part: Selection(source, _in_order(source)) for part, source in collection.parts.items()}
    if "validation" not in members:
        train = members["train"]
        members |= {
            part: Selection(train.source, train.indices[positions])
            for part, positions in zip(get_args(Split), _cut(collection, train, spec), strict=True)
            if len(positions)
        }
    if spec.train_limit is not None:
        source, indices = members["train"]
        chosen = _limited(collection, members["train"].labels, spec.train_limit, spec.split_seed)
        members["train"] = Selection(source, indices[chosen])
    return members


def _limited(collection: Collection, labels: Integers, count: int, seed: int) -> Integers:
    """Return the positions of so many training images.

    Of images with masks, where each shows several classes, there may be fewer than strata: then they are
    drawn from all alike.
    """
    names = collection.split_by
    if collection.strata is not None and count < len(names):
        labels, names = np.zeros_like(labels), names[:1]
    return stratified_limit(labels, names, count, seed)


def _in_order(source: Source) -> Integers:
    """Return the images in the order in which a folder of the same images has them, where that is known."""
    order = np.argsort(source.labels, kind="stable") if source.by_class else np.arange(len(source))
    return np.asarray(order[source.labels[order] != LEFT_OUT])


def _cut(collection: Collection, train: Selection, spec: Data) -> Split3:
    """Return positions of the training, validation and test images in the data's training images."""
    test = spec.test_fraction if collection.whole else 0.0
    plan = SplitPlan(spec.validation_fraction, test, spec.split_seed, spec.validation_seed)
    if collection.groups is None:
        groups = None
    else:
        groups = [collection.groups["train"][index] for index in train.indices.tolist()]
    if collection.strata is not None:
        units = train.indices if groups is None else {*groups}
        what = "images" if groups is None else "groups of images"
        _check_enough(collection.path, f"{len(units)} {what}", len(units), 3 if test > 0.0 else 2)
    if groups is None:
        return stratified_split(train.labels, collection.split_by, plan)
    return grouped_split(train.labels, groups, collection.split_by, plan)


def _check_enough(where: str, units: str, count: int, needed: int) -> None:
    """Raise DataError for fewer images with masks, or groups of them, than parts. No class can be left out
    then: with masks a part may lack any."""
    if count < needed:
        raise DataError(
            f"{where}: {units} with masks are too few to split; expected {needed} or more, one for each part"
            + ("; data.test_fraction: 0 splits no test part off" if needed > 2 else "; add images")
        )
