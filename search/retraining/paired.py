"""Says how large a mean difference between paired runs may be by luck."""

from __future__ import annotations

import math
from collections.abc import Sequence

from search.record.finals import LEVEL, RunScores, student


def half_width(gains: Sequence[RunScores], level: float = LEVEL) -> float:
    """Return the half width of the interval of a mean gain, from the gains of several changes by seed.

    A gain is the score of one run minus that of another with the same seed. Their deviation is pooled over
    the changes, since a few seeds of one alone would say little; the interval is Student's. It is 0 without
    any change.
    """
    if not gains:
        return 0.0
    freedom, runs = sum(len(each) - 1 for each in gains), len(gains[0])
    variance = sum(float(((each - each.mean()) ** 2).sum()) for each in gains) / freedom
    return student(freedom, level) * math.sqrt(variance / runs)
