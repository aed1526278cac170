"""Checks masks without training a network: which classes they show, of how many pixels, with which shares in
each part, in windows of which size, and whether equal images have equal masks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trainable.array_types import Floats, Integers
from trainable.checks.duplicates import CONTRADICTING
from trainable.checks.finding import MORE_VALIDATION, Advice, Finding, Level, passed
from trainable.checks.sampling import NamedImage
from trainable.checks.short_training import FEWEST
from trainable.checks.two_samples import (
    MOVED,
    NAMED,
    SURE,
    PartAdvice,
    PartDifference,
    PartWords,
    compare_parts,
)
from trainable.data import DataSet, Split
from trainable.data.source import Pixels
from trainable.errors import listed
from trainable.recipe import Recipe
from trainable.recipe.tasks import IGNORED, Segmentation
from trainable.tasks.segmentation.checks.position import check_position
from trainable.tasks.segmentation.checks.sampling import masks_at, positions_within, sizes_of
from trainable.tasks.segmentation.data.survey import count_values

# At most so many masks of a part are looked at, and so many pixels of them: some seconds of decoding
MOST, MOST_PIXELS = 2_000, 2**30

# Below this ratio of its pixels to those of the largest class, a class hardly counts in the cross-entropy,
# while the mean IoU counts it as any other; ours
LEAST_SHARE = 0.01

# From this share on, pixels that are ignored are a fault of the masks rather than a border; ours
MOSTLY = 0.5
# From this share on, masks that are ignored whole are a fault of the set rather than an oddity
MANY_EMPTY = 0.01

# Masks that number objects show 0, 1, ..., n in each image, whatever n is; so do those of classes where an
# image shows all of them, or there are few. From so many classes on, and if so many of the masks do, and not
# all show as many, they number objects; ours.
PREFIX_CLASSES, PREFIX_SHARE = 5, 0.95

EMPTY = 0.25  # from this share on, what is filled up around images costs time for nothing; ours
# A window with less than this share of an image's pixels, a quarter of each side, sees details without what
# they are part of; ours. Larger windows help up to the image's size (000:49).
LITTLE = 1 / 16

# Masks of one image that differ in more than this share of its pixels contradict each other: borders drawn
# twice by hand differ by less, in most images; ours
DIFFERENT = 0.02
GROUPS = 200  # so many images that occur twice are compared by their masks
COPIES = 20  # of an image that occurs more often, so many masks are compared with the first

DRAWS = 4_000  # images are divided at random so often: one in 1,000 is then known to a half of it
FEWEST_SHOWN = 8  # of fewer images in a part, any division may be luck


def check_masks(data: DataSet, recipe: Recipe) -> Iterator[Finding]:
    """Yield findings about the masks of all parts: classes, ignored pixels, values, shares, places, windows.

    Raises DataError naming an image that cannot be decoded.
    """
    counts = count_masks(data)
    yield check_values(data, counts["train"])
    yield from check_classes(data, counts, recipe)
    yield from check_ignored(counts)
    yield from check_pixel_shares(data, {name: each.pixels for name, each in counts.items()})
    yield check_guessing(data, counts["validation"])
    yield check_position(data)
    yield check_window(data)


@dataclass(frozen=True)
class MaskCounts:
    """How many pixels images have of each class, and how many are ignored."""

    pixels: Integers  # [n, K]
    ignored: Integers  # [n]
    of: int  # the part has so many images, of which these are perhaps a sample

    @property
    def extent(self) -> str:
        looked = len(self.ignored)
        return "" if looked == self.of else f" (a sample of {looked:,} of {self.of:,})"

    @property
    def shares(self) -> list[float]:
        """The share of each class in the counted pixels; 0 where none is counted."""
        total = max(1, int(self.pixels.sum()))
        return [count / total for count in self.pixels.sum(axis=0).tolist()]

    @property
    def shown(self) -> list[int]:
        """How many images show each class."""
        found: list[int] = (self.pixels > 0).sum(axis=0).tolist()
        return found


def count_masks(data: DataSet) -> dict[Split, MaskCounts]:
    """Return the counts of each part, of a sample of its masks if there are many."""
    return {name: _counted(data, name) for name in data.parts}


def _counted(data: DataSet, name: Split) -> MaskCounts:
    part = data.parts[name]
    chosen = positions_within(part, MOST, MOST_PIXELS)
    values = np.stack([count_values(np.ascontiguousarray(mask)) for mask in masks_at(data, part, chosen)])
    return MaskCounts(values[:, : len(data.info.classes)], values[:, IGNORED], len(part))


def check_classes(data: DataSet, counts: Mapping[Split, MaskCounts], recipe: Recipe) -> Iterator[Finding]:
    """Yield findings about classes that a part lacks, that few images show, and that have few pixels."""
    for name, found in counts.items():
        absent = [each for each, shown in zip(data.info.classes, found.shown, strict=True) if not shown]
        if absent:
            yield Finding(
                "class balance",
                "error" if name == "validation" else "warning",
                f"{len(absent)} of {len(found.shown)} classes are in no {name} mask: {listed(absent)}"
                f"{found.extent}",
                f"nobody will see how well classes that are in no {name} mask are learnt, and the mean IoU "
                "is that of the others",
                advice=(
                    Advice(f"give the {name} part images of every class"),
                    Advice("split anew (data.split_seed)", "split here"),
                    Advice("take these classes out (task.masks.void)"),
                ),
            )
    yield _fewest_images(data, counts) or _fewest_pixels(data, counts["train"], recipe)


def _fewest_images(data: DataSet, counts: Mapping[Split, MaskCounts]) -> Finding | None:
    names = data.info.classes
    few = {
        part: [f"{names[k]} ({held})" for k, held in enumerate(counts[part].shown) if 0 < held < FEWEST]
        for part in ("train", "validation")
    }
    there = {part: named for part, named in few.items() if named}
    if not there or any(found.extent for found in counts.values()):
        return None
    what = "; ".join(f"classes that few {part} images show: {listed(named)}" for part, named in there.items())
    return Finding(
        "class balance",
        "warning",
        what,
        "a class in so few images is learnt by heart, and its IoU, as much of the mean as any other, is luck",
        advice=(
            Advice("gather more images that show these classes"),
            *MORE_VALIDATION,
            *((Advice("join classes"),) if len(names) > 2 else ()),
        ),
    )


def _fewest_pixels(data: DataSet, train: MaskCounts, recipe: Recipe) -> Finding:
    shares, shown, names = train.shares, train.shown, data.info.classes
    least, most = shares.index(min(shares)), shares.index(max(shares))
    what = (
        f"from {shares[least]:.2%} of the training pixels, in {shown[least]:,} images, of class "
        f"{names[least]} to {shares[most]:.1%}, in {shown[most]:,}, of {names[most]}{train.extent}"
    )
    if shares[least] >= LEAST_SHARE * shares[most] or _counts_small_classes(recipe):
        return passed("class balance", what)
    return Finding(
        "class weights",
        "warning",
        what,
        "the cross-entropy is mostly that of the large classes, and a small one may be missed at no cost",
        "task.loss.dice: 1 counts classes alike (arXiv 1606.04797), regularisation.class_weights nearly so",
    )


def _counts_small_classes(recipe: Recipe) -> bool:
    """Return whether the recipe's loss counts small classes more than their pixels do."""
    assert isinstance(recipe.task, Segmentation)
    loss, spec = recipe.task.loss, recipe.regularisation
    return any((loss.dice, loss.lovasz, loss.focal)) or spec.class_weights.kind != "none"


