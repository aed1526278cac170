"""The report as one page of HTML that needs no network, and no script to be read, and its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from search.learning.search import Search
from search.learning.verdicts import FEW_TRIALS, in_places
from search.record.clock import duration
from search.record.home import REPORT_DATA_FILE, REPORT_FILE
from search.record.trials import STOPPED_EARLY, state_in_words
from search.reporting.charts import (
    MOST_CLOSER,
    closer_curves,
    cost_plots,
    curves,
    other_look,
    progress_plots,
    troubles,
    workers,
)
from search.reporting.content import (
    ComparedSearch,
    FinalistRow,
    Report,
    ReportedLabels,
    ReportedMasks,
    TrialRow,
)
from search.reporting.tables import RANK_ALIKE, audit_lines
from search.reporting.values import side_by_side, tiles
from spaces.domains import Values, shown
from trainable.errors import UserError
from trainable.recipe.optimizers import by_own_name
from trainable.recipe.provenance import AGREE
from trainable.recipe.yamlfile import write_whole
from trainable.terminal import program_name, visible_lines
from trainable.training.metrics import sign_of

LEGEND = (
    ("best", "the best"),
    ("own", "documented recipe"),
    ("finished", "finished"),
    ("stopped", STOPPED_EARLY),
    ("diverged", "diverged"),
    ("failed", "failed"),
    ("infeasible", "breaks a limit"),
    ("running", "running"),
    ("paused", "paused"),
)
MOST_CLASSES = 20  # with more, list the most frequent confusions; a matrix would not fit
MOST_PAIRS = 30
MOST_WARNINGS = 7  # with more, the curves would leave the first screen of a phone
DIGITS = 4  # so many significant digits of numbers are written for the cards of trials


def page(report: Report) -> str:
    """Return the page, whole in itself."""
    return _page(report, file_text("page.js"))


def live_page(report: Report) -> str:
    """Return the page for a server that tells it when there is more (`search.reporting.live`)."""
    return _page(report, file_text("page.js") + file_text("live.js"))


def _page(report: Report, script: str) -> str:
    charts = _charts(report)
    return (
        templates()
        .get_template("page.html")
        .render(
            report=report,
            style=file_text("page.css"),
            script=script,
            data=_visible(data_of(report)),
            contents=list(_contents(report, charts)),
            **charts,
            **_tables(report),
        )
    )


def _charts(report: Report) -> dict[str, Any]:
    drawn, untested = tiles(report), []
    if len(report.trials) < FEW_TRIALS:  # their plots would show luck
        untested = [each.belief.name for each in drawn if each.belief.verdict in (None, "untested")]
        drawn = [each for each in drawn if each.belief.name not in untested]
    return {
        "curves": curves(report),
        "closer": closer_curves(report),
        "most_closer": MOST_CLOSER,
        "progress": progress_plots(report) if report.progress.steps else [],
        "tiles": drawn,
        "untested": untested,
        "few_trials": FEW_TRIALS,
        "anchors": {each.belief.name: number for number, each in enumerate(drawn, start=1)},
        "parallel": side_by_side(report),
        "costs": cost_plots(report),
        "workers": workers(report),
    }


def _tables(report: Report) -> dict[str, Any]:
    answers, best = report.answers, report.answer.best
    looks = {"best" if each.id == best else "own" if each.own else each.state for each in report.trials}
    return {
        "legend": [(look, says) for look, says in LEGEND if look in looks],
        "ranked": ranked(report),
        "columns": _columns(report),
        "rivals": _rivals(report),
        "differing": list(_differing(report)),
        "frontier": [each.id for each in report.trials if each.on_frontier],
        "troubles": list(troubles(report)),
        "classes": sorted(answers.classes, key=lambda each: (each.f1 is None, each.f1)) if answers else [],
        "longest": max((len(each.name) for each in answers.classes), default=0) if answers else 0,
        "confusion": _confusion(answers) if answers and len(answers.classes) <= MOST_CLASSES else [],
        "audit": list(audit_lines(report.pruning_audit, report.search.rungs)) if report.pruning_audit else [],
        "most_warnings": MOST_WARNINGS,
        "winner": _winner(report),
        "sentence": next((each.sentence for each in report.trials if each.id == best), ""),
        "agree": AGREE,
        "no_spread": RANK_ALIKE,
        "best_is_own": any(each.own for each in report.trials if each.id == best),
        "resumed": sum(each.what == "resumed" for each in report.later_drivers),
        "pairs": _pairs(answers)[:MOST_PAIRS] if answers else [],
        **_mask_tables(report.masks),
    }


def _columns(report: Report) -> list[str]:
    """Return the fields that have a column in the table of trials: those in which trials differ."""
    paths = dict.fromkeys(path for each in report.trials for path in _by_own_name(each))
    return [path for path in paths if len({_brief(_by_own_name(each), path) for each in report.trials}) > 1]


def _mask_tables(masks: ReportedMasks | None) -> dict[str, Any]:
    if masks is None:
        return {}
    few = len(masks.classes) <= MOST_CLASSES
    return {
        "classes": sorted(masks.classes, key=lambda each: (each.iou is None, each.iou)),
        "longest": max(len(each.name) for each in masks.classes),
        "boundaries": any(each.boundary_f1 is not None for each in masks.classes),
        "confusion": _confusion(masks) if few else [],
        "pairs": _pairs(masks)[:MOST_PAIRS],
    }


def _contents(report: Report, charts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the parts that the page has, with their titles."""
    yield from (("answer", "Answer"), ("curves", "Curves"), ("use", "Use it"))
    if report.compared:
        yield "compared", "Comparison"
    yield from (("progress", "Best so far"), ("beliefs", "Beliefs"))
    if charts["parallel"] is not None:
        yield "parallel", "Values"
    yield "importances", "What decides"
    yield from (("finalists", "Finalists"), ("pruning", "Early stopping"))
    if report.samples is not None:
        yield "samples", "Images"
    yield "classes", "Mistakes"
    yield from (("costs", "Costs"), ("workers", "Workers"), ("recipe", "Recipe"))
    yield from (("next", "Next round"), ("trials", "Trials"))


