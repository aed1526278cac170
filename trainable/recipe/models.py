"""Which network is trained, from which weights, and how its layers are treated.

Sources such as `003:88` are lines of the guides in docs/sources.md: 000 is the training tricks notes, 001
the PyTorch tuning guide and 003 the PaddleClas guide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Annotated, Literal, Self, assert_never

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from trainable.errors import quoted
from trainable.files.paths import without_tilde
from trainable.recipe.base import YOURS, ArgumentName, OpenFraction, Purpose, Spec, usable_if_any

FROM_SCRATCH = "none"  # on the command line this word in place of weights asks for none
OWN_WEIGHTS = "default"  # the weights that torchvision or timm publish for a model
WEIGHTS_ENDINGS = (".safetensors", ".pth", ".pt", ".bin")  # how names of files of weights end
_PUBLISHED = re.compile(r"default|(?:\w+_Weights\.)?[A-Z][A-Z0-9_]*")


def is_published(weights: str) -> bool:
    """Return whether `model.weights` names weights that a library publishes: `default`, or one of
    torchvision's names, such as IMAGENET1K_V2. Anything else is a file or a folder."""
    return _PUBLISHED.fullmatch(weights) is not None


# How a name of timm's begins that is the path of a folder with a network's configuration and weights
LOCAL_FOLDER = "local-dir:"
HUB = "hf-hub:"  # or one of the Hugging Face Hub


def folder_of_name(name: object) -> str | None:
    """Return the path in a model's name `local-dir:PATH`; None for every other name."""
    return (
        name.removeprefix(LOCAL_FOLDER) if isinstance(name, str) and name.startswith(LOCAL_FOLDER) else None
    )


def absolute_name(name: str) -> str:
    """Return a model's name with the absolute path of its folder, if it names one."""
    folder = folder_of_name(name)
    return name if folder is None else f"{LOCAL_FOLDER}{without_tilde(folder).absolute()}"


MODEL_NAME = "model.name"
ENCODER, OUTPUT_STRIDE = "model.encoder", "model.output_stride"  # fields of `smp` alone
ARGUMENTS = "model.arguments"  # the section that holds what a function of your own receives
# What that function receives from the data, so that no recipe holds it
GIVEN_ARGUMENTS = ("classes", "channels", "image_size")


def _scalar(value: object) -> object:
    if not isinstance(value, float | int | str | None):
        raise ValueError(f"expected a number, a text, true, false or null, got {quoted(value)}")
    return value


Argument = Annotated[float | int | str | bool | None, BeforeValidator(_scalar)]


def _none_given(arguments: dict[str, Argument]) -> dict[str, Argument]:
    """Return the arguments. Raises ValueError for a name that the function receives from the data."""
    for name in GIVEN_ARGUMENTS:
        if name in arguments:
            raise ValueError(f"an argument cannot be called {name!r}: it is taken from the data")
    return arguments


Width = Annotated[
    int,
    Field(ge=4, le=512),
    Purpose("channels of the first stage", "arXiv 1512.03385, section 4.2; arXiv 1505.04597, section 2"),
]
RateFactor = Annotated[
    float,
    Field(gt=0.0, le=1.0),
    Purpose(
        "a layer group's rate over that of the one above it",
        "001:102; arXiv 2003.10555; arXiv 1606.00915, section 4.1",
    ),
]


class UniformRates(Spec):
    """The same rate for every layer."""

    kind: Literal["uniform"] = "uniform"


class GeometricRates(Spec):
    """Rates of layer groups in equal ratios, from `lowest` of the rate at the stem to all of it at the head.

    Discriminative fine-tuning (arXiv 1801.06146, section 3.2).
    """

    kind: Literal["geometric"] = "geometric"
    lowest: Annotated[
        float, Field(gt=0.0, le=1.0), Purpose("the stem's rate over the head's", "001:102; arXiv 1801.06146")
    ] = 0.1


class DecayedRates(Spec):
    """For each layer group `factor` times the rate of the one above (0.65 to 0.9; arXiv 2003.10555)."""

    kind: Literal["decayed"] = "decayed"
    factor: RateFactor = 0.75


class BackboneRates(Spec):
    """For what was pretrained `factor` times the rate of what is new (arXiv 1606.00915, section 4.1).

    In a network for segmentation of torchvision or smp the backbone was pretrained, and its decoder and head
    are new; in any other network the head alone is.
    """

    kind: Literal["backbone"] = "backbone"
    factor: RateFactor = 0.1


LayerRates = Annotated[
    UniformRates | GeometricRates | DecayedRates | BackboneRates,
    Field(discriminator="kind"),
    Purpose("rates that fall from the head to the stem", "001:102"),
]


