"""Checks before any training whether a recipe, its data and its model fit together."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainable.augmentation.sizes import extreme_sizes
from trainable.data.info import DataInfo
from trainable.errors import DataError, Fault, ModelError, RecipeError, first_line
from trainable.models.norm_statistics import SMALLEST, norm_of_one_pixel
from trainable.ranks import Ranks
from trainable.recipe import Recipe
from trainable.training.evaluate import make_views
from trainable.training.order import parts_of


def check_recipe(recipe: Recipe, info: DataInfo, ranks: Ranks) -> None:
    """Raises DataError if there is no whole batch,
    RecipeError for sizes or mirrors that these images do not allow."""
    batch = recipe.loop.batch_size
    if batch > info.train_images:
        raise DataError(
            f"loop.batch_size {batch} is above the {info.train_images} training images of "
            f"{recipe.data.path}: there is no whole batch to train on; set loop.batch_size to "
            f"{info.train_images} or less"
        )
    if batch < ranks.world:
        raise DataError(f"loop.batch_size {batch} is below the {ranks.world} ranks that share it")
    size = recipe.augmentation.size
    smallest, largest = extreme_sizes(size, info.image_size)
    if size.kind == "multi_scale" and smallest == largest:
        message = (
            f"between {size.smallest:g} and {size.largest:g} of {info.image_size} px lies {smallest} alone"
        )
        raise RecipeError(
            [Fault("augmentation.size", f"{message}; widen smallest and largest, or fix the size")]
        )
    if recipe.evaluation.flip and "horizontal" not in info.flips:
        message = f"a mirrored image must keep its label, but data.flips is {list(info.flips)}"
        raise RecipeError([Fault("evaluation.flip", message)])


def fewest_at_once(model: nn.Module, recipe: Recipe, info: DataInfo, ranks: Ranks) -> int:
    """Return how many images, 1 or 2, the model trains on at once at least. Raises RecipeError for a batch
    that is cut, or shared by ranks, into parts of fewer."""
    loop, side = recipe.loop, min(extreme_sizes(recipe.augmentation.size, info.image_size))
    try:
        norm = norm_of_one_pixel(model, _blank(model, info, side))
    except (RuntimeError, ValueError, AssertionError):
        return 1  # the first step says what the model does not take
    if norm is None:
        return 1
    if loop.batch_size // ranks.world // parts_of(loop, ranks.world) < SMALLEST:
        raise RecipeError(
            [
                Fault(
                    "loop.batch_size" if loop.micro_batch is None else "loop.micro_batch",
                    f"the BatchNorm {norm} sees one pixel an image, and a batch of {loop.batch_size} "
                    f"in {parts_of(loop, ranks.world)} parts on each of {ranks.world} ranks leaves single "
                    f"images, which have no statistics; expected parts of {SMALLEST} images or more",
                )
            ]
        )
    return SMALLEST


def check_sizes(model: nn.Module, recipe: Recipe, info: DataInfo) -> None:
    """Run one blank image forward at every size that a run will use besides its own.

    Raises ModelError naming the field that asks for a size which the model does not take.
    """
    views = make_views(recipe.evaluation, info.image_size)
    asked = [("augmentation.size", size) for size in extreme_sizes(recipe.augmentation.size, info.image_size)]
    if not recipe.task.windowed:  # else images are scaled, and are seen in windows of their own size
        asked += [("evaluation.scales", view.size) for view in views if view.size is not None]
    was_training = model.training
    model.eval()
    try:
        for field, size in dict.fromkeys(asked):
            if size == info.image_size:
                continue
            try:
                with torch.inference_mode():
                    model(_blank(model, info, size))
            except (RuntimeError, ValueError, AssertionError) as error:
                problem = f"the model does not take images of {size} px: {first_line(error)}"
                raise ModelError(f"{field}: {problem}") from error
    finally:
        model.train(was_training)


def _blank(model: nn.Module, info: DataInfo, side: int) -> Tensor:
    """Return one blank image [1, C, side, side] where the model is, in its number format."""
    first = next(model.parameters())
    return torch.zeros(1, info.channels, side, side, device=first.device, dtype=first.dtype)
