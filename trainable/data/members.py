"""Says which image is in which part: the data's own parts, or parts that are split off; then the limit."""

from __future__ import annotations

from typing import get_args

import numpy as np

from trainable.data.group_split import grouped_split
from trainable.data.parts import Members
from trainable.data.source import LEFT_OUT, Collection, Integers, Selection, Source
from trainable.data.split import SplitPlan, stratified_limit, stratified_split
from trainable.errors import DataError
from trainable.recipe.data import Data, Split


def members_of(collection: Collection, spec: Data) -> Members:
    """Return the images of each part:
    the data's own parts, else parts split from the training images; then the limit.

    Raises DataError if the data define the validation part that a seed is to draw anew.
    """
    if spec.validation_seed is not None and "validation" in collection.parts:
        raise DataError(
            f"data.validation_seed {spec.validation_seed}: {collection.path} has a validation part of its "
            "own, which cannot be drawn anew; data.validation: none leaves it out"
        )
    members = {part: Selection(source, _in_order(source)) for part, source in collection.parts.items()}
    if "validation" not in members:
        train = members["train"]
        members |= {
            part: Selection(train.source, train.indices[positions])
            for part, positions in zip(get_args(Split), _cut(collection, train, spec), strict=True)
            if len(positions)
        }
    if spec.train_limit is not None:
        source, indices = members["train"]
        chosen = _limited(collection, members["train"].labels, spec.train_limit, spec.split_seed)
        members["train"] = Selection(source, indices[chosen])
    return members


def _limited(collection: Collection, labels: Integers, count: int, seed: int) -> Integers:
    """Return the positions of so many training images.

    Of images with masks, where each shows several classes, there may be fewer than strata: then they are
    drawn from all alike.
    """
    names = collection.split_by
    if collection.strata is not None and count < len(names):
        labels, names = np.zeros_like(labels), names[:1]
    return stratified_limit(labels, names, count, seed)


def _in_order(source: Source) -> Integers:
    """Return the images in the order in which a folder of the same images has them, where that is known."""
    order = np.argsort(source.labels, kind="stable") if source.by_class else np.arange(len(source))
    return np.asarray(order[source.labels[order] != LEFT_OUT])


def _cut(collection: Collection, train: Selection, spec: Data) -> tuple[Integers, Integers, Integers]:
    """Return positions of the training, validation and test images in the data's training images."""
    test = spec.test_fraction if collection.whole else 0.0
    plan = SplitPlan(spec.validation_fraction, test, spec.split_seed, spec.validation_seed)
    if collection.groups is None:
        groups = None
    else:
        groups = [collection.groups["train"][index] for index in train.indices.tolist()]
    if collection.strata is not None:
        units = train.indices if groups is None else {*groups}
        what = "images" if groups is None else "groups of images"
        _check_enough(collection.path, f"{len(units)} {what}", len(units), 3 if test > 0.0 else 2)
    if groups is None:
        return stratified_split(train.labels, collection.split_by, plan)
    return grouped_split(train.labels, groups, collection.split_by, plan)


def _check_enough(where: str, units: str, count: int, needed: int) -> None:
    """Raise DataError for fewer images with masks, or groups of them, than parts. No class can be left out
    then: with masks a part may lack any."""
    if count < needed:
        raise DataError(
            f"{where}: {units} with masks are too few to split; expected {needed} or more, one for each part"
            + ("; data.test_fraction: 0 splits no test part off" if needed > 2 else "; add images")
        )
