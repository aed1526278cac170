"""Folds a journal's events into what they say of a search and of its trials; nothing else folds them.

The ledger, the summary, MLflow's outbox and Optuna's mirror all read trials from here. Each event is checked
against those before it: an event that a search cannot have written is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, Literal, assert_never

from search.record.chain import JournalError
from search.record.differences import first_difference
from search.record.home import EVENTS_FILE
from search.record.journal import (
    CostEvent,
    EndEvent,
    EpochEvent,
    Event,
    ExtendEvent,
    LeftOutEvent,
    Outcome,
    PlaceEvent,
    PromotionEvent,
    RetryEvent,
    SearchEvent,
    SearchState,
    SettledEvent,
    StartEvent,
    TrialEvent,
)
from search.record.machines import LeftOut, Machine, Machines
from search.record.next_event import fault_of
from search.record.repeats import Purpose, Repeat
from search.record.turnaround import SlotTime, Turnaround
from search.study.constraints import NO_CONSTRAINTS, Constraints
from search.study.first import First
from spaces.domains import SpaceError, Value
from spaces.settled import space_from
from spaces.space import Space
from trainable.errors import RecipeError
from trainable.recipe import Recipe
from trainable.recipe.distillation import SECTION
from trainable.recipe.models import OF_ANY_NETWORK
from trainable.recipe.network_cost import NetworkCost
from trainable.recipe.trees import sharing
from trainable.training.metrics import EpochResult
from trainable.tune.place import Place

HOURS_SPENT = "the budget of hours is spent"
"""The reason of trials that ended as stopped because no time was left."""
TrialState = Literal["queued", "running", "paused", "finished", "stopped", "diverged", "failed", "infeasible"]
"""A paused trial has started and has not ended, but nothing trains it now: it waits at a rung, or for a retry
or `resume`."""


def recipe_key(teacher: str) -> str:
    """Return the name by which `Trial.weights` has the digest of the recipe of a teacher at a path."""
    return f"{teacher}: recipe"


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Describes one trial by the events so far; times are seconds since 1970."""

    id: int
    values: Mapping[str, Value]
    """The values by dotted path."""
    own: bool = False
    """Whether it is the documented recipe."""
    first: First | None = None
    """Where a person asked for this recipe; None for other trials."""
    repeat: Repeat | None = None
    """Which trial's recipe it trains again; None for a trial of the search itself."""
    recipe: Mapping[str, Any] | None = None
    """The whole recipe as plain data; None where the values make no recipe."""
    digest: str | None = None
    """The recipe's digest."""
    queued: float = 0.0
    started: float | None = None
    """When its first attempt began."""
    attempts: int = 0
    places: tuple[tuple[Place, ...], ...] = ()
    """Where the ranks of each attempt were; empty for one of which that is not known."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """The versions of the packages that its last attempt ran with."""
    git_commit: str | None = None
    """The commit that its last attempt ran with."""
    weights: Mapping[str, str] = field(default_factory=dict)
    """The digests of the files of weights that its last attempt ran with, by the names of networks; those of
    teachers by `distillation.teacher`, and those of their recipes by `recipe_key`."""
    trains: bool = False
    """Whether an attempt has begun and not ended."""
    waits: bool = False
    """Whether it is paused at the rung of its last epoch, until it is promoted or ends."""
    cost: NetworkCost | None = None
    """What its network costs; None before it is measured, and in a search that measures none."""
    history: tuple[EpochEvent, ...] = ()
    end: Outcome | None = None
    outcome_reason: str | None = None
    """Why it ended so, or why its last attempt failed."""
    mlflow_run_id: str | None = None
    """It is set by readers that read MLflow's cursor as well."""

    @property
    def state(self) -> TrialState:
        if self.end is not None:
            return self.end
        if self.attempts == 0:
            return "queued"
        return "running" if self.trains else "paused"

    @property
    def is_cut_short(self) -> bool:
        """Whether a budget of hours ended before it: no rung and no forecast has stopped it."""
        return self.end == "stopped" and self.outcome_reason == HOURS_SPENT

    @property
    def is_repeat(self) -> bool:
        """Whether it trains the recipe of another trial again."""
        return self.repeat is not None

    @property
    def whole_recipe(self) -> Recipe:
        """The recipe as it was recorded.

        Raises JournalError where the values make none, and where this version would train another one.
        """
        if self.recipe is None:
            reason = f": {self.outcome_reason}" if self.outcome_reason else ""
            raise JournalError(f"trial {self.id}: its values make no recipe{reason}")
        try:
            recipe = Recipe.from_tree(self.recipe)
        except RecipeError as error:
            raise JournalError(f"trial {self.id}: its recipe is refused: {error.faults[0]}") from None
        if found := first_difference(self.recipe, recipe.tree()):
            both = f"is {found.one} in the journal and {found.other} by this version of tunebook"
            known = self.versions.get("tunebook")
            which = f"tunebook {known}, which trained it" if known else "the version that began the search"
            raise JournalError(f"trial {self.id}: {found.path} {both}; use {which}")
        return recipe

    @property
    def purpose(self) -> Purpose | None:
        """Why it trains the recipe of another trial again; None for a trial of the search itself."""
        return None if self.repeat is None else self.repeat.purpose

    @property
    def ended(self) -> bool:
        return self.end is not None

    @property
    def epochs(self) -> int:
        """The last epoch trained; 0 before the first."""
        return self.history[-1].epoch if self.history else 0

    @property
    def results(self) -> tuple[EpochResult, ...]:
        """The results of the epochs so far, in order."""
        return tuple(event.result for event in self.history)

    @property
    def epoch_seconds(self) -> float | None:
        """What its epochs took on average; None before the first."""
        return fmean(each.result.epoch_seconds for each in self.history) if self.history else None

    @property
    def teacher_digest(self) -> str | None:
        """The digest of its teacher's weights, as its last attempt found them; None without a teacher."""
        taught = (self.recipe or {}).get(SECTION)
        return None if taught is None else self.weights.get(taught["teacher"])

    @property
    def teacher_recipe(self) -> str | None:
        """The digest of its teacher's recipe, likewise; None of an attempt by an earlier version, too."""
        taught = (self.recipe or {}).get(SECTION)
        return None if taught is None else self.weights.get(recipe_key(taught["teacher"]))

    @property
    def metrics(self) -> Mapping[str, float]:
        """The last epoch's numbers by name; none before the first."""
        return self.history[-1].result.metrics() if self.history else {}

    @property
    def costs(self) -> Mapping[str, float]:
        """What its network costs, by name; empty where nothing was measured."""
        return self.cost.model_dump() if self.cost is not None else {}

    @property
    def network(self) -> str:
        """What the latency of its network depends on, as text; its number where its recipe is not known."""
        if self.recipe is None:
            return str(self.id)
        model = {name: each for name, each in self.recipe["model"].items() if name not in OF_ANY_NETWORK}
        side = self.recipe["data"]["image_size"]
        parts = [model, side, self.recipe["precision"], self.recipe["evaluation"]]
        return json.dumps(parts, sort_keys=True)

    def scores(self, metric: str) -> dict[int, float]:
        """Returns a metric by epoch, without epochs that diverged or did not measure it."""
        pairs = ((event.epoch, event.result.score(metric)) for event in self.history if not event.diverged)
        return {epoch: score for epoch, score in pairs if score is not None}


