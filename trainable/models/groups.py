"""The layers of a network from the stem to the head: each group's share of the rate, what is frozen, the cut.

What is frozen in an epoch is a function of the epoch alone, so a resumed run sets it the same way: on a new
model, `freeze_norm` if the recipe says so, then `freeze_body` while the body is frozen, then `set_training`.
The cut before the head makes a body, which turns images into features, and a head that makes logits of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import assert_never

import torch
from torch import Tensor, nn

from trainable.errors import ModelError
from trainable.models.layers import (
    BATCH_NORMS,
    NORMALISATIONS,
    batch_norms,
    has_parameters,
    parameters_in,
    repeated_blocks,
)
from trainable.models.segmentation_networks import SegmentationNetwork
from trainable.recipe import models as specs

_HELD = "_held_back"  # where a model stores the names of the parameters that `freeze_body` froze


def backbone_of(model: nn.Module) -> str | None:
    """Return the name of the module below layers that are all new where a network is fine-tuned; None where
    only the head is new."""
    return model.backbone_name if isinstance(model, SegmentationNetwork) else None


def head_of(model: nn.Module) -> str:
    """Return the name of the layer that computes the logits.

    timm's models name it (the first, if there are two), and so do libraries' networks for segmentation; in
    others it is the last linear layer or convolution in the order of definition. Raises ModelError if there
    is none.
    """
    return heads_of(model)[0]


def head_parameters(model: nn.Module) -> set[str]:
    """Return the names of the parameters of the head, or heads: a distilled transformer has two, and so has
    a network for segmentation with an auxiliary head."""
    heads = heads_of(model)
    return {name for name, _ in model.named_parameters() if any(_within(name, head) for head in heads)}


def new_parameters(model: nn.Module) -> set[str]:
    """Return the names of the parameters that are new where a network is fine-tuned: all above the backbone
    of a network for segmentation of torchvision or smp, and those of the head in any other network."""
    if (backbone := backbone_of(model)) is None:
        return head_parameters(model)
    return {name for name, _ in model.named_parameters() if not _within(name, backbone)}


def layer_groups(model: nn.Module) -> list[list[str]]:
    """Return every parameter's name once, in groups from the stem to the head, which alone is the last.

    In a network for segmentation of torchvision or smp the groups are those of its backbone, and the last is
    all above it: decoder and head begin together (as in arXiv 2106.08254, whose decoder has the whole rate).
    timm's models say themselves which parameters make a layer; elsewhere a group is a repeated block or a
    layer outside blocks, with the normalisation behind it. Parameters outside any layer (class tokens,
    positions) belong to the stem. Raises ModelError for a network without a head.
    """
    new = new_parameters(model)
    groups = _groups_of_timm(model) or _groups_of_backbone(model) or _groups_by_block(model)
    body = [[name for name in group if name not in new] for group in groups]
    last = [name for name, _ in model.named_parameters() if name in new]
    return [group for group in [*body, last] if group]


def rate_factors(spec: specs.LayerRates, model: nn.Module) -> dict[str, float]:
    """Return the factor of each parameter's rate, by name: 1 at the head, less below it.

    Geometric: arXiv 1801.06146, section 3.2. Decayed: arXiv 2003.10555, section 3.4. Backbone: arXiv
    1606.00915, section 4.1.
    """
    match spec:
        case specs.UniformRates():
            return {name: 1.0 for name, _ in model.named_parameters()}
        case specs.GeometricRates():
            groups = layer_groups(model)
            steps = max(len(groups) - 1, 1)
            return _by_depth(groups, spec.lowest ** (1.0 / steps))
        case specs.DecayedRates():
            return _by_depth(layer_groups(model), spec.factor)
        case specs.BackboneRates():
            new = new_parameters(model)
            return {name: 1.0 if name in new else spec.factor for name, _ in model.named_parameters()}
        case _:
            assert_never(spec)


def _by_depth(groups: list[list[str]], ratio: float) -> dict[str, float]:
    return {name: ratio**above for above, group in enumerate(reversed(groups)) for name in group}


def heads_of(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the layers that compute logits, the main one first. Raises as `head_of` does."""
    if isinstance(model, SegmentationNetwork):
        return model.heads
    modules = dict(model.named_modules())
    named = [name for name in _heads_of_timm(model) if name in modules and has_parameters(modules[name])]
    if named:
        return tuple(named)
    layers = [name for name, each in modules.items() if isinstance(each, nn.Linear | nn.Conv2d)]
    if not layers:
        raise ModelError(
            f"{type(model).__name__}: expected a head, a linear layer or a convolution; it has none"
        )
    return (layers[-1],)


