"""Summarises a search: it turns the record of its events into a summary, which `show --json` prints."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from search.record.cursor import Cursor, lacking_seconds
from search.record.finals import Estimate, Finals, best_first, finalists_of, finals_of, missing_runs
from search.record.folder import Caution
from search.record.machines import LeftOut, Machine
from search.record.record import Record
from search.record.trials import Trial
from search.record.turnaround import Turnaround
from search.record.verdicts import Verdicts
from search.study.objective import NO_CONSTRAINTS, Constraints, above_limits
from search.study.study import Finalists
from spaces.domains import counted
from trainable.diagnosis import Diagnosis
from trainable.recipe.metrics import Mode
from trainable.training.metrics import OBJECTIVES, sign_of

SCHEMA = 1

NO_WHOLE_RUN = ("diverged", "failed", "infeasible")  # trials that ended so would not have trained all epochs
State = Literal["running", "finished", "interrupted", "failed"]


@dataclass(frozen=True)
class Summary:
    """A whole search at one moment."""

    search: str  # the search's name; empty before a driver began it
    search_id: str | None
    state: State
    outcome_reason: str | None  # why the search ended as it did
    objective: str
    trials: tuple[Trial, ...]  # the trials of the search itself
    budget_epochs: int  # the number of epochs that the longest trial trains
    wall_seconds: float  # the seconds under a driver, summed over all its drivers
    # what the best trial's curves say of it, where `search.learning.search` has judged them
    diagnosis: Diagnosis | None = None
    constraints: Constraints = NO_CONSTRAINTS  # what the network of a trial may cost at most
    # what the trials say of the space's rules, where `search.learning.verdicts` has computed it
    verdicts: Verdicts | None = None
    # the direction of an objective that is a function of the caller's; the others' is known
    mode: Mode | None = None
    # the trials that train recipes of others again, in the order of their numbers
    repeats: tuple[Trial, ...] = ()
    finalists: Finalists | None = None  # how the best trials are trained again, if they are
    # whether it has been finished. An audit of its pruning does not change that, an extension does
    was_finished: bool = False
    # what the time of its slots was used for; None where an earlier version has driven it
    turnaround: Turnaround | None = None
    machines: tuple[Machine, ...] = ()  # what each machine did; empty where an earlier version has driven it
    # of how many of the search's last seconds MLflow has nothing yet; None where that is not known
    mlflow_lacks_seconds: float | None = None
    left_out: tuple[LeftOut, ...] = ()  # machines and GPUs that the last driver kept trials from
    # what to know before the answer is trusted, where `search.learning.cautions` has looked for it
    cautions: tuple[Caution, ...] = ()

    @property
    def best(self) -> Trial | None:
        """The winner of the finalists, or else the finished trial with the best objective at its last epoch
        (of equals the earliest), if any.

        It meets every constraint: a trial that breaks one is not trained.
        """
        if self.finals is not None and self.finals.winner is not None:
            return self.trial(self.finals.winner.trial)
        return next(iter(self.best_first), None)

    @property
    def documented(self) -> Trial | None:
        """The trial of the documented recipe; None before it is drawn."""
        return next((trial for trial in self.trials if trial.own), None)

    @property
    def estimate(self) -> Estimate | None:
        """What the winner's recipe is worth over fresh seeds; None where it was not trained again."""
        winner = self.finals.winner if self.finals is not None else None
        return winner.estimate if winner is not None else None

    @cached_property
    def all_trials(self) -> tuple[Trial, ...]:
        """The trials of the search, and those that repeat them, in the order of their numbers."""
        return tuple(sorted((*self.trials, *self.repeats), key=lambda each: each.id))

    @property
    def best_first(self) -> list[Trial]:
        """The finished trials, the best objective at the last epoch first; of equals the earliest."""
        return best_first(self.trials, self.objective, self.sign)

    @cached_property
    def finals(self) -> Finals | None:
        """What the finalists' runs with fresh seeds have come to; None before the first began."""
        runs = [run for run in self.repeats if run.repeat is not None and run.repeat.purpose == "finalist"]
        if self.finalists is None or not runs:
            return None
        chosen = finalists_of(self.finalists, self.best_first)
        is_missing = any(missing_runs(self.finalists, chosen, runs))
        goes_on = is_missing or any(not each.ended for each in runs)
        over = self.was_finished or self.state == "finished" or not goes_on
        return finals_of(chosen, runs, self.objective, self.sign, over=over)

    @property
    def is_being_audited(self) -> bool:
        """Whether stopped trials are trained to their end and nothing else is; the driver may be dead."""
        repeats = [each.repeat for each in self.repeats if not each.ended]
        return self.was_finished and any(each is not None and each.purpose == "pruning" for each in repeats)

    def trial(self, number: int) -> Trial:
        """Return the trial of this number. Raises KeyError where there is none."""
        return self._by_number[number]

    @cached_property
    def _by_number(self) -> dict[int, Trial]:
        return {each.id: each for each in self.all_trials}

    @property
    def frontier(self) -> tuple[Trial, ...]:
        """The finished trials that no other one beats in both latency and objective, the quickest first.

        Of one network only the best trial counts, with the least latency that was measured: it differs by
        chance from trial to trial. Of equal ones it is the earliest. Empty where no latency was measured.
        """
        measured = [trial for trial in self.trials if trial.end == "finished" and trial.cost is not None]
        latency: dict[str, float] = {}
        for trial in measured:
            network, found = trial.network, trial.costs["latency_ms"]
            latency[network] = min(found, latency.get(network, found))
        front: list[Trial] = []
        for trial in sorted(measured, key=lambda each: (latency[each.network], -self._score(each))):
            if not front or self._score(trial) > self._score(front[-1]):
                front.append(trial)
        return tuple(front)

    @property
    def nearest(self) -> Trial | None:
        """The infeasible trial whose costs are the least above their limits, if there is one."""
        infeasible = [
            (above_limits(self.constraints.excesses(trial.cost)), trial.id)
            for trial in self.trials
            if trial.end == "infeasible" and trial.cost is not None
        ]
        return self.trial(min(infeasible)[1]) if infeasible else None

    @property
    def why_none_finished(self) -> str:
        """Why a search that is over has no result; it names the trial nearest to the constraints."""
        if (nearest := self.nearest) is None:
            return "no trial finished: all crashed, diverged or were cut short"
        infeasible = sum(trial.end == "infeasible" for trial in self.trials)
        others = len(self.trials) - infeasible
        also = f" and {others} crashed, diverged or were cut short" if others else ""
        return (
            f"no trial finished: {infeasible} of {len(self.trials)} break a constraint{also}; the nearest is "
            f"trial {nearest.id}: {nearest.outcome_reason}"
        )

    def _score(self, trial: Trial) -> float:
        """Return a finished trial's objective, higher for better."""
        return self.sign * trial.metrics[self.objective]

    @property
    def direction(self) -> Mode:
        """Whether a higher or a lower objective is better."""
        return OBJECTIVES[self.objective] if self.mode is None else self.mode

    @property
    def sign(self) -> float:
        """1 where a higher objective is better, -1 where a lower one is."""
        return sign_of(self.direction)

    @property
    def epochs_trained(self) -> int:
        """The epochs of all trials, those that repeat others among them."""
        return sum(trial.epochs for trial in self.all_trials)

    @property
    def epochs_again(self) -> int:
        """The epochs that trained a trial again: of finalists, and of audited trials."""
        return sum(trial.epochs for trial in self.repeats)

    @property
    def epochs_if_unpruned(self) -> int:
        """The epochs of all trials if none were stopped; those that ended for other reasons do not count."""
        return self.budget_epochs * sum(trial.state not in NO_WHOLE_RUN for trial in self.trials)

    @property
    def saved(self) -> float:
        """The share of `epochs_if_unpruned` that stopping trials, at rungs or by forecasts, has saved so far,
        in [0, 1).

        Trials that a budget of hours cut short have saved nothing.
        """
        stopped = [trial for trial in self.trials if trial.end == "stopped" and not trial.is_cut_short]
        spared = sum(self.budget_epochs - trial.epochs for trial in stopped)
        return spared / self.epochs_if_unpruned if spared else 0.0

    @property
    def score_in_words(self) -> str:
        """The best trial with its score, by fresh seeds where it was trained again; empty without one."""
        best, metric = self.best, self.objective
        if best is None:
            return ""
        own, highest = f"{best.metrics[metric]:.4f}", self.best_first[0]
        if (known := self.estimate) is None:
            return f"{metric} {own} (trial {best.id})"
        luckier = f"; the highest was {highest.metrics[metric]:.4f}, of trial {highest.id}"
        others = luckier if highest.id != best.id else ""
        return f"{metric} {known.value:.4f} with fresh seeds (trial {best.id}, {own} in the search{others})"

    @property
    def epochs_in_words(self) -> str:
        """The epochs that the search has trained and saved, and those that trained trials again."""
        own = counted(self.epochs_trained - self.epochs_again, "epoch")
        spared = f", {self.saved:.0%} of {self.epochs_if_unpruned} saved by stopping early"
        again = f"; {self.epochs_again} more to train trials again" if self.epochs_again else ""
        return f"{own} trained{spared if self.saved else ''}{again}"

    def json(self) -> dict[str, Any]:
        """Return plain data with finite numbers only, as `show --json` prints it."""
        best = self.best
        return {
            "schema": SCHEMA,
            "search": self.search,
            "search_id": self.search_id,
            "state": self.state,
            "outcome_reason": self.outcome_reason,
            "objective": {"metric": self.objective, "mode": self.direction},
            "trials": [_trial_json(trial) for trial in self.trials],
            "repeats": [_trial_json(trial) for trial in self.repeats],
            "finalists": self.finals.json() if self.finals is not None else None,
            "best": _trial_json(best) if best is not None else None,
            "constraints": self.constraints.limits,
            "frontier": [trial.id for trial in self.frontier],
            "cautions": [each.model_dump() for each in self.cautions],
            "diagnosis": self.diagnosis.tree() if self.diagnosis is not None else None,
            "verdicts": self.verdicts.json() if self.verdicts is not None else None,
            "epochs_trained": self.epochs_trained,
            "epochs_again": self.epochs_again,
            "epochs_if_unpruned": self.epochs_if_unpruned,
            "saved": self.saved,
            "wall_seconds": self.wall_seconds,
            "turnaround": self.turnaround.model_dump() if self.turnaround is not None else None,
            "machines": [each.model_dump(mode="json") for each in self.machines],
            "left_out": [each.model_dump() for each in self.left_out],
            "mlflow_lacks_seconds": self.mlflow_lacks_seconds,
        }


