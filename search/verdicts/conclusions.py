"""Writes what a search that is over has found, for its run in MLflow."""

from __future__ import annotations

from typing import NamedTuple

from search.record.summary import Summary
from search.record.verdicts import Verdicts
from search.verdicts.words import markdown, mlflow_table
from spaces.domains import shown


class Conclusion(NamedTuple):
    """Holds what the search's own run in MLflow gets when the search is over."""

    note: str
    """The note is Markdown."""
    table: str
    """The table is JSON as MLflow's `log_table` writes it, with one row for each rule."""


def conclusion(summary: Summary) -> Conclusion:
    """Returns the best trial and the verdicts as a note, and the verdicts as a table."""
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
