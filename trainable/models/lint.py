"""Finds what is questionable about how a network is built, by one pass through a copy of it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from trainable.models.layers import BATCH_NORMS

# Above this ratio, the memory access of a 1x1 convolution is noted (our bound: a ResNet's bottleneck has 4)
WIDTH_RATIO = 4

# Above this number, the memory access of a grouped convolution is noted (the paper's table 2 ends at 8)
GROUPS = 8


@dataclass(frozen=True)
class Lint:
    """One finding: what it is, and the layer or parameter it is about.

    `memory_access` is a note: the network is slower than it could be, not wrong, and `reason` says why. The
    others are worth a warning.
    """

    kind: Literal["bias_before_norm", "unused_parameter", "frozen_parameter", "memory_access"]
    layer: str
    reason: str = ""


def lints(model: nn.Module, images: Tensor) -> list[Lint]:
    """Return the findings about a network that takes `images` [B, channels, side, side],
    by kind, then by layer.

    A copy is run forward and backward in training mode; the network itself, and torch's generators, do not
    change. Rules of memory access: Ma et al., arXiv 1807.11164, section 2, G1 and G2.
    """
    trace = _traced(model, images)
    layers, parameters = list(model.named_modules()), list(model.named_parameters())
    return [
        *(
            Lint("bias_before_norm", name)
            for name, layer in layers
            if name in trace.before_norms and getattr(layer, "bias", None) is not None
        ),
        *(
            Lint("unused_parameter", name)
            for name, parameter in parameters
            if parameter.requires_grad and name not in trace.reached
        ),
        *(Lint("frozen_parameter", name) for name, parameter in parameters if not parameter.requires_grad),
        *(
            Lint("memory_access", name, reason)
            for name, layer in layers
            if isinstance(layer, nn.Conv2d)
            and trace.areas.get(name, 0) > 1  # of one pixel, as in squeeze and excitation, little is read
            for reason in (_uneven_widths(name, layer), _many_groups(name, layer))
            if reason
        ),
    ]


@dataclass
class _Trace:
    """What one pass showed; the output of those `before_norms` is a BatchNorm's input."""

    before_norms: set[str] = field(default_factory=set)
    areas: dict[str, int] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)


def _traced(model: nn.Module, images: Tensor) -> _Trace:
    twin = copy.deepcopy(model).train()
    batch = images if len(images) > 1 else images.repeat(2, 1, 1, 1)  # BatchNorm needs two numbers a channel
    trace = _Trace()
    devices = [images.device] if images.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.enable_grad(), _watched(twin, trace):
        logits = twin(batch)
        twin.zero_grad(set_to_none=True)
        answers = [each for each in _each_of(logits) if each.requires_grad]
        if answers:
            torch.autograd.backward([each.sum() for each in answers])
    trace.reached = {name for name, each in twin.named_parameters() if each.grad is not None}
    return trace


def _each_of(outputs: object) -> list[Tensor]:
    """Return the logits of a network, and those of its auxiliary head if it has one."""
    several = outputs if isinstance(outputs, tuple) else (outputs,)
    return [each for each in several if isinstance(each, Tensor)]


@contextmanager
def _watched(model: nn.Module, trace: _Trace) -> Iterator[None]:
    """Record the layers' outputs and the BatchNorms' inputs;
    outputs are stored, so that no id occurs twice."""
    names = {module: name for name, module in model.named_modules()}
    outputs: dict[int, tuple[str, Tensor, int]] = {}

    def after(layer: nn.Module, _inputs: Any, output: Any) -> None:
        if isinstance(layer, nn.Conv2d | nn.Linear) and isinstance(output, Tensor):
            outputs[id(output)] = (names[layer], output, output._version)
            trace.areas[names[layer]] = output.shape[2:].numel()

    def before(_norm: nn.Module, inputs: tuple[Any, ...]) -> None:
        layer, output, version = outputs.get(id(inputs[0]), ("", None, 0))
        if output is not None and output._version == version:  # an activation in place raises it
            trace.before_norms.add(layer)

    hooks = [each.register_forward_hook(after) for each in model.modules()]
    hooks += [
        each.register_forward_pre_hook(before) for each in model.modules() if isinstance(each, BATCH_NORMS)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _uneven_widths(name: str, layer: nn.Conv2d) -> str:
    narrow, wide = sorted((layer.in_channels, layer.out_channels))
    if layer.kernel_size != (1, 1) or layer.groups != 1 or wide <= WIDTH_RATIO * narrow:
        return ""
    return (
        f"{name} is a 1x1 convolution of {layer.in_channels} to {layer.out_channels} channels: equal widths "
        "read and write least memory for the same arithmetic (G1)"
    )


def _many_groups(name: str, layer: nn.Conv2d) -> str:
    if layer.groups <= GROUPS or layer.groups == layer.in_channels:
        return ""
    return f"{name} has {layer.groups} groups: the more, the more memory for the same arithmetic (G2)"
