"""Tests how runs are tried for a forecast: kept for `explain`, and refused where their device is not here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from search.facts import run_costs
from search.facts.hardware import Hardware, Node, PerTrial, check_gpu_hours
from search.facts.run_costs import (
    TriedRuns,
    kind_of,
    least_alike,
    read_tried,
    tried_file,
    try_runs,
    write_tried,
)
from search.study import StudyError
from tests.search.small_studies import study_of
from tests.trainable.small_runs import data_set, small_recipe
from trainable.bench import ON_CPU
from trainable.errors import UserError
from trainable.probes import run_cost
from trainable.recipe import Recipe
from trainable.recipe.network_cost import RunCost
from trainable.training.run import Run

ALONE = PerTrial(1, 0.0)
DATA = data_set()
COST = RunCost(
    training_seconds=(1.0, 2.0),
    scoring_seconds=0.5,
    checkpoint_seconds=0.25,
    checkpoint_bytes=10,
    starting_seconds=3.0,
)


def test_what_was_tried_is_read_again_for_the_same_recipes_alone(tmp_path: Path) -> None:
    tried = TriedRuns(costs=(COST,), tried=1, slowed=1.5)
    info, recipe = data_set().info, small_recipe()
    file = tmp_path / tried_file([recipe], info, ALONE, 2, ON_CPU).name
    assert read_tried(file) is None
    write_tried(file, tried)
    assert read_tried(file) == tried
    file.write_text("{")
    assert read_tried(file) is None
    other = recipe.with_values({"loop.seed": 7})
    for changed in (([other], 2), ([recipe], 1)):
        assert tried_file(changed[0], info, ALONE, changed[1], ON_CPU).name != file.name


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_nothing_is_tried_where_the_gpus_of_the_trials_are_not_here() -> None:
    with pytest.raises(UserError, match="none here to time steps on"):
        try_runs([small_recipe()], data_set(), PerTrial(1, 1.0), bench=ON_CPU)


def test_the_epochs_of_a_run_take_their_training_with_scoring_and_checkpoints() -> None:
    assert COST.seconds(0, 2) == 1.0 + 2.0 + 2 * 0.75
    assert COST.seconds(1, 2) == 2.75


def test_gpu_hours_are_refused_where_trials_reserve_no_gpu() -> None:
    hardware = Hardware((Node(2, 0),))
    for limit in ({"budget__gpu_hours": 3}, {"budget__price": 3, "budget__price_per_gpu_hour": 1}):
        budget = study_of(**limit).budget
        with pytest.raises(StudyError, match=r"never be spent: 2 CPUs and 0 GPUs; write budget\.hours"):
            check_gpu_hours(budget, ALONE, hardware)
        check_gpu_hours(budget, PerTrial(1, 1.0), hardware)
    check_gpu_hours(study_of(budget__price_per_gpu_hour=1).budget, ALONE, hardware)


@pytest.fixture
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be time to try one recipe, for a moment."""
    for name in ("MOST_WORK", "WORK_SHARE"):
        monkeypatch.setattr(run_costs, name, 0)
    monkeypatch.setattr(run_costs, "_busy_beside", lambda trial, at_once: 0)
    monkeypatch.setattr(run_costs, "SPIN_SECONDS", 0.001)
    monkeypatch.setattr(run_cost, "LEAST_SECONDS", 0.001)


def deeper(recipe: Recipe) -> Recipe:
    return recipe.with_values({"model.depth": 14})


def test_a_recipe_that_is_not_tried_takes_what_the_like_one_does_times_its_networks_operations(
    one_try: None,
) -> None:
    first = small_recipe()
    found = try_runs(
        [first, deeper(first), first.with_values({"optimizer.lr": 0.5})], DATA, ALONE, bench=ON_CPU
    )
    own, deep, alike = found.costs
    assert (found.tried, alike) == (1, own)
    ratio = deep.training_seconds[0] / own.training_seconds[0]
    assert 1.5 < ratio < 3.0  # six convolutions more than seven
    assert deep.scoring_seconds == pytest.approx(ratio * own.scoring_seconds)
    assert deep.checkpoint_seconds == own.checkpoint_seconds


def test_a_recipe_that_cannot_be_made_is_left_out(one_try: None) -> None:
    first = small_recipe()
    broken = first.with_values(
        {"model": {"kind": "timm", "name": "resnet18", "weights": "/nowhere.safetensors"}}
    )
    assert len(try_runs([broken, first], DATA, ALONE, bench=ON_CPU).costs) == 1


def test_a_recipe_whose_training_fails_costs_the_forecast_that_recipe_alone(
    one_try: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, calls = run_cost.measure_run_cost, list[int]()

    def first_fails(make: Callable[[], Run]) -> RunCost:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("expected more than one value a channel")
        return measure(make)

    monkeypatch.setattr(run_cost, "measure_run_cost", first_fails)
    recipes = [deeper(small_recipe()), small_recipe()]
    assert len(try_runs(recipes, DATA, ALONE, bench=ON_CPU).costs) == 1


def test_what_is_least_like_the_tried_ones_and_like_most_of_the_others_is_tried_next() -> None:
    first = small_recipe()
    rates = [first.with_values({"optimizer.lr": rate}) for rate in (0.3, 0.5)]
    adamw = first.with_values({"optimizer.kind": "adamw"})
    kinds = [kind_of(each) for each in (first, *rates, deeper(first), adamw, adamw)]
    assert kinds[0] == kinds[1] == kinds[2]
    order = list[int]()
    while (at := least_alike(kinds, order, ())) is not None:
        order.append(at)
    assert order == [0, 4, 3]


def test_a_long_search_has_more_of_its_recipes_tried(one_try: None, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = [small_recipe(), deeper(small_recipe())]
    assert try_runs(recipes, DATA, ALONE, bench=ON_CPU).tried == 1
    monkeypatch.setattr(run_costs, "WORK_SHARE", 1e6)
    assert try_runs(recipes, DATA, ALONE, bench=ON_CPU).tried == 2


def test_nothing_older_than_an_hour_is_read(tmp_path: Path) -> None:
    write_tried(file := tmp_path / "tried.json", TriedRuns(costs=(COST,), tried=1, slowed=1.0))
    assert read_tried(file) is not None
    os.utime(file, times=(0, time.time() - 3601))
    assert read_tried(file) is None
