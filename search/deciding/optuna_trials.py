"""Converts a trial into one of Optuna's records: its values, its outcome and its scores.

The sampler and the copy for optuna-dashboard both use these records:

* A finished trial is COMPLETE with its last score, a stopped one PRUNED with its scores by epoch. TPE ranks
  every pruned trial behind the complete ones, longer-lived ones first, so it never compares different epochs.
* A diverged trial is PRUNED without scores, which TPE ranks last. If it were FAIL, TPE would not learn from
  it: measured on a space of which half diverges, 91 % of later draws fell into that half, against 44 %.
* An infeasible trial, whose network breaks a constraint, is PRUNED without scores, too, and Optuna ranks it
  behind all others, by the sum of what is above limits. Every trial that was measured carries its excesses as
  Optuna's constraints: a value above 0 is infeasible (arXiv 2606.09889).
* A failed trial is FAIL, which TPE ignores: a crash says nothing about the values.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, assert_never

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

from search.record.journal import TrialEnd
from spaces.domains import Choice, Domain, Float, Integer, Value

# before a constraint's name, this is the key at which Optuna keeps what `Trial.set_constraint` takes
CONSTRAINT = "constraints:"
# what becomes of a trial with a value outside its domain, as the documented recipe may have one. For TPE it
# is no point of the space, and a kernel there may be undefined (log 0): the trial becomes FAIL without
# parameters. Where people look at it, it keeps its values, and each range is widened to hold them
Outside = Literal["ignore the trial", "widen the range"]


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """What has become of a trial, as far as Optuna keeps it."""

    end: TrialEnd | None  # None while the trial has not ended
    scores: Mapping[int, float]  # the objective by epoch
    excesses: Mapping[str, float] | None = None  # by what share of its limit each cost is above it
    started: float = 0.0  # seconds since 1970, which TPE does not use
    ended: float = 0.0
    attributes: Mapping[str, Any] | None = None  # Optuna's user attributes


def optuna_trial(
    number: int,
    values: Mapping[str, Value],
    domains: Mapping[str, Domain],
    outcome: TrialOutcome,
    *,
    outside: Outside,
) -> FrozenTrial:
    """Return a trial as Optuna's record, which must not be changed.

    Args:
        number: the trial's number, from 0.
        values: by dimension name. A value that no range can be widened to hold becomes the attribute
            `outside.NAME`.
        domains: by dimension name, of all dimensions.
        outcome: what has become of the trial.
        outside: what becomes of a trial with a value outside its domain.
    """
    state, scores = _state(outcome.end), outcome.scores
    if outside == "ignore the trial" and any(value not in domains[name] for name, value in values.items()):
        values, state = {}, TrialState.FAIL
    ranges = {name: widened(domains[name], value) for name, value in values.items()}
    held = {name: domain for name, domain in ranges.items() if domain is not None}
    left_out = {f"outside.{name}": value for name, value in values.items() if name not in held}
    return FrozenTrial(
        number=number,
        trial_id=number,
        state=state,
        value=scores[max(scores)] if state == TrialState.COMPLETE else None,
        datetime_start=datetime.fromtimestamp(outcome.started),
        datetime_complete=datetime.fromtimestamp(outcome.ended) if state.is_finished() else None,
        params={name: values[name] for name in held},
        distributions={name: distribution(domain) for name, domain in held.items()},
        user_attrs={**(outcome.attributes or {}), **left_out},
        system_attrs={f"{CONSTRAINT}{name}": share for name, share in (outcome.excesses or {}).items()},
        intermediate_values={} if outcome.end == "diverged" else dict(scores),
    )


class SharedTrials(InMemoryStorage):
    """A study of Optuna's that hands out these trials without copying them.

    Optuna's storage in memory copies each trial in depth when it is added: half the time of a search's draws.
    """

    def __init__(self, trials: Sequence[FrozenTrial]) -> None:
        super().__init__()
        self._shared = trials

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        chosen = [trial for trial in self._shared if states is None or trial.state in states]
        return copy.deepcopy(chosen) if deepcopy else chosen

    def set_trial_system_attr(self, trial_id: int, key: str, value: object) -> None:
        """Do nothing: here a sampler notes its draw for other processes that use the same storage."""


def distribution(domain: Domain) -> BaseDistribution:
    """Return a domain as Optuna's distribution."""
    match domain:
        case Float():
            return FloatDistribution(domain.low, domain.high, log=domain.log)
        case Integer():
            return IntDistribution(domain.low, domain.high, log=domain.log)
        case Choice():
            return CategoricalDistribution(domain.options)
        case _:
            assert_never(domain)


def widened(domain: Domain, value: Value) -> Domain | None:
    """Return the domain, stretched to hold the value; None where no such domain does.

    Optuna accepts no value outside its distribution. It accepts ranges that differ from trial to trial, but
    no options that differ.
    """
    if value in domain:
        return domain
    match domain, value:
        case Float(log=log), int() | float() if value > 0 or not log:
            return Float(min(domain.low, value), max(domain.high, value), log)
        case Integer(log=log), int() if value > 0 or not log:
            return Integer(min(domain.low, value), max(domain.high, value), log)
        case Float() | Integer() | Choice(), _:
            return None
        case _:
            assert_never(domain)


def _state(outcome: TrialEnd | None) -> TrialState:
    match outcome:
        case None:
            return TrialState.RUNNING
        case "finished":
            return TrialState.COMPLETE
        case "stopped" | "diverged" | "infeasible":
            return TrialState.PRUNED
        case "failed":
            return TrialState.FAIL
        case _:
            assert_never(outcome)
