"""The Ledger: what a search knows and decides, one event at a time.

Everything it knows comes from the journal: a live event is first written, then applied by the same function
that replays old ones. A Ledger rebuilt after a kill therefore proposes the same trials and takes the same
decisions as one that never stopped. It trains nothing and knows no clock; only the driver's thread uses it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from search.deciding.sampler import Sampler
from search.deciding.scheduler import Asha
from search.record.journal import (
    EndEvent,
    EpochEvent,
    Event,
    Journal,
    Outcome,
    RetryEvent,
    SearchEvent,
    StartEvent,
    TrialEvent,
)
from spaces.domains import SpaceError, Value
from spaces.space import Space
from trainable.errors import FaultyInput, UserError
from trainable.recipe import Recipe
from trainable.training.metrics import EpochResult

CHANGED = "The study or the version of tunebook has changed since the search began; start a new search"


class Decision(Enum):
    """What a trial does after an epoch."""

    CONTINUE = "continue"
    STOP = "stop"


@dataclass(frozen=True)
class Proposal:
    """A trial to be trained: a new one, or one that an earlier driver left unfinished."""

    trial: int
    values: Mapping[str, Value]
    """By dotted path."""
    recipe: Recipe
    attempt: int
    """The attempt that starts next, counting from 1 over the trial's whole life."""
    own: bool
    """The documents' own recipe: the baseline, exempt from pruning."""


@dataclass
class _Trial:
    """A trial as the events so far tell it."""

    values: Mapping[str, Value]
    own: bool
    attempts: int = 0
    scores: dict[int, float] = field(default_factory=dict)
    """The objective by epoch; a diverged epoch has none."""
    epochs: int = 0
    verdict: tuple[Outcome, str | None] | None = None
    """How the last epoch ends the trial, and why; None while it goes on."""
    end: Outcome | None = None


