"""Whether a run's validation and test scores differ by more than chance allows.

A search sees the validation part alone. If the test part is of another kind (another hospital, another
camera, other varieties), its scores are others, and which recipe is best there is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainable.recipe.metrics import NO_SPREAD
from trainable.recipe.provenance import ExplainedGap
from trainable.training.bootstrap import bounds_of
from trainable.training.evaluate import Array

# The interval of a difference is one of 99 %, wider than the 95 % of a score: nobody asked about the
# difference, and one alarm in twenty trainings would teach people to ignore it
PERCENTS = (0.5, 99.5)
LEVEL = (PERCENTS[1] - PERCENTS[0]) / 100.0
# Of parts with fewer images no difference is told: of two parts of one kind with 4 images with masks 9.5 %
# differed in the mean IoU, with 9 4.0 %, with 30 3.0 % (n=400), where the interval promises 1 %
FEWEST_IMAGES = 30


@dataclass(frozen=True)
class ScoredPart:
    """A run's scores on one part of so many images: each metric by its name, such as `accuracy`, on the
    whole part and on resamples of its images, [resamples], as `bootstrap.resampled_metrics` returns them."""

    values: Mapping[str, float]
    resampled: Mapping[str, Array]
    images: int
    shares: Mapping[str, int] = field(default_factory=dict)  # how many images are behind each share


@dataclass(frozen=True)
class ScoreGap:
    """One metric on both parts, and the interval [low, high] of test minus validation."""

    metric: str
    validation: float
    test: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        """Test minus validation."""
        return self.test - self.validation

    @property
    def differ(self) -> bool:
        """Whether the interval does not hold 0: the scores differ by more than chance allows."""
        return not self.low <= 0.0 <= self.high

    def __str__(self) -> str:
        low, high = sorted((abs(self.low), abs(self.high)))
        side = "below" if self.difference < 0.0 else "above"
        return (
            f"test_{self.metric} {self.test:.4f} is {abs(self.difference):.4f} {side} val_{self.metric} "
            f"{self.validation:.4f} ({100 * LEVEL:.0f} % interval of the difference: {low:.4f} to {high:.4f})"
        )

    def tree(self) -> dict[str, Any]:
        return {
            "validation": self.validation,
            "test": self.test,
            "difference": self.difference,
            "interval": [self.low, self.high],
            "differ": self.differ,
        }


@dataclass(frozen=True)
class ScoreGaps:
    """How far test scores are from validation scores, a gap for each metric."""

    gaps: tuple[ScoreGap, ...]
    resamples: int
    # The metrics whose differences are told to a person: with all of them, chance alone would bring more
    # lines than the interval promises
    spoken_of: frozenset[str]
    images: int  # the smaller part has so many
    causes: tuple[str, ...] = ()  # what was found of how the parts compare, in words

    @property
    def differing(self) -> tuple[ScoreGap, ...]:
        """The gaps that are larger than chance allows, of the metrics that are spoken of; none of
        parts with few images."""
        if self.images < FEWEST_IMAGES:
            return ()
        return tuple(gap for gap in self.gaps if gap.differ and gap.metric in self.spoken_of)

    @property
    def explained(self) -> ExplainedGap | None:
        """The gaps that differ in words, with their causes; None without any."""
        return ExplainedGap(words_of(self.differing), self.causes) if self.differing else None

    def tree(self) -> dict[str, Any]:
        """Return plain data for `metrics.json`."""
        return {
            "level": LEVEL,
            "method": "percentile bootstrap of test minus validation, each part resampled by itself",
            "resamples": self.resamples,
            "differ": bool(self.differing),
            "metrics": {gap.metric: gap.tree() for gap in self.gaps},
            "words": words_of(self.differing),
            "causes": list(self.causes) if self.differing else [],
        }


def words_of(differing: Sequence[ScoreGap]) -> str:
    """Return in words which scores differ; it is empty if none do."""
    return f"{'; '.join(map(str, differing))}, more than chance allows" if differing else ""


def score_gaps(
    validation: ScoredPart, test: ScoredPart, spoken_of: Iterable[str], causes: Sequence[str] = ()
) -> ScoreGaps:
    """Return how far test scores are from validation scores, in each metric that has resamples of both
    parts.

    The interval of a difference is that of percentiles of the differences of resamples: the bootstrap of two
    samples (Efron and Tibshirani 1993, chapter 8). The parts must be resampled independently of each other,
    equally often. Where the resamples of a share have no spread in a part, it is Newcombe's (1998, Statistics
    in Medicine 17, method 10), from the intervals of both parts. What is no share has no gap there.
    """
    both = [name for name in test.resampled if name in validation.resampled]
    return ScoreGaps(
        tuple(gap for name in both if (gap := _gap(name, validation, test)) is not None),
        len(next(iter(test.resampled.values()), ())),
        frozenset(spoken_of),
        min(validation.images, test.images),
        tuple(causes),
    )


def _gap(metric: str, validation: ScoredPart, test: ScoredPart) -> ScoreGap | None:
    tested, validated = test.values[metric], validation.values[metric]
    both = test.resampled[metric], validation.resampled[metric]
    on_test, on_validation = (
        bounds_of(part.resampled[metric], part.shares.get(metric), PERCENTS) for part in (test, validation)
    )
    if on_test is None or on_validation is None:
        return None
    low, high = map(float, np.percentile(both[0] - both[1], PERCENTS))
    if min(np.ptp(np.percentile(each, PERCENTS)) for each in both) <= NO_SPREAD:
        gap = tested - validated
        low = min(low, gap - math.hypot(tested - on_test[0], on_validation[1] - validated))
        high = max(high, gap + math.hypot(on_test[1] - tested, validated - on_validation[0]))
    return ScoreGap(metric, validated, tested, low, high)
