"""Scores the masks of the best trial's weights for the report, and draws the worst images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from search.reporting.answered import MaskClass, ReportedMasks, WorstMask
from search.reporting.overlays import class_colours, in_hexadecimal, panels
from trainable.data import DataSet
from trainable.data.source import Pixels
from trainable.errors import UserError
from trainable.recipe.tasks import IGNORED
from trainable.tasks.segmentation.answers import MaskAnswers
from trainable.tasks.segmentation.answers import MaskAnswers as AnswersOfImages
from trainable.tasks.segmentation.data.parts import (
    MaskedPart,
    MaskedSource,
    image_planes,
    masked,
    planes_of,
)
from trainable.tasks.segmentation.predicted import KeptMasks
from trainable.training.bootstrap import Intervals, resampled_scores
from trainable.training.evaluate import Scores
from trainable.training.run import Run

WORST = 12  # so many of the worst images are shown


def mask_answers(trial: int, run: Run, images: DataSet) -> ReportedMasks:
    """Return what a run's weights answer on the validation part. Raises UserError if it is not finite."""
    kept = KeptMasks()
    scores = run.score("validation", confusion=True, answers=True, take=kept.take)
    sure = resampled_scores(scores, run.extra_metrics, run.recipe.loop.seed)
    if not isinstance(scores.by_image, AnswersOfImages) or scores.confusion is None or sure is None:
        raise UserError("the weights of the best trial answer nothing finite")
    return ReportedMasks(
        trial=trial,
        images=scores.images,
        pixels=sum(map(sum, scores.confusion)),
        accuracy=scores.accuracy,
        mean_iou=scores.extra["mean_iou"],
        mean_dice=scores.extra["mean_dice"],
        classes=mask_classes(run.info.classes, scores, sure.intervals()),
        confusion=scores.confusion,
        worst=worst_images(images, kept, scores.by_image),
    )


def mask_classes(names: Sequence[str], scores: Scores, sure: Intervals) -> tuple[MaskClass, ...]:
    """Return the scores of each class of pixels."""
    assert scores.confusion is not None
    counts, colours = np.array(scores.confusion), class_colours(len(names))
    true, predicted, right = counts.sum(1), counts.sum(0), counts.diagonal()
    boundaries = scores.by_class.get("boundary_f1", (None,) * len(names))
    found = []
    for at, name in enumerate(names):
        low, high = sure.by_class["iou"][at] or (None, None)
        found.append(
            MaskClass(
                name=name,
                colour=in_hexadecimal(colours[at]),
                pixels=int(true[at]),
                iou=scores.by_class["iou"][at],
                low=low,
                high=high,
                dice=scores.by_class["dice"][at],
                boundary_f1=boundaries[at],
                recall=float(right[at] / true[at]) if true[at] else None,
                precision=float(right[at] / predicted[at]) if predicted[at] else None,
            )
        )
    return tuple(found)


def worst_images(data: DataSet, kept: KeptMasks, answers: MaskAnswers) -> tuple[WorstMask, ...]:
    """Return the images with the lowest mean IoU, the worst first, without those that are all right."""
    ious, colours = answers.mean_ious(), class_colours(len(data.info.classes))
    right, counted = answers.right.sum(1), answers.true.sum(1)
    return tuple(
        WorstMask(
            name=data.validation.name(at),
            mean_iou=float(ious[at]),
            accuracy=float(right[at] / counted[at]),
            **panels(*_shown(data, at), kept.mask(at), colours),
        )
        for at in np.argsort(ious, kind="stable")[:WORST].tolist()
        if ious[at] < 1.0
    )


def _shown(data: DataSet, position: int) -> tuple[Pixels, Pixels]:
    """Return a validation image, uint8 [C, H, W], and its true mask, uint8 [H, W]."""
    part, channels = masked(data.validation), data.info.channels
    if isinstance(part, MaskedPart):
        planes = next(image_planes(part, np.array([position]), channels))
    else:
        source = part.selection.source
        assert isinstance(source, MaskedSource)
        planes = planes_of(source, int(part.selection.indices[position]), channels)
    return planes[:-1], IGNORED - planes[-1]
