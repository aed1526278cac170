"""The random changes of training images."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainable.recipe.base import Fraction, Spec


class NoCrop(Spec):
    kind: Literal["none"] = "none"


class PadCrop(Spec):
    """Zero-pad by `fraction` of the side, crop back at a random place (4 of 32 px: 1512.03385, 4.2)."""

    kind: Literal["pad"] = "pad"
    fraction: Annotated[float, Field(gt=0.0, le=0.5)] = 0.125


class ResizedCrop(Spec):
    """A random area and aspect ratio, resized back (Inception's crop: arXiv 1409.4842, section 6)."""

    kind: Literal["resized"] = "resized"
    scale_min: Annotated[float, Field(gt=0.0, le=1.0)] = 0.08
    scale_max: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    ratio_min: Annotated[float, Field(gt=0.0)] = 0.75
    ratio_max: Annotated[float, Field(gt=0.0)] = 4 / 3

    @model_validator(mode="after")
    def bounds_are_ordered(self) -> Self:
        if self.scale_min > self.scale_max:
            raise ValueError(f"scale_min {self.scale_min} is above scale_max {self.scale_max}")
        if self.ratio_min > self.ratio_max:
            raise ValueError(f"ratio_min {self.ratio_min} is above ratio_max {self.ratio_max}")
        return self


class NoPolicy(Spec):
    kind: Literal["none"] = "none"


class RandAugment(Spec):
    """`num_ops` random operations an image (arXiv 1909.13719); magnitude in torchvision's 31 bins."""

    kind: Literal["randaugment"] = "randaugment"
    num_ops: Annotated[int, Field(ge=1, le=8)] = 2
    magnitude: Annotated[int, Field(ge=0, le=30)] = 9


class TrivialAugment(Spec):
    """One random operation of a random strength an image (arXiv 2103.10158): nothing to tune."""

    kind: Literal["trivialaugment"] = "trivialaugment"


class AutoAugment(Spec):
    """One of 25 learnt pairs of operations an image (arXiv 1805.09501), those found on the data set named."""

    kind: Literal["autoaugment"] = "autoaugment"
    policy: Literal["imagenet", "cifar10", "svhn"] = "imagenet"


class NoMasking(Spec):
    kind: Literal["none"] = "none"


class RandomErasing(Spec):
    """A rectangle of a random area and ratio (arXiv 1708.04896; torchvision's defaults)."""

    kind: Literal["erasing"] = "erasing"
    probability: Fraction = 0.5
    area_min: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(0.02, description="share of the image")
    area_max: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.33
    ratio_min: Annotated[float, Field(gt=0.0)] = Field(0.3, description="height over width")
    ratio_max: Annotated[float, Field(gt=0.0)] = 3.3

    @model_validator(mode="after")
    def bounds_are_ordered(self) -> Self:
        if self.area_min > self.area_max:
            raise ValueError(f"area_min {self.area_min} is above area_max {self.area_max}")
        if self.ratio_min > self.ratio_max:
            raise ValueError(f"ratio_min {self.ratio_min} is above ratio_max {self.ratio_max}")
        return self


class Cutout(Spec):
    """One square, its centre uniform, cut off at the border (arXiv 1708.04552, section 3.2)."""

    kind: Literal["cutout"] = "cutout"
    probability: Fraction = 1.0
    side: Annotated[float, Field(gt=0.0, le=2.0)] = Field(0.5, description="of the image's: 16 of 32 px")


class GridMask(Spec):
    """Squares in a grid of a random period and offset (arXiv 2001.04086, section 3).

    The probability rises in a straight line from 0 to `probability` over the first `ramp` of the epochs.
    """

    kind: Literal["gridmask"] = "gridmask"
    probability: Fraction = Field(0.8, description="at the end of the ramp")
    kept: Annotated[float, Field(gt=0.0, lt=1.0)] = Field(
        0.6, description="the paper's r: stripe over period"
    )
    period_min: Annotated[float, Field(gt=0.0, le=1.0)] = Field(96 / 224, description="of the side")
    period_max: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    rotation: Annotated[float, Field(ge=0.0, le=360.0)] = Field(0.0, description="at most, in degrees")
    ramp: Fraction = Field(0.8, description="of the run")

    @model_validator(mode="after")
    def periods_are_ordered(self) -> Self:
        if self.period_min > self.period_max:
            raise ValueError(f"period_min {self.period_min} is above period_max {self.period_max}")
        return self


class HideAndSeek(Spec):
    """Cells of a grid, each hidden by chance; the grid is drawn for each image (arXiv 1811.02545, 3.1).

    Cells of {none, 16, 32, 44, 56} of 224 px, scaled with the image.
    """

    kind: Literal["hide_and_seek"] = "hide_and_seek"
    probability: Fraction = Field(0.5, description="that a cell is hidden")


class FixedSize(Spec):
    """Images of `data.image_size` throughout."""

    kind: Literal["fixed"] = "fixed"


class MultiScale(Spec):
    """A new size every `every` steps, uniform between two factors of `data.image_size`.

    Sizes are multiples of 32 pixels, of 4 where images are under 64 (after arXiv 1612.08242, section 2).
    """

    kind: Literal["multi_scale"] = "multi_scale"
    smallest: Annotated[float, Field(ge=0.25, le=1.0)] = 0.75
    largest: Annotated[float, Field(ge=1.0, le=2.0)] = 1.25
    every: Annotated[int, Field(ge=1)] = Field(10, description="steps")


class Progressive(Spec):
    """Small images first: from `start` of the size, in equal steps, to all of it at `until` of the run.

    Cheaper early epochs, at the same sizes as `multi_scale` (after arXiv 2104.00298, section 4).
    """

    kind: Literal["progressive"] = "progressive"
    start: Annotated[float, Field(ge=0.25, lt=1.0)] = 0.5
    until: Annotated[float, Field(gt=0.0, le=1.0)] = 0.75


class NoMixing(Spec):
    kind: Literal["none"] = "none"


class Mixup(Spec):
    """Convex pairs of images and labels, lambda ~ Beta(alpha, alpha) (arXiv 1710.09412)."""

    kind: Literal["mixup"] = "mixup"
    alpha: Annotated[float, Field(gt=0.0)] = 0.2
    probability: Fraction = 1.0


class CutMix(Spec):
    """A rectangle of another image, labels mixed by area (arXiv 1905.04899)."""

    kind: Literal["cutmix"] = "cutmix"
    alpha: Annotated[float, Field(gt=0.0)] = 1.0
    probability: Fraction = 1.0


Masking = Annotated[NoMasking | RandomErasing | Cutout | GridMask | HideAndSeek, Field(discriminator="kind")]
Size = Annotated[FixedSize | MultiScale | Progressive, Field(discriminator="kind")]


class Augmentation(Spec):
    crop: Annotated[NoCrop | PadCrop | ResizedCrop, Field(discriminator="kind")] = PadCrop()
    flip_probability: Fraction = Field(0.5, description="for each flip that data.flips allows")
    policy: Annotated[NoPolicy | RandAugment | TrivialAugment | AutoAugment, Field(discriminator="kind")] = (
        NoPolicy()
    )
    masking: Masking = NoMasking()
    mixing: Annotated[NoMixing | Mixup | CutMix, Field(discriminator="kind")] = NoMixing()
    size: Size = FixedSize()
