"""Which network is trained, from which weights, and how its layers are treated."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainable.recipe.base import OpenFraction, Spec

OWN_WEIGHTS = "default"
"""The weights that torchvision or timm publish for a model; anything else in `weights` is a local file."""


class UniformRates(Spec):
    """One rate for every layer."""

    kind: Literal["uniform"] = "uniform"


class GeometricRates(Spec):
    """Layer groups from `lowest` times the rate at the stem to the whole rate at the head, in equal ratios.

    Discriminative fine-tuning (arXiv 1801.06146, section 3.2).
    """

    kind: Literal["geometric"] = "geometric"
    lowest: Annotated[float, Field(gt=0.0, le=1.0)] = Field(
        0.1, description="the stem's rate over the head's"
    )


class DecayedRates(Spec):
    """Each layer group has `factor` times the rate of the one above it (0.65 to 0.9; arXiv 2003.10555)."""

    kind: Literal["decayed"] = "decayed"
    factor: Annotated[float, Field(gt=0.0, le=1.0)] = 0.75


LayerRates = Annotated[UniformRates | GeometricRates | DecayedRates, Field(discriminator="kind")]


class ModelSpec(Spec):
    """What holds for every network. `None` leaves a choice to the network's own library."""

    kind: str
    weights: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="a local file of weights to start from; `default`: the library's own"
    )
    initialisation: Literal["default", "kaiming", "xavier", "orthogonal"] = Field(
        "default", description="of layers that no weights are loaded for (1502.01852, Glorot 2010, 1312.6120)"
    )
    zero_init_residual: bool | None = Field(
        None, description="residual blocks begin as the identity (arXiv 1706.02677, section 5.1)"
    )
    dropout: OpenFraction | None = Field(None, description="before the head (JMLR 15:1929)")
    stochastic_depth: OpenFraction | None = Field(
        None, description="of the last block, rising from 0 at the first (arXiv 1603.09382)"
    )
    freeze_epochs: Annotated[int, Field(ge=0)] = Field(0, description="the head alone is trained first")
    freeze_norm: bool = Field(False, description="BatchNorm keeps its statistics, scale and shift")
    layer_rates: LayerRates = UniformRates()


class ResNetSmall(ModelSpec):
    """A residual net for images up to 64 px: three stages of (depth - 2) / 6 blocks (1512.03385, 4.2)."""

    kind: Literal["resnet_small"] = "resnet_small"
    depth: Literal[8, 14, 20, 32, 44, 56] = 8
    width: Annotated[int, Field(ge=4, le=512)] = Field(16, description="channels of the first stage")
    stem_stride: Literal[1, 2] = 1

    @model_validator(mode="after")
    def has_no_published_weights(self) -> Self:
        if self.weights == OWN_WEIGHTS:
            raise ValueError("resnet_small has no published weights: name a local file, or leave weights out")
        return self


class Named(Spec):
    """A network of a library; written first, before what holds for every network."""

    kind: str
    name: Annotated[str, Field(min_length=1)]


class TorchvisionModel(ModelSpec, Named):
    """A classification model of torchvision, by its name."""

    kind: Literal["torchvision"] = "torchvision"


class TimmModel(ModelSpec, Named):
    """A model of timm, by its name."""

    kind: Literal["timm"] = "timm"


Model = Annotated[ResNetSmall | TorchvisionModel | TimmModel, Field(discriminator="kind")]
