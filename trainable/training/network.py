"""Makes the network of a recipe for the images of a data set, and checks before training that they fit."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainable.augmentation.sizes import extreme_sizes
from trainable.bench import HERE, Bench
from trainable.data.info import DataInfo
from trainable.errors import DataError, Fault, ModelError, RecipeError, first_line
from trainable.models.checkpointing import checkpoint_blocks
from trainable.models.make import NetworkEnds, make_model
from trainable.models.norm_statistics import SMALLEST, norm_of_one_pixel
from trainable.models.own import BuildModel, name_of
from trainable.models.sync_norm import with_sync_norm
from trainable.ranks import Ranks
from trainable.recipe import Recipe
from trainable.recipe.models import Model, OwnModel
from trainable.training.batches import parts_of
from trainable.training.evaluate import make_views


def make_network(
    spec: Model, info: DataInfo, *, build: BuildModel | None = None, bench: Bench = HERE
) -> nn.Module:
    """Return what `make_model` makes for these images: their classes, channels and size."""
    return make_model(
        spec,
        NetworkEnds(classes=len(info.classes), channels=info.channels, image_size=info.image_size),
        build=build,
        bench=bench,
        task=info.task,
    )


def given_or_made(
    model: nn.Module | BuildModel | None, spec: Model, info: DataInfo, bench: Bench = HERE
) -> nn.Module:
    """Return the network of a run: one that is given, or else what the recipe or a given function makes.

    A function given with a recipe of another network takes its place, and receives no arguments of a recipe.
    """
    if isinstance(model, nn.Module):
        return model
    if model is not None and not isinstance(spec, OwnModel):
        spec = OwnModel(name=name_of(model))
    return make_network(spec, info, build=model, bench=bench)


def stands_alone(model: nn.Module | BuildModel | None, spec: Model) -> bool:
    """Return whether a given network takes the place of the recipe's, its weights included."""
    return model is not None and (isinstance(model, nn.Module) or not isinstance(spec, OwnModel))


def layout_of(recipe: Recipe) -> torch.memory_format:
    """Return the memory format of a run's network and images."""
    return torch.channels_last if recipe.precision.channels_last else torch.preserve_format


def with_loop_layers(model: nn.Module, recipe: Recipe, ranks: Ranks) -> nn.Module:
    """Change what the loop asks of a network's layers: synchronised norms, recomputed blocks."""
    if recipe.loop.sync_norm:
        model = with_sync_norm(model, ranks)
    if recipe.loop.checkpoint_activations:
        checkpoint_blocks(model)
    return model


def placed(model: nn.Module, recipe: Recipe, ranks: Ranks, device: torch.device) -> nn.Module:
    """Move a network to device and layout, with rank 0's weights."""
    moved: nn.Module = model.to(device, memory_format=layout_of(recipe))  # type: ignore[call-overload]
    if ranks.world > 1:
        ranks.copy_from_first([each.detach() for each in moved.state_dict().values()])
    return moved


# --- what fits together -------------------------------------------------------------------------------


def check_recipe(recipe: Recipe, info: DataInfo, ranks: Ranks) -> None:
    """Raise DataError if there is no whole batch,
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
