"""Recognises kinds of layers: normalisations, containers, and the blocks that a network repeats."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from torch import nn

BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)  # of 1, 2 and 3 dimensions, synchronised ones too

NORMALISATIONS = (
    nn.modules.batchnorm._NormBase,  # BatchNorm and InstanceNorm of every dimension
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
)

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)

# Attention layers of torch, of torchvision, and of timm's families call their queries so
QUERIES = re.compile(r"(to_)?(q|qk|qkvs?|query)(_proj)?|(in|q)_proj_weight")


def batch_norms(model: nn.Module) -> list[nn.Module]:
    """Return the layers that normalise by the statistics of a batch, in order of definition."""
    return [each for each in model.modules() if isinstance(each, BATCH_NORMS)]


def parameters_in(model: nn.Module, layers: tuple[type[nn.Module], ...]) -> set[str]:
    """Return the names of the parameters that layers of these types have themselves."""
    return {
        f"{prefix}.{name}" if prefix else name
        for prefix, module in model.named_modules()
        if isinstance(module, layers)
        for name, _ in module.named_parameters(recurse=False)
    }


def has_attention(model: nn.Module) -> bool:
    """Return whether some layer attends by queries; gates, such as squeeze-and-excitation, are no attention.

    The names of the queries decide, since the layers of the libraries have no common ancestor.
    """
    names = [name for name, _ in (*model.named_modules(), *model.named_parameters())]
    return any(QUERIES.fullmatch(part) for name in names for part in name.split("."))


def repeated_blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Return the blocks that a network is stacked from, by name, in order of definition;
    none is inside another.

    A block is in a container, is not a container itself, and has parameters and more than one layer. A module
    with two blocks of one type in one container (a stage) is not a block: its members are. If no block is in
    a container, a module that has a sibling of its type is a block (inception's modules, the stages of timm's
    regnets).
    """
    members = dict(_members(model))
    blocks = {name: each for name, each in members.items() if not _is_stage(each)} or dict(_siblings(model))
    return {name: each for name, each in blocks.items() if not _lies_in(name, blocks)}


def has_parameters(module: nn.Module) -> bool:
    """Return whether the module, or one inside it, has parameters."""
    return next(module.parameters(), None) is not None


def leaves(module: nn.Module) -> list[nn.Module]:
    """Return the layers without layers of their own, in order of definition."""
    return [each for each in module.modules() if not any(each.children())]


def _members(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for prefix, container in model.named_modules():
        if isinstance(container, CONTAINERS):
            for name, child in container.named_children():
                if _may_be_block(child):
                    yield f"{prefix}.{name}" if prefix else name, child


def _siblings(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for prefix, parent in model.named_modules():
        kinds = _kinds(parent)
        for name, child in parent.named_children():
            if kinds[type(child)] > 1:
                yield f"{prefix}.{name}" if prefix else name, child


def _kinds(parent: nn.Module) -> Counter[type[nn.Module]]:
    return Counter(type(child) for child in parent.children() if _may_be_block(child))


def _may_be_block(module: nn.Module) -> bool:
    known = isinstance(module, (*CONTAINERS, *NORMALISATIONS))  # timm's norms hold their activation
    return has_parameters(module) and not known and len(leaves(module)) > 1


def _is_stage(module: nn.Module) -> bool:
    containers = (each for each in module.modules() if isinstance(each, CONTAINERS))
    return any(count > 1 for each in containers for count in _kinds(each).values())


def _lies_in(name: str, blocks: dict[str, nn.Module]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:end]) in blocks for end in range(1, len(parts)))
