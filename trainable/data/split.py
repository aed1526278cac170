"""Decides which image is in which part:
stratified, seeded, and independent of anything but labels and seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trainable.data.measure import some
from trainable.data.source import Integers
from trainable.errors import DataError

# A shuffle has one of these purposes, or `group_split.GROUPED`; each has its own stream
SPLIT, LIMIT, REDRAWN = 0, 1, 3


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


def stratified_split(
    labels: Integers, classes: Sequence[str], plan: SplitPlan
) -> tuple[Integers, Integers, Integers]:
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
