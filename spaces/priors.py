"""What is believed of a value before any trial: a shape over its domain, with a confidence.

Numbers are believed to lie around a centre, on the domain's own scale. The shape is a truncated normal, which
on a logarithmic domain is a truncated log-normal. Options have weights. A prior never leaves its domain, and
gives everything in it a probability above 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal, assert_never

from spaces.domains import (
    Choice,
    Domain,
    Float,
    Integer,
    SpaceError,
    Value,
    cell_of,
    fraction_of,
    index_of,
    is_number,
    shown,
    value_at,
)

Confidence = Literal["low", "medium", "high"]

# The standard deviation, as a share of the domain's length; a quarter is PriorBand's (arXiv 2306.12370)
SPREADS: dict[Confidence, float] = {"low": 0.5, "medium": 0.25, "high": 0.125}
# The weight of the believed option over that of each other option
ODDS: dict[Confidence, float] = {"low": 2.0, "medium": 4.0, "high": 8.0}
_STANDARD = NormalDist()


@dataclass(frozen=True)
class Uniform:
    """No belief: draws are uniform over the (log-)range or the options."""


@dataclass(frozen=True)
class Normal:
    """The belief that numbers lie around `centre`, which is in the domain."""

    centre: float
    confidence: Confidence = "medium"

    @property
    def spread(self) -> float:
        """The standard deviation, as a share of the domain's length."""
        return SPREADS[self.confidence]


LEAST_SHARE = 1e-12  # an option with less is never drawn, and its logarithm may not exist


@dataclass(frozen=True)
class Weights:
    """The weight of each option, in the options' order, on any scale.
    Raises SpaceError unless all are above 0, and none is negligible."""

    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        unfit = [each for each in self.weights if not is_number(each) or not 0 < each < math.inf]
        if unfit or not self.weights:
            got = ", ".join(map(repr, unfit)) or "none"
            raise SpaceError.at("", f"expected weights above 0, got {got}")
        if not min(self.weights) >= LEAST_SHARE * sum(self.weights):
            raise SpaceError.at("", f"expected each weight to be at least {LEAST_SHARE:g} of their sum")

    @property
    def shares(self) -> tuple[float, ...]:
        """The weights, scaled to a sum of 1."""
        total = sum(self.weights)
        return tuple(weight / total for weight in self.weights)


Prior = Uniform | Normal | Weights


def believed(domain: Domain, value: Value, confidence: Confidence = "medium") -> Normal | Weights:
    """Return the prior for an expected value. Raises SpaceError for a value outside the domain."""
    if value not in domain:
        raise SpaceError.at("", f"expected a prior within {domain}, got {shown(value)}")
    match domain:
        case Float() | Integer():
            assert is_number(value)
            return Normal(float(value), confidence)
        case Choice(options=options):
            at = index_of(domain, value)
            return Weights(tuple(ODDS[confidence] if each == at else 1.0 for each in range(len(options))))
        case _:
            assert_never(domain)


def check_prior(domain: Domain, prior: Prior) -> None:
    """Raise SpaceError if a prior does not fit the domain."""
    match domain, prior:
        case _, Uniform():
            return
        case Float() | Integer(), Normal(centre=centre):
            if not domain.low <= centre <= domain.high:
                raise SpaceError.at("", f"expected a prior within {domain}, got {centre:g}")
        case Choice(options=options), Weights(weights=weights):
            if len(options) != len(weights):
                raise SpaceError.at(
                    "", f"expected a weight for each of the {len(options)} options, got {len(weights)}"
                )
        case Choice(), Normal():
            raise SpaceError.at("", f"expected weights for {domain}, got a centre")
        case _, Weights():
            raise SpaceError.at("", f"expected a centre within {domain}, got weights")


def clamped(domain: Domain, prior: Prior) -> Prior:
    """Return the prior; a centre outside the domain is moved to the nearer end."""
    match domain, prior:
        case Float() | Integer(), Normal(centre=centre, confidence=confidence):
            return Normal(min(max(centre, domain.low), domain.high), confidence)
        case _:
            return prior


def quantile_value(domain: Domain, prior: Prior, fraction: float) -> Value:
    """Return the prior's quantile at `fraction` in [0, 1); uniform fractions draw values from the prior."""
    match prior:
        case Uniform():
            return value_at(domain, fraction)
        case Normal():
            centre, low, high = _truncation(domain, prior)
            quantile = min(max(low + (high - low) * fraction, 1e-12), 1.0 - 1e-12)
            at = centre + prior.spread * _STANDARD.inv_cdf(quantile)
            return value_at(domain, min(max(at, 0.0), math.nextafter(1.0, 0.0)))
        case Weights(shares=shares):
            assert isinstance(domain, Choice)
            return domain.options[_option(shares, fraction)]
        case _:
            assert_never(prior)


def density(domain: Domain, prior: Prior, value: Value) -> float:
    """Return how much likelier a value is than in uniform draws: 1 on average in the domain, 0 outside."""
    if value not in domain:
        return 0.0
    match prior:
        case Uniform():
            return 1.0
        case Normal():
            return _normal_density(domain, prior, value)
        case Weights(shares=shares):
            assert isinstance(domain, Choice)
            return shares[index_of(domain, value)] * len(shares)
        case _:
            assert_never(prior)


def likeliest(domain: Domain, prior: Prior) -> Value:
    """Return the likeliest value: with a uniform prior the middle of a range, or the first option."""
    match prior:
        case Uniform():
            return value_at(domain, 0.0 if isinstance(domain, Choice) else 0.5)
        case Normal():
            return value_at(domain, min(fraction_of(domain, prior.centre), math.nextafter(1.0, 0.0)))
        case Weights(weights=weights):
            assert isinstance(domain, Choice)
            return domain.options[weights.index(max(weights))]
        case _:
            assert_never(prior)


def describe(domain: Domain, prior: Prior) -> str:
    """Describe the domain and the prior in words."""
    match prior:
        case Uniform():
            return str(domain)
        case Normal(centre=centre, confidence=confidence):
            return f"around {centre:.3g} ({confidence} confidence) within {domain}"
        case Weights(shares=shares):
            assert isinstance(domain, Choice)
            pairs = zip(domain.options, shares, strict=True)
            return ", ".join(f"{shown(option)} {share:.0%}" for option, share in pairs)
        case _:
            assert_never(prior)


@lru_cache(maxsize=4096)
def _truncation(domain: Domain, prior: Normal) -> tuple[float, float, float]:
    """Return the centre in [0, 1], and the shares of the untruncated normal below the domain's two ends."""
    centre = fraction_of(domain, prior.centre)
    low, high = (_STANDARD.cdf((each - centre) / prior.spread) for each in (0.0, 1.0))
    return centre, low, high


def _normal_density(domain: Domain, prior: Normal, value: Value) -> float:
    """Return the density of a number. For a whole number it is the mean over the interval that is rounded to
    it, since a narrow prior may lie inside one such interval."""
    centre, low, high = _truncation(domain, prior)
    if isinstance(domain, Integer):
        assert isinstance(value, int)
        start, end = cell_of(domain, value)
        cells = [_STANDARD.cdf((each - centre) / prior.spread) for each in (start, end)]
        return (cells[1] - cells[0]) / (end - start) / (high - low)
    distance = (fraction_of(domain, value) - centre) / prior.spread
    return _STANDARD.pdf(distance) / prior.spread / (high - low)


def _option(shares: tuple[float, ...], fraction: float) -> int:
    below = 0.0
    for index, share in enumerate(shares):
        below += share
        if fraction < below:
            return index
    return len(shares) - 1