def ranked(report: Report) -> list[TrialRow]:
    """Return the trials in a person's order: the finished ones first, then by places."""
    sign = sign_of(report.search.mode)

    def key(trial: TrialRow) -> tuple[bool, float, float]:
        score = -1e300 if trial.score is None else sign * trial.score
        if trial.state == "finished":
            return True, score, 0.0
        return False, -1.0 if trial.place is None else trial.place, score

    return sorted(report.trials, key=key, reverse=True)


# --- compared searches


def _rivals(report: Report) -> list[tuple[str, ComparedSearch]]:
    """Return this search and then the others, each with the class of its line."""
    if not report.compared:
        return []
    search, answer, winner = report.search, report.answer, _winner(report)
    itself = ComparedSearch(
        name=search.name,
        address=search.address,
        state=search.state,
        objective=search.objective,
        best=answer.best,
        score=answer.score,
        own_score=answer.own_score,
        estimate=winner.estimate if winner is not None else None,
        low=winner.low if winner is not None else None,
        high=winner.high if winner is not None else None,
        trials=len(report.trials),
        progress=report.progress,
        recipe={each.path: each.value for each in report.recipe},
    )
    others = [(other_look(number), each) for number, each in enumerate(report.compared)]
    return [("best", itself), *others]


def _winner(report: Report) -> FinalistRow | None:
    return next((each for each in report.finalists if each.winner), None)


def _differing(report: Report) -> Iterator[tuple[str, list[str]]]:
    """Yield the fields in which the best recipes of compared searches differ, with each one's value."""
    rivals = [each for _, each in _rivals(report)]
    for path in dict.fromkeys(path for each in rivals for path in each.recipe):
        values = [each.recipe.get(path, "") for each in rivals]
        if len(set(values)) > 1:
            yield path, values


# --- what was answered


class Cell(NamedTuple):
    """The images or pixels in one cell of a confusion matrix, and their share of those of the true
    class."""

    images: int
    share: float
    right: bool


def _confusion(answers: ReportedLabels | ReportedMasks) -> list[list[Cell]]:
    return [
        [Cell(images, images / max(1, sum(row)), at == number) for number, images in enumerate(row)]
        for at, row in enumerate(answers.confusion)
    ]


def _pairs(answers: ReportedLabels | ReportedMasks) -> list[tuple[str, str, int]]:
    """Return the confusions with their counts, the most frequent first."""
    if isinstance(answers, ReportedLabels) and not answers.confusion:
        return list(answers.confused)
    names = [each.name for each in answers.classes]
    pairs = [
        (names[true], names[predicted], count)
        for true, row in enumerate(answers.confusion)
        for predicted, count in enumerate(row)
        if count and true != predicted
    ]
    return sorted(pairs, key=lambda each: -each[2])


