"""Tests the default sampler: it learns from all rungs, and leaves priors that are wrong."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import get_args

import numpy as np
import pytest

from search.deciding import auto
from search.deciding.acquisition import EVEN, MOST_TRIALS, Candidates, SecondsModel, log_expected_improvement
from search.deciding.auto import FIRST_SHARE, STARTUP, AutoSampler, Learns
from search.deciding.beliefs import EVEN_EVERY, draw
from search.deciding.cube import Cube
from search.deciding.make import make_sampler
from search.deciding.observations import Observation, ScoreTable
from search.deciding.surrogate import bounded
from search.record.journal import TrialEnd
from spaces.domains import Choice, Float, Values
from spaces.priors import Normal, Prior, Uniform
from spaces.space import Believed, Dimension, Space
from trainable.recipe import Recipe

RATE, DECAY, KIND = "optimizer.lr", "optimizer.weight_decay", "augmentation.crop.kind"


def plain(prior: Prior | None = None) -> Space:
    """Return a space of a rate, a decay and an option; `prior` is what is believed of the rate, if
    anything."""
    believed = Believed(prior or Uniform())
    return Space(
        Recipe(),
        (
            Dimension(RATE, Float(1e-4, 10.0, log=True), "for the test", "none", beliefs=believed),
            Dimension(DECAY, Float(1e-6, 1e-2, log=True), "for the test", "none"),
            Dimension(KIND, Choice(("none", "pad")), "for the test", "none"),
        ),
        own={RATE: 0.1, DECAY: 1e-4, KIND: "none"},
    )


def power(values: Values, path: str) -> float:
    value = values[path]
    assert isinstance(value, float)
    return math.log10(value)


def quality(values: Values, by_decay: float = 0.3) -> float:
    """Return a score that is best at a rate of 1e-2, a decay of 1e-3 and with crops."""
    return -abs(power(values, RATE) + 2) - by_decay * abs(power(values, DECAY) + 3) - (values[KIND] == "none")


def searched(
    space: Space,
    count: int,
    learns: Learns = "auto",
    seed: int = 0,
    of: Callable[[Values], float] = quality,
) -> tuple[AutoSampler, list[float]]:
    """Return a sampler after a search that stops the worse half early, and the quality of each draw."""
    sampler = make_sampler(space, learns, seed, "max")
    assert isinstance(sampler, AutoSampler)
    found: list[float] = []
    for number in range(count):
        values = dict(space.own) if number == 0 else sampler.ask(number)
        sampler.add(number, values)
        found.append(of(values))
        if found[-1] >= np.median(found):
            sampler.tell(number, "finished", {1: found[-1] - 1, 2: found[-1] - 0.5, 3: found[-1]})
        else:
            sampler.tell(number, "stopped", {1: found[-1] - 1})
    return sampler, found


@pytest.mark.slow("draws many trials")
@pytest.mark.parametrize("learns", get_args(Learns))
def test_later_draws_are_better_than_even_ones(learns: Learns) -> None:
    last = [np.median(searched(plain(), 50, learns, seed)[1][-20:]) for seed in range(4)]
    even = [np.median(searched(plain(), STARTUP, learns, seed)[1]) for seed in range(4)]
    assert np.mean(last) > 0.7 * np.mean(even)


@pytest.mark.slow("draws many trials")
def test_the_model_finds_the_best_more_closely_than_even_draws_and_mutations_alone() -> None:
    best = {
        learns: np.mean([max(searched(plain(), 50, learns, seed)[1]) for seed in range(4)])
        for learns in get_args(Learns)
    }
    rng, space = np.random.default_rng(0), plain()
    even = np.mean([max(quality(draw(space, "even", rng)) for _ in range(50)) for _ in range(50)])
    for other in (even, best["mutation"]):
        assert best["gp"] > 0.5 * other
        assert best["auto"] > 0.5 * other


def test_each_way_of_drawing_has_its_share() -> None:
    sampler, _ = searched(plain(Normal(1e-2, "medium")), 60)
    share = sampler.prior_share()
    rng = np.random.default_rng(0)
    ways = Counter(sampler.way(number, *rng.random(2)) for number in range(1000, 5000))
    assert ways["even"] == 4000 / EVEN_EVERY
    assert ways["prior"] / 3200 == pytest.approx(share, abs=0.03)
    assert ways["mutation"] / (ways["mutation"] + ways["model"]) == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize(("learns", "wanted"), [("mutation", "mutation"), ("gp", "model")])
def test_the_other_kinds_learn_in_one_way_alone(learns: Learns, wanted: str) -> None:
    sampler, _ = searched(plain(), 20, learns)
    assert {sampler.way(20, 0.99, fraction) for fraction in (0.0, 0.5, 0.99)} == {wanted}


def test_a_right_prior_keeps_its_share_and_a_wrong_one_loses_it() -> None:
    right, wrong = (searched(plain(Normal(centre, "high")), 20)[0].prior_share() for centre in (1e-2, 10.0))
    assert right == pytest.approx(FIRST_SHARE)
    assert wrong < 0.1


def test_a_space_without_beliefs_has_no_share_of_priors() -> None:
    sampler, _ = searched(plain(), 3)
    assert sampler.prior_share() == 0.0
    assert sampler.way(3, 0.0, 0.0) == "even"


@pytest.mark.slow("draws many trials")
def test_the_model_is_drawn_to_the_prior_where_it_knows_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beliefs about the decay, which does nothing here, decide among candidates that promise as much."""
    rate, decay, option = plain(Normal(1e-2, "medium")).dimensions
    decay = replace(decay, beliefs=Believed(Normal(1e-5, "high")))
    believing = replace(plain(), dimensions=(rate, decay, option))
    samplers = [searched(believing, 14, "gp", seed, partial(quality, by_decay=0.0))[0] for seed in range(6)]

    def distance() -> float:
        rngs = map(np.random.default_rng, range(3))
        found = [sampler._promising(rng) for rng in rngs for sampler in samplers]
        return float(np.mean([abs(power(values, DECAY) + 5.0) for values in found]))

    drawn_to_it = distance()
    monkeypatch.setattr(auto, "PRIOR_WEIGHT", 0.0)
    assert drawn_to_it < 0.8 * distance()


