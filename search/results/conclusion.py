"""What a search that is over has come to, for its run in MLflow."""

from __future__ import annotations

from search.followers.changes import Conclusion
from search.record.summary import Summary
from search.record.verdicts import Verdicts
from search.results.search import Search
from search.verdicts.words import markdown, mlflow_table
from spaces.domains import shown


def conclusion(search: Search) -> Conclusion:
    """The best trial and the verdicts as a note, and the verdicts as a table."""
    verdicts = search.verdicts or Verdicts()
    parts = [_best(search.summary), markdown(verdicts) if verdicts.rules else ""]
    return Conclusion("\n\n".join(filter(None, parts)), mlflow_table(verdicts))


def _best(summary: Summary) -> str:
    best = summary.best
    if best is None:
        return "No trial has finished."
    score = f"{summary.objective} {best.metrics[summary.objective]:.4f}"
    values = ", ".join(f"{path} {shown(value)}" for path, value in best.values.items())
    return f"**Best**: trial {best.id}, {score} after {best.epochs} epochs: {values or 'as the base'}"