# --- the data for the cards of trials


def data_of(report: Report) -> dict[str, Any]:
    """Return what the page's script shows of each trial: fields by position, to be short."""
    paths = list(dict.fromkeys(path for each in report.trials for path in _by_own_name(each)))
    return {
        "objective": report.search.objective,
        "epochs": report.search.budget_epochs,
        "best": report.answer.best,
        "export": f"{program_name()} export {quote(report.search.address)}",
        "mlflow": pages.trial if (pages := report.search.mlflow) is not None else None,
        "paths": paths,
        "trials": {each.id: _card(each, paths) for each in report.trials},
    }


def _card(trial: TrialRow, paths: Sequence[str]) -> list[Any]:
    values = [_brief(_by_own_name(trial), path) for path in paths]
    curves = [
        [_rounded(by_epoch.get(epoch)) for epoch in range(1, trial.epochs + 1)]
        for by_epoch in (trial.scores, trial.train_loss, trial.val_loss)
    ]
    costs = {name: _rounded(cost) for name, cost in trial.costs.items()}
    return [
        state_in_words(trial.state), trial.own, trial.epochs, _rounded(trial.score), _rounded(trial.place),
        values, curves, round(trial.seconds, 1), trial.attempts, trial.reason, trial.digest,
        trial.mlflow_run_id, costs, trial.first, trial.places, trial.sentence,
    ]  # fmt: skip


def _by_own_name(trial: TrialRow) -> Values:
    return by_own_name(trial.values, trial.optimizer)


def _brief(values: Values, path: str) -> str:
    """Return a trial's value in a few digits; nothing where it has none."""
    if path not in values:
        return ""
    value = values[path]
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else shown(value)


def _rounded(number: float | None) -> float | None:
    return None if number is None else float(f"{number:.{DIGITS}g}")


# --- words


def _number(pattern: str) -> Any:
    """Return a filter that writes a number by a pattern, and nothing for None."""
    return lambda number: "" if number is None else pattern.format(number)


def _sentence(words: str) -> str:
    """Return words with a capital letter and a full stop; a name such as test_accuracy keeps its letters."""
    first = words[:1] if "_" in words.partition(" ")[0] else words[:1].upper()
    return f"{first}{words[1:]}."


def _visible(value: Any) -> Any:
    """Return what a page shows: of a name that somebody chose, no character that turns others around."""
    match value:
        case str() if not hasattr(value, "__html__"):  # not HTML that a template has made
            return visible_lines(value)
        case dict():
            return {_visible(name): _visible(each) for name, each in value.items()}
        case list():
            return list(map(_visible, value))
    return value


@cache
def templates() -> Environment:
    """Return the templates of the page, with its filters."""
    made = Environment(
        loader=PackageLoader("search.reporting"),
        autoescape=True,
        finalize=_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "score": _number("{:.4f}"),
        "score3": _number("{:.3f}"),
        "score0": _number("{:.0f}"),
        "signed": _number("{:+.4f}"),
        "percent0": _number("{:.0%}"),
        "brief": _brief,
        "by_own_name": _by_own_name,
        "share": lambda share: f"{100.0 * share:.1f}" if share else "",
        "percent": lambda share: f"{100.0 * share:.4g}%",
        "hours": lambda hours: duration(3600.0 * hours),
        "duration": duration,
        "effect": lambda belief: in_places(belief.effect, belief.low, belief.high),
        "sentence": _sentence,
        "state": state_in_words,
        "date": lambda time: datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    return made


def file_text(name: str) -> str:
    """Return a file beside the templates, such as page.css."""
    return (files("search.reporting") / "templates" / name).read_text(encoding="utf-8")


def write_report(search: Search, report: Report) -> Path:
    """Write `report.html` and `report.json` to a search's folder; return the page's file.

    Raises UserError where they cannot be written.
    """
    write_as(search.folder / REPORT_DATA_FILE, report)
    return write_as(search.folder / REPORT_FILE, report)


def write_as(file: Path, report: Report) -> Path:
    """Write a report as a page or, where the name ends in .json, as data; return the file.

    Raises UserError where it cannot be written.
    """
    as_data = file.suffix.lower() == ".json"
    try:
        write_whole(file, (report.model_dump_json() if as_data else page(report)).encode())
    except OSError as error:
        raise UserError(f"{file}: cannot be written: {error.strerror}; -o FILE names another one") from None
    return file