class Record:
    """Holds what the events so far say of a search; `where` names the journal in errors."""

    def __init__(self, events: Iterable[Event] = (), where: str = EVENTS_FILE) -> None:
        self.search_id: str | None = None
        """It is None before the search began."""
        self.name = ""
        self.state: SearchState | None = None
        """The search's state by the last event of a driver."""
        self.reason: str | None = None
        self.was_finished = False
        """Whether a driver has ended it as finished. An audit of its pruning does not change that, an
        extension does."""
        self.settled: SettledEvent | None = None
        self.extended_to: int | None = None
        """The budget's trials, where it was extended; None where it is the study's."""
        self.extensions = 0
        """How often it was extended."""
        self.trials: list[Trial] = []
        """The trials in the order of their numbers, those among them that repeat others."""
        self.repeats = 0
        """How many of them repeat others."""
        self.fields: Counter[str] = Counter()
        """By dotted path, how many trials have a value there, in the order in which these came up."""
        self._open: dict[int, None] = {}
        """The trials that have not ended. They are kept, so that nobody looks at all trials for them."""
        self.began: float | None = None
        """When the first driver began."""
        self.latest = 0.0
        """When the last event was written."""
        self._where = where
        self._driver: SearchEvent | None = None
        """How the last driver began."""
        self._seconds_before = 0.0
        self._slot_time = SlotTime()
        self._machines = Machines()
        self._left_out: dict[str, str] = {}  # by machine or GPU, why; of the last driver
        self._extended_after = 0.0
        """The seconds under a driver before the last extension."""
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
        """Returns the space that the search draws from; None before its settled event.

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
        """Returns by what share of its limit each of a trial's costs is above it; empty without costs."""
        cost = self.trials[number].cost
        return self.constraints.excesses(cost) if cost is not None else {}

    def broken(self, number: int) -> str | None:
        """Returns in words which constraints a trial breaks; None where none are known to be broken."""
        cost = self.trials[number].cost
        return self.constraints.broken(cost) if cost is not None else None

    def seconds(self, until: float) -> float:
        """Returns the seconds under a driver, over all drivers; one at work counts up to `until`."""
        if self._driver is None or self.is_over:
            return self._seconds_before
        return self._seconds_before + max(0.0, until - self._driver.time)

    def turnaround(self, until: float) -> Turnaround | None:
        """Returns what the time of the search's slots was used for; that of a driver at work up to `until`.

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
        self._slot_time.apply(event)
        self._machines.apply(event, self.seconds(event.time), self._work(event))
        self.latest = event.time

    def forget_epochs(self, number: int) -> None:
        """Forget the epochs of a trial that has ended, but its last one.

        For readers that never look at them again: an epoch takes 2 KB of memory.
        """
        self._change(number, history=self.trials[number].history[-1:])

    def check(self, event: Event) -> None:
        """Raises JournalError, which says what was expected, for an event that cannot come next."""
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

    def _apply_search(self, event: SearchEvent) -> None:
        match event.state:
            case "started" | "resumed":
                # a driver that was killed wrote no end: it worked until its last event
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
