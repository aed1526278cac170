"""Tests what the model's draws look at, and that no kind of end confuses them."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from search.deciding.acquisition import BY_LAST, ENOUGH, Acquisition
from search.deciding.cube import Cube
from search.deciding.observations import Observations
from search.deciding.surrogate import Surrogate
from search.record.journal import TrialEnd
from tests.search.small_spaces import conditional_space
from trainable.recipe.metrics import Mode

SPACE = conditional_space()
CUBE = Cube(SPACE)


def ends(**counts: int) -> list[TrialEnd]:
    return [outcome for outcome in get_args(TrialEnd) for _ in range(counts.get(outcome, 0))]


def after(trials: list[TrialEnd], direction: Mode = "max") -> tuple[Acquisition, Observations]:
    observations, rng = Observations(CUBE, direction), np.random.default_rng(0)
    for number, outcome in enumerate(trials):
        row = CUBE.exact(rng.random((1, len(CUBE))))[0]
        observations.add(number, CUBE.values(row))
        score = float(rng.random())
        scores = {1: score, 3: score, 9: score} if outcome == "finished" else {1: score, 3: score}
        excesses = {"parameters": 0.5} if outcome == "infeasible" else {}
        observations.tell(number, outcome, {} if outcome == "infeasible" else scores, excesses)
    return Acquisition(CUBE, observations), observations


def draws_of_last(acquisition: Acquisition, monkeypatch: pytest.MonkeyPatch, draws: int = 20) -> int:
    """Return how many of the draws look at the last level alone."""
    looked: list[bool] = []
    trials = Surrogate.trials

    def noted(surrogate: Surrogate) -> np.ndarray:
        looked.append(surrogate is acquisition._of_last)
        return trials(surrogate)

    monkeypatch.setattr(Surrogate, "trials", noted)
    for seed in range(draws):
        acquisition.candidates(np.random.default_rng(seed))
    return sum(looked)


def test_about_half_of_the_draws_look_at_the_last_level_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    enough, _ = after(ends(finished=ENOUGH, stopped=10))
    assert draws_of_last(enough, monkeypatch) == pytest.approx(20 * BY_LAST, abs=5)


@pytest.mark.parametrize("other", ["stopped", "diverged", "infeasible"])
def test_no_draw_does_before_enough_trials_have_finished(
    other: TrialEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, _ = after([*ends(finished=ENOUGH - 1), *[other] * 10])
    assert draws_of_last(few, monkeypatch) == 0


@pytest.mark.parametrize("direction", ["max", "min"])
@pytest.mark.parametrize(
    "trials",
    [
        ends(diverged=12),
        ends(infeasible=12),
        ends(finished=12),
        ends(stopped=12),
        ends(finished=11, diverged=3, infeasible=3, stopped=9),
        ends(finished=11, diverged=20),
    ],
)
def test_whatever_trials_ended_as_candidates_are_points_of_the_space(
    trials: list[TrialEnd], direction: Mode
) -> None:
    acquisition, observations = after(trials, direction)
    observations.add(len(trials), SPACE.own)
    for seed in range(3):
        found = acquisition.candidates(np.random.default_rng(seed))
        assert not np.isnan(found.gains).any()
        SPACE.recipe(CUBE.values(found.rows[found.best(1)[0]]))
