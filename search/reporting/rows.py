"""Rows of the report: trials and runs, what each rule believes, the best recipe and the next study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from shlex import quote

from search.learning.refine import Refined
from search.learning.standings import positions
from search.record.finals import Finalist, Finals
from search.record.summary import Summary
from search.record.trials import Trial
from search.record.verdicts import Verdict, Verdicts
from search.reporting.content import (
    Belief,
    BeliefCurve,
    FinalistRow,
    HelpfulStep,
    NextChange,
    NextFinding,
    NextRound,
    RecipeLine,
    RepeatRow,
    TrialRow,
)
from spaces.catalog.explain import condition_in_words, recipe_rows, with_own_names
from spaces.domains import Choice, domain_tree, value_at
from spaces.priors import Prior, density, describe
from spaces.space import Dimension, Space
from trainable.recipe.base import with_guide_names
from trainable.terminal import program_name
from trainable.tune.place import in_full

POINTS = 64  # a belief over a range is drawn through so many points
MOST_CURVES = 3  # beliefs may follow from other values; at most so many are drawn, those of the most trials


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
        sentence=trial.sentence,
        values=dict(trial.values),
        optimizer=trial.optimizer_name,
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
    estimate = each.estimate
    return FinalistRow(
        trial=each.trial,
        winner=each == finals.winner,
        search_score=each.score,
        scores=tuple(run.metrics[metric] if run.end == "finished" else None for run in each.runs),
        mean=estimate.mean if estimate is not None else None,
        deviation=estimate.deviation if estimate is not None else None,
        estimate=estimate.value if estimate is not None else None,
        low=estimate.bounds[0] if estimate is not None else None,
        high=estimate.bounds[1] if estimate is not None else None,
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


def next_round(refined: Refined, address: str) -> NextRound:
    """Return what an audit says of the next search."""
    return NextRound(
        steps=tuple(HelpfulStep(kind=each.kind, do=each.do, why=each.why) for each in refined.steps),
        findings=tuple(NextFinding.model_validate(each.json()) for each in refined.findings),
        changes=tuple(
            NextChange(field=each.field, before=each.before, after=each.after, why=each.why)
            for each in refined.edits
        ),
        left_alone=tuple((each.about, each.why) for each in refined.left_alone),
        command=f"{program_name()} refine {quote(address)} -o {refined.following.name}.yaml",
    )


def beliefs_of(space: Space, trials: Sequence[Trial], verdicts: Verdicts | None) -> tuple[Belief, ...]:
    """Return the beliefs in the space's order; trials that are no points of the space have no values."""
    by_rule = {each.rule: each for each in verdicts.rules} if verdicts is not None else {}
    places = {trial.id: at for trial in trials if (at := positions(space, trial)) is not None}
    priors = {trial.id: space.priors(trial.values) for trial in trials if trial.id in places}
    return tuple(_belief(each, space, places, priors, by_rule.get(each.name)) for each in space.dimensions)


def _belief(
    dimension: Dimension,
    space: Space,
    places: Mapping[int, Mapping[str, float]],
    priors: Mapping[int, Mapping[str, Prior]],
    verdict: Verdict | None,
) -> Belief:
    name, own = dimension.name, space.own
    having = [trial for trial in places if name in places[trial]]
    drawn_from = Counter(priors[trial][name] for trial in having) or Counter([dimension.prior(own)])
    low, high = verdict.interval if verdict is not None and verdict.interval is not None else (None, None)
    return Belief(
        name=name,
        path=dimension.path,
        domain=domain_tree(dimension.domain),
        when=condition_in_words(dimension, space) or None,
        reason=dimension.reason_for(own),
        source=with_guide_names([dimension.source])[0],  # each rule, since they are not read in order
        curves=tuple(_curve(dimension, prior, n, space) for prior, n in drawn_from.most_common(MOST_CURVES)),
        verdict=verdict.word if verdict is not None else None,
        effect=verdict.effect if verdict is not None else None,
        low=low,
        high=high,
        why=verdict.why if verdict is not None else None,
        trials=tuple(having),
        positions=tuple(round(places[trial][name], 5) for trial in having),
    )


def _curve(dimension: Dimension, prior: Prior, trials: int, space: Space) -> BeliefCurve:
    """Return a belief over its domain; `trials` counts those that drew from it."""
    domain = dimension.domain
    if isinstance(domain, Choice):
        values = list(domain.options)
    else:
        values = [value_at(domain, min(at / (POINTS - 1), 1.0 - 1e-9)) for at in range(POINTS)]
    return BeliefCurve(
        says=with_own_names(describe(domain, prior), dimension.path, space),
        trials=trials,
        density=tuple(round(density(domain, prior, value), 5) for value in values),
    )
