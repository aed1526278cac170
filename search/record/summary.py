"""What a search has come to: events in, one summary out; `tunebook show --json` prints it.

A `Summariser` takes events one by one, so the live table follows a journal without reading it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from search.record.journal import (
    EndEvent,
    EpochEvent,
    Event,
    Outcome,
    RetryEvent,
    SearchEvent,
    SearchState,
    StartEvent,
    TrialEvent,
)
from search.record.verdicts import Verdicts
from spaces.domains import Value
from trainable.curves.diagnosis import Diagnosis
from trainable.training.metrics import OBJECTIVES

SCHEMA = 1

State = Literal["running", "finished", "interrupted", "failed"]
TrialState = Literal["queued", "running", "paused", "finished", "stopped", "diverged", "failed"]
"""Paused: has started and is not over, but nothing trains it now; `resume` or a retry will."""


@dataclass(frozen=True)
class EpochSummary:
    """One epoch of a trial, as it was journaled."""

    epoch: int
    metrics: Mapping[str, float]
    diverged: bool
    rung: int | None

    def json(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "metrics": dict(self.metrics),
            "diverged": self.diverged,
            "rung": self.rung,
        }


@dataclass(frozen=True)
class TrialSummary:
    """One trial; `metrics` are those of its last epoch."""

    id: int
    state: TrialState
    own: bool
    values: Mapping[str, Value]
    attempts: int
    outcome_reason: str | None
    history: tuple[EpochSummary, ...]
    mlflow_run_id: str | None

    @property
    def epochs(self) -> int:
        """The last epoch trained; 0 before the first."""
        return self.history[-1].epoch if self.history else 0

    @property
    def ended(self) -> bool:
        return self.state not in ("queued", "running", "paused")

    @property
    def metrics(self) -> Mapping[str, float]:
        return self.history[-1].metrics if self.history else {}

    def json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "state": self.state,
            "own": self.own,
            "epochs": self.epochs,
            "metrics": dict(self.metrics),
            "values": dict(self.values),
            "attempts": self.attempts,
            "outcome_reason": self.outcome_reason,
            "mlflow_run_id": self.mlflow_run_id,
            "history": [epoch.json() for epoch in self.history],
        }


@dataclass(frozen=True)
class Summary:
    """A whole search at one moment."""

    search: str
    """Its name; empty before a driver began it."""
    search_id: str | None
    state: State
    outcome_reason: str | None
    """Why it ended as it did."""
    objective: str
    trials: tuple[TrialSummary, ...]
    budget_epochs: int
    """What the longest trial trains."""
    wall_seconds: float
    """Time under a driver, over all its drivers."""
    diagnosis: Diagnosis | None = None
    """What the best trial's curves say of it, where `search.verdicts.diagnosis` has looked."""
    verdicts: Verdicts | None = None
    """What the trials say of the space's rules, where `search.record.verdicts` has judged."""

    @property
    def best(self) -> TrialSummary | None:
        """The finished trial with the best objective at its last epoch (of equals the earliest), if any."""
        finished = [trial for trial in self.trials if trial.state == "finished"]
        sign = 1.0 if OBJECTIVES[self.objective] == "max" else -1.0
        return max(finished, key=lambda trial: sign * trial.metrics[self.objective], default=None)

    @property
    def epochs_trained(self) -> int:
        return sum(trial.epochs for trial in self.trials)

    @property
    def epochs_if_unpruned(self) -> int:
        """What the trials would take if none were stopped; diverged and failed ones end by themselves."""
        return self.budget_epochs * sum(trial.state not in ("diverged", "failed") for trial in self.trials)

    @property
    def saved(self) -> float:
        """The share of `epochs_if_unpruned` that stopping trials at rungs has saved so far, in [0, 1).

        Trials that a budget of hours cut short have saved nothing.
        """
        stopped = [trial for trial in self.trials if trial.state == "stopped" and trial.history]
        spared = sum(self.budget_epochs - trial.epochs for trial in stopped if trial.history[-1].rung)
        return spared / self.epochs_if_unpruned if spared else 0.0

    def diagnosed(self, diagnosis: Diagnosis) -> Self:
        """The same with the diagnosis of the best trial."""
        return replace(self, diagnosis=diagnosis)

    def judged(self, verdicts: Verdicts) -> Self:
        """The same with the verdicts on the rules."""
        return replace(self, verdicts=verdicts)

    def json(self) -> dict[str, Any]:
        """Plain data with finite numbers only, as `show --json` prints it."""
        best = self.best
        return {
            "schema": SCHEMA,
            "search": self.search,
            "search_id": self.search_id,
            "state": self.state,
            "outcome_reason": self.outcome_reason,
            "objective": {"metric": self.objective, "mode": OBJECTIVES[self.objective]},
            "trials": [trial.json() for trial in self.trials],
            "best": best.json() if best is not None else None,
            "diagnosis": self.diagnosis.tree() if self.diagnosis is not None else None,
            "verdicts": self.verdicts.json() if self.verdicts is not None else None,
            "epochs_trained": self.epochs_trained,
            "epochs_if_unpruned": self.epochs_if_unpruned,
            "saved": self.saved,
            "wall_seconds": self.wall_seconds,
        }


