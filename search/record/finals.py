"""Which trials are trained again with fresh seeds, what their runs have come to, and which of them wins.

The best score of a search is the largest of many, each partly luck, so the recipe behind it scores lower when
it is trained again. The finalists' new runs were not chosen by their scores. Of k finalists with n runs each,
where run j of all has the same seed and the same split:

- **the estimate** of a finalist is the mean of its runs, drawn towards the mean m of all finalists:
  m + (1 - E / A) (mean - m), with the mean squares A between finalists and E of the residuals, and never
  beyond m. This is the best linear unbiased prediction of a random effect with its variances estimated by
  the analysis of variance (Robinson 1991, Statistical Science 6, "That BLUP is a good thing"; Efron and
  Morris 1975, JASA 70, 311-319, for why it is nearer to the truth than the means). It makes up for choosing
  the best of the finalists.
- **the interval** is the estimate with Student's t at 95 % times the standard error of a mean,
  ((S + (k - 1) E) / (k n)) ** 0.5, with the mean square S between seeds, and the degrees of freedom of
  Satterthwaite (1946, Biometrics Bulletin 2, 110-114). One finalist has its own deviation alone. Where all
  seeds agree there is none: the same score on the same images tells nothing of other images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from search.record.journal import SEEDS, Repeat
from search.record.trials import Trial
from search.study.study import Finalists
from trainable.recipe.metrics import NO_SPREAD
from trainable.training.metrics import SHARES, student_quantile

SeedScores = NDArray[np.float64]
LEVEL = 0.95  # the share of searches in which the interval is to hold the recipe's true mean
LEAST_RUNS = 2  # one run says nothing of its deviation


@dataclass(frozen=True)
class Interval:
    """A range in which a recipe's true mean lies, in `LEVEL` of searches."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:.4f} to {self.high:.4f}"


@dataclass(frozen=True)
class Estimate:
    """How well a recipe scores, by its runs with fresh seeds."""

    value: float  # the mean of its scores, drawn towards that of all finalists
    interval: Interval | None  # None where all seeds agree
    seeds: tuple[int, ...]  # the seeds with which every finalist that takes part has finished
    scores: tuple[float, ...]  # its scores with these seeds, two or more

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))

    @property
    def bounds(self) -> tuple[float, float] | tuple[None, None]:
        """Both ends of the interval."""
        return (None, None) if self.interval is None else (self.interval.low, self.interval.high)

    @property
    def deviation(self) -> float:
        """The standard deviation of a run, from these runs alone."""
        return float(np.std(self.scores, ddof=1))

    def json(self) -> dict[str, Any]:
        """Return plain data."""
        return {**asdict(self), "mean": self.mean, "deviation": self.deviation}


@dataclass(frozen=True)
class Finalist:
    """What the runs of one finalist have come to."""

    trial: int  # its number in the search
    score: float  # its own score in the search, by which it became a finalist
    runs: tuple[Trial, ...]  # the trials that repeat it, in the order of their numbers
    # it is None where fewer than two seeds count, and where the finalist takes no further part
    estimate: Estimate | None = None

    @property
    def gap(self) -> float | None:
        """By how much the search's own figure is above the estimate."""
        return None if self.estimate is None else self.score - self.estimate.value

    @property
    def is_whole(self) -> bool:
        """Whether none of its runs has diverged or crashed for good."""
        return all(run.end in (None, "finished", "stopped") for run in self.runs)

    def json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "trial": self.trial,
            "score": self.score,
            "runs": [run.id for run in self.runs],
            "estimate": self.estimate.json() if self.estimate is not None else None,
            "gap": self.gap,
        }


