"""Says whether pruning has stopped the wrong trials, from a sample of them that was trained to the end.

Each trial of the sample stands for all that were stopped at its rung. So the sample and the finished trials
together are curves of the whole search, as if nothing had been stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from search.deciding.audited import stopped_by_rung
from search.deciding.pruning import Pruning
from search.deciding.scheduler import rungs
from search.learning.better_stopped import Stratum, chance_of_better, picks_of, spearman, whole_of
from trainable.recipe.metrics import NO_SPREAD
from trainable.training.metrics import SHARES

if TYPE_CHECKING:
    from search.deciding.pruning_replay import ScoreCurves
    from search.record.summary import Summary
    from search.record.trials import Trial

WORTH = 0.8  # the share of its worth that a pruned search is to keep (docs/decisions/0009)
ORDERS, RESAMPLES = 300, 1_000
LEAST = 4  # a rank correlation of fewer curves says nothing


@dataclass(frozen=True)
class Rung:
    """How well the scores of an epoch rank the final ones: Spearman's correlation, 95 % interval."""

    epoch: int
    correlation: float
    low: float | None  # None where all resamples rank alike: nothing is known of other trials
    high: float | None


@dataclass(frozen=True)
class Grace:
    """What pruning would do that compares trials first at this epoch: shares of worth and of epochs."""

    epoch: int
    worth: float
    spent: float


@dataclass(frozen=True)
class PruningAudit:
    """What the audit has found; `best` is the score of the search's best trial in the search itself."""

    stopped: int  # the number of trials that were stopped at a rung
    trained: tuple[int, ...]  # those of them that were trained to their end
    better: tuple[int, ...]  # those of these that ended better than the best of the search
    best: float
    # the chance that one of the others would have ended better: `better_stopped` says how it is found; 1
    # where one of these has, 0 where none can
    chance: float
    rungs: tuple[Rung, ...]
    graces: tuple[Grace, ...]
    # the first epoch from which a search keeps `WORTH`; None where no epoch of the first half does
    grace: int | None

    def json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def audit_of(summary: Summary, pruning: Pruning) -> PruningAudit | None:
    """Return what the trials that were trained to their end say; None before any has been."""
    trained = {
        each.repeat.of: each
        for each in summary.repeats
        if each.repeat and each.repeat.purpose == "pruning" and each.end in ("finished", "diverged")
    }
    ranked = summary.best_first
    if not trained or not ranked:
        return None
    best = ranked[0].metrics[summary.objective]
    finals = {number: _final(trial, summary) for number, trial in trained.items()}
    better = [number for number, final in finals.items() if final > summary.sign * best]
    stopped = stopped_by_rung(summary)
    strata = _strata(summary, trained, stopped)
    found = tuple(rank_correlations(strata, pruning.rungs))
    graces = tuple(_graces(whole_of(strata), pruning, len(summary.trials)))
    return PruningAudit(
        sum(map(len, stopped.values())),
        tuple(sorted(trained)),
        tuple(sorted(better)),
        best,
        1.0 if better else _chance(summary, strata, trained, stopped, pruning, best),
        found,
        graces,
        next((each.epoch for each in graces if each.worth >= WORTH), None),
    )


def rank_correlations(strata: Sequence[Stratum], epochs: Sequence[int]) -> Iterator[Rung]:
    """Yield how well each epoch's scores rank the final ones, with the interval of a stratified bootstrap.

    Yield nothing for fewer than `LEAST` curves.
    """
    if sum(len(each.curves) for each in strata) < LEAST:
        return
    whole, distinct = whole_of(strata), np.concatenate([each.curves for each in strata])
    picks = picks_of(strata, np.random.default_rng(0), RESAMPLES)
    for epoch in epochs:
        correlation = float(spearman(whole[:, epoch - 1], whole[:, -1]))
        if not math.isnan(correlation):
            resampled = spearman(distinct[picks, epoch - 1], distinct[picks, -1])
            low, high = map(float, np.nanpercentile(resampled, [2.5, 97.5]))
            spread = high - low > NO_SPREAD
            yield Rung(epoch, correlation, low if spread else None, high if spread else None)


def _chance(
    summary: Summary,
    strata: Sequence[Stratum],
    trained: Mapping[int, Trial],
    stopped: Mapping[int, Sequence[int]],
    pruning: Pruning,
    best: float,
) -> float:
    """Return the chance that a stopped trial that was not trained on would have ended better than `best`."""
    if summary.objective in SHARES and summary.sign * best >= 1.0:
        return 0.0
    unknown = {
        rung: np.array(
            [
                summary.sign * summary.trial(number).scores(summary.objective)[rung]
                for number in numbers
                if number not in trained
            ]
        )
        for rung, numbers in stopped.items()
    }
    return chance_of_better(strata, unknown, pruning.rungs)


def _final(trial: Trial, summary: Summary) -> float:
    """Return a trial's last score, higher for better; the worst of all for one that diverged."""
    if trial.end == "diverged":
        return -math.inf
    return summary.sign * trial.metrics[summary.objective]


def _strata(
    summary: Summary, trained: Mapping[int, Trial], stopped: Mapping[int, Sequence[int]]
) -> list[Stratum]:
    """Return the curves of the search as if nothing had been stopped; diverged runs have the worst score."""
    finished = [trial for trial in summary.trials if trial.end == "finished"]
    groups: list[tuple[list[Trial], int, int | None]] = [(finished, 1, None)]
    for rung, numbers in stopped.items():
        if here := [trained[number] for number in numbers if number in trained]:
            groups += [(here, round(len(numbers) / len(here)), rung)]
    curves = [np.array([_curve(trial, summary) for trial in trials]) for trials, _, _ in groups]
    worst = min(np.nanmin(each) for each in curves)
    return [
        Stratum(np.where(np.isnan(each), worst, each), copies, rung)
        for each, (_, copies, rung) in zip(curves, groups, strict=True)
    ]


def _curve(trial: Trial, summary: Summary) -> list[float]:
    scores = trial.scores(summary.objective)
    return [summary.sign * scores.get(epoch, math.nan) for epoch in range(1, summary.budget_epochs + 1)]


def _graces(curves: ScoreCurves, pruning: Pruning, trials: int) -> Iterator[Grace]:
    """Yield what comes of each first rung in the first half of a run, with as many rungs as the search's."""
    from search.deciding.pruning_replay import replayed

    random, epochs = np.random.default_rng(0), curves.shape[1]
    orders = [random.permutation(len(curves))[:trials] for _ in range(ORDERS)]
    for first in range(1, epochs // 2 + 1):
        found = replayed(
            curves, orders, rungs(first, pruning.factor, epochs)[: len(pruning.rungs)], pruning.factor
        )
        yield Grace(first, found.worth, found.spent)
