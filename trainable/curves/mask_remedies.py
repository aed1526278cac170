"""Proposes which fields to change after a run that learnt masks, beside those that every recipe has."""

from __future__ import annotations

from collections.abc import Iterator

from trainable.curves.remedy import Remedy, change
from trainable.recipe import Recipe, augmentations
from trainable.recipe.tasks import Segmentation

LARGEST = 1024
"""No larger window is proposed."""


def is_dense(recipe: Recipe) -> bool:
    """Return whether a recipe learns masks."""
    return isinstance(recipe.task, Segmentation)


def of_masks(recipe: Recipe, *, small_missed: bool) -> Iterator[Remedy]:
    """Yield what lets a network know masks better: a loss that counts small classes, if they are missed, and
    a larger window; nothing for other recipes."""
    if not isinstance(recipe.task, Segmentation):
        return
    if small_missed and not (recipe.task.loss.dice or recipe.task.loss.lovasz):
        why = "small classes are known less than large ones: this loss counts classes alike"
        yield change(recipe, "task.loss.dice", 1.0, why, "arXiv 1606.04797, section 3")
    side = recipe.data.image_size
    if side is not None and 2 * side <= LARGEST:
        why = "if images are larger: the network sees more of what a pixel is part of"
        yield change(recipe, "data.image_size", 2 * side, why, "000:49")


def more_augmentation_of_masks(recipe: Recipe) -> Iterator[Remedy]:
    """Yield stronger augmentation of the kinds that masks have."""
    augmentation, section = recipe.augmentation, "augmentation"
    if isinstance(augmentation.crop, augmentations.NoCrop | augmentations.PadCrop):
        why = "objects have another size and position each time"
        yield change(recipe, f"{section}.crop.kind", "scaled", why, augmentations.SCALED)
    if recipe.data.flips and augmentation.flip_probability == 0.0:
        why = "data.flips says that classes survive it"
        yield change(recipe, f"{section}.flip_probability", 0.5, why, "000:22")
    match augmentation.policy:
        case augmentations.NoPolicy():
            why = "two random operations for each image, and the same moves for its mask"
            yield change(recipe, f"{section}.policy.kind", "randaugment", why, "arXiv 1909.13719")
        case augmentations.RandAugment(magnitude=magnitude) if magnitude < 15:
            stronger = min(15, magnitude + 5)
            why = "stronger operations"
            yield change(recipe, f"{section}.policy.magnitude", stronger, why, "arXiv 1909.13719")
        case _:
            pass
    if isinstance(augmentation.mixing, augmentations.NoMixing):
        why = "classes of another image are pasted, with their masks"
        yield change(recipe, f"{section}.mixing.kind", "classmix", why, "arXiv 2007.07936")
