"""What the raw values of masks mean: which class, or none that counts; with the names of published sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainable.array_types import Integers
from trainable.data.source import Pixels
from trainable.errors import DataError, listed, quoted
from trainable.files.paths import without_tilde
from trainable.files.regular import read_regular, why
from trainable.recipe.tasks import IGNORED, MOST_CLASSES
from trainable.tasks.segmentation.data.stores import LARGEST

MOST_BYTES = 2**20  # a larger file is no list of 255 names


class Naming(NamedTuple):
    """The names of classes, and the position among them that each raw value means."""

    names: tuple[str, ...]
    # A value that is IGNORED here counts nowhere; one that is missing is in no mask
    numbers: Mapping[int, int]


@dataclass(frozen=True, eq=False)
class MaskCode:
    """Which raw value of a mask is which index of a class."""

    classes: tuple[str, ...]
    table: Pixels  # the index of each raw value's class, or IGNORED: uint8 [256]
    known: NDArray[np.bool_]  # whether a mask may have each raw value: bool [256]

    @property
    def written(self) -> tuple[int, ...]:
        """The raw value of each class; of several, as foreground has them, the largest."""
        return tuple(int(np.flatnonzero(self.table == label)[-1]) for label in range(len(self.classes)))

    def class_mask(self, raw: Pixels) -> Pixels:
        """Return each pixel's class or IGNORED, uint8, for raw values of the same shape."""
        found: Pixels = np.take(self.table, raw)
        return found

    def class_counts(self, values: Integers) -> tuple[Integers, Integers]:
        """Return how many pixels each image has of each class, [N, K], and how many are ignored, [N], from
        how often it has each raw value, [N, 256]."""
        counts = np.zeros((len(values), len(self.classes)), np.int64)
        for raw in np.flatnonzero(self.table != IGNORED).tolist():
            counts[:, self.table[raw]] += values[:, raw]
        return counts, values.sum(axis=1) - counts.sum(axis=1)


def binary(threshold: int = 1) -> Naming:
    """The naming in which the raw values from `threshold` on are foreground."""
    return Naming(
        ("background", "foreground"), {value: int(value >= threshold) for value in range(LARGEST + 1)}
    )


def consecutive(names: Sequence[str], ignored: Sequence[int] = ()) -> Naming:
    """Return the naming in which the raw value of each class is its position."""
    return Naming(
        tuple(names), {**{each: each for each in range(len(names))}, **dict.fromkeys(ignored, IGNORED)}
    )


def code_of(naming: Naming, ignore_index: int | None, void: Sequence[str], where: str) -> MaskCode:
    """Return the code without the classes in `void` and without the one whose number is ignored; the others
    keep their order.

    Raises DataError for an unknown name in `void`, more than 255 classes, and fewer than two.
    """
    if len(naming.names) > MOST_CLASSES:
        raise DataError(
            f"{where}: {len(naming.names)} classes; expected at most {MOST_CLASSES}: task.masks.ignore_index "
            "leaves a number out, and levels of grey are two classes by task.masks.values: binary"
        )
    if unknown := [quoted(name) for name in void if name not in naming.names]:
        raise DataError(
            f"task.masks.void: {listed(unknown)} is no class of {where}; its classes are "
            f"{listed(naming.names, 40)}; name some of these, or take it out"
        )
    without = {IGNORED, *(naming.names.index(name) for name in void)}
    numbers = {**naming.numbers, **({} if ignore_index is None else {ignore_index: IGNORED})}
    kept = sorted(set(numbers.values()) - without)
    classes = tuple(naming.names[number] for number in kept)
    if len(classes) < 2:
        raise DataError(
            f"{where}: two classes that count are needed, and there is {listed(classes) or 'none'}; see "
            "that task.masks.folder (of a manifest task.masks.column) names the masks, and what "
            "task.masks.void and task.masks.ignore_index leave out"
        )
    table, known = np.full(LARGEST + 1, IGNORED, np.uint8), np.zeros(LARGEST + 1, np.bool_)
    known[list(numbers)] = True
    for raw, number in numbers.items():
        table[raw] = IGNORED if number in without else kept.index(number)
    return MaskCode(classes, table, known)


def names_in(file: str) -> tuple[str, ...]:
    """Return the names in a text file, one a line. Raises DataError for a name that is there twice, a blank
    line before the last name, and more than 255 names."""
    path = without_tilde(file)
    lines = [line.strip() for line in _text(path).rstrip().splitlines()]
    if not lines or not all(lines):
        where = f"line {lines.index('') + 1} is blank" if lines else "is empty"
        raise DataError(
            f"task.masks.classes: {path}: {where}; expected the name of a class on each line, and none "
            "without one"
        )
    if twice := sorted({name for name in lines if lines.count(name) > 1}):
        raise DataError(
            f"task.masks.classes: {path}: {listed(twice)} is there more than once; expected another name on "
            "each line: rename one"
        )
    if len(lines) > MOST_CLASSES:
        raise DataError(
            f"task.masks.classes: {path}: {len(lines)} names; expected at most {MOST_CLASSES}, one on each "
            "line: remove what is no class"
        )
    return tuple(lines)


def _text(path: Path) -> str:
    try:
        return read_regular(path, MOST_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"task.masks.classes: {path}: is not UTF-8 at byte {error.start:,}; save it as UTF-8"
        ) from None
    except OSError as error:
        raise DataError(
            f"task.masks.classes: {path}: cannot be read: {why(error)}; expected a text file with a name on "
            "each line; without the field, classes are called by their numbers"
        ) from error


# PASCAL VOC 2012, development kit, section 3.1: alphabetical from 1, 0 is background, 255 a border. The
# Semantic Boundaries Dataset has the same numbers.
VOC = consecutive(
    (
        *(
            "background",
            "aeroplane",
            "bicycle",
            "bird",
            "boat",
            "bottle",
            "bus",
            "car",
            "cat",
            "chair",
            "cow",
        ),
        *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train"),
        "tvmonitor",
    ),
    ignored=[255],
)

# The labelIds of the classes that count, in the order of their trainIds (cityscapesScripts, labels.py)
_CITYSCAPES = {
    "road": 7,
    "sidewalk": 8,
    "building": 11,
    "wall": 12,
    "fence": 13,
    "pole": 17,
    "traffic light": 19,
    "traffic sign": 20,
    "vegetation": 21,
    "terrain": 22,
    "sky": 23,
    "person": 24,
    "rider": 25,
    "car": 26,
    "truck": 27,
    "bus": 28,
    "train": 31,
    "motorcycle": 32,
    "bicycle": 33,
}
_CITYSCAPES_IDS = 34

CITYSCAPES_TRAIN_IDS = consecutive(tuple(_CITYSCAPES), ignored=[255])
CITYSCAPES_LABEL_IDS = Naming(
    tuple(_CITYSCAPES),
    {
        **dict.fromkeys([*range(_CITYSCAPES_IDS), 255], IGNORED),
        **{value: number for number, value in enumerate(_CITYSCAPES.values())},
    },
)

# The trimaps of Oxford-IIIT Pet, by the README in its annotations
PETS = Naming(("pet", "background", "border"), {1: 0, 2: 1, 3: 2})
