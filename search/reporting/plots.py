"""Draws plots as SVG that stretches with the page; all text around them is HTML.

A plot's marks lie in a square of `SIDE` x `SIDE` units that the browser stretches to the width of the screen
or sheet; lines and points keep their thickness, labels their size. Each mark knows its trial, so that a small
script can show and select trials; without it the plots stay readable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from search.reporting.axes import Axis

SIDE = 2000  # the number of units across a plot, and down

CROWDED = 300  # a plot with more marks than this is crowded

# a position: shares of the plot's width from the left, and of its height from the bottom
Spot = tuple[float, float]


@dataclass(frozen=True)
class PlotLine:
    """A line through spots, drawn in the style of the class `look`; it may be of a trial."""

    look: str
    spots: Sequence[Spot]
    trial: int | None = None
    says: str = ""  # what is said where it is pointed at; empty: what is said of the trial

    @property
    def path(self) -> str:
        """The line as the `d` of a path: the first spot, then the steps from spot to spot."""
        spots = [_units(each) for each in self.spots]
        steps = " ".join(f"{x - was_x} {y - was_y}" for (was_x, was_y), (x, y) in pairwise(spots))
        return f"M{spots[0][0]} {spots[0][1]}" + (f"l{steps}" if steps else "h0")


@dataclass(frozen=True)
class Points:
    """Points of trials, in the style of the class `look`; without trials they cannot be selected."""

    look: str
    spots: Sequence[Spot]
    trials: Sequence[int] = ()

    @property
    def path(self) -> str:
        """The points as the `d` of one path: lines without length, which round caps make points."""
        return "".join(f"M{x} {y}h0" for x, y in map(_units, self.spots))


@dataclass(frozen=True)
class Area:
    """A filled area below a line of spots."""

    look: str
    spots: Sequence[Spot]

    @property
    def path(self) -> str:
        """The area as the `d` of a path: up to the line, along it, and down again."""
        (left, _), (right, _) = _units(self.spots[0]), _units(self.spots[-1])
        along = " ".join(f"{x} {y}" for x, y in map(_units, self.spots))
        return f"M{left} {SIDE}L{along} {right} {SIDE}z"


@dataclass(frozen=True)
class Label:
    """A text at a spot of a plot."""

    at: Spot
    text: str
    look: str = ""


@dataclass(frozen=True)
class Plot:
    """One plot; `says` tells in a sentence what it shows, for those who do not see it.

    `rows` is its height in lines of text.
    """

    says: str
    x: Axis
    y: Axis
    areas: Sequence[Area] = ()
    lines: Sequence[PlotLine] = ()
    points: Sequence[Points] = ()
    labels: Sequence[Label] = ()
    rows: float = 16.0

    @property
    def look(self) -> str:
        """The class of a plot: lines and points are fainter where there are many."""
        marks = len(self.lines) + sum(len(each.trials) for each in self.points)
        return "crowded" if marks > CROWDED else ""


def spots_on(x: Axis, y: Axis, pairs: Iterable[tuple[float, float]]) -> list[Spot]:
    """Return the spots of pairs of numbers on two axes."""
    return [(x.share(left), y.share(up)) for left, up in pairs]


def _units(spot: Spot) -> tuple[int, int]:
    x, y = spot
    return round(SIDE * x), round(SIDE * (1.0 - y))
