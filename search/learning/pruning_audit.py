"""Whether pruning has stopped the wrong trials, from a sample of them that was trained to the end.

Each trial of the sample stands for all that were stopped at its rung. So the sample and the finished trials
together are curves of the whole search, as if nothing had been stopped.

The chance that another stopped trial would have ended better than the best one follows from a model of two
ranks of each trial, as normal scores: z of its score at the rung where it was last compared, and that of its
final score. Their correlation r is what the audit has found, so that the trial ends above t with the chance
1 - Phi((t - r z) / (1 - r ** 2) ** 0.5), and the best of the finished trials is the highest of such draws,
too. With r = 0 a stopped trial is as likely to be the best as any other; with r = 1 it never is. Counting
alone (none better among n that were trained on) gives trials that were far behind the same chance as those
that were stopped by a hair: docs/decisions/0009 has how often either is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from search.deciding.audited import stopped_by_rung
from search.deciding.pruning import Pruning
from search.deciding.scheduler import rungs
from trainable.recipe.metrics import NO_SPREAD
from trainable.training.metrics import SHARES

if TYPE_CHECKING:
    from search.deciding.pruning_replay import ScoreCurves
    from search.record.summary import Summary
    from search.record.trials import Trial

CORRELATIONS = 100  # so many resampled correlations are averaged over: a few curves leave it open
HIGHEST = 0.99
GRID = np.arange(-6.0, 8.01, 0.1)  # final scores, as normal scores, over which the chance is summed up
WORTH = 0.8  # the share of its worth that a pruned search is to keep (docs/decisions/0009)
ORDERS, RESAMPLES = 300, 1_000
LEAST = 4  # a rank correlation of fewer curves says nothing


class Stratum(NamedTuple):
    """Curves that stand for equally many trials: those of the finished, or those audited of a rung."""

    curves: ScoreCurves  # scores by epoch, [curves, epochs], higher for better
    copies: int  # how many trials of the search each of them stands for
    rung: int | None = None  # the epoch at which the trials were stopped; None for the finished ones


def whole_of(strata: Sequence[Stratum]) -> ScoreCurves:
    """Return the curves of all strata, each as often as it stands for trials."""
    return np.concatenate([np.repeat(each.curves, each.copies, axis=0) for each in strata])


def picks_of(strata: Sequence[Stratum], random: np.random.Generator, resamples: int) -> NDArray[np.int64]:
    """Return the numbers of curves that each resample draws, [resamples, trials]; strata are numbered on.

    It draws from each stratum as many curves as it has, and takes each as often as it stands for trials:
    copies of one curve are not independent (Davison and Hinkley 1997, Bootstrap Methods and their
    Application, section 3.2, "Several samples").
    """
    sizes = [len(each.curves) for each in strata]
    firsts = np.cumsum(sizes) - sizes
    drawn = [
        first + random.integers(size, size=(resamples, size))
        for first, size in zip(firsts, sizes, strict=True)
    ]
    copies = [each.copies for each in strata]
    return np.concatenate([np.repeat(*each, axis=1) for each in zip(drawn, copies, strict=True)], axis=1)


def spearman(early: ScoreCurves, last: ScoreCurves) -> ScoreCurves:
    """Return Spearman's correlation over the last axis, [...] of [..., trials]; nan for equal scores."""
    from scipy.stats import rankdata

    ranks = [rankdata(each, axis=-1) - (each.shape[-1] + 1) / 2 for each in (early, last)]
    lengths = np.sqrt((ranks[0] ** 2).sum(-1) * (ranks[1] ** 2).sum(-1))
    products = (ranks[0] * ranks[1]).sum(-1)
    found: ScoreCurves = np.divide(products, lengths, out=np.full_like(lengths, np.nan), where=lengths > 0.0)
    return found


def chance_of_better(
    strata: Sequence[Stratum], unknown: Mapping[int, ScoreCurves], rungs: Sequence[int]
) -> float:
    """Return the chance that one of the stopped trials that were not trained on would have ended better than
    every finished one, given that none of those that were trained on has.

    `strata` are the finished trials, then the audited ones of each rung; `unknown` has the scores at its rung
    of each other stopped trial, [trials], higher for better. It is 0 without any.
    """
    if not sum(map(len, unknown.values())):
        return 0.0
    whole, (finished, *audited) = whole_of(strata), strata
    last = max(rungs)
    groups = [(last, finished.curves[:, last - 1])]
    groups += [(each.rung, each.curves[:, each.rung - 1]) for each in audited if each.rung is not None]
    groups += unknown.items()
    ranks = [(rung, _normal_scores(whole[:, rung - 1], scores)) for rung, scores in groups]
    first_unknown = len(audited) + 1
    missed = total = 0.0
    for correlations in _correlations(strata, {rung for rung, _ in groups}):
        below = [_below(scores, correlations[rung]) for rung, scores in ranks]
        of_best = np.diff(np.exp(below[0]))
        none_audited, none_unknown = (
            _between(sum(each)) for each in (below[1:first_unknown], below[first_unknown:])
        )
        total += float((none_audited * of_best).sum())
        missed += float((none_audited * (1.0 - none_unknown) * of_best).sum())
    return missed / total if total > 0.0 else 1.0


