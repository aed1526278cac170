"""Says on the model card what a network for masks takes and gives, and how it scores on each class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainable.bundle.markdown import between, code, numbers, table
from trainable.data import DataInfo
from trainable.data.loading import statistics_of
from trainable.recipe import Recipe
from trainable.recipe.tasks import Segmentation
from trainable.recipe.training import Evaluation
from trainable.training.bootstrap import Intervals
from trainable.training.evaluate import Scores

TITLES = {"iou": "IoU", "dice": "Dice", "boundary_f1": "boundary F1"}


def mask_input(recipe: Recipe, info: DataInfo) -> str:
    """Return the table of what goes in and what comes out."""
    assert isinstance(recipe.task, Segmentation), "masks are of a segmentation"
    (mean, std), side = statistics_of(recipe.data, info), info.image_size
    rows = {
        "images": f"of any height and width, {colours_of(info)}, upright (`predict.py` turns them as EXIF "
        "says)",
        "windows": f"float32 [N, {side}, {side}, {info.channels}], levels in [0, 255]: a larger image is cut "
        f"into windows that overlap by {recipe.task.overlap:.0%} of their side or more, and their logits are "
        "averaged; a smaller one is filled up with black (0)",
        "inside": f"on [0, 1], normalised by mean {numbers(mean)} and std {numbers(std)}",
        "views": views_in_words(recipe.evaluation),
        "logits": f"float32 [N, {len(info.classes)}, {side}, {side}], in the order of the classes; computed "
        "in fp32",
        "masks": f"`predict.py` writes {_values(info)}",
    }
    return table(("", "what"), rows.items())


def _values(info: DataInfo) -> str:
    pairs = zip(info.mask_values or range(len(info.classes)), info.classes, strict=True)
    return "the values of the training masks: " + ", ".join(f"{value} {code(name)}" for value, name in pairs)


def views_in_words(evaluation: Evaluation) -> str:
    """Return how often the network sees an image."""
    if not evaluation.flip and len(evaluation.scales) == 1:
        return "one"
    mirrored = ", each mirrored too" if evaluation.flip else ""
    return f"the mean over scales {numbers(evaluation.scales)}{mirrored}"


def colours_of(info: DataInfo) -> str:
    return "grey" if info.channels == 1 else "RGB"


def by_class_rows(
    names: Sequence[str], scores: Scores, sure: Intervals
) -> tuple[Sequence[str], Iterator[Sequence[str]]]:
    """Return the head and the rows of a table of the scores of each class, with their 95 % intervals."""
    found = scores.by_class
    head = ["class", *(column for name in found for column in (TITLES[name], "95 % interval"))]

    def cells(at: int) -> Iterator[str]:
        for name, values in found.items():
            value = values[at]
            yield "" if value is None else f"{value:.4f}"
            yield between(sure.by_class[name][at])

    return head, ([code(name), *cells(at)] for at, name in enumerate(names))
