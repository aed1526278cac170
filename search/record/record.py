"""Folds a journal's events into what they say of a search and of its trials; nothing else folds them.

The ledger, the summary, MLflow's outbox and Optuna's mirror all read a search from here. Each event is
checked against those before it: one that a search cannot have written is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never

from search.record.chain import JournalError
from search.record.home import EVENTS_FILE
from search.record.journal import (
    AfterTrialEvent,
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
    SearchState,
    SettledEvent,
    StartEvent,
    TrialEnd,
    TrialEvent,
)
from search.record.machines import LeftOut, Machine, MachineAccount
from search.record.trials import Trial
from search.record.turnaround import SlotTime, Turnaround
from search.study.first import FirstTrial
from search.study.objective import NO_CONSTRAINTS, Constraints
from spaces.domains import SpaceError
from spaces.settled import space_from
from spaces.space import Space
from trainable.recipe import digest_of
from trainable.recipe.distillation import SECTION
from trainable.recipe.trees import sharing


class Record:
    """What the events so far say of a search; `where` names the journal in errors."""

    def __init__(self, events: Iterable[Event] = (), where: str = EVENTS_FILE) -> None:
        self.search_id: str | None = None  # it is None before the search began
        self.name = ""
        self.state: SearchState | None = None  # the search's state by the last event of a driver
        self.reason: str | None = None
        # whether a driver has ended it as finished. An audit of its pruning does not change that, an
        # extension does
        self.was_finished = False
        self.settled: SettledEvent | None = None
        # the budget's trials, where it was extended; None where it is the study's
        self.extended_to: int | None = None
        self.extensions = 0  # how often it was extended
        # the trials in the order of their numbers, those among them that repeat others
        self.trials: list[Trial] = []
        self.repeats = 0  # how many of them repeat others
        # by dotted path, how many trials have a value there, in the order in which these came up
        self.fields: Counter[str] = Counter()
        # the trials that have not ended. They are kept, so that nobody looks at all trials for them
        self._open: dict[int, None] = {}
        self.began: float | None = None  # when the first driver began
        self.latest = 0.0  # when the last event was written
        self._where = where
        self._driver: SearchEvent | None = None  # how the last driver began
        self._seconds_before = 0.0
        self._slot_time = SlotTime()
        self._machines = MachineAccount()
        self._left_out: dict[str, str] = {}  # by machine or GPU, why; of the last driver
        self._extended_after = 0.0  # the seconds under a driver before the last extension
        self._gpu_seconds = 0.0  # that trials held GPUs, since the last extension, in attempts that are over
        self._held_since: dict[int, float] = {}  # when the attempts under way began
        for event in events:
            self.apply(event)

    @property
    def is_over(self) -> bool:
        """Whether the last driver has ended, in whichever way."""
        return self.state in ("finished", "interrupted", "failed")

    @property
    def open_trials(self) -> tuple[int, ...]:
        """The numbers of the trials that have not ended, rising."""
        return tuple(self._open)

    def space(self) -> Space | None:
        """Return the space that the search draws from; None before its settled event.

        Raises JournalError where the recorded tree is no space.
        """
        if self.settled is None:
            return None
        try:
            return space_from(self.settled.space, f"{self._where}: the settled space")
        except SpaceError as error:
            raise JournalError(str(error)) from None

    @property
    def constraints(self) -> Constraints:
        """What the network of a trial may cost at most."""
        return self.settled.constraints if self.settled is not None else NO_CONSTRAINTS

    @property
    def measures_costs(self) -> bool:
        """Whether each trial's network is measured before it is trained."""
        return self.settled is not None and self.settled.measures_costs

    def excesses(self, number: int) -> dict[str, float]:
        """Return by what share of its limit each of a trial's costs is above it; empty without costs."""
        cost = self.trials[number].cost
        return self.constraints.excesses(cost) if cost is not None else {}

    def broken(self, number: int) -> str | None:
        """Return in words which constraints a trial breaks; None where none are known to be broken."""
        cost = self.trials[number].cost
        return self.constraints.broken(cost) if cost is not None else None

    def seconds(self, until: float) -> float:
        """Return the seconds under a driver, over all drivers; one at work counts up to `until`."""
        if self._driver is None or self.is_over:
            return self._seconds_before
        return self._seconds_before + max(0.0, until - self._driver.time)

    def turnaround(self, until: float) -> Turnaround | None:
        """Return what the time of the search's slots was used for; that of a driver at work up to `until`.

        None before a driver has begun, and where an earlier version of tunebook has driven the search.
        """
        return self._slot_time.turnaround(until)

    def machines(self, until: float) -> tuple[Machine, ...]:
        """Return what each machine did; nothing where an earlier version has driven the search."""
        return self._machines.rows(self.seconds(until))

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The machines and GPUs that a driver has left out."""
        return tuple(LeftOut(where=where, why=why) for where, why in self._left_out.items())

    @property
    def seconds_of_budget(self) -> float:
        """The seconds under a driver that count against the study's hours: those since the last extension."""
        return self.seconds(self.latest) - self._extended_after

    def gpu_seconds_of_budget(self, until: float) -> float:
        """Return the seconds of GPUs that trials held since the last extension; those under way count up to
        `until`."""
        return self._gpu_seconds + self._gpus * sum(
            max(0.0, until - each) for each in self._held_since.values()
        )

    @property
    def _gpus(self) -> float:
        """So many GPUs a trial of the last driver reserves."""
        return self._driver.start.gpus if self._driver is not None and self._driver.start is not None else 0.0

    def apply(self, event: Event) -> None:
        """Apply the journal's next event. Raises JournalError for one that cannot follow."""
        self.check(event)
        match event:
            case SearchEvent():
                self._apply_search(event)
            case SettledEvent():
                self.settled = event
            case ExtendEvent():
                self.extended_to, self.was_finished = event.trials, False
                self.extensions, self._extended_after = self.extensions + 1, self.seconds(event.time)
            case TrialEvent():
                self._queue(event)
            case StartEvent():
                self._start(event)
            case LeftOutEvent():
                self._left_out[event.where] = event.why
            case PlaceEvent():
                for place in event.ranks:  # it has come back, and can train
                    self._left_out.pop(place.on, None)
                self._change(event.trial, places=(*self.trials[event.trial].places[:-1], event.ranks))
            case CostEvent():
                self._change(event.trial, cost=event.cost)
            case EpochEvent():
                trial = self.trials[event.trial]
                going_on = {"trains": trial.trains and not event.pauses, "waits": event.pauses}
                self._change(event.trial, history=(*trial.history, event), **going_on)
            case PromotionEvent():
                self._change(event.trial, trains=True, waits=False)
            case RetryEvent():
                self._change(event.trial, trains=False, outcome_reason=event.reason)
            case EndEvent():
                ended = {"end": event.state, "outcome_reason": event.reason}
                self._change(event.trial, trains=False, waits=False, **ended)
                del self._open[event.trial]
            case _:
                assert_never(event)
        self._count_gpus(event)
        self._slot_time.apply(event)
        self._machines.apply(event, self.seconds(event.time), self._work(event))
        self.latest = event.time

    def forget_epochs(self, number: int) -> None:
        """Forget the epochs of a trial that has ended, but its last one.

        For readers that never look at them again: an epoch takes 2 KB of memory.
        """
        self._change(number, history=self.trials[number].history[-1:])

    def check(self, event: Event) -> None:
        """Raise JournalError, which says what was expected, for an event that cannot come next."""
        if fault := fault_of(self, event):
            line = f"line {event.sequence + 1}" if event.sequence >= 0 else "the next event"
            raise JournalError(f"{self._where}: {line}: {fault}")

    def _work(self, event: Event) -> str:
        """Return what the seconds of a trial that begins depend on, beside its machine; nothing of other
        events."""
        if not isinstance(event, PlaceEvent):
            return ""
        trial = self.trials[event.trial]
        if not trial.recipe:
            return ""
        loop, techniques = trial.recipe["loop"], trial.recipe["augmentation"]
        if techniques["size"]["kind"] != "fixed":
            return f"trial {trial.id}: its images grow"
        kinds = [each["kind"] for each in techniques.values() if isinstance(each, Mapping) and "kind" in each]
        taught = trial.recipe.get(SECTION) is not None
        frozen = trial.recipe["model"].get("freeze_epochs")
        return f"{trial.network} {loop['batch_size']} {loop['compile']} {kinds} {taught} {frozen}"

    def _count_gpus(self, event: Event) -> None:
        """Count the time in which trials hold GPUs: from the start of an attempt until it ends or pauses."""
        match event:
            case StartEvent() | PromotionEvent():
                self._held_since.setdefault(event.trial, event.time)
            case EpochEvent(pauses=True) | RetryEvent() | EndEvent():
                if (since := self._held_since.pop(event.trial, None)) is not None:
                    self._gpu_seconds += self._gpus * max(0.0, event.time - since)
            case SearchEvent(state="finished" | "interrupted" | "failed"):
                self._gpu_seconds = self.gpu_seconds_of_budget(event.time)
                self._held_since.clear()
            case ExtendEvent():
                self._gpu_seconds, self._held_since = 0.0, dict.fromkeys(self._held_since, event.time)
            case _:
                pass

    def _apply_search(self, event: SearchEvent) -> None:
        match event.state:
            case "started" | "resumed":
                # a driver that was killed wrote no end: it worked until its last event
                self._gpu_seconds = self.gpu_seconds_of_budget(self.latest)
                self._held_since.clear()
                self._seconds_before, self._driver = self.seconds(self.latest), event
                self._left_out.clear()
                self.trials = [replace(trial, trains=False) for trial in self.trials]
            case "finished" | "interrupted" | "failed":
                self._seconds_before = self.seconds(event.time)
        self.name, self.search_id = event.name, event.search_id
        self.state, self.reason = event.state, event.reason
        self.was_finished = self.was_finished or event.state == "finished"
        self.began = event.time if self.began is None else self.began

    def _queue(self, event: TrialEvent) -> None:
        others = (trial.recipe for trial in self.trials)
        like = next((recipe for recipe in others if recipe is not None), None)
        queued = Trial(
            id=event.trial,
            values=event.values,
            own=event.own,
            first=event.first,
            repeat=event.repeat,
            recipe=sharing(event.recipe, like),
            digest=event.digest,
            queued=event.time,
        )
        self.trials.append(queued)
        self.repeats += queued.is_repeat
        self.fields.update(event.values.keys())
        self._open[event.trial] = None

    def _start(self, event: StartEvent) -> None:
        assert self._driver is not None, "no trial is taken in before"
        started = self.trials[event.trial].started
        self._change(
            event.trial,
            attempts=event.attempt,
            places=(*self.trials[event.trial].places, ()),
            trains=True,
            started=event.time if started is None else started,
            versions=self._driver.versions,
            git_commit=self._driver.git_commit,
            weights=self._driver.weights,
            outcome_reason=None,
        )

    def _change(self, number: int, **changes: Any) -> None:
        self.trials[number] = replace(self.trials[number], **changes)


