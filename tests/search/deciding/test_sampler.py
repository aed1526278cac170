"""Tests samplers: valid draws, repeatable from seed and history alone, and what TPE learns of each trial."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from search.deciding.make import make_sampler
from search.deciding.optuna_trials import distribution
from search.deciding.sampler import Sampler, SobolSampler
from search.deciding.tpe import TpeSampler
from search.record.journal import TrialEnd
from search.study import SamplerKind
from spaces.catalog.overrides import path_of
from spaces.domains import Choice, Domain, Float, Integer, Value, value_at
from spaces.space import Dimension, Space
from trainable.recipe import Recipe
from trainable.recipe.metrics import Mode

ROOT = Path(__file__).parents[3]
KINDS: tuple[SamplerKind, ...] = get_args(SamplerKind)


def score(values: Mapping[str, Value]) -> float:
    """Return a score that is best at a label smoothing of 0.05."""
    smoothing = values["regularisation.label_smoothing"]
    assert isinstance(smoothing, float)
    return 1.0 - abs(smoothing - 0.05)


def drawn(sampler: Sampler, own: Mapping[str, Value], count: int) -> list[Mapping[str, Value]]:
    """Return the values of trials 0 to count - 1; each ends, stops or diverges before the next is drawn."""
    trials: list[Mapping[str, Value]] = []
    for number in range(count):
        values = own if number == 0 else sampler.ask(number)
        trials.append(values)
        sampler.add(number, values)
        tell(sampler, number, values)
    return trials


def tell(sampler: Sampler, number: int, values: Mapping[str, Value]) -> None:
    match number % 4:
        case 0 | 1:
            sampler.tell(number, "finished", {1: 0.5, 2: score(values)})
        case 2:
            sampler.tell(number, "stopped", {1: score(values) / 2})
        case _:
            sampler.tell(number, "diverged", {})


@pytest.mark.parametrize("kind", KINDS)
def test_every_draw_lies_in_the_space_and_makes_a_recipe(kind: SamplerKind, small_space: Space) -> None:
    domains = {dimension.name: dimension.domain for dimension in small_space.dimensions}
    for values in drawn(make_sampler(small_space, kind, 3, "max"), small_space.own, 20):
        small_space.recipe(values)
        for name, value in small_space.named(values).items():
            assert value in domains[name]


@pytest.mark.parametrize("kind", KINDS)
def test_a_draw_depends_on_the_seed(kind: SamplerKind, small_space: Space) -> None:
    asked = [make_sampler(small_space, kind, seed, "max").ask(1) for seed in (1, 2)]
    assert asked[0] != asked[1]


@pytest.mark.parametrize("kind", KINDS)
def test_asking_changes_nothing(kind: SamplerKind, small_space: Space) -> None:
    sampler = make_sampler(small_space, kind, 3, "max")
    drawn(sampler, small_space.own, 14)
    assert sampler.ask(14) == sampler.ask(14)
    assert sampler.ask(14) != sampler.ask(15)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sampler_rebuilt_from_the_trials_goes_on_as_the_old_one(
    kind: SamplerKind, small_space: Space
) -> None:
    whole = drawn(make_sampler(small_space, kind, 3, "max"), small_space.own, 16)
    rebuilt = make_sampler(small_space, kind, 3, "max")
    for number, values in enumerate(whole[:13]):
        rebuilt.add(number, values)
    for number in range(13):  # all were added before the first one ended: that makes no difference
        tell(rebuilt, number, whole[number])
    assert rebuilt.ask(13) == whole[13]


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_a_spawned_process_draws_the_same_trials(kind: SamplerKind, small_space: Space) -> None:
    code = f"""
from search.deciding.make import make_sampler
from tests.search.small_spaces import conditional_space
from tests.search.deciding.test_sampler import drawn
space = conditional_space()
for values in drawn(make_sampler(space, {kind!r}, 3, "max"), space.own, 14):
    print(values)
