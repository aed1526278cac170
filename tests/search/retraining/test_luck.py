"""Tests when the mean test score of several runs is said to differ from their mean validation score."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from search.retraining.luck import parts_differ
from search.retraining.runs import Fresh
from tests.search.retraining.fresh_runs import fresh_run
from trainable.recipe import Recipe

METRIC = "val_accuracy"


def runs(*pairs: tuple[float, float], images: float = 0.0) -> list[Fresh]:
    """Return runs with these validation and test accuracies."""
    return [fresh_run(seed, test, validation, images) for seed, (validation, test) in enumerate(pairs)]


def test_a_fall_is_said_in_one_line_with_its_figures() -> None:
    found = parts_differ(METRIC, runs((0.85, 0.10), (0.84, 0.08), (0.86, 0.12), images=0.03))
    assert found is not None
    assert found.startswith(
        "means over 3 runs: test_accuracy 0.1000 is 0.7500 below val_accuracy 0.8500 (99 %"
    )
    assert found.endswith("more than chance allows")
    assert "\n" not in found


def test_the_interval_has_the_luck_of_seeds_and_of_the_images_that_all_runs_share() -> None:
    differences, of_images = np.array([-0.10, -0.11, -0.13]), 0.01
    found = parts_differ(METRIC, runs(*((0.9, 0.9 + each) for each in differences), images=of_images))
    of_seeds = differences.var(ddof=1) / 3
    error = math.sqrt(of_seeds + of_images**2)
    half = stats.t.ppf(0.995, error**4 / (of_seeds**2 / 2)) * error
    middle = -differences.mean()
    assert found is not None
    assert f"difference: {middle - half:.4f} to {middle + half:.4f})" in found


def test_more_runs_on_the_same_images_make_their_luck_no_smaller() -> None:
    fallen = [(0.9, 0.87)] * 50
    assert parts_differ(METRIC, runs(*fallen, images=0.02)) is None
    assert parts_differ(METRIC, runs(*fallen, images=0.01)) is not None


def test_luck_that_raises_both_scores_of_a_run_cancels_out() -> None:
    assert parts_differ(METRIC, runs((0.9, 0.85), (0.7, 0.65), (0.8, 0.75), images=0.01)) is not None


@pytest.mark.slow("draws many parts")
def test_of_parts_of_one_kind_at_most_one_in_a_hundred_is_said_to_differ() -> None:
    luck = np.random.default_rng(0)
    said = 0
    for _ in range(1_000):
        of_images = 0.014 * luck.standard_normal()
        own = 0.014 * luck.standard_normal(3)  # a run's own mistakes: both together deviate by 0.02
        said += (
            parts_differ(METRIC, runs(*((0.8, 0.8 + of_images + each) for each in own), images=0.02))
            is not None
        )
    assert said <= 10


@pytest.mark.parametrize(
    "found",
    [
        runs((0.9, 0.1)),
        [*runs((0.9, 0.1)), Fresh(Recipe(), {}, "the run diverged")],
        [Fresh(Recipe(), {METRIC: score}) for score in (0.9, 0.1)],
        runs((0.9, 0.89), (0.9, 0.89), images=0.0),
    ],
    ids=["one run", "one run that came to something", "no test part", "no spread"],
)
def test_nothing_is_said_without_two_runs_that_have_both_scores_and_some_spread(found: list[Fresh]) -> None:
    assert parts_differ(METRIC, found) is None
