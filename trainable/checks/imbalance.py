"""Checks what accuracy hides where some classes have many more images than others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainable.checks.finding import Finding, passed
from trainable.data import DataSet
from trainable.errors import listed
from trainable.training.bootstrap import wilson_interval

LARGE_ODDS = 2.5
"""A class is large if the odds of guessing it right are so many times those among equal classes; ours. Ten
classes that shrink exponentially to a tenth are beyond it, as are two of which one has 72 % of the images."""
WIDE = 0.5
"""An interval of recall with this width says nothing about a class: it has 11 images or fewer."""

HIDDEN = "a recipe that never answers the small classes may have the best accuracy"
UNKNOWN = "nobody can see how well a recipe has learnt these classes"
OBJECTIVE = (
    "search for objective.metric: val_balanced_accuracy; from a ratio of 10 on, such a search also tries "
    "logit adjustment and sampling"
)
MORE = "raise data.validation_fraction, or gather more images of the classes that have few"


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
        return Finding("accuracy", "warning", what, HIDDEN, "; ".join([OBJECTIVE, *([MORE] if few else [])]))
    return Finding("accuracy", "note", what, UNKNOWN, MORE) if few else passed("accuracy", what)


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
