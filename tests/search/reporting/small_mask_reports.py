"""Makes a report of masks from one of labels: invented scores of classes, and one picture that shows all."""

from __future__ import annotations

import numpy as np

from search.reporting.content import MaskClass, Report, ReportedMasks, WorstMask
from search.reporting.mask_answers import class_colours, in_hexadecimal, panels
from trainable.recipe.tasks import IGNORED

NAMES = ("road", "car", "sky")
CONFUSION = ((80, 20, 0), (30, 70, 0), (0, 0, 0))


def mask_report(whole: Report) -> Report:
    """Return a report whose images have masks, otherwise like another one."""
    return whole.model_copy(update={"answers": None, "masks": _masks(whole)})


def _masks(whole: Report) -> ReportedMasks:
    assert whole.answers is not None
    colours = class_colours(3)
    truth = np.repeat(np.array([0, 1, IGNORED], np.uint8), 8)[:, None].repeat(32, 1)
    pictures = panels(np.full((3, 24, 32), 90, np.uint8), truth, np.zeros_like(truth), colours)
    worst = WorstMask(name="images/a <b>.png", mean_iou=0.25, accuracy=0.5, **pictures)
    classes = [
        MaskClass(
            name=name,
            colour=in_hexadecimal(colours[at]),
            pixels=sum(CONFUSION[at]),
            iou=(0.62, 0.58, None)[at],
            low=(0.5, 0.5, None)[at],
            high=(0.7, 0.6, None)[at],
            dice=(0.76, 0.74, None)[at],
            recall=(0.8, 0.7, None)[at],
            precision=(0.73, 0.78, None)[at],
        )
        for at, name in enumerate(NAMES)
    ]
    return ReportedMasks(
        trial=whole.answers.trial,
        images=9,
        pixels=200,
        accuracy=0.75,
        mean_iou=0.6,
        mean_dice=0.75,
        classes=tuple(classes),
        confusion=CONFUSION,
        worst=(worst,) * 2,
    )
