"""Tests findings about how a network is built: planted faults are found, sound networks are left alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from trainable.models.lint import lints
from trainable.models.make import NetworkEnds, make_model
from trainable.recipe import models as specs

IMAGES = torch.rand(1, 3, 32, 32)


def found(model: nn.Module, kind: str, images: Tensor = IMAGES) -> list[str]:
    return [each.layer for each in lints(model, images) if each.kind == kind]


def make(spec: specs.Model) -> nn.Module:
    return make_model(spec, NetworkEnds(classes=5, channels=3, image_size=32))


@pytest.mark.parametrize(
    "spec",
    [
        specs.ResNetSmall(width=8),
        specs.TorchvisionModel(name="resnet18"),
        specs.TorchvisionModel(name="mobilenet_v3_small"),
        specs.TimmModel(name="test_vit"),
    ],
    ids=lambda each: getattr(each, "name", each.kind),
)
def test_sound_networks_have_no_finding_but_notes(spec: specs.Model) -> None:
    assert {each.kind for each in lints(make(spec), IMAGES)} <= {"memory_access"}


def test_a_resnet_has_not_even_a_note() -> None:
    assert lints(make(specs.TorchvisionModel(name="resnet18")), IMAGES) == []


class Net(nn.Module):
    """A convolution before a norm, and perhaps a layer that nothing uses."""

    def __init__(self, *, bias: bool = False, between: nn.Module | None = None, spare: bool = False) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)  # defined before what it follows: the order that counts is that of use
        self.conv = nn.Conv2d(3, 4, 3, bias=bias)
        self.between = between or nn.Identity()
        self.spare = nn.Linear(2, 2) if spare else None
        self.head = nn.Linear(4, 5)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.between(self.conv(images))).mean((2, 3)))
        return logits


@pytest.mark.parametrize(
    ("net", "layers"),
    [
        (Net(bias=True), ["conv"]),
        (Net(bias=False), []),
        (Net(bias=True, between=nn.ReLU()), []),
        (Net(bias=True, between=nn.ReLU(inplace=True)), []),
    ],
    ids=["bias", "no bias", "activation between", "activation in place between"],
)
def test_a_bias_right_before_batch_norm_is_named(net: nn.Module, layers: list[str]) -> None:
    assert found(net, "bias_before_norm") == layers


def test_a_linear_layer_before_batch_norm_counts_too() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4), nn.Linear(4, 5))
    assert found(net, "bias_before_norm", torch.rand(2, 3, 2, 2)) == ["1"]


def test_parameters_that_nothing_uses_are_named() -> None:
    assert found(Net(spare=True), "unused_parameter") == ["spare.weight", "spare.bias"]
    assert found(Net(), "unused_parameter") == []


def test_frozen_parameters_are_named_and_not_called_unused() -> None:
    net = Net()
    net.conv.weight.requires_grad_(False)
    assert found(net, "frozen_parameter") == ["conv.weight"]
    assert found(net, "unused_parameter") == []
    assert len(found(net.requires_grad_(False), "frozen_parameter")) == 5


@pytest.mark.parametrize(
    ("layer", "noted"),
    [
        (nn.Conv2d(3, 64, 1), True),
        (nn.Conv2d(3, 12, 1), False),
        (nn.Conv2d(3, 64, 3), False),
        (nn.Sequential(nn.Conv2d(3, 36, 3), nn.Conv2d(36, 36, 3, groups=12)), True),
        (nn.Sequential(nn.Conv2d(3, 36, 3), nn.Conv2d(36, 36, 3, groups=6)), False),
        (nn.Sequential(nn.Conv2d(3, 36, 3), nn.Conv2d(36, 36, 3, groups=36)), False),
        (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 64, 1)), False),
    ],
    ids=["wider", "a little", "3x3", "12 groups", "6 groups", "depthwise", "one pixel"],
)
def test_shufflenets_rules_are_notes(layer: nn.Module, noted: bool) -> None:
    assert bool(found(layer, "memory_access")) == noted
    assert all(each.reason for each in lints(layer, IMAGES) if each.kind == "memory_access")


def test_the_network_and_the_generators_are_left_as_they_were() -> None:
    model = make(specs.ResNetSmall(width=8, dropout=0.5)).eval()
    model.head.train()
    gradients = [torch.rand_like(each) for each in model.parameters()]
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient.clone()
    before, state = copy.deepcopy(model), torch.get_rng_state()
    with torch.no_grad():
        lints(model, IMAGES)
    assert torch.equal(torch.get_rng_state(), state)
    assert [each.training for each in model.modules()] == [each.training for each in before.modules()]
    assert all(
        torch.equal(ours, theirs)
        for ours, theirs in zip(model.state_dict().values(), before.state_dict().values(), strict=True)
    )
    assert all(
        parameter.grad is not None and torch.equal(parameter.grad, gradient)
        for parameter, gradient in zip(model.parameters(), gradients, strict=True)
    )
    assert all(
        len(ours._forward_hooks) == len(theirs._forward_hooks)
        for ours, theirs in zip(model.modules(), before.modules(), strict=True)
    )
