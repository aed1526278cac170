"""Joins what several sources say of one number, by random-effects meta-analysis.

The method is that of DerSimonian and Laird (1986, Controlled Clinical Trials 7). The variance is that of what
a further source would say (Higgins, Thompson and Spiegelhalter, 2009, J. Royal Statistical Society A 172): a
new search is such a source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SourceEstimate:
    """What one source says of a number; the variance is above 0."""

    value: float
    variance: float


@dataclass(frozen=True)
class Pooled:
    """What all sources say together of the next one."""

    value: float
    variance: float  # it is at least `between`, the variance that their disagreement shows
    between: float
    shares: tuple[float, ...]  # the weight of each source; the sum is 1


def pooled(estimates: Sequence[SourceEstimate]) -> Pooled:
    """Return the weighted mean of at least one estimate, and the variance of a further source's number."""
    between = between_variance(estimates)
    weights = [1.0 / (each.variance + between) for each in estimates]
    total = sum(weights)
    value = sum(weight * each.value for weight, each in zip(weights, estimates, strict=True)) / total
    return Pooled(value, between + 1.0 / total, between, tuple(weight / total for weight in weights))


def between_variance(estimates: Sequence[SourceEstimate]) -> float:
    """Return by how much sources differ beyond their own variances (DerSimonian and Laird, equation 8)."""
    weights = [1.0 / each.variance for each in estimates]
    total = sum(weights)
    mean = sum(weight * each.value for weight, each in zip(weights, estimates, strict=True)) / total
    pairs = zip(weights, estimates, strict=True)
    misfit = sum(weight * (each.value - mean) ** 2 for weight, each in pairs)
    scale = total - sum(weight**2 for weight in weights) / total
    return max(0.0, (misfit - (len(estimates) - 1)) / scale) if scale > 0.0 else 0.0