def summarise(
    record: Record,
    now: float,
    *,
    objective: str,
    epochs: int,
    locked: bool,
    sent: Cursor | None = None,
) -> Summary:
    """Return the summary of a record at `now` (unix seconds); `locked` says whether a driver is alive,
    and `sent` what MLflow has.

    Look for the lock before reading the journal: a search that ends in between is then shown as it ended.
    """
    state = _state(record, locked)
    run_ids, until = {} if sent is None else sent.run_ids, now if state == "running" else record.latest
    trials = [
        replace(trial, trains=trial.trains and state == "running", mlflow_run_id=run_ids.get(trial.id))
        for trial in record.trials
    ]
    return Summary(
        search=record.name,
        search_id=record.search_id,
        state=state,
        outcome_reason=record.reason,
        objective=objective,
        trials=tuple(trial for trial in trials if not trial.is_repeat),
        budget_epochs=epochs,
        wall_seconds=record.seconds(until),
        mode=_mode(record, objective),
        constraints=record.constraints,
        repeats=tuple(trial for trial in trials if trial.is_repeat),
        finalists=record.settled.finalists if record.settled is not None else None,
        was_finished=record.was_finished,
        turnaround=record.turnaround(until),
        machines=record.machines(until),
        left_out=record.left_out,
        mlflow_lacks_seconds=lacking_seconds(sent, record.seconds(record.latest)),
    )


