"""Defines what the report holds of the best trial's answers: labels of images, or masks."""

from __future__ import annotations

from typing import Literal

from trainable.recipe.base import Spec

ScoreShare = float  # a share in [0, 1]


class ClassScore(Spec):
    """The scores of one class."""

    name: str
    images: int
    recall: ScoreShare | None
    precision: ScoreShare | None
    f1: ScoreShare | None


class Mistake(Spec):
    """One wrong answer."""

    true: str
    predicted: str
    probability: ScoreShare  # of the predicted class
    probability_true: ScoreShare
    thumbnail: str  # the image, as a data URI


class ReportedLabels(Spec):
    """What the best trial's weights answer on a part."""

    trial: int
    # a search never looks at the test part, and neither does its report
    part: Literal["validation"] = "validation"
    images: int
    accuracy: ScoreShare
    classes: tuple[ClassScore, ...]
    # confusion[true][predicted] counts images; empty where there are too many classes for a matrix
    confusion: tuple[tuple[int, ...], ...]
    # There, the most frequent confusions: the true class, the answer, and how many images
    confused: tuple[tuple[str, str, int], ...] = ()
    mistakes: tuple[Mistake, ...]


class MaskClass(Spec):
    """The scores of one class of pixels; None where the class is in no mask and no answer."""

    name: str
    colour: str  # its colour in the pictures, as #e69f00
    pixels: int
    iou: ScoreShare | None
    low: ScoreShare | None
    high: ScoreShare | None  # the 95 % interval of the IoU, by resampling images
    dice: ScoreShare | None
    boundary_f1: ScoreShare | None = None  # None where `evaluation.metrics` does not ask for it, too
    recall: ScoreShare | None
    precision: ScoreShare | None


class WorstMask(Spec):
    """One of the images that are answered worst; pictures are data URIs."""

    name: str  # the image's path in the data set, or its number
    mean_iou: ScoreShare  # over the classes that its mask or the answer has
    accuracy: ScoreShare
    image: str
    truth: str
    prediction: str
    errors: str  # where the prediction is wrong


class ReportedMasks(Spec):
    """The masks that the best trial's weights answer on a part."""

    trial: int
    part: Literal["validation"] = "validation"
    images: int
    pixels: int  # those that count
    accuracy: ScoreShare
    mean_iou: ScoreShare
    mean_dice: ScoreShare
    classes: tuple[MaskClass, ...]
    confusion: tuple[tuple[int, ...], ...]  # confusion[true][predicted] counts pixels
    worst: tuple[WorstMask, ...]  # the images with the lowest mean IoU, the worst first
