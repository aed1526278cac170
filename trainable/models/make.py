"""From a model's spec to a network: our small residual net, torchvision's and timm's by name, untrained."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainable.errors import ModelError
from trainable.specs import models as specs

RGB = 3


def make_model(spec: specs.Model, *, classes: int, channels: int, image_size: int) -> nn.Module:
    """A network that maps images [B, channels, image_size, image_size] to logits [B, classes].

    Weights are drawn from torch's global generator. Raises ModelError for an unknown name (naming close ones)
    and for images that the network cannot take.
    """
    match spec:
        case specs.ResNetSmall():
            model: nn.Module = SmallResNet(
                depth=spec.depth,
                width=spec.width,
                stem_stride=spec.stem_stride,
                classes=classes,
                channels=channels,
            )
        case specs.TorchvisionModel():
            model = _from_torchvision(spec.name, classes, channels, image_size)
        case specs.TimmModel():
            model = _from_timm(spec.name, classes, channels, image_size)
        case _:
            assert_never(spec)
    _try_one_image(model, _title(spec), classes, channels, image_size)
    return model


def count_parameters(model: nn.Module) -> int:
    """How many numbers training adjusts."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


class SmallResNet(nn.Module):
    """A residual net for images up to 64 px: a 3x3 stem and three stages of (depth - 2) / 6 basic blocks.

    He et al., arXiv 1512.03385, section 4.2, with projection shortcuts (their option B). Convolutions are
    drawn from kaiming's normal, fan out (arXiv 1502.01852); the last gamma of each block begins at zero, so
    that each block begins as the identity (Goyal et al., arXiv 1706.02677, section 5.1).
    """

    def __init__(self, *, depth: int, width: int, stem_stride: int, classes: int, channels: int) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.stem = _convolution(channels, width, kernel=3, stride=stem_stride)
        self.stem_norm = nn.BatchNorm2d(width)
        self.stages = nn.Sequential(
            _stage(width, width, blocks, stride=1),
            _stage(width, 2 * width, blocks, stride=2),
            _stage(2 * width, 4 * width, blocks, stride=2),
        )
        self.head = nn.Linear(4 * width, classes)
        _initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        features = functional.relu(self.stem_norm(self.stem(images)), inplace=True)
        logits: Tensor = self.head(self.stages(features).mean((2, 3)))
        return logits


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut: identity, or 1x1 where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(inputs, outputs, kernel=3, stride=stride)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = _convolution(outputs, outputs, kernel=3, stride=1)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = _shortcut(inputs, outputs, stride)

    def forward(self, features: Tensor) -> Tensor:
        inner = functional.relu(self.first_norm(self.first(features)), inplace=True)
        inner = self.second_norm(self.second(inner))
        return functional.relu(inner + self.shortcut(features), inplace=True)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Conv2d:
    """Without bias: the normalisation that follows would take it out again."""
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(_convolution(inputs, outputs, kernel=1, stride=stride), nn.BatchNorm2d(outputs))


def _stage(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    first = BasicBlock(inputs, outputs, stride)
    return nn.Sequential(first, *(BasicBlock(outputs, outputs, stride=1) for _ in range(blocks - 1)))


def _initialise(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, BasicBlock):
            nn.init.zeros_(module.second_norm.weight)


def _from_torchvision(name: str, classes: int, channels: int, image_size: int) -> nn.Module:
    from torchvision import models  # 4 s of imports that most runs do not need

    known = models.list_models(module=models)  # its classification models only
    if name not in known:
        raise _unknown("torchvision", name, known)
    options = {"num_classes": classes, **_torchvision_options(name, image_size)}
    try:
        model: nn.Module = models.get_model(name, weights=None, **options)
    except (ValueError, RuntimeError, AssertionError) as error:
        raise _unfit(f"torchvision's {name}", channels, image_size, error) from error
    if channels != RGB:
        _replace_first_convolution(model, channels)
    return model


def _torchvision_options(name: str, image_size: int) -> dict[str, Any]:
    """What the models that are built for one size, or that train with a second head, must be told."""
    if name.startswith("vit_"):
        return {"image_size": image_size}
    if name.startswith("maxvit_"):
        return {"input_size": (image_size, image_size)}
    if name in ("googlenet", "inception_v3"):
        return {"aux_logits": False, "init_weights": True}
    return {}


def _replace_first_convolution(model: nn.Module, channels: int) -> None:
    """The same geometry over other channels; its weights are the first channels of those that were drawn."""
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


def _from_timm(name: str, classes: int, channels: int, image_size: int) -> nn.Module:
    import timm

    known = timm.list_models()
    if name not in known:  # also keeps `hf-hub:` and `local-dir:` names, which read files, out
        raise _unknown("timm", name, known)
    options: dict[str, Any] = {"num_classes": classes, "in_chans": channels}
    configuration = timm.get_pretrained_cfg(name)
    if configuration is not None and configuration.fixed_input_size:
        options["img_size"] = image_size
    try:
        model: nn.Module = timm.create_model(name, pretrained=False, **options)
    except (ValueError, RuntimeError, AssertionError, TypeError) as error:
        raise _unfit(f"timm's {name}", channels, image_size, error) from error
    return model


def _try_one_image(model: nn.Module, title: str, classes: int, channels: int, image_size: int) -> None:
    """One blank image forward, so that a misfit is an error before any data are trained on."""
    model.eval()
    try:
        with torch.inference_mode():
            logits = model(torch.zeros(1, channels, image_size, image_size))
    except (RuntimeError, ValueError, AssertionError) as error:
        raise _unfit(title, channels, image_size, error) from error
    finally:
        model.train()
    if not isinstance(logits, Tensor) or logits.shape != (1, classes):
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ModelError(f"{title}: expected logits of shape (1, {classes}) for one image, got {got}")


def _title(spec: specs.Model) -> str:
    return spec.kind if isinstance(spec, specs.ResNetSmall) else f"{spec.kind}'s {spec.name}"


def _unknown(library: str, name: str, known: Sequence[str]) -> ModelError:
    close = difflib.get_close_matches(name, [*known, "resnet_small"], n=5, cutoff=0.5)
    hint = (
        f"did you mean {', '.join(close)}?" if close else f"it has {len(known)}, such as resnet18, resnet50"
    )
    return ModelError(f"model.name: {library} has no classification model {name!r}; {hint}")


def _unfit(title: str, channels: int, image_size: int, error: Exception) -> ModelError:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ModelError(
        f"{title} cannot take images of {channels} x {image_size} x {image_size} (data.channels, "
        f"data.image_size): {reason}; most such models need larger images, resnet_small takes small ones"
    )
