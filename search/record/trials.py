"""What the events so far tell of one trial."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any, Literal, NamedTuple, TypeVar

from search.record.chain import JournalError
from search.record.journal import EndEvent, EpochEvent, Event, PromotionEvent, Repeat, RepeatPurpose, TrialEnd
from search.study.first import First
from spaces.domains import Value, shown
from trainable.errors import RecipeError, visible
from trainable.recipe import Recipe
from trainable.recipe.distillation import SECTION
from trainable.recipe.models import OF_ANY_NETWORK
from trainable.recipe.network_cost import NetworkCost
from trainable.recipe.optimizers import by_own_name
from trainable.training.metrics import EpochResult
from trainable.tune.place import Place

# the reason of trials that ended as stopped because no time was left
HOURS_SPENT = "the budget of hours is spent"
GPU_HOURS_SPENT = "the budget of GPU-hours is spent"
PRICE_SPENT = "the budget's price is spent"
# how the reasons begin of those for which nothing more was needed
TARGET_REACHED = "the target is reached"
NO_MORE_GAIN = "no more gain is expected"
CUT_SHORT = (HOURS_SPENT, GPU_HOURS_SPENT, PRICE_SPENT, TARGET_REACHED, NO_MORE_GAIN)
# a paused trial has started and has not ended, but nothing trains it now: it waits at a rung, or for a retry
# or `resume`
TrialState = Literal["queued", "running", "paused", "finished", "stopped", "diverged", "failed", "infeasible"]
STOPPED_EARLY = "stopped early"  # for people: a trial whose state is `stopped` has not failed
ABSENT = object()  # what a tree has where another one has more


def recipe_key(teacher: str) -> str:
    """Return the name by which `Trial.weights` has the digest of the recipe of a teacher at a path."""
    return f"{teacher}: recipe"


def state_in_words(state: TrialState) -> str:
    """Return a trial's state as people read it: `stopped early` for `stopped`."""
    return STOPPED_EARLY if state == "stopped" else state


