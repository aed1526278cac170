"""What a search of a study does, as a table, in the order in which it is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from search.deciding.finalists import Final
from search.deciding.forecast import Forecast
from search.deciding.pruning import Pruning, bits_of
from search.facts.start import Start
from search.record.clock import time_limit
from search.study import Study
from search.study.first import First
from spaces.conditions import scalars_of
from spaces.domains import Value, shown
from spaces.facts import Facts
from spaces.rules.distillation import gain_to_expect
from spaces.rules.tasks import rules_of
from spaces.space import RuleValue, Space
from trainable.recipe.base import with_guide_names
from trainable.recipe.models import ENCODER, MODEL_NAME

PLAN = "plan"  # its title
OWN = "the documented recipe"
OTHERWISE = "`tunebook search --weights none` trains from scratch, --model NAME another network"
MODEL = "where a model of all rungs expects the largest gain"
NEAR_THE_BEST = "near the best trials"
LEARNT = {"auto": f"{MODEL}, or {NEAR_THE_BEST}", "mutation": NEAR_THE_BEST, "gp": MODEL}
EVERY_FIFTH = "every fifth trial evenly"
DRAWN = {
    **{kind: f"evenly and from the priors, then more and more {how}" for kind, how in LEARNT.items()},
    "prior-tpe": f"from the priors, then more and more by TPE; {EVERY_FIFTH}",
    "tpe": "priors are not used",
    "random": "from the priors",
    "qmc": "from the priors, spread by a Sobol sequence",
}
DRAWN_WITHOUT_PRIORS = {
    **{kind: f"evenly at first, then {how}; {EVERY_FIFTH}" for kind, how in LEARNT.items()},
    "prior-tpe": "by TPE, since there are no priors",
    "random": "evenly, since there are no priors",
    "qmc": "spread by a Sobol sequence, since there are no priors",
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a search of a study does, as it is decided before the first trial."""

    study: Study
    space: Space
    pruning: Pruning
    final: Final
    facts: Facts
    has_begun: bool = False  # then the facts are recorded ones, and no rule is asked again
    start: Start | None = None  # what was found for a study that names no network
    first: Sequence[First] = ()  # the first trials of the study
    learned: Sequence[str] = ()  # for each earlier search what it taught
    forecast: Callable[[], Forecast] | None = None  # what the search takes: it takes seconds to say


def plan_table(plan: Plan) -> Table:
    """Return the plan as a table."""
    table = Table(title=PLAN, title_justify="left", box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, words in plan_rows(plan):
        table.add_row(name, words)
    return table


def plan_rows(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield what is decided, each with its name and in words."""
    study, space, facts = plan.study, plan.space, None if plan.has_begun else plan.facts
    budget, objective = study.budget, study.objective
    length = [] if facts is None else [("length", _length(facts))]
    gain = None if facts is None else gain_to_expect(facts)
    teacher = [] if gain is None else [("teacher", f"{gain.reason} ({gain.source})")]
    hours = f", {time_limit(budget.hours)} at most" if budget.hours is not None else ""
    limits = str(objective.constraints)
    better = "highest" if objective.direction == "max" else "lowest"
    yield from (
        *_start(space, plan.start),
        ("budget", f"{budget.trials} trials of {budget.epochs} epochs at most{hours}"),
        *length,
        *teacher,
        ("first trial", first_trial(study, space, begun=plan.has_begun)),
        *((f"trial {at}", str(each)) for at, each in enumerate(plan.first, start=1)),
        *(("learned from", each) for each in plan.learned),
        ("sampler", f"{study.sampler.kind}, seed {study.seed}: {_drawn(study, space)}"),
        ("objective", f"{objective.metric}, the {better} after a finished trial's last epoch is best"),
        *([("constraints", f"{limits}; what breaks one is not trained")] if limits else []),
        ("early stopping", plan.pruning.describe(budget.epochs)),
        ("finalists", plan.final.words),
    )


def _start(space: Space, start: Start | None) -> Iterator[tuple[str, str]]:
    """Yield the row of the network that a rule gives, or of what a person could do to get one."""
    rules = space.values_by_rule(scalars_of(space.base))
    if (rule := rules.get(MODEL_NAME)) is not None:
        (source,) = with_guide_names([rule.source])
        below = f" above {shown(encoder.value)}" if (encoder := rules.get(ENCODER)) is not None else ""
        yield "network", f"{shown(rule.value)}{below}: {rule.reason} ({source}); {OTHERWISE}"
    elif start is not None and start.hint:
        yield "network", start.hint


def first_trial(study: Study, space: Space, *, begun: bool) -> str:
    """Return which recipe the first trial has: the documented one, with what differs from the documents.

    Only a sweep and a study's options make it differ.
    """
    rules = space.values_by_rule(scalars_of(space.base))
    changes = []
    for path, value in space.own.items():
        if (rule := rules.get(path)) is not None and value != _named(rule):
            why = "as a sweep recommends" if value == rule.value else "the first of the study's options"
            changes.append(f"{path} {shown(value)} instead of {shown(_named(rule))}: {why}")
    if changes:
        return f"{OWN}, with {'; '.join(changes)}"
    sweeps = "lr-find" in study.space.probes and not begun and "optimizer.lr" in space.own
    return f"{OWN}, with a rate that lr-find will recommend" if sweeps else OWN


def _length(facts: Facts) -> str:
    """Return how long the documents would train."""
    wanted = rules_of(facts.task).wanted_epochs(facts)
    (source,) = with_guide_names([wanted.source])
    return f"{wanted.reason} ({source})"


def _named(rule: RuleValue) -> Value:
    """Return the value that the documents name."""
    return rule.value if rule.unswept is None else rule.unswept


def _drawn(study: Study, space: Space) -> str:
    """Return how a sampler of this kind draws from this space."""
    kind = study.sampler.kind
    return DRAWN[kind] if kind == "tpe" or bits_of(study, space) else DRAWN_WITHOUT_PRIORS[kind]
