"""Writes the note on a search's run in MLflow: what was planned, what came of it, and where to see more."""

from __future__ import annotations

from shlex import quote

from search.followers.conclusions import Conclusion
from search.followers.saved_view import AGAIN, view_page
from search.study import Study
from trainable.markdown import code, plain


def plan(study: Study, address: str) -> str:
    """Return what a study plans, and the command that shows the search, in a paragraph."""
    budget, objective = study.budget, study.objective
    return (
        f"{budget.trials} trials of up to {budget.epochs} epochs on {plain(study.data.path)}, "
        f"for {plain(objective.metric)} ({objective.direction}). {code(f'tunebook show {quote(address)}')}"
    )


def links(experiment_id: str, search_id: str, *, repeats: bool = False, report: str = "") -> str:
    """Return links to the report's page, where it has one, and to the trials in MLflow's own pages.

    With `repeats` there is one to the trials that repeat others.
    """
    table, charts = view_page(experiment_id, search_id), view_page(experiment_id, search_id, charts=True)
    pages = [f"[Trials]({table})", f"[Charts]({charts})"]
    if repeats:
        pages.append(f"[Trained again]({view_page(experiment_id, f'{search_id}{AGAIN}')})")
    if report:
        pages.insert(0, f"[Report]({report}) (rungs, beliefs, importances)")
    return " · ".join(pages)


def reproduce(address: str) -> str:
    """Return the commands that train the best recipe again."""
    export = code(f"tunebook export {quote(address)} -o best.yaml")
    return f"**Again**: {export}, then `tunebook train best.yaml --out model --test`"


def whole(conclusion: Conclusion, links: str, more: list[str]) -> str:
    """Return the note of a search that is over: the links first, then the answer.

    MLflow folds a long note after some four lines, and what it fades out there cannot be clicked.
    """
    return "\n\n".join(filter(None, [links, conclusion.answer, *more, conclusion.rules]))