def _state(record: Record, locked: bool) -> State:
    match record.state:
        case "finished" | "interrupted" | "failed":
            return record.state
        case "started" | "resumed" | None:
            return "running" if locked else "interrupted"


def _mode(record: Record, objective: str) -> Mode | None:
    """Return the direction of an objective that is a function of the caller's, or else None.

    Before it is settled, when there is no trial to compare, it is `max`.
    """
    if objective in OBJECTIVES:
        return None
    return record.settled.mode if record.settled is not None else "max"


def _trial_json(trial: Trial) -> dict[str, Any]:
    return {
        "id": trial.id,
        "repeat": trial.repeat.model_dump() if trial.repeat is not None else None,
        "state": trial.state,
        "own": trial.own,
        "first": trial.first.model_dump(mode="json") if trial.first is not None else None,
        "epochs": trial.epochs,
        "metrics": dict(trial.metrics),
        "cost": dict(trial.costs),
        "sentence": trial.sentence,
        "values": dict(trial.values),
        "attempts": trial.attempts,
        "places": [[rank.model_dump(mode="json") for rank in ranks] for ranks in trial.places],
        "outcome_reason": trial.outcome_reason,
        "mlflow_run_id": trial.mlflow_run_id,
        "history": [
            {
                "epoch": event.epoch,
                "metrics": event.result.metrics(),
                "diverged": event.diverged,
                "rung": event.rung,
            }
            for event in trial.history
        ],
    }
