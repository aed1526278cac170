"""Tests the chance that a better trial was stopped: against searches in which the truth is known."""

import math
import time

import numpy as np
import pytest

from search.learning.pruning_audit import Stratum, chance_of_better

RUNG = 1


def searched(correlation: float, trials: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the curves of two epochs of the third that goes on, and of those that are stopped."""
    shape = [[1.0, correlation], [correlation, 1.0]]
    curves = random.multivariate_normal([0.0, 0.0], shape, trials)
    finished, stopped = np.split(curves[np.argsort(-curves[:, 0])], [trials // 3])
    return finished, random.permutation(stopped)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_the_chance_is_how_often_a_better_trial_was_stopped(
    correlation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("search.learning.pruning_audit.CORRELATIONS", 10)
    random = np.random.default_rng(0)
    truths: list[bool] = []
    chances: list[float] = []
    while len(truths) < 120:
        finished, stopped = searched(correlation, 36, random)
        audited, others = np.split(stopped, [math.ceil(0.2 * len(stopped))])
        best = finished[:, -1].max()
        if audited[:, -1].max() > best:
            continue
        strata = [Stratum(finished, 1), Stratum(audited, round(len(stopped) / len(audited)), RUNG)]
        chances.append(chance_of_better(strata, {RUNG: others[:, 0]}, (RUNG,)))
        truths.append(others[:, -1].max() > best)
    assert np.mean(chances) == pytest.approx(np.mean(truths), abs=0.13)


def test_where_early_scores_say_nothing_any_trial_may_be_the_best() -> None:
    random = np.random.default_rng(1)
    curves = random.standard_normal((300, 2))
    strata = [Stratum(curves[:100], 1), Stratum(curves[100:200], 2, RUNG)]
    # the best of 200 is among the finished; that of 300 is one of the others in a third of cases
    assert chance_of_better(strata, {RUNG: curves[200:, 0]}, (RUNG,)) == pytest.approx(1 / 3, abs=0.05)


def test_trials_far_behind_are_less_likely_to_be_better_than_those_stopped_by_a_hair() -> None:
    finished, stopped = searched(0.8, 60, np.random.default_rng(2))
    strata = [Stratum(finished, 1), Stratum(stopped[:4], 10, RUNG)]
    behind, near = (
        chance_of_better(strata, {RUNG: np.full(10, first)}, (RUNG,))
        for first in (stopped[:, 0].min(), stopped[:, 0].max())
    )
    assert behind < 0.05 < near


def test_nothing_is_missed_where_every_stopped_trial_was_trained_to_its_end() -> None:
    finished, stopped = searched(0.5, 12, np.random.default_rng(3))
    strata = [Stratum(finished, 1), Stratum(stopped, 1, RUNG)]
    assert chance_of_better(strata, {RUNG: np.array([])}, (RUNG,)) == 0.0


def test_equal_scores_give_a_chance_all_the_same() -> None:
    flat = np.full((5, 2), 0.1)
    strata = [Stratum(flat, 1), Stratum(flat[:1], 4, RUNG)]
    assert 0.0 < chance_of_better(strata, {RUNG: flat[:3, 0]}, (RUNG,)) < 1.0


@pytest.mark.slow("thousands of trials")
def test_the_chance_of_two_thousand_trials_takes_less_than_two_seconds() -> None:
    finished, stopped = searched(0.8, 2_000, np.random.default_rng(4))
    strata = [Stratum(finished, 1), Stratum(stopped[:134], 10, RUNG)]
    began = time.process_time()
    chance_of_better(strata, {RUNG: stopped[134:, 0]}, (RUNG,))
    assert time.process_time() - began < 2.0
