"""Tests where a search's best values are said to lie, on trials whose best values are known."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from search.deciding.cube import Cube
from search.deciding.observations import Observations
from search.learning.optimum import Optimum, optima
from search.record.journal import TrialEnd
from spaces.domains import Choice, Float, Integer, Values, fraction_of, is_number
from spaces.space import Dimension, Space, When
from trainable.recipe import Recipe

RATE, DECAY, KIND, DEPTH = "optimizer.lr", "optimizer.weight_decay", "optimizer.kind", "model.depth"
EPOCHS = 9


def space() -> Space:
    sgd = When(KIND, ("sgd",))
    return Space(
        Recipe(),
        (
            Dimension(KIND, Choice(("sgd", "adamw")), "", ""),
            Dimension(RATE, Float(0.01, 1.0, log=True), "", ""),
            Dimension(DECAY, Float(1e-5, 1e-3, log=True), "", ""),
            Dimension("optimizer.momentum", Float(0.8, 0.99), "", "", sgd),
            Dimension("regularisation.label_smoothing", Float(0.0, 0.2), "", ""),
            Dimension("loop.batch_size", Integer(1, 8), "", ""),
        ),
        {
            KIND: "sgd",
            RATE: 0.1,
            DECAY: 1e-4,
            "optimizer.momentum": 0.9,
            "regularisation.label_smoothing": 0.1,
            "loop.batch_size": 4,
        },
    )


def searched(score: Callable[[Values, random.Random], float], trials: int) -> dict[str, Optimum]:
    """Return what even draws teach; two in three are stopped after 3 epochs."""
    drawn, luck = space(), random.Random(0)
    observations = Observations(Cube(drawn), "max")
    for number in range(trials):
        values = drawn.sample(lambda _: luck.random())
        observations.add(number, values)
        last = EPOCHS if number % 3 == 0 else 3
        final = score(values, luck)
        scores = {epoch: final - 1.0 / epoch for epoch in range(1, last + 1)}
        observations.tell(number, "finished" if last == EPOCHS else "stopped", scores, {})
    return dict(optima(drawn, observations.observed))


def place(domain: Float | Integer, found: Optimum) -> tuple[float, float]:
    """Return the mean and the standard deviation of the best value's place."""
    places = np.array([fraction_of(domain, each) for each in found.values if is_number(each)])
    mean = float(places @ np.array(found.shares))
    return mean, float(np.sqrt((places - mean) ** 2 @ np.array(found.shares)))


def by_rate(values: Values, luck: random.Random) -> float:
    rate = fraction_of(Float(0.01, 1.0, log=True), values[RATE])
    return -4.0 * (rate - 0.7) ** 2 + luck.gauss(0.0, 0.02) + (0.5 if values[KIND] == "adamw" else 0.0)


def test_the_best_rate_and_kind_are_found_and_what_does_nothing_stays_open() -> None:
    found = searched(by_rate, 60)
    mean, deviation = place(Float(0.01, 1.0, log=True), found[RATE])
    assert mean == pytest.approx(0.7, abs=0.1)
    assert deviation < 0.15
    assert dict(zip(found[KIND].values, found[KIND].shares, strict=True))["adamw"] > 0.9
    assert place(Float(1e-5, 1e-3, log=True), found[DECAY])[1] > 0.25
    assert place(Integer(1, 8), found["loop.batch_size"])[1] > 0.25


def test_few_trials_leave_more_open_than_many() -> None:
    (_, few), (_, many) = (place(Float(0.01, 1.0, log=True), searched(by_rate, n)[RATE]) for n in (16, 100))
    assert many < few


@pytest.mark.parametrize("trials", [8, 16, 40])
def test_scores_of_mere_luck_teach_nothing(trials: int) -> None:
    assert searched(lambda _, luck: luck.random(), trials) == {}


def test_trials_that_all_diverged_or_are_all_alike_teach_nothing() -> None:
    drawn, luck = space(), random.Random(0)
    ends: list[tuple[TrialEnd, dict[int, float]]] = [("diverged", {}), ("finished", {1: 0.5})]
    for outcome, scores in ends:
        observations = Observations(Cube(drawn), "max")
        for number in range(10):
            observations.add(number, drawn.sample(lambda _: luck.random()))
            observations.tell(number, outcome, scores, {})
        assert optima(drawn, observations.observed) == {}


def test_the_same_trials_teach_the_same() -> None:
    assert searched(by_rate, 20) == searched(by_rate, 20)


def test_a_dimension_that_no_trial_has_teaches_nothing() -> None:
    drawn = space()
    observations = Observations(Cube(drawn), "max")
    luck = random.Random(1)
    for number in range(20):
        values = drawn.sample(lambda each: 0.9 if each.path == KIND else luck.random())
        observations.add(number, values)
        observations.tell(number, "finished", {1: by_rate(values, luck)}, {})
    found = optima(drawn, observations.observed)
    assert "optimizer.momentum" not in found
    assert RATE in found


def test_shares_are_probabilities() -> None:
    for each in searched(by_rate, 16).values():
        assert sum(each.shares) == pytest.approx(1.0)
        assert min(each.shares) >= 0.0
