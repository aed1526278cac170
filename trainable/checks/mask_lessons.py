"""Checks that masks can be learnt, and how sure a score of the validation images is."""

from __future__ import annotations

import math
from collections.abc import Iterator

from trainable.checks.finding import Finding, Level, passed, unchecked
from trainable.checks.labels import NOISE_POINTS
from trainable.checks.learning import LEAST_STEPS
from trainable.checks.mask_association import MaskAssociation
from trainable.checks.mask_flips import check_mask_flips
from trainable.checks.mask_teaching import MaskLesson, teach_masks
from trainable.checks.subject import Subject

HEART = 2.0
"""Masks are learnt by heart where so many times as much is gained on training images; ours."""


def check_mask_lessons(subject: Subject, seconds: float) -> Iterator[Finding]:
    """Yield findings about what a small net learns from the masks, whatever the recipe's network is."""
    lesson = teach_masks(subject, seconds)
    if isinstance(lesson, Finding):
        yield lesson
        return
    yield from check_masks_learnt(lesson, len(subject.data.validation))
    yield from check_mask_flips(lesson, subject.data.info.flips)


def check_masks_learnt(lesson: MaskLesson, images: int) -> Iterator[Finding]:
    """Yield whether what is learnt from training images holds for validation images, and how much a score of
    so many validation images varies."""
    known = lesson.validation
    what = f"a small net after {lesson.steps} steps: {known.images:,} windows of validation images: {known}"
    if known.is_knowledge:
        yield passed("learning", what)
        yield _validation_size(known, images)
        return
    if lesson.steps < LEAST_STEPS:
        why = f"there was only time for {lesson.steps} steps"
        yield unchecked("learning", why, "give it more time: --seconds")
        return
    what = f"{what}; of training images: {lesson.train}"
    look = "look at some images with their masks, and at how their names are paired"
    if lesson.train.is_knowledge and lesson.train.gain > HEART * known.gain:
        means = (
            "what is learnt by heart does not help with other images: masks do not belong to their images, "
            "or not in the same way in both parts"
        )
        yield Finding("learning", "error", what, means, look)
        return
    level: Level = "note" if known.is_sure else "warning"
    means = (
        f"a small net learns {'little' if known.is_sure else 'nothing'} of where classes are in an image: "
    )
    means += "they are hard to tell apart at this size, or masks are those of other images"
    yield Finding("learning", level, what, means, look)


def _validation_size(known: MaskAssociation, images: int) -> Finding:
    points = 100.0 * known.deviation / math.sqrt(images)
    what = (
        f"{images:,} validation images: the mean IoU of one differs by {100 * known.deviation:.0f} points "
        f"from that of another, so a score of all has a standard error of about {points:.1f} points"
    )
    if points <= NOISE_POINTS:
        return passed("validation size", what)
    return Finding(
        "validation size",
        "warning",
        what,
        "recipes that differ by less cannot be told apart for sure: a search would pick one by luck",
        "raise data.validation_fraction, or gather more images",
    )
