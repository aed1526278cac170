"""The report of a search, gathered from its folder."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from shlex import quote
from statistics import fmean, stdev
from typing import Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from search.learning.pruning_audit import PruningAudit
from search.learning.refine import refine
from search.learning.search import Search
from search.learning.standings import standings
from search.learning.verdicts import counts, promise
from search.record.code import train_call
from search.record.cursor import read_cursor, run_page, view_page
from search.record.finals import student
from search.record.home import BEST_FILE, EVENTS_FILE, REPORT_DATA_FILE
from search.record.journal import Event, SearchEvent, read
from search.record.verdicts import Verdicts
from search.reporting.answers import answers_of, images_of
from search.reporting.content import (
    ComparedSearch,
    FinalistRow,
    Head,
    Importances,
    MlflowPages,
    PartScores,
    RecipeLine,
    RepeatRow,
    Report,
    ReportedLabels,
    ReportedMasks,
    SearchAnswer,
    TrialRow,
)
from search.reporting.rows import beliefs_of, finalist_rows, next_round, recipe_lines, repeat_rows, trial_rows
from search.reporting.samples import samples_of
from search.reporting.timeline import SECONDS_PER_HOUR, Timeline, progress_of, timeline
from search.study.code import NO_CODE, Code
from trainable.data import DataSet
from trainable.diagnosis import image_interval
from trainable.errors import UserError
from trainable.extras import needing_run
from trainable.files.regular import read_regular
from trainable.recipe.metrics import NO_SPREAD
from trainable.recipe.provenance import Verification
from trainable.stages import stage
from trainable.terminal import program_name

PartOfReport = TypeVar("PartOfReport")
LARGEST_REPORT = 2**28  # so many bytes are read
SLOW = "left out while the search goes on"


def report_of(
    search: Search,
    compared: Sequence[Search] = (),
    *,
    images: Callable[[], DataSet] | None = None,
    code: Code = NO_CODE,
) -> Report:
    """Return the report of a search, beside the searches that it is compared with.

    `images` gives the images of the search, which are loaded otherwise; `code` is what it used of a person's
    own. While it goes on, what would take seconds is left out: importances and the validation images.
    """
    events, summary = _events(search), search.progress
    places, load = standings(summary), images or cache(lambda: images_of(search))
    trials, repeats = trial_rows(summary, places), repeat_rows(summary)
    optional = _Optional(cache(lambda: _kept(search, trials, repeats)))
    answers = optional.part("answers", lambda: answers_of(_ended(search), load, code))
    times = timeline(events, time.time() if summary.state == "running" else None)
    return Report(
        made=time.time(),
        search=_head(search, events),
        cautions=search.cautions,
        answer=_answer(search, times),
        trials=trials,
        attempts=times.attempts,
        later_drivers=times.later_drivers,
        turnaround=summary.turnaround,
        machines=summary.machines,
        machines_left_out=summary.left_out,
        progress=progress_of(events, summary.objective, summary.sign),
        beliefs=beliefs_of(search.space, summary.trials, search.verdicts),
        verdicts=_verdicts_in_words(search.verdicts),
        importances=optional.part("importances", lambda: _importances(search, places)),
        finalists=optional.part("finalists", lambda: _finalists(search)) or (),
        pruning_audit=optional.part("pruning_audit", lambda: _pruning_audit(search)),
        repeats=repeats,
        answers=None if isinstance(answers, ReportedMasks) else answers,
        masks=None if isinstance(answers, ReportedLabels) else answers,
        samples=optional.part("samples", lambda: samples_of(_ended(search), load)),
        recipe=optional.part("recipe", lambda: _recipe(search)) or (),
        next_round=optional.part("next_round", lambda: next_round(refine(search), search.home.address)),
        compared=tuple(map(_compared, compared)),
        left_out={**optional.left_out, **_not_measured(search)},
    )


@dataclass
class _Optional:
    """Parts that may be missing, and why one is.

    What cannot be made here, since packages, images or weights are elsewhere, is taken from the report that
    the search's driver has left.
    """

    kept: Callable[[], Report | None] = lambda: None
    left_out: dict[str, str] = field(default_factory=dict)

    def part(self, name: str, make: Callable[[], PartOfReport]) -> PartOfReport | None:
        try:
            with needing_run("this part"), stage(f"gathering the report: {name.replace('_', ' ')}"):
                return make()
        except UserError as error:
            kept = self.kept()
            if kept is not None and name not in kept.left_out:
                found: PartOfReport | None = getattr(kept, name)
                if name == "answers" and found is None:
                    return kept.masks  # type: ignore[return-value]
                return found
            self.left_out[name] = str(error)
        return None


def _kept(search: Search, trials: Sequence[TrialRow], repeats: Sequence[RepeatRow]) -> Report | None:
    """Return the report in the search's folder, if it is one of the same trials; else None."""
    try:
        file = search.folder / REPORT_DATA_FILE
        kept = Report.model_validate_json(read_regular(file, LARGEST_REPORT))
    except (OSError, ValidationError):  # there is none, or another version has written it
        return None
    return kept if (kept.trials, kept.repeats) == (tuple(trials), tuple(repeats)) else None