def test_pending_trials_are_kept_away_from() -> None:
    """What is near a trial that still runs promises less than before, and loses more than something else."""
    sampler, _ = searched(plain(), 30, "gp")
    before = sampler._acquisition.candidates(np.random.default_rng(0))
    even = before.rows[:EVEN]
    best = before.best(EVEN)[0]
    distances = np.linalg.norm(even - before.rows[best], axis=1)
    near, far = np.argsort(distances)[[1, -1]]
    sampler.add(30, sampler._cube.values(before.rows[best]))
    after = sampler._acquisition.candidates(np.random.default_rng(0))
    np.testing.assert_array_equal(even, after.rows[:EVEN])
    lost = (before.gains - after.gains)[[near, far]]
    assert lost[0] > 0.2
    assert lost[0] > lost[1]


def corner(values: Values) -> float:
    """Return a score that is best at the highest rate and decay."""
    return power(values, RATE) + 0.5 * power(values, DECAY) - (values[KIND] == "none")


@pytest.mark.slow("draws many trials")
@pytest.mark.parametrize("learns", get_args(Learns))
def test_no_recipe_is_tried_twice(learns: Learns) -> None:
    """Steps stop at the ends of ranges, so a corner is reached again and again."""
    sampler, _ = searched(plain(), 80, learns, of=corner)
    rows = [sampler._observations.row(number) for number in range(80)]
    tried = [tuple(np.round(row, 6)) for row in rows if row is not None]
    assert len(set(tried)) == 80
    assert sum(each[:2] == (1.0, 1.0) for each in tried) <= 2, "one for each option"


def test_where_every_recipe_was_tried_the_best_are_tried_again() -> None:
    space = replace(plain(), dimensions=plain().dimensions[2:], own={KIND: "none"})
    sampler, _ = searched(space, 30, of=lambda values: float(values[KIND] == "pad"))
    assert sampler.ask(30) in ({KIND: "none"}, {KIND: "pad"})


