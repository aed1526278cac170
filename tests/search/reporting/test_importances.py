"""Tests importances: planted ones are found, noise is not, and intervals hold."""

from __future__ import annotations

import numpy as np
import pytest

from search.record.trials import Trial
from search.reporting.content import Importances
from search.reporting.importances import importances
from spaces.domains import Choice, Float
from spaces.space import Dimension, Space, When
from trainable.errors import UserError
from trainable.recipe import Recipe

DECIDES, IDLE, RARE = "optimizer.lr", "optimizer.weight_decay", "optimizer.momentum"


def small_space() -> Space:
    return Space(
        base=Recipe(),
        dimensions=(
            Dimension("optimizer.kind", Choice(("sgd", "adamw")), "", ""),
            Dimension(DECIDES, Float(0.01, 1.0, log=True), "", ""),
            Dimension(IDLE, Float(1e-6, 1e-3, log=True), "", ""),
            Dimension(RARE, Float(0.5, 0.99), "", "", When("optimizer.kind", ("sgd",))),
        ),
        own={"optimizer.kind": "adamw", DECIDES: 0.1, IDLE: 1e-4},
    )


def found_in(count: int, *, luck: float = 0.0, seed: int = 0) -> Importances:
    """Return the importances where the rate alone decides, but for luck."""
    space, draws = small_space(), np.random.default_rng(seed)
    values = [space.sample(lambda dimension: draws.random()) for _ in range(count)]
    trials = [Trial(id=number, values=each) for number, each in enumerate(values)]
    worth = [-abs(space.encode(each)[DECIDES] - 0.5) + luck * draws.normal() for each in values]
    places = 100.0 * np.argsort(np.argsort(worth)) / (count - 1)
    return importances(space, trials, dict(enumerate(map(float, places))))


@pytest.mark.slow("fits many trees")
def test_the_dimension_that_decides_comes_first_and_explains_most() -> None:
    found = found_in(100)
    assert found.fields[0].name == DECIDES
    assert found.fields[0].low > max(each.high for each in found.fields[1:])
    assert found.explained is not None
    assert found.explained > 0.8


def test_shares_sum_to_one_and_lie_in_their_intervals() -> None:
    found = found_in(40, luck=0.1)
    assert {each.name for each in found.fields} == {"optimizer.kind", DECIDES, IDLE, RARE}
    assert sum(each.share for each in found.fields) == pytest.approx(1.0)
    assert all(0.0 <= each.low <= each.share <= each.high <= 1.0 for each in found.fields)


@pytest.mark.slow("fits many trees")
def test_a_dimension_that_few_trials_have_gets_little_by_chance() -> None:
    """Without a correction two or three values look as if they decided much."""
    rare = [
        each.share
        for seed in range(2)
        for each in found_in(40, luck=0.05, seed=seed).fields
        if each.name in (IDLE, RARE, "optimizer.kind")
    ]
    assert sum(rare) / 2 < 0.2


def test_luck_is_not_explained() -> None:
    found = found_in(60, luck=100.0)
    assert found.explained is not None
    assert found.explained < 0.2


@pytest.mark.slow("fits many trees")
def test_more_trials_give_shorter_intervals() -> None:
    few, many = found_in(30, luck=0.1), found_in(120, luck=0.1)
    assert sum(each.high - each.low for each in many.fields) < sum(
        each.high - each.low for each in few.fields
    )


def test_few_trials_have_no_importances() -> None:
    with pytest.raises(UserError, match="19 trials can be compared, 20 are needed"):
        found_in(19)


def test_what_makes_most_trials_diverge_decides() -> None:
    """Trials that diverged have one place: PED-ANOVA alone counts all or none of them as the best."""
    space, draws = small_space(), np.random.default_rng(0)
    values = [space.sample(lambda dimension: draws.random()) for _ in range(40)]
    trials = [Trial(id=number, values=each) for number, each in enumerate(values)]
    rates = [space.encode(each)[DECIDES] for each in values]
    places = {at: 35.0 if rate > 0.3 else 100.0 - rate for at, rate in enumerate(rates)}
    found = importances(space, trials, places)
    assert found.fields[0].name == DECIDES
    assert found.fields[0].share > 0.5
