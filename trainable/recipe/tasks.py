"""What is learnt: one label for each image, or one for each of its pixels.

Sources such as `000:44` are lines of the guides in docs/sources.md: 000 is the training tricks notes and 003
the PaddleClas guide. What a segmentation needs beside the other sections stands here alone: a recipe of a
classification holds nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from trainable.recipe.base import YOURS, Purpose, Spec, check_distinct, usable_if_any
from trainable.recipe.metrics import ScoreFacts

IGNORED = 255  # a pixel of this label counts nowhere: every mask in memory has it, whatever the files have
MOST_CLASSES = IGNORED  # a label is a byte, and one value of it is for pixels that are ignored


Names = tuple[str, ...]
# What has a label, and logits of its own: networks give [B, classes], or [B, classes, h, w]
Labelled = Literal["image", "pixel"]


class Classification(Spec):
    """One label for each image, scored by cross-entropy.

    What goes with a task stands on its class: kinds of other sections, of which the first network needs no
    other field, the scores that every run of it measures beside loss and accuracies, and the metrics that a
    search may optimise, of which the first is the default.
    """

    networks: ClassVar[Names] = ("resnet_small", "torchvision", "timm", "own")
    crops: ClassVar[Names] = ("none", "pad", "resized")
    mixings: ClassVar[Names] = ("none", "mixup", "cutmix")  # a label does not say where its class is
    metrics: ClassVar[Names] = (
        *("macro_f1", "auroc", "average_precision", "recall_at_precision", "cost", "calibration_error"),
    )
    scores: ClassVar[Mapping[str, ScoreFacts]] = {}
    objectives: ClassVar[Names] = (
        *("val_accuracy", "val_balanced_accuracy", "val_top5_accuracy", "val_loss"),
        *(f"val_{kind}" for kind in metrics),
    )

    labelled: ClassVar[Labelled] = "image"
    windowed: ClassVar[bool] = False  # an image is shown whole, made square
    masks: ClassVar[None] = None  # no files beside the images say what is learnt

    kind: Literal["classification"] = "classification"

    @property
    def costs(self) -> list[object]:
        """What of the task changes the time and memory of a step."""
        return []

    @property
    def bounded_loss(self) -> str | None:
        """Why rates that are too high hardly show in the loss, and what would show them; None if they do."""
        return None


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    check_distinct("class", names)
    return names


class Masks(Spec):
    """Where the masks of images are, and what the values of their pixels mean."""

    values: Annotated[
        Literal["index", "binary"],
        Purpose(
            "index: a pixel's value is the number of its class; binary: 0 is background, and foreground the "
            "other value, or the numbers of objects",
            YOURS,
        ),
    ] = "index"
    threshold: Annotated[
        int | None,
        Field(ge=1, le=255),
        Purpose(
            "with values: binary, foreground begins at this value of 255: 128 for greys, 1 for all but 0; "
            "null: values between are refused",
            YOURS,
        ),
    ] = None
    ignore_index: Annotated[
        int | None,
        Field(ge=0, le=255),
        Purpose("pixels of this value count nowhere; null: all count, as they do with values: binary", YOURS),
    ] = IGNORED
    void: Annotated[
        tuple[str, ...],
        AfterValidator(_each_once),
        Purpose("classes, by name, whose pixels count nowhere", YOURS),
    ] = ()
    classes: Annotated[
        str | None,
        Field(min_length=1),
        AfterValidator(usable_if_any),
        Purpose("a text file with the name of a class on each line, in the order of their numbers", YOURS),
    ] = None
    images: Annotated[str, Field(min_length=1), Purpose("the folder that holds the images", YOURS)] = "images"
    folder: Annotated[
        str, Field(min_length=1), Purpose("the folder that holds the masks, beside that of the images", YOURS)
    ] = "masks"
    suffix: Annotated[
        str | None,
        Field(min_length=1),
        Purpose("what a mask's name adds to its image's, as `_mask` in cat.jpg and cat_mask.png", YOURS),
    ] = None
    column: Annotated[
        str, Field(min_length=1), Purpose("a manifest's column with the path of each mask", YOURS)
    ] = "mask"

    @model_validator(mode="after")
    def ignores_an_index(self) -> Self:
        if self.values == "binary" and self.ignore_index not in (None, IGNORED):
            raise ValueError(
                f"ignore_index {self.ignore_index} is for values: index; with values: binary all but 0 is "
                "foreground"
            )
        if self.values == "index" and self.threshold is not None:
            raise ValueError(
                f"threshold {self.threshold} is for values: binary; with values: index each value is a class"
            )
        return self


# The side in pixels without and with a GPU: what the device trains in reasonable time. 513 is that of arXiv
# 1706.05587, section 4.1
LARGEST_WINDOW = {False: 128, True: 512}
STRIDE = 32  # of common networks: the side is a multiple of it
SMALL, SMALL_STRIDE = 64, 8  # of images of fewer pixels it is a multiple of this


def window_side(longer: int, *, gpu: bool) -> int:
    """Return the side of the windows that are trained on, where a recipe leaves it open, from the longer side
    of most images: as much, rounded up, at most what suits the device.

    Larger windows gain up to the size of the images (000:49).
    """
    stride = STRIDE if longer >= SMALL else SMALL_STRIDE
    return min(-(-longer // stride) * stride, LARGEST_WINDOW[gpu])


LossWeight = Annotated[float, Field(ge=0.0, le=100.0)]


class MaskLoss(Spec):
    """A weighted sum of losses, each a mean over images, and in an image over its pixels or classes.

    So a batch has the same loss whether it is computed at once, in parts, or on several ranks.
    """

    cross_entropy: Annotated[
        LossWeight, Purpose("weight of the cross-entropy of pixels", "arXiv 1411.4038, section 3")
    ] = 1.0
    dice: Annotated[
        LossWeight,
        Purpose("weight of 1 - Dice, a class as much as another, however small", "arXiv 1606.04797"),
    ] = 0.0
    focal: Annotated[
        LossWeight, Purpose("weight of the focal loss, in which sure pixels count little", "arXiv 1708.02002")
    ] = 0.0
    focal_gamma: Annotated[
        float,
        Field(ge=0.0, le=10.0),
        Purpose("how little they count: 0 is the cross-entropy", "arXiv 1708.02002, section 3"),
    ] = 2.0
    lovasz: Annotated[
        LossWeight, Purpose("weight of the Lovasz-Softmax loss, a bound of 1 - IoU", "arXiv 1705.08790")
    ] = 0.0
    auxiliary: Annotated[
        LossWeight,
        Purpose("weight of the same loss of a second head, where the network has one", "arXiv 1612.01105, 4"),
    ] = 0.4
    resolution: Annotated[
        Literal["labels", "outputs"],
        Purpose(
            "labels: outputs are enlarged to the mask before the loss; outputs: the mask shrinks to them",
            "000:50; arXiv 1706.05587, section 4.1",
        ),
    ] = "labels"

    @model_validator(mode="after")
    def is_a_loss(self) -> Self:
        if not any((self.cross_entropy, self.dice, self.focal, self.lovasz)):
            raise ValueError("cross_entropy, dice, focal and lovasz are all 0: there is nothing to learn")
        return self


class Segmentation(Spec):
    """A label for each pixel, scored by the mean IoU over classes, by which published segmentations are
    compared (arXiv 1411.4038, section 5; the PASCAL VOC challenge).

    `data.image_size` is the side of the square windows that are trained on; larger images are scored in
    windows of that side, too.
    """

    networks: ClassVar[Names] = ("unet_small", "torchvision", "smp", "own")
    crops: ClassVar[Names] = ("none", "pad", "resized", "scaled")
    mixings: ClassVar[Names] = ("none", "cutmix", "classmix")  # a pixel cannot have shares of two labels
    metrics: ClassVar[Names] = ("boundary_f1",)
    scores: ClassVar[Mapping[str, ScoreFacts]] = dict.fromkeys(
        ("mean_iou", "mean_dice"), ScoreFacts(counts_classes_alike=True)
    )
    objectives: ClassVar[Names] = (
        *(f"val_{name}" for name in scores),
        *("val_accuracy", "val_balanced_accuracy", "val_loss"),
        *(f"val_{kind}" for kind in metrics),
    )

    labelled: ClassVar[Labelled] = "pixel"
    windowed: ClassVar[bool] = True  # images keep their sizes: squares are cut at random places to train on

    kind: Literal["segmentation"] = "segmentation"
    masks: Masks = Masks()
    loss: MaskLoss = MaskLoss()
    overlap: Annotated[
        float,
        Field(ge=0.0, le=0.9),
        Purpose(
            "how far neighbouring windows of a larger image overlap in scoring, as a share of their side",
            "arXiv 1612.01105, section 5.1",
        ),
    ] = 1 / 3

    @property
    def costs(self) -> list[object]:
        """Which losses are computed, as each takes memory, and at which size."""
        loss = self.loss
        weights = (loss.cross_entropy, loss.dice, loss.focal, loss.lovasz, loss.auxiliary)
        return [[weight > 0.0 for weight in weights], loss.resolution]

    @property
    def bounded_loss(self) -> str | None:
        if self.loss.cross_entropy or self.loss.focal:
            return None
        return (
            "task.loss: dice and lovasz are at most 1, so rates that are too high hardly show; with "
            "task.loss.cross_entropy: 1 they do"
        )


AnyTask = Classification | Segmentation
TaskKind = Literal["classification", "segmentation"]
TASK_KINDS: tuple[TaskKind, ...] = get_args(TaskKind)
CLASSIFICATION = Classification()
TASKS: dict[str, type[AnyTask]] = {each().kind: each for each in get_args(AnyTask)}
TaskSpec = Annotated[
    AnyTask,
    Field(discriminator="kind"),
    Purpose("one label an image, or one a pixel", "003:43, 000:42"),
]