def test_the_same_luck_proposes_something_else_while_its_proposal_is_tried() -> None:
    sampler, _ = searched(plain(), 30, "gp")
    first = sampler.ask(31)
    sampler.add(30, first)
    second = sampler.ask(31)
    assert first != second
    assert abs(power(first, RATE) - power(second, RATE)) > 1e-3


def test_diverging_regions_are_left() -> None:
    space, count = plain(), 0
    sampler = make_sampler(space, "auto", 0, "max")
    for number in range(60):
        values = dict(space.own) if number == 0 else sampler.ask(number)
        sampler.add(number, values)
        diverges = power(values, RATE) > -2
        count += diverges and number >= 30 and number % EVEN_EVERY != EVEN_EVERY - 1
        sampler.tell(number, *(("diverged", {}) if diverges else ("finished", {1: quality(values)})))
    assert count <= 8  # of 24; 12 by even draws


def test_trials_that_break_a_constraint_are_left() -> None:
    space = plain()
    sampler, count = make_sampler(space, "auto", 0, "max"), 0
    for number in range(60):
        values = dict(space.own) if number == 0 else sampler.ask(number)
        sampler.add(number, values)
        excess = power(values, RATE) + 2.5
        count += excess > 0 and number >= 30 and number % EVEN_EVERY != EVEN_EVERY - 1
        outcome: TrialEnd = "infeasible" if excess > 0 else "finished"
        sampler.tell(number, outcome, {} if excess > 0 else {1: quality(values)}, {"parameters": excess})
    assert count <= 10


def test_a_space_without_dimensions_is_drawn_from_all_the_same() -> None:
    space = Space(Recipe(), (), own={})
    sampler = make_sampler(space, "auto", 0, "max")
    for number in range(30):
        assert sampler.ask(number) == {}
        sampler.add(number, {})
        sampler.tell(number, "finished", {1: 0.5})


def test_improvement_is_the_one_of_a_normal_distribution() -> None:
    draws = np.random.default_rng(0).normal(size=2_000_000)
    for mean, deviation in ((0.5, 1.0), (-1.0, 0.7), (-1.5, 0.5)):
        wanted = np.mean(np.maximum(mean + deviation * draws - 0.2, 0.0))
        (found,) = np.exp(log_expected_improvement(np.array([mean]), np.array([deviation]), 0.2))
        assert found == pytest.approx(wanted, rel=0.02)


def test_improvement_orders_candidates_however_hopeless() -> None:
    means = np.linspace(-1e4, 5.0, 5001)
    gains = log_expected_improvement(means, np.ones(5001), 0.0)
    assert np.isfinite(gains).all()
    assert (np.diff(gains) > 0).all()


def test_what_is_too_much_keeps_the_highest_level_whole_and_the_rest_spread() -> None:
    epochs = np.repeat([3.0, 9.0], [950, 50])
    rows = list(np.zeros((1000, 1)))
    found = ScoreTable(np.zeros(1000), np.arange(1000), rows, epochs, np.arange(1.0, 1001.0), [3, 9])
    kept = bounded(found, 200)
    assert len(set(kept)) == len(kept) == 200
    assert set(range(950, 1000)) <= set(kept)
    early = kept[kept < 850]
    assert np.diff(early).max() <= 12


def test_candidates_join_and_sort() -> None:
    joined = Candidates(np.zeros((2, 1)), np.array([1.0, 3.0])) + Candidates(np.ones((1, 1)), np.array([2.0]))
    assert joined.best(2).tolist() == [1, 2]


def test_a_paused_trial_is_told_again_and_counts_once() -> None:
    sampler, _ = searched(plain(Normal(1e-2, "medium")), 20)
    values = draw(plain(), "even", np.random.default_rng(0))
    sampler.add(20, values)
    sampler.tell(20, "stopped", {1: -9.0})
    sampler.tell(20, "finished", {1: -9.0, 3: 9.0})
    again, _ = searched(plain(Normal(1e-2, "medium")), 20)
    again.add(20, values)
    again.tell(20, "finished", {1: -9.0, 3: 9.0})
    assert sampler.trust() == again.trust()
    assert len(sampler._observations.observed) == len(again._observations.observed) == 21


