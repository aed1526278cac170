"""A journal's events as changes of MLflow's runs, without using MLflow, files or a clock."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, assert_never

from search.record.finals import Finals
from search.record.home import EVENTS_FILE
from search.record.journal import (
    CostEvent,
    EndEvent,
    EpochEvent,
    Event,
    ExtendEvent,
    LeftOutEvent,
    PlaceEvent,
    PromotionEvent,
    Repeat,
    RetryEvent,
    SearchEvent,
    SettledEvent,
    StartEvent,
    TrialEnd,
    TrialEvent,
)
from search.record.record import Record
from search.record.summary import Summary, summarise
from search.record.trials import Trial, state_in_words
from search.record.turnaround import IN_WORDS
from spaces.domains import Value, listed
from trainable.recipe.metrics import Mode
from trainable.training.metrics import OBJECTIVES, sign_of
from trainable.tune.place import Place, in_full

PURPOSE = "tunebook.purpose"  # `search`, or what a trial's recipe is trained again for: `finalist`, `pruning`
REPEAT_OF, SEED, SPLIT = "tunebook.repeat_of", "tunebook.seed", "tunebook.split"
ESTIMATE = "final_estimate"
# what a finalist has come to, as metrics of its run: one point for each final
FINAL_NUMBERS = (ESTIMATE, "final_low", "final_high", "final_mean", "final_deviation")
RunOwner = int | None  # a trial's number; None is the search's own run, the parent of all
Status = Literal["RUNNING", "FINISHED", "KILLED", "FAILED"]
SEARCH_ID = "tunebook.search_id"
TRIAL = "tunebook.trial"
STATE = "tunebook.state"
NOTE = "mlflow.note.content"  # a run's description in MLflow's pages, in Markdown
TABLES = "mlflow.loggedArtifacts"  # the files of a run that MLflow's pages show as tables
# the budget's trials of a search that was extended; the param `budget.trials` stays what the study says
EXTENDED_TO = "tunebook.extended_to"
TEACHER_DIGEST = "tunebook.teacher_digest"
OUTCOME = "tunebook.outcome"
REASON = "tunebook.reason"
# the most characters of a tag: MLflow accepts 8000 since version 2, servers before that 5000
LONGEST_TAG = 5000
LONGEST_PARAM = 6000
LONGEST_NAME = 250  # of a run: MLflow's own table of runs has room for so many characters
# the numbers of an epoch that MLflow gets beside the objective, unless `tracking.metrics` is `all`
FEW_METRICS = ("val_accuracy", "val_loss", "train_loss", "applied_lr", "epoch_seconds")


def run_name(trial: Trial) -> str:
    """Return the name of a trial's run: its number, and what it trains. A run that trains a trial's recipe
    again has that trial's number, and what differs."""
    repeat = trial.repeat
    if repeat is None:
        name = trial.numbered_sentence
    else:
        split = "" if repeat.split is None else f", split {repeat.split}"
        how = "to its end" if repeat.purpose == "pruning" else f"again, seed {repeat.seed}{split}"
        name = f"{repeat.of} {how}" + (f": {trial.sentence}" if trial.sentence else "")
    return clip(name, LONGEST_NAME)


def purpose_tags(repeat: Repeat | None) -> dict[str, str]:
    """Return the tags that tell the search's own trials from those that train their recipes again."""
    if repeat is None:
        return {PURPOSE: "search"}
    seeds = {SEED: repeat.seed, SPLIT: repeat.split}
    named = {tag: str(seed) for tag, seed in seeds.items() if seed is not None}
    return {PURPOSE: repeat.purpose, REPEAT_OF: str(repeat.of), **named}


def final_numbers(finals: Finals | None) -> dict[int, dict[str, float]]:
    """Return metrics of what the finalists have come to, by trial; none as long as their runs go on."""
    if finals is None or finals.winner is None:
        return {}
    estimates = {each.trial: each.estimate for each in finals.finalists if each.estimate is not None}
    return {
        trial: {
            name: number
            for name, number in zip(
                FINAL_NUMBERS, (known.value, *known.bounds, known.mean, known.deviation), strict=True
            )
            if number is not None
        }
        for trial, known in estimates.items()
    }


