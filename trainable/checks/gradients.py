"""Compares the derivatives of a layer's own code with differences of its outputs: `--debug gradcheck`."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError
from torch.func import functional_call

from trainable.checks.finding import Finding, passed
from trainable.checks.subject import Subject
from trainable.errors import first_line

# Layers of these packages are assumed to be right: only a person's own layers are checked one by one
KNOWN = ("torch.", "torchvision.", "timm.", "segmentation_models_pytorch.", "trainable.")

EPS = 1e-6
# torch.autograd.gradcheck's own values. In fp64 a difference over 1e-6 is right to 1e-9. A kink (ReLU, max
# pooling) lies within it once in a million numbers, and moves a random projection of all of them by less.
TOLERANCE = 1e-3

# Weights are moved by this much, relative to 1: behind a gamma that begins at 0, every derivative would be 0
JITTER = 0.01

SIZE = 2  # images with which the whole network is checked


def check_gradients(layer: nn.Module, inputs: tuple[Tensor, ...], name: str = "") -> Finding:
    """Check whether a layer's gradients, to its inputs and parameters, are those of what it computes.

    Args:
        layer: is copied to fp64, on the CPU, in evaluation mode.
        inputs: the arguments of its forward; those of floating point are checked.

    `torch.autograd.gradcheck` runs in its fast mode: it checks a random projection of the Jacobian (a wrong
    derivative escapes with probability 0). If forward cannot compute in fp64, the finding is a note.
    """
    title = name or type(layer).__name__
    double = copy.deepcopy(layer).cpu().double().eval()
    names = [each for each, parameter in double.named_parameters() if parameter.requires_grad]
    weights = [double.get_parameter(each).detach().clone().requires_grad_() for each in names]
    doubles = [_double(each) for each in inputs]

    def computed(*values: Tensor) -> Any:
        arguments = values[: len(doubles)]
        return functional_call(double, dict(zip(names, values[len(doubles) :], strict=True)), arguments)

    try:
        torch.autograd.gradcheck(
            computed, (*doubles, *weights), eps=EPS, atol=1e-5, rtol=TOLERANCE, fast_mode=True
        )
    except GradcheckError as error:
        return _wrong(title, error)
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        what = f"{title} cannot be checked in fp64: {first_line(error)}"
        means = "nothing is known about its gradients"
        return Finding("gradients", "note", what, means, "let forward compute in the format of its inputs")
    return passed("gradients", f"{title}: gradients agree with differences ({len(weights)} parameters)")


def check_model_gradients(subject: Subject) -> Iterator[Finding]:
    """Yield findings on the gradients of a network, and of each kind of layer in it that is a person's own.

    Weights are moved a little and images are noise, so that nothing lies on a kink.
    """
    model = subject.network().cpu().double().eval()
    generator = torch.Generator().manual_seed(subject.recipe.loop.seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(
                torch.randn(parameter.shape, generator=generator, dtype=torch.float64), alpha=JITTER
            )
    info = subject.data.info
    shape = (SIZE, info.channels, info.image_size, info.image_size)
    images = torch.randn(shape, generator=generator, dtype=torch.float64)
    for name, layer, inputs in _own_layers(model, images):
        yield check_gradients(layer, inputs, f"{name} ({type(layer).__name__})")
    yield check_gradients(model, (images,), f"the network ({type(model).__name__})")


def _own_layers(model: nn.Module, images: Tensor) -> list[tuple[str, nn.Module, tuple[Tensor, ...]]]:
    """Return the first layer of each class that no library defines, with the inputs that it receives."""
    first: dict[type[nn.Module], tuple[str, nn.Module]] = {}
    for name, module in model.named_modules():
        if module is not model and not type(module).__module__.startswith(KNOWN):
            first.setdefault(type(module), (name, module))
    received: dict[str, tuple[Tensor, ...]] = {}

    def keep(name: str) -> Any:
        def hook(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
            if all(isinstance(each, Tensor) for each in inputs):
                received.setdefault(name, tuple(each.detach().clone() for each in inputs))

        return hook

    hooks = [module.register_forward_pre_hook(keep(name)) for name, module in first.values()]
    try:
        with torch.no_grad():
            model(images)
    finally:
        for hook in hooks:
            hook.remove()
    return [(name, module, received[name]) for name, module in first.values() if name in received]


def _double(value: Tensor) -> Tensor:
    if not value.is_floating_point():
        return value
    return value.detach().cpu().double().clone().requires_grad_()


def _wrong(title: str, error: Exception) -> Finding:
    return Finding(
        "gradients",
        "error",
        f"{title}: {first_line(error)}",
        "training follows a direction that does not lower the loss",
        "correct backward of its torch.autograd.Function, or let autograd derive it",
    )
