"""Checks the labels alone: does every class occur, are they balanced, can validation distinguish recipes?"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trainable.checks.finding import Finding, passed
from trainable.data import DataSet
from trainable.data.part_names import none_leaves_out
from trainable.errors import listed
from trainable.recipe.data import Unscored

LEAST_BALANCE = 0.1
"""This is the smallest class over the largest:
beyond ten to one, accuracy is mostly that of the large classes."""

FEWEST = 5
"""A class with fewer training images is learnt by heart or not at all."""

NOISE_POINTS = 5.0
"""A standard error of validation accuracy, at its largest (accuracy 0.5), above so many points hides most
differences between recipes: the gains of the documents' table (PaddleClas guide, 003:70-82) are about one
point each."""

# Lists and folders write so where an image has no label; such a class may be meant all the same
NO_LABEL_NAMES = frozenset({"-1", "nan", "na", "n/a", "none", "null", "?", "unlabeled", "unlabelled"})

NEVER_TRAINED = "; data.min_images: 1 leaves out classes without training images"


def check_labels(data: DataSet, unscored: Unscored = "refuse") -> Iterator[Finding]:
    """Yield findings about class counts and the size of the validation part; `unscored` is the recipe's
    choice for classes that no validation image shows."""
    missing = list(_missing(data, unscored))
    if data.info.left_out_in_words:
        yield Finding(
            "class balance",
            "note",
            data.info.left_out_in_words,
            "the network will take their images for other classes",
            "nothing, if they are not to be learnt; else gather more of them, and lower data.min_images",
        )
    yield from missing
    yield from _named_like_no_label(data)
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
                "they cannot be learnt"
                if name == "train"
                else "nobody will see how well they are learnt: scores are means over the other classes",
                f"give the {name} part images of every class{none_leaves_out(name) or NEVER_TRAINED}",
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
        )
    if held[least] < FEWEST:
        return Finding(
            "class balance",
            "warning",
            what,
            "so few images are learnt by heart",
            "gather more, or start from pretrained weights (model.weights)",
        )
    return passed("class balance", what)


def _validation_size(images: int) -> Finding:
    points = 100.0 * math.sqrt(0.25 / images)
    what = f"{images:,} validation images: accuracy has a standard error of up to {points:.1f} points"
    if points <= NOISE_POINTS:
        return passed("validation size", what)
    return Finding(
        "validation size",
        "warning",
        what,
        "recipes that differ by less cannot be told apart: a search would pick one by luck",
        "raise data.validation_fraction, or gather more images",
    )
