"""Makes a network of a model's spec: built, drawn, with dropout and loaded as the recipe says."""

from __future__ import annotations

from typing import assert_never

import torch
from torch import Tensor, nn

from trainable.errors import ModelError
from trainable.models.dropping import set_head_dropout, set_stochastic_depth
from trainable.models.initialise import begin_as_identity, draw_new_head, initialise
from trainable.models.libraries import from_timm, from_torchvision, title_of, unfit
from trainable.models.own import BuildModel, build_own, own_code_named
from trainable.models.published_weights import as_timm_reads, timm_weights, torchvision_weights
from trainable.models.small_resnet import BasicBlock, SmallResNet
from trainable.models.weights import load_weights, read_weights, weights_file
from trainable.recipe import models as specs

__all__ = ["BasicBlock", "SmallResNet", "count_parameters", "make_model"]


def make_model(
    spec: specs.Model,
    *,
    classes: int,
    channels: int,
    image_size: int,
    build: BuildModel | None = None,
    download: bool = False,
) -> nn.Module:
    """Returns a network that maps images [B, channels, image_size, image_size] to logits [B, classes].

    Weights are drawn from torch's global generator; those of `spec.weights` then replace all but the head's,
    which begin small.
    Nothing is fetched without `download`. `build` makes a network of a person's own. Raises ModelError for an
    unknown name (naming close ones), for images that the network cannot take, for weights that do not fit it,
    for a field that it lacks, and for an error of a person's own code.
    """
    model = _construct(
        spec, build, classes=classes, channels=channels, image_size=image_size, download=download
    )
    _try_one_image(model, spec, classes, channels, image_size)
    initialise(model, spec.initialisation)
    if spec.weights is not None and spec.initialisation == "default":
        draw_new_head(model)
    begin_as_identity(model, spec)
    if not isinstance(spec, specs.TimmModel):  # timm's constructor has done it
        set_head_dropout(model, spec.dropout)
    set_stochastic_depth(model, spec)
    if spec.weights is not None:
        state = _state(spec, model, classes, channels, image_size, download=download)
        load_weights(model, state, source=f"{spec.weights!r} for {title_of(spec)}")
    return model


def count_parameters(model: nn.Module) -> int:
    """Returns how many numbers training adjusts."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _construct(
    spec: specs.Model,
    build: BuildModel | None,
    *,
    classes: int,
    channels: int,
    image_size: int,
    download: bool,
) -> nn.Module:
    match spec:
        case specs.ResNetSmall():
            return SmallResNet(
                depth=spec.depth,
                width=spec.width,
                stem_stride=spec.stem_stride,
                classes=classes,
                channels=channels,
            )
        case specs.TorchvisionModel():
            return from_torchvision(spec, classes=classes, channels=channels, image_size=image_size)
        case specs.TimmModel():
            return from_timm(
                spec, classes=classes, channels=channels, image_size=image_size, download=download
            )
        case specs.OwnModel():
            return build_own(spec, build, classes=classes, channels=channels, image_size=image_size)
        case _:
            assert_never(spec)


def _state(
    spec: specs.Model, model: nn.Module, classes: int, channels: int, image_size: int, *, download: bool
) -> dict[str, Tensor]:
    if spec.weights is not None and not specs.is_published(spec.weights):
        state = read_weights(weights_file(spec))
        return as_timm_reads(state, model) if isinstance(spec, specs.TimmModel) else state
    match spec:
        case specs.TorchvisionModel():
            return torchvision_weights(spec, download=download)
        case specs.TimmModel():
            return timm_weights(
                spec, classes=classes, channels=channels, image_size=image_size, download=download
            )
        case specs.ResNetSmall():
            raise ModelError("model.weights: resnet_small has no published weights: name a local file")
        case specs.OwnModel():
            raise ModelError("model.weights: your own network has no published weights: name a local file")
        case _:
            assert_never(spec)


def _try_one_image(model: nn.Module, spec: specs.Model, classes: int, channels: int, image_size: int) -> None:
    """Runs one blank image forward, so that a misfit is an error before any data are trained on."""
    model.eval()
    try:
        # not inference_mode: a lazy layer makes its weights here, which are to be trained
        with torch.no_grad(), own_code_named(spec):
            logits = model(torch.zeros(1, channels, image_size, image_size))
    except (RuntimeError, ValueError, AssertionError) as error:
        raise unfit(spec, channels, image_size, error) from error
    finally:
        model.train()
    if not isinstance(logits, Tensor) or logits.shape != (1, classes):
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ModelError(
            f"{title_of(spec)}: expected logits of shape (1, {classes}) for one image, got {got}"
        )
