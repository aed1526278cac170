"""How a trained network is used: with raw or averaged weights, with one view of an image or several.

A recipe is trained with several seeds, and each network is scored on the validation part in every way. The
recipe's own way stays, unless another one is better by more than the interval of the paired difference
allows, at 95 % for all comparisons together (Bonferroni). Where the seeds agree on every difference, nothing
says how much of it is luck, and the own way stays.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from search.record.finals import LEVEL
from search.reporting.tables import TextTable
from search.retraining.luck import half_width
from search.retraining.runs import Retraining, effort
from spaces.domains import shown
from trainable.bench import Bench
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.recipe.metrics import NO_SPREAD
from trainable.recipe.provenance import AGREE
from trainable.training.metrics import OBJECTIVES, sign_of

if TYPE_CHECKING:  # torch takes seconds to import
    from trainable.origins import Origins


@dataclass(frozen=True)
class ScoringWay:
    """One way to use the network: its fields in a recipe, its scores by seed, and its latency."""

    values: dict[str, Any]
    scores: tuple[float, ...]
    latency_ms: float  # the median over the trained networks

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))


@dataclass(frozen=True)
class ScoringWays:
    """The ways to use a network, the recipe's own first, and the recipe with the chosen one."""

    recipe: Recipe
    ways: tuple[ScoringWay, ...]
    chosen: ScoringWay
    noise: float  # a way must gain more than this to be chosen in place of the recipe's own
    metric: str

    def table(self) -> TextTable:
        """Return a row for each way."""
        rows = tuple(
            (
                ", ".join(f"{path.split('.')[1]} {shown(value)}" for path, value in way.values.items()),
                f"{way.mean:.4f}",
                f"{way.mean - self.ways[0].mean:+.4f}",
                f"{way.latency_ms:.3g}",
                "chosen" if way == self.chosen else "",
            )
            for way in self.ways
        )
        luck = f"a difference of {self.noise:.4f} may be luck" if self.noise > NO_SPREAD else AGREE
        caption = f"{luck}; the first way is the recipe's own"
        return TextTable("", ("way", self.metric, "difference", "latency_ms", ""), rows, caption=caption)


def finalize(recipe: Recipe, metric: str, seeds: Sequence[int], again: Retraining) -> ScoringWays:
    """Return the recipe with the way to use its network that is best by `metric` of the validation part.

    Raises UserError where the recipe does not finish with each seed, and OriginsChanged as `Retraining.work`
    does.
    """
    what = f"the recipe with {len(seeds)} new seeds, each scored in several ways"
    again.bench.say(f"{effort(recipe, len(seeds))}: {what}")
    by_values: dict[str, list[dict[str, Any]]] = {}
    recipes = [recipe.with_values({"loop.seed": seed}) for seed in seeds]
    with closing(again.work(_measured, recipes)) as runs:
        for done in runs:
            if done.fault is not None:
                raise UserError(f"--finalize: seed {done.recipe.loop.seed}: {done.fault}")
            endings, lines = done.result
            for line in lines if not by_values else ():  # they are the same for each seed
                again.bench.say(line)
            again.bench.say(f"seed {done.recipe.loop.seed}: scored in {len(endings)} ways")
            for ending in endings:
                by_values.setdefault(json.dumps(ending["values"], sort_keys=True), []).append(ending)
    ways = [
        ScoringWay(
            same[0]["values"],
            tuple(each["scores"][metric] for each in same),
            median(each["latency_ms"] for each in same),
        )
        for same in by_values.values()
    ]
    return chosen_of(recipe, ways, metric)


def chosen_of(recipe: Recipe, ways: Sequence[ScoringWay], metric: str) -> ScoringWays:
    """Return the recipe with the best of the ways; one of them is the recipe's own."""
    sign = sign_of(OBJECTIVES[metric])
    own = next(way for way in ways if all(recipe.get(path) == value for path, value in way.values.items()))
    others = [way for way in ways if way != own]
    gains = [sign * (np.array(way.scores) - np.array(own.scores)) for way in others]
    noise = half_width(gains, 1.0 - (1.0 - LEVEL) / max(1, len(gains)))
    best = max([own, *others], key=lambda way: sign * way.mean)
    chosen = best if sign * (best.mean - own.mean) > noise > NO_SPREAD else own
    return ScoringWays(recipe.with_values(chosen.values), (own, *others), chosen, noise, metric)


def _measured(
    recipe: Recipe, test: bool, bench: Bench
) -> tuple[tuple[list[dict[str, Any]], list[str]], Origins]:
    from trainable.origins import Origins
    from trainable.probes.endings import measure_endings
    from trainable.tasks.kits import load_for
    from trainable.train import threads_of

    lines: list[str] = []
    with threads_of(recipe.provenance, bench):
        data = load_for(recipe, bench)
        data.refuse_leaks(recipe.data)
        data.be_here()
        origins = Origins.of_files(recipe, data.info)
        endings = measure_endings(recipe, data=data, bench=replace(bench, say=lines.append))
        return ([vars(each) for each in endings], lines), origins
