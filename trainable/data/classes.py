"""Orders classes by their names, and makes labels of names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from trainable.data.source import LEFT_OUT, Integers

NO_LABEL = ""  # of an image that `data.exclude` must leave out

WHOLE = re.compile(r"-?[0-9]{1,18}", re.ASCII)
"""A name of this form is a whole number. No label of a file of arrays has more digits."""


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Return the different names in their order as classes: by value if all are whole numbers, as an array
    of labels has them, else as text."""
    different = set(names) - {NO_LABEL}
    if all(WHOLE.fullmatch(name) for name in different):
        return tuple(sorted(different, key=lambda name: (int(name), name)))
    return tuple(sorted(different))


def numbered(labels: Sequence[str], classes: Sequence[str]) -> Integers:
    """Return each label's position among the classes, [N]; LEFT_OUT for none."""
    position = {NO_LABEL: LEFT_OUT} | {name: number for number, name in enumerate(classes)}
    return np.array([position[name] for name in labels], np.int64)
