"""Tests what a forecast makes of what runs cost: where pruning, places and limits leave one answer alone."""

from __future__ import annotations

from typing import Any

import pytest

from search.deciding.finalists import Final
from search.deciding.forecast import EPOCH_SECONDS, TRIAL_SECONDS, Forecast, Places, forecast
from search.deciding.pruning import Pruning
from search.deciding.scheduler import expected_share
from search.facts.beside_trials import USUAL, BesideTrials
from search.facts.run_costs import TriedRuns
from search.study.study import Finalists
from tests.search.small_studies import study_of
from trainable.recipe.network_cost import RunCost

EPOCHS, TRIALS = 6, 8
BESIDE = USUAL.seconds
NONE = Pruning((), 3, "")


def cost(epoch_seconds: float, epochs: int = EPOCHS) -> RunCost:
    return RunCost(
        training_seconds=(epoch_seconds,) * epochs,
        scoring_seconds=0.0,
        checkpoint_seconds=0.0,
        checkpoint_bytes=10_000_000,
        starting_seconds=0.0,
    )


def asked(
    *costs: RunCost, pruning: Pruning = NONE, places: Places | None = None, top: int = 0, **values: Any
) -> Forecast:
    study = study_of(**{"budget__trials": TRIALS, "budget__epochs": EPOCHS, **values})
    final = Final(Finalists(top=top, seeds=2) if top else None, "")
    tried = TriedRuns(costs=costs, tried=len(costs), slowed=1.0)
    return forecast(study, pruning, final, tried, places or Places(2))


def test_trials_that_all_end_take_their_epochs_shared_out_over_the_places() -> None:
    each = TRIAL_SECONDS + EPOCHS * (10.0 + EPOCH_SECONDS)
    for at_once in (1, 2, 4):
        found = asked(cost(10.0), places=Places(at_once))
        assert found.seconds == pytest.approx(BESIDE + each * TRIALS / at_once)
        assert found.epochs == TRIALS * EPOCHS
        assert found.low_seconds < found.seconds < found.high_seconds


def test_finalists_come_when_all_trials_have_ended() -> None:
    more = asked(cost(10.0), top=1).seconds - asked(cost(10.0)).seconds
    assert more == pytest.approx(EPOCHS * (10.0 + EPOCH_SECONDS) + TRIAL_SECONDS)
    assert asked(cost(10.0), top=1).epochs == (TRIALS + 2) * EPOCHS


@pytest.mark.parametrize("kind", ["asha", "promotion", "model"])
def test_pruning_saves_about_the_share_that_is_expected(kind: Any) -> None:
    pruning = Pruning((1, 3), 3, "", kind)
    found = asked(cost(10.0), pruning=pruning, budget__trials=300)
    share = found.epochs / (300 * EPOCHS)
    assert share == pytest.approx(expected_share((1, 3), 3, EPOCHS), rel=0.25)


def test_the_interval_is_as_wide_as_what_is_drawn_differs() -> None:
    alike, apart = asked(cost(10.0), cost(10.0)), asked(cost(10.0), cost(1.0), cost(100.0))
    assert apart.high_seconds / apart.low_seconds > 2 * alike.high_seconds / alike.low_seconds


def test_an_hour_gets_what_can_be_trained_in_it() -> None:
    whole = asked(cost(10.0)).within
    assert whole.words(TRIALS, TRIALS * EPOCHS) == "1 hour would do for all of it"
    half = asked(cost(1200.0), places=Places(1))  # each trial takes two hours
    assert half.within.epochs == pytest.approx(3, rel=0.01)
    assert half.within.trials == 1
    assert "1 hour would get 1 of 8 trials, 6% of the epochs" in str(half)
    assert asked(cost(1200.0), budget__hours=4).within.hours == 4


def test_hours_and_gpu_hours_end_a_search_early() -> None:
    assert asked(cost(1200.0), budget__hours=2).seconds == pytest.approx(7200 + Places(2).beside.end_seconds)
    gpus = Places(2, gpus=1.0)
    found = asked(cost(1200.0), places=gpus, budget__gpu_hours=4)
    assert found.seconds == pytest.approx(7200 + BESIDE)
    assert found.gpu_hours == pytest.approx(4, rel=0.01)


def test_money_is_that_of_the_gpu_hours_and_without_gpus_there_is_none() -> None:
    found = asked(cost(600.0), places=Places(2, gpus=0.5), budget__price_per_gpu_hour=3)
    assert found.gpu_hours == pytest.approx(TRIALS * EPOCHS * 600 * 0.5 / 3600, rel=0.01)
    assert found.price == pytest.approx(3 * found.gpu_hours)
    assert f"GPU-hours for {found.price:,.2f}" in str(found)
    without = asked(cost(600.0), budget__price_per_gpu_hour=3)
    assert (without.gpu_hours, without.price) == (None, None)
    assert "GPU" not in str(without)


def test_a_search_of_many_trials_is_forecast_from_some_of_them() -> None:
    many = asked(cost(1.0), budget__trials=100_000, places=Places(10)).seconds
    assert many == pytest.approx(BESIDE + 10_000 * (TRIAL_SECONDS + EPOCHS * (1.0 + EPOCH_SECONDS)), rel=0.02)


def test_each_of_the_first_trials_takes_what_its_own_recipe_costs() -> None:
    found = asked(*map(cost, (1.0, 2.0, 3.0, 4.0)), budget__trials=4, places=Places(1))
    trained = EPOCHS * (1 + 2 + 3 + 4) + 4 * (TRIAL_SECONDS + EPOCHS * EPOCH_SECONDS)
    assert found.seconds == pytest.approx(BESIDE + trained)


def test_the_start_and_the_end_are_those_of_this_machine() -> None:
    slow = BesideTrials(start_seconds=100.0, end_seconds=50.0)
    more = asked(cost(1.0), places=Places(2, beside=slow)).seconds - asked(cost(1.0)).seconds
    assert more == pytest.approx(150.0 - BESIDE)


def test_the_line_says_what_is_not_counted_of_several_workers() -> None:
    assert "workers" not in str(asked(cost(1.0)))
    several = asked(cost(1.0), places=Places(2, workers=4))
    assert ", without what its 4 workers send each other; 1 hour would" in str(several)