class Point(NamedTuple):
    """One value of a metric; sent twice with one key, time and step, it is one point of its history."""

    key: str
    value: float
    milliseconds: int
    step: int


@dataclass
class RunUpdate:
    """All that a run is to be sent at once."""

    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    status: tuple[Status, int] | None = None  # the run's new status, and since when, in milliseconds


class Outbox:
    """What the events change, by run, until it is sent; they are applied one by one.

    `objective` is the study's metric, `epochs` the budget's longest trial; `params` describe the study;
    `every_metric` is whether each number of an epoch is sent. `where` names the journal.
    """

    def __init__(
        self,
        objective: str,
        epochs: int,
        where: str = EVENTS_FILE,
        *,
        params: Mapping[str, str] | None = None,
        every_metric: bool = False,
    ) -> None:
        self.record = Record(where=where)
        self.updates: dict[RunOwner, RunUpdate] = {}
        self.recipes: dict[int, Trial] = {}  # new trials, whose recipes are to be stored
        # the search's own finished trial with the best objective so far, of equals the earliest
        self._leader: Trial | None = None
        self._objective = objective
        self._epochs = epochs
        self._params = params or {}
        self._every_metric = every_metric
        self._epochs_trained = 0
        self._closed = False  # whether the runs of a driver that was killed have been closed

    def apply(self, event: Event) -> None:
        """Apply the journal's next event."""
        self.record.apply(event)
        self._closed = False
        match event:
            case SearchEvent():
                self._apply_search(event)
            case TrialEvent():
                self._apply_trial(event)
            case StartEvent():
                digest = self.record.trials[event.trial].teacher_digest
                taught = {} if digest is None else {TEACHER_DIGEST: digest}
                self._tag(event.trial, {STATE: "running", "tunebook.attempts": str(event.attempt), **taught})
            case PlaceEvent():
                self._tag(event.trial, _place_tags(self.record.trials[event.trial].places))
            case CostEvent():
                at = milliseconds(event.time)
                costs = event.cost.model_dump().items()
                self._update(event.trial).points.extend(Point(key, value, at, 0) for key, value in costs)
            case EpochEvent():
                self._apply_epoch(event)
            case PromotionEvent():
                self._tag(event.trial, {STATE: "running"})
            case RetryEvent():
                self._tag(event.trial, {"tunebook.last_failure": event.reason})
            case EndEvent():
                self._apply_end(event)
            case ExtendEvent():
                self._tag(None, {EXTENDED_TO: str(event.trials)})
            case SettledEvent() | LeftOutEvent():
                pass
            case _:
                assert_never(event)

    @property
    def best(self) -> Trial | None:
        """The winner of the finalists, or else the search's own trial with the best objective so far."""
        return self._summarised().best

    @property
    def is_over(self) -> bool:
        """Whether the last driver has ended, in whichever way."""
        return self._closed or self.record.is_over

    def began(self, run: RunOwner) -> int:
        """Return when a run began, in milliseconds. Raises ValueError for one that has not begun."""
        at = self.record.began if run is None else self.record.trials[run].queued
        if at is None:
            raise ValueError("the search has not begun")
        return milliseconds(at)

    def empty(self) -> None:
        """Forget the changes so far: MLflow has them."""
        self.updates.clear()
        self.recipes.clear()

    def interrupt(self) -> None:
        """Close what a killed driver left open, as of its last event; `resume` opens it again."""
        if self.record.state is not None and not self.is_over:
            self._end_search("KILLED", "interrupted", "the driver was killed")
            self._closed = True

    def _apply_search(self, event: SearchEvent) -> None:
        self._tag(None, {f"tunebook.version.{name}": version for name, version in event.versions.items()})
        match event.state:
            case "started":
                self._update(None).params.update(self._params)
                self._tag(None, {STATE: "running"})
            case "resumed":
                self._reopen(None, "running")
                self._tag(None, {REASON: ""})  # why the driver before this one stopped
                for trial in self._open_trials():
                    self._reopen(trial.id, "paused" if trial.waits else "queued")
            case "finished":
                self._end_search("FINISHED", event.state, event.reason)
            case "interrupted":
                self._end_search("KILLED", event.state, event.reason)
            case "failed":
                self._end_search("FAILED", event.state, event.reason)

    def _apply_trial(self, event: TrialEvent) -> None:
        if event.recipe is not None:
            self.recipes[event.trial] = self.record.trials[event.trial]
        values = {**event.values, **self.record.trials[event.trial].values_by_name}  # all of them as params
        self._update(event.trial).params.update(
            {path: clip(written(value), LONGEST_PARAM) for path, value in values.items()}
        )
        whose = {"tunebook.own": written(event.own), **purpose_tags(event.repeat)}
        whose |= {"tunebook.first": event.first.source} if event.first is not None else {}
        self._tag(event.trial, {STATE: "queued", **whose})

    def _apply_epoch(self, event: EpochEvent) -> None:
        self._epochs_trained += 1
        at, numbers = milliseconds(event.time), self.numbers(event)
        self._update(event.trial).points.extend(
            Point(key, value, at, event.epoch) for key, value in numbers.items()
        )
        rung = {} if event.rung is None else {"tunebook.rung": str(event.rung)}
        state = {STATE: "paused"} if event.pauses else {}
        self._tag(event.trial, {"tunebook.epochs": str(event.epoch), **rung, **state})

    def _apply_end(self, event: EndEvent) -> None:
        self._update(event.trial).status = (status_of(event.state), milliseconds(event.time))
        state = state_in_words(event.state)
        self._tag(event.trial, {STATE: state, OUTCOME: event.state, REASON: event.reason})
        trial = self.record.trials[event.trial]
        if trial.repeat is None:
            if trial.end == "finished" and (
                self._leader is None
                or sign_of(self.mode) * (self._score(trial) - self._score(self._leader)) > 0.0
            ):
                self._leader = trial
            if self._leader is not None:
                at = milliseconds(event.time)
                best = Point(f"best_{self._objective}", self._score(self._leader), at, self._epochs_trained)
                self._update(None).points.append(best)
        self.record.forget_epochs(event.trial)

    def scores(self, trial: Trial) -> dict[str, float]:
        """Return how good a finished trial's network is: its last numbers of validation, and what the final
        says of its recipe."""
        last = self.numbers(trial.history[-1])
        validation = {key: value for key, value in last.items() if key.startswith("val_")}
        return {**validation, **final_numbers(self._summarised().finals).get(trial.id, {})}

    def numbers(self, event: EpochEvent) -> dict[str, float]:
        """Return the numbers of an epoch that MLflow gets: all, or a few and those that a person added.

        The objective comes first: MLflow's pages keep the order.
        """
        numbers = event.result.metrics()
        named = numbers if self._every_metric else [*FEW_METRICS, *event.result.extra_metrics]
        return {key: numbers[key] for key in dict.fromkeys([self._objective, *named]) if key in numbers}

    @property
    def mode(self) -> Mode:
        """Whether a higher or a lower objective is better."""
        settled = self.record.settled
        return (settled.mode if settled is not None else None) or OBJECTIVES[self._objective]

    def _score(self, finished: Trial) -> float:
        return finished.metrics[self._objective]

    def _open_trials(self) -> list[Trial]:
        return [self.record.trials[number] for number in self.record.open_trials]

    def _end_search(self, status: Status, state: str, reason: str | None) -> None:
        at, summary = milliseconds(self.record.latest), self._summarised()
        self._update(None).status = (status, at)
        totals = self._totals(summary).items()
        self._update(None).points.extend(
            Point(key, float(value), at, summary.epochs_trained) for key, value in totals
        )
        for finalist, numbers in final_numbers(summary.finals).items():
            # at the finalist's last epoch: sent again, it is the same point; the final of an extended search,
            # which may have other finalists, says it one step later
            trial = self.record.trials[finalist]
            of_final, step = milliseconds(trial.history[-1].time), trial.epochs + self.record.extensions
            self._update(finalist).points.extend(
                Point(key, value, of_final, step) for key, value in numbers.items()
            )
        self._tag(None, {STATE: state, REASON: reason})
        for trial in self._open_trials():
            self._update(trial.id).status = ("KILLED", at)
            self._tag(trial.id, {STATE: "interrupted"})

    def _reopen(self, run: RunOwner, state: str) -> None:
        self._update(run).status = ("RUNNING", milliseconds(self.record.latest))
        self._tag(run, {STATE: state})

    def _summarised(self) -> Summary:
        record = self.record
        return summarise(record, record.latest, objective=self._objective, epochs=self._epochs, locked=False)

    def _totals(self, summary: Summary) -> dict[str, float]:
        """Return the search in numbers."""
        numbers: dict[str, float] = {
            "epochs_trained": summary.epochs_trained,
            "epochs_if_unpruned": summary.epochs_if_unpruned,
            "trials": len(summary.trials),
        }
        for state, count in Counter(trial.state for trial in summary.trials).items():
            numbers[f"trials_{state}"] = count
        if (turnaround := summary.turnaround) is not None:
            numbers["slots_total_seconds"] = turnaround.total_seconds
            for name in IN_WORDS:
                numbers[f"slots_{name}_seconds"] = turnaround.seconds(name)
                numbers[f"slots_{name}_share"] = turnaround.share(name)
        if summary.best is not None:
            numbers[f"best_{self._objective}"] = summary.best.metrics[self._objective]
            numbers |= {
                "best_trial": summary.best.id,
                **final_numbers(summary.finals).get(summary.best.id, {}),
            }
        return numbers

    def _update(self, run: RunOwner) -> RunUpdate:
        return self.updates.setdefault(run, RunUpdate())

    def _tag(self, run: RunOwner, tags: Mapping[str, str | None]) -> None:
        shortened = {key: clip(value, LONGEST_TAG) for key, value in tags.items() if value is not None}
        self._update(run).tags.update(shortened)