"""
    here = drawn(make_sampler(small_space, kind, 3, "max"), small_space.own, 14)
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    there = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert there.stdout.splitlines() == [str(dict(values)) for values in here]


def test_tpe_after_its_first_trials_draws_near_what_scored_best(small_space: Space) -> None:
    def mean_distance(kind: SamplerKind) -> float:
        sampler = make_sampler(small_space, kind, 5, "max")
        for number in range(50):
            values = sampler.ask(number)
            sampler.add(number, values)
            sampler.tell(number, "finished", {1: score(values)})
        return sum(1.0 - score(sampler.ask(number)) for number in range(50, 80)) / 30

    assert mean_distance("tpe") < 0.6 * mean_distance("random")


def test_tpe_keeps_away_from_trials_that_have_not_ended(small_space: Space) -> None:
    def asked(running: bool) -> dict[str, Value]:
        sampler = make_sampler(small_space, "tpe", 5, "max")
        trials = drawn(sampler, small_space.own, 12)
        if running:
            sampler.add(12, trials[-1])
        return sampler.ask(13)

    assert asked(running=True) != asked(running=False)


def test_a_minimised_objective_is_a_maximised_one_negated(small_space: Space) -> None:
    def asked(mode: str, sign: float) -> dict[str, Value]:
        sampler = make_sampler(small_space, "tpe", 5, "max" if mode == "max" else "min")
        for number in range(12):
            values = sampler.ask(number)
            sampler.add(number, values)
            sampler.tell(number, "finished", {1: sign * score(values)})
        return sampler.ask(12)

    assert asked("max", 1.0) == asked("min", -1.0)
    assert asked("max", 1.0) != asked("min", 1.0)


def test_a_first_trial_outside_the_space_keeps_its_number_and_teaches_nothing(small_space: Space) -> None:
    own = {**small_space.own, "regularisation.label_smoothing": 0.5}
    sampler = TpeSampler(replace(small_space, own=own), 0, "max")
    drawn(sampler, own, 14)
    first, *others = sampler.trials
    assert (first.number, first.state, first.params) == (0, TrialState.FAIL, {})
    assert all(trial.params for trial in others)


@pytest.mark.parametrize("mode", ["max", "min"])
def test_tpe_draws_what_an_ordinary_study_of_optunas_draws(mode: Mode, small_space: Space) -> None:
    sampler = TpeSampler(small_space, 3, mode)
    for number in range(30):
        values = small_space.own if number == 0 else sampler.ask(number)
        if number > 0:
            assert values == drawn_by_optuna(sampler, small_space, number, mode)
        sampler.add(number, values)
        if number >= 3:  # four trials are open at each draw
            params = sampler.trials[number - 3].params
            tell(sampler, number - 3, {path_of(name): value for name, value in params.items()})


def drawn_by_optuna(sampler: TpeSampler, space: Space, number: int, mode: Mode) -> dict[str, Value]:
    """Return the next values, drawn through Optuna's own storage, study and trial."""
    study = optuna.create_study(
        sampler=sampler.optuna_sampler(number), direction="maximize" if mode == "max" else "minimize"
    )
    study.add_trials(sampler.trials)
    distributions = {each.name: distribution(each.domain) for each in space.dimensions}
    trial = study.ask()
    return space.define(lambda dimension, _: suggested(trial, dimension.name, distributions[dimension.name]))


def suggested(trial: optuna.Trial, name: str, of: BaseDistribution) -> Value:
    match of:
        case FloatDistribution():
            return trial.suggest_float(name, of.low, of.high, log=of.log)
        case IntDistribution():
            return trial.suggest_int(name, of.low, of.high, log=of.log)
        case CategoricalDistribution():
            return trial.suggest_categorical(name, of.choices)
        case _:
            raise AssertionError(of)


def test_an_option_that_stands_alone_is_drawn_by_no_sampler() -> None:
    kind = Dimension("optimizer.kind", Choice(("sgd",)), "for the test", "none")
    rate = Dimension("optimizer.lr", Float(1e-4, 10.0, log=True), "for the test", "none")
    own: dict[str, Value] = {"optimizer.kind": "sgd", "optimizer.lr": 0.01}
    with_kind, alone = (
        TpeSampler(Space(Recipe(), dimensions, {each.path: own[each.path] for each in dimensions}), 0, "max")
        for dimensions in ((kind, rate), (rate,))
    )
    assert with_kind.ask(1)["optimizer.kind"] == "sgd"
    assert with_kind.ask(1)["optimizer.lr"] == alone.ask(1)["optimizer.lr"]


