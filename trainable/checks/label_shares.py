"""Checks that the classes have the same shares in all parts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.stats import chi2_contingency

from trainable.checks.comparing import Difference, Words, compare_parts
from trainable.checks.finding import Finding
from trainable.data import DataSet
from trainable.data.source import Integers

SURE = 0.001
"""Parts differ if a chi-square test of homogeneity (Pearson 1900) has a smaller p than this, and MOVED."""
MOVED = 0.1
"""At least so large a share of the images of one part would have to be of other classes to have the shares
of the other (the total variation distance). It bounds what shares alone do to accuracy: they change it by no
more than this, times the difference between the best and the worst recall of a class."""
NAMED = 3

DO = "search for objective.metric: val_balanced_accuracy, which shares of classes do not change"
WORDS = Words(
    test=(
        "accuracy on test images is another than on validation images, even if each class is known as well",
        f"take validation images with the test's shares of classes, or {DO}",
    ),
    validation=(
        "the network learns classes by other shares than it is scored by",
        f"let tunebook split (it keeps shares), or {DO}",
    ),
    both=(
        "recipes are chosen by the shares of the test part, but trained with others",
        f"nothing, if the test's shares are the real ones; else {DO}",
    ),
)


def check_label_shares(data: DataSet) -> Iterator[Finding]:
    """Yield a finding for validation against training, and for the test part against both."""
    held = {
        name: np.bincount(part.labels, minlength=len(data.info.classes)) for name, part in data.parts.items()
    }
    yield from compare_parts(
        "label shares",
        held,
        np.add,
        lambda first, second: _difference(first, second, data.info.classes),
        WORDS,
    )


def _difference(first: Integers, second: Integers, classes: tuple[str, ...]) -> Difference:
    shares = first / first.sum(), second / second.sum()
    apart = shares[1] - shares[0]
    moved = float(np.abs(apart).sum()) / 2
    there = first + second > 0
    chance = float(chi2_contingency(np.stack([first, second])[:, there]).pvalue) if there.sum() > 1 else 1.0
    what = f"classes differ in share by {moved:.0%} of the images (chi-square test: p = {chance:.2g})"
    if not (moved >= MOVED and chance < SURE):
        return Difference(False, what)
    most = np.argsort(-np.abs(apart), kind="stable")[:NAMED]
    named = [f"{classes[each]} {shares[1][each]:.0%} against {shares[0][each]:.0%}" for each in most]
    return Difference(True, f"{what}, most {', '.join(named)}")
