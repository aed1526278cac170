"""Calls a person's own function that makes images, and turns what it returns into a data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from trainable.bench import ON_CPU, Bench
from trainable.data.assembly import of_parts
from trainable.data.dataset import DataSet
from trainable.data.decode import Resize
from trainable.errors import DataError, code_named
from trainable.recipe.data import Data

# These fields choose images; a DataSet has chosen them already
CHOOSING = ("exclude", "exclude_parts", "min_images", "train_limit", "validation_seed")

# Returns a DataSet (`from_arrays`, `load`), or images and labels, which are split as the recipe says
MakeData = Callable[[], Any]


def make_own(spec: Data, make: MakeData, *, resize: Resize | None = None, bench: Bench = ON_CPU) -> DataSet:
    """Return the data set that a person's function makes, called by the name in `spec.path`.

    Arrays are images uint8 [N, H, W] or [N, H, W, 1 or 3] and integer labels [N], which `spec` splits. A
    DataSet stays as it is. Raises DataError for anything else, for an error of the function, and where `spec`
    asks for other images than a DataSet has.
    """
    with code_named(f"data={spec.path}", DataError):
        made = make()
    if isinstance(made, DataSet):
        _check_chosen(spec, made)
        return replace(made, info=replace(made.info, path=spec.path, format="own"))
    match made:
        case (images, labels):
            arrays = np.asarray(images), np.asarray(labels)
            return of_parts({"train": arrays}, spec, resize=resize, bench=bench)
        case _:
            raise DataError(
                f"data={spec.path}: expected a DataSet, or images and labels as two arrays, got "
                f"{type(made).__name__}"
            )


def _check_chosen(spec: Data, made: DataSet) -> None:
    """Raise DataError for fields that would do nothing, as a DataSet has its images already."""
    which = f"the DataSet that data={spec.path} returns"
    if spec.group is not None and not made.grouped:
        raise DataError(f"data.group: {which} knows no groups")
    fields = [
        *(f"data.{name}" for name in CHOOSING if getattr(spec, name) not in (None, ())),
        *(f"data.{part}: none" for part in spec.parts_left_out),
    ]
    if fields:
        raise DataError(
            f"{', '.join(fields)}: {which} stays as it is; return images and labels instead, or make it by "
            "from_arrays(..., spec=Data(...)) with these fields there, and take them out here"
        )