def _ended(search: Search) -> Search:
    """Return the search. Raises UserError while it goes on."""
    if search.state == "running":
        raise UserError(SLOW)
    return search


def _events(search: Search) -> Sequence[Event]:
    path = search.folder / EVENTS_FILE
    return read(path) if path.exists() else ()


def _head(search: Search, events: Sequence[Event]) -> Head:
    summary, study, info = search.progress, search.study, search.info
    drivers = [each for each in events if isinstance(each, SearchEvent) and each.versions]
    return Head(
        name=summary.search or search.folder.name,
        search_id=summary.search_id,
        state=summary.state,
        reason=summary.outcome_reason,
        address=search.home.address,
        objective=summary.objective,
        mode=summary.direction,
        data=study.data.path,
        classes=len(info.classes),
        train_images=info.train_images,
        validation_images=info.validation_images,
        budget_trials=study.budget.trials,
        budget_epochs=summary.budget_epochs,
        rungs=search.pruning.rungs,
        rungs_why=search.pruning.describe(summary.budget_epochs),
        drivers=len(drivers),
        began=search.record.began,
        versions=drivers[-1].versions if drivers else {},
        constraints=str(summary.constraints),
        mlflow=_mlflow(search),
    )


def _mlflow(search: Search) -> MlflowPages | None:
    """Return where MLflow shows the search; without links where its runs are in a file or a database."""
    cursor = read_cursor(search.folder)
    if cursor is None or cursor.experiment_id is None or cursor.parent_run_id is None:
        return None
    command = f"{program_name()} ui {quote(search.home.address)}"
    server = urlsplit(cursor.uri)
    if server.scheme not in ("http", "https"):
        return MlflowPages(experiment=None, run=None, trial=None, command=command)
    place = server._replace(netloc=server.netloc.rpartition("@")[2])  # a name or a password is not for a page
    address, experiment = place.geturl().rstrip("/"), cursor.experiment_id
    return MlflowPages(
        experiment=f"{address}/{view_page(experiment, None)}",
        run=f"{address}/{run_page(experiment, cursor.parent_run_id)}",
        trial=f"{address}/{run_page(experiment, '{run}')}",
        command=command,
    )


def _answer(search: Search, times: Timeline) -> SearchAnswer:
    summary, facts = search.progress, search.facts
    best, metric = summary.best, summary.objective
    own = summary.documented.metrics.get(metric) if summary.documented is not None else None
    score = best.metrics[metric] if best is not None else None
    estimate = summary.estimate
    value = estimate.value if estimate is not None else score
    best_is_own = best is not None and best.own
    goes_on = search.state in ("running", "interrupted")
    why_none = "no trial has finished yet" if goes_on else summary.why_none_finished
    info = search.info
    bounds = (
        image_interval(metric, best.metrics[metric], info.task, info.validation_images)
        if best is not None
        else None
    )
    verified = search.verified
    is_changed = verified is not None and best is not None and verified.recipe != best.digest
    hours = sum(each.end - each.start for each in times.attempts) * facts.workers / SECONDS_PER_HOUR
    return SearchAnswer(
        best=best.id if best is not None else None,
        score=score,
        own_score=own,
        gain=None if value is None or own is None or best_is_own else summary.sign * (value - own),
        why_none=None if best is not None else why_none,
        low=bounds[0] if bounds is not None else None,
        high=bounds[1] if bounds is not None else None,
        parts=parts_of(verified.found) if verified is not None and not is_changed else (),
        verified=verified,
        verified_changed=is_changed,
        diagnosis=tuple(search.diagnosis.lines()) if search.diagnosis is not None else (),
        epochs_trained=summary.epochs_trained,
        epochs_again=summary.epochs_again,
        epochs_if_unpruned=summary.epochs_if_unpruned,
        saved=summary.saved,
        driver_hours=times.seconds / SECONDS_PER_HOUR,
        cpu_hours=hours * facts.cpus,
        gpu_hours=hours * facts.gpus,
        commands=tuple(_commands(search)),
    )


