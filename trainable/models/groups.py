"""Groups the layers of a network from the stem to the head, and computes each group's share of the rate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from torch import nn

from trainable.errors import ModelError
from trainable.models.dense_networks import DenseNetwork
from trainable.models.layers import NORMALISATIONS, has_parameters, repeated_blocks
from trainable.recipe import models as specs


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
    if not isinstance(model, DenseNetwork):
        return head_parameters(model)
    return {name for name, _ in model.named_parameters() if not _within(name, model.backbone_name)}


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
    if isinstance(model, DenseNetwork):
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
    if not isinstance(model, DenseNetwork):
        return []
    name = model.backbone_name
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
