"""Says whether pruning has stopped the wrong trials, from a sample of them that was trained to the end.

Each trial of the sample stands for all that were stopped at its rung. So the sample and the finished trials
together are curves of the whole search, as if nothing had been stopped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from search.deciding.pruning import Pruning
from search.deciding.scheduler import rungs

if TYPE_CHECKING:
    from search.deciding.pruning_replay import Curves
    from search.record.summary import Summary
    from search.record.trials import Trial

WORTH = 0.8
"""The share of its worth that a pruned search is to keep (docs/decisions/0009)."""
ORDERS, RESAMPLES = 300, 1_000
LEAST = 4
"""A rank correlation of fewer curves says nothing."""


@dataclass(frozen=True)
class Rung:
    """Says how well the scores of an epoch rank the final ones: Spearman's correlation, 95 % interval."""

    epoch: int
    correlation: float
    low: float
    high: float


@dataclass(frozen=True)
class Grace:
    """Says what pruning would do that compares trials first at this epoch: shares of worth and of epochs."""

    epoch: int
    worth: float
    spent: float


@dataclass(frozen=True)
class PruningAudit:
    """Holds what the audit has found; `best` is the score of the search's best trial in the search itself."""

    stopped: int
    """The number of trials that were stopped at a rung."""
    trained: tuple[int, ...]
    """Those of them that were trained to their end."""
    better: tuple[int, ...]
    """Those of these that ended better than the best of the search."""
    best: float
    chance: float
    """The chance that any stopped trial would have ended better; 1 where one has."""
    rungs: tuple[Rung, ...]
    graces: tuple[Grace, ...]
    grace: int | None
    """The first epoch from which a search keeps `WORTH`; None where no epoch of the first half does."""

    def json(self) -> dict[str, Any]:
        """Returns plain data."""
        return asdict(self)


class Stratum(NamedTuple):
    """Holds curves that stand for equally many trials: those of the finished, or those audited of a rung."""

    curves: Curves
    """Scores by epoch, [curves, epochs], higher for better."""
    copies: int
    """How many trials of the search each of them stands for."""


def sampled(summary: Summary, share: float, seed: int) -> list[int]:
    """Returns the stopped trials that an audit of this share trains and that are not trained to the end yet.

    Of each rung's it is the share, rounded up, in a random order that `seed` decides: a larger share takes
    the same trials and more.
    """
    there = {each.repeat.of for each in summary.repeats if each.repeat and each.repeat.purpose == "pruning"}
    return [
        number
        for stopped in _stopped_by_rung(summary).values()
        for number in _shuffled(stopped, seed)[: math.ceil(share * len(stopped))]
        if number not in there
    ]


def audit_of(summary: Summary, pruning: Pruning) -> PruningAudit | None:
    """Returns what the trials that were trained to their end say; None before any has been."""
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
    stopped = sum(map(len, _stopped_by_rung(summary).values()))
    strata = _strata(summary, trained)
    found = tuple(rank_correlations(strata, pruning.rungs))
    graces = tuple(_graces(_whole(strata), pruning, len(summary.trials)))
    return PruningAudit(
        stopped,
        tuple(sorted(trained)),
        tuple(sorted(better)),
        best,
        chance_of_better(len(better), len(trained), stopped),
        found,
        graces,
        next((each.epoch for each in graces if each.worth >= WORTH), None),
    )


def rank_correlations(strata: Sequence[Stratum], epochs: Sequence[int]) -> Iterator[Rung]:
    """Yields how well each epoch's scores rank the final ones, with the interval of a stratified bootstrap.

    A resample draws from each stratum as many curves as it has, and takes each as often as it stands for
    trials: copies of one curve are not independent (Davison and Hinkley 1997, Bootstrap Methods and their
    Application, section 3.2, "Several samples"). Yields nothing for fewer than `LEAST` curves.
    """
    if sum(len(each.curves) for each in strata) < LEAST:
        return
    whole, distinct = _whole(strata), np.concatenate([each.curves for each in strata])
    picks = _picks(strata, np.random.default_rng(0))
    for epoch in epochs:
        correlation = float(_correlation(whole[:, epoch - 1], whole[:, -1]))
        if not math.isnan(correlation):
            resampled = _correlation(distinct[picks, epoch - 1], distinct[picks, -1])
            low, high = np.nanpercentile(resampled, [2.5, 97.5])
            yield Rung(epoch, correlation, float(low), float(high))


