"""What a search has found out, from its folder alone: of its best trial's curves, and of the rules."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from search.record.folder import read_facts, read_search, read_summary
from search.record.summary import Summary
from search.record.verdicts import Verdicts
from search.study import Study
from search.study.space import build_space
from search.verdicts.diagnosis import with_diagnosis
from search.verdicts.judging import judge
from search.verdicts.words import markdown, mlflow_table
from spaces.conditions import has
from spaces.domains import shown
from spaces.facts import Facts
from spaces.rules.heuristics import rulings
from spaces.space import Space


class Conclusion(NamedTuple):
    """What the search's own run is told when the search is over."""

    note: str
    """Markdown."""
    table: str
    """JSON as MLflow's `log_table` writes it, of one row a rule."""


def with_conclusions(summary: Summary, study: Study, folder: Path) -> Summary:
    """The summary with the diagnosis of its best trial and the verdicts; as it is before a trial has ended.

    Raises UserError where the folder's facts are missing.
    """
    if not any(trial.ended for trial in summary.trials):
        return summary
    facts, info = read_facts(folder)
    space = build_space(study, facts, info)
    return with_diagnosis(summary, space, info).judged(verdicts_of(summary, space, facts))


def verdicts_of(summary: Summary, space: Space, facts: Facts) -> Verdicts:
    """The verdicts on every rule that gave the space a prior or a value."""
    kept = {
        path: ruling
        for path, ruling in rulings(facts, space.base, space.pins).items()
        if has(space.base, path) and space.base.get(path) == ruling.what
    }
    return judge(space, summary, kept)


def conclusion(folder: Path) -> Conclusion:
    """What a search has come to, for its run in MLflow."""
    study = read_search(folder)
    summary = with_conclusions(read_summary(folder), study, folder)
    verdicts = summary.verdicts or Verdicts()
    parts = [_best(summary), markdown(verdicts) if verdicts.rules else ""]
    return Conclusion("\n\n".join(filter(None, parts)), mlflow_table(verdicts))


def _best(summary: Summary) -> str:
    best = summary.best
    if best is None:
        return "No trial has finished."
    score = f"{summary.objective} {best.metrics[summary.objective]:.4f}"
    values = ", ".join(f"{path} {shown(value)}" for path, value in best.values.items())
    return f"**Best**: trial {best.id}, {score} after {best.epochs} epochs: {values or 'as the base'}"
