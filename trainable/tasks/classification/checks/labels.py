"""Checks the labels alone: classes that are missing, rare or of other shares in a part, and what is scored.

Does every class occur, are they balanced, can validation distinguish recipes, and what does accuracy hide?
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.stats import chi2_contingency

from trainable.array_types import Integers
from trainable.checks.duplicates import CONTRADICTING
from trainable.checks.finding import MORE_VALIDATION, Advice, Finding, passed
from trainable.checks.sampling import NamedImage
from trainable.checks.short_training import FEWEST, NOISE_POINTS
from trainable.checks.two_samples import (
    MOVED,
    NAMED,
    SURE,
    PartAdvice,
    PartDifference,
    PartWords,
    compare_parts,
)
from trainable.curves.levels import TOLD_APART
from trainable.data import DataSet
from trainable.data.groups import IMAGES_A_SERIES
from trainable.data.part_names import none_leaves_out
from trainable.errors import listed
from trainable.recipe.data import Unscored
from trainable.training.metrics import wilson_interval

# The smallest class over the largest: beyond ten to one, accuracy is mostly that of the large classes
LEAST_BALANCE = 0.1

# Lists and folders write so where an image has no label; such a class may be meant all the same
NO_LABEL_NAMES = frozenset({"-1", "nan", "na", "n/a", "none", "null", "?", "unlabeled", "unlabelled"})

NEVER_TRAINED = "; data.min_images: 1 leaves out classes without training images"

# A class is large if the odds of guessing it right are so many times those among equal classes; ours. Ten
# classes that shrink exponentially to a tenth are beyond it, as are two of which one has 72 % of the images.
LARGE_ODDS = 2.5
WIDE = 0.5  # an interval of recall with this width says nothing about a class: it has 11 images or fewer

HIDDEN = "a recipe that never answers the small classes may have the best accuracy"
UNSEEN = "nobody can see how well a recipe has learnt these classes"
OBJECTIVE = Advice(
    "search for objective.metric: val_balanced_accuracy (from a ratio of 10 on, such a search also tries "
    "logit adjustment and sampling)"
)
MORE = (*MORE_VALIDATION, Advice("gather more images of the classes that have few"))

DO = "search for objective.metric: val_balanced_accuracy, which shares of classes do not change"
WORDS = PartWords(
    test=PartAdvice(
        "accuracy on test images is another than on validation images, even if each class is known as well",
        (Advice("take validation images with the test's shares of classes"), Advice(DO)),
    ),
    validation=PartAdvice(
        "the network learns classes by other shares than it is scored by",
        (Advice("let tunebook split, which keeps shares", "own part"), Advice(DO)),
    ),
    both=PartAdvice(
        "recipes are chosen by the shares of the test part, but trained with others",
        (Advice(f"nothing, if the test's shares are the real ones; else {DO}"),),
    ),
    of_accuracy=True,
)


def check_labels(data: DataSet, unscored: Unscored = "refuse") -> Iterator[Finding]:
    """Yield findings about class counts and the size of the validation part; `unscored` is the recipe's
    choice for classes that no validation image shows."""
    missing = list(_missing(data, unscored))
    if data.info.left_out_in_words:
        yield Finding(
            "class balance",
            "note",
            data.info.left_out_in_words,
            "images of a class that is left out will be taken for other classes",
            "nothing, if they are not to be learnt; else gather more of them, and lower data.min_images",
        )
    yield from missing
    yield from _within_class_folders(data)
    yield from _named_like_no_label(data)
    yield from _rare(data)
    yield _balance(data)
    yield _validation_size(len(data.validation))


def _missing(data: DataSet, unscored: Unscored) -> Iterator[Finding]:
    for name, part in data.parts.items():
        held = np.bincount(part.labels, minlength=len(data.info.classes))
        absent = [data.info.classes[label] for label in np.flatnonzero(held == 0)]
        if absent:
            yield Finding(
                "class balance",
                "warning" if name == "test" or (name == "validation" and unscored == "allow") else "error",
                f"{len(absent)} of {len(held)} classes have no {name} image: {listed(absent)}",
                "classes without training images cannot be learnt"
                if name == "train"
                else f"nobody will see how well classes without {name} images are learnt: scores are means "
                "over the others",
                f"give the {name} part images of every class{none_leaves_out(name) or NEVER_TRAINED}",
            )


def _within_class_folders(data: DataSet) -> Iterator[Finding]:
    """Yield a note where class folders have folders of their own with several images each: those may be the
    classes that are meant. So few that they could only be parts of a class are no classes."""
    inner, classes = data.inner_folders, len(data.info.classes)
    if classes < len(inner) <= data.info.train_images // IMAGES_A_SERIES and not data.grouped:
        yield Finding(
            "class balance",
            "note",
            f"the {classes} classes are the uppermost folders; in them are {len(inner):,} folders with "
            f"training images, such as {inner[0]}",
            "all images below one class folder are learnt as one class",
            "nothing, if that is meant; if the lowest folders are the classes, list the images in a CSV file "
            "(docs/how-to/csv.md has the lines that write it)",
        )


def _named_like_no_label(data: DataSet) -> Iterator[Finding]:
    held = np.bincount(data.train.labels, minlength=len(data.info.classes))
    two = len(held) == 2  # -1 and 1 are the classes of many a set
    odd = [
        f"{name} ({count:,} training images)"
        for name, count in zip(data.info.classes, held.tolist(), strict=True)
        if count and name.strip().casefold() in NO_LABEL_NAMES and not (two and name == "-1")
    ]
    if odd:
        one = len(odd) == 1
        yield Finding(
            "class balance",
            "warning",
            f"{'a class is' if one else f'{len(odd)} classes are'} called {listed(odd)}",
            f"if {'the name means that its' if one else 'these names mean that their'} images have no label, "
            f"the network learns {'a class' if one else 'classes'} all the same",
            "list the images in a CSV file, in a column image, and leave them out by data.exclude: FILE and "
            f"data.min_images: 1; nothing, if {'it is a class' if one else 'they are classes'}",
        )


def _balance(data: DataSet) -> Finding:
    held = np.bincount(data.train.labels, minlength=len(data.info.classes))
    there = np.flatnonzero(held)
    least, most = there[held[there].argmin()], there[held[there].argmax()]
    names = data.info.classes
    what = f"from {held[least]:,} training images of class {names[least]} to {held[most]:,} of {names[most]}"
    if held[least] == held[most]:
        what = f"{held[least]:,} training images of every class"
    if held[least] < LEAST_BALANCE * held[most]:
        return Finding(
            "class balance",
            "warning",
            what,
            "accuracy is mostly that of the large classes, and small ones may be ignored at no cost",
            "search for objective.metric: val_balanced_accuracy; gather more of the small classes",
            of_accuracy=True,
        )
    return passed("class balance", what)


def _rare(data: DataSet) -> Iterator[Finding]:
    """Yield a finding about the classes that hardly exist, if there are any."""
    names = data.info.classes
    rare = []
    for part in (data.train, data.validation):
        counts = zip(names, np.bincount(part.labels, minlength=len(names)).tolist(), strict=True)
        if few := [f"{name} ({count})" for name, count in counts if 0 < count < FEWEST]:
            rare.append(f"{listed(few)} in {'training' if part is data.train else 'validation'}")
    if rare:
        leave_out = (Advice("leave them out by data.min_images"),) if len(names) > 2 else ()
        yield Finding(
            "class balance",
            "warning",
            f"classes with fewer than {FEWEST} images: {', '.join(rare)}",
            "some classes hardly exist: they are learnt by heart, and whether their validation images are "
            "right is luck",
            advice=(
                Advice("gather more of them"),
                *MORE_VALIDATION,
                Advice("start from pretrained weights (model.weights)", "from scratch"),
                *leave_out,
            ),
        )


def _validation_size(images: int) -> Finding:
    points, least = 100.0 * math.sqrt(0.25 / images), 100.0 * TOLD_APART / images
    what = (
        f"{images:,} validation images: accuracy has a standard error of up to {points:.1f} points, and two "
        f"recipes are told apart from a difference of {least:.1f} points on ({TOLD_APART} images that one of "
        "them alone has right, McNemar's test), or more where each has mistakes of its own"
    )
    if points <= NOISE_POINTS:
        return passed("validation size", what)
    return Finding(
        "validation size",
        "warning",
        what,
        "the validation part is so small that which of two similar recipes is better is luck",
        advice=(*MORE_VALIDATION, Advice("gather more images")),
    )


# --- what accuracy hides ----------------------------------------------------------------------------


def check_accuracy(data: DataSet) -> Finding:
    """Return what validation accuracy hides: what guessing scores, and which recalls are hardly known."""
    held = np.bincount(data.validation.labels, minlength=len(data.info.classes)).tolist()
    there, share = sum(count > 0 for count in held), max(held) / sum(held)
    largest = data.info.classes[held.index(max(held))]
    what = (
        f"answering {largest} to every validation image scores {share:.0%} accuracy, and {1 / there:.0%} "
        "balanced accuracy"
    )
    few = _few(held, data.info.classes)
    what = "; ".join([what, *few])
    if share * (there - 1) >= LARGE_ODDS * (1.0 - share) and there > 1:
        advice = (OBJECTIVE, *(MORE if few else ()))
        return Finding("accuracy", "warning", what, HIDDEN, advice=advice, of_accuracy=True)
    return Finding("accuracy", "note", what, UNSEEN, advice=MORE) if few else passed("accuracy", what)


def _few(held: Sequence[int], classes: Sequence[str]) -> list[str]:
    """Describe the classes with few images; there may be none."""
    by_count = sorted((count, label) for label, count in enumerate(held) if count)
    few = [(count, classes[label]) for count, label in by_count if _width(count) >= WIDE]
    if not few:
        return []
    count, name = few[0]
    low, high = _if_half_are_right(count)
    named = (
        f"{len(few)} of {len(held)} classes have few validation images: {listed([each for _, each in few])}"
    )
    interval = f"{low:.0%} to {high:.0%} (95 %)"
    return [named, f"if half of the {count} of {name} are right, its recall is {interval}"]


def _width(images: int) -> float:
    low, high = _if_half_are_right(images)
    return high - low


def _if_half_are_right(images: int) -> tuple[float, float]:
    """Return the interval of a class's recall; of an odd number, one fewer than half are right."""
    return wilson_interval(images // 2, images)


# --- shares of the classes in the parts -------------------------------------------------------------


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


def _difference(first: Integers, second: Integers, classes: tuple[str, ...]) -> PartDifference:
    """Return how the counts of classes differ, by a chi-square test of homogeneity (Pearson 1900)."""
    shares = first / first.sum(), second / second.sum()
    apart = shares[1] - shares[0]
    moved = float(np.abs(apart).sum()) / 2
    there = first + second > 0
    chance = float(chi2_contingency(np.stack([first, second])[:, there]).pvalue) if there.sum() > 1 else 1.0
    what = f"classes differ in share by {moved:.0%} of the images (chi-square test: p = {chance:.2g})"
    if not (moved >= MOVED and chance < SURE):
        return PartDifference(False, what)
    most = np.argsort(-np.abs(apart), kind="stable")[:NAMED]
    named = [f"{classes[each]} {shares[1][each]:.0%} against {shares[0][each]:.0%}" for each in most]
    return PartDifference(True, f"{what}, most {', '.join(named)}")


# --- one image with two labels ----------------------------------------------------------------------


def check_contradictions(groups: Sequence[Sequence[NamedImage]], classes: Sequence[str]) -> Finding:
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
