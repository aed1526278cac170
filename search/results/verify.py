"""Whether a recipe's figure holds: it is trained again with new seeds and scored on the test part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from statistics import fmean, stdev, variance
from typing import Any

from search.record.finals import LEAST_RUNS, error_of_sum, student
from search.record.journal import SEEDS
from search.retraining.luck import error_of_images, parts_differ
from search.retraining.runs import Fresh, Retraining, effort
from trainable.checks.finding import causes_of_gaps, kept
from trainable.data import DataInfo
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.recipe.metrics import NO_SPREAD
from trainable.recipe.provenance import Provenance, Verification
from trainable.training.metrics import OBJECTIVES, SHARES, sign_of, wilson_interval

RULE = (
    "verified if every run finishes, and their mean is not worse than the claimed score by more than the "
    "95 % interval of the difference allows: Student's t with Satterthwaite's degrees of freedom, over the "
    "deviation between seeds, that of the claim itself (a mean of several runs, or one run; by the "
    "validation scores of these runs where it has none of its own), and for test scores that of the images; "
    "where none of these deviates, a share such as accuracy may be worse by Wilson's upper bound of the "
    "share of images at which runs differ, none of which was seen"
)


def verify(recipe: Recipe, runs: int, again: Retraining, info: DataInfo) -> Verification:
    """Train a recipe again with so many new seeds, in fresh processes, and return whether its figure holds.

    The runs are scored on the test part, or on the validation part where there is none. The claimed score is
    the estimate of the search's final, or else the search's own figure. Raises UserError for a recipe that
    says nothing of its score, and OriginsChanged as `Retraining.work` does.
    """
    metric, claimed = claim_of(recipe)
    has_test = info.test_images > 0
    recipes = [recipe.with_values({"loop.seed": seed}) for seed in new_seeds(recipe, runs)]
    part = "test" if has_test else "validation"
    again.bench.say(f"{effort(recipe, runs)}: the recipe with {runs} new seeds, scored on the {part} part")
    fresh = []
    with closing(again.train(recipes, test=has_test)) as runs_made:
        for run in runs_made:
            fresh.append(run)
            scores = ((name, run.score(name)) for name in (metric, f"test_{metric.removeprefix('val_')}"))
            words = ", ".join(f"{name} {score:.4f}" for name, score in scores if score is not None)
            again.bench.say(f"seed {run.seed}: {run.fault or words}")
    images = min(info.validation_images, info.test_images) if has_test else info.validation_images
    found = verification_of(recipe, metric, claimed, fresh, has_test=has_test, images=images)
    if found.parts_differ is None:
        return found
    return found.model_copy(update={"causes": causes_of_gaps(kept(info) or ())})


def claim_of(recipe: Recipe) -> tuple[str, float]:
    """Return the metric of a recipe's search, and the score that the recipe claims. Raises UserError."""
    provenance = recipe.provenance
    metric = provenance.objective if provenance is not None else None
    if provenance is None or metric is None:
        raise UserError("the recipe does not say what it scored (provenance.objective and .metrics)")
    if metric not in OBJECTIVES:
        raise UserError(f"{metric} is a function of your own, which the recipe's file does not hold")
    if provenance.final is not None:
        return metric, provenance.final.estimate
    if metric not in provenance.metrics:
        raise UserError(f"the recipe does not say what it scored (provenance.metrics.{metric})")
    return metric, provenance.metrics[metric]


def new_seeds(recipe: Recipe, count: int) -> list[int]:
    """Return seeds with which neither the search nor its final has trained this recipe, and that did not
    decide what is left out of it or how its network is used."""
    used, provenance = {recipe.loop.seed}, recipe.provenance or Provenance()
    for runs in (provenance.final, provenance.simplified, provenance.finalized):
        used |= set(runs.seeds) if runs is not None else set()
    candidates = ((recipe.loop.seed + k) % SEEDS for k in range(1, SEEDS))
    seeds: list[int] = []
    while len(seeds) < count:
        if (seed := next(candidates)) not in used:
            seeds.append(seed)
    return seeds


def verification_of(
    recipe: Recipe, metric: str, claimed: float, runs: Sequence[Fresh], *, has_test: bool, images: int
) -> Verification:
    """Return what the runs say of the claimed score, of so many images at least; `RULE` says how."""
    name = metric.removeprefix("val_")
    scores = [run.score(f"test_{name}" if has_test else metric) for run in runs]
    finished = [score for score in scores if score is not None]
    common: dict[str, Any] = {
        "metric": metric,
        "part": "test" if has_test else "validation",
        "seeds": tuple(run.seed for run in runs),
        "scores": tuple(finished),
        "validation_scores": tuple(score for run in runs if (score := run.score(metric)) is not None),
        "claimed": claimed,
        "faults": tuple(f"seed {run.seed}: {run.fault}" for run in runs if run.fault is not None),
        "rule": RULE,
    }
    if len(finished) < LEAST_RUNS:
        return Verification(verified=False, **common)
    of_images = error_of_images(name, [run for run in runs if run.fault is None]) ** 2, math.inf
    error, freedom = error_of_sum(
        *_variances_of_seeds(recipe, finished, common["validation_scores"]), of_images
    )
    allowed = student(freedom) * error
    if error <= NO_SPREAD and metric in SHARES:
        allowed = wilson_interval(0, images)[1]
    short = sign_of(OBJECTIVES[metric]) * (claimed - fmean(finished))
    return Verification(
        verified=short <= allowed + NO_SPREAD and not common["faults"],
        mean=fmean(finished),
        deviation=stdev(finished),
        short=short,
        allowed=allowed,
        parts_differ=parts_differ(metric, runs),
        **common,
    )


def _variances_of_seeds(
    recipe: Recipe, scores: Sequence[float], on_validation: Sequence[float]
) -> list[tuple[float, int]]:
    """Return the variances that seeds give the mean of these scores and the claimed one, each with its
    degrees of freedom.

    A final has scores of its own. Any other claim is a validation score and deviates as those of these runs
    do: the figure of a search is one run, that of a recipe that was made simpler or finalized the mean over
    the seeds of that step. Then both deviations are of the same runs, and count as one estimate.
    """
    provenance = recipe.provenance or Provenance()
    of_mean, freedom = variance(scores) / len(scores), len(scores) - 1
    if provenance.final is None:
        return [(of_mean + variance(on_validation) / _runs_of_claim(provenance), freedom)]
    claims = provenance.final.scores
    return [(of_mean, freedom), (variance(claims) / len(claims), len(claims) - 1)]


def _runs_of_claim(provenance: Provenance) -> int:
    claimed = provenance.metrics.values()
    steps = [
        each for each in (provenance.simplified, provenance.finalized) if each is not None and each.changed
    ]
    return next((len(each.seeds) for each in steps if each.after in claimed), 1)