class Ledger:
    """Journal, sampler and scheduler of one search, as one.

    `trials` and `epochs` are the budget: how many trials, and how many epochs the longest trains; `metric` is
    the objective. On construction the journal's events are replayed. Raises UserError where they contradict
    the study.
    """

    def __init__(
        self,
        journal: Journal,
        space: Space,
        sampler: Sampler,
        scheduler: Asha,
        *,
        trials: int,
        epochs: int,
        metric: str,
    ) -> None:
        self._journal = journal
        self._space = space
        self._sampler = sampler
        self._scheduler = scheduler
        self._budget = trials
        self._epochs = epochs
        self._metric = metric
        self._trials: list[_Trial] = []
        self.search_id: str | None = None
        """Names the search for good; None before its first `begin`."""
        self._name = ""
        for event in journal.events:
            self._check(event)
            self._apply(event)
        for number in range(len(self._trials)):
            self._settle(number)
        self._unfinished = [number for number, trial in enumerate(self._trials) if trial.end is None]

    def begin(self, name: str) -> str:
        """Journal that the search starts, or goes on; returns its id, the same for life."""
        state: Literal["started", "resumed"] = "started" if self.search_id is None else "resumed"
        search_id = self.search_id or uuid.uuid4().hex
        self._record(SearchEvent(state=state, search_id=search_id, name=name))
        return search_id

    def close(self, state: Literal["finished", "interrupted", "failed"], reason: str | None = None) -> None:
        """Journal how this driver leaves the search. Raises ValueError where none has begun."""
        if self.search_id is None:
            raise ValueError("a search that has not begun cannot end")
        self._record(SearchEvent(state=state, search_id=self.search_id, name=self._name, reason=reason))

    def propose(self) -> Proposal | None:
        """The next trial to train, or None when the budget is handed out.

        Unfinished trials of earlier drivers come first, lowest number first, with the values that they had;
        then new ones: number 0 is the documents' own recipe, the others are the sampler's. One whose values
        make no recipe has failed, and the next is proposed: not all that a space can draw is tried before.
        """
        while (number := self._next()) is not None:
            try:
                return self._proposal(number)
            except FaultyInput as error:
                self.fail(number, f"its values make no recipe: {'; '.join(map(str, error.faults))}")
        return None

    def start(self, trial: int, epoch: int) -> None:
        """Journal that an attempt begins, with `epoch` epochs done (those of its checkpoint)."""
        self._record(StartEvent(trial=trial, attempt=self._trials[trial].attempts + 1, epoch=epoch))

    def epoch(self, trial: int, result: EpochResult) -> Decision:
        """Journal an epoch and decide; the trial's end, if this is it, is journaled too.

        An epoch known already (trained again after a crash, before its checkpoint) changes nothing: the first
        result counts, and its decision is returned. One that arrives after the trial's end is told to stop.
        Raises ValueError where epochs are left out, UserError where the objective is missing.
        """
        if self._decision(trial) is Decision.CONTINUE and result.epoch > self._trials[trial].epochs:
            event = EpochEvent(
                trial=trial,
                epoch=result.epoch,
                metrics=result.metrics(),
                diverged=result.diverged,
                rung=self._scheduler.rung_at(result.epoch),
            )
            self._check(event)
            self._record(event)
            self._settle(trial)
        return self._decision(trial)

    def recover(self, trial: int, history: Sequence[EpochResult]) -> Decision:
        """Journal the epochs that a trial's checkpoint covers and the journal lacks, and decide.

        They are lost when a driver dies between a checkpoint and its result. STOP: they ended the trial.
        """
        for result in sorted(history, key=lambda result: result.epoch):
            self.epoch(trial, result)
        return self._decision(trial)

    def retry(self, trial: int, reason: str) -> None:
        """Journal that an attempt failed and that another one follows."""
        self._record(RetryEvent(trial=trial, reason=reason))

    def fail(self, trial: int, reason: str) -> None:
        """Journal that a trial crashed for good; of one that has ended already, the first end counts."""
        if self._trials[trial].end is None:
            self._record(EndEvent(trial=trial, state="failed", reason=reason))

    def cut_short(self, reason: str) -> None:
        """Journal every trial that has not ended as stopped: the search is over before its budget."""
        for number, trial in enumerate(self._trials):
            if trial.end is None:
                self._record(EndEvent(trial=number, state="stopped", reason=reason))

    @property
    def trials(self) -> int:
        """How many trials there are, numbered from 0."""
        return len(self._trials)

    @property
    def open_trials(self) -> tuple[int, ...]:
        """The trials that have not ended."""
        return tuple(number for number, trial in enumerate(self._trials) if trial.end is None)

    @property
    def has_finished_trial(self) -> bool:
        """Whether any trial has been trained to its last epoch."""
        return any(trial.end == "finished" for trial in self._trials)

    def ended(self, trial: int) -> Outcome | None:
        """How a trial ended, or None while it is queued or trains."""
        return self._trials[trial].end

    def epochs_done(self, trial: int) -> int:
        """The last epoch of a trial that the journal holds."""
        return self._trials[trial].epochs

    def attempts(self, trial: int) -> int:
        """How often a trial was started."""
        return self._trials[trial].attempts

    def _next(self) -> int | None:
        """The next trial that has not ended: one that is left, or a new one, which is journaled."""
        while self._unfinished:
            number = self._unfinished.pop(0)
            if self._trials[number].end is None:
                return number
        number = len(self._trials)
        if number >= self._budget:
            return None
        own = number == 0
        values = self._space.own if own else self._sampler.ask(number)
        self._record(TrialEvent(trial=number, values=dict(values), own=own))
        return number

    def _proposal(self, number: int) -> Proposal:
        trial = self._trials[number]
        recipe = self._space.recipe(trial.values)
        return Proposal(number, trial.values, recipe, attempt=trial.attempts + 1, own=trial.own)

    def _decision(self, number: int) -> Decision:
        """What the trial does now; every epoch before its end was told to continue."""
        return Decision.CONTINUE if self._trials[number].end is None else Decision.STOP

    def _record(self, event: Event) -> None:
        self._apply(self._journal.append(event))

    def _settle(self, number: int) -> None:
        """Journal the end that a trial's last epoch decided; a kill may fall between the two lines."""
        trial = self._trials[number]
        if trial.verdict is not None and trial.end is None:
            state, reason = trial.verdict
            self._record(EndEvent(trial=number, state=state, reason=reason))

    def _check(self, event: Event) -> None:
        """Refuse an event that this study cannot have written, before it changes anything."""
        match event:
            case TrialEvent():
                self._check_values(event)
            case EpochEvent():
                self._check_epoch(event, self._trials[event.trial].epochs + 1)
            case SearchEvent() | StartEvent() | RetryEvent() | EndEvent():
                pass

    def _check_values(self, event: TrialEvent) -> None:
        try:
            self._space.named(event.values)
        except SpaceError as error:
            raise UserError(
                f"{self._journal.path}: trial {event.trial} is no point of this study's space any more: "
                f"{'; '.join(map(str, error.faults))}. {CHANGED}"
            ) from None

    def _check_epoch(self, event: EpochEvent, expected: int) -> None:
        place = f"trial {event.trial}, epoch {event.epoch}"
        if event.epoch != expected:
            raise ValueError(
                f"{place}: expected epoch {expected}; epochs of a checkpoint are recovered first"
            )
        if not event.diverged and self._metric not in event.metrics:
            raise UserError(
                f"{place}: no metric {self._metric!r} to compare trials by; known: {', '.join(event.metrics)}"
            )
        if event.rung != (rung := self._scheduler.rung_at(event.epoch)):
            raise UserError(
                f"{place}: the journal says rung {event.rung}, the study {rung}; "
                f"the rungs of a search cannot change once it has started. {CHANGED}"
            )

    def _apply(self, event: Event) -> None:
        """Take in one event, live or replayed: the only place where what is known of a trial changes."""
        match event:
            case SearchEvent():
                self.search_id, self._name = event.search_id, event.name
            case TrialEvent():
                self._trials.append(_Trial(event.values, event.own))
                self._sampler.add(event.trial, event.values)
            case StartEvent():
                self._trials[event.trial].attempts = event.attempt
            case EpochEvent():
                self._apply_epoch(event, self._trials[event.trial])
            case RetryEvent():
                pass
            case EndEvent():
                trial = self._trials[event.trial]
                trial.end = event.state
                self._sampler.tell(event.trial, event.state, trial.scores)

    def _apply_epoch(self, event: EpochEvent, trial: _Trial) -> None:
        trial.epochs = event.epoch
        if event.diverged:
            trial.verdict = ("diverged", f"the loss was not finite in epoch {event.epoch}")
            return
        value = trial.scores[event.epoch] = event.metrics[self._metric]
        goes_on = self._scheduler.report(event.trial, event.epoch, value, exempt=trial.own)
        if event.epoch >= self._epochs:
            trial.verdict = ("finished", None)
        elif not goes_on:
            trial.verdict = ("stopped", self._why_stopped(event.trial, event.epoch, value))

    def _why_stopped(self, number: int, rung: int, value: float) -> str:
        rank, count, kept = self._scheduler.standing(number, rung)
        go_on = "the best goes on" if kept == 1 else f"the best {kept} go on"
        return f"{self._metric} {value:.4g} at epoch {rung} ranks {rank} of {count}; {go_on}"
