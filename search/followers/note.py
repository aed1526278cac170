"""Writes the note on a search's run in MLflow: what was planned, what came of it, and where to see more."""

from __future__ import annotations

from shlex import quote

from search.followers.saved_view import AGAIN, run_page, view_page
from search.study import Study
from search.verdicts.conclusions import Conclusion


def plan(study: Study, address: str) -> str:
    """Returns what a study plans, and the command that shows the search, in a paragraph."""
    budget, objective = study.budget, study.objective
    return (
        f"{budget.trials} trials of up to {budget.epochs} epochs on {study.data.path}, "
        f"for {objective.metric} ({objective.direction}). `tunebook show {quote(address)}`"
    )


def links(experiment_id: str, search_id: str, *, repeats: bool = False) -> str:
    """Returns the links to the search's trials in MLflow's own pages, and to those that repeat others."""
    table, charts = view_page(experiment_id, search_id), view_page(experiment_id, search_id, charts=True)
    again = f" · [Trained again]({view_page(experiment_id, f'{search_id}{AGAIN}')})" if repeats else ""
    return f"[Trials]({table}) · [Charts]({charts}){again}"


def report_link(experiment_id: str, run_id: str, file: str) -> str:
    """Returns a link to the report among the run's files, and what MLflow's pages lack."""
    return (
        f"[Report]({run_page(experiment_id, run_id, file)}): rungs, what was believed drawn over the trials, "
        "importances, which MLflow has no view for"
    )


def reproduce(address: str) -> str:
    """Returns the commands that train the best recipe again."""
    folder = quote(address)
    return (
        f"**Again**: `tunebook export {folder} -o best.yaml`, then "
        "`tunebook train best.yaml --out model --test`"
    )


def whole(conclusion: Conclusion, more: list[str]) -> str:
    """Returns the note of a search that is over: the answer first, as MLflow folds long notes."""
    return "\n\n".join(filter(None, [conclusion.answer, *more, conclusion.rules]))