@dataclass(frozen=True)
class Finals:
    """The finalists, the best of the search first."""

    finalists: tuple[Finalist, ...]
    sign: float  # 1 where a higher score is better, -1 where a lower one is
    over: bool  # whether no run is missing and none is going on

    @cached_property
    def winner(self) -> Finalist | None:
        """The finalist with the best estimate, when the final is over; None where no estimate is known.

        Where differences are all luck the estimates are equal: then it is the one with the best mean.
        """
        known = [(each.estimate, each) for each in self.finalists if each.estimate is not None]
        if not self.over or not known:
            return None
        return max(known, key=lambda pair: (self.sign * pair[0].value, self.sign * pair[0].mean))[1]

    @property
    def epochs(self) -> int:
        """The epochs that the runs have trained."""
        return sum(run.epochs for each in self.finalists for run in each.runs)

    def json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "level": LEVEL,
            "over": self.over,
            "winner": self.winner.trial if self.winner is not None else None,
            "epochs": self.epochs,
            "finalists": [each.json() for each in self.finalists],
        }


def finals_of(
    chosen: Sequence[Trial], trials: Sequence[Trial], metric: str, sign: float, *, over: bool
) -> Finals:
    """Return what the runs of the chosen trials, which are among `trials`, have come to.

    A finalist with a run that diverged or crashed takes no further part: its recipe does not reproduce.
    """
    finalists = [_finalist(trial, trials, metric) for trial in chosen]
    taking_part = [each for each in finalists if each.is_whole]
    seeds, scores = _common_scores(taking_part, metric)
    if len(seeds) < LEAST_RUNS:
        return Finals(tuple(finalists), sign, over)
    values, half_width = estimated(scores)
    known = {
        each.trial: replace(each, estimate=_estimate(float(value), half_width, seeds, mine, metric))
        for each, mine, value in zip(taking_part, scores, values, strict=True)
    }
    return Finals(tuple(known.get(each.trial, each) for each in finalists), sign, over)


def estimated(scores: SeedScores) -> tuple[SeedScores, float]:
    """Return the estimate of each finalist, [finalists], and the half width of every interval.

    `scores` is [finalists, runs], with two runs or more; a column holds the runs with one seed.
    """
    squares = _mean_squares(scores)
    error, freedom = _error_of_a_mean(squares, *scores.shape)
    means, everything = scores.mean(1), scores.mean()
    estimates = everything + squares.kept * (means - everything)
    return estimates, student(freedom) * error


def student(freedom: float, level: float = LEVEL) -> float:
    """Return how many standard errors to either side hold so much of Student's t distribution; of the normal
    distribution for infinite degrees of freedom."""
    return student_quantile(0.5 + level / 2.0, freedom)


def error_of_sum(*parts: tuple[float, float]) -> tuple[float, float]:
    """Return the standard error of a sum of independent parts, and its degrees of freedom.

    Each part is a variance, 0 or more, with its degrees of freedom. The sum's degrees are Satterthwaite's
    (1946, Biometrics Bulletin 2, 110-114), infinite where nothing deviates.
    """
    uncertain = [(variance, freedom) for variance, freedom in parts if variance > 0.0]
    total = math.fsum(variance for variance, _ in uncertain)
    squares = math.fsum(variance**2 / freedom for variance, freedom in uncertain)
    return math.sqrt(total), total**2 / squares if squares > 0.0 else math.inf


class _MeanSquares(NamedTuple):
    """The mean squares of a table of scores; those that one finalist does not have are 0."""

    finalists: float
    seeds: float
    residuals: float

    @property
    def kept(self) -> float:
        """The share of the differences between finalists that is more than luck, in [0, 1]."""
        return max(0.0, 1.0 - self.residuals / self.finalists) if self.finalists > 0.0 else 1.0


def _mean_squares(scores: SeedScores) -> _MeanSquares:
    finalists, runs = scores.shape
    of_finalists, of_seeds = scores.mean(1) - scores.mean(), scores.mean(0) - scores.mean()
    rest = scores - scores.mean() - of_finalists[:, None] - of_seeds
    others = max(finalists - 1, 1)  # one finalist has neither differences nor residuals
    return _MeanSquares(
        runs * float((of_finalists**2).sum()) / others,
        finalists * float((of_seeds**2).sum()) / (runs - 1),
        float((rest**2).sum()) / (others * (runs - 1)),
    )