def parts_of(found: Verification) -> tuple[PartScores, ...]:
    """Return the scores of validation and test of the same runs; none where only one of them is known."""
    if found.part != "test":
        return ()
    test = found.metric.replace("val_", "test_")
    return (
        _part_scores("validation", found.metric, found.validation_scores),
        _part_scores("test", test, found.scores),
    )


def _part_scores(part: Literal["validation", "test"], metric: str, scores: Sequence[float]) -> PartScores:
    mean = fmean(scores)
    half = student(len(scores) - 1) * stdev(scores) / math.sqrt(len(scores)) if len(scores) > 1 else 0.0
    known = half > NO_SPREAD
    return PartScores(
        part=part,
        metric=metric,
        scores=tuple(scores),
        mean=mean,
        low=mean - half if known else None,
        high=mean + half if known else None,
    )


def _commands(search: Search) -> Sequence[str]:
    """Return the commands that use the answer; where the search has not ended, the one that goes on."""
    address, program = quote(search.home.address), program_name()
    again = search.code.again if search.code is not None else f"{program} resume {address}"
    going_on = [again] if search.state == "interrupted" else []
    if search.best is None:
        return going_on
    best_file = search.folder / BEST_FILE
    if call := train_call(best_file, search.study, search.code):
        return [*going_on, f"{call}  # in Python"]
    export = [] if best_file.exists() else [f"{program} export {address} -o {quote(str(best_file))}"]
    return [*going_on, *export, search.train_command(best_file)]


def _importances(search: Search, places: Mapping[int, float]) -> Importances:
    from search.reporting.importances import importances

    return importances(_ended(search).space, search.trials, places)


def _finalists(search: Search) -> tuple[FinalistRow, ...]:
    if rows := finalist_rows(search.progress.finals, search.progress.objective):
        return rows
    raise UserError(search.final.words)


def _pruning_audit(search: Search) -> PruningAudit:
    if (audit := search.pruning_audit) is not None:
        return audit
    if not any(trial.end == "stopped" for trial in search.trials):
        raise UserError("no trial was stopped at a rung")
    asks = f"{program_name()} audit-pruning {quote(search.home.address)}"
    raise UserError(f"`{asks}` trains some of the stopped trials to their end, to see")


def _not_measured(search: Search) -> dict[str, str]:
    """Return entries of `left_out`: how to get accuracy against cost, and why times are not known."""
    left_out: dict[str, str] = {}
    if not any(trial.costs and trial.end == "finished" for trial in search.trials):
        asks = "`objective: {constraints: {latency_ms: {max: 1000}}}`"
        measured = "each network's latency, parameters and memory"
        left_out["costs"] = (
            "no trial has finished"
            if search.record.measures_costs
            else f"a study that chooses between networks, or that has {asks}, measures {measured}"
        )
    if search.progress.turnaround is None and search.progress.search_id is not None:
        left_out["turnaround"] = (
            "an earlier version of tunebook drove this search, and did not write down these times"
        )
    return left_out


def _recipe(search: Search) -> tuple[RecipeLine, ...]:
    if search.best is None:
        raise UserError("no trial has finished")
    return recipe_lines(search.best, search.space)


def _verdicts_in_words(verdicts: Verdicts | None) -> str:
    if verdicts is None or not verdicts.beliefs:
        return ""
    return f"{counts(verdicts)}, from {verdicts.trials} trials; {promise(verdicts)}"


def _compared(search: Search) -> ComparedSearch:
    summary, events = search.progress, _events(search)
    answer, estimate = _answer(search, timeline(events, None)), summary.estimate
    return ComparedSearch(
        name=summary.search or search.folder.name,
        address=search.home.address,
        state=summary.state,
        objective=summary.objective,
        best=answer.best,
        score=answer.score,
        own_score=answer.own_score,
        estimate=estimate.value if estimate is not None else None,
        low=estimate.bounds[0] if estimate is not None else None,
        high=estimate.bounds[1] if estimate is not None else None,
        trials=len(summary.trials),
        progress=progress_of(events, summary.objective, summary.sign),
        recipe={each.path: each.value for each in _Optional().part("recipe", lambda: _recipe(search)) or ()},
    )