@dataclass(frozen=True, kw_only=True, repr=False)
class Trial:
    """One trial, as the events so far tell it; times are seconds since 1970."""

    id: int
    values: Mapping[str, Value]  # the values by dotted path
    own: bool = False  # whether it is the documented recipe
    first: First | None = None  # where a person asked for this recipe; None for other trials
    # which trial's recipe it trains again; None for a trial of the search itself
    repeat: Repeat | None = None
    # the whole recipe as plain data; None where the values make no recipe
    recipe: Mapping[str, Any] | None = None
    digest: str | None = None  # the recipe's digest
    queued: float = 0.0
    started: float | None = None  # when its first attempt began
    attempts: int = 0
    # where the ranks of each attempt were; empty for one of which that is not known
    places: tuple[tuple[Place, ...], ...] = ()
    # the versions of the packages that its last attempt ran with
    versions: Mapping[str, str] = field(default_factory=dict)
    git_commit: str | None = None  # the commit that its last attempt ran with
    # the digests of the files of weights that its last attempt ran with, by the names of networks; those of
    # teachers by `distillation.teacher`, and those of their recipes by `recipe_key`
    weights: Mapping[str, str] = field(default_factory=dict)
    trains: bool = False  # whether an attempt has begun and not ended
    waits: bool = False  # whether it is paused at the rung of its last epoch, until it is promoted or ends
    # what its network costs; None before it is measured, and in a search that measures none
    cost: NetworkCost | None = None
    history: tuple[EpochEvent, ...] = ()
    end: TrialEnd | None = None
    outcome_reason: str | None = None  # why it ended so, or why its last attempt failed
    mlflow_run_id: str | None = None  # it is set by readers that read MLflow's cursor as well

    def __repr__(self) -> str:
        """Return the trial in one line: number and sentence, its last score, and how it ended."""
        name = "val_mean_iou" if "val_mean_iou" in self.metrics else "val_accuracy"
        score = f"; {name} {self.metrics[name]:.4f}" if name in self.metrics else ""
        return visible(f"<Trial {self.numbered_sentence}{score}; {self.state_in_words}>")

    @property
    def state(self) -> TrialState:
        if self.end is not None:
            return self.end
        if self.attempts == 0:
            return "queued"
        return "running" if self.trains else "paused"

    @property
    def state_in_words(self) -> str:
        return state_in_words(self.state)

    @cached_property
    def sentence(self) -> str:
        """What it trains, in words; empty where its values make no recipe of this version."""
        with suppress(RecipeError):
            return "" if self.recipe is None else Recipe.from_tree(self.recipe).sentence
        return ""

    @property
    def numbered_sentence(self) -> str:
        """Its number and what it trains: `7: timm resnet18, pretrained, ...`."""
        return f"{self.id}: {self.sentence}" if self.sentence else str(self.id)

    @property
    def values_by_name(self) -> Mapping[str, Value]:
        """Its values, with an optimizer of timm's by its own name, `muon`."""
        return by_own_name(self.values, self.optimizer_name)

    @property
    def optimizer_name(self) -> str | None:
        """Which of timm's optimizers it trains with, such as `muon`; None for another one."""
        optimizer = (self.recipe or {}).get("optimizer") or {}
        return optimizer.get("name") if optimizer.get("kind") == "timm" else None

    @property
    def network_name(self) -> str:
        """The name of its network; empty where its values make no recipe."""
        model = (self.recipe or {}).get("model") or {}
        name = model.get("name", model.get("kind", ""))
        return f"{name}-{model['encoder']}" if "encoder" in model else name

    @property
    def is_cut_short(self) -> bool:
        """Whether the search ended before it: no rung and no forecast has stopped it."""
        return self.end == "stopped" and (self.outcome_reason or "").startswith(CUT_SHORT)

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
    def purpose(self) -> RepeatPurpose | None:
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
        """The digest of its teacher's recipe; None without a teacher, and of an earlier version's attempt."""
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
        """Return a metric by epoch, without epochs that diverged or did not measure it."""
        pairs = ((event.epoch, event.result.score(metric)) for event in self.history if not event.diverged)
        return {epoch: score for epoch, score in pairs if score is not None}


AnAttempt = TypeVar("AnAttempt")


class UnderWay(dict[int, AnAttempt]):
    """The attempts at trials that are under way, by trial, as whoever reads a journal keeps them.

    A trial that is promoted at once never left its process: its attempt goes on.
    """

    def __init__(self) -> None:
        super().__init__()
        self._paused: tuple[int, AnAttempt] | None = None  # what may go on by the next event

    def hear(self, event: Event) -> AnAttempt | None:
        """Take note of the journal's next event, before all else; return the attempt that goes on by it."""
        if isinstance(event, EndEvent) and event.trial not in self:
            return None  # the ledger ends others between a trial's pause and its promotion
        paused, self._paused = self._paused, None
        if paused is None or not isinstance(event, PromotionEvent) or event.trial != paused[0]:
            return None
        self[event.trial] = paused[1]
        return paused[1]

    def pause(self, trial: int) -> AnAttempt:
        """Remove the attempt that this event pauses, and return it."""
        self._paused = trial, self.pop(trial)
        return self._paused[1]


class Difference(NamedTuple):
    """A dotted path at which two trees differ, and what either has there."""

    path: str
    one: str
    other: str


def first_difference(one: Any, other: Any, path: str = "") -> Difference | None:
    """Return the first value in which two trees differ; None where they are equal."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in dict.fromkeys([*one, *other]):
            inner = f"{path}.{name}" if path else str(name)
            if found := first_difference(one.get(name, ABSENT), other.get(name, ABSENT), inner):
                return found
        return None
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return first_difference(dict(enumerate(one)), dict(enumerate(other)), path)
    return None if one == other else Difference(path, _in_words(one), _in_words(other))


def _in_words(value: Any) -> str:
    """Return a value as it is written; of a section only that it is there, of a list of them how many."""
    if isinstance(value, Mapping):
        return "there"
    if isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        return f"{len(value)} entries"
    return "absent" if value is ABSENT else shown(value)