class ModelSpec(Spec):
    """The fields that every network has. `None` leaves a choice to the network's own library."""

    kind: str
    weights: Annotated[
        str | None,
        Field(min_length=1),
        AfterValidator(usable_if_any),
        Purpose(
            "pretrained weights to start from, their head replaced: `default`, torchvision's name of them, a "
            "file, or a folder with NAME.safetensors of each model",
            "001:98, 003:88, 000:48",
        ),
    ] = None
    initialisation: Annotated[
        Literal["default", "kaiming", "xavier", "orthogonal"],
        Purpose(
            "how layers without loaded weights are initialised",
            "001:86; arXiv 1502.01852, Glorot 2010, arXiv 1312.6120",
        ),
    ] = "default"
    zero_init_residual: Annotated[
        bool | None,
        Purpose(
            "residual blocks begin as the identity; null leaves it to the library",
            "arXiv 1706.02677, section 5.1",
        ),
    ] = None
    dropout: Annotated[
        OpenFraction | None,
        Purpose(
            "share of features dropped before the head; null leaves it to the library",
            "001:251; JMLR 15:1929",
        ),
    ] = None
    stochastic_depth: Annotated[
        OpenFraction | None,
        Purpose(
            "how often the last block is skipped, rising from 0 at the first; null leaves it to the library",
            "arXiv 1603.09382, section 3",
        ),
    ] = None
    freeze_epochs: Annotated[
        int,
        Field(ge=0),
        Purpose(
            "the head alone (in a segmentation all above the backbone) is trained first, then all", "001:100"
        ),
    ] = 0
    frozen_views: Annotated[
        int | None,
        Field(ge=1),
        Purpose(
            "while the head alone is trained, images are augmented in so many fixed ways, whose features are "
            "computed once; null augments anew in each epoch",
            "ours",
        ),
    ] = None
    freeze_norm: Annotated[bool, Purpose("BatchNorm keeps its statistics, scale and shift", "000:51")] = False
    layer_rates: LayerRates = UniformRates()


# Fields that say nothing of which network it is, or how large
OF_ANY_NETWORK = frozenset(ModelSpec.model_fields) - {"kind"}


def network_fields(paths: Iterable[str]) -> frozenset[str]:
    """Return the fields of `model` among dotted paths that say which network it is, or how large."""
    return frozenset(path.split(".")[1] for path in paths if path.startswith("model.")) - OF_ANY_NETWORK


class ResNetSmall(ModelSpec):
    """A residual net for images up to 64 px: three stages of (depth - 2) / 6 blocks (1512.03385, 4.2)."""

    kind: Literal["resnet_small"] = "resnet_small"
    depth: Annotated[
        Literal[8, 14, 20, 32, 44, 56],
        Purpose("layers, in three stages of residual blocks", "arXiv 1512.03385, section 4.2"),
    ] = 8
    width: Width = 16
    stem_stride: Annotated[
        Literal[1, 2], Purpose("2 halves the image first: cheaper, a little less accurate", "ours")
    ] = 1

    @model_validator(mode="after")
    def has_no_published_weights(self) -> Self:
        if self.weights is not None and is_published(self.weights):
            raise ValueError("resnet_small has no published weights: name a local file, or leave weights out")
        return self


WIDEST = 2048  # channels of a layer of `unet_small`: twice as many as the paper's widest has


class UNetSmall(ModelSpec):
    """A U-Net for images under 128 px (arXiv 1505.04597): they are halved `levels` times, each time to
    twice as many channels, and enlarged again."""

    kind: Literal["unet_small"] = "unet_small"
    levels: Annotated[
        int, Field(ge=1, le=5), Purpose("how often the image is halved", "arXiv 1505.04597, section 2")
    ] = 3
    width: Width = 16

    @model_validator(mode="after")
    def has_no_published_weights(self) -> Self:
        if self.weights is not None and is_published(self.weights):
            raise ValueError("unet_small has no published weights: name a local file, or leave weights out")
        return self

    @model_validator(mode="after")
    def has_no_huge_layer(self) -> Self:
        if (widest := self.width * 2**self.levels) > WIDEST:
            raise ValueError(
                f"width {self.width}, doubled {self.levels} times, is {widest} channels, expected at most "
                f"{WIDEST}"
            )
        return self


class Named(Spec):
    """A network of a library, by name; its fields are written before those that every network has."""

    kind: str
    name: Annotated[str, Field(min_length=1), Purpose("the model", YOURS)]


class TorchvisionModel(ModelSpec, Named):
    """A model of torchvision, by name: `resnet18` for classification, `fcn_resnet50` for segmentation.

    Weights for segmentation may be those of the backbone alone: `ResNet50_Weights.IMAGENET1K_V2`.
    """

    kind: Literal["torchvision"] = "torchvision"


