"""Which of a data set's images are looked at: enough to check it by, and few enough to be quick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from trainable.array_types import Integers
from trainable.data import DataSet, Part, Split
from trainable.data.measure import some
from trainable.data.source import Pixels

MOST = 50_000  # at most so many images are compared; a larger set is sampled

# Up to so many images in files, all are decoded. Of more, the files are compared: a copy is an equal file.
DECODED = 2_000


@dataclass(frozen=True)
class NamedImage:
    """Where an image is, and what its label is."""

    part: Split
    position: int
    label: int
    name: str


def pixels(data: DataSet, part: Part, positions: Integers, side: int | None = None) -> Pixels:
    """Return images of a part as uint8 [n, C, side, side], at the data set's own side by default.

    Raises DataError naming images that cannot be decoded.
    """
    return part.squares(positions, data.form._replace(side=side or data.info.image_size), data.info.path)


def chosen_positions(data: DataSet, most: int | None) -> dict[Split, Integers]:
    """Return positions by part, at most `most` (None: all of them): the parts that are scored come first, as
    each of their images counts."""
    if most is None:
        return {name: np.arange(len(part)) for name, part in data.parts.items()}
    left, chosen = most, dict[Split, Integers]()
    for name, part in sorted(data.parts.items(), key=lambda item: len(item[1])):
        share = left if name == "train" else min(left, most // 4)
        chosen[name] = some(len(part), share)
        left -= len(chosen[name])
    return chosen


def extent_of(data: DataSet, chosen: Mapping[Split, Integers]) -> str:
    """Return in words how many of the images are compared."""
    total, compared = sum(map(len, data.parts.values())), sum(map(len, chosen.values()))
    return (
        f"all {total:,} compared" if compared == total else f"a sample of {compared:,} of {total:,} compared"
    )
