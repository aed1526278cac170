"""Finds which part of a network for segmentation weights are of: the whole of it, or its backbone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from trainable.models.libraries import timm_options
from trainable.models.published_weights import (
    as_timm_reads,
    fetching,
    refuse_torchvisions,
    source_of_timm,
    torchvision_weights,
)
from trainable.models.smp import ENCODER, encoder_weights
from trainable.models.weights import load_weights, read_weights, weights_file
from trainable.recipe import models as specs

BACKBONE = "backbone."
"""The names of the backbone's weights begin so, in torchvision's networks for segmentation."""
FEATURES = "features."
"""A MobileNetV3 for classification has what is the backbone here under this name."""
CLASSIFIERS = ("fc.", "classifier.")
"""The layers of torchvision's networks for classification that no backbone has."""


class Part(NamedTuple):
    """Holds weights by their names in a network, and the beginning of the names of the part they are of:
    empty for the whole network."""

    state: Mapping[str, Tensor]
    prefix: str = ""


def torchvision_part(spec: specs.TorchvisionModel, *, download: bool) -> Part:
    """Return the weights of a network for segmentation, from a file or as torchvision publishes them.

    Weights without a backbone are those of a network for classification: all of it but the classifier is the
    backbone here. Raises ModelError as `read_weights` and `torchvision_weights` do.
    """
    published = specs.is_published(str(spec.weights))
    state = torchvision_weights(spec, download=download) if published else read_weights(weights_file(spec))
    if any(name.startswith(BACKBONE) for name in state):
        return Part(state)
    below = {name: each for name, each in state.items() if not name.startswith(CLASSIFIERS)}
    return Part({BACKBONE + name.removeprefix(FEATURES): each for name, each in below.items()}, BACKBONE)


def smp_part(spec: specs.SmpModel, *, channels: int, image_size: int, download: bool) -> Part:
    """Return the weights of a network of smp: timm's of its encoder by `default`, or those of a file, which
    holds the whole network, or the encoder as timm names its weights.

    Raises ModelError as `read_weights` and `timm_weights` do, and for a file of another encoder.
    """
    if specs.is_published(str(spec.weights)):
        refuse_torchvisions(spec, specs.ENCODER)
        source = source_of_timm(spec, spec.encoder, download=download)
        with fetching(spec):
            return Part(encoder_weights(spec, source, channels=channels, image_size=image_size), ENCODER)
    state = read_weights(weights_file(spec))
    if any(name.startswith(ENCODER) for name in state):
        return Part(state)
    return Part(_of_encoder(spec, state, channels=channels, image_size=image_size), ENCODER)


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