class TimmModel(ModelSpec, Named):
    """A model of timm, by name: `resnet50`, `resnet50.a1_in1k` with the tag of its weights,
    `hf-hub:OWNER/NAME` or `local-dir:PATH`."""

    kind: Literal["timm"] = "timm"


def _bare(encoder: str) -> str:
    """Return the name of an encoder. Raises ValueError for one that is more than a name of timm's list."""
    if encoder.startswith("tu-") or ":" in encoder or "/" in encoder:
        raise ValueError(f"expected a bare name of timm, such as resnet18, got {quoted(encoder)}")
    return encoder


class Decoded(Spec):
    """A decoder and the encoder below it; both are written before what every network has.

    Decoders: unet (arXiv 1505.04597), unetplusplus (1807.10165), fpn (1612.03144), deeplabv3plus
    (1802.02611) and segformer (2105.15203).
    """

    kind: str
    name: Annotated[
        Literal["unet", "unetplusplus", "fpn", "deeplabv3plus", "segformer"], Purpose("the model", YOURS)
    ] = "unet"
    encoder: Annotated[
        str,
        Field(min_length=1),
        AfterValidator(_bare),
        Purpose("the network of timm below the decoder, by its name, as resnet18", YOURS),
    ]
    output_stride: Annotated[
        Literal[8, 16] | None,
        Purpose(
            "how much smaller deeplabv3plus's last features are than the image; null leaves it to smp (16)",
            "arXiv 1802.02611, section 4",
        ),
    ] = None


class SmpModel(ModelSpec, Decoded):
    """A decoder of segmentation_models_pytorch over an encoder of timm; its weights are the encoder's."""

    kind: Literal["smp"] = "smp"

    @model_validator(mode="after")
    def dilates_where_it_can(self) -> Self:
        if self.output_stride is not None and self.name != "deeplabv3plus":
            raise ValueError(
                f"output_stride: {self.name} has none, got {self.output_stride}: leave it out, or name "
                "deeplabv3plus"
            )
        return self


class OwnModel(ModelSpec, Named):
    """A network of your own: `name` is a label, and Python gives the function that builds it.

    The function receives the arguments by name. No text here is ever imported: a recipe is data.
    """

    kind: Literal["own"] = "own"
    arguments: Annotated[
        dict[ArgumentName, Argument],
        AfterValidator(_none_given),
        Purpose("what your function receives, by the names of its parameters", YOURS),
    ] = Field(default_factory=dict)

    @model_validator(mode="after")
    def has_no_library(self) -> Self:
        if self.weights == OWN_WEIGHTS:
            raise ValueError("your own network has no published weights: name a local file")
        return self


Model = Annotated[
    ResNetSmall | UNetSmall | TorchvisionModel | TimmModel | SmpModel | OwnModel,
    Field(discriminator="kind"),
    Purpose("where the model comes from", YOURS),
]


def network_name(spec: Model) -> str:
    """Return the name of a model's network; that of its kind where it has no other."""
    match spec:
        case ResNetSmall() | UNetSmall():
            return spec.kind
        case SmpModel():
            return f"{spec.name}-{spec.encoder}"
        case TorchvisionModel() | TimmModel() | OwnModel():
            return spec.name
        case _:
            assert_never(spec)


def network_in_words(spec: Model) -> str:
    """Return which network a model is, for a sentence: `timm resnet50`, `unet_small (levels 3, width 16)`."""
    match spec:
        case ResNetSmall():
            return f"{spec.kind} (depth {spec.depth}, width {spec.width})"
        case UNetSmall():
            return f"{spec.kind} (levels {spec.levels}, width {spec.width})"
        case TorchvisionModel() | TimmModel():
            return f"{spec.kind} {spec.name}"
        case SmpModel():
            return f"smp {spec.name} over {spec.encoder}"
        case OwnModel():
            arguments = ", ".join(f"{name} {value}" for name, value in spec.arguments.items())
            return f"your own {spec.name}" + (f" ({arguments})" if arguments else "")
        case _:
            assert_never(spec)


def weights_in_words(weights: str | None) -> str:
    """Return what a network begins from: `pretrained`, `from scratch`, or the name of a file of weights."""
    if weights is None:
        return "from scratch"
    if weights == OWN_WEIGHTS:
        return "pretrained"
    return f"pretrained ({weights if is_published(weights) else path_in_words(weights)})"


def path_in_words(path: str) -> str:
    """Return the last name in a path; for `flower-model/model.safetensors`, as `tunebook train` leaves it,
    the folder's name."""
    file = PurePath(path)
    return file.parent.name if file.stem == "model" and file.parent.name else file.name