@dataclass
class _Trial:
    values: Mapping[str, Value]
    own: bool
    attempts: int = 0
    trains: bool = False
    history: list[EpochSummary] = field(default_factory=list)
    end: Outcome | None = None
    reason: str | None = None

    def state(self, running: bool) -> TrialState:
        if self.end is not None:
            return self.end
        if self.attempts == 0:
            return "queued"
        return "running" if self.trains and running else "paused"


class Summariser:
    """Takes in events and says at any moment what they come to.

    `objective` is the metric that trials are compared by, `epochs` what the longest trial trains.
    """

    def __init__(self, objective: str, epochs: int) -> None:
        self._objective = objective
        self._epochs = epochs
        self._trials: list[_Trial] = []
        self._name = ""
        self._search_id: str | None = None
        self._last: SearchState | None = None
        self._reason: str | None = None
        self._began = 0.0
        self._latest = 0.0
        self._seconds_before = 0.0

    def apply(self, event: Event) -> None:
        """Take in the next event of the journal."""
        match event:
            case SearchEvent():
                self._apply_search(event)
            case TrialEvent():
                self._trials.append(_Trial(event.values, event.own))
            case StartEvent():
                trial = self._trials[event.trial]
                trial.attempts, trial.trains, trial.reason = event.attempt, True, None
            case EpochEvent():
                epoch = EpochSummary(event.epoch, event.metrics, event.diverged, event.rung)
                self._trials[event.trial].history.append(epoch)
            case RetryEvent():
                trial = self._trials[event.trial]
                trial.trains, trial.reason = False, event.reason
            case EndEvent():
                trial = self._trials[event.trial]
                trial.end, trial.reason = event.state, event.reason
        self._latest = event.time

    def summary(
        self, now: float, *, locked: bool, mlflow_run_ids: Mapping[int, str] | None = None
    ) -> Summary:
        """The search at `now` (unix seconds); `locked` says whether a driver is alive."""
        state = self._state(locked)
        run_ids = mlflow_run_ids or {}
        return Summary(
            search=self._name,
            search_id=self._search_id,
            state=state,
            outcome_reason=self._reason,
            objective=self._objective,
            trials=tuple(
                TrialSummary(
                    id=number,
                    state=trial.state(running=state == "running"),
                    own=trial.own,
                    values=trial.values,
                    attempts=trial.attempts,
                    outcome_reason=trial.reason,
                    history=tuple(trial.history),
                    mlflow_run_id=run_ids.get(number),
                )
                for number, trial in enumerate(self._trials)
            ),
            budget_epochs=self._epochs,
            wall_seconds=self._seconds(now if state == "running" else self._latest),
        )

    def _apply_search(self, event: SearchEvent) -> None:
        self._name, self._search_id, self._reason = event.name, event.search_id, event.reason
        match event.state:
            case "started" | "resumed":
                self._seconds_before = self._seconds(
                    self._latest
                )  # a killed driver wrote no end: its last line
                self._began = event.time
                for trial in self._trials:
                    trial.trains = False
            case "finished" | "interrupted" | "failed":
                self._seconds_before = self._seconds(event.time)
        self._last = event.state

    def _seconds(self, until: float) -> float:
        """The drivers that ended, and the one at work, up to `until`."""
        since = max(0.0, until - self._began) if self._last in ("started", "resumed") else 0.0
        return self._seconds_before + since

    def _state(self, locked: bool) -> State:
        match self._last:
            case "finished" | "interrupted" | "failed":
                return self._last
            case "started" | "resumed" | None:
                return "running" if locked else "interrupted"


def summarise(
    events: Iterable[Event],
    now: float,
    *,
    objective: str,
    epochs: int,
    locked: bool,
    mlflow_run_ids: Mapping[int, str] | None = None,
) -> Summary:
    """The summary of a whole journal; see `Summariser`.

    Look for the lock before reading: a search that ends in between is then shown as it ended.
    """
    summariser = Summariser(objective, epochs)
    for event in events:
        summariser.apply(event)
    return summariser.summary(now, locked=locked, mlflow_run_ids=mlflow_run_ids)
