"""How learning curves of masks are read: by the mean IoU.

The pixel accuracy of masks is mostly that of the largest class: where nine pixels in ten are background, it
is 0.9 for a network that finds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from trainable.curves.levels import Levels, Thresholds, accuracies_of, noise_in
from trainable.curves.task_curves import Remedy, TaskCurves, change
from trainable.recipe import Recipe, augmentations
from trainable.recipe.tasks import Segmentation
from trainable.training.metrics import EpochResult

IOU, CLEAN_IOU = "val_mean_iou", "clean_train_mean_iou"

# The mean IoU of one image is so far from that of another. It is not measured: nuclei have 0.02, and images
# in which objects are small or rare several times as much; ours.
IMAGE_DEVIATION = 0.1

LARGEST = 1024  # pixels: no larger window is proposed


class MeanIous(Levels):
    """Mean IoUs over classes."""

    # An IoU of 0.9 is a Dice coefficient, the F1 of pixels, of 0.95, the target of an accuracy; the last
    # points are borders that nobody draws twice alike
    limits = Thresholds(train_target=0.9, train_saturated=0.95)
    not_clean = (
        f"{CLEAN_IOU} was not measured: the gap is that of pixel accuracies, on augmented images, which is "
        "too small"
    )

    @property
    def train_in_words(self) -> str:
        return f"a mean IoU of {self.train:.1%} on training images"

    @property
    def left_in_words(self) -> str:
        return f"the mean IoU on training images is {self.train:.1%}"

    def standard_error(self, images: int | None) -> float:
        return IMAGE_DEVIATION / math.sqrt(images or math.inf)


@final
@dataclass(frozen=True)
class MaskCurves(TaskCurves):
    """Curves of images with masks."""

    section: Segmentation

    def levels(self, history: Sequence[EpochResult]) -> Levels:
        """Return mean IoUs, if every epoch has one, else accuracies. Where that of training images was not
        measured, it is that of validation, and the gap of the pixel accuracies beside it."""
        ious = [result.extra_metrics.get(IOU) for result in history]
        known = tuple(iou for iou in ious if iou is not None)
        if len(known) < len(history):
            return accuracies_of(history)
        last, clean = history[-1], history[-1].extra_metrics.get(CLEAN_IOU)
        beside = last.train_accuracy - last.val_accuracy
        train = min(1.0, max(0.0, known[-1] + beside)) if clean is None else clean
        named = {"train_accuracy": last.train_accuracy} if clean is None else {CLEAN_IOU: clean}
        figures = {**named, IOU: known[-1], "val_accuracy": last.val_accuracy}
        return MeanIous(known, train, clean is not None, figures)

    def mistakes(self, metric: str, metrics: Mapping[str, float], images: int) -> int | None:
        """Return None: no mask is right in every pixel, for nobody draws a border twice alike."""
        return None

    def noise(self, metric: str, figures: Mapping[str, float]) -> float | None:
        """Return that of the mean IoU, if the run was read by it."""
        return noise_in(figures) if metric == IOU and IOU in figures else None

    def guessing(self, classes: int) -> float:
        """Return the loss of guessing with that of a second head, which a network may have."""
        loss, of_pixels = self.section.loss, math.log(max(classes, 2))
        whole = (loss.cross_entropy + loss.focal) * of_pixels + loss.dice + loss.lovasz
        return whole * (1.0 + loss.auxiliary)

    def better_fit(self, recipe: Recipe, *, small_missed: bool) -> Iterator[Remedy]:
        """Yield a loss that counts small classes, if they are missed, and a larger window."""
        if small_missed and not (self.section.loss.dice or self.section.loss.lovasz):
            why = "small classes are known less than large ones: this loss counts classes alike"
            yield change(recipe, "task.loss.dice", 1.0, why, "arXiv 1606.04797, section 3")
        side = recipe.data.image_size
        if side is not None and 2 * side <= LARGEST:
            why = "if images are larger: the network sees more of what a pixel is part of"
            yield change(recipe, "data.image_size", 2 * side, why, "000:49")

    def harder_images(self, recipe: Recipe) -> Iterator[Remedy]:
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
