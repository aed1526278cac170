"""Changes ranges of numbers: grown at an end, cut below a value, and written as in a study."""

from __future__ import annotations

import math
from typing import Any, Literal, assert_never

from spaces.domains import Domain, Float, Integer, SpaceError, Value, domain_tree

RangeEnd = Literal["lower", "upper"]
NumberRange = Float | Integer

PARTS = (1.0, 0.5, 0.25, 0.125)  # parts of the largest growth of a range, which are tried in this order
# a range grows by half its length at one end; on a logarithmic scale by this factor at most; our choice
GROWTH = 10.0


def wider(domain: NumberRange, end: RangeEnd) -> list[NumberRange]:
    """Return the range grown at one end, the most first, with three significant digits."""
    grown = [_grown(domain, end, part) for part in PARTS]
    return [each for each in dict.fromkeys(grown) if each is not None]


def reaching(domain: NumberRange, value: float) -> NumberRange | None:
    """Return the range grown as far as a value beyond one of its ends; None where no such range can be."""
    near = three_digits(value)  # a belief in it is written so
    low, high = min(value, near, domain.low), max(value, near, domain.high)
    try:
        if isinstance(domain, Integer):
            return Integer(math.floor(low), math.ceil(high), domain.log)
        return Float(low, high, domain.log)
    except SpaceError:  # a logarithm needs more than 0
        return None


def below(domain: Float, top: float) -> Float:
    """Return the part of a range up to a value that lies in it, and above its lower end."""
    return Float(domain.low, min(three_digits(top, up=True), domain.high), domain.log)


def written(domain: Domain, believed: Value) -> dict[str, Any]:
    """Return a domain as a study writes it, with a belief in the value where it lies within."""
    value = three_digits(believed) if isinstance(believed, float) else believed
    return {**domain_tree(domain), **(belief(value) if value in domain else {})}


def belief(value: Value) -> dict[str, Any]:
    """Return what a study writes for a value that is expected."""
    return {"prior": value, "confidence": "medium"}


def three_digits(value: float, *, up: bool = False) -> float:
    """Return a number with three significant digits; with `up` it is not below the value."""
    near = float(f"{value:.3g}")
    if not up or near >= value:
        return near
    return float(f"{near + 10.0 ** (math.floor(math.log10(value)) - 2):.3g}")


def _grown(domain: NumberRange, end: RangeEnd, part: float) -> NumberRange | None:
    low, high = _ends(domain, end, part)
    grown: NumberRange
    try:
        match domain:
            case Float():
                low, high = three_digits(low), three_digits(high)
                grown = Float(min(low, domain.low), max(high, domain.high), domain.log)
            case Integer():
                grown = Integer(math.floor(low), math.ceil(high), domain.log)
            case _:
                assert_never(domain)
    except SpaceError:  # a logarithm needs more than 0
        return None
    return grown if grown.low < domain.low or grown.high > domain.high else None


def _ends(domain: NumberRange, end: RangeEnd, part: float) -> tuple[float, float]:
    low, high = float(domain.low), float(domain.high)
    if domain.log:
        factor = min(GROWTH, math.sqrt(high / low)) ** part
        return (low / factor, high) if end == "lower" else (low, high * factor)
    step = part * (high - low) / 2.0
    return (low - step, high) if end == "lower" else (low, high + step)
