"""Tests what a lesson on masks says of mirror images."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainable.data.source import Flip
from trainable.tasks.segmentation.checks.association import MaskAssociation
from trainable.tasks.segmentation.checks.learning import MaskLesson, check_mask_flips


def known(mean_iou: float, images: int = 100) -> MaskAssociation:
    return MaskAssociation(images, mean_iou, 0.2, 40.0, 0.8, 0.2)


def lesson(mirrored: float, images: int = 100) -> MaskLesson:
    flips: tuple[Flip, ...] = ("horizontal", "vertical")
    scores = dict.fromkeys(flips, known(mirrored, images))
    return MaskLesson(known(0.8), known(0.8, images), scores, dict.fromkeys(flips), 200, 12.0)


@pytest.mark.parametrize(
    ("allowed", "mirrored", "level", "can_tell"),
    [
        (("horizontal",), 0.8, "passed", True),
        (("horizontal",), 0.3, "warning", True),
        (("horizontal",), 0.6, "note", False),
        ((), 0.8, "note", True),
        ((), 0.3, "passed", True),
        ((), 0.77, "note", False),
    ],
)
def test_a_flip_is_judged_where_images_can_tell(
    allowed: tuple[Flip, ...], mirrored: float, level: str, can_tell: bool
) -> None:
    (found,) = check_mask_flips(lesson(mirrored), allowed)
    assert (found.check, found.level) == ("horizontal flip", level)
    assert found.what.startswith("cannot tell: ") != can_tell


@pytest.mark.parametrize(("hurried", "memorised"), [(True, False), (False, True)])
@pytest.mark.parametrize("mirrored", [0.8, 0.3])
def test_neither_the_clock_nor_what_is_known_by_heart_decides(
    hurried: bool, memorised: bool, mirrored: float
) -> None:
    learnt = replace(lesson(mirrored), hurried=hurried, memorised=memorised)
    (found,) = check_mask_flips(learnt, ("horizontal",))
    assert found.level == "note"
    assert found.what.startswith("cannot tell: ")
    assert ("--seconds " in found.do) == hurried
