"""Loads the images for finalists that train on splits of their own."""

from __future__ import annotations

from collections.abc import Callable

from search.deciding.finalists import Final
from search.facts.hardware import Hardware
from search.study import Study
from search.study.finalists import Finalists
from trainable.data import DataInfo, DataSet, resolve
from trainable.errors import DataError, UserError
from trainable.recipe import Recipe


def most_bytes(study: Study, hardware: Hardware) -> int | None:
    """Return how large the images may be to be held in memory, with a copy for each fresh split."""
    fresh = isinstance(study.finalists, Finalists) and study.finalists.splits == "fresh"
    copies = 1 + study.finalists.seeds if isinstance(study.finalists, Finalists) and fresh else 1
    return None if hardware.shared_bytes is None else hardware.shared_bytes // copies


def fresh_splits(
    final: Final, base: Recipe, info: DataInfo, load: Callable[[Recipe], DataSet]
) -> dict[int, DataSet]:
    """Return the images with training and validation drawn anew for each run of a finalist, by the seed of
    the split. Raises UserError where the data have a validation part of their own."""
    if final.finalists is None or final.finalists.splits == "same":
        return {}
    spec = resolve(base.data, info)
    first = (spec.validation_seed or 0) + 1
    drawn = {
        seed: base.model_copy(update={"data": spec.model_copy(update={"validation_seed": seed})})
        for seed in range(first, first + final.finalists.seeds)
    }
    try:
        return {seed: load(recipe) for seed, recipe in drawn.items()}
    except DataError as error:  # the search's own split was loaded before, from the same images
        raise UserError(f"finalists.splits: fresh is not possible here: {error}") from None
