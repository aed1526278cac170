"""Compares our Student's t and beta distributions with SciPy's."""

from __future__ import annotations

import math

import pytest
from scipy import special

from trainable.training.metrics import beta_below, beta_quantile, student_below, student_quantile

FREEDOMS = (1.0, 1.5, 2.0, 4.7, 29.0, 1_000.0)
SHARES = (1e-9, 1e-4, 0.025, 0.3, 0.5, 0.6, 0.975, 0.9999)
BETAS = ((1.0, 1.0), (0.5, 0.5), (97.0, 4.0), (2.0, 300.0), (9_990.0, 11.0), (443.0, 1.0))


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_student_s_distribution_is_scipy_s(freedom: float) -> None:
    for share in SHARES:
        wanted = float(special.stdtrit(freedom, share))
        assert student_quantile(share, freedom) == pytest.approx(wanted, rel=1e-10, abs=1e-12)
    for t in (-50.0, -3.0, -1e-3, 0.0, 0.1, 2.0, 9.0):
        assert student_below(t, freedom) == pytest.approx(float(special.stdtr(freedom, t)), rel=1e-10)


@pytest.mark.parametrize(("a", "b"), BETAS)
def test_the_beta_distribution_is_scipy_s(a: float, b: float) -> None:
    for share in SHARES:
        wanted = float(special.betaincinv(a, b, share))
        assert beta_quantile(share, a, b) == pytest.approx(wanted, rel=1e-10)
        assert beta_below(wanted, a, b) == pytest.approx(float(special.betainc(a, b, wanted)), rel=1e-10)


def test_many_degrees_of_freedom_lead_to_the_normal_distribution() -> None:
    assert student_quantile(0.975, math.inf) == pytest.approx(float(special.ndtri(0.975)), rel=1e-14)
    assert student_quantile(0.975, 1e7) == pytest.approx(float(special.ndtri(0.975)), rel=1e-6)


@pytest.mark.parametrize("freedom", [1e4, 1e5, 1.1e5, 1e8, 1e12, 1e300])
def test_any_number_of_degrees_of_freedom_is_answered(freedom: float) -> None:
    for share in SHARES:
        wanted = float(special.stdtrit(min(freedom, 1e15), share))
        assert student_quantile(share, freedom) == pytest.approx(wanted, rel=1e-9, abs=1e-12)
    for t in (-6.0, -0.5, 2.0):
        wanted = float(special.stdtr(min(freedom, 1e15), t))
        assert student_below(t, freedom) == pytest.approx(wanted, rel=1e-6)


def test_ends_are_certain() -> None:
    assert (beta_below(0.0, 2.0, 3.0), beta_below(1.0, 2.0, 3.0)) == (0.0, 1.0)
    assert (student_below(-math.inf, 3.0), student_below(math.inf, 3.0)) == (0.0, 1.0)
    assert math.isnan(student_below(math.nan, 3.0))
