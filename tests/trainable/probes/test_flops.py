"""Tests the operations of networks against sums by hand."""

from __future__ import annotations

import torch
from torch import nn

from trainable.probes.flops import count_flops


def test_convolutions_and_products_count_twice_their_multiplications() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Flatten(),
        nn.Linear(8 * 16, 5),
    )
    found = count_flops(network, (3, 4, 4))
    assert found.layers == {"0": 2 * 16 * 8 * 3 * 9, "2": 2 * 16 * 8 * 9, "4": 2 * 8 * 16 * 5}
    assert found.total == sum(found.layers.values())


def test_the_network_stays_as_it_was() -> None:
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)).train()
    before = {name: each.clone() for name, each in network.state_dict().items()}
    count_flops(network, (1, 8, 8))
    assert network.training
    assert all(torch.equal(each, before[name]) for name, each in network.state_dict().items())
