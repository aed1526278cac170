"""Defines the axes of plots: where a value lies, as a share of the axis, and where its labels are.

matplotlib's locators choose the labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from spaces.domains import Choice, Domain, Float, Integer, shown

LABELS = 6  # an axis has at most about so many labels
UNITS: Mapping[str, float] = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0}  # the seconds of each unit
MARGIN = 0.03  # so much of an axis is free on either side of the numbers


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
    found = list(numbers) or [0.0, 1.0]
    low, high = min(found), max(found)
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
    from matplotlib.ticker import LogLocator, MaxNLocator

    if log and high / low > 5.0:
        steps = (1.0,) if high / low > 1e3 else (1.0, 3.0) if high / low > 50.0 else (1.0, 2.0, 5.0)
        found = LogLocator(base=10.0, subs=steps, numticks=LABELS).tick_values(low, high)
    else:
        found = MaxNLocator(LABELS - 1, integer=whole, steps=(1, 2, 2.5, 5, 10)).tick_values(low, high)
    return [float(f"{each:.6g}") for each in found]
