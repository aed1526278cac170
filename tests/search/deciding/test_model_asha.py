"""Tests the scheduler that forecasts: it stops what has no chance, and keeps what will be good."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from search.deciding.beliefs import draw
from search.deciding.ledger import Decision, Ledger
from search.deciding.model_asha import ENOUGH, ModelAsha
from search.deciding.scheduler import Asha
from search.record.home import EVENTS_FILE
from search.record.journal import EndEvent, read
from spaces.domains import Choice, Float, Values
from spaces.space import Dimension, Space
from tests.search.deciding.small_ledgers import Open, trained, try_kills
from trainable.recipe import Recipe
from trainable.recipe.metrics import Mode

RATE, KIND = "optimizer.lr", "augmentation.crop.kind"
EPOCHS, RUNGS = 9, (1, 3)
SPACE = Space(
    Recipe(),
    (
        Dimension(RATE, Float(1e-4, 10.0, log=True), "for the test", "none"),
        Dimension(KIND, Choice(("none", "pad")), "for the test", "none"),
    ),
    own={RATE: 0.1, KIND: "none"},
)
Curve = Callable[[Values, int], float]


def steady(values: Values, epoch: int) -> float:
    """Return a score that rises, and is best at a rate of 1e-2 at every epoch."""
    rate = values[RATE]
    assert isinstance(rate, float)
    return epoch / EPOCHS - abs(math.log10(rate) + 2.0)


def late(values: Values, epoch: int) -> float:
    """Return a score of which crops cost 3 at first, and bring 3 at the end."""
    return steady(values, epoch) + (values[KIND] == "pad") * (6.0 * epoch / EPOCHS - 3.0)


def after(curve: Curve, trials: int = 40, direction: Mode = "max") -> ModelAsha:
    """Return a scheduler that has seen so many trials: a third of them ended at each rung, by chance."""
    sign = 1.0 if direction == "max" else -1.0
    scheduler, random = ModelAsha(RUNGS, 3, direction, SPACE), np.random.default_rng(0)
    for trial in range(trials):
        values = draw(SPACE, "even", random)
        scheduler.add(trial, values)
        last = (*RUNGS, EPOCHS)[trial % 3]
        scores = {epoch: sign * curve(values, epoch) for epoch in range(1, last + 1)}
        for epoch, score in scores.items():
            scheduler.report(trial, epoch, score, exempt=True)
        scheduler.tell(trial, "finished" if last == EPOCHS else "stopped", scores, {})
    return scheduler


def epochs_of(scheduler: ModelAsha, trial: int, values: Values, curve: Curve) -> int:
    """Return after how many epochs a new trial is stopped, or all of them."""
    sign = 1.0 if scheduler.direction == "max" else -1.0
    scheduler.add(trial, values)
    for epoch in range(1, EPOCHS):
        if not scheduler.report(trial, epoch, sign * curve(values, epoch)):
            return epoch
    return EPOCHS


@pytest.mark.parametrize("direction", ["max", "min"])
def test_a_trial_with_next_to_no_chance_stops_between_rungs(direction: Mode) -> None:
    scheduler = after(steady, direction=direction)

    def falls(values: Values, epoch: int) -> float:
        return steady(values, epoch) - (4.0 if epoch > 3 else 0.0)

    stopped = epochs_of(scheduler, 40, {RATE: 1e-2, KIND: "none"}, falls)
    assert RUNGS[-1] < stopped < EPOCHS
    assert scheduler.why(40, stopped).endswith("to end as the best, by the model")
    assert epochs_of(scheduler, 41, {RATE: 1e-2, KIND: "none"}, steady) == EPOCHS


@pytest.mark.parametrize("direction", ["max", "min"])
def test_a_trial_that_is_behind_goes_on_if_such_trials_end_well(direction: Mode) -> None:
    promising: Values = {RATE: 1e-2, KIND: "pad"}
    scheduler, compared = after(late, direction=direction), Asha(RUNGS, 3, "max")
    for trial, value in scheduler.recorded[1].items():
        compared.report(trial, 1, value if direction == "max" else -value, exempt=True)
    assert not compared.report(40, 1, late(promising, 1)), "asha would stop it"
    assert epochs_of(scheduler, 40, promising, late) == EPOCHS
    assert epochs_of(scheduler, 41, {RATE: 1.0, KIND: "none"}, late) == 1


def test_until_enough_is_known_it_decides_as_asha() -> None:
    scheduler, asha, random = (
        ModelAsha(RUNGS, 3, "max", SPACE),
        Asha(RUNGS, 3, "max"),
        np.random.default_rng(0),
    )
    for trial in range(ENOUGH - 1):
        values = draw(SPACE, "even", random)
        scheduler.add(trial, values)
        scores = {epoch: steady(values, epoch) for epoch in range(1, EPOCHS + 1)}
        for epoch, score in scores.items():
            goes_on = asha.report(trial, epoch, score)
            assert scheduler.report(trial, epoch, score) is goes_on
            if not goes_on:
                assert scheduler.why(trial, epoch) == asha.why(trial, epoch)
                break
        scheduler.tell(trial, "finished" if goes_on else "stopped", scores, {})


def test_exempt_trials_and_those_outside_the_space_are_not_forecast() -> None:
    scheduler = after(steady)
    scheduler.add(40, {RATE: 10.0, KIND: "none"})
    assert scheduler.report(40, 2, -5.0, exempt=True)
    scheduler.add(41, {RATE: 100.0, KIND: "none"})
    assert scheduler.report(41, 2, -5.0)
    assert scheduler.report(42, 2, -5.0), "nothing is known of a trial that repeats another"
    assert not scheduler.report(43, 2, math.nan)


def test_where_nothing_varies_nothing_is_forecast() -> None:
    empty = Space(SPACE.base, (), own={})
    scheduler = ModelAsha(RUNGS, 3, "max", empty)
    for trial in range(2 * ENOUGH):
        scheduler.add(trial, {})
        scores = {epoch: epoch / EPOCHS for epoch in range(1, EPOCHS + 1)}
        assert all(scheduler.report(trial, epoch, score, exempt=True) for epoch, score in scores.items())
        assert scheduler.report(trial, RUNGS[0] + 1, 0.1)
        scheduler.tell(trial, "finished", scores, {})


def one_by_one(ledger: Ledger) -> None:
    """Train to the end, one trial after another: so one has finished before the others are forecast."""
    ledger.begin("test")
    while (proposal := ledger.propose()) is not None:
        trial, values = proposal.trial, dict(proposal.values)
        ledger.start(trial, ledger.epochs_done(trial))
        while ledger.epoch(trial, trained(values, ledger.epochs_done(trial) + 1)) is Decision.CONTINUE:
            pass


@pytest.mark.slow("replays a search after each line")
def test_killed_after_any_line_it_forecasts_what_it_would_have_forecast(
    open_ledger: Open, tmp_path: Path
) -> None:
    open_one = partial(open_ledger, scheduler="model", begun=False)
    one_by_one(open_one(whole := tmp_path / "whole"))
    reasons = [each.reason or "" for each in read(whole / EVENTS_FILE) if isinstance(each, EndEvent)]
    assert any("by the model" in reason for reason in reasons)
    try_kills(whole, range(0, len(read(whole / EVENTS_FILE)), 5), lambda part: one_by_one(open_one(part)))