def _correlations(strata: Sequence[Stratum], rungs: set[int]) -> Iterator[dict[int, float]]:
    """Yield resampled correlations of normal scores at each rung with the final ones.

    Spearman's becomes Pearson's as for normal scores (Pearson 1907), drawn towards 0 as if there were one
    more curve that said nothing: two or three curves may be in order by luck in every resample.
    """
    curves = np.concatenate([each.curves for each in strata])
    picks, drawn_in = (
        picks_of(strata, np.random.default_rng(0), CORRELATIONS),
        len(curves) / (len(curves) + 1),
    )
    found = {
        rung: 2.0
        * np.sin(math.pi / 6.0 * np.nan_to_num(spearman(curves[picks, rung - 1], curves[picks, -1])))
        for rung in rungs
    }
    for number in range(CORRELATIONS):
        yield {rung: drawn_in * float(each[number].clip(-1.0, 1.0)) for rung, each in found.items()}


def _normal_scores(population: ScoreCurves, scores: ScoreCurves) -> ScoreCurves:
    """Return the normal scores of the places that `scores` have in a population; of equals the middle."""
    from scipy.special import ndtri

    ordered = np.sort(population)
    places = (np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right")) / 2.0
    half = 0.5 / len(ordered)
    normal: ScoreCurves = ndtri((places / len(ordered)).clip(half, 1.0 - half))
    return normal


def _below(ranks: ScoreCurves, correlation: float) -> ScoreCurves:
    """Return the logarithm of the chance that all of these trials end below each point of the grid."""
    from scipy.special import log_ndtr

    correlation = min(HIGHEST, max(-HIGHEST, correlation))
    deviation = math.sqrt(1.0 - correlation**2)
    logs: ScoreCurves = log_ndtr((GRID[:, None] - correlation * ranks) / deviation).sum(1)
    return logs


def _between(logs: ScoreCurves | int) -> ScoreCurves | float:
    """Return the chance between the points of the grid, from its logarithm at them; 1 of no trial."""
    if isinstance(logs, int):
        return 1.0
    chances = np.exp(logs)
    between: ScoreCurves = (chances[1:] + chances[:-1]) / 2.0
    return between


@dataclass(frozen=True)
class Rung:
    """How well the scores of an epoch rank the final ones: Spearman's correlation, 95 % interval."""

    epoch: int
    correlation: float
    low: float | None  # None where all resamples rank alike: nothing is known of other trials
    high: float | None


@dataclass(frozen=True)
class Grace:
    """What is kept of worth, and trained of all epochs, where this epoch is the first rung: shares of 1."""

    epoch: int
    worth: float
    spent: float


@dataclass(frozen=True)
class PruningAudit:
    """What the audit has found; `best` is the score of the search's best trial in the search itself."""

    stopped: int  # the number of trials that were stopped at a rung
    trained: tuple[int, ...]  # the stopped trials that were trained to their end afterwards
    better: tuple[int, ...]  # of the retrained trials, those that beat the best of the search
    best: float
    # the chance that one of the others would have ended better: `chance_of_better` says how it is found; 1
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
    better = [
        number
        for number, trial in trained.items()
        if trial.end != "diverged" and summary.sign * (trial.metrics[summary.objective] - best) > 0.0
    ]
    stopped = stopped_by_rung(summary)
    strata = _strata(summary, trained, stopped)
    correlations = tuple(rank_correlations(strata, pruning.rungs))
    graces = tuple(_graces(whole_of(strata), pruning, len(summary.trials)))
    return PruningAudit(
        sum(map(len, stopped.values())),
        tuple(sorted(trained)),
        tuple(sorted(better)),
        best,
        1.0 if better else _chance(summary, strata, trained, stopped, pruning, best),
        correlations,
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


def _strata(
    summary: Summary, trained: Mapping[int, Trial], stopped: Mapping[int, Sequence[int]]
) -> list[Stratum]:
    """Return the curves of the search as if nothing had been stopped; diverged runs have the worst score."""
    finished = [trial for trial in summary.trials if trial.end == "finished"]
    groups: list[tuple[list[Trial], int, int | None]] = [(finished, 1, None)]
    for rung, numbers in stopped.items():
        if here := [trained[number] for number in numbers if number in trained]:
            groups += [(here, round(len(numbers) / len(here)), rung)]
    epochs = range(1, summary.budget_epochs + 1)
    curves = []
    for trials, _, _ in groups:
        scores = [trial.scores(summary.objective) for trial in trials]
        curves.append(
            summary.sign * np.array([[each.get(epoch, math.nan) for epoch in epochs] for each in scores])
        )
    worst = min(np.nanmin(each) for each in curves)
    return [
        Stratum(np.where(np.isnan(each), worst, each), copies, rung)
        for each, (_, copies, rung) in zip(curves, groups, strict=True)
    ]


def _graces(curves: ScoreCurves, pruning: Pruning, trials: int) -> Iterator[Grace]:
    """Yield what comes of each first rung in the first half of a run, with as many rungs as the search's."""
    from search.deciding.pruning_replay import replayed

    random, epochs = np.random.default_rng(0), curves.shape[1]
    orders = [random.permutation(len(curves))[:trials] for _ in range(ORDERS)]
    for first in range(1, epochs // 2 + 1):
        outcome = replayed(
            curves, orders, rungs(first, pruning.factor, epochs)[: len(pruning.rungs)], pruning.factor
        )
        yield Grace(first, outcome.worth, outcome.spent)
