"""Defines the Ledger: what a search knows and decides, one event at a time.

Everything it knows comes from the journal: a live event is first written, then applied by the same function
that replays old ones. A Ledger rebuilt after a kill therefore proposes the same trials and makes the same
decisions as one that never stopped. It trains nothing and uses no clock; only the driver's thread uses it.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import version
from typing import Literal, assert_never

from search.deciding.finalists import missing_repeats
from search.deciding.new_events import check_event, new_trial, recipe_of, repeated_trial
from search.deciding.sampler import Sampler, SamplerBridge
from search.deciding.scheduler import Scheduler
from search.record.journal import (
    CostEvent,
    DriverStart,
    EndEvent,
    EpochEvent,
    Event,
    ExtendEvent,
    Journal,
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
from search.record.machines import LeftOut
from search.record.record import Record
from search.record.trials import HOURS_SPENT, Trial
from search.study.first import FirstTrial
from search.study.objective import NO_CONSTRAINTS, Constraints
from search.study.study import Finalists
from spaces.domains import Value
from spaces.settled import tree_of
from spaces.space import Space
from trainable.errors import FaultyInput
from trainable.recipe import Recipe
from trainable.recipe.network_cost import NetworkCost
from trainable.training.metrics import OBJECTIVES, EpochResult
from trainable.tune.place import Place

# for each trial of the budget, so many may break a constraint and be replaced by others: measuring one takes
# seconds. It is our choice; where more than three quarters of the draws break a constraint, fewer trials are
# trained than the budget has
MOST_INFEASIBLE = 3


class Decision(Enum):
    """What a trial does after an epoch, or after its network was measured."""

    CONTINUE = "continue"
    PAUSE = "pause"  # the trial frees its worker, and may be proposed again: its checkpoint stays
    STOP = "stop"


@dataclass(frozen=True)
class Proposal:
    """A trial to be trained: a new one, a paused one, or one that a driver left unfinished."""

    trial: int
    values: Mapping[str, Value]  # the values by dotted path
    recipe: Recipe


@dataclass
class TrialBudget:
    """How many trials a search may have, how many it has proposed, and how many broke a constraint.

    Trials that repeat another one do not count.
    """

    trials: int
    proposed: int = 0
    infeasible: int = 0

    @property
    def is_spent(self) -> bool:
        """Whether the budget's trials were proposed."""
        return self.spent >= self.trials

    @property
    def spent(self) -> int:
        """How many trials count. Those that break a constraint do not, up to `MOST_INFEASIBLE` for each trial
        of the budget."""
        return self.proposed - min(self.infeasible, MOST_INFEASIBLE * self.trials)


