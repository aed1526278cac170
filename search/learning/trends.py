"""Finds where in its range the better trials have a value, all other differences being accounted for.

Trials are compared by their standings (`search.learning.standings`), by the regression that the verdicts use
(`search.learning.effects`): samplers that learn draw late trials close together, also in dimensions that do
nothing, so that a plain correlation finds trends everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from search.learning.standings import positions, standings
from spaces.domains import Choice, Value, fraction_of
from spaces.space import Dimension, Space

if TYPE_CHECKING:
    from search.learning.effects import AgreementGain, Column
    from search.record.summary import Summary

LEAST_WITH = 8  # a trend over fewer trials that have the dimension is luck; our choice
# smaller probabilities are reported as less than one in so many: the difference means nothing to a reader
RAREST = 1_000


def by_luck(chance: float) -> str:
    """Return a probability in words: in how many searches luck alone would show as much."""
    text = "luck alone shows this in"
    if chance * RAREST < 1.0:
        return f"{text} less than 1 of {RAREST:,} searches"
    if chance < 0.1:
        return f"{text} 1 of {1.0 / chance:.0f} searches"
    return f"{text} {100.0 * chance:.0f} of 100 searches"


class Trends:
    """The standings of a search's trials, and each dimension's trend over them."""

    def __init__(self, space: Space, summary: Summary) -> None:
        self._space = space
        self.standings: Mapping[int, float] = standings(summary)  # by trial, how many of 100 others it beats
        drawn = [each for each in summary.trials if each.id in self.standings and not each.own]
        self._at = {each.id: at for each in drawn if (at := positions(space, each)) is not None}

    def chance_above(self, dimension: Dimension) -> float:
        """Return how likely trials would be so much better towards the upper end by luck alone.

        The dimension then does nothing. The rest to 1 is the probability for the lower end. It is a half
        where too few trials have the dimension.
        """
        return self._chance(dimension, self._of(dimension))

    def chance_with(self, dimension: Dimension, option: Value) -> float:
        """Return how likely trials with an option would be so much better if the option did nothing."""
        at = fraction_of(dimension.domain, option)
        there = self._of(dimension)
        has = [math.nan if math.isnan(each) else float(math.isclose(each, at)) for each in there]
        return self._chance(dimension, has)

    def _chance(self, dimension: Dimension, agreement: Sequence[float]) -> float:
        """Return the one-sided probability of the trend over `asked`, the other dimensions being equal."""
        there = {each for each in agreement if not math.isnan(each)}
        if sum(not math.isnan(each) for each in agreement) < LEAST_WITH or len(there) < 2:
            return 0.5
        found = self._estimate(dimension, agreement)
        if not found.error > 0.0:
            return 0.5
        return found.chance / 2.0 if found.slope > 0.0 else 1.0 - found.chance / 2.0

    def _estimate(self, dimension: Dimension, agreement: Sequence[float]) -> AgreementGain:
        import numpy as np

        from search.learning.effects import estimate

        standing = np.array([self.standings[trial] for trial in self._at])
        others = [self._column(each, self._of(each)) for each in self._space.dimensions if each != dimension]
        return estimate(standing, np.array(list(self._at), float), self._column(dimension, agreement), others)

    def _of(self, dimension: Dimension) -> list[float]:
        """Return where in its domain each trial lies, nan where it does not have the dimension."""
        return [at.get(dimension.name, math.nan) for at in self._at.values()]

    def _column(self, dimension: Dimension, agreement: Sequence[float]) -> Column:
        import numpy as np

        from search.learning.effects import column

        at = np.array(self._of(dimension), float)
        return column(np.array(agreement, float), at, options=isinstance(dimension.domain, Choice))