def fault_of(record: Record, event: Event) -> str | None:
    """Return what was expected instead of the event; None where it may come next."""
    if record.search_id is None and not (isinstance(event, SearchEvent) and event.state == "started"):
        return f"expected the start of a search, got {event.event}"
    match event:
        case SearchEvent():
            return _search_fault(record, event)
        case SettledEvent():
            return None if record.settled is None else "expected one settled space, got another"
        case ExtendEvent():
            return "expected the settled space, got an extension" if record.settled is None else None
        case LeftOutEvent():
            return None
        case TrialEvent():
            return _trial_fault(record, event)
        case (
            StartEvent()
            | PlaceEvent()
            | CostEvent()
            | EpochEvent()
            | PromotionEvent()
            | RetryEvent()
            | EndEvent()
        ):
            if event.trial >= len(record.trials):
                return f"expected a trial below {len(record.trials)}, got {event.trial}"
            return _fault_in_trial(record, event, record.trials[event.trial])
        case _:
            assert_never(event)


def _search_fault(record: Record, event: SearchEvent) -> str | None:
    if record.search_id is None:
        return None
    if event.state == "started":
        return "expected one start of a search, got another"
    if (event.search_id, event.name) != (record.search_id, record.name):
        return f"expected search {record.name} ({record.search_id}), got {event.name} ({event.search_id})"
    return None


