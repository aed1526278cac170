"""Tests how runs are tried for a forecast: kept for `explain`, and refused where their device is not here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from search.facts.hardware import Hardware, Node, PerTrial, check_gpu_hours
from search.facts.run_costs import TriedRuns, read_tried, tried_file, try_runs, write_tried
from search.study import StudyError
from tests.search.small_studies import study_of
from tests.trainable.small_runs import data_set, small_recipe
from trainable.bench import ON_CPU
from trainable.errors import UserError
from trainable.recipe.network_cost import RunCost

ALONE = PerTrial(1, 0.0)
COST = RunCost(
    training_seconds=(1.0, 2.0),
    scoring_seconds=0.5,
    checkpoint_seconds=0.25,
    checkpoint_bytes=10,
    starting_seconds=3.0,
)


def test_what_was_tried_is_read_again_for_the_same_recipes_alone(tmp_path: Path) -> None:
    tried = TriedRuns(costs=(COST,), slowed=1.5)
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
