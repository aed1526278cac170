"""The masks that the best trial's weights answer: scores of each class, and pictures of the worst images.

Pictures of training images with their masks, a class at a time, are drawn in the same colours.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
from PIL import Image

from search.reporting.content import MaskClass, ReportedMasks, WorstMask
from trainable.array_types import Integers
from trainable.data import DataSet, Part
from trainable.data.source import Pixels
from trainable.errors import UserError
from trainable.recipe.tasks import IGNORED
from trainable.tasks.segmentation.answers import MaskAnswers
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
PANEL_PIXELS = 192  # no side of a picture is longer
# eight colours that readers without red or green tell apart: Okabe and Ito, https://jfly.uni-koeln.de/color
OKABE_ITO = (
    (0, 0, 0),
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
)
# how much of which grey is mixed in: the first eight classes have these colours, the next eight paler ones,
# then darker ones, and so again
TINTS = ((0.0, 0), (0.55, 255), (0.55, 90))
WRONG = (213, 94, 0)
PALEST = 165  # no pixel of an image that is made pale is darker
COVER = 0.6  # so much of a picture is the mask's colour; the rest is the image, in grey
HATCH, STRIPE = 6, 2  # ignored pixels are grey with a brighter stripe, in pixels
DARK, BRIGHT = 110, 200


def mask_answers(trial: int, run: Run, images: DataSet, scored: Integers | None = None) -> ReportedMasks:
    """Return what a run's weights answer on the validation part, or on its images at the `scored` positions.

    Raises UserError if that is not finite.
    """
    kept = KeptMasks()
    scores = run.score("validation", confusion=True, answers=True, take=kept.take, positions=scored)
    sure = resampled_scores(scores, run.extra_metrics, run.recipe.loop.seed)
    if not isinstance(scores.by_image, MaskAnswers) or scores.confusion is None or sure is None:
        raise UserError("the weights of the best trial answer nothing finite")
    return ReportedMasks(
        trial=trial,
        images=scores.images,
        images_of_part=None if scored is None else len(images.validation),
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
    rows = []
    for at, name in enumerate(names):
        low, high = sure.by_class["iou"][at] or (None, None)
        rows.append(
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
    return tuple(rows)


def worst_images(data: DataSet, kept: KeptMasks, answers: MaskAnswers) -> tuple[WorstMask, ...]:
    """Return those of the kept images that have the lowest mean IoU, the worst first."""
    ious, colours = answers.mean_ious(), class_colours(len(data.info.classes))
    right, counted = answers.right.sum(1), answers.true.sum(1)
    positions = kept.positions
    return tuple(
        WorstMask(
            name=data.validation.name(positions[at]),
            mean_iou=float(ious[at]),
            accuracy=float(right[at] / counted[at]),
            **panels(
                *planes(data.validation, positions[at], data.info.channels),
                kept.mask(positions[at]),
                colours,
            ),
        )
        for at in np.argsort(ious, kind="stable")[:WORST].tolist()
    )


def planes(images: Part, position: int, channels: int) -> tuple[Pixels, Pixels]:
    """Return an image of a part, uint8 [C, H, W], and its true mask: classes or IGNORED, uint8 [H, W]."""
    part = masked(images)
    if isinstance(part, MaskedPart):
        found = next(image_planes(part, np.array([position]), channels))
    else:
        source = part.selection.source
        assert isinstance(source, MaskedSource)
        found = planes_of(source, int(part.selection.indices[position]), channels)
    return found[:-1], IGNORED - found[-1]


def class_colours(count: int) -> Pixels:
    """Return the colour of each class, uint8 [count, 3]."""
    colours = np.array(OKABE_ITO, float)
    shades = [(1.0 - part) * colours + part * grey for part, grey in TINTS]
    table = np.concatenate(shades).round().astype(np.uint8)
    found: Pixels = table[np.arange(count) % len(table)]
    return found


def in_hexadecimal(colour: Pixels) -> str:
    return "#" + "".join(f"{each:02x}" for each in colour.tolist())


def panels(image: Pixels, truth: Pixels, predicted: Pixels, colours: Pixels) -> dict[str, str]:
    """Return four pictures as data URIs: the image, its true mask, the predicted one, and its errors.

    The image is uint8 [C, H, W]; masks are classes or IGNORED, uint8 [H, W].
    """
    shown, true = small(image, truth, PANEL_PIXELS)
    _, answer = small(image, predicted, PANEL_PIXELS)
    grey = np.asarray(shown.convert("L"))
    return {
        "image": _as_uri(np.asarray(shown)),
        "truth": _as_uri(tinted(grey, true, colours)),
        "prediction": _as_uri(tinted(grey, answer, colours)),
        "errors": _as_uri(with_errors(grey, true, answer)),
    }


def small(image: Pixels, mask: Pixels, side: int) -> tuple[Image.Image, Pixels]:
    """Return an image and its mask with no side longer than this."""
    height, width = mask.shape
    scale = min(1.0, side / max(width, height))
    size = (max(1, round(scale * width)), max(1, round(scale * height)))
    pixels = np.ascontiguousarray(np.moveaxis(image, 0, -1)).squeeze()
    return (
        Image.fromarray(pixels).convert("RGB").resize(size, Image.Resampling.LANCZOS),
        np.asarray(Image.fromarray(mask).resize(size, Image.Resampling.NEAREST)),
    )


def with_class(image: Image.Image, mask: Pixels, label: int, colour: Pixels) -> str:
    """Return an image as a data URI, with the pixels of one class under its colour and all others pale."""
    grey = np.asarray(image.convert("L"))
    picture = _pale(grey)
    inside = mask == label
    picture[inside] = (0.5 * colour + 0.5 * grey[inside, None]).astype(np.uint8)
    return _as_uri(_hatched(picture, mask))


def tinted(grey: Pixels, mask: Pixels, colours: Pixels) -> Pixels:
    """Return a grey image [H, W] under the colours of a mask [H, W], uint8 [H, W, 3]; ignored pixels are
    hatched."""
    table = np.concatenate([colours, np.zeros((IGNORED + 1 - len(colours), 3), np.uint8)])
    mixed = COVER * table[mask] + (1.0 - COVER) * grey[:, :, None]
    return _hatched(mixed.astype(np.uint8), mask)


def with_errors(grey: Pixels, truth: Pixels, predicted: Pixels) -> Pixels:
    """Return a grey image made pale, with its wrong pixels in one colour, uint8 [H, W, 3]."""
    pale = _pale(grey)
    pale[truth != predicted] = WRONG
    return _hatched(pale, truth)


def _pale(grey: Pixels) -> Pixels:
    return np.repeat((PALEST + (255 - PALEST) * (grey / 255.0)).astype(np.uint8)[:, :, None], 3, axis=2)


def _hatched(picture: Pixels, mask: Pixels) -> Pixels:
    rows, columns = np.indices(mask.shape)
    stripes = np.where((rows + columns) % HATCH < STRIPE, BRIGHT, DARK).astype(np.uint8)
    found: Pixels = np.where((mask == IGNORED)[:, :, None], stripes[:, :, None], picture)
    return found


def _as_uri(picture: Pixels) -> str:
    out = io.BytesIO()
    Image.fromarray(picture).save(out, "JPEG", quality=85, subsampling=0)  # colours keep their edges
    return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"