def check_guessing(data: DataSet, validation: MaskCounts) -> Finding:
    """Return what pixel accuracy hides: what the answer of one class everywhere scores."""
    shares = validation.shares
    most, there = max(shares), sum(share > 0.0 for share in shares)
    return passed(
        "accuracy",
        f"answering {data.info.classes[shares.index(most)]} to every validation pixel scores {most:.0%} "
        f"pixel accuracy, and {most / max(1, there):.0%} mean IoU: read val_mean_iou",
    )


def check_ignored(counts: Mapping[Split, MaskCounts]) -> Iterator[Finding]:
    """Yield findings about pixels that count nowhere."""
    faults = [each for name, found in counts.items() for each in _ignored(name, found)]
    yield from faults
    if not faults:
        total = sum(int(each.ignored.sum() + each.pixels.sum()) for each in counts.values())
        ignored = sum(int(each.ignored.sum()) for each in counts.values())
        yield passed("ignored pixels", f"{ignored / total:.1%} of the pixels are ignored")


def _ignored(name: Split, found: MaskCounts) -> Iterator[Finding]:
    empty = int((found.pixels.sum(axis=1) == 0).sum())
    share = float(found.ignored.sum() / (found.ignored.sum() + found.pixels.sum()))
    do = "look at these masks; if the value is a class of yours, task.masks.ignore_index: null counts it"
    if empty:
        level: Level = "warning" if empty >= MANY_EMPTY * len(found.ignored) else "note"
        yield Finding(
            "ignored pixels",
            "error" if empty == len(found.ignored) else level,
            f"{empty:,} of {len(found.ignored):,} {name} masks are ignored whole{found.extent}",
            "nothing is learnt from these images, and they are scored in nothing",
            do,
        )
    elif share >= MOSTLY:
        yield Finding(
            "ignored pixels",
            "warning",
            f"{share:.0%} of the pixels of {name} masks are ignored{found.extent}",
            "the loss is a mean over all pixels of a window, ignored ones too: steps are as much smaller",
            do,
        )


