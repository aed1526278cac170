"""Tests what a trial must pass, and how likely it does."""

from __future__ import annotations

import numpy as np
import pytest

from search.deciding.acquisition import ENOUGH_AT_LEVEL, Hurdle, hurdles, log_chances
from search.deciding.cube import Cube
from search.deciding.gaussian_process import GaussianProcess, usual
from search.deciding.observations import Observations
from search.deciding.surrogate import scored
from tests.search.small_spaces import conditional_space

SPACE = conditional_space()
CUBE = Cube(SPACE)
SMOOTHING = [each.path for each in SPACE.dimensions].index("regularisation.label_smoothing")
# At epoch 1; the best third of the trials trains to epoch 9
SCORES = np.random.default_rng(0).permutation(12) / 12


def searched(count: int = 12, running: bool = False) -> Observations:
    """Return a search in which the score rises with label smoothing; some of the best may train on."""
    observations = Observations(CUBE, "max")
    for number, score in enumerate(SCORES[:count]):
        row = CUBE.exact(np.random.default_rng(number).random((1, len(CUBE))))[0]
        row[SMOOTHING] = score
        observations.add(number, CUBE.values(row))
        if score < 8 / 12:
            observations.tell(number, "stopped", {1: score}, {})
        elif running and score < 11 / 12:
            observations.report(number, {1: score})
        else:
            observations.tell(number, "finished", {1: score, 9: score + 0.1}, {})
    return observations


@pytest.mark.parametrize("running", [False, True])
def test_the_score_at_a_rung_parts_the_trials_that_went_on_from_the_others(running: bool) -> None:
    observations = searched(running=running)
    found = observations.score_table()
    [rung] = hurdles(observations)
    assert rung.time == 0.0
    first = found.epochs == 1
    passed = found.scores[first][found.stretched[first] >= rung.score]
    np.testing.assert_allclose(np.sort(passed), [8 / 12, 9 / 12, 10 / 12, 11 / 12])


def test_nothing_is_known_of_rungs_where_no_trial_or_too_few_trials_stopped() -> None:
    few = searched(ENOUGH_AT_LEVEL - 1)
    assert hurdles(few) == []
    unpruned = Observations(CUBE, "max")
    for number, score in enumerate(SCORES):
        unpruned.add(number, SPACE.own)
        unpruned.tell(number, "finished", {1: score, 9: score}, {})
    assert hurdles(unpruned) == []


def test_a_row_like_those_that_passed_is_likelier_to_pass_and_the_hardest_hurdle_counts() -> None:
    observations = searched()
    found = observations.score_table()
    process = GaussianProcess(scored(CUBE, found, found.stretched, 100), usual(len(CUBE)))
    best_first = CUBE.features(np.array(found.trials)[np.argsort(-SCORES)])
    rungs, other = hurdles(observations), Hurdle(1.0, 1.5)
    chances = log_chances(process, best_first, rungs)
    assert np.min(chances[:4]) > np.max(chances[4:])
    assert chances[0] > np.log(0.5) > chances[-1]
    np.testing.assert_array_equal(
        log_chances(process, best_first, [*rungs, other]),
        np.minimum(chances, log_chances(process, best_first, [other])),
    )


def test_without_hurdles_every_trial_passes() -> None:
    observations = searched()
    found = observations.score_table()
    process = GaussianProcess(scored(CUBE, found, found.stretched, 100), usual(len(CUBE)))
    assert log_chances(process, CUBE.features(np.array(found.trials)), []) == 0.0
