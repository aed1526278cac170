"""Checks that the classes have the same shares of pixels in all parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from trainable.checks.comparing import MOVED, NAMED, SURE, PartDifference, PartWords, compare_parts
from trainable.checks.finding import Finding
from trainable.checks.two_samples import Floats
from trainable.data import DataSet, Split
from trainable.data.source import Integers

DRAWS = 4_000  # images are divided at random so often: one in 1,000 is then known to a half of it
FEWEST = 8  # of fewer images in a part, any division may be luck

WORDS = PartWords(
    test=(
        "pixel accuracy on test images is another than on validation images, even if each class is known as "
        "well",
        "take validation images with the test's shares of classes; the mean IoU depends on shares less",
    ),
    validation=(
        "the network learns classes by other shares than it is scored by",
        "let tunebook split (it keeps rare classes in proportion), or count classes alike: task.loss.dice: 1",
    ),
    both=(
        "recipes are chosen by the shares of the test part, but trained with others",
        "nothing, if the test's shares are the real ones; else count classes alike: task.loss.dice: 1",
    ),
)


def check_pixel_shares(data: DataSet, pixels: Mapping[Split, Integers]) -> Iterator[Finding]:
    """Yield a finding for validation against training, and for the test part against both, from the pixels of
    each class, [n, K], in the images of each part."""
    yield from compare_parts(
        "label shares",
        pixels,
        lambda first, second: np.concatenate([first, second]),
        lambda first, second: pixel_difference(first, second, data.info.classes),
        WORDS,
    )


def pixel_difference(first: Integers, second: Integers, classes: tuple[str, ...]) -> PartDifference | None:
    """Return how the shares of pixels differ between images with so many of each class, [n, K] and [m, K].

    Pixels of one image are alike, so images are divided at random again: p is how often parts then differ as
    much (a permutation test, Fisher 1935).
    """
    shown = [int((each.sum(axis=1) > 0).sum()) for each in (first, second)]
    if min(shown) < FEWEST:
        return None
    both, size = np.concatenate([first, second]).astype(np.float64), len(second)
    apart = _share(second) - _share(first)
    moved = float(np.abs(apart).sum()) / 2
    random, total = np.random.default_rng(0), both.sum(axis=0)
    drawn = np.stack([both[random.permutation(len(both))[:size]].sum(axis=0) for _ in range(DRAWS)])
    by_luck = np.abs(_shares(drawn) - _shares(total - drawn)).sum(axis=1) / 2
    chance = float((1 + (by_luck >= moved - 1e-12).sum()) / (1 + DRAWS))
    what = f"classes differ in share by {moved:.0%} of the pixels (permutation test: p = {chance:.2g})"
    if not (moved >= MOVED and chance < SURE):
        return PartDifference(False, what)
    most = np.argsort(-np.abs(apart), kind="stable")[:NAMED]
    shares = _share(first), _share(second)
    named = [f"{classes[each]} {shares[1][each]:.0%} against {shares[0][each]:.0%}" for each in most]
    return PartDifference(True, f"{what}, most {', '.join(named)}")


def _share(pixels: Integers) -> Floats:
    """Return the share of each class, [K], in the pixels of images, [n, K]."""
    shares: Floats = _shares(pixels.sum(axis=0)[None].astype(np.float64))[0]
    return shares


def _shares(pixels: Floats) -> Floats:
    """Return the share of each class in each row, [n, K]."""
    shares: Floats = pixels / np.maximum(pixels.sum(axis=1, keepdims=True), 1.0)
    return shares