def test_tpe_on_conditional_dimensions_never_draws_one_that_does_not_exist(small_space: Space) -> None:
    for values in drawn(make_sampler(small_space, "tpe", 11, "max"), small_space.own, 30):
        assert ("optimizer.momentum" in values) == (values["optimizer.kind"] == "sgd")


def test_sobol_points_fill_every_eighth_of_each_dimension_evenly(small_space: Space) -> None:
    sampler = SobolSampler(small_space, 0)
    points = [sampler.point(number, 5) for number in range(1, 33)]
    for coordinate in range(5):
        eighths = [int(point[coordinate] * 8) for point in points]
        assert [eighths.count(eighth) for eighth in range(8)] == [4] * 8


@pytest.mark.parametrize(
    ("domain", "fraction", "expected"),
    [
        (Float(0.0, 2.0), 0.25, 0.5),
        (Float(1e-4, 1.0, log=True), 0.5, 1e-2),
        (Float(1e-4, 1.0, log=True), 0.0, 1e-4),
        (Integer(1, 4), 0.0, 1),
        (Integer(1, 4), 0.24, 1),
        (Integer(1, 4), 0.26, 2),
        (Integer(1, 4), 0.999, 4),
        (Integer(1, 100, log=True), 0.999999, 100),
        (Choice(("a", "b", None)), 0.34, "b"),
        (Choice(("a", "b", None)), 0.99, None),
    ],
)
def test_fractions_map_onto_domains(domain: Domain, fraction: float, expected: Value) -> None:
    value = value_at(domain, fraction)
    assert value == pytest.approx(expected) if isinstance(expected, float) else value == expected


@given(
    low=st.floats(1e-6, 1e3),
    width=st.floats(1.01, 1e6),
    log=st.booleans(),
    fraction=st.floats(0.0, 1.0, exclude_max=True),
)
def test_every_fraction_gives_a_value_inside_its_domain(
    low: float, width: float, log: bool, fraction: float
) -> None:
    floats = Float(low, low * width, log=log)
    whole = Integer(int(low) + 1, int(low * width) + 2, log=log)
    assert value_at(floats, fraction) in floats
    assert value_at(whole, fraction) in whole


def test_tpe_learns_from_diverged_trials_and_not_from_failed_ones() -> None:
    rate = Dimension("optimizer.lr", Float(1e-4, 10.0, log=True), "for the test", "none")
    space = Space(Recipe(), (rate,), {"optimizer.lr": 0.01})

    def share_of_the_diverging_half(outcome: TrialEnd) -> float:
        sampler = make_sampler(space, "tpe", 0, "max")
        rates = []
        for number in range(50):
            values = sampler.ask(number)
            lr = values["optimizer.lr"]
            assert isinstance(lr, float)
            sampler.add(number, values)
            if lr > 0.03:
                sampler.tell(number, outcome, {})
            else:
                sampler.tell(number, "finished", {1: lr})  # the best lies at the edge of the cliff
            rates.append(lr)
        return sum(lr > 0.03 for lr in rates[20:]) / 30

    assert share_of_the_diverging_half("diverged") < 0.7 < share_of_the_diverging_half("failed")


def test_tpe_finds_the_few_values_that_meet_a_constraint_by_how_far_others_are_from_them() -> None:
    rate = Dimension("optimizer.lr", Float(1e-4, 10.0, log=True), "for the test", "none")
    space, limit = Space(Recipe(), (rate,), {"optimizer.lr": 0.01}), 1.05e-4  # 0.4 % of the range

    def feasible_draws(outcome: TrialEnd, seed: int) -> int:
        sampler, count = make_sampler(space, "tpe", seed, "max"), 0
        for number in range(50):
            values = sampler.ask(number)
            lr = values["optimizer.lr"]
            assert isinstance(lr, float)
            sampler.add(number, values)
            excesses = {"latency_ms": lr / limit - 1.0} if outcome == "infeasible" else None
            sampler.tell(
                number, "finished" if lr <= limit else outcome, {1: lr} if lr <= limit else {}, excesses
            )
            count += lr <= limit
        return count

    def found(outcome: TrialEnd) -> int:
        return sum(feasible_draws(outcome, seed) for seed in range(3))

    assert found("diverged") <= 3 < 10 <= found("infeasible")
