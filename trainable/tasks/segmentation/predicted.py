"""Masks that a trained network predicts: kept, and written with the values of the data set's own masks."""

from __future__ import annotations

import csv
import io
import os
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import final

import numpy as np
from PIL import Image
from torch import Tensor

from trainable.array_types import Integers
from trainable.data import DataSet, Split
from trainable.data.parts import Part
from trainable.data.source import Pixels
from trainable.errors import UserError, listed
from trainable.files.folders import check_new, moved_to
from trainable.recipe.yamlfile import write_whole
from trainable.tasks.exporter import Predictions
from trainable.tasks.segmentation.answers import MaskAnswers
from trainable.training.evaluate import Scores

SCORES_FILE = "scores.csv"
COLUMNS = ("image", "mask", "mean_iou", "accuracy")
LEVEL = 1  # the quickest compression: masks are of few values in large areas, and become a fiftieth


@final
class KeptMasks:
    """The likeliest class of each pixel of the images that `take` was shown (`Run.score`)."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[bytes, tuple[int, int]]] = {}

    def take(self, positions: Integers, outputs: Tensor) -> None:
        """Keep the answers to a batch, logits [B, classes, H, W]; of equal ones the first class."""
        masks = outputs.argmax(1).byte().cpu().numpy()
        for position, mask in zip(positions.tolist(), masks, strict=True):
            self._kept[position] = zlib.compress(mask.tobytes(), LEVEL), mask.shape

    def mask(self, position: int) -> Pixels:
        """Return the mask of the image at a position, uint8 [H, W]."""
        content, size = self._kept[position]
        return np.frombuffer(zlib.decompress(content), np.uint8).reshape(size)

    @property
    def positions(self) -> Sequence[int]:
        """The positions of all images that were shown, in order."""
        return sorted(self._kept)


@final
class PredictedMasks(Predictions):
    """The masks of the test part, or of validation of data without one, for a new folder.

    Raises UserError where they could not be written; `out` is where the run leaves its own files.
    """

    def __init__(self, data: DataSet, folder: Path, out: Path | None) -> None:
        if out is not None and folder.absolute() in (out.absolute(), *out.absolute().parents):
            raise UserError(
                f"--predict {folder}: is to hold masks alone; give another folder than --out {out}"
            )
        check_new(folder, "the masks")
        self.part = "validation" if data.test is None else "test"
        mask_files(data.parts[self.part])
        self._data, self._folder, self._kept = data, folder, KeptMasks()

    def take(self, positions: Integers, outputs: Tensor) -> None:
        self._kept.take(positions, outputs)

    def write(self, scores: Scores) -> str:
        if not isinstance(scores.by_image, MaskAnswers):
            raise UserError(
                "the weights answer with numbers that are not finite: there are no masks to write"
            )
        write_masks(self._folder, self._data, self.part, self._kept, scores.by_image)
        return f"masks of the {scores.images:,} images of the {self.part} part -> {self._folder}"


def write_masks(folder: Path, data: DataSet, part: Split, masks: KeptMasks, scores: MaskAnswers) -> None:
    """Write the masks of a part to a new folder, whole or not at all: a PNG for each image, of its size, and
    `scores.csv`, the worst image first.

    A PNG is named as its image is. A pixel has the value that its class has in the data set's own masks, and
    a palette makes it visible. Raises UserError for a folder that is not empty or cannot be written.
    """
    held = data.parts[part]
    files, values = mask_files(held), written_values(data)
    with moved_to(folder) as made:
        for position in masks.positions:
            write_whole(made / files[position], png_of(values[masks.mask(position)]))
        names = {position: held.name(position) for position in range(len(held))}
        write_whole(made / SCORES_FILE, _scores(names, files, scores).encode())


def mask_files(part: Part) -> list[str]:
    """Return the file of each image's mask: the path of the image below the folder that all of them are in.

    Raises UserError for two images whose masks would have one file.
    """
    paths = [os.path.abspath(part.name(position)) for position in range(len(part))]
    shared = os.path.commonpath([os.path.dirname(path) for path in paths])
    files = [f"{os.path.splitext(os.path.relpath(path, shared))[0]}.png" for path in paths]
    if twice := sorted(file for file, count in Counter(files).items() if count > 1):
        raise UserError(
            f"--predict: more than one image has the mask {listed(twice, 10)}; expected images whose names "
            "differ in more than their endings"
        )
    return files


def written_values(data: DataSet) -> Pixels:
    """Return the value that stands for each class in the data set's masks, uint8 [K]."""
    return np.array(data.info.mask_values or range(len(data.info.classes)), np.uint8)


def png_of(values: Pixels) -> bytes:
    """Return a mask of values [H, W] as a PNG, in the colours of PASCAL VOC."""
    image, out = Image.fromarray(values), io.BytesIO()
    image.putpalette(voc_colours().tobytes())
    image.save(out, "PNG", optimize=False)  # optimizing may number colours anew
    return out.getvalue()


def voc_colours() -> Pixels:
    """Return a colour for each value, uint8 [256, 3], as PASCAL VOC's development kit makes them
    (VOClabelcolormap): a value's bits go to red, green and blue in turn, to their highest bits first."""
    values, colours = np.arange(256), np.zeros((256, 3), np.uint8)
    for bit in range(8):
        for channel in range(3):
            bits = (values >> (3 * bit + channel)) & 1
            colours[:, channel] |= (bits << (7 - bit)).astype(np.uint8)
    return colours


def _scores(names: Mapping[int, str], files: Sequence[str], scores: MaskAnswers) -> str:
    """Return the scores of each image as CSV."""
    ious = scores.mean_ious()
    right, counted = scores.right.sum(1), scores.true.sum(1)
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    for at in np.argsort(ious, kind="stable").tolist():
        accuracy = f"{right[at] / counted[at]:.4f}" if counted[at] else ""
        table.writerow([names[at], files[at], f"{ious[at]:.4f}", accuracy])
    return out.getvalue()
