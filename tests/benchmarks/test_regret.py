"""Regret, its intervals, and when one arm reaches another, against figures reckoned by hand."""

from __future__ import annotations

import numpy as np
import pytest

from offline.regret import (
    NEVER,
    difference,
    final,
    first_reach,
    mean_curve,
    over_tasks,
    ratio,
    reach,
    record,
    regret,
    speed_up,
)

SHARES = np.array([0.25, 0.5, 0.75, 1.0, 1.25, 1.5])
SEEDS = 20


def falling(start: float, *, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """Regret `start` / share, one seed a row."""
    random = np.random.default_rng(seed)
    runs: np.ndarray = start / SHARES + noise * random.normal(size=(SEEDS, 1))
    return runs


def test_regret_steps_down_where_the_best_does() -> None:
    found = regret([(10, 0.6), (20, 0.8)], (1.0, 0.5), np.array([9.0, 10, 19, 20, 99]))
    assert found == pytest.approx([1.0, 0.8, 0.8, 0.4, 0.4])


def test_what_is_worse_than_a_draw_or_not_there_counts_one() -> None:
    assert regret([], (1.0, 0.5), np.array([5.0])) == pytest.approx([1.0])
    assert regret([(1, -40.0)], (1.0, 0.5), np.array([5.0])) == pytest.approx([1.0])


def test_the_first_share_at_or_below_a_level_is_found() -> None:
    curve = np.array([0.9, 0.5, 0.4, 0.4, 0.2, 0.1])
    assert first_reach(curve, 0.4, SHARES) == 0.75
    assert first_reach(curve, 0.05, SHARES) == NEVER


def test_an_arm_twice_as_fast_needs_half_the_budget() -> None:
    assert reach(falling(0.1), falling(0.2), 1.0, SHARES) == (0.5, 0.5, 0.5)
    assert speed_up(falling(0.1), falling(0.2), 1.0, SHARES) == (2.0, 2.0, 2.0)


def test_an_arm_that_never_arrives_has_no_share_and_no_speed() -> None:
    assert reach(falling(0.9), falling(0.2), 1.0, SHARES).value == NEVER
    assert speed_up(falling(0.9), falling(0.2), 1.0, SHARES).value == 0.0


def test_seeds_that_disagree_widen_the_interval() -> None:
    arm = falling(0.1, noise=0.1)
    low, high = reach(arm, falling(0.2), 1.0, SHARES)[1:]
    assert low < high
    apart = difference(arm, falling(0.2), 1.0, SHARES)
    assert apart.low < apart.value < apart.high


def test_the_bootstrap_interval_of_a_mean_is_about_two_standard_errors_to_each_side() -> None:
    runs = np.random.default_rng(1).normal(size=(400, 1))
    mean, low, high = mean_curve(runs)
    error = runs.std() / np.sqrt(400)
    assert (mean - low)[0] == pytest.approx(1.96 * error, rel=0.15)
    assert (high - mean)[0] == pytest.approx(1.96 * error, rel=0.15)


def test_tasks_are_won_and_lost_only_where_the_interval_says_so() -> None:
    ours = {"won": falling(0.1), "lost": falling(0.3), "even": falling(0.2, noise=0.1)}
    theirs = {"won": falling(0.2), "lost": falling(0.2), "even": falling(0.2, noise=0.1, seed=1)}
    assert record(ours, theirs, SHARES) == {"better": ["won"], "equal": ["even"], "worse": ["lost"]}


def test_tasks_count_alike_in_the_mean() -> None:
    mean = over_tasks({"one": falling(0.1), "other": falling(0.3)})
    assert mean == pytest.approx(falling(0.2))


def test_seeds_that_only_one_arm_has_do_not_count() -> None:
    arm, other = falling(0.1), falling(0.2)
    other[3:] = 9.0
    assert difference(arm, other[:3], 1.0, SHARES).value == pytest.approx(-0.1)
    assert difference(arm, other, 1.0, SHARES).value < -1.0


def test_a_ratio_and_a_difference_in_time_are_of_means() -> None:
    assert ratio(falling(0.1), falling(0.2), 1.0, SHARES) == pytest.approx((0.5, 0.5, 0.5))
    assert final(falling(0.2), SHARES) == pytest.approx(0.2)
    apart = difference(falling(0.1), falling(0.2), 0.5, SHARES, other_at=1.0)
    assert apart == pytest.approx((0.0, 0.0, 0.0))
