"""Timed steps decide the number format and the layout: once, in turns, and by a clear lead."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx import GraphModule

from tests.trainable.small_runs import data_set, small_recipe
from trainable.bench import Bench
from trainable.models.small_networks import SmallResNet
from trainable.probes.speed import measure_speeds
from trainable.recipe.network_cost import GPU_IMAGES, Format, Speed, fastest, pays_to_compile, pays_to_time
from trainable.recipe.training import Precision
from trainable.train import train
from trainable.training.precision import formats_of

CPU = torch.device("cpu")
INFO = data_set().info
OPEN = Precision()  # nothing of it is named


def speed(number_format: Format, rate: float, *, channels_last: bool = True) -> Speed:
    return Speed(number_format=number_format, channels_last=channels_last, images_per_second=rate)


@pytest.mark.parametrize(("other", "chosen"), [(114.0, "fp32"), (116.0, "bf16"), (50.0, "fp32")])
def test_another_format_must_be_clearly_faster(other: float, chosen: str) -> None:
    assert fastest([speed("fp32", 100.0), speed("bf16", other)]).number_format == chosen


def test_the_fastest_of_several_is_taken() -> None:
    found = [speed("fp32", 100.0), speed("bf16", 150.0), speed("bf16", 160.0, channels_last=False)]
    assert fastest(found) is found[2]


@pytest.mark.slow("trains for a probe")
def test_every_format_of_the_device_is_timed_in_both_layouts() -> None:
    net = SmallResNet(depth=8, width=8, stem_stride=1, classes=3, channels=1)
    found = measure_speeds(net, INFO, CPU, OPEN)
    ways = [(each.number_format, each.channels_last) for each in found]
    assert ways == [(each, last) for each in formats_of(CPU) for last in (True, False)]
    assert min(each.images_per_second for each in found) > 0.0


@pytest.mark.parametrize(
    ("named", "timed"),
    [
        ({"kind": "fp32"}, [("fp32", True)]),
        ({"kind": "bf16", "channels_last": False}, [("bf16", False)]),
        ({"channels_last": False}, [(each, False) for each in formats_of(CPU)]),
    ],
)
def test_what_a_recipe_names_is_not_compared_with_anything(
    named: dict[str, Any], timed: list[tuple[Format, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainable.probes.speed.SECONDS", 0.0)
    net = SmallResNet(depth=8, width=4, stem_stride=1, classes=3, channels=1)
    found = measure_speeds(net, INFO, CPU, Precision(**named))
    assert [(each.number_format, each.channels_last) for each in found] == timed


@pytest.mark.parametrize(("images", "pays"), [(10_000, False), (30_000, True)])
def test_compiling_must_win_back_twice_its_time(images: int, pays: bool) -> None:
    found = [speed("bf16", 100.0), speed("bf16", 200.0).model_copy(update={"compile_seconds": 60.0})]
    assert pays_to_compile(found, images) is pays
    assert fastest(found) is found[0]
    assert not pays_to_compile(found[:1], images)


def test_steps_are_timed_on_a_gpu_only_where_the_search_is_long() -> None:
    assert not pays_to_time("cuda", 16 * 6 * 2_007)  # a search of some thousand photographs
    assert pays_to_time("cuda", GPU_IMAGES)
    assert pays_to_time("cpu", 1)


@pytest.mark.parametrize(("trials", "pays"), [(1, False), (8, False), (40, True)])
def test_compiling_may_pay_where_many_trials_find_the_code_of_the_first_ones(trials: int, pays: bool) -> None:
    compiled = {"compile_seconds": 60.0, "again_seconds": 6.0, "by_blocks": True}
    found = [speed("bf16", 100.0), speed("bf16", 200.0).model_copy(update=compiled)]
    assert pays_to_compile(found, trials * 10_000, trials) is pays
    assert str(found[1]) == "bf16 channels_last compiled by blocks in 60 s and again in 6 s 200"


class OnlyFast(nn.Module):
    """A network that computes many products, unless autocast is on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 3)
        self.slow = nn.Linear(64, 64)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = images.flatten(1)
        if not torch.is_autocast_enabled("cpu"):
            for _ in range(200):
                features = self.slow(features)
        logits: torch.Tensor = self.layer(features)
        return logits