class Ledger:
    """The memory of one search: its journal, its sampler and its scheduler.

    `trials` and `epochs` are the budget: how many trials, and how many epochs the longest trains; `metric` is
    the objective; `why` is the reason for the scheduler's rungs, in words; `constraints` says what a trial's
    network may cost; `first` are the trials that a person asked for; `finalists` says how the best trials are
    trained again; `goal` says in words, of the trials so far, why no more are needed, or None. On
    construction the journal's events are replayed. Raises JournalError where they contradict each other, the
    space or the study.
    """

    def __init__(  # noqa: PLR0913 - what a search settles, by name: a journal is replayed without its study
        self,
        journal: Journal,
        space: Space,
        sampler: Sampler,
        scheduler: Scheduler,
        *,
        trials: int,
        epochs: int,
        metric: str,
        why: str = "",
        constraints: Constraints = NO_CONSTRAINTS,
        first: Sequence[FirstTrial] = (),
        finalists: Finalists | None = None,
        goal: Callable[[Sequence[Trial]], str | None] = lambda trials: None,
    ) -> None:
        self._journal = journal
        self._space = space
        self._scheduler = scheduler
        self._budget = TrialBudget(trials)
        self._metric = metric
        self._goal = goal
        # which goal is reached, in words: from then on only finalists are trained
        self.reached: str | None = None
        self._record = Record(where=str(journal.path))
        self._draws = SamplerBridge(sampler, scheduler, self._record, metric)
        # how trials end, and why, whose end is not journaled yet
        self._decided_ends: dict[int, tuple[TrialEnd, str | None]] = {}
        self._settled = SettledEvent(
            space=tree_of(space),
            rungs=scheduler.rungs,
            factor=scheduler.factor,
            scheduler=scheduler.kind,
            why=why,
            objective=metric,
            mode=None if metric in OBJECTIVES else scheduler.direction,
            epochs=epochs,
            constraints=constraints,
            networks_differ=space.networks_differ,
            first=tuple(first),
            finalists=finalists,
            version=version("tunebook"),
        )
        self._paused: dict[int, int] = {}  # the rung at which each paused trial waits
        for event in journal.events:
            began = event if isinstance(event, SettledEvent) else self._record.settled or self._settled
            check_event(event, space, self._settled, began.version, str(journal.path))
            self._apply(event)
        self._end_decided()
        self._unfinished = list(self.open_trials)  # `_next` passes over paused ones
        audits = any(self._record.trials[number].purpose == "pruning" for number in self._unfinished)
        # whether this driver trains stopped trials to their end, and proposes nothing new
        self._audits = audits and self._record.was_finished

    def begin(
        self,
        name: str,
        versions: Mapping[str, str] | None = None,
        git_commit: str | None = None,
        weights: Mapping[str, str] | None = None,
        start: DriverStart | None = None,
    ) -> str:
        """Journal that the search starts, with its settled space and rungs, or goes on.

        `versions` (package -> version), `git_commit` and `weights` (network -> digest of its file) are what
        this driver runs with, `start` is how it has started. Return the search's id, which never changes.
        """
        state: Literal["started", "resumed"] = "started" if self.search_id is None else "resumed"
        search_id = self.search_id or uuid.uuid4().hex
        self._write(
            SearchEvent(
                state=state,
                search_id=search_id,
                name=name,
                versions=dict(versions or {}),
                git_commit=git_commit,
                weights=dict(weights or {}),
                start=start,
            )
        )
        if self._record.settled is None:
            self._write(self._settled)
        return search_id

    def close(self, state: Literal["finished", "interrupted", "failed"], reason: str | None = None) -> None:
        """Journal how this driver leaves the search. Raises ValueError where none has begun."""
        if self.search_id is None:
            raise ValueError("a search that has not begun cannot end")
        self._write(SearchEvent(state=state, search_id=self.search_id, name=self._record.name, reason=reason))

    def propose(self) -> Proposal | None:
        """Return the next trial to train; None where there is none, or none until another trial has ended.

        1. Trials that earlier drivers left unfinished, in the order of their numbers.
        2. Paused trials that may go on.
        3. New trials, as many as the budget has: the documented recipe, those that a person asked for, those
           that the sampler draws. One whose values make no recipe has failed, and the next one is proposed.
           For one that breaks a constraint another one is proposed later.
        4. When nothing else is left to train, at least one paused trial of each rung. What stays paused ends
           as stopped.
        5. When all of these have ended, the runs of the finalists.
        """
        while (number := self._next()) is not None:
            try:
                return self._proposal(number)
            except FaultyInput as error:
                self.fail(number, f"its values make no recipe: {'; '.join(map(str, error.faults))}")
        return None

    def propose_again(self, trial: int) -> Proposal | None:
        """Return a trial whose last attempt failed; if it has ended or paused, what `propose` returns."""
        return self._proposal(trial) if self._decision(trial) is Decision.CONTINUE else self.propose()

    def start(self, trial: int, epoch: int) -> None:
        """Journal that an attempt begins, with `epoch` epochs done (those of its checkpoint)."""
        if self._decision(trial) is Decision.CONTINUE:
            self._write(StartEvent(trial=trial, attempt=self.attempts(trial) + 1, epoch=epoch))

    def place(self, trial: int, ranks: tuple[Place, ...]) -> None:
        """Journal where an attempt trains, one place a rank."""
        if self._decision(trial) is Decision.CONTINUE:
            self._write(PlaceEvent(trial=trial, ranks=ranks))

    def leave_out(self, what: LeftOut) -> None:
        """Journal that a machine, or a GPU of one, trains no more trials of this driver."""
        self._write(LeftOutEvent(where=what.where, why=what.why))

    def lacks_cost(self, trial: int) -> bool:
        """Return whether a trial's network must be measured before the trial is trained."""
        found = self._record.trials[trial]
        return self._settled.measures_costs and found.cost is None and not found.is_repeat

    def cost(self, trial: int, cost: NetworkCost) -> Decision:
        """Journal what a trial's network costs, and decide: one that breaks a constraint ends the trial. A
        cost that is known already changes nothing."""
        if self._decision(trial) is Decision.CONTINUE and self.lacks_cost(trial):
            self._write(CostEvent(trial=trial, cost=cost))
            self._end_decided()
        return self._decision(trial)

    def epoch(self, trial: int, result: EpochResult) -> Decision:
        """Journal an epoch and decide; if it ends the trial, or a paused one, that end is journaled too.

        A trial that pauses, and is itself the next to go on, goes on at once. An epoch that the journal has
        already (a crash came before its checkpoint, so it was trained again) changes nothing: the first
        result counts. For an epoch after the trial's end the decision is to stop. Raises JournalError where
        epochs are left out, or the objective is missing.
        """
        if self._decision(trial) is Decision.CONTINUE and result.epoch > self.epochs_done(trial):
            trained = self._record.trials[trial]
            rung = None if trained.is_repeat else self._scheduler.rung_at(result.epoch)
            pauses = self._scheduler.pauses and rung is not None and not (trained.own or result.diverged)
            self._write(EpochEvent(trial=trial, result=result, rung=rung, pauses=pauses))
            self._end_decided()
            if trial in self._paused and self._promoted() == trial:
                self._write(PromotionEvent(trial=trial, rung=result.epoch))
        return self._decision(trial)

    def recover(self, trial: int, history: Sequence[EpochResult]) -> Decision:
        """Journal the epochs that a trial's checkpoint covers and the journal lacks, and decide.

        They are lost when a driver dies between a checkpoint and its result. STOP means that they ended the
        trial.
        """
        for result in sorted(history, key=lambda result: result.epoch):
            self.epoch(trial, result)
        return self._decision(trial)

    def retry(self, trial: int, reason: str) -> None:
        """Journal that an attempt failed and that another one follows."""
        if self._decision(trial) is Decision.CONTINUE:
            self._write(RetryEvent(trial=trial, reason=reason))

    def fail(self, trial: int, reason: str) -> None:
        """Journal that a trial crashed for good; if it has ended already, the first end counts."""
        if self._decision(trial) is Decision.CONTINUE:
            self._write(EndEvent(trial=trial, state="failed", reason=reason))

    def cut_short(self, reason: str = HOURS_SPENT) -> None:
        """Journal every trial that has not ended as stopped, for a reason of `CUT_SHORT`."""
        self._stop_paused()
        for number in self.open_trials:
            self._write(EndEvent(trial=number, state="stopped", reason=reason))

    def train_on(self, trials: Sequence[int]) -> None:
        """Journal that these stopped trials are trained to their end. If there are any, only they and
        unfinished trials are proposed from now on."""
        self._audits = self._audits or bool(trials)
        self._unfinished += [self._add_repeat(Repeat(of=each, purpose="pruning")) for each in trials]

    def extend(self, trials: int) -> None:
        """Journal that the budget has so many trials from now on; those that exist count."""
        self._audits = False
        self._write(ExtendEvent(trials=trials))

    @property
    def search_id(self) -> str | None:
        """The id that names the search for good; None before its first `begin`."""
        return self._record.search_id

    @property
    def trials(self) -> int:
        """The number of trials, which are numbered from 0."""
        return len(self._record.trials)

    @property
    def budget(self) -> int:
        """The number of trials that the search may have, beside those that repeat others."""
        return self._budget.trials

    @property
    def open_trials(self) -> tuple[int, ...]:
        """The trials that have not ended."""
        return self._record.open_trials

    @property
    def paused_trials(self) -> Collection[int]:
        """The open trials that wait at a rung; their checkpoints are needed."""
        return self._paused.keys()

    @property
    def is_complete(self) -> bool:
        """Whether all trials of the budget, and all runs of finalists, were proposed and have ended."""
        return self._needs_none and not self.open_trials and not any(self._missing_repeats())

    @property
    def lacks_final(self) -> bool:
        """Whether a run of a finalist is missing or has not ended, with the best trials as they are now."""
        trains = any(self._record.trials[number].purpose == "finalist" for number in self.open_trials)
        return trains or any(self._missing_repeats())

    def gpu_hours(self, until: float) -> float:
        """Return the GPU-hours that count against the study's, up to `until`, in seconds since 1970."""
        return self._record.gpu_seconds_of_budget(until) / 3600.0

    @property
    def has_finished_trial(self) -> bool:
        """Whether any trial has been trained to its last epoch."""
        return any(trial.end == "finished" for trial in self._record.trials)

    def ended(self, trial: int) -> TrialEnd | None:
        """Return how a trial ended, or None while it is queued or train."""
        return self._record.trials[trial].end

    def epochs_done(self, trial: int) -> int:
        """Return the last epoch of a trial that the journal holds."""
        return self._record.trials[trial].epochs

    def attempts(self, trial: int) -> int:
        """Return how often a trial was started."""
        return self._record.trials[trial].attempts

    def _next(self) -> int | None:
        """Return the next trial that `propose` names. A promotion, a new trial and the ends of paused ones
        are journaled."""
        while self._unfinished:
            number = self._unfinished.pop(0)
            if self._decision(number) is Decision.CONTINUE:
                return number
        if (promoted := self._promoted()) is not None:
            self._write(PromotionEvent(trial=promoted, rung=self._paused[promoted]))
            return promoted
        if self._needs_none or self._audits:
            if self._trains_nothing:
                self._stop_paused()
            return self._next_repeat()
        number = self.trials
        index = number - self._record.repeats
        self._write(new_trial(self._space, number, index, self._settled.first, self._draws.draw))
        return number

    def _promoted(self) -> int | None:
        """Return the paused trial that goes on next; if nothing else is left to train, at least one of each
        rung does."""
        is_last = self._needs_none and self._trains_nothing
        return self._scheduler.promoted(self._paused, least=1 if is_last else 0) if self._paused else None

    @property
    def _needs_none(self) -> bool:
        """Whether no new trial is needed: the budget's were proposed, or a goal is reached."""
        return self._budget.is_spent or self.reached is not None

    @property
    def _trains_nothing(self) -> bool:
        """Whether every trial that has not ended is paused."""
        return len(self._paused) == len(self.open_trials)

    @property
    def _trains_repeats_alone(self) -> bool:
        """Whether every trial that has not ended is a finalist's run."""
        return all(self._record.trials[number].is_repeat for number in self.open_trials)

    def _stop_paused(self) -> None:
        """Journal the end of the paused trials that may not go on."""
        for number, rung in sorted(self._paused.items()):
            if not self._scheduler.rank_at(number, rung).goes_on:
                self._write(EndEvent(trial=number, state="stopped", reason=self._why_stopped(number, rung)))

    def _next_repeat(self) -> int | None:
        """Return the next run of a finalist, which is journaled; None where none is left, or while a trial
        of the search itself trains."""
        if not self._trains_repeats_alone:
            return None
        repeat = next(self._missing_repeats(), None)
        return None if repeat is None else self._add_repeat(repeat)

    def _missing_repeats(self) -> Iterator[Repeat]:
        finalists = None if self._audits else self._settled.finalists
        return missing_repeats(finalists, self._record, self._metric, self._scheduler.direction)

    def _add_repeat(self, repeat: Repeat) -> int:
        number = self.trials
        self._write(repeated_trial(self._space, number, self._record.trials[repeat.of], repeat))
        return number

    def _proposal(self, number: int) -> Proposal:
        trial = self._record.trials[number]
        return Proposal(number, trial.values, recipe_of(self._space, trial))

    def _decision(self, number: int) -> Decision:
        """Return what a trial does now."""
        if number in self._paused:
            return Decision.PAUSE
        return Decision.CONTINUE if self.ended(number) is None else Decision.STOP

    def _write(self, event: Event) -> None:
        """Journal an event that may come next, and apply it."""
        self._record.check(event)
        self._apply(self._journal.append(event))

    def _end_decided(self) -> None:
        """Journal the ends that the last epoch has decided; a kill may fall between the lines. If they reach
        a goal, the trials of the search that are under way end, too."""
        for number, (state, reason) in tuple(self._decided_ends.items()):
            self._write(EndEvent(trial=number, state=state, reason=reason))
        if self.reached is not None and not self._trains_repeats_alone:
            self.cut_short(self.reached)

    def _apply(self, event: Event) -> None:
        """Apply one event, live or replayed; nothing else changes what is known of a trial."""
        self._record.apply(event)
        match event:
            case TrialEvent(repeat=None):
                self._budget.proposed += 1
                self._draws.add(event)
            case ExtendEvent():
                self._budget.trials, self.reached = event.trials, None
            case CostEvent():
                if found := self._record.broken(event.trial):
                    self._decided_ends[event.trial] = ("infeasible", found)
            case EpochEvent():
                self._decide(event)
            case PromotionEvent():
                self._paused.pop(event.trial, None)
                self._draws.report(event.trial)
            case EndEvent():
                self._decided_ends.pop(event.trial, None)
                self._paused.pop(event.trial, None)
                if not self._record.trials[event.trial].is_repeat:
                    self._budget.infeasible += event.state == "infeasible"
                    self._draws.tell(event.trial, event.state)
                    self._look_at_goal()
                self._record.forget_epochs(event.trial)
            case SearchEvent() | SettledEvent() | LeftOutEvent() | TrialEvent():
                pass
            case StartEvent() | PlaceEvent() | RetryEvent():
                pass
            case _:
                assert_never(event)

    def _look_at_goal(self) -> None:
        """Note whether the trials reach a goal. One that is reached stays so; what an extension asks for is
        trained in any case."""
        if self.reached is None and not self._record.extensions:
            self.reached = self._goal(self._record.trials)

    def _decide(self, event: EpochEvent) -> None:
        """Note how an epoch ends its trial, if it does."""
        if event.diverged:
            self._decided_ends[event.trial] = ("diverged", f"the loss was not finite in epoch {event.epoch}")
            return
        trial, value = self._record.trials[event.trial], event.result.score(self._metric)
        assert value is not None, "an epoch without it is refused"
        goes_on = trial.is_repeat or self._scheduler.report(event.trial, event.epoch, value, exempt=trial.own)
        if event.epoch >= self._settled.epochs:
            self._decided_ends[event.trial] = ("finished", None)
        elif event.pauses:
            self._pause(event)
        elif not goes_on:
            self._decided_ends[event.trial] = ("stopped", self._why_stopped(event.trial, event.epoch))
        elif event.rung is not None:
            self._draws.report(event.trial)

    def _pause(self, event: EpochEvent) -> None:
        """Note that a trial is paused, and which paused trials end, as too many others are better."""
        self._paused[event.trial] = event.epoch
        self._draws.tell(event.trial, "stopped")
        for number in self._scheduler.hopeless(self._paused, self._budget.trials):
            self._decided_ends[number] = ("stopped", self._why_stopped(number, self._paused[number]))

    def _why_stopped(self, number: int, rung: int) -> str:
        value = self._record.trials[number].scores(self._metric)[rung]
        return f"{self._metric} {value:.4g} at epoch {rung} {self._scheduler.why(number, rung)}"


def extended(record: Record, trials: int, more: int) -> int:
    """Return the new budget of a search of `trials` that goes on with so many more.

    Where the search is over, they come on top of the trials that it has: if the hours ended it, the rest of
    its old budget is not made up for. One that was interrupted still has that rest.
    """
    if not record.was_finished and record.state != "failed":
        return trials + more
    proposed = len(record.trials) - record.repeats
    infeasible = sum(trial.end == "infeasible" for trial in record.trials)
    if_all_are_replaced = proposed - infeasible + more
    if_too_many_are_infeasible = math.ceil((proposed + more) / (1 + MOST_INFEASIBLE))
    return max(if_all_are_replaced, if_too_many_are_infeasible)