def _trial_fault(record: Record, event: TrialEvent) -> str | None:
    if record.settled is None:
        return f"expected the settled space, got trial {event.trial}"
    if event.trial != len(record.trials):
        return f"expected trial {len(record.trials)}, got trial {event.trial}"
    if event.repeat is not None and (fault := _repeat_fault(record, event.repeat)):
        return f"trial {event.trial}: {fault}"
    if fault := _first_fault(record, event, record.settled.first):
        return f"trial {event.trial}: {fault}"
    found = None if event.recipe is None else digest_of(event.recipe)
    if found != event.digest:
        return f"trial {event.trial}: expected a recipe of digest {event.digest}, got one of {found}"
    return None


def _first_fault(record: Record, event: TrialEvent, asked: Sequence[FirstTrial]) -> str | None:
    index = event.trial - record.repeats
    if event.repeat is not None:
        expected = record.trials[event.repeat.of].first
    elif 0 < index <= len(asked):
        first = asked[index - 1]
        if (event.first, event.values, event.recipe) == (first.mark, first.values, first.recipe):
            return None
        return f"expected the first trial of {first.source}, as it was settled, got another one"
    else:
        expected = None
    if event.first != expected:
        return f"expected {expected or 'no first trial'}, got {event.first or 'none'}"
    return None


