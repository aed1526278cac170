"""Tests how several sources are joined, against the formulae and by what must always hold."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.learning.lessons import SourceEstimate, between_variance, pooled

numbers = st.floats(-2.0, 2.0)
variances = st.floats(0.005, 1.0)
estimates = st.lists(st.builds(SourceEstimate, numbers, variances), min_size=1, max_size=6)


def test_one_source_is_believed_as_it_is() -> None:
    found = pooled([SourceEstimate(0.3, 0.04)])
    assert (found.value, found.variance, found.between, found.shares) == (
        0.3,
        pytest.approx(0.04),
        0.0,
        (1.0,),
    )


def test_the_variance_between_sources_is_that_of_dersimonian_and_laird() -> None:
    values, variances = np.array([0.1, 0.5, 0.9]), np.array([0.01, 0.02, 0.04])
    weights = 1.0 / variances
    misfit = (weights * (values - (weights * values).sum() / weights.sum()) ** 2).sum()
    expected = (misfit - 2.0) / (weights.sum() - (weights**2).sum() / weights.sum())
    found = between_variance([SourceEstimate(*each) for each in zip(values, variances, strict=True)])
    assert found == pytest.approx(expected)


@given(numbers, st.lists(variances, min_size=1, max_size=5), variances)
def test_a_source_that_agrees_narrows(value: float, known: list[float], more: float) -> None:
    before = [SourceEstimate(value, each) for each in known]
    assert pooled([*before, SourceEstimate(value, more)]).variance < pooled(before).variance


@given(numbers, variances, variances, st.floats(0.0, 2.0), st.floats(0.0, 2.0))
def test_two_sources_that_differ_more_leave_a_wider_belief(
    value: float, one: float, other: float, near: float, far: float
) -> None:
    near, far = sorted((near, far))

    def together(apart: float) -> float:
        return pooled([SourceEstimate(value, one), SourceEstimate(value + apart, other)]).variance

    assert together(near) <= together(far) + 1e-9


@given(estimates)
def test_a_source_with_a_larger_variance_weighs_less(each: list[SourceEstimate]) -> None:
    shares = pooled(each).shares
    order = sorted(range(len(each)), key=lambda at: each[at].variance)
    assert sum(shares) == pytest.approx(1.0)
    assert all(shares[one] >= shares[other] - 1e-12 for one, other in itertools.pairwise(order))


@given(estimates)
def test_the_mean_lies_among_the_sources_and_the_belief_is_no_surer_than_they_differ(
    each: list[SourceEstimate],
) -> None:
    found = pooled(each)
    values = [one.value for one in each]
    assert min(values) - 1e-9 <= found.value <= max(values) + 1e-9
    assert found.variance > found.between >= 0.0
