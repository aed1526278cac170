"""What people read in MLflow of a search: its note, and what it has found when it is over."""

from __future__ import annotations

from shlex import quote
from typing import NamedTuple

from search.followers.saved_view import AGAIN
from search.learning.verdicts import markdown, mlflow_table
from search.record.clock import duration
from search.record.cursor import view_page
from search.record.summary import Summary
from search.record.verdicts import Verdicts
from search.study import Study
from spaces.domains import shown
from trainable.markdown import code, plain


class Conclusion(NamedTuple):
    """What the search's own run in MLflow gets when the search is over."""

    answer: str  # the best trial and what the search cost, in Markdown
    rules: str  # the verdicts on the rules, in Markdown; empty before a trial has ended
    table: str  # the table is JSON as MLflow's `log_table` writes it, with one row for each rule


def conclusion(summary: Summary, final: str = "") -> Conclusion:
    """Return the best trial, the budget spent and saved, and the verdicts as Markdown and as a table.

    `final` says in a sentence what the best trials came to that were trained again.
    """
    verdicts = summary.verdicts or Verdicts()
    rules = markdown(verdicts) if verdicts.rules else ""
    again = f"**Trained again**: {plain(final)}" if final else ""
    times = summary.turnaround
    time_used = "" if times is None else f"**Where the time went** ({times.whole}): {times.figures}"
    sentence = summary.best.sentence if summary.best is not None else ""
    trained = f"**What it trains**: {plain(sentence)}" if sentence else ""
    spent = f"**Spent**: {summary.epochs_in_words}; {duration(summary.wall_seconds)}"
    work = [spent, time_used, _machines(summary)]
    why = summary.outcome_reason if summary.state == "finished" else None
    ended = f"**Ended early**: {plain(why)}" if why else ""
    parts = [_best(summary), _cautions(summary), again, trained, ended, *work, _values(summary)]
    answer = "\n\n".join(filter(None, parts))
    return Conclusion(answer, rules, mlflow_table(verdicts))


def _cautions(summary: Summary) -> str:
    """Return what to know before the answer is trusted, briefly: MLflow folds a note after some four lines,
    which several cautions fill. So the best trial stands above them."""
    words = "; ".join(plain(each.brief) for each in summary.cautions)
    return f"**Before you trust the answer**: {words}" if words else ""


def _best(summary: Summary) -> str:
    best, metric = summary.best, summary.objective
    if best is None:
        return "No trial has finished."
    winner = summary.finals.winner if summary.finals is not None else None
    own, name = summary.documented, plain(metric)
    score = f"{name} {best.metrics[metric]:.4f} after {best.epochs} epochs"
    if winner is not None and (known := winner.estimate) is not None:
        score = f"{name} {known.value:.4f} with fresh seeds, {winner.score:.4f} in the search"
    if own is None or own.id == best.id or metric not in own.metrics:
        return f"**Best**: trial {best.id}, {score}"
    return f"**Best**: trial {best.id}, {score}; the documented recipe {own.metrics[metric]:.4f}"


def _machines(summary: Summary) -> str:
    did = summary.machines if len(summary.machines) > 1 else ()
    said = "; ".join(plain(str(each)) for each in (*did, *summary.left_out))
    return f"**Machines**: {said}" if said else ""


def _values(summary: Summary) -> str:
    if summary.best is None:
        return ""
    values = ", ".join(f"{path} {shown(value)}" for path, value in summary.best.values_by_name.items())
    return f"**Its values**: {plain(values) or 'as the base'}"


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
