"""What a heuristic gives, and the few pieces of arithmetic that they share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, TypeVar

from spaces.domains import Value
from spaces.facts import Facts

T = TypeVar("T", covariant=True)

MILLION = 1_000_000


@dataclass(frozen=True)
class Ruling(Generic[T]):
    """A value or a range, why it is so, and who says so."""

    what: T
    reason: str
    source: str


Rulings = dict[str, Ruling[Value]]
"""Values by dotted path."""


def interpolated(x: float, start: tuple[float, float], end: tuple[float, float]) -> float:
    """y at x > 0 on the straight line through two points in log-log, flat beyond them."""
    (x0, y0), (x1, y1) = start, end
    share = math.log(x / x0) / math.log(x1 / x0)
    return float(y0 * (y1 / y0) ** min(max(share, 0.0), 1.0))


def rounded(number: float) -> float:
    """Two significant digits: the sources give no more."""
    return float(f"{number:.2g}")


def size_of(facts: Facts) -> str:
    """The model's size in words."""
    return f"{facts.parameters / MILLION:.3g} M parameters"
