"""Makes a network of a model's spec: built, drawn, with dropout and loaded as the recipe says."""

from __future__ import annotations

from typing import NamedTuple, assert_never

import torch
from torch import Tensor, nn

from trainable.bench import HERE, Bench
from trainable.errors import ModelError
from trainable.models.dropping import set_head_dropout, set_stochastic_depth
from trainable.models.groups import backbone_of
from trainable.models.initialise import begin_as_identity, draw_new_head, initialise
from trainable.models.libraries import from_timm, from_torchvision, title_of, unfit
from trainable.models.own import BuildModel, build_own, own_code_named
from trainable.models.published_weights import as_timm_reads, timm_weights, torchvision_weights
from trainable.models.segmentation_networks import check_answers
from trainable.models.small_networks import BasicBlock, SmallResNet, SmallUNet
from trainable.models.smp import from_smp, smp_part
from trainable.models.torchvision_segmentation import segmentation_from_torchvision, torchvision_part
from trainable.models.weights import PartWeights, load_weights, read_weights, weights_file
from trainable.recipe import models as specs
from trainable.recipe.tasks import CLASSIFICATION, TaskSpec

__all__ = ["BasicBlock", "SmallResNet", "count_parameters", "make_model"]


class NetworkEnds(NamedTuple):
    """What a network is given and gives: its images' channels and side, and its classes."""

    classes: int
    channels: int
    image_size: int  # the side in pixels


def make_model(
    spec: specs.Model,
    ends: NetworkEnds,
    *,
    build: BuildModel | None = None,
    bench: Bench = HERE,
    task: TaskSpec = CLASSIFICATION,
) -> nn.Module:
    """Return a network that maps images [B, channels, image_size, image_size] to logits [B, classes], or
    for a segmentation to logits [B, classes, h, w] of their pixels, h and w at most `image_size`.

    In training mode a network with an auxiliary head gives a pair of them, the main ones first. Weights
    are drawn from torch's global generator; those of `spec.weights` then replace all but the head's, which
    begin small. Nothing is fetched unless `bench.may_fetch`. `build` makes a network of a person's own.

    Raises ModelError for an unknown name (naming close ones), for a network of the other task, for images
    that the network cannot take, for weights that do not fit it, for a field that it lacks, and for an error
    of a person's own code.
    """
    if spec.kind not in task.networks:
        raise ModelError(
            f"model.kind: for a {task.kind} expected one of {', '.join(task.networks)}, got {spec.kind}; "
            f"{task.networks[0]} needs no other field"
        )
    model = _construct(spec, ends, build, task, bench)
    _try_one_image(model, spec, ends, task)
    initialise(model, spec.initialisation)
    if spec.weights is not None and spec.initialisation == "default":
        draw_new_head(model)
    begin_as_identity(model, spec)
    if not isinstance(spec, specs.TimmModel):  # timm's constructor has done it
        set_head_dropout(model, spec.dropout)
    set_stochastic_depth(model, spec)
    if spec.weights is not None:
        part = _part(spec, model, ends, bench.may_fetch)
        where = f"the {part.prefix.strip('.')} of " if part.prefix else ""
        source = f"{spec.weights!r} for {where}{title_of(spec)}"
        load_weights(model, part.state, source=source, part=part.prefix)
    return model


def count_parameters(model: nn.Module) -> int:
    """Return how many numbers training adjusts."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _construct(
    spec: specs.Model, ends: NetworkEnds, build: BuildModel | None, task: TaskSpec, bench: Bench
) -> nn.Module:
    sizes = ends._asdict()
    match spec:
        case specs.ResNetSmall():
            return SmallResNet(
                depth=spec.depth,
                width=spec.width,
                stem_stride=spec.stem_stride,
                classes=ends.classes,
                channels=ends.channels,
            )
        case specs.UNetSmall():
            return SmallUNet(
                levels=spec.levels, width=spec.width, classes=ends.classes, channels=ends.channels
            )
        case specs.TorchvisionModel():
            match task.labelled:
                case "image":
                    make = from_torchvision
                case "pixel":
                    make = segmentation_from_torchvision
                case _:
                    assert_never(task.labelled)
            return make(spec, **sizes)
        case specs.TimmModel():
            return from_timm(spec, **sizes, may_fetch=bench.may_fetch)
        case specs.SmpModel():
            return from_smp(spec, **sizes)
        case specs.OwnModel():
            return build_own(spec, build, **sizes)
        case _:
            assert_never(spec)


def _part(spec: specs.Model, model: nn.Module, ends: NetworkEnds, may_fetch: bool) -> PartWeights:
    published = spec.weights is not None and specs.is_published(spec.weights)
    match spec:
        case specs.SmpModel():
            return smp_part(spec, channels=ends.channels, image_size=ends.image_size, may_fetch=may_fetch)
        case specs.TorchvisionModel() if backbone_of(model) is not None:
            return torchvision_part(spec, may_fetch=may_fetch)
        case specs.TorchvisionModel() if published:
            return PartWeights(torchvision_weights(spec, may_fetch=may_fetch))
        case specs.TimmModel() if published:
            return PartWeights(timm_weights(spec, **ends._asdict(), may_fetch=may_fetch))
        case specs.TimmModel():
            return PartWeights(as_timm_reads(read_weights(weights_file(spec)), model))
        case specs.ResNetSmall() | specs.UNetSmall() | specs.OwnModel() if published:
            raise ModelError(f"model.weights: {title_of(spec)} has no published weights: name a local file")
        case specs.ResNetSmall() | specs.UNetSmall() | specs.TorchvisionModel() | specs.OwnModel():
            return PartWeights(read_weights(weights_file(spec)))
        case _:
            assert_never(spec)


def _try_one_image(model: nn.Module, spec: specs.Model, ends: NetworkEnds, task: TaskSpec) -> None:
    """Run one blank image forward, so that a misfit is an error before any data are trained on."""
    classes, channels, image_size = ends
    model.eval()
    try:
        # not inference_mode: a lazy layer makes its weights here, which are to be trained
        with torch.no_grad(), own_code_named(spec):
            logits = model(torch.zeros(1, channels, image_size, image_size))
    except (RuntimeError, ValueError, AssertionError) as error:
        raise unfit(spec, channels, image_size, error, task) from error
    finally:
        model.train()
    match task.labelled:
        case "image":
            if not isinstance(logits, Tensor) or logits.shape != (1, classes):
                got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
                raise ModelError(
                    f"{title_of(spec)}: expected logits of shape (1, {classes}) for one image, got {got}"
                )
        case "pixel":
            check_answers(title_of(spec), logits, classes, image_size)
        case _:
            assert_never(task.labelled)