def _heads_of_timm(model: nn.Module) -> tuple[str, ...]:
    """Return the heads that a model of timm names:
    its `pretrained_cfg`, a dict, has the classifier or classifiers."""
    configuration = getattr(model, "pretrained_cfg", None)
    named = configuration.get("classifier") if isinstance(configuration, dict) else None
    return (named,) if isinstance(named, str) else tuple(named or ())


def _groups_of_timm(model: nn.Module) -> list[list[str]]:
    matcher = getattr(model, "group_matcher", None)  # an interface of timm's that no class of its declares
    if matcher is None:
        return []
    from timm.models import group_parameters

    by_layer = group_parameters(model, matcher(coarse=False))
    return [list(by_layer[layer]) for layer in sorted(by_layer)]


def _groups_of_backbone(model: nn.Module) -> list[list[str]]:
    if (name := backbone_of(model)) is None:
        return []
    return [[f"{name}.{each}" for each in group] for group in _groups_by_block(model.get_submodule(name))]


def _groups_by_block(model: nn.Module) -> list[list[str]]:
    blocks = repeated_blocks(model)
    groups: list[list[str]] = [[]]
    for name, unit in _units(model, "", set(blocks)):
        parameters = [f"{name}.{each}" for each, _ in unit.named_parameters()]
        if isinstance(unit, NORMALISATIONS) and groups[-1]:
            groups[-1] += parameters
        elif parameters:
            groups.append(parameters)
    inside = {name for group in groups for name in group}
    outside = [name for name, _ in model.named_parameters() if name not in inside]
    stem = [*outside, *(groups[1] if len(groups) > 1 else [])]
    return [stem, *groups[2:]]


def _units(module: nn.Module, prefix: str, blocks: set[str]) -> Iterator[tuple[str, nn.Module]]:
    """Yield blocks, and what is beside them; containers, and whatever else contains blocks, are opened."""
    for child_name, child in module.named_children():
        name = f"{prefix}.{child_name}" if prefix else child_name
        holds_blocks = any(_within(block, name) and block != name for block in blocks)
        plain = type(child) in (nn.Sequential, nn.ModuleList, nn.ModuleDict)
        if name not in blocks and (holds_blocks or plain):
            yield from _units(child, name, blocks)
        else:
            yield name, child


def _within(name: str, module: str) -> bool:
    return not module or name == module or name.startswith(f"{module}.")


def freeze_body(model: nn.Module) -> None:
    """Freeze all but the head; what was frozen before stays so after `unfreeze`.

    In a network for segmentation of torchvision or smp the backbone is frozen, and the decoder is trained
    with the head: both are new. Raises ModelError for a network without a head.
    """
    new = new_parameters(model)
    body = [name for name, each in model.named_parameters() if each.requires_grad and name not in new]
    _stop(model, body)
    setattr(model, _HELD, (*_held_back(model), *body))


def unfreeze(model: nn.Module) -> None:
    """Unfreeze the body, except what the model itself, or `freeze_norm`, has frozen."""
    for name in _held_back(model):
        model.get_parameter(name).requires_grad_(True)
    setattr(model, _HELD, ())


