"""How images looked to the weights that a run begins from: normalised, resized, and of what size."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, assert_never

from pydantic import ValidationError

from trainable.errors import ModelError, faults_of
from trainable.models.libraries import labels_pixels
from trainable.models.published_weights import published_entry
from trainable.models.timm_names import check_known, configuration_of, located
from trainable.models.weights import statistics_in, weights_file
from trainable.recipe import models as specs
from trainable.recipe.data import ChannelStatistics, Interpolation

FIXED_SIDE = ("vit_", "maxvit_")  # torchvision's networks with these names are built for one size


@dataclass(frozen=True)
class PretrainedInput:
    """How images looked to weights: on [0, 1] normalised by `mean` and `std` for each channel, in
    squares of `side` pixels that `interpolation` made."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    side: int | None = None
    interpolation: Interpolation = "bilinear"
    fixed_side: bool = False  # whether the network takes no other size

    def statistics(self, channels: int) -> ChannelStatistics:
        """Return mean and std for images of so many channels; grey images have the mean over colours."""
        if channels == len(self.mean):
            return ChannelStatistics(mean=self.mean, std=self.std)
        if channels == 1:
            return ChannelStatistics(mean=(fmean(self.mean),), std=(fmean(self.std),))
        return ChannelStatistics(mean=self.mean * channels, std=self.std * channels)


def pretrained_input(spec: specs.Model, *, may_fetch: bool = False) -> PretrainedInput | None:
    """Return how images looked to the weights of a model's spec. It is None where there are no weights, and
    where nothing is known of them: a file for `resnet_small` that `tunebook train` did not write.

    A file that `tunebook train` wrote says it itself; for any other file it is what the library's own weights
    of this network saw. The side is open for networks for segmentation, which see windows of a side that a
    person chooses. Raises ModelError for a network or weights that are unknown or not on this machine.
    """
    if spec.weights is None:
        return None
    known = _of_library(spec, may_fetch=may_fetch)
    written = None if specs.is_published(spec.weights) else statistics_in(weights_file(spec))
    if written is None:
        return known
    mean, std = written
    return PretrainedInput(mean, std) if known is None else replace(known, mean=mean, std=std)


def _of_library(spec: specs.Model, *, may_fetch: bool) -> PretrainedInput | None:
    match spec:
        case specs.ResNetSmall() | specs.UNetSmall() | specs.OwnModel():
            return None
        case specs.TorchvisionModel():
            return _of_torchvision(spec)
        case specs.TimmModel():
            return _of_timm(spec.name, configuration_of(located(spec.name, may_fetch=may_fetch)))
        case specs.SmpModel():
            check_known(spec.encoder, specs.ENCODER)
            known = _of_timm(spec.encoder, configuration_of(spec.encoder), specs.ENCODER)
            # in a segmentation the side is the windows'
            return None if known is None else replace(known, side=None, fixed_side=False)
        case _:
            assert_never(spec)


def _of_torchvision(spec: specs.TorchvisionModel) -> PretrainedInput | None:
    published = published_entry(spec)
    if published is None:
        return None
    preset = published.transforms()
    return PretrainedInput(
        tuple(preset.mean),
        tuple(preset.std),
        side=None if labels_pixels(spec.name) else preset.crop_size[0],
        interpolation=_known_filter(preset.interpolation.value),
        fixed_side=spec.name.startswith(FIXED_SIDE),
    )


class _OfTimm(ChannelStatistics, extra="ignore"):
    """What timm's configuration of weights says of their images; a person may have written it."""

    input_size: tuple[int, int, int]
    interpolation: str = "bicubic"
    fixed_input_size: bool = False


def _of_timm(
    name: str, configuration: Mapping[str, Any], field: str = specs.MODEL_NAME
) -> PretrainedInput | None:
    if not configuration.get("mean"):
        return None
    try:
        said = {name: configuration[name] for name in _OfTimm.model_fields if name in configuration}
        known = _OfTimm.model_validate_json(json.dumps(said))
    except ValidationError as error:
        faults = "; ".join(map(str, faults_of(error, configuration, _OfTimm)))
        raise ModelError(f"{field}: {name}: its configuration says of images: {faults}") from None
    return PretrainedInput(
        known.mean,
        known.std,
        side=known.input_size[-1],
        interpolation=_known_filter(known.interpolation),
        fixed_side=known.fixed_input_size,
    )


def _known_filter(name: str) -> Interpolation:
    """Return the nearest of torch's antialiased filters: few weights name another."""
    return "bilinear" if name in ("bilinear", "nearest") else "bicubic"
