"""What pruning costs, counted in trials: against brute force, and on curves that leave no doubt."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest

from search.deciding.pruning_replay import ScoreCurves, expected_best, one_search, replayed, worth

FINALS = np.array([0.1, 0.3, 0.3, 0.6, 0.9])


@pytest.mark.parametrize("trials", [1, 2, 3, 5])
def test_the_expected_best_is_the_mean_over_all_choices(trials: int) -> None:
    exact = np.mean([max(chosen) for chosen in combinations(FINALS, trials)])
    assert expected_best(FINALS, trials) == pytest.approx(exact)


def test_between_whole_numbers_the_expected_best_rises() -> None:
    values = [expected_best(FINALS, trials) for trials in np.linspace(1, 5, 41)]
    assert (np.diff(values) > -1e-12).all()


@pytest.mark.parametrize("trials", [1, 2, 3.5, 5])
def test_worth_is_the_number_of_trials_that_give_the_best(trials: float) -> None:
    assert worth(FINALS, expected_best(FINALS, trials), 5) == pytest.approx(trials, abs=0.01)


def test_worth_stays_between_one_trial_and_all() -> None:
    assert worth(FINALS, 0.0, 5) == pytest.approx(1.0, abs=0.01)
    assert worth(FINALS, 1.0, 5) == 5.0


def curves_in_order(count: int) -> ScoreCurves:
    """Recipes that never overtake each other, over 9 epochs."""
    return np.linspace(0.1, 0.9, count)[:, None] + np.linspace(0.0, 0.1, 9)[None]


def test_where_no_recipe_overtakes_nothing_is_lost() -> None:
    curves = curves_in_order(20)
    orders = [np.random.default_rng(seed).permutation(20)[:12] for seed in range(20)]
    found = replayed(curves, orders, (1, 3), 3)
    assert (found.regret, found.worth) == (0.0, 1.0)
    assert 1 / 9 < found.spent < 0.7


def test_where_early_scores_are_the_wrong_way_round_the_best_is_stopped() -> None:
    curves = curves_in_order(12)
    curves[:, :8] = curves[::-1, :8]
    orders = [np.arange(12) for _ in range(3)]  # the worst come first, and look best
    found = replayed(curves, orders, (1,), 2)
    assert found.regret > 0.3
    assert found.worth < 0.5


def test_without_rungs_every_epoch_is_trained_and_nothing_is_lost() -> None:
    found = replayed(curves_in_order(8), [np.arange(8)], (), 2)
    assert found == (1.0, 0.0, 1.0)


def test_trials_that_are_stopped_cost_the_epochs_up_to_their_rung() -> None:
    """Four at a time: the first and better ones go on, later ones are worse than half of those before."""
    best, spent = one_search(curves_in_order(6)[::-1].copy(), np.arange(6), (3,), 2)
    assert best == pytest.approx(1.0)
    assert spent == 9 + 5 * 3


def test_a_search_of_few_trials_is_reckoned_in_every_order() -> None:
    curves = curves_in_order(3)
    found = replayed(curves, [np.array(order) for order in permutations(range(3))], (4,), 2)
    assert found.regret == 0.0
    assert found.spent <= 1.0
