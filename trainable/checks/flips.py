"""Checks the flips that the data allow: do labels survive them (training tricks notes, 000:22)?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainable.checks.finding import CheckName, Finding, passed, unchecked
from trainable.checks.learning import FEW, Lesson
from trainable.data.source import Flip

LOST_SKILL = 0.35
"""If a net loses more than this share of its skill on mirror images, the mirror is said to change labels. A
net that saw no mirror image lost nothing on CIFAR-10, 0.2 on clothes, and 0.6 and more on digits and
signs."""
HARMLESS_LOSS = 0.05
"""A loss of skill up to this share means that a mirror costs nothing."""
LEAST_SKILL = 0.3
"""A net with less skill than this cannot say what a mirror does."""

SURE_DROP = 4.0
"""A drop in accuracy on the same images must be so many standard errors (at most sqrt(0.5 / n) each)."""


def check_flips(lesson: Lesson, allowed: tuple[Flip, ...]) -> Iterator[Finding]:
    """Yield whether labels survive the flips that the data allow, and whether they may survive the
    horizontal one."""
    known = lesson.validation
    if not known.is_sure or known.skill < LEAST_SKILL or known.images < FEW:
        for flip in allowed:
            yield unchecked(_check_of(flip), f"the small net knows too little ({known})")
        return
    for flip in allowed:
        yield _allowed_flip(flip, lesson)
    if "horizontal" not in allowed:
        yield _forbidden_flip(lesson)


def _check_of(flip: Flip) -> CheckName:
    return "horizontal flip" if flip == "horizontal" else "vertical flip"


def _allowed_flip(flip: Flip, lesson: Lesson) -> Finding:
    known, turned = lesson.validation, lesson.horizontal if flip == "horizontal" else lesson.vertical
    lost = 1.0 - turned.skill / known.skill
    what = (
        f"{known.accuracy:.1%} of validation images are right, of their mirror images {turned.accuracy:.1%}"
    )
    noise = SURE_DROP * math.sqrt(0.5 / known.images)
    if lost <= LOST_SKILL or known.accuracy - turned.accuracy <= noise:
        return passed(_check_of(flip), what)
    pair = lesson.confused[flip]
    swapped = f"; {pair[0]} mirrored is taken for {pair[1]} in {pair[2]:.0%}" if pair is not None else ""
    return Finding(
        _check_of(flip),
        "warning",
        what + swapped,
        "the mirror changes labels, or makes images that never occur: as augmentation it teaches wrong ones",
        f"take {flip} out of data.flips",
    )


def _forbidden_flip(lesson: Lesson) -> Finding:
    known, turned = lesson.validation, lesson.horizontal
    what = (
        f"{known.accuracy:.1%} of validation images are right, of their mirror images {turned.accuracy:.1%}"
    )
    if 1.0 - turned.skill / known.skill > HARMLESS_LOSS:
        return passed("horizontal flip", f"not allowed, and labels do not seem to survive it: {what}")
    return Finding(
        "horizontal flip",
        "note",
        f"not allowed, but a net that saw no mirror image knows them as well: {what}",
        "labels seem to survive it: it would be free augmentation, if you know that no label changes",
        "data.flips: [horizontal]",
    )
