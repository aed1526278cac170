"""Drops parts at random while a network trains: features before the head, branches of residual blocks."""

from __future__ import annotations

from functools import partial
from typing import Any, assert_never

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainable.errors import ModelError
from trainable.models.groups import backbone_of, head_of, heads_of
from trainable.models.libraries import title_of, torchvision_branches
from trainable.models.small_networks import BasicBlock
from trainable.recipe import models as specs

FAMILIES_WITH_DEPTH = (
    "resnet_small; torchvision's resnet, resnext, wide_resnet, convnext, efficientnet, swin and maxvit; "
    "most of timm's residual nets and transformers; networks for segmentation over one of these"
)


def set_head_dropout(model: nn.Module, probability: float | None) -> None:
    """Drop features before the head with a probability in [0, 1) in training; None changes nothing.

    Srivastava et al., JMLR 15:1929. If the network has dropouts beside its head (vgg, mobilenet,
    efficientnet, ...) their probability is replaced, and in a network for segmentation of torchvision or smp
    that of every dropout above the backbone; else a hook drops from the input of each head, so that the names
    of the parameters stay. For timm's models use the constructor's `drop_rate` instead.
    """
    if probability is None:
        return
    own = _dropouts_of(model)
    for each in own:
        each.p = probability
    if not own and probability > 0.0:
        for head in heads_of(model):
            model.get_submodule(head).register_forward_pre_hook(DroppedInput(probability))


def set_stochastic_depth(model: nn.Module, spec: specs.Model) -> None:
    """Drop residual branches, image by image, in training: `spec.stochastic_depth` says how often.

    The probability rises linearly from the first block to its value at the last (Huang et al., arXiv
    1603.09382, section 3); what survives is divided by its probability, so that evaluation changes nothing.
    None leaves the network as its library made it. timm's models must have been made with a `drop_path_rate`.
    Raises ModelError for a network whose blocks cannot be dropped.
    """
    if spec.stochastic_depth is None:
        return
    match spec:
        case specs.ResNetSmall():
            blocks = [each for each in model.modules() if isinstance(each, BasicBlock)]
            found = _drop_branches([(each, each.second_norm) for each in blocks], spec.stochastic_depth)
        case specs.TorchvisionModel():
            found = _drop_branches(torchvision_branches(model), spec.stochastic_depth)
            found = found or _rescale_torchvision(model, spec.stochastic_depth)
        case specs.TimmModel() | specs.SmpModel():
            found = _rescale_timm(model, spec.stochastic_depth) or spec.stochastic_depth == 0.0
        case specs.UNetSmall():
            found = False  # none of its blocks has a shortcut
        case specs.OwnModel():
            found = False  # what in it could be skipped is not known; its function may have such an argument
        case _:
            assert_never(spec)
    if not found:
        raise ModelError(
            f"model.stochastic_depth: {title_of(spec)} has no blocks that can be dropped; "
            f"{FAMILIES_WITH_DEPTH} have"
        )


def _dropouts_of(model: nn.Module) -> list[nn.modules.dropout._DropoutNd]:
    if (backbone := backbone_of(model)) is not None:
        inside = set(model.get_submodule(backbone).modules())
        above = (each for each in model.modules() if each not in inside)
        return [each for each in above if isinstance(each, nn.modules.dropout._DropoutNd)]
    beside = model.get_submodule(head_of(model).rpartition(".")[0]).children()
    return [each for each in beside if isinstance(each, nn.Dropout)]


class DroppedInput:
    """Dropout of a layer's input, as a forward pre-hook, while the layer is in training mode."""

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def __call__(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        features, *others = inputs
        return (functional.dropout(features, self.probability, training=layer.training), *others)


class DroppedBranch:
    """A forward hook on a residual branch's last layer that drops the branch for some of the images.

    It follows the block's mode and not its layer's, which is in evaluation mode while norms are frozen.
    """

    def __init__(self, block: nn.Module, probability: float) -> None:
        from torchvision.ops import stochastic_depth

        self.block, self.probability = block, probability
        self._drop = partial(stochastic_depth, p=probability, mode="row")

    def __call__(self, _layer: nn.Module, _inputs: Any, branch: Tensor) -> Tensor:
        dropped: Tensor = self._drop(branch, training=self.block.training)
        return dropped


def _drop_branches(branches: list[tuple[nn.Module, nn.BatchNorm2d]], last: float) -> bool:
    steps = max(len(branches) - 1, 1)
    for index, (block, norm) in enumerate(branches):
        probability = last * index / steps
        if probability > 0.0:
            norm.register_forward_hook(DroppedBranch(block, probability))
    return bool(branches)


def _rescale_torchvision(model: nn.Module, last: float) -> bool:
    """Scale the probabilities of torchvision's families that have stochastic depth, rising,
    from their constructor."""
    from torchvision.ops import StochasticDepth

    drops = [each for each in model.modules() if isinstance(each, StochasticDepth)]
    highest = max((each.p for each in drops), default=0.0)
    for each in drops:
        each.p = each.p * last / highest
    return highest > 0.0


def _rescale_timm(model: nn.Module, last: float) -> bool:
    """Scale timm's probabilities:
    some of its families rise only to a step before the rate that they are built with."""
    from timm.layers.drop import DropPath

    drops = [each for each in model.modules() if isinstance(each, DropPath)]
    highest = max((each.drop_prob for each in drops), default=0.0)
    for each in drops:
        each.drop_prob = each.drop_prob * last / highest if highest > 0.0 else 0.0
    return highest > 0.0


def draw_alike(block: nn.Module) -> None:
    """Let the libraries' layers in a block that drop branches read their probability from a tensor.

    As a number it is compiled into the code, and so each block, having another one, into code of its own.
    """
    device = next(block.parameters()).device
    for parent in block.modules():
        for name, layer in parent.named_children():
            if (probability := _dropped_images(layer)) is not None:
                setattr(parent, name, DropsImages(probability, device).train(layer.training))


def text_alike(block: nn.Module) -> str:
    """Return torch's text of a block as it is after `draw_alike`."""
    text = repr(block)
    for layer in block.modules():
        if _dropped_images(layer) is not None:
            text = text.replace(repr(layer), f"{DropsImages.__name__}()")
    return text


def _dropped_images(layer: nn.Module) -> float | None:
    """The share of images that a layer of the libraries drops, as DropsImages does; None for other layers."""
    from timm.layers.drop import DropPath
    from torchvision.ops import StochasticDepth

    if isinstance(layer, StochasticDepth) and layer.mode == "row":
        return float(layer.p)
    if isinstance(layer, DropPath) and layer.scale_by_keep:
        return float(layer.drop_prob)
    return None


class DropsImages(nn.Module):
    """A layer that drops its input for some of the images while it trains, as torchvision's StochasticDepth
    and timm's DropPath do."""

    def __init__(self, probability: float, device: torch.device) -> None:
        super().__init__()
        # no buffers: an average of the network, made before, has none
        kept = 1.0 - probability
        self.kept = torch.tensor(kept, device=device)
        self.divisor = torch.tensor(kept or 1.0, device=device)  # 1 where every image is dropped

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return inputs
        shape = [len(inputs)] + [1] * (inputs.ndim - 1)
        drawn = torch.rand(shape, device=inputs.device)
        return inputs * (drawn < self.kept) / self.divisor