def chance_of_better(better: int, trained: int, stopped: int) -> float:
    """Returns the chance that at least one of the stopped trials would have ended better than the best.

    It is the posterior predictive probability under Jeffreys' prior, Beta(1/2, 1/2), for the share of better
    ones (Brown, Cai and DasGupta 2001, Statistical Science 16, 101-133, section 3.2): for none in n it is
    1 - B(1/2, stopped + 1/2) / B(1/2, n + 1/2).
    """
    from scipy.special import betaln

    if better:
        return 1.0
    return 1.0 - math.exp(betaln(0.5, stopped + 0.5) - betaln(0.5, trained + 0.5))


def _stopped_by_rung(summary: Summary) -> Mapping[int, list[int]]:
    """Returns the trials that were stopped at each rung; the end of a budget stops trials between rungs."""
    found: dict[int, list[int]] = {}
    for trial in summary.trials:
        if trial.end == "stopped" and trial.history and (rung := trial.history[-1].rung) is not None:
            found.setdefault(rung, []).append(trial.id)
    return found


def _shuffled(numbers: Sequence[int], seed: int) -> list[int]:
    order: list[int] = np.random.default_rng((seed, len(numbers))).permutation(numbers).tolist()
    return order


def _final(trial: Trial, summary: Summary) -> float:
    """Returns a trial's last score, higher for better; the worst of all for one that diverged."""
    if trial.end == "diverged":
        return -math.inf
    return summary.sign * trial.metrics[summary.objective]


def _strata(summary: Summary, trained: Mapping[int, Trial]) -> list[Stratum]:
    """Returns the curves of the search as if nothing had been stopped; diverged runs have the worst score."""
    groups = [([trial for trial in summary.trials if trial.end == "finished"], 1)]
    for stopped in _stopped_by_rung(summary).values():
        if here := [trained[number] for number in stopped if number in trained]:
            groups += [(here, round(len(stopped) / len(here)))]
    scores = [(np.array([_curve(trial, summary) for trial in trials]), copies) for trials, copies in groups]
    worst = min(np.nanmin(curves) for curves, _ in scores)
    return [Stratum(np.where(np.isnan(curves), worst, curves), copies) for curves, copies in scores]


def _curve(trial: Trial, summary: Summary) -> list[float]:
    scores = trial.scores(summary.objective)
    return [summary.sign * scores.get(epoch, math.nan) for epoch in range(1, summary.budget_epochs + 1)]


def _whole(strata: Sequence[Stratum]) -> Curves:
    """Returns the curves of all strata, each as often as it stands for trials."""
    return np.concatenate([np.repeat(each.curves, each.copies, axis=0) for each in strata])


def _picks(strata: Sequence[Stratum], random: np.random.Generator) -> NDArray[np.int64]:
    """Returns the numbers of curves that each resample draws, [RESAMPLES, trials]; strata are numbered on."""
    sizes = [len(each.curves) for each in strata]
    firsts = np.cumsum(sizes) - sizes
    drawn = [
        first + random.integers(size, size=(RESAMPLES, size))
        for first, size in zip(firsts, sizes, strict=True)
    ]
    copies = [each.copies for each in strata]
    return np.concatenate([np.repeat(*each, axis=1) for each in zip(drawn, copies, strict=True)], axis=1)


def _correlation(early: Curves, last: Curves) -> Curves:
    """Returns Spearman's correlation over the last axis, [...] of [..., trials]; nan for equal scores."""
    from scipy.stats import rankdata

    ranks = [rankdata(each, axis=-1) - (each.shape[-1] + 1) / 2 for each in (early, last)]
    lengths = np.sqrt((ranks[0] ** 2).sum(-1) * (ranks[1] ** 2).sum(-1))
    products = (ranks[0] * ranks[1]).sum(-1)
    found: Curves = np.divide(products, lengths, out=np.full_like(lengths, np.nan), where=lengths > 0.0)
    return found


def _graces(curves: Curves, pruning: Pruning, trials: int) -> Iterator[Grace]:
    """Yields what comes of each first rung in the first half of a run, with as many rungs as the search's."""
    from search.deciding.pruning_replay import replayed

    random, epochs = np.random.default_rng(0), curves.shape[1]
    orders = [random.permutation(len(curves))[:trials] for _ in range(ORDERS)]
    for first in range(1, epochs // 2 + 1):
        found = replayed(
            curves, orders, rungs(first, pruning.factor, epochs)[: len(pruning.rungs)], pruning.factor
        )
        yield Grace(first, found.worth, found.spent)
