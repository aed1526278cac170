"""Tests how many channels groups keep, against sums by hand and against networks that are really cut."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainable.shrinking.networks import SMALL, network_of
from trainable.errors import ModelError
from trainable.probes.network_cost import Flops, count_flops
from trainable.shrinking.choice import choose, share_left, step_of
from trainable.shrinking.dependencies import ChannelGroup, Dependencies, LayerEnd


def group(name: str, size: int, after: str, per_unit: int = 1) -> ChannelGroup:
    """Return a group of the channels that one layer gives and the next one takes."""
    units = tuple(tuple(unit + size * each for each in range(per_unit)) for unit in range(size))
    shares = {LayerEnd(name, "outputs"): 1.0, LayerEnd(after, "inputs"): 1.0}
    return ChannelGroup(name, units, np.linspace(0.5, 1.5, size), shares)


GROUPS = (group("a", 8, "b"), group("b", 16, "c"))
FLOPS = Flops(1000, {"a": 100, "b": 600, "c": 300})


def test_a_layer_costs_what_it_gives_times_what_it_takes() -> None:
    assert share_left(GROUPS, FLOPS, (8, 16)) == 1.0
    assert share_left(GROUPS, FLOPS, (4, 16)) == pytest.approx((50 + 300 + 300) / 1000)
    assert share_left(GROUPS, FLOPS, (4, 4)) == pytest.approx((50 + 75 + 75) / 1000)


def test_groups_lose_equal_shares_one_step_after_the_other() -> None:
    chosen = choose(GROUPS, FLOPS, 0.5, 8)
    assert chosen.share <= 0.5
    first, second = chosen.kept
    assert abs(first / 8 - second / 16) <= 1 / 8
    assert second % 2 == 0


def test_no_group_loses_more_than_nine_tenths_and_what_asks_for_it_is_refused() -> None:
    assert choose(GROUPS, FLOPS, 0.06, 1).kept == (1, 2)
    with pytest.raises(ModelError, match=r"--flops 0.01: expected at least 0.0\d+"):
        choose(GROUPS, FLOPS, 0.01, 1)


@pytest.mark.parametrize(
    ("size", "per_unit", "step"), [(8, 1, 1), (16, 1, 2), (24, 1, 2), (64, 1, 8), (512, 1, 8), (16, 4, 2)]
)
def test_a_step_is_a_power_of_two_and_an_eighth_of_the_units_at_most(
    size: int, per_unit: int, step: int
) -> None:
    assert step_of(group("a", size, "b", per_unit), 8) == step


def test_the_computed_share_is_that_of_the_network_when_it_is_cut() -> None:
    network = network_of(SMALL, channels=1, size=8)
    flops = count_flops(network, (1, 8, 8))
    dependencies = Dependencies(network, (1, 8, 8), "small")
    kept = [max(1, len(each.units) - at) for at, each in enumerate(dependencies.groups)]
    promised = share_left(dependencies.groups, flops, kept)
    for each, count in zip(dependencies.groups, kept, strict=True):
        dependencies.cut(each, list(range(len(each.units) - count)))
    assert count_flops(network, (1, 8, 8)).total / flops.total == pytest.approx(promised)
