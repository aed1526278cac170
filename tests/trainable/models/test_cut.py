"""A network is cut where its head begins, so that head and features give its answers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.trainable.small_runs import plain_net
from trainable.models.groups import cut_before_head
from trainable.models.make import NetworkEnds, make_model
from trainable.recipe import models as specs

NETWORKS: list[specs.Model] = [
    specs.ResNetSmall(width=8),
    specs.ResNetSmall(width=8, dropout=0.5),
    specs.TorchvisionModel(name="mobilenet_v3_small"),
    specs.TorchvisionModel(name="efficientnet_b0"),
    specs.TimmModel(name="test_vit"),
    specs.TimmModel(name="test_resnet"),
    specs.TimmModel(name="test_convnext"),
]


def named(spec: specs.Model) -> str:
    return f"{getattr(spec, 'name', spec.kind)} {spec.dropout or ''}".strip()


@pytest.mark.parametrize("spec", NETWORKS, ids=named)
def test_the_head_gives_the_networks_answers(spec: specs.Model) -> None:
    side = 160 if named(spec) == "test_vit" else 64
    network = make_model(spec, NetworkEnds(classes=5, channels=3, image_size=side)).train()
    images = torch.rand(2, 3, side, side)
    cut = cut_before_head(network, images)
    assert cut is not None
    assert network.training
    network.eval()
    with torch.no_grad():
        assert torch.equal(cut.head(cut.features(images)), network(images))


def test_dropout_before_the_head_is_on_the_heads_side() -> None:
    spec = specs.TorchvisionModel(name="efficientnet_b0", dropout=0.9)
    network = make_model(spec, NetworkEnds(classes=5, channels=3, image_size=64))
    cut = cut_before_head(network, torch.rand(2, 3, 64, 64))
    assert cut is not None
    assert isinstance(cut.head[0], nn.Dropout)
    assert (cut.features(torch.rand(2, 3, 64, 64)) == 0.0).double().mean() < 0.5


class UsesItsHeadTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.head(images.flatten(1)[:, :4]))
        return logits


class ScalesItsLogits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 4)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = 2 * self.head(images.flatten(1)[:, :4])
        return logits


@pytest.mark.parametrize("network", [UsesItsHeadTwice(), ScalesItsLogits(), nn.Flatten()])
def test_a_network_whose_head_is_no_end_is_not_cut(network: nn.Module) -> None:
    assert cut_before_head(network, torch.rand(2, 1, 8, 8)) is None


def test_a_head_that_is_pooled_afterwards_is_not_cut() -> None:
    network = make_model(
        specs.TorchvisionModel(name="squeezenet1_1"), NetworkEnds(classes=5, channels=3, image_size=64)
    )
    assert cut_before_head(network, torch.rand(2, 3, 64, 64)) is None


def test_a_network_of_ones_own_is_cut_at_its_last_layer() -> None:
    network = plain_net(dropout=0.5)
    cut = cut_before_head(network, torch.rand(2, 1, 8, 8, dtype=torch.float64))
    assert cut is not None
    assert [type(each) for each in cut.head] == [nn.Dropout, nn.Linear]
