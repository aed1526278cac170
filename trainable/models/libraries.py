"""Makes the networks of torchvision and timm, by name, untrained."""

from __future__ import annotations

from typing import Any, assert_never

import torch
from torch import nn

from trainable.errors import ModelError, first_line
from trainable.models.timm_names import configuration_of, located, unknown
from trainable.recipe import models as specs
from trainable.recipe.tasks import CLASSIFICATION, Labelled, TaskSpec

RGB = 3


def from_torchvision(
    spec: specs.TorchvisionModel, *, classes: int, channels: int, image_size: int
) -> nn.Module:
    """Return torchvision's network, drawn from torch's global generator.
    Raises ModelError as `make_model` does."""
    from torchvision import models  # 4 s of imports that most runs do not need

    name = spec.name
    check_torchvision_name(name)
    options = {"num_classes": classes, **torchvision_options(name, image_size)}
    try:
        model: nn.Module = models.get_model(name, weights=None, **options)
    except (ValueError, RuntimeError, AssertionError) as error:
        raise unfit(spec, channels, image_size, error) from error
    if channels != RGB:
        replace_first_convolution(model, channels)
    return model


def check_torchvision_name(name: str, task: TaskSpec = CLASSIFICATION) -> None:
    """Raise ModelError unless torchvision has a model of this name for the task."""
    known = _torchvision_names(task.labelled)
    if name not in known:
        raise unknown("torchvision", name, known, task=task)


def labels_pixels(name: str) -> bool:
    """Return whether torchvision has a model of this name for segmentation."""
    return name in _torchvision_names("pixel")


def _torchvision_names(labelled: Labelled) -> list[str]:
    from torchvision import models

    match labelled:
        case "image":
            module = models
        case "pixel":
            module = models.segmentation
        case _:
            assert_never(labelled)
    names: list[str] = models.list_models(module=module)
    return names


def backbone_of_name(name: str) -> str:
    """Return the name of the backbone of torchvision's model for segmentation: resnet50 of fcn_resnet50."""
    return name.partition("_")[2]


def from_timm(
    spec: specs.TimmModel, *, classes: int, channels: int, image_size: int, may_fetch: bool = False
) -> nn.Module:
    """Return timm's network with the recipe's dropout and stochastic depth.

    Weights are drawn from torch's global generator; `may_fetch` lets the configuration of a Hub's network be
    fetched. Raises ModelError as `make_model` does, and if the
    network does not have the dropout or stochastic depth that is asked for.
    """
    import timm

    name = located(spec.name, may_fetch=may_fetch)
    drops = {"drop_rate": spec.dropout, "drop_path_rate": spec.stochastic_depth}
    rates: dict[str, Any] = {name: rate for name, rate in drops.items() if rate is not None}
    size = timm_options(name, classes=classes, channels=channels, image_size=image_size)
    try:
        model: nn.Module = timm.create_model(name, pretrained=False, **size, **rates)
    except (ValueError, RuntimeError, AssertionError, TypeError) as error:
        for option, field in (("drop_rate", "dropout"), ("drop_path_rate", "stochastic_depth")):
            if isinstance(error, TypeError) and f"'{option}'" in str(error):
                raise ModelError(
                    f"model.{field}: {title_of(spec)} has none (no {option}): leave it out"
                ) from error
        raise unfit(spec, channels, image_size, error) from error
    return model


def timm_options(name: str, *, classes: int, channels: int, image_size: int) -> dict[str, Any]:
    """Return the arguments of timm's constructor for a `located` name and the data;
    the size only if the network is built for one size."""
    options: dict[str, Any] = {"num_classes": classes, "in_chans": channels}
    if configuration_of(name).get("fixed_input_size"):
        options["img_size"] = image_size
    return options


def torchvision_branches(model: nn.Module) -> list[tuple[nn.Module, nn.BatchNorm2d]]:
    """Return the residual blocks of torchvision's ResNets, ResNeXts and wide ResNets, also below an FCN or a
    DeepLabV3, each with its last norm."""
    from torchvision.models import resnet

    ends: list[tuple[nn.Module, Any]] = []
    for block in model.modules():
        if isinstance(block, resnet.BasicBlock):
            ends.append((block, block.bn2))
        elif isinstance(block, resnet.Bottleneck):
            ends.append((block, block.bn3))
    return ends


def title_of(spec: specs.Model) -> str:
    """Return a network's name for messages: `resnet_small`, `timm's resnet18`, `smp's unet over resnet18`,
    `your build_model`."""
    match spec:
        case specs.ResNetSmall() | specs.UNetSmall():
            return spec.kind
        case specs.TorchvisionModel() | specs.TimmModel():
            return f"{spec.kind}'s {spec.name}"
        case specs.SmpModel():
            return f"smp's {spec.name} over {spec.encoder}"
        case specs.OwnModel():
            return f"your {spec.name}"
        case _:
            assert_never(spec)


def unfit(
    spec: specs.Model, channels: int, image_size: int, error: Exception, task: TaskSpec = CLASSIFICATION
) -> ModelError:
    """Return the fault of a network that refuses the images of the data, with its own reason."""
    return ModelError(
        f"{title_of(spec)} cannot take images of {channels} x {image_size} x {image_size} (data.channels, "
        f"data.image_size): {first_line(error)}; most such models need larger images, {task.networks[0]} "
        "takes small ones"
    )


def torchvision_options(name: str, image_size: int) -> dict[str, Any]:
    """Return the arguments of models that are built for one size, or that train with a second head."""
    if name.startswith("vit_"):
        return {"image_size": image_size}
    if name.startswith("maxvit_"):
        return {"input_size": (image_size, image_size)}
    if name in ("googlenet", "inception_v3"):
        return {"aux_logits": False, "init_weights": True}
    if labels_pixels(name):
        return {"weights_backbone": None, **({} if name.startswith("lraspp_") else {"aux_loss": True})}
    return {}


def replace_first_convolution(model: nn.Module, channels: int) -> None:
    """Replace the first convolution by one of the same geometry for other channels; its weights are the
    first channels of those that were drawn."""
    name, old = next((name, each) for name, each in model.named_modules() if isinstance(each, nn.Conv2d))
    new = nn.Conv2d(
        channels,
        old.out_channels,
        old.kernel_size,  # type: ignore[arg-type]  # torch widens the pairs it stores to tuples
        stride=old.stride,  # type: ignore[arg-type]
        padding=old.padding,  # type: ignore[arg-type]
        dilation=old.dilation,  # type: ignore[arg-type]
        bias=old.bias is not None,
        padding_mode=old.padding_mode,
    )
    with torch.no_grad():
        new.weight.copy_(old.weight[:, :channels])
        if old.bias is not None and new.bias is not None:
            new.bias.copy_(old.bias)
    model.set_submodule(name, new)
