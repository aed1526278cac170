"""What luck leaves of a difference: between runs that share seeds, and between test and validation scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean, variance
from typing import Any

from search.record.finals import LEAST_RUNS, LEVEL, SeedScores, error_of_sum, student
from search.retraining.runs import Fresh
from trainable.recipe.metrics import NO_SPREAD
from trainable.training.score_gap import LEVEL as GAP_LEVEL
from trainable.training.score_gap import ScoreGap, words_of


def half_width(gains: Sequence[SeedScores], level: float = LEVEL) -> float:
    """Return the half width of the interval of a mean gain, from the gains of several changes by seed.

    A gain is the score of one run minus that of another with the same seed. Their deviation is pooled over
    the changes, since a few seeds of one alone would say little; the interval is Student's. It is 0 without
    any change.
    """
    if not gains:
        return 0.0
    freedom, runs = sum(len(each) - 1 for each in gains), len(gains[0])
    pooled = sum(float(((each - each.mean()) ** 2).sum()) for each in gains) / freedom
    return student(freedom, level) * math.sqrt(pooled / runs)


def parts_differ(metric: str, runs: Sequence[Fresh]) -> str | None:
    """Return in words by how much the mean test score differs from the mean validation score, where that is
    more than chance allows; None where it is not, or where fewer than two runs have both.

    The interval of the mean difference d of n runs is d ± t (s² / n + e²) ** 0.5. Here s is the deviation
    between seeds of a run's own difference: a run's luck that raises both scores cancels out. All runs are
    scored on the same images, so their number does not make the luck of these images smaller: e is the
    standard error that it leaves in one run's difference, as the bootstrap found it, averaged over runs. t is
    Student's at 99 %, as in `score_gap`, with the degrees of freedom of Satterthwaite (1946, Biometrics
    Bulletin 2, 110-114). Where the parts are of one kind, e alone holds all the luck of a run's difference:
    then the interval is rather too wide, and fewer than one recipe in a hundred is said to differ. Where
    neither seeds nor images leave a spread, nothing is said: any difference would count as sure.
    """
    name = metric.removeprefix("val_")
    both = [run for run in runs if run.score(metric) is not None and run.score(f"test_{name}") is not None]
    if len(both) < LEAST_RUNS:
        return None
    validation, test = ([run.result[each] for run in both] for each in (metric, f"test_{name}"))
    differences = [after - before for before, after in zip(validation, test, strict=True)]
    of_seeds = variance(differences) / len(both), len(both) - 1
    error, freedom = error_of_sum(of_seeds, (error_of_images(name, both) ** 2, math.inf))
    if error <= NO_SPREAD:
        return None
    mean, half = fmean(differences), student(freedom, GAP_LEVEL) * error
    gap = ScoreGap(name, fmean(validation), fmean(test), mean - half, mean + half)
    return f"means over {len(both)} runs: {words_of([gap])}" if gap.differ else None


def error_of_images(name: str, runs: Sequence[Fresh]) -> float:
    """Return the standard error of test minus validation score that comes from their images, averaged over
    runs; 0 for runs without test scores and where it is not known."""
    return fmean(_error_of_images(name, run.result) for run in runs)


def _error_of_images(name: str, result: Mapping[str, Any]) -> float:
    gaps = result.get("validation_test_gap")
    if gaps is None or name not in gaps["metrics"]:
        return 0.0
    low, high = gaps["metrics"][name]["interval"]
    return float((high - low) / (2.0 * NormalDist().inv_cdf(0.5 + gaps["level"] / 2.0)))
