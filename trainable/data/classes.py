"""Orders classes by their names, and makes labels of names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from trainable.data.source import Integers, Split
from trainable.errors import DataError, listed

WHOLE = re.compile(r"-?[0-9]{1,18}", re.ASCII)
"""A name of this form is a whole number. No label of a file of arrays has more digits."""


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Returns the different names in their order as classes: by value if all are whole numbers, as an array
    of labels has them, else as text."""
    different = set(names)
    if all(WHOLE.fullmatch(name) for name in different):
        return tuple(sorted(different, key=lambda name: (int(name), name)))
    return tuple(sorted(different))


def classes_of(where: str, labels: Mapping[Split, Sequence[str]]) -> tuple[str, ...]:
    """Returns the classes of the training part.

    Raises DataError if there are fewer than two, or another part has different ones.
    """
    known = set(labels["train"])
    for part, names in labels.items():
        check_same(where, part, known, set(names))
    if len(known) < 2:
        raise DataError(f"{where}: there is one class only, {listed(sorted(known))}; two are needed")
    return ordered(known)


def check_same(where: str, part: Split, known: set[str], found: set[str]) -> None:
    """Raises DataError if a part has other classes than the training part."""
    missing = [f"{name} is not in the {part} part" for name in sorted(known - found)]
    odd = [f"{name} is only in the {part} part" for name in sorted(found - known)]
    if missing or odd:
        raise DataError(f"{where}: the parts have different classes: {listed([*missing, *odd], 20)}")


def numbered(labels: Sequence[str], classes: Sequence[str]) -> Integers:
    """Returns each label's position among the classes, [N]."""
    position = {name: number for number, name in enumerate(classes)}
    return np.array([position[name] for name in labels], np.int64)
