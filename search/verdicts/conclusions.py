"""What a search has found out, from its folder alone: of its best trial's curves, and of the rules."""

from __future__ import annotations

from pathlib import Path

from search.followers.changes import Conclusion
from search.record.folder import read_facts, read_search, read_summary
from search.record.summary import Summary
from search.running.prepare import build_space
from search.study import Study
from search.verdicts.diagnosis import with_diagnosis
from search.verdicts.judging import judge
from search.verdicts.records import Verdicts
from search.verdicts.words import markdown, mlflow_table
from spaces.conditions import settled_values
from spaces.domains import shown
from spaces.space import Space


def with_conclusions(summary: Summary, study: Study, folder: Path) -> Summary:
    """The summary with the diagnosis of its best trial and the verdicts; as it is before a trial has ended.

    Raises UserError where the folder's facts are missing.
    """
    if not any(trial.ended for trial in summary.trials):
        return summary
    facts, info = read_facts(folder)
    space = build_space(study, facts, info)
    return with_diagnosis(summary, space, info).judged(verdicts_of(summary, space))


def verdicts_of(summary: Summary, space: Space) -> Verdicts:
    """The verdicts on every rule that gave the space a prior or a value."""
    values = settled_values(space.base)
    ruled = space.values_by_rule(values).items()
    return judge(space, summary, {path: rule for path, rule in ruled if values[path] == rule.value})


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