def _error_of_a_mean(squares: _MeanSquares, finalists: int, runs: int) -> tuple[float, float]:
    """Return the standard error of a finalist's mean, and its degrees of freedom."""
    scores = finalists * runs
    of_seeds = squares.seeds / scores, runs - 1
    of_rest = (finalists - 1) * squares.residuals / scores, (finalists - 1) * (runs - 1)
    return error_of_sum(of_seeds, of_rest)


def _estimate(
    value: float, half_width: float, seeds: Sequence[int], scores: SeedScores, metric: str
) -> Estimate:
    """Return an estimate with its interval, without values that the metric cannot have."""
    low, high = value - half_width, value + half_width
    if metric in SHARES:
        low, high = max(low, 0.0), min(high, 1.0)
    interval = Interval(low, high) if half_width > NO_SPREAD else None
    return Estimate(value, interval, tuple(seeds), tuple(scores.tolist()))


def _finalist(trial: Trial, trials: Sequence[Trial], metric: str) -> Finalist:
    repeats = ((each, each.repeat) for each in trials if each.repeat is not None)
    runs = (each for each, repeat in repeats if repeat.purpose == "finalist" and repeat.of == trial.id)
    return Finalist(trial.id, trial.metrics[metric], tuple(runs))


def _common_scores(finalists: Sequence[Finalist], metric: str) -> tuple[list[int], SeedScores]:
    """Return the seeds with which all of them have finished, and their scores, [finalists, seeds]."""
    by_seed = [
        {run.repeat.seed: run.metrics[metric] for run in each.runs if run.repeat and run.end == "finished"}
        for each in finalists
    ]
    first = by_seed[0] if by_seed else {}
    common = [seed for seed in first if seed is not None and all(seed in each for each in by_seed)]
    scores = np.array([[each[seed] for seed in common] for each in by_seed])
    return common, scores.reshape(len(by_seed), len(common))


def best_first(trials: Sequence[Trial], metric: str, sign: float) -> list[Trial]:
    """Return the search's own finished trials, the best first; of equals the earliest.

    A metric is better where `sign` times its value is higher.
    """
    finished = [trial for trial in trials if trial.end == "finished" and not trial.is_repeat]
    return sorted(finished, key=lambda trial: -sign * trial.metrics[metric])


def finalists_of(finalists: Finalists, ranked: Sequence[Trial]) -> list[Trial]:
    """Return the trials that are trained again: the best ones, each recipe once.

    A small space is drawn from twice.
    """
    first: dict[str | None, Trial] = {}
    for trial in ranked:
        first.setdefault(trial.digest, trial)
    return list(first.values())[: finalists.top]


def missing_runs(finalists: Finalists, chosen: Sequence[Trial], trials: Sequence[Trial]) -> Iterator[Repeat]:
    """Yield the runs of the chosen finalists that are not among `trials`, in the order of their training.

    Every finalist has its first run before any has its second: where time ends early, all have equally many.
    Run k has the k-th seed above the recipe's own, and with fresh splits the k-th split above: the same for
    all finalists, so that they are compared on equal images. A finalist with a run that diverged or crashed
    for good takes no further part, and trains no other run.
    """
    runs = [(each, each.repeat) for each in trials if each.repeat and each.repeat.purpose == "finalist"]
    there = {(repeat.of, repeat.seed) for _, repeat in runs}
    out = {repeat.of for run, repeat in runs if run.end in ("diverged", "failed")}
    staying = [trial for trial in chosen if trial.id not in out]
    for k in range(1, finalists.seeds + 1):
        for trial in staying:
            assert trial.recipe is not None, "a finished trial has a recipe"
            seed = (int(trial.recipe["loop"]["seed"]) + k) % SEEDS
            if (trial.id, seed) not in there:
                first = trial.recipe["data"]["validation_seed"] or 0
                split = first + k if finalists.splits == "fresh" else None
                yield Repeat(of=trial.id, purpose="finalist", seed=seed, split=split)
