"""Tests that pruned networks have the asked operations, compute what they should, and can be trained."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.trainable.shrinking.networks import CLASSES, SMALL, network_of
from trainable.errors import ModelError, UserError
from trainable.models.widths import make_narrow
from trainable.probes.network_cost import count_flops
from trainable.shrinking.dependencies import Dependencies
from trainable.shrinking.prune import differs, prune

# A share is missed by at most so much: the narrowest layers have 8 channels, and lose them one by one
NEAR = 0.04
NETWORKS: list[tuple[dict[str, Any], int, int]] = [
    (SMALL, 1, 8),
    (SMALL, 3, 16),
    ({"model": {"kind": "torchvision", "name": "resnet18"}}, 1, 32),
    ({"model": {"kind": "timm", "name": "mobilenetv3_small_050"}}, 3, 32),
    ({"model": {"kind": "timm", "name": "convnext_atto"}}, 3, 32),
    ({"model": {"kind": "timm", "name": "regnetx_002"}}, 3, 32),
]


@pytest.mark.parametrize(
    ("values", "channels", "size"),
    NETWORKS,
    ids=["small, grey", "small", "resnet18, grey", "mobilenet", "layer norms", "grouped"],
)
class TestEachNetwork:
    @pytest.mark.slow("trains and prunes networks")
    def test_has_the_asked_share_of_its_operations_and_finite_answers(
        self, values: dict[str, Any], channels: int, size: int
    ) -> None:
        whole = network_of(values, channels=channels, size=size)
        for share in (0.75, 0.4):
            found = prune(whole, (channels, size, size), share)
            assert share - NEAR < found.share <= share
            assert found.after == count_flops(found.network, (channels, size, size))
            answers = found.network(torch.randn(3, channels, size, size))
            assert answers.shape == (3, CLASSES)
            assert answers.isfinite().all()

    @pytest.mark.slow("trains and prunes networks")
    def test_is_made_again_bit_for_bit_and_every_layer_is_trained(
        self, values: dict[str, Any], channels: int, size: int
    ) -> None:
        whole = network_of(values, channels=channels, size=size)
        before = {name: each.clone() for name, each in whole.state_dict().items()}
        found = prune(whole, (channels, size, size), 0.5)
        assert all(torch.equal(each, before[name]) for name, each in whole.state_dict().items())
        again = copy.deepcopy(whole)
        make_narrow(again, found.widths)
        again.load_state_dict(found.network.state_dict())
        images = torch.randn(4, channels, size, size)
        with torch.no_grad():
            assert torch.equal(again.eval()(images), found.network.eval()(images))
        functional.cross_entropy(again.train()(images), torch.arange(4)).backward()
        assert all(each.grad is not None and each.grad.isfinite().all() for each in again.parameters())


def test_the_channels_with_the_smallest_weights_are_cut() -> None:
    torch.manual_seed(0)
    first, second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([1.0, 0.1, 2.0, 0.2]).view(4, 1, 1, 1).expand(4, 1, 3, 3))
        second.weight.fill_(1.0)
    network = nn.Sequential(first, nn.ReLU(), second, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    found = prune(network, (1, 8, 8), 0.55)
    assert found.network[0].weight[:, 0, 0, 0].tolist() == [1.0, 2.0]


def test_a_second_head_in_training_is_cut_with_the_body_it_stands_on() -> None:
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head, self.other = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 3, 1), nn.Conv2d(8, 3, 1)

        def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Tensor]:
            features = self.body(images).relu()
            return (self.head(features), self.other(features)) if self.training else self.head(features)

    found = prune(TwoHeads(), (1, 8, 8), 0.5)
    assert (found.network.head.in_channels, found.network.other.in_channels) == (4, 4)
    main, other = found.network.train()(torch.randn(2, 1, 8, 8))
    assert main.shape == other.shape == (2, 3, 6, 6)


def test_a_dense_network_keeps_its_answers_channels() -> None:
    up = nn.Upsample(scale_factor=2, mode="bilinear")
    layers = [nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), up, nn.Conv2d(8, 5, 1)]
    found = prune(nn.Sequential(*layers), (3, 16, 16), 0.5)
    assert found.network(torch.randn(1, 3, 16, 16)).shape == (1, 5, 16, 16)


def test_the_caller_s_generator_does_not_change() -> None:
    network = network_of(SMALL, channels=1, size=8)
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    prune(network, (1, 8, 8), 0.5)
    assert torch.equal(torch.rand(1), expected)


class TestWhatCannotBePruned:
    def test_a_network_with_attention(self) -> None:
        network = network_of(
            {"model": {"kind": "timm", "name": "vit_tiny_patch16_224"}}, channels=3, size=224
        )
        with pytest.raises(
            ModelError, match=r"^mine: expected a convolutional network, got one with attention"
        ):
            prune(network, (3, 224, 224), 0.5, title="mine")

    def test_a_network_that_moves_its_channels_about(self) -> None:
        class Shuffled(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 4, 1)

            def forward(self, images: Tensor) -> Tensor:
                features: Tensor = self.first(images)
                return self.second(features.flip(1)).mean((2, 3))  # type: ignore[no-any-return]

        with pytest.raises(ModelError, match=r"^mine: cannot be pruned: .* channels is not understood"):
            prune(Shuffled(), (1, 8, 8), 0.5, title="mine")

    def test_a_network_of_one_layer(self) -> None:
        with pytest.raises(ModelError, match="no channels beside those that it returns"):
            prune(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), (1, 8, 8), 0.5)

    @pytest.mark.parametrize("share", [0.0, 1.0, -0.5, float("nan")])
    def test_a_share_that_is_none(self, share: float) -> None:
        with pytest.raises(ModelError, match="expected a share of the operations above 0 and below 1"):
            prune(network_of(SMALL, channels=1, size=8), (1, 8, 8), share)

    def test_a_share_below_what_a_tenth_of_the_channels_takes(self) -> None:
        with pytest.raises(ModelError, match=r"^--flops 0.001: expected at least 0\.0\d\d"):
            prune(network_of(SMALL, channels=1, size=8), (1, 8, 8), 0.001)

    def test_anything_without_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torch_pruning", None)
        with pytest.raises(
            UserError, match=r"torch-pruning, which is not installed: `pip install 'tunebook\["
        ):
            prune(network_of(SMALL, channels=1, size=8), (1, 8, 8), 0.5)


def test_channels_that_do_not_belong_together_make_a_network_that_differs() -> None:
    network = network_of(SMALL, channels=1, size=8)
    cut = copy.deepcopy(network)
    dependencies = Dependencies(cut, (1, 8, 8), "small")
    group = dependencies.groups[0]
    cuts = dependencies.cuts(group, [0, 1])
    dependencies.cut(group, [2, 3])
    assert differs(network, cut, cuts, (1, 8, 8))
    right = copy.deepcopy(network)
    others = Dependencies(right, (1, 8, 8), "small")
    others.cut(others.groups[0], [0, 1])
    assert not differs(network, right, cuts, (1, 8, 8))
