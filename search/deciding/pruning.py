"""Chooses the rungs at which trials are compared, and how many go on, for the budget and the space.

The choice has a reason in words. The numbers are from benchmarks/results/pruning.md; docs/decisions/0009
explains the choice. As many epochs as possible are saved while a search loses no more than about a fifth of
its worth: its best trial is then as good as that of four fifths as many trials, all trained to the end.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from search.deciding.scheduler import expected_share, first_at_or_after, rungs
from search.record.journal import SettledEvent
from search.study import SchedulerKind, Study, StudyError
from spaces.domains import Choice, is_number, listed
from spaces.space import Space, concentration
from trainable.errors import Fault
from trainable.recipe import Recipe
from trainable.recipe.schedules import SGDR, Cyclic
from trainable.training.schedule import cycle_ends

ALIKE_BITS = 0.5  # from here on draws count as alike: one prior of high confidence is enough
# no trial is stopped in the first eighth of a run. Where trials that are alike have schedules of different
# shapes, none is stopped in the first third: until then 1cycle scores too low and a constant rate too high
OF_THE_RUN, OF_UNEVEN_RUNS = 8, 3
# between trials with these schedules, early scores are compared fairly
SAME_SHAPE = frozenset({"cosine", "poly"})
# the epochs to wait after the warm-up, and after the freeze. Before the rate has risen, trials are ranked by
# how fast it rises; before the whole model is trained, by how long the head alone was trained
BEHIND_WARMUP = BEHIND_FREEZE = 1

WHY_WARM = "trials are first compared one epoch after the longest warm-up"
WHY_THAWED = "trials are first compared one epoch after the longest freeze, in which only the head is trained"
WHY_THIS_PART = {
    OF_THE_RUN: "in the first eighth of a run, scores say little about its end",
    OF_UNEVEN_RUNS: "in the first third of a run, schedules of different shapes cannot be compared",
}
NO_RUNG = "no rung comes before the last epoch"
NUMBERS = {2: "two", 3: "three", 4: "four"}  # in words
UNIFORM = "trials drawn uniformly differ so much that early scores can rank them"


@dataclass(frozen=True)
class Pruning:
    """The epochs after which trials are compared, that one in `factor` goes on, and why, in words."""

    rungs: tuple[int, ...]
    factor: int
    why: str
    kind: SchedulerKind = "asha"

    def brief(self, epochs: int) -> str:
        """Return the choice in words, for trials of this number of epochs."""
        if not self.rungs:
            return "no trial is stopped early"
        saved = 1.0 - expected_share(self.rungs, self.factor, epochs)
        at = "1 epoch" if self.rungs == (1,) else f"{listed(map(str, self.rungs))} epochs"
        after = f"after {at}, where one in {NUMBERS.get(self.factor, self.factor)} goes on"
        saves = f"saves about {saved:.0%} of the epochs"
        match self.kind:
            case "asha":
                return f"compared {after}; this {saves}"
            case "promotion":
                return f"paused {after}; this {saves}"
            case "model":
                return f"compared {after}, then by forecasts after each epoch; comparing alone {saves}"
            case _:
                assert_never(self.kind)

    def describe(self, epochs: int) -> str:
        """Return the choice and its reason in words, for trials of this number of epochs."""
        return f"{self.brief(epochs)}: {self.why}"


class Suggestion(NamedTuple):
    """The first rung, the factor, and whether trials are compared only once; and the reasons."""

    grace: int
    factor: int
    single_rung: bool
    rung_reason: str
    factor_reason: str

    def rungs(self, factor: int, epochs: int) -> tuple[int, ...]:
        """Return the first rung and, unless trials are compared once, later ones in the first half of a run.

        A rung in the second half would save less than its trial has cost already, for a score that the search
        then lacks.
        """
        found = rungs(self.grace, factor, epochs)
        return tuple(
            each for each in found if each == self.grace or (not self.single_rung and 2 * each <= epochs)
        )


def suggested(epochs: int, warmup: float, bits: float, *, uneven: bool, frozen: int = 0) -> Suggestion:
    """Return the pruning that fits a budget and a space.

    Args:
        warmup: the longest that any trial can have, in epochs.
        bits: by how much the priors narrow down the draws, as `bits_of` returns it.
        uneven: whether trials have schedules of different shapes.
        frozen: the most epochs in which any trial trains its head alone.
    """
    alike = bits >= ALIKE_BITS
    part = OF_UNEVEN_RUNS if alike and uneven else OF_THE_RUN
    reasons = {  # where two ask for the same epoch, the first is the reason
        WHY_WARM: math.ceil(warmup) + BEHIND_WARMUP,
        WHY_THAWED: frozen + BEHIND_FREEZE,
        WHY_THIS_PART[part]: math.ceil(epochs / part),
    }
    why = max(reasons, key=lambda each: reasons[each])
    return Suggestion(reasons[why], 2 if alike and uneven else 3, alike, why, _factor_reason(bits))


def choose_pruning(study: Study, space: Space) -> Pruning:
    """Return what the study says of rungs and factor, and what fits where it says nothing.

    A schedule of cycles has its rungs at the ends of cycles, since scores compare only there (arXiv
    1608.03983). Raises StudyError for a written rung that is not at such an end.
    """
    choice, budget = study.scheduler, study.budget
    suggestion = suggested(
        budget.epochs,
        longest_warmup(space),
        bits_of(study, space),
        uneven=has_uneven_schedules(space),
        frozen=math.ceil(_largest(space, "model.freeze_epochs")),
    )
    factor = choice.reduction_factor or suggestion.factor
    match choice.kind:
        case "none":
            return Pruning((), factor, "scheduler.kind is none")
        case "asha" | "promotion" | "model":
            grace, epochs = choice.grace_epochs, budget.epochs
            usual = rungs(grace, factor, epochs) if grace else suggestion.rungs(factor, epochs)
            found = _rungs(study, space, usual)
            why = _why(study, suggestion, space) if found else NO_RUNG
            return Pruning(found, factor, why, choice.kind)
        case _:
            assert_never(choice.kind)


def settled_pruning(settled: SettledEvent | None, study: Study, space: Space) -> Pruning:
    """Return what a search has recorded of rungs and factor; before that, what this version would choose."""
    if settled is None:
        return choose_pruning(study, space)
    return Pruning(settled.rungs, settled.factor, settled.why, settled.scheduler)


def compared_early(recipe: Recipe, pruning: Pruning) -> str:
    """Return, in words, why a recipe of a person's own is compared before its scores say much; empty where
    it is not. The rungs fit the recipes of the space."""
    if not pruning.rungs:
        return ""
    schedule, first = recipe.schedule, pruning.rungs[0]
    if math.ceil(schedule.warmup_epochs) + BEHIND_WARMUP > first:
        return f"its warm-up takes {schedule.warmup_epochs:g} epochs; it is compared after epoch {first}"
    if isinstance(schedule, SGDR | Cyclic):
        within = sorted(set(pruning.rungs) - set(cycle_ends(schedule, recipe.loop.epochs)))
        if within:
            return f"it is compared after epoch {within[0]}, within a cycle of its {schedule.kind} schedule"
    return ""


def bits_of(study: Study, space: Space) -> float:
    """Return the bits by which priors narrow down the draws: 0 where the sampler uses no prior."""
    return 0.0 if study.sampler.kind == "tpe" else concentration(space)


def longest_warmup(space: Space) -> float:
    """Return the longest warm-up that any trial of the space can have, in epochs."""
    return _largest(space, "schedule.warmup_epochs")


def has_uneven_schedules(space: Space) -> bool:
    """Say whether trials have schedules of different shapes: early scores then favour some of them."""
    kinds = {
        option
        for dimension in space.dimensions
        if dimension.path == "schedule.kind" and isinstance(dimension.domain, Choice)
        for option in dimension.domain.options
    }
    return len(kinds) > 1 and not kinds <= SAME_SHAPE


def _rungs(study: Study, space: Space, usual: tuple[int, ...]) -> tuple[int, ...]:
    """Return the written rungs, or else the usual ones; with a schedule of cycles, rungs at their ends."""
    written, epochs, schedule = study.scheduler.rungs, study.budget.epochs, space.base.schedule
    if not isinstance(schedule, SGDR | Cyclic):
        return written if written is not None else usual
    ends = tuple(end for end in cycle_ends(schedule, epochs) if end < epochs)
    if written is None:
        return first_at_or_after(usual, ends)
    if off := sorted(set(written) - set(ends)):
        known = ", ".join(map(str, ends)) or f"none before epoch {epochs}"
        where = f"scores can be compared only at the ends of the {schedule.kind} schedule's cycles: {known}"
        raise StudyError([Fault("scheduler.rungs", f"{off}: {where}")])
    return written


def _largest(space: Space, path: str) -> float:
    """Return the largest number that any trial of the space can have at a path."""
    ends = [space.base.get(path)]
    for dimension in space.dimensions:
        if dimension.path == path:
            ends += dimension.domain.extremes()
    return max(float(end) for end in ends if is_number(end))


# --- in words -----------------------------------------------------------------------------------------


def _why(study: Study, suggestion: Suggestion, space: Space) -> str:
    choice = study.scheduler
    if choice.rungs is not None or choice.grace_epochs is not None:
        then = "the study sets the epochs"
    elif isinstance(space.base.schedule, SGDR | Cyclic):
        then = f"scores can be compared only at the ends of the {space.base.schedule.kind} schedule's cycles"
    else:
        then = suggestion.rung_reason
    hard = suggestion.factor_reason if choice.reduction_factor is None else "the study sets how many go on"
    return f"{then}; {hard}"


def _factor_reason(bits: float) -> str:
    if bits >= ALIKE_BITS:
        return f"the priors make trials similar ({bits:.1f} bits), so early scores say less"
    return f"the priors are too weak ({bits:.2g} bits) to make trials similar" if bits else UNIFORM