def _place_tags(attempts: Sequence[Sequence[Place]]) -> dict[str, str]:
    """Return where a trial's last attempt trains: its machines, each once, and by rank GPUs and processes;
    and a line on each of its attempts, the last first, since a long tag is cut."""
    last = attempts[-1]
    gpus = [gpu.in_full for each in last for gpu in each.gpus]
    return {
        "tunebook.machine": listed(dict.fromkeys(each.on for each in last)),
        "tunebook.gpu": ", ".join(gpus) or "none",
        "tunebook.process": ", ".join(str(each.process) for each in last),
        "tunebook.places": "\n".join(
            f"attempt {number}: {in_full(attempts[number - 1]) or 'not known'}"
            for number in range(len(attempts), 0, -1)
        ),
    }


def status_of(outcome: TrialEnd) -> Status:
    """Return MLflow's word for how a trial ended; the tags `tunebook.state` and `tunebook.outcome` say more.

    MLflow's pages mark what was killed as they mark what has failed, with a red cross; a trial that was
    stopped early, or not trained since it breaks a limit, has done what it should.
    """
    match outcome:
        case "finished" | "stopped" | "infeasible":
            return "FINISHED"
        case "diverged":
            return "KILLED"
        case "failed":
            return "FAILED"


def written(value: Value) -> str:
    """Return a value as a recipe's YAML has it: `0.1`, `true`, `null`, and words without quotes."""
    return value if isinstance(value, str) else json.dumps(value)


def clip(text: str, length: int) -> str:
    """Return the text, or its beginning with an ellipsis where it is longer."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def milliseconds(seconds: float) -> int:
    """Convert Unix time in seconds to milliseconds, as MLflow counts it."""
    return round(seconds * 1000)
