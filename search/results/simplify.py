"""A recipe without what it does not need: each technique is switched off in turn, with shared seeds.

A technique's effect is the mean over seeds of the score with it minus the score without it, in which the luck
of a seed cancels out. Its 95 % interval has Student's t and the deviation of these differences, pooled over
techniques. A technique is dropped where the interval does not lie above 0. Techniques that are dropped one by
one may matter together: so the recipe without all of them is trained too, and as long as it is worse than
luck allows, the dropped technique with the largest effect comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from search.record.finals import Interval, SeedScores
from search.reporting.tables import TextTable
from search.retraining.luck import half_width
from search.retraining.runs import Retraining, effort
from spaces.domains import counted, shown
from trainable.errors import RecipeError, UserError
from trainable.recipe import Recipe
from trainable.recipe.metrics import NO_SPREAD
from trainable.recipe.provenance import AGREE, Dropped, Simplified
from trainable.recipe.techniques import techniques_of, without
from trainable.training.metrics import OBJECTIVES, sign_of

WHOLE = "the whole recipe"
# trains recipes by name; returns their scores by seed, None where a run comes to nothing
Train = Callable[[Mapping[str, Recipe]], Mapping[str, SeedScores | None]]


@dataclass(frozen=True)
class Effect:
    """What a technique, named by its field, is worth: its mean gain in score and the 95 % interval."""

    field: str
    value: Any
    gain: float
    interval: Interval | None  # None where the gains of all seeds agree

    @property
    def is_noise(self) -> bool:
        """Whether the score without the technique is as good, as far as these runs can tell."""
        return (self.gain if self.interval is None else self.interval.low) <= 0.0


@dataclass(frozen=True)
class Simpler:
    """What came out: every technique's effect, and the recipe without those that are noise."""

    recipe: Recipe
    effects: tuple[Effect, ...]
    record: Simplified

    def table(self) -> TextTable:
        """Return a row for each technique, the largest effect first."""
        dropped = {each.field for each in self.record.dropped}
        rows = tuple(
            (
                each.field,
                shown(each.value),
                f"{each.gain:+.4f}",
                f"{each.interval.low:+.4f} to {each.interval.high:+.4f}" if each.interval else AGREE,
                "dropped" if each.field in dropped else "kept",
            )
            for each in sorted(self.effects, key=lambda each: -each.gain)
        )
        return TextTable("", ("technique", "in the recipe", "effect", "95 % interval", ""), rows, head=2)


def simplify(recipe: Recipe, metric: str, seeds: Sequence[int], again: Retraining) -> Simpler:
    """Return the recipe without the techniques that gain nothing, by `metric` of the validation part.

    Each variant is trained with each of the seeds, at full length: (techniques + 1) * seeds runs, and as many
    as there are seeds for each combination of dropped ones that is tried. Raises UserError where the recipe
    itself does not finish with each seed, and OriginsChanged as `Retraining.work` does.
    """
    techniques = len(dict(techniques_of(recipe)))
    again.bench.say(
        f"{effort(recipe, (techniques + 1) * len(seeds))}: {WHOLE}, and without each of "
        f"{counted(techniques, 'technique')}, with {len(seeds)} new seeds; then {len(seeds)} more for each "
        "set of techniques that is left out together"
    )

    def train(recipes: Mapping[str, Recipe]) -> dict[str, SeedScores | None]:
        return _scores(recipes, metric, seeds, again)

    return simpler_by(train, recipe, metric, seeds)


def simpler_by(train: Train, recipe: Recipe, metric: str, seeds: Sequence[int]) -> Simpler:
    """Return what `simplify` does, with the scores that `train` returns."""
    by_name = dict(train({WHOLE: recipe, **dict(techniques_of(recipe))}))
    if (whole := by_name.pop(WHOLE)) is None:
        raise UserError("--simplify: the recipe itself does not finish with each seed")
    gains = {path: whole - scores for path, scores in by_name.items() if scores is not None}
    noise = half_width(list(gains.values()))
    effects = tuple(_effect(recipe, path, gain, noise) for path, gain in gains.items())
    dropped, simpler, scores = _dropped(recipe, whole, effects, noise, train)
    record = Simplified(
        metric=metric,
        seeds=tuple(seeds),
        before=float(np.mean(sign_of(OBJECTIVES[metric]) * whole)),
        after=float(np.mean(sign_of(OBJECTIVES[metric]) * scores)),
        dropped=tuple(Dropped(field=each.field, value=shown(each.value), gain=each.gain) for each in dropped),
    )
    return Simpler(simpler, effects, record)


def _dropped(
    recipe: Recipe, whole: SeedScores, effects: Sequence[Effect], noise: float, train: Train
) -> tuple[Sequence[Effect], Recipe, SeedScores]:
    """Return the techniques that can go together, the recipe without them, and its scores by seed."""
    dropped = sorted((each for each in effects if each.is_noise), key=lambda each: each.gain)
    while dropped:
        fields = [each.field for each in dropped]
        with suppress(RecipeError):  # what can be left out alone may be needed by another value
            simpler = without(recipe, fields)
            scores = train({", ".join(fields): simpler})[", ".join(fields)]
            if scores is not None and float((whole - scores).mean()) <= noise:
                return dropped, simpler, scores
        dropped.pop()
    return [], recipe, whole


def _effect(recipe: Recipe, path: str, gains: SeedScores, noise: float) -> Effect:
    mean = float(gains.mean())
    value = recipe.get(path)
    value = value["kind"] if isinstance(value, Mapping) else value  # a section that may be left out
    return Effect(path, value, mean, Interval(mean - noise, mean + noise) if noise > NO_SPREAD else None)


def _scores(
    variants: Mapping[str, Recipe], metric: str, seeds: Sequence[int], again: Retraining
) -> dict[str, SeedScores | None]:
    """Return the scores of each variant by seed, higher for better; None where a run comes to nothing."""
    recipes = [each.with_values({"loop.seed": seed}) for each in variants.values() for seed in seeds]
    by_name: dict[str, SeedScores | None] = {}
    with closing(again.train(recipes)) as runs:
        for name in variants:
            of_variant = list(islice(runs, len(seeds)))
            scores = [run.score(metric) for run in of_variant]
            finished = [score for score in scores if score is not None]
            faults = [run.fault for run in of_variant if run.fault is not None]
            words = faults[0] if faults else ", ".join(f"{score:.4f}" for score in finished)
            again.bench.say(f"{name if name == WHOLE else f'without {name}'}: {words}")
            by_name[name] = (
                sign_of(OBJECTIVES[metric]) * np.array(finished) if len(finished) == len(seeds) else None
            )
    return by_name
