"""Tests how weights are drawn, by their statistics, and how residual blocks begin."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch
from torch import nn

from trainable.errors import ModelError
from trainable.models.initialise import begin_as_identity, initialise, residual_scales
from trainable.models.make import NetworkEnds, make_model
from trainable.recipe import models as specs

Kind = Literal["default", "kaiming", "xavier", "orthogonal"]
DRAWN: tuple[Kind, ...] = ("kaiming", "xavier", "orthogonal")
SMALL = specs.ResNetSmall(width=8)
RESNET = specs.TorchvisionModel(name="resnet18")
BOTTLENECKS = specs.TorchvisionModel(name="resnet50")
TIMM = specs.TimmModel(name="test_resnet")


def make(spec: specs.Model) -> nn.Module:
    torch.manual_seed(0)
    return make_model(spec, NetworkEnds(classes=5, channels=3, image_size=32))


def net() -> nn.Sequential:
    """Return two convolutions (one grouped), a linear layer and a head, all large enough for statistics."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(32, 64, 3), nn.Conv2d(64, 128, 3, groups=8), nn.BatchNorm2d(128), nn.Flatten(),
        nn.Linear(128, 400), nn.Linear(400, 50),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "variances"),
    [
        ("kaiming", [2 / (64 * 9), 2 / (16 * 9), 2 / 400, 1 / 400]),
        ("xavier", [2 / (96 * 9), 2 / ((8 + 16) * 9), 2 / 528, 2 / 450]),
    ],
)
def test_weights_have_the_variance_of_their_paper(kind: Kind, variances: list[float]) -> None:
    model = net()
    initialise(model, kind)
    weights = [model[index].weight.detach() for index in (0, 1, 4, 5)]
    assert [each.var().item() for each in weights] == pytest.approx(variances, rel=0.05)
    assert all(each.mean().abs() < 4 * (each.var() / each.numel()).sqrt() for each in weights)


def test_kaiming_is_normal_and_xavier_uniform() -> None:
    for kind, kurtosis in (("kaiming", 3.0), ("xavier", 1.8)):
        model = net()
        initialise(model, kind)  # type: ignore[arg-type]
        weight = model[1].weight.detach()
        assert (weight / weight.std()).pow(4).mean().item() == pytest.approx(kurtosis, rel=0.08)


def test_orthogonal_weights_have_orthonormal_rows_or_columns() -> None:
    model = net()
    initialise(model, "orthogonal")
    for index in (0, 1, 4, 5):
        matrix = model[index].weight.detach().flatten(1)
        small = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
        torch.testing.assert_close(small, torch.eye(len(small)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", DRAWN)
def test_biases_begin_at_zero_and_norms_at_one(kind: Kind) -> None:
    model = net()
    norm = model[2]
    assert isinstance(norm, nn.BatchNorm2d)
    for parameter in norm.parameters():
        nn.init.constant_(parameter, 3.0)
    initialise(model, kind)
    assert not any(model[index].bias.any() for index in (0, 1, 2, 4, 5))
    assert torch.equal(norm.weight, torch.ones(128))


def test_kaiming_keeps_the_loss_of_a_new_net_near_that_of_guessing() -> None:
    torch.manual_seed(0)
    spec = specs.ResNetSmall(width=16, initialisation="kaiming", zero_init_residual=False)
    model = make_model(spec, NetworkEnds(classes=10, channels=3, image_size=16))
    loss = nn.functional.cross_entropy(model(torch.randn(64, 3, 16, 16)), torch.arange(64) % 10)
    assert loss.item() == pytest.approx(math.log(10), abs=0.7)


def test_default_draws_nothing() -> None:
    model = make(RESNET)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    initialise(model, "default")
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


@pytest.mark.slow("builds large networks")
@pytest.mark.parametrize(
    ("spec", "blocks", "zero_by_itself"),
    [(SMALL, 3, True), (RESNET, 8, False), (BOTTLENECKS, 16, False), (TIMM, 4, True)],
    ids=["ours", "resnet18", "resnet50", "timm"],
)
@pytest.mark.parametrize("kind", ["default", "kaiming"])
def test_residual_blocks_begin_as_the_spec_says(
    spec: specs.Model, blocks: int, zero_by_itself: bool, kind: Kind
) -> None:
    for wanted in (None, True, False):
        chosen = spec.model_copy(update={"zero_init_residual": wanted, "initialisation": kind})
        scales = residual_scales(make(chosen), chosen)
        assert len(scales) == blocks
        expected = 0.0 if (zero_by_itself if wanted is None else wanted) else 1.0
        assert all(torch.equal(each, torch.full_like(each, expected)) for each in scales)


@pytest.mark.parametrize("spec", [RESNET, TIMM], ids=["torchvision", "timm"])
def test_a_block_with_a_zero_scale_is_its_shortcut(spec: specs.Model) -> None:
    model = make(spec.model_copy(update={"zero_init_residual": True}))
    block = model.layer1[-1]
    features = torch.rand(2, block.conv1.in_channels, 8, 8)
    torch.testing.assert_close(block(features), features)


def test_looking_for_scales_changes_nothing() -> None:
    model = make(TIMM.model_copy(update={"zero_init_residual": False}))
    before = {name: each.clone() for name, each in model.state_dict().items()}
    residual_scales(model, TIMM)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


@pytest.mark.parametrize(
    "spec", [specs.TorchvisionModel(name="squeezenet1_1"), specs.TimmModel(name="test_vit")]
)
def test_a_net_without_residual_norms_is_named(spec: specs.TorchvisionModel | specs.TimmModel) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(ModelError, match=f"zero_init_residual: .*{spec.name} has no residual blocks"):
        begin_as_identity(model, spec.model_copy(update={"zero_init_residual": True}))
