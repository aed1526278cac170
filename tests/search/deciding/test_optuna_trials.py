"""Tests a trial as Optuna's record: what TPE learns from, and what people look at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from search.deciding.optuna_trials import Outside, TrialOutcome, distribution, optuna_trial, widened
from search.record.journal import TrialEnd
from spaces.domains import Choice, Domain, Float, Integer, Value

DOMAINS: dict[str, Domain] = {"rate": Float(0.1, 1.0, log=True), "kind": Choice(("sgd", "adamw"))}
INSIDE: dict[str, Value] = {"rate": 0.5, "kind": "sgd"}
OUTSIDES: tuple[Outside, ...] = ("ignore the trial", "widen the range")


def record(
    outcome: TrialEnd | None,
    scores: Mapping[int, float],
    values: Mapping[str, Value] = INSIDE,
    outside: Outside = "ignore the trial",
) -> FrozenTrial:
    found = TrialOutcome(end=outcome, scores=scores, started=10.0, ended=20.0)
    return optuna_trial(3, values, DOMAINS, found, outside=outside)


@pytest.mark.parametrize("outside", OUTSIDES)
@pytest.mark.parametrize(
    ("outcome", "state", "value", "intermediate"),
    [
        (None, TrialState.RUNNING, None, {1: 0.5, 2: 0.75}),
        ("finished", TrialState.COMPLETE, 0.75, {1: 0.5, 2: 0.75}),
        ("stopped", TrialState.PRUNED, None, {1: 0.5, 2: 0.75}),
        ("diverged", TrialState.PRUNED, None, {}),
        ("failed", TrialState.FAIL, None, {1: 0.5, 2: 0.75}),
        ("infeasible", TrialState.PRUNED, None, {1: 0.5, 2: 0.75}),
    ],
)
def test_each_outcome_has_a_state_of_its_own(
    outside: Outside,
    outcome: TrialEnd | None,
    state: TrialState,
    value: float | None,
    intermediate: Mapping[int, float],
) -> None:
    trial = record(outcome, {1: 0.5, 2: 0.75}, outside=outside)
    assert (trial.number, trial.state, trial.value) == (3, state, value)
    assert trial.intermediate_values == intermediate
    assert trial.params == INSIDE


def test_optuna_reads_excesses_as_its_constraints() -> None:
    excesses = {"latency_ms": 0.25, "parameters": -0.5}
    found = TrialOutcome(end="infeasible", scores={}, excesses=excesses)
    trial = optuna_trial(3, INSIDE, DOMAINS, found, outside="ignore the trial")
    assert trial.constraints == excesses
    assert record("finished", {1: 0.5}).constraints == {}


@pytest.mark.parametrize("outcome", [None, "finished", "stopped", "diverged", "failed", "infeasible"])
def test_optuna_finds_no_fault_in_any_record(outcome: TrialEnd | None) -> None:
    import optuna

    study = optuna.create_study()
    for outside in OUTSIDES:
        for rate in (0.5, 2.0, 0.0):
            study.add_trial(record(outcome, {1: 0.5}, {**INSIDE, "rate": rate}, outside))
    assert len(study.trials) == 6


def test_for_tpe_a_trial_outside_the_space_keeps_its_number_and_nothing_else() -> None:
    for outcome in (None, "finished"):
        trial = record(outcome, {1: 0.5}, {**INSIDE, "rate": 2.0})
        assert (trial.number, trial.state, trial.params) == (3, TrialState.FAIL, {})


def test_for_people_a_value_outside_its_range_widens_it() -> None:
    trial = record("finished", {1: 0.5}, {**INSIDE, "rate": 2.0}, "widen the range")
    assert trial.params == {"rate": 2.0, "kind": "sgd"}
    assert trial.distributions["rate"] == FloatDistribution(0.1, 2.0, log=True)


def test_a_value_that_no_range_can_hold_is_an_attribute() -> None:
    trial = record("finished", {1: 0.5}, {**INSIDE, "rate": 0.0}, "widen the range")
    assert trial.params == {"kind": "sgd"}
    assert trial.user_attrs == {"outside.rate": 0.0}
    assert math.isclose(trial.value or 0.0, 0.5)


def test_only_a_trial_that_has_ended_has_an_end() -> None:
    assert record(None, {}).datetime_complete is None
    ended = record("failed", {})
    assert (ended.datetime_start, ended.datetime_complete) == tuple(map(datetime.fromtimestamp, (10, 20)))


def test_domains_become_distributions() -> None:
    assert distribution(Float(1e-4, 10.0, log=True)) == FloatDistribution(1e-4, 10.0, log=True)
    assert distribution(Integer(1, 9)) == IntDistribution(1, 9)
    assert distribution(Choice(("a", None))) == CategoricalDistribution(("a", None))


def test_a_domain_is_stretched_to_a_value_or_given_up() -> None:
    assert widened(Float(0.1, 1.0), 0.5) == Float(0.1, 1.0)
    assert widened(Float(0.1, 1.0), 0.0) == Float(0.0, 1.0)
    assert widened(Float(0.1, 1.0, log=True), 10.0) == Float(0.1, 10.0, log=True)
    assert widened(Float(0.1, 1.0, log=True), 0.0) is None, "the logarithm of 0"
    assert widened(Integer(2, 4), 0) == Integer(0, 4)
    assert widened(Integer(2, 4), None) is None
    assert widened(Choice(("a", "b")), "c") is None
