"""The random changes of training images.

Sources such as `003:62` are lines of the guides in docs/sources.md: 000 is the training tricks notes, 001
the PyTorch tuning guide and 003 the PaddleClas guide.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainable.recipe.base import Fraction, Purpose, Spec, check_ordered

ERASING = "003:81; arXiv 1708.04896"
GRID = "003:79; arXiv 2001.04086, section 3"
SCALES = "001:208; arXiv 1612.08242, section 2"
SCALED = "arXiv 1706.05587, section 4.1"
GROWING = "000:49; arXiv 2104.00298"

# The fields that several kinds have, each with its one purpose.
LEAST_SCALE = Purpose(
    "least area of a crop, larger for small nets; of kind scaled, the least factor of an image's size",
    f"003:62-67; {SCALED}",
)
LARGEST_SCALE = Purpose(
    "largest area of a crop; of kind scaled, the largest factor of an image's size", f"003:62; {SCALED}"
)
MaskingProbability = Annotated[
    Fraction,
    Purpose(
        "share of images with a hole; of cells hidden, for hide_and_seek",
        "003:78-82; arXiv 1708.04896, 1708.04552, 2001.04086, 1811.02545",
    ),
]
MixingAlpha = Annotated[float, Field(gt=0.0), Purpose("how evenly pairs mix", "arXiv 1710.09412, 1905.04899")]
MixingProbability = Annotated[Fraction, Purpose("share of batches mixed", "arXiv 1905.04899")]


class NoCrop(Spec):
    kind: Literal["none"] = "none"


class PadCrop(Spec):
    """Padding with zeros by `fraction` of the side, and a random crop back (4 of 32 px: 1512.03385, 4.2)."""

    kind: Literal["pad"] = "pad"
    fraction: Annotated[
        float,
        Field(gt=0.0, le=0.5),
        Purpose("largest shift as a share of the side", "arXiv 1512.03385, section 4.2"),
    ] = 0.125


class ResizedCrop(Spec):
    """A crop of a random area and aspect ratio, resized back (Inception: arXiv 1409.4842, section 6)."""

    kind: Literal["resized"] = "resized"
    scale_min: Annotated[float, Field(gt=0.0, le=1.0), LEAST_SCALE] = 0.08
    scale_max: Annotated[float, Field(gt=0.0, le=1.0), LARGEST_SCALE] = 1.0
    ratio_min: Annotated[
        float, Field(ge=0.001, le=1000.0), Purpose("narrowest crop, width over height", "003:62")
    ] = 0.75
    ratio_max: Annotated[
        float, Field(ge=0.001, le=1000.0), Purpose("widest crop, width over height", "003:62")
    ] = 4 / 3

    @model_validator(mode="after")
    def bounds_are_ordered(self) -> Self:
        check_ordered(scale_min=self.scale_min, scale_max=self.scale_max)
        check_ordered(ratio_min=self.ratio_min, ratio_max=self.ratio_max)
        return self


class ScaledCrop(Spec):
    """An image enlarged or shrunk at random, and a window of `data.image_size` out of it; what lies
    beyond the image is ignored. For images with masks."""

    kind: Literal["scaled"] = "scaled"
    scale_min: Annotated[float, Field(ge=0.1, le=10.0), LEAST_SCALE] = 0.5
    scale_max: Annotated[float, Field(ge=0.1, le=10.0), LARGEST_SCALE] = 2.0

    @model_validator(mode="after")
    def scales_are_ordered(self) -> Self:
        check_ordered(scale_min=self.scale_min, scale_max=self.scale_max)
        return self


class NoPolicy(Spec):
    kind: Literal["none"] = "none"


class RandAugment(Spec):
    """`num_ops` random operations on an image (arXiv 1909.13719); magnitude has 31 bins."""

    kind: Literal["randaugment"] = "randaugment"
    num_ops: Annotated[
        int, Field(ge=1, le=8), Purpose("distortions an image", "arXiv 1909.13719, section 4.4")
    ] = 2
    magnitude: Annotated[
        int, Field(ge=0, le=30), Purpose("strength, 0 to 30", "arXiv 1909.13719, section 4.1")
    ] = 9


class TrivialAugment(Spec):
    """One random operation of a random strength (arXiv 2103.10158): there is nothing to tune."""

    kind: Literal["trivialaugment"] = "trivialaugment"


class AutoAugment(Spec):
    """One of 25 pairs of operations that were learnt on the named data set (arXiv 1805.09501)."""

    kind: Literal["autoaugment"] = "autoaugment"
    policy: Annotated[
        Literal["imagenet", "cifar10", "svhn"],
        Purpose("the data set that the distortions were learnt on", "003:75; arXiv 1805.09501"),
    ] = "imagenet"


class NoMasking(Spec):
    kind: Literal["none"] = "none"


class RandomErasing(Spec):
    """An erased rectangle of a random area and ratio (arXiv 1708.04896; torchvision's defaults)."""

    kind: Literal["erasing"] = "erasing"
    probability: MaskingProbability = 0.5
    area_min: Annotated[
        float,
        Field(gt=0.0, lt=1.0),
        Purpose("least share of the image erased", ERASING),
    ] = 0.02
    area_max: Annotated[
        float, Field(gt=0.0, lt=1.0), Purpose("largest share of the image erased", ERASING)
    ] = 0.33
    ratio_min: Annotated[
        float, Field(ge=0.001, le=1000.0), Purpose("flattest hole, height over width", ERASING)
    ] = 0.3
    ratio_max: Annotated[
        float, Field(ge=0.001, le=1000.0), Purpose("tallest hole, height over width", ERASING)
    ] = 3.3

    @model_validator(mode="after")
    def bounds_are_ordered(self) -> Self:
        check_ordered(area_min=self.area_min, area_max=self.area_max)
        check_ordered(ratio_min=self.ratio_min, ratio_max=self.ratio_max)
        return self


class Cutout(Spec):
    """An erased square with a uniform centre, cut off at the border (arXiv 1708.04552, section 3.2)."""

    kind: Literal["cutout"] = "cutout"
    probability: MaskingProbability = 1.0
    side: Annotated[
        float,
        Field(gt=0.0, le=2.0),
        Purpose(
            "side of the square as a share of the image's: 16 of 32 px",
            "003:78; arXiv 1708.04552, section 3.2",
        ),
    ] = 0.5


class GridMask(Spec):
    """The erased squares of a grid of a random period and offset (arXiv 2001.04086, section 3).

    The probability rises in a straight line from 0 to `probability` over the first `ramp` of the epochs.
    """

    kind: Literal["gridmask"] = "gridmask"
    probability: MaskingProbability = 0.8
    kept: Annotated[
        float, Field(gt=0.0, lt=1.0), Purpose("share of each period that stays visible: r", GRID)
    ] = 0.6
    period_min: Annotated[
        float,
        Field(gt=0.0, le=1.0),
        Purpose("least distance of the squares as a share of the side: 96 of 224", GRID),
    ] = 96 / 224
    period_max: Annotated[
        float, Field(gt=0.0, le=1.0), Purpose("largest distance of the squares as a share of the side", GRID)
    ] = 1.0
    rotation: Annotated[
        float, Field(ge=0.0, le=360.0), Purpose("largest rotation of the grid in degrees", GRID)
    ] = 0.0
    ramp: Annotated[Fraction, Purpose("part of the run in which the probability rises from 0", GRID)] = 0.8

    @model_validator(mode="after")
    def periods_are_ordered(self) -> Self:
        check_ordered(period_min=self.period_min, period_max=self.period_max)
        return self


class HideAndSeek(Spec):
    """Cells of a grid that are hidden by chance; the grid is drawn for each image (arXiv 1811.02545, 3.1).

    Cells of {none, 16, 32, 44, 56} of 224 px, scaled with the image.
    """

    kind: Literal["hide_and_seek"] = "hide_and_seek"
    probability: MaskingProbability = 0.5


class FixedSize(Spec):
    """Images of `data.image_size` throughout."""

    kind: Literal["fixed"] = "fixed"


class MultiScale(Spec):
    """A new size every `every` steps, uniform between two factors of `data.image_size`.

    Sizes are multiples of 32 pixels, of 4 where images are under 64 (after arXiv 1612.08242, section 2).
    """

    kind: Literal["multi_scale"] = "multi_scale"
    smallest: Annotated[
        float, Field(ge=0.25, le=1.0), Purpose("smallest size as a share of data.image_size", SCALES)
    ] = 0.75
    largest: Annotated[
        float,
        Field(ge=1.0, le=2.0),
        Purpose("largest size as a share of data.image_size", SCALES),
    ] = 1.25
    every: Annotated[int, Field(ge=1), Purpose("steps until the size changes", SCALES)] = 10


class Progressive(Spec):
    """Small images at first: from `start` of the size, in equal steps, to all of it at `until` of the run.

    Cheaper early epochs, at the same sizes as `multi_scale` (after arXiv 2104.00298, section 4).
    """

    kind: Literal["progressive"] = "progressive"
    start: Annotated[
        float, Field(ge=0.25, lt=1.0), Purpose("the first size as a share of data.image_size", GROWING)
    ] = 0.5
    until: Annotated[
        float,
        Field(gt=0.0, le=1.0),
        Purpose("part of the run after which images have their whole size", GROWING),
    ] = 0.75


class NoMixing(Spec):
    kind: Literal["none"] = "none"


class Mixup(Spec):
    """Mixed pairs of images and labels, with lambda ~ Beta(alpha, alpha) (arXiv 1710.09412)."""

    kind: Literal["mixup"] = "mixup"
    alpha: MixingAlpha = 0.2
    probability: MixingProbability = 1.0


class CutMix(Spec):
    """A pasted rectangle of another image, and labels mixed by area (arXiv 1905.04899)."""

    kind: Literal["cutmix"] = "cutmix"
    alpha: MixingAlpha = 1.0
    probability: MixingProbability = 1.0


class ClassMix(Spec):
    """The pasted pixels of half of the classes of another image, with their labels (arXiv 2007.07936)."""

    kind: Literal["classmix"] = "classmix"
    probability: MixingProbability = 1.0


# What goes with labels of images, and with masks; a recipe refuses the other kinds (`crops` and `mixings` of
# its task)
CropOfLabels = NoCrop | PadCrop | ResizedCrop
MixingOfLabels = NoMixing | Mixup | CutMix
MixingOfMasks = NoMixing | CutMix | ClassMix

Crop = Annotated[
    CropOfLabels | ScaledCrop,
    Field(discriminator="kind"),
    Purpose("random place, or place and size, of the image", "003:62"),
]
Policy = Annotated[
    NoPolicy | RandAugment | TrivialAugment | AutoAugment,
    Field(discriminator="kind"),
    Purpose("a policy of random distortions", "003:70-80"),
]
Masking = Annotated[
    NoMasking | RandomErasing | Cutout | GridMask | HideAndSeek,
    Field(discriminator="kind"),
    Purpose("hides a part of the image: one at most", "003:78-82"),
]
Mixing = Annotated[
    MixingOfLabels | MixingOfMasks,
    Field(discriminator="kind"),
    Purpose("mixes pairs of images and labels", "003:70-77"),
]
SizeSchedule = Annotated[
    FixedSize | MultiScale | Progressive,
    Field(discriminator="kind"),
    Purpose("the size of training images: fixed, mixed, or growing", "001:208, 000:49"),
]


class Augmentation(Spec):
    """How training images are changed at random before a network sees them."""

    crop: Crop = PadCrop()
    flip_probability: Annotated[
        Fraction, Purpose("for each flip that data.flips allows", "000:22, 003:70")
    ] = 0.5
    policy: Policy = NoPolicy()
    masking: Masking = NoMasking()
    mixing: Mixing = NoMixing()
    size: SizeSchedule = FixedSize()
