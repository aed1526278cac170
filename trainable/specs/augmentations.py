"""The random changes of training images."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainable.specs.base import Fraction, Spec


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


class Augmentation(Spec):
    crop: Annotated[NoCrop | PadCrop | ResizedCrop, Field(discriminator="kind")] = PadCrop()
    flip_probability: Fraction = Field(0.5, description="for each flip that data.flips allows")
    policy: Annotated[NoPolicy | RandAugment, Field(discriminator="kind")] = NoPolicy()
    erasing_probability: Fraction = Field(0.0, description="RandomErasing (arXiv 1708.04896)")
    mixing: Annotated[NoMixing | Mixup | CutMix, Field(discriminator="kind")] = NoMixing()
