"""Plots as SVG that stretches with the page, and their axes; all text around them is HTML.

A plot's marks lie in a square of `SIDE` x `SIDE` units that the browser stretches to the width of the screen
or sheet; lines and points keep their thickness, labels their size. Each mark knows its trial, so that a small
script can show and select trials; without it the plots stay readable.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import assert_never

from spaces.domains import Choice, Domain, Float, Integer, shown

LABELS = 6  # an axis has at most about so many labels
UNITS: Mapping[str, float] = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0}  # the seconds of each unit
MARGIN = 0.03  # so much of an axis is free on either side of the numbers
SIDE = 2000  # the number of units across a plot, and down
CROWDED = 300  # a plot with more marks than this is crowded
# a position: shares of the plot's width from the left, and of its height from the bottom
Spot = tuple[float, float]


@dataclass(frozen=True)
class Tick:
    """One label of an axis and its position, as a share of the axis from its low end."""

    at: float
    text: str


@dataclass(frozen=True)
class Axis:
    """A named axis of numbers from `low` to `high`, on a logarithmic scale where `log`."""

    name: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    ticks: tuple[Tick, ...] = ()

    def share(self, value: float) -> float:
        """Return the position of a number, as a share of the axis from its low end, in [0, 1]."""
        low, high, at = (math.log(each) if self.log else each for each in (self.low, self.high, value))
        return min(max((at - low) / (high - low), 0.0), 1.0)


def axis_over(name: str, numbers: Iterable[float], *, whole: bool = False, log: bool = False) -> Axis:
    """Return the axis that holds all of the numbers; from 0 to 1 where there are none.

    On a logarithmic axis all numbers must be above 0.
    """
    values = list(numbers) or [0.0, 1.0]
    low, high = min(values), max(values)
    if log:
        reach = (high / low) ** MARGIN if high > low else 2.0
        return numbered_axis(name, low / reach, high * reach, log=True)
    reach = (high - low) * MARGIN or (0.5 if whole else abs(low) * 0.1 or 0.5)
    return numbered_axis(name, low - reach, high + reach, whole=whole)


def numbered_axis(name: str, low: float, high: float, *, whole: bool = False, log: bool = False) -> Axis:
    """Return the axis from `low` to `high`, with round numbers as labels."""
    bare = Axis(name, low, high, log)
    spots = [each for each in _spots(low, high, whole=whole, log=log) if low <= each <= high]
    return replace(bare, ticks=tuple(Tick(bare.share(each), shown(each)) for each in spots))


def time_axis(seconds: float) -> Axis:
    """Return the axis from 0 to so many seconds, labelled in the largest unit of which there are two."""
    unit = max(
        (name for name in UNITS if seconds >= 2 * UNITS[name]), key=UNITS.__getitem__, default="seconds"
    )
    labelled = numbered_axis(unit, 0.0, seconds / UNITS[unit] or 1.0)
    return replace(labelled, high=labelled.high * UNITS[unit])


def domain_axis(name: str, domain: Domain) -> Axis:
    """Return the axis of the positions in a domain, from 0 to 1, labelled with its values."""
    match domain:
        case Choice(options=options):
            count = len(options)
            ticks = tuple(Tick((at + 0.5) / count, shown(each)) for at, each in enumerate(options))
        case Float(low=low, high=high, log=log):
            ticks = numbered_axis(name, low, high, log=log).ticks
        case Integer(low=low, high=high, log=log):
            ticks = numbered_axis(name, low - 0.5, high + 0.5, whole=True, log=log).ticks
        case _:
            assert_never(domain)
    return Axis(name, ticks=ticks)


def _spots(low: float, high: float, *, whole: bool, log: bool) -> Sequence[float]:
    """Return round numbers from about `low` to about `high`."""
    if log and high / low > 5.0:
        steps = (1.0,) if high / low > 1e3 else (1.0, 3.0) if high / low > 50.0 else (1.0, 2.0, 5.0)
        first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
        every = max(last - first, 0) // LABELS + 1  # of many powers of ten each second, or each third
        ticks = [step * 10.0**power for power in range(first - every, last + 1, every) for step in steps]
    else:
        step = _round_step(low, high, whole=whole)
        ticks = [step * at for at in range(math.floor(low / step), math.ceil(high / step) + 1)]
    return [float(f"{each:.6g}") for each in ticks]


def _round_step(low: float, high: float, *, whole: bool) -> float:
    """Return the least round step of which at most `LABELS` - 1 are between two numbers; of those that are
    smaller the first with two labels, where it has fewer."""
    power = 10.0 ** math.floor(math.log10((high - low) / (LABELS - 1)))
    steps = [
        factor * times for factor in (power / 10.0, power, power * 10.0) for times in (1.0, 2.0, 2.5, 5.0)
    ]
    if whole:
        steps = [each for each in steps if each >= 1.0 and each.is_integer()] or [1.0]
    smaller = [each for each in steps if each < (high - low) / (LABELS - 1)]
    for step in reversed(steps[: len(smaller) + 1]):
        if math.floor(high / step) - math.ceil(low / step) >= 1:
            return step
    return steps[0]


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