def freeze_norm(model: nn.Module) -> None:
    """Freeze scale and shift of every BatchNorm; `set_training` freezes the statistics.

    In a network for segmentation of torchvision or smp they are those of the backbone: a decoder's are new,
    and have neither statistics nor a scale to keep.
    """
    names = parameters_in(model, BATCH_NORMS)
    if (backbone := backbone_of(model)) is not None:
        names = {name for name in names if _within(name, backbone)}
    _stop(model, names)
    setattr(model, _HELD, tuple(name for name in _held_back(model) if name not in names))


def set_training(model: nn.Module, *, freeze_norm: bool, body_frozen: bool) -> None:
    """Put the model into training mode, except the BatchNorms that normalise by their statistics.

    With `freeze_norm` those are the BatchNorms that the function of this name means. While the body is frozen
    they are those of the body: else its features would drift although no weight of it is trained. Call this
    wherever `model.train()` was called.
    """
    model.train()
    if freeze_norm and backbone_of(model) is None:
        frozen = batch_norms(model)
    elif freeze_norm or body_frozen:
        frozen = _norms_of_body(model)
    else:
        frozen = []
    for module in frozen:
        module.eval()


def _norms_of_body(model: nn.Module) -> list[nn.Module]:
    if (backbone := backbone_of(model)) is not None:
        return batch_norms(model.get_submodule(backbone))
    in_head = set(batch_norms(model.get_submodule(head_of(model))))
    return [each for each in batch_norms(model) if each not in in_head]


def _stop(model: nn.Module, names: Iterable[str]) -> None:
    for name in names:
        parameter = model.get_parameter(name)
        parameter.requires_grad_(False)
        parameter.grad = None  # an optimizer that has it would go on stepping with the last one


def _held_back(model: nn.Module) -> tuple[str, ...]:
    held: tuple[str, ...] = getattr(model, _HELD, ())
    return held


@dataclass(frozen=True)
class HeadCut:
    """The head of a network; its layers are the network's own."""

    network: nn.Module
    head: nn.Sequential

    def features(self, images: Tensor) -> Tensor:
        """Return a copy of what the head is given for images [B, C, H, W], in the network's mode."""
        given: list[Tensor] = []
        first = next(iter(self.head))
        handle = first.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0].clone()))
        try:
            self.network(images)
        finally:
            handle.remove()
        return given[0]


def cut_before_head(network: nn.Module, images: Tensor) -> HeadCut | None:
    """Return the cut before the last layer with parameters, and before dropout that stands in front of it.

    None if the head's answers to the features are not the network's to these images [B, C, H, W]: it may use
    its head twice, or do something to its output. None, too, for a network that answers for each pixel: its
    features are as many as the pixels, and more than its head is trained on them. The network's mode and
    weights stay as they are.
    """
    try:
        head = head_layers(network)
    except ModelError:
        return None
    cut, training = HeadCut(network, head), network.training
    network.eval()
    try:
        with torch.no_grad():
            features = cut.features(images)
            answers = network(images)
            whole = isinstance(answers, Tensor) and answers.ndim == 2
            same = whole and isinstance(features, Tensor) and torch.equal(head(features), answers)
    except (RuntimeError, IndexError):  # a head that takes more than one tensor, or is not called
        same = False
    finally:
        network.train(training)
        head.train(training)
    return cut if same else None


def head_layers(network: nn.Module) -> nn.Sequential:
    """Return the head, with dropout that stands right before it in its container, and what follows there.

    The layers are the network's own. Raises ModelError for a network without a head.
    """
    name = head_of(network)
    head = network.get_submodule(name)
    parent = network.get_submodule(name.rpartition(".")[0]) if name else head
    if type(parent) is not nn.Sequential or parent is head:
        return nn.Sequential(head)
    layers = list(parent)
    start = layers.index(head)
    while start > 0 and isinstance(layers[start - 1], nn.modules.dropout._DropoutNd):
        start -= 1
    return nn.Sequential(*layers[start:])