def _repeat_fault(record: Record, repeat: Repeat) -> str | None:
    original = record.trials[repeat.of] if repeat.of < len(record.trials) else None
    wanted: TrialEnd = "finished" if repeat.purpose == "finalist" else "stopped"
    if original is None or original.is_repeat or original.end != wanted:
        return f"expected to repeat a trial that was {wanted}, got trial {repeat.of}"
    return None


def _fault_in_trial(record: Record, event: AfterTrialEvent, trial: Trial) -> str | None:
    where = f"trial {trial.id}"
    if trial.end is not None:
        return f"{where}: expected nothing after its end, got {event.event}"
    match event:
        case PromotionEvent() if not trial.waits or event.rung != trial.epochs:
            return f"{where}: it does not wait at rung {event.rung}, and is promoted from it"
        case StartEvent() | PlaceEvent() | CostEvent() | EpochEvent() | RetryEvent() if trial.waits:
            return f"{where}: expected its promotion from rung {trial.epochs}, got {event.event}"
        case StartEvent() if event.attempt != trial.attempts + 1:
            return f"{where}: expected attempt {trial.attempts + 1}, got {event.attempt}"
        case PlaceEvent() if not trial.trains:
            return f"{where}: expected an attempt to begin first, got its place"
        case CostEvent() if trial.cost is not None or trial.repeat or not record.measures_costs:
            return f"{where}: expected no cost, got one"
        case EpochEvent() if found := record.broken(trial.id):
            return f"{where}: expected its end, since {found}; got an epoch"
        case EndEvent(state="infeasible") if not record.broken(trial.id):
            return f"{where}: infeasible, and breaks no constraint"
        case EpochEvent():
            fault = _epoch_fault(record, event, trial)
            return None if fault is None else f"{where}, epoch {event.epoch}: {fault}"
        case EndEvent(state="finished") if not trial.history or trial.history[-1].diverged:
            return f"{where}: finished, and has no score"
        case _:
            return None


def _epoch_fault(record: Record, event: EpochEvent, trial: Trial) -> str | None:
    assert record.settled is not None, "no trial is taken in before"
    if event.epoch != trial.epochs + 1:
        return f"expected epoch {trial.epochs + 1}"
    if trial.history and trial.history[-1].diverged:
        return "expected none after the epoch that diverged"
    if event.epoch > record.settled.epochs:
        return f"expected {record.settled.epochs} epochs at most"
    rungs = () if trial.is_repeat else record.settled.rungs
    if event.rung != (rung := event.epoch if event.epoch in rungs else None):
        return f"expected rung {rung}, got {event.rung}"
    compared = rung is not None and not event.diverged and not trial.own
    if event.pauses != (pauses := record.settled.scheduler == "promotion" and compared):
        return f"expected {'a' if pauses else 'no'} pause"
    if not event.diverged and event.result.score(record.settled.objective) is None:
        known = ", ".join(event.result.metrics())
        return f"no metric {record.settled.objective!r} to compare trials by; known: {known}"
    return None
