"""How learning curves of labels are read: by the accuracy, with remedies for augmentation of whole images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import final

from trainable.curves.levels import Accuracies, accuracies_of, noise_in
from trainable.curves.task_curves import Remedy, TaskCurves, change, rounded
from trainable.recipe import Recipe, augmentations
from trainable.training.metrics import EpochResult

TABLE = "003:70-82"  # of the PaddleClas guide: the gains of each augmentation on ResNet50

OF_MISTAKES = ("val_balanced_accuracy", "val_macro_f1")  # perfect exactly where the accuracy is


@final
class LabelCurves(TaskCurves):
    """Curves of images with one label each."""

    def levels(self, history: Sequence[EpochResult]) -> Accuracies:
        return accuracies_of(history)

    def mistakes(self, metric: str, metrics: Mapping[str, float], images: int) -> int | None:
        counted = metric if metric == "val_top5_accuracy" else "val_accuracy"
        if metric not in (counted, *OF_MISTAKES) or counted not in metrics:
            return None
        return round((1.0 - metrics[counted]) * images)

    def noise(self, metric: str, figures: Mapping[str, float]) -> float | None:
        return noise_in(figures) if metric == "val_accuracy" else None

    def guessing(self, classes: int) -> float:
        return math.log(max(classes, 2))

    def better_fit(self, recipe: Recipe, *, small_missed: bool) -> Iterator[Remedy]:
        """Yield nothing: accuracy counts small classes by their images."""
        yield from ()

    def harder_images(self, recipe: Recipe) -> Iterator[Remedy]:
        augmentation, section = recipe.augmentation, "augmentation"
        match augmentation.policy:
            case augmentations.NoPolicy():
                why = "two random operations for each image"
                source = f"{TABLE}; arXiv 1909.13719"
                yield change(recipe, f"{section}.policy.kind", "randaugment", why, source)
            case augmentations.RandAugment(magnitude=magnitude) if magnitude < 15:
                stronger = min(15, magnitude + 5)
                why = "stronger operations"
                yield change(recipe, f"{section}.policy.magnitude", stronger, why, "arXiv 1909.13719")
            case _:
                pass
        if isinstance(augmentation.mixing, augmentations.NoMixing):
            why = "the largest gain in the PaddleClas guide's table"
            yield change(recipe, f"{section}.mixing.kind", "cutmix", why, f"{TABLE}; arXiv 1905.04899")
        if isinstance(augmentation.masking, augmentations.NoMasking):
            why = "the network cannot rely on one part of an image"
            yield change(recipe, f"{section}.masking.kind", "erasing", why, f"{TABLE}; arXiv 1708.04896")
        match augmentation.crop:
            case augmentations.NoCrop():
                why = "the object is in another position each time"
                yield change(recipe, f"{section}.crop.kind", "pad", why, "arXiv 1512.03385, 4.2")
            case augmentations.ResizedCrop(scale_min=scale) if scale > 0.08:
                to = rounded(max(0.08, scale / 2))
                yield change(recipe, f"{section}.crop.scale_min", to, "smaller crops vary more", "003:62")
            case _:
                pass
        if recipe.data.flips and augmentation.flip_probability == 0.0:
            why = "data.flips says that labels survive it"
            yield change(recipe, f"{section}.flip_probability", 0.5, why, "000:22")
        if recipe.regularisation.label_smoothing == 0.0:
            why = "softer targets keep the network from being too sure"
            source = "003:84; arXiv 1512.00567, section 7"
            yield change(recipe, "regularisation.label_smoothing", 0.1, why, source)
