"""Says how far apart two searches are by their facts, and how much less an earlier search weighs by that.

Tasks with similar facts have similar good values (meta-features: Vanschoren, arXiv 1810.03548, section 3).
The variance between the best values of two tasks grows with their distance as an exponential variogram, which
geostatistics uses for points on a map (Cressie 1993, Statistics for Spatial Data, section 2.3.1): one part is
there for equal facts too, the other one rises from 0 with the distance, up to a limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from spaces.domains import shown
from spaces.facts import Facts

# how far the best value of a search lies from where the model of another search of the same task is sure that
# it lies: a standard deviation, as a share of the range (docs/decisions/0039)
SAME_FACTS = 0.2
# the standard deviation whose square is added between tasks that have nothing in common: so far apart are the
# best values of the tables in docs/decisions/0039
OTHER_FACTS = 0.25
# for each factor of ten in one of these facts, the distance grows by 1
COUNTS = ("train_images", "classes", "class_balance", "image_size", "parameters", "epochs")
# for each of these facts that differs, the distance grows by 1
KINDS = ("task", "channels", "pretrained", "attention", "batch_norm")
CLEAR = 0.05  # a fact that adds less to the distance is not named


@dataclass(frozen=True)
class Likeness:
    """How alike two searches are, by the distance of their facts, at least 0."""

    distance: float
    # the facts that differ, the largest difference first: `train_images 1,257, here 60,000`
    words: tuple[str, ...] = ()

    @property
    def variance(self) -> float:
        """The variance between the best values of the two, in squared shares of a range."""
        return SAME_FACTS**2 + OTHER_FACTS**2 * -math.expm1(-self.distance)

    @property
    def share(self) -> float:
        """The weight that the distance leaves to an earlier search, in (0, 1]; 1 where facts are equal."""
        return SAME_FACTS**2 / self.variance


def likeness(earlier: Facts, now: Facts) -> Likeness:
    """Return how alike an earlier search is to this one."""
    apart = sorted(_differences(earlier, now), key=lambda each: -each[1])
    words = tuple(
        f"{name} {_fact(earlier, name)}, here {_fact(now, name)}" for name, far in apart if far >= CLEAR
    )
    return Likeness(sum(far for _, far in apart), words)


def _differences(earlier: Facts, now: Facts) -> Iterator[tuple[str, float]]:
    for name in COUNTS:
        yield name, abs(math.log10(getattr(earlier, name) / getattr(now, name)))
    for name in KINDS:
        yield name, float(getattr(earlier, name) != getattr(now, name))


def _fact(facts: Facts, name: str) -> str:
    value = getattr(facts, name)
    return f"{value:,}" if type(value) is int else shown(value)
