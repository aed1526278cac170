"""Holds the classes of published data sets, and the raw values that stand for them in their masks."""

from __future__ import annotations

from trainable.recipe.tasks import IGNORED
from trainable.tasks.segmentation.data.code import Naming, consecutive

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
"""PASCAL VOC 2012, development kit, section 3.1: alphabetical from 1, 0 is background, 255 a border. The
Semantic Boundaries Dataset has the same numbers."""

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
"""The labelIds of the classes that count, in the order of their trainIds (cityscapesScripts, labels.py)."""
_CITYSCAPES_IDS = 34

CITYSCAPES_TRAIN_IDS = consecutive(tuple(_CITYSCAPES), ignored=[255])
CITYSCAPES_LABEL_IDS = Naming(
    tuple(_CITYSCAPES),
    {
        **dict.fromkeys([*range(_CITYSCAPES_IDS), 255], IGNORED),
        **{value: number for number, value in enumerate(_CITYSCAPES.values())},
    },
)

PETS = Naming(("pet", "background", "border"), {1: 0, 2: 1, 3: 2})
"""The trimaps of Oxford-IIIT Pet, by the README in its annotations."""
