"""Turns trials, the best recipe and the next study into rows of the report."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote

from search.learning.refine import Refined
from search.record.finals import Finalist, Finals
from search.record.summary import Summary
from search.record.trials import Trial
from search.reporting.content import (
    FinalistRow,
    NextChange,
    NextFinding,
    NextRound,
    RecipeLine,
    RepeatRow,
    TrialRow,
)
from spaces.catalog.explain import recipe_rows
from spaces.space import Space
from trainable.recipe.base import with_guide_names
from trainable.terminal import command
from trainable.tune.place import in_full


def trial_rows(summary: Summary, places: Mapping[int, float]) -> tuple[TrialRow, ...]:
    """Return the trials in the order of their numbers."""
    frontier = {trial.id for trial in summary.frontier}
    return tuple(
        _trial_row(each, summary, places.get(each.id), on_frontier=each.id in frontier)
        for each in summary.trials
    )


def _trial_row(trial: Trial, summary: Summary, place: float | None, *, on_frontier: bool) -> TrialRow:
    scores = trial.scores(summary.objective)
    return TrialRow(
        id=trial.id,
        state=trial.state,
        own=trial.own,
        first=str(trial.first) if trial.first is not None else None,
        epochs=trial.epochs,
        score=scores.get(trial.epochs),
        best_score=max(scores.values(), key=lambda score: summary.sign * score, default=None),
        place=place,
        values=dict(trial.values),
        scores=scores,
        train_loss=_by_epoch(trial, "train_loss"),
        val_loss=_by_epoch(trial, "val_loss"),
        seconds=sum(each.epoch_seconds for each in trial.results),
        attempts=trial.attempts,
        places=tuple(map(in_full, trial.places)),
        reason=trial.outcome_reason,
        costs=dict(trial.costs),
        on_frontier=on_frontier,
        digest=trial.digest,
        mlflow_run_id=trial.mlflow_run_id,
    )


def repeat_rows(summary: Summary) -> tuple[RepeatRow, ...]:
    """Return the runs that train a trial's recipe again."""
    return tuple(
        RepeatRow(
            id=each.id,
            of=each.repeat.of,
            purpose=each.repeat.purpose,
            seed=each.repeat.seed,
            split=each.repeat.split,
            state=each.state,
            epochs=each.epochs,
            score=each.scores(summary.objective).get(each.epochs),
        )
        for each in summary.repeats
        if each.repeat is not None
    )


def finalist_rows(finals: Finals | None, metric: str) -> tuple[FinalistRow, ...]:
    """Return the trials of the final, the best of the search first."""
    return tuple(_finalist(each, finals, metric) for each in finals.finalists) if finals is not None else ()


def _finalist(each: Finalist, finals: Finals, metric: str) -> FinalistRow:
    known = each.estimate
    return FinalistRow(
        trial=each.trial,
        winner=each == finals.winner,
        search_score=each.score,
        scores=tuple(run.metrics[metric] if run.end == "finished" else None for run in each.runs),
        mean=known.mean if known is not None else None,
        deviation=known.deviation if known is not None else None,
        estimate=known.value if known is not None else None,
        low=known.bounds[0] if known is not None else None,
        high=known.bounds[1] if known is not None else None,
        gap=each.gap,
    )


def _by_epoch(trial: Trial, metric: str) -> dict[int, float]:
    return {each.epoch: getattr(each, metric) for each in trial.results if not each.diverged}


def recipe_lines(trial: Trial, space: Space) -> tuple[RecipeLine, ...]:
    """Return a trial's recipe, line by line.

    Raises JournalError where this version would train another one.
    """
    rows = recipe_rows(trial.whole_recipe, space)
    return tuple(
        RecipeLine(
            path=row.path,
            value=row.what,
            reason=row.reason,
            source=with_guide_names([row.source])[0],  # each row, since rows are not read in order
            varied=row.path in trial.values,
        )
        for row in rows
    )


def next_round(found: Refined, address: str) -> NextRound:
    """Return what an audit says of the next search."""
    return NextRound(
        findings=tuple(NextFinding.model_validate(each.json()) for each in found.findings),
        changes=tuple(
            NextChange(field=each.field, before=each.before, after=each.after, why=each.why)
            for each in found.edits
        ),
        left_alone=tuple((each.about, each.why) for each in found.left_alone),
        command=f"{command()} refine {quote(address)} -o {found.following.name}.yaml",
    )
