"""Describes a network whose layers are narrower than those that its recipe builds, and makes it again.

Pruning takes channels out of layers. What is left cannot be made from a recipe's `model` alone: the sizes of
the narrower layers stand in a file of their own beside the weights, `pruned.json`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn

from trainable.errors import ModelError, faults_of, first_line, quoted
from trainable.files.regular import read_regular, why
from trainable.recipe.base import Spec
from trainable.recipe.trained_files import PRUNED_FILE

LARGEST_FILE = 2**26  # a file has at most so many bytes; a layer takes about 200

# Layers of torch keep their sizes in these attributes, and nothing else is set from a file
Attribute = Literal[
    "in_channels",
    "out_channels",
    "groups",
    "in_features",
    "out_features",
    "num_features",
    "num_channels",
    "num_parameters",
    "normalized_shape",
]
ATTRIBUTES: tuple[Attribute, ...] = Attribute.__args__  # type: ignore[attr-defined]
Length = Annotated[int, Field(ge=1)]


class Widths(Spec):
    """What of a network is narrower than its recipe builds it: sizes of layers, and shapes of tensors.

    Both are by name, as in `named_modules` and `state_dict`; what is not named is as the recipe builds it.
    """

    version: Literal[1] = 1
    layers: dict[str, dict[Attribute, Length | tuple[Length, ...]]]
    shapes: dict[str, tuple[Annotated[int, Field(ge=0)], ...]]

    def content(self) -> bytes:
        """Return the content of the file, JSON, which `read_widths` reads."""
        return (self.model_dump_json(indent=2) + "\n").encode()


def read_widths(folder: Path) -> Widths | None:
    """Return what the file of a folder says; None where there is none, for a network that is whole.

    Raises ModelError, which names the file, for one that cannot be read or has faults.
    """
    file = folder / PRUNED_FILE
    try:
        return Widths.model_validate_json(read_regular(file, most=LARGEST_FILE))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        faults = "; ".join(map(str, faults_of(error, {}, Widths)[:3]))
        raise ModelError(f"{file}: {faults}") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{file}: cannot be read: {why(error)}") from None


def widths_between(whole: nn.Module, narrow: nn.Module) -> Widths:
    """Return in what a network is narrower than it was before, when it was `whole`."""
    before, after = dict(whole.named_modules()), dict(narrow.named_modules())
    layers = {name: dict(_changed(before[name], layer)) for name, layer in after.items()}
    state = whole.state_dict()
    shapes = {
        name: tuple(each.shape)
        for name, each in narrow.state_dict().items()
        if each.shape != state[name].shape
    }
    return Widths(layers={name: each for name, each in layers.items() if each}, shapes=shapes)


def make_narrow(network: nn.Module, widths: Widths) -> None:
    """Narrow a network, in place, as its file says; what is kept of each tensor are its first numbers, in
    each dimension.

    Raises ModelError where the file names what the network does not have, or makes it wider.
    """
    for name, attributes in widths.layers.items():
        layer = _layer(network, name)
        for attribute, length in attributes.items():
            _check_narrower(f"{name}.{attribute}", vars(layer).get(attribute), length)
            setattr(layer, attribute, length)
    for name, shape in widths.shapes.items():
        prefix, _, last = name.rpartition(".")
        layer = _layer(network, prefix)
        held = _Held(layer, last)
        _check_shape(name, held.tensor, shape)
        held.replace(shape)


class _Held(NamedTuple):
    """A tensor of a layer: a parameter or a buffer."""

    layer: nn.Module
    name: str

    @property
    def tensor(self) -> Tensor | None:
        found = self.layer._parameters.get(self.name, self.layer._buffers.get(self.name))
        return found if isinstance(found, Tensor) else None

    def replace(self, shape: tuple[int, ...]) -> None:
        """Put the first numbers of the tensor, in each dimension, into its place."""
        whole = self.tensor
        assert whole is not None
        part = whole.detach()[tuple(slice(length) for length in shape)]
        part = part.clone(memory_format=torch.contiguous_format)
        if isinstance(whole, nn.Parameter):
            self.layer._parameters[self.name] = nn.Parameter(part, requires_grad=whole.requires_grad)
        else:
            self.layer._buffers[self.name] = part


def _changed(before: nn.Module, after: nn.Module) -> Iterator[tuple[Attribute, int | tuple[int, ...]]]:
    """Yield the attributes of a layer that hold another size than before."""
    for name in ATTRIBUTES:
        size = vars(after).get(name)  # of the layer's own; a block may compute that of a layer in it
        if size is not None and size != vars(before).get(name):
            yield name, size if isinstance(size, int) else tuple(size)


def _layer(network: nn.Module, name: str) -> nn.Module:
    try:
        return network.get_submodule(name)
    except AttributeError as error:
        raise ModelError(
            f"{PRUNED_FILE}: {quoted(name)}: the recipe's network has no such layer: {first_line(error)}"
        ) from None


def _check_narrower(where: str, whole: object, length: int | tuple[int, ...]) -> None:
    lengths = (length,) if isinstance(length, int) else length
    wholes = whole if isinstance(whole, tuple) else (whole,)
    if isinstance(length, int) != isinstance(whole, int) or len(lengths) != len(wholes):
        raise ModelError(
            f"{PRUNED_FILE}: layers.{where}: expected what the network has, {whole}, got {length}"
        )
    _check_lengths(f"layers.{where}", wholes, lengths)


def _check_shape(name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> None:
    if tensor is None or tensor.ndim != len(shape):
        has = "no tensor of this name" if tensor is None else f"shape {tuple(tensor.shape)}"
        raise ModelError(f"{PRUNED_FILE}: shapes.{name}: the recipe's network has {has}, got {shape}")
    _check_lengths(f"shapes.{name}", tuple(tensor.shape), shape)


def _check_lengths(where: str, wholes: tuple[object, ...], lengths: tuple[int, ...]) -> None:
    for whole, length in zip(wholes, lengths, strict=True):
        if not isinstance(whole, int) or length > whole:
            raise ModelError(f"{PRUNED_FILE}: {where}: expected at most {whole}, got {length}")
