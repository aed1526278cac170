"""Says whether a recipe's figure holds: it is trained again with new seeds and scored on the test part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist, fmean, stdev
from typing import Any

from search.facts.measured import Say, silent
from search.record.finals import LEAST_RUNS, student
from search.record.repeats import SEEDS
from search.retraining.processes import refuse_own_code
from search.retraining.runs import Fresh, train_all
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.recipe.provenance import Verification
from trainable.training.metrics import OBJECTIVES

RULE = (
    "verified if every run finishes, and their mean is not worse than the claimed score by more than the "
    "95 % interval of the difference allows: Student's t with Satterthwaite's degrees of freedom, over the "
    "deviation between seeds, that of the claim itself, and that of the images where it is known"
)


def verify(
    recipe: Recipe, runs: int, *, has_test: bool, download: bool = False, say: Say = silent
) -> Verification:
    """Trains a recipe again with so many new seeds, in fresh processes, and returns whether its figure holds.

    The runs are scored on the test part, or on the validation part where there is none. The claimed score is
    the estimate of the search's final, or else the search's own figure. Raises UserError for a recipe that
    says nothing of its score, and for one with functions of a person's own.
    """
    refuse_own_code(recipe)
    metric, claimed = claim_of(recipe)
    again = [recipe.with_values({"loop.seed": seed}) for seed in new_seeds(recipe, runs)]
    fresh = []
    for run in train_all(again, test=has_test, download=download):
        fresh.append(run)
        scores = ((name, run.score(name)) for name in (metric, f"test_{metric.removeprefix('val_')}"))
        words = ", ".join(f"{name} {score:.4f}" for name, score in scores if score is not None)
        say(f"seed {run.seed}: {run.fault or words}")
    return judged(recipe, metric, claimed, fresh, has_test=has_test)


def claim_of(recipe: Recipe) -> tuple[str, float]:
    """Returns the metric of a recipe's search, and the score that the recipe claims. Raises UserError."""
    known = recipe.provenance
    metric = known.objective if known is not None else None
    if known is None or metric is None:
        raise UserError(
            "--verify: the recipe does not say what it scored (provenance.objective and .metrics)"
        )
    if metric not in OBJECTIVES:
        raise UserError(
            f"--verify: {metric} is a function of your own, which the recipe's file does not hold"
        )
    if known.final is not None:
        return metric, known.final.estimate
    if metric not in known.metrics:
        raise UserError(f"--verify: the recipe does not say what it scored (provenance.metrics.{metric})")
    return metric, known.metrics[metric]


def new_seeds(recipe: Recipe, count: int) -> list[int]:
    """Returns seeds with which neither the search nor its final has trained this recipe."""
    used = {recipe.loop.seed}
    if recipe.provenance is not None and recipe.provenance.final is not None:
        used |= set(recipe.provenance.final.seeds)
    candidates = ((recipe.loop.seed + k) % SEEDS for k in range(1, SEEDS))
    found: list[int] = []
    while len(found) < count:
        if (seed := next(candidates)) not in used:
            found.append(seed)
    return found


def judged(
    recipe: Recipe, metric: str, claimed: float, runs: Sequence[Fresh], *, has_test: bool
) -> Verification:
    """Returns what the runs say of the claimed score; `RULE` says how."""
    name = metric.removeprefix("val_")
    scores = [run.score(f"test_{name}" if has_test else metric) for run in runs]
    known = [score for score in scores if score is not None]
    common: dict[str, Any] = {
        "metric": metric,
        "part": "test" if has_test else "validation",
        "seeds": tuple(run.seed for run in runs),
        "scores": tuple(known),
        "validation_scores": tuple(score for run in runs if (score := run.score(metric)) is not None),
        "claimed": claimed,
        "faults": tuple(f"seed {run.seed}: {run.fault}" for run in runs if run.fault is not None),
        "rule": RULE,
    }
    if len(known) < LEAST_RUNS:
        return Verification(verified=False, **common)
    of_seeds = stdev(known) / math.sqrt(len(known))
    of_images = fmean(
        map(_error_of_images, (run.result for run in runs if run.fault is None), [name] * len(known))
    )
    error, freedom = _combined(
        (of_seeds, len(known) - 1), _error_of_claim(recipe, known), (of_images, math.inf)
    )
    allowed = student(freedom) * error
    sign = 1.0 if OBJECTIVES[metric] == "max" else -1.0
    short = sign * (claimed - fmean(known))
    return Verification(
        verified=short <= allowed and not common["faults"],
        mean=fmean(known),
        deviation=stdev(known),
        short=short,
        allowed=allowed,
        **common,
    )


def _error_of_claim(recipe: Recipe, scores: Sequence[float]) -> tuple[float, float]:
    """Returns the standard error of the claimed score, and its degrees of freedom.

    That of a final is in its interval; a search's own figure is one run, which deviates as these do.
    """
    final = recipe.provenance.final if recipe.provenance is not None else None
    if final is None:
        return stdev(scores), len(scores) - 1
    freedom = len(final.scores) - 1
    return stdev(final.scores) / math.sqrt(len(final.scores)), freedom


def _error_of_images(result: Mapping[str, Any], name: str) -> float:
    """Returns the standard error of test minus validation score that comes from their images; 0 without a
    test part, where both are of the same images."""
    gaps = result.get("validation_test_gap")
    if gaps is None or name not in gaps["metrics"]:
        return 0.0
    low, high = gaps["metrics"][name]["interval"]
    return float((high - low) / (2.0 * NormalDist().inv_cdf(0.5 + gaps["level"] / 2.0)))


def _combined(*parts: tuple[float, float]) -> tuple[float, float]:
    """Returns the error of a sum of independent parts, each a standard error with its degrees of freedom."""
    variance = sum(error**2 for error, _ in parts)
    if variance == 0.0:
        return 0.0, math.inf
    sums = math.fsum(error**4 / freedom for error, freedom in parts)
    return math.sqrt(variance), variance**2 / sums if sums > 0.0 else math.inf