@pytest.mark.slow("trains for a probe")
@pytest.mark.skipif(len(formats_of(CPU)) < 2, reason="this processor has one format alone")
def test_a_network_that_is_faster_in_bf16_is_trained_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainable.probes.speed.SECONDS", 3.0)  # other programs may slow a few rounds
    assert fastest(measure_speeds(OnlyFast(), INFO, CPU, OPEN)).number_format == "bf16"


def test_memory_that_runs_out_leaves_the_choice_to_the_device() -> None:
    class TooLarge(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            raise torch.OutOfMemoryError

    assert measure_speeds(TooLarge(), INFO, CPU, OPEN) == ()


@pytest.mark.slow("trains for a probe")
def test_train_writes_the_format_that_it_took() -> None:
    lines: list[str] = []
    outcome = train(
        small_recipe({"loop.epochs": 1, "precision.kind": "auto"}),
        data=data_set(),
        bench=Bench(say=lines.append),
    )
    assert outcome.recipe.precision.kind in formats_of(CPU)
    assert any(line.startswith(f"precision: {outcome.recipe.precision.kind} ") for line in lines)
    train(small_recipe({"loop.epochs": 1}), data=data_set(), bench=Bench(say=lines.append))
    assert sum(line.startswith("precision: ") for line in lines) == 1


@pytest.mark.slow("compiles networks")
def test_the_fastest_way_is_timed_compiled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[GraphModule] = []

    def backend(graph: GraphModule, _: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    net = SmallResNet(depth=8, width=8, stem_stride=1, classes=3, channels=1)
    *eager, compiled = measure_speeds(net, INFO, CPU, OPEN, compiling=True)
    assert graphs
    assert all(each.compile_seconds is None for each in eager)
    best = fastest(eager)
    assert (compiled.number_format, compiled.channels_last) == (best.number_format, best.channels_last)
    assert compiled.compile_seconds is not None
    assert compiled.compile_seconds > 0.0


@pytest.mark.slow("compiles networks")
@pytest.mark.parametrize(("last", "way"), [(True, "fp32 channels_last"), (False, "fp32 contiguous")])
def test_train_replaces_auto_by_what_compiling_by_blocks_saves(
    last: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    values = {"loop.epochs": 1, "loop.compile": "auto", "precision.channels_last": last}
    recipe = small_recipe({**values, "model.depth": 14})
    lines: list[str] = []
    outcome = train(recipe, data=data_set(), bench=Bench(say=lines.append))
    assert outcome.recipe.loop.compile is False
    assert any(
        line.startswith("loop.compile: false: it does not save twice")
        and f"{way} compiled by blocks in" in line
        for line in lines
    )
    assert not any(line.startswith("precision: ") for line in lines)


def test_train_does_not_say_that_it_compared_what_could_not_be_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainable.train.problem_here", lambda *_, **__: None)
    monkeypatch.setattr("trainable.train.measure_speeds", lambda *_, **__: ())
    lines: list[str] = []
    train(
        small_recipe({"loop.epochs": 1, "loop.compile": "auto"}),
        data=data_set(),
        bench=Bench(say=lines.append),
    )
    assert any(line.startswith("loop.compile: false: steps of the compiled network cannot") for line in lines)


def test_train_does_not_compile_a_network_of_your_own_by_choice() -> None:
    lines: list[str] = []
    net = SmallResNet(depth=8, width=4, stem_stride=1, classes=3, channels=1)
    recipe = small_recipe({"loop.epochs": 1, "loop.compile": "auto"})
    outcome = train(recipe, data=data_set(), model=net, bench=Bench(say=lines.append))
    assert outcome.recipe.loop.compile is False
    assert "loop.compile: false: steps of a network of your own are not timed" in lines


@pytest.mark.slow("trains for a probe")
def test_a_network_that_cannot_be_compiled_is_trained_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def backend(graph: GraphModule, _: list[torch.Tensor]) -> Any:
        raise ValueError("no kernels for this")

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    net = SmallResNet(depth=8, width=8, stem_stride=1, classes=3, channels=1)
    found = measure_speeds(net, INFO, CPU, OPEN, compiling=True)
    assert len(found) == 2 * len(formats_of(CPU))
