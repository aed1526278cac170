"""Tests what a network costs: parameters and operations exactly, time and memory by how they grow."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.trainable.small_runs import data_set, numbers, small_recipe
from trainable.bench import ON_CPU
from trainable.probes import network_cost
from trainable.probes.batch_find import step_bytes
from trainable.probes.network_cost import count_flops, covered, key_of_cost, measure_cost, share_of_rank
from trainable.run import make_run
from trainable.training.run import Run

DATA = data_set(240)


def small_run(**values: Any) -> Run:
    recipe = small_recipe({path.replace("__", "."): value for path, value in values.items()})
    return make_run(recipe, data=DATA, bench=ON_CPU)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_cost, "SECONDS", 0.0)  # the least number of passes


@pytest.mark.slow("trains for a probe")
def test_a_net_sixteen_times_as_wide_costs_more_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_cost, "LEAST_PASSES", 200)  # on a busy machine the quickest of few is slow
    narrow, wide = small_run(model__width=8), small_run(model__width=128)
    next(narrow.model.parameters()).requires_grad_(False)  # frozen ones count, too
    less, more = measure_cost(narrow), measure_cost(wide)
    assert less.parameters == sum(each.numel() for each in narrow.model.parameters())
    assert more.parameters / less.parameters == pytest.approx(250.0, rel=0.1)
    assert more.latency_ms > 1.2 * less.latency_ms
    assert more.memory_gib > 3.0 * less.memory_gib


def test_each_view_of_an_image_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def passes(**values: Any) -> int:
        run, count = small_run(**values), 0

        def counted(*_: Any) -> None:
            nonlocal count
            count += 1

        run.model.register_forward_hook(counted)
        network_cost.times_to_answer(run)
        return count

    assert passes(evaluation__scales=[1.0, 1.5]) == 2 * passes()


def test_a_run_that_was_measured_trains_as_one_that_was_not() -> None:
    measured, untouched = small_run(), small_run()
    measure_cost(measured)
    assert measured.model.training
    assert numbers((measured.step(),)) == numbers((untouched.step(),))


def test_memory_is_that_of_the_micro_batch() -> None:
    whole = step_bytes(small_run(loop__batch_size=128))
    parts = step_bytes(small_run(loop__batch_size=128, loop__micro_batch=32))
    assert 2.0 < whole / parts < 4.0


def test_a_rank_takes_its_share_of_the_batch() -> None:
    loop = share_of_rank(small_recipe({"loop.batch_size": 17, "loop.compile": True}), 2).loop
    assert (loop.batch_size, loop.micro_batch, loop.compile) == (9, 9, False)
    cut = small_recipe({"loop.batch_size": 64, "loop.micro_batch": 16})
    assert share_of_rank(cut, 2).loop.micro_batch == 16


@pytest.mark.parametrize(
    ("values", "same"),
    [
        ({"optimizer.lr": 0.5, "model.dropout": 0.5, "schedule.warmup_epochs": 1.0}, True),
        ({"model.width": 16}, False),
        ({"loop.batch_size": 32}, False),
        ({"optimizer.kind": "adamw"}, False),
        ({"precision.channels_last": False}, False),
        ({"regularisation.averaging.kind": "ema"}, False),
    ],
)
def test_networks_are_measured_again_only_where_something_can_cost_more(
    values: dict[str, Any], same: bool
) -> None:
    assert (key_of_cost(small_recipe(values)) == key_of_cost(small_recipe())) is same


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


@pytest.mark.parametrize(
    ("spans", "whole"),
    [
        ([], 0.0),
        ([(0.0, 2.0), (5.0, 6.0)], 3.0),
        ([(5.0, 6.0), (0.0, 2.0)], 3.0),
        ([(0.0, 4.0), (1.0, 2.0), (3.0, 5.0)], 5.0),
        ([(1.0, 2.0), (1.0, 2.0)], 1.0),
    ],
)
def test_kernels_at_the_same_time_count_once(spans: list[tuple[float, float]], whole: float) -> None:
    assert covered(spans) == whole
