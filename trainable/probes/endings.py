"""Scores a trained network in each way in which it may be used: weights raw or averaged, one view or several.

Averaging changes nothing in the training, and neither do views at test time; so one run gives all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from trainable.bench import HERE, Bench, Say
from trainable.data import DataSet
from trainable.errors import ModelError, RunError
from trainable.probes.network_cost import times_to_answer
from trainable.recipe import Recipe
from trainable.recipe.distillation import SECTION
from trainable.recipe.training import AVERAGING
from trainable.run import make_run
from trainable.training.network import check_sizes
from trainable.training.run import PREFIXES, Run

FLIP, SCALES = "evaluation.flip", "evaluation.scales"
SEVERAL_SCALES = [1.0, 1.25]  # larger ones cost more (sources 000:46, 004)


@dataclass(frozen=True)
class ScoredEnding:
    """One way to use a trained network, and what comes of it."""

    values: dict[str, Any]  # the fields of the recipe that say it, by dotted path
    scores: dict[str, float]  # of the validation part, such as `val_accuracy`
    latency_ms: float  # from one image on the device to its answer, in the quickest of many passes


def endings_of(recipe: Recipe) -> list[dict[str, Any]]:
    """Return the values of each way to use a network of this recipe, its own among them."""
    own = recipe.evaluation.model_dump(mode="json")["scales"]
    averaging = [{AVERAGING: "none"}, {AVERAGING: "ema"}]
    flips = [False, True] if "horizontal" in (recipe.data.flips or ()) else [recipe.evaluation.flip]
    scales = _different([[1.0], SEVERAL_SCALES, own])
    views = [{FLIP: flip, SCALES: scale} for flip, scale in product(flips, scales)]
    return [{**one, **other} for one, other in product(averaging, views)]


def measure_endings(
    recipe: Recipe,
    *,
    data: DataSet,
    bench: Bench = HERE,
) -> Iterator[ScoredEnding]:
    """Train a recipe once and yield each of its endings, scored on the validation part.

    Views of a size that the network does not take are left out, and one line says which, before any
    training. Raises RunError where the run diverges, and what making a run and training it raise.
    """
    averaged = recipe.with_values({AVERAGING: "ema"})
    run = make_run(averaged, data=data, bench=bench)
    try:
        endings = _possible(run, bench.say)
        while not run.finished:
            run.step()
        if run.diverged:
            raise RunError(f"recipe {recipe.digest()}, seed {recipe.loop.seed}: the run diverged")
        for values in endings:
            yield _ending(run, data, values, bench)
    finally:
        run.close()


def _possible(run: Run, say: Say) -> list[dict[str, Any]]:
    """Return the run's endings without those whose views its network does not take."""
    endings = endings_of(run.recipe)
    for scales in _different([each[SCALES] for each in endings]):
        try:
            check_sizes(run.model, run.recipe.with_values({SCALES: scales}), run.info)
        except ModelError as error:
            say(f"left out: {SCALES} {scales}: {str(error).removeprefix(f'{SCALES}: ')}")
            endings = [each for each in endings if each[SCALES] != scales]
    return endings


def _ending(run: Run, data: DataSet, values: dict[str, Any], bench: Bench) -> ScoredEnding:
    weights = run.weights() if values[AVERAGING] == "ema" else run.model.state_dict()
    as_trained = {AVERAGING: "none", SECTION: None}  # it scores the weights that it has, and asks nobody
    alike = run.recipe.with_values({**values, **as_trained})
    scoring = make_run(alike, data=data, bench=bench)
    try:
        trained = run.state_dict()
        scoring.load_state_dict(
            {**scoring.state_dict(), "model": weights, "epoch": run.epoch, "history": trained["history"]}
        )
        latency = 1e3 * min(times_to_answer(scoring))
        return ScoredEnding(values, scoring.score("validation").metrics(PREFIXES["validation"]), latency)
    finally:
        scoring.close()


def _different(options: list[list[float]]) -> list[list[float]]:
    return [each for at, each in enumerate(options) if each not in options[:at]]
