"""Checks the flips that the data allow: do the classes of pixels survive them (training tricks notes,
000:22)?"""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainable.checks.finding import CheckName, Finding, passed, unchecked
from trainable.checks.flips import HARMLESS_LOSS, LEAST_SKILL, LOST_SKILL, SURE_DROP
from trainable.checks.mask_teaching import MaskLesson
from trainable.data.source import Flip


def check_mask_flips(lesson: MaskLesson, allowed: tuple[Flip, ...]) -> Iterator[Finding]:
    """Yield whether classes survive the flips that the data allow, and whether they may survive the
    horizontal one: a net that saw no mirror image answers to mirrored windows. Bounds are those of labels."""
    known = lesson.validation
    if not known.is_knowledge or known.skill < LEAST_SKILL:
        for flip in allowed:
            yield unchecked(_check_of(flip), f"the small net knows too little ({known})")
        return
    for flip in allowed:
        yield _allowed(flip, lesson)
    if "horizontal" not in allowed:
        yield _forbidden(lesson)


def _check_of(flip: Flip) -> CheckName:
    return "horizontal flip" if flip == "horizontal" else "vertical flip"


def _in_words(flip: Flip, lesson: MaskLesson) -> str:
    return (
        f"on validation windows a small net has a mean IoU of {lesson.validation.mean_iou:.1%}, on their "
        f"mirror images {lesson.mirrored[flip].mean_iou:.1%}"
    )


def _lost(flip: Flip, lesson: MaskLesson) -> float:
    """Return the share of the net's skill that it has not on mirror images."""
    return 1.0 - lesson.mirrored[flip].skill / lesson.validation.skill


def _allowed(flip: Flip, lesson: MaskLesson) -> Finding:
    known, turned, what = lesson.validation, lesson.mirrored[flip], _in_words(flip, lesson)
    noise = SURE_DROP * known.deviation / math.sqrt(known.images)
    if _lost(flip, lesson) <= LOST_SKILL or known.mean_iou - turned.mean_iou <= noise:
        return passed(_check_of(flip), what)
    pair = lesson.confused[flip]
    swapped = f"; {pair[0]} mirrored is taken for {pair[1]} in {pair[2]:.0%} of its pixels" if pair else ""
    return Finding(
        _check_of(flip),
        "warning",
        what + swapped,
        "the mirror changes classes, or makes images that never occur: as augmentation it teaches wrong ones",
        f"take {flip} out of data.flips",
    )


def _forbidden(lesson: MaskLesson) -> Finding:
    what = _in_words("horizontal", lesson)
    if _lost("horizontal", lesson) > HARMLESS_LOSS:
        return passed("horizontal flip", f"not allowed, and classes do not seem to survive it: {what}")
    return Finding(
        "horizontal flip",
        "note",
        f"not allowed, but harmless to what was learnt: {what}",
        "classes seem to survive it: it would be free augmentation, if you know that no class changes",
        "data.flips: [horizontal]",
    )
