"""Which network is trained."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trainable.specs.base import Spec


class ResNetSmall(Spec):
    """A residual net for images up to 64 px: three stages of (depth - 2) / 6 blocks (1512.03385, 4.2)."""

    kind: Literal["resnet_small"] = "resnet_small"
    depth: Literal[8, 14, 20, 32, 44, 56] = 8
    width: Annotated[int, Field(ge=4, le=512)] = Field(16, description="channels of the first stage")
    stem_stride: Literal[1, 2] = 1


class TorchvisionModel(Spec):
    """A classification model of torchvision, by its name, from scratch."""

    kind: Literal["torchvision"] = "torchvision"
    name: Annotated[str, Field(min_length=1)]


class TimmModel(Spec):
    """A model of timm, by its name, from scratch."""

    kind: Literal["timm"] = "timm"
    name: Annotated[str, Field(min_length=1)]


Model = Annotated[ResNetSmall | TorchvisionModel | TimmModel, Field(discriminator="kind")]