@pytest.mark.slow("draws many trials")
def test_a_trial_that_has_passed_a_rung_is_learnt_from_before_it_ends() -> None:
    surprise: Values = {RATE: 1.0, DECAY: 1e-5, KIND: "none"}

    def distance(*, reported: bool) -> float:
        """Return how far proposals are from one that trains far from all good trials, and is better."""
        sampler, _ = searched(plain(), 20, "gp")
        sampler.add(20, surprise)
        if reported:
            sampler.report(20, {1: 5.0})
        draws = [sampler.ask(number) for number in range(21, 61) if number % EVEN_EVERY != EVEN_EVERY - 1]
        return float(np.mean([abs(power(each, RATE)) + abs(power(each, DECAY) + 5) for each in draws]))

    assert distance(reported=True) < 0.8 * distance(reported=False)


@pytest.mark.slow("draws many trials")
def test_a_budget_in_hours_draws_what_trains_fast_among_what_is_as_good() -> None:
    """Here a lower decay changes the score by little, and an epoch with it takes a tenth of the time."""

    def mean_decay(*, by_time: bool) -> float:
        found = []
        for seed in range(4):
            sampler = make_sampler(plain(), "gp", seed, "max", by_time=by_time)
            for number in range(40):
                values = dict(plain().own) if number == 0 else sampler.ask(number)
                sampler.add(number, values)
                slow = power(values, DECAY) > -4
                sampler.tell(number, "finished", {1: quality(values)}, None, 10.0 if slow else 1.0)
                found += (
                    [power(values, DECAY)] if number >= 20 and number % EVEN_EVERY != EVEN_EVERY - 1 else []
                )
        return float(np.mean(found))

    assert mean_decay(by_time=True) < mean_decay(by_time=False) - 0.4


def test_seconds_are_forecast_and_equal_ones_change_nothing() -> None:
    cube = Cube(plain())
    model, rng = SecondsModel(cube), np.random.default_rng(0)
    rows = cube.exact(rng.random((60, 3)))

    def told(seconds: list[float]) -> list[Observation]:
        return [
            Observation(number, row, "finished", {1: 0.5}, 0.0, each, (0, 0, 0.0))
            for number, (row, each) in enumerate(zip(rows, seconds, strict=True))
        ]

    model.learn(told([float(np.exp(3 * row[0])) for row in rows]))
    asked = cube.exact(rng.random((40, 3)))
    errors = model.logarithms(cube.features(asked)) - 3 * asked[:, 0]
    assert np.sqrt(np.mean(errors**2)) < 0.25 * np.std(3 * asked[:, 0])
    model.learn(told([2.0] * 60))
    np.testing.assert_allclose(model.logarithms(cube.features(asked)), math.log(2.0))


def test_seconds_are_forecast_from_the_last_trials() -> None:
    cube, rng = Cube(plain()), np.random.default_rng(0)
    rows = cube.exact(rng.random((2 * MOST_TRIALS, 3)))
    signs = np.repeat([-1.0, 1.0], MOST_TRIALS)
    seconds = np.exp(3.0 * signs * rows[:, 0]).tolist()
    model = SecondsModel(cube)
    model.learn(
        [
            Observation(number, row, "finished", {1: 0.5}, 0.0, each, (0, 0, 0.0))
            for number, (row, each) in enumerate(zip(rows, seconds, strict=True))
        ]
    )
    low, high = model.logarithms(cube.features(cube.exact(np.array([[0.1, 0.5, 0.5], [0.9, 0.5, 0.5]]))))
    assert high > low + 1.0


def test_trust_falls_also_where_the_trials_that_the_priors_like_are_the_longest() -> None:
    space = plain(Normal(1.0, "high"))
    sampler = make_sampler(space, "auto", 0, "max")
    assert isinstance(sampler, AutoSampler)
    for number in range(24):
        liked = number < 6
        sampler.add(number, {**space.own, RATE: 1.0 if liked else 1e-2})
        early = {1: 0.1 + 0.01 * number}
        sampler.tell(
            number, "finished" if liked else "stopped", {**early, 2: 0.2, 3: 0.3} if liked else early
        )
    assert sampler.trust() < 0.05