def check_values(data: DataSet, train: MaskCounts) -> Finding:
    """Return whether masks seem to number objects, in which case their values are no classes."""
    classes, there = len(data.info.classes), train.pixels > 0
    counted = there[there.any(axis=1)]
    prefix = counted[:, 0] & (counted.sum(axis=1) == counted.shape[1] - counted[:, ::-1].argmax(axis=1))
    share, several = float(prefix.mean()), len(np.unique(counted.sum(axis=1))) > 2
    if classes < PREFIX_CLASSES or share < PREFIX_SHARE or not several:
        return passed("mask values", f"{classes} classes, which do not number the objects of an image")
    return Finding(
        "mask values",
        "warning",
        f"{share:.0%} of the training masks have all values from 0 to some number of at most {classes - 1}, "
        "and no other: they seem to number the objects of an image",
        "object 7 of one image is of one class with object 7 of the next: nothing can be learnt",
        "task.masks.values: binary makes one class of all objects",
    )


# --- windows ----------------------------------------------------------------------------------------


def check_window(data: DataSet) -> Finding:
    """Return whether windows are about as large as the training images, or smaller by no more than a few
    times."""
    side, sizes = data.info.image_size, sizes_of(data.train)
    height, width = np.median(sizes, axis=0).astype(int).tolist()
    inside = np.minimum(sizes, side).prod(axis=1) / side**2
    seen = float(np.median(np.minimum(sizes, side).prod(axis=1) / sizes.prod(axis=1)))
    what = f"windows of {side} px, images of mostly {width} x {height} px (width x height)"
    if (empty := 1.0 - float(inside.mean())) >= EMPTY:
        return Finding(
            "window",
            "warning",
            f"{what}: {empty:.0%} of what windows show lies outside of an image",
            "it is black and counts nowhere, but costs as much time as an image, and blurs batch statistics",
            f"data.image_size: {_on_grid(min(height, width))}, or the images' longer side at most",
        )
    if seen < LITTLE:
        return Finding(
            "window",
            "note",
            f"{what}: one shows {seen:.1%} of an image",
            "the network sees details without what they are part of; if they tell the classes, it is enough",
            f"try data.image_size: {_on_grid(min(height, width, 4 * side))}: larger windows help up to the "
            "images' size (training tricks notes, 000:49)",
        )
    return passed("window", what)


def _on_grid(side: int) -> int:
    step = 32 if side >= 64 else 8
    return max(step, side // step * step)


# --- one image with two masks -----------------------------------------------------------------------


def check_mask_contradictions(data: DataSet, groups: Sequence[Sequence[NamedImage]]) -> Finding:
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


SHARES_IN_WORDS = PartWords(
    test=PartAdvice(
        "pixel accuracy on test images is another than on validation images, even if each class is known as "
        "well",
        (
            Advice(
                "take validation images with the test's shares of classes; the mean IoU depends on them less"
            ),
        ),
    ),
    validation=PartAdvice(
        "the network learns classes by other shares than it is scored by",
        (
            Advice("let tunebook split, which keeps rare classes in proportion", "own part"),
            Advice("count classes alike: task.loss.dice: 1"),
        ),
    ),
    both=PartAdvice(
        "recipes are chosen by the shares of the test part, but trained with others",
        (
            Advice(
                "nothing, if the test's shares are the real ones; else count classes alike: task.loss.dice: 1"
            ),
        ),
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
        SHARES_IN_WORDS,
    )


def pixel_difference(first: Integers, second: Integers, classes: tuple[str, ...]) -> PartDifference | None:
    """Return how the shares of pixels differ between images with so many of each class, [n, K] and [m, K].

    Pixels of one image are alike, so images are divided at random again: p is how often parts then differ as
    much (a permutation test, Fisher 1935).
    """
    shown = [int((each.sum(axis=1) > 0).sum()) for each in (first, second)]
    if min(shown) < FEWEST_SHOWN:
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
