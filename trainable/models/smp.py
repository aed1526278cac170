"""Makes the networks of segmentation_models_pytorch: a decoder over an encoder of timm, with its weights."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, assert_never, final

from torch import Tensor
from torch.nn import functional

from trainable.errors import ModelError, first_line
from trainable.models.libraries import timm_options, title_of
from trainable.models.published_weights import as_timm_reads, fetching, refuse_torchvisions, source_of_timm
from trainable.models.segmentation_networks import SegmentationNetwork
from trainable.models.timm_names import check_known, configuration_of
from trainable.models.weights import PartWeights, load_weights, read_weights, weights_file
from trainable.recipe import models as specs

DEPTH = 5  # stages of the encoder, as smp has it by default
WHOLE, DILATED = 32, 16  # its last features are so much smaller than the image; the second is deeplabv3plus's
TIMM = "tu-"  # smp takes an encoder whose name begins so from timm
ENCODER = "encoder."  # the names of the encoder's weights begin so


@final
class SmpNetwork(SegmentationNetwork):
    """An encoder, a decoder and a head of smp, without the last enlarging.

    Logits are as large as the image (unet, unetplusplus) or a quarter of it. Of these decoders unet alone
    takes images of every size. For the others, images are padded with zeros to the next size that fits, at
    the right and below, and of the logits as many are left as the image covers, in whole or in part.
    """

    def __init__(self, made: Any, *, takes_any_size: bool) -> None:
        super().__init__("encoder", ["segmentation_head.0"])
        self.encoder = made.encoder
        self.decoder = made.decoder
        self.segmentation_head = made.segmentation_head
        self.multiple = 1 if takes_any_size else int(made.encoder.output_stride)

    def forward(self, images: Tensor) -> Tensor:
        height, width = images.shape[-2:]
        below, beside = -height % self.multiple, -width % self.multiple
        if below or beside:
            images = functional.pad(images, (0, beside, 0, below))
        logits: Tensor = self.segmentation_head(self.decoder(self.encoder(images)))
        if below or beside:
            scale = images.shape[-1] // logits.shape[-1]
            logits = logits[..., : -(-height // scale), : -(-width // scale)]
        return logits


def from_smp(spec: specs.SmpModel, *, classes: int, channels: int, image_size: int) -> SmpNetwork:
    """Return smp's network with the recipe's stochastic depth in its encoder, drawn from torch's global
    generator.

    Raises ModelError for an encoder that timm does not have, or that does not fit below the decoder.
    """
    import segmentation_models_pytorch as smp  # 2 s of imports that most runs do not need

    check_known(spec.encoder, specs.ENCODER)
    encoder = {"encoder_name": f"{TIMM}{spec.encoder}", "encoder_weights": None, "in_channels": channels}
    depth = {} if spec.stochastic_depth is None else {"drop_path_rate": spec.stochastic_depth}
    options: dict[str, Any] = {**encoder, "classes": classes, **depth, **_size_options(spec, image_size)}
    with _fitting(spec):
        match spec.name:
            case "unet":
                return SmpNetwork(smp.Unet(**options), takes_any_size=True)
            case "unetplusplus":
                return SmpNetwork(smp.UnetPlusPlus(**options), takes_any_size=False)
            case "fpn":
                return SmpNetwork(smp.FPN(**options, upsampling=1), takes_any_size=False)
            case "deeplabv3plus":
                dilated = {"encoder_output_stride": stride_of(spec)}
                return SmpNetwork(smp.DeepLabV3Plus(**options, **dilated, upsampling=1), takes_any_size=False)
            case "segformer":
                return SmpNetwork(smp.Segformer(**options, upsampling=1), takes_any_size=False)
            case _:
                assert_never(spec.name)


def smp_part(spec: specs.SmpModel, *, channels: int, image_size: int, may_fetch: bool) -> PartWeights:
    """Return the weights of a network of smp: timm's of its encoder by `default`, or those of a file, which
    holds the whole network, or the encoder as timm names its weights.

    Raises ModelError as `read_weights` and `timm_weights` do, and for a file of another encoder.
    """
    if specs.is_published(str(spec.weights)):
        refuse_torchvisions(spec, specs.ENCODER)
        source = source_of_timm(spec, spec.encoder, may_fetch=may_fetch)
        with fetching(spec):
            return PartWeights(
                encoder_weights(spec, source, channels=channels, image_size=image_size), ENCODER
            )
    state = read_weights(weights_file(spec))
    if any(name.startswith(ENCODER) for name in state):
        return PartWeights(state)
    return PartWeights(_of_encoder(spec, state, channels=channels, image_size=image_size), ENCODER)


def _of_encoder(
    spec: specs.SmpModel, state: dict[str, Tensor], *, channels: int, image_size: int
) -> dict[str, Tensor]:
    """Return the weights of a file by their names in the network. They are checked in the network for
    classification that they are of, since timm leaves out in silence what an encoder does not have."""
    import timm

    options = timm_options(spec.encoder, classes=1, channels=channels, image_size=image_size)
    whole = timm.create_model(spec.encoder, pretrained=False, **options)
    source = f"{spec.weights!r} for timm's {spec.encoder}, the encoder,"
    load_weights(whole, as_timm_reads(state, whole), source=source)
    read = {"state_dict": whole.state_dict(), "input_size": (channels, image_size, image_size)}
    return encoder_weights(spec, read, channels=channels, image_size=image_size)


def encoder_weights(
    spec: specs.SmpModel, source: Mapping[str, Any] | None, *, channels: int, image_size: int
) -> dict[str, Tensor]:
    """Return the weights of a network's encoder by their names in the network, as timm loads them: from a
    `source` (a `file`, or a `state_dict` by timm's own names), or from its server if that is None."""
    from segmentation_models_pytorch.encoders import TimmUniversalEncoder

    with _silent(logging.getLogger("timm.models._builder")):
        made = TimmUniversalEncoder(
            spec.encoder,
            pretrained=True,
            in_channels=channels,
            depth=DEPTH,
            output_stride=stride_of(spec),
            pretrained_cfg_overlay=source,
            **_size_options(spec, image_size),
        )
    return {f"{ENCODER}{name}": each for name, each in made.state_dict().items()}


@contextmanager
def _silent(logger: logging.Logger) -> Iterator[None]:
    """Keep a logger from listing the weights of the classifier, which an encoder does not have."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def stride_of(spec: specs.SmpModel) -> int:
    """Return how much smaller than the image the last features of an encoder are."""
    return (spec.output_stride or DILATED) if spec.name == "deeplabv3plus" else WHOLE


def _size_options(spec: specs.SmpModel, image_size: int) -> dict[str, int]:
    """Return the size for an encoder that is built for one size: that of the image, padded if need be."""
    if not configuration_of(spec.encoder).get("fixed_input_size"):
        return {}
    multiple = 1 if spec.name == "unet" else stride_of(spec)
    return {"img_size": image_size + -image_size % multiple}


@contextmanager
def _fitting(spec: specs.SmpModel) -> Iterator[None]:
    """Turn what timm and smp raise for an encoder that does not fit into a ModelError."""
    try:
        yield
    except (ValueError, RuntimeError, AssertionError, TypeError, LookupError, AttributeError) as error:
        if "'drop_path_rate'" in str(error):
            raise ModelError(
                f"model.stochastic_depth: {title_of(spec)} has none (no drop_path_rate): leave it out"
            ) from error
        if "output_stride" in str(error) or "'dilation'" in str(error):
            raise ModelError(
                f"model.encoder: {spec.encoder} cannot be dilated, which {spec.name} needs; name another, "
                "such as resnet18, or another decoder (model.name)"
            ) from error
        raise ModelError(
            f"model.encoder: {spec.encoder} does not fit below {spec.name}: {first_line(error)}; expected a "
            "network that halves its features from stage to stage, such as resnet18"
        ) from error
