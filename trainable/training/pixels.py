"""Chooses which pixels a run sees.

Images are loaded as its pretrained weights know images: by what they are normalised, which filter resized
them, and to what size. Epochs with a frozen body may show them in a few fixed views.
"""

from __future__ import annotations

from trainable.augmentation.augment import make_augment
from trainable.augmentation.masking import make_masking
from trainable.bench import HERE, Bench, DeviceKind
from trainable.data import DataInfo, DataSet, resolve
from trainable.errors import ModelError
from trainable.models.libraries import title_of
from trainable.models.pretrained_input import PretrainedInput, pretrained_input
from trainable.recipe import Recipe

LARGEST_SIDE_ON_CPU = 96  # by default a CPU sees images no larger than this: 224 px take 5 times as long


def as_weights_know(recipe: Recipe, bench: Bench = HERE, *, own_model: bool = False) -> Recipe:
    """Return the recipe with the filter and the size of its weights' images where it leaves these open.

    On a CPU the size is at most 96 px, unless the network takes no other. Raises ModelError as
    `pretrained_input` does.
    """
    known = None if own_model else pretrained_input(recipe.model, may_fetch=bench.may_fetch)
    if known is None:
        return recipe
    asked = recipe.data
    filled = {
        "interpolation": asked.interpolation or known.interpolation,
        "image_size": asked.image_size or _side(known, bench.kind),
    }
    return recipe.model_copy(update={"data": asked.model_copy(update=filled)})


def resolved(recipe: Recipe, data: DataSet, bench: Bench = HERE, *, own_model: bool = False) -> Recipe:
    """Return the recipe with every open field of its `data` filled in for these images.

    `data.normalisation` becomes `data`, or the numbers of the weights where there are any. Raises ModelError
    as `pretrained_input` does, and where `pretrained` is asked for and nothing is known of the weights.
    """
    return resolved_for(recipe, data.info, bench, own_model=own_model)


def resolved_for(recipe: Recipe, info: DataInfo, bench: Bench = HERE, *, own_model: bool = False) -> Recipe:
    """Return what `resolved` does, from what is known of the images alone."""
    filled = resolve(recipe.data, info)
    if filled.normalisation in (None, "pretrained"):
        known = None if own_model else pretrained_input(recipe.model, may_fetch=bench.may_fetch)
        if known is None and filled.normalisation == "pretrained":
            raise _nothing_known(recipe)
        numbers = "data" if known is None else known.statistics(info.channels)
        filled = filled.model_copy(update={"normalisation": numbers})
    return recipe.model_copy(update={"data": filled})


def views_of(recipe: Recipe, info: DataInfo) -> int | None:
    """Return how many views of each training image the frozen epochs show: one, if nothing random touches
    the images, else `model.frozen_views`; None if every epoch augments them anew."""
    return recipe.model.frozen_views if augments(recipe, info) else 1


def augments(recipe: Recipe, info: DataInfo) -> bool:
    """Return whether anything random touches training images, of one size and before they are mixed."""
    if recipe.task.windowed:
        return True
    augmentation = recipe.augmentation
    changed = make_augment(augmentation, info.flips, info.image_size)
    return bool(changed or make_masking(augmentation.masking, recipe.loop.epochs))


def _side(known: PretrainedInput, device_kind: DeviceKind) -> int | None:
    if known.side is None or known.fixed_side or device_kind == "cuda":
        return known.side
    return min(known.side, LARGEST_SIDE_ON_CPU)


def _nothing_known(recipe: Recipe) -> ModelError:
    weights = recipe.model.weights
    problem = (
        "has no pretrained weights" if weights is None else f"has weights ({weights}) that do not say it"
    )
    return ModelError(
        f"data.normalisation: pretrained: {title_of(recipe.model)} {problem}; write `data`, or a mean and std"
    )
