"""Tests the Gaussian process against scikit-learn's and its bent axes against PyTorch's, and every slope."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern
from threadpoolctl import ThreadpoolController
from torch.distributions import Kumaraswamy

from search.deciding import gaussian_process
from search.deciding.gaussian_process import (
    CHANGE,
    DRIFT,
    JITTER,
    NOISE,
    PACE,
    SIZE,
    GaussianProcess,
    Reals,
    ScoredRows,
    _loss,
    fitted,
    slopes,
    usual,
    warped,
)

GROUPS = np.array([0, 1, 2, 2])


def some(count: int, times: list[float], seed: int = 0) -> ScoredRows:
    """Return scores that depend on the first feature and on time."""
    rng = np.random.default_rng(seed)
    features, at = rng.random((count, 4)), rng.choice(times, count)
    return ScoredRows(features, GROUPS, at, np.sin(5 * features[:, 0]) + at + 0.1 * rng.normal(size=count))


def parameters(**changed: float) -> Reals:
    found: Reals = np.log(np.array([0.3, 0.5, 0.8, *[1.0] * 6, 0.6, 0.9, 0.7, 0.4, 0.05]))
    for name, value in changed.items():
        found[{"change": CHANGE, "pace": PACE, "size": SIZE, "drift": DRIFT, "noise": NOISE}[name]] = np.log(
            value
        )
    return found


def test_scores_of_one_epoch_are_predicted_as_scikit_learn_does() -> None:
    seen, chosen = some(30, [1.0]), parameters(drift=1e-12)
    kernel = ConstantKernel(0.7) * Matern([0.3, 0.5, 0.8, 0.8], nu=2.5)
    other = GaussianProcessRegressor(kernel, alpha=0.05 + JITTER, optimizer=None)
    other.fit(seen.features, seen.scores)
    asked = np.random.default_rng(1).random((10, 4))
    mean, deviation = GaussianProcess(seen, chosen).predict(asked, 1.0)
    wanted_mean, wanted_deviation = other.predict(asked, return_std=True)
    np.testing.assert_allclose(mean, wanted_mean, atol=1e-9)
    np.testing.assert_allclose(deviation, wanted_deviation, atol=1e-9)


def test_the_covariance_of_two_scores_is_that_of_the_formula() -> None:
    first, second = np.array([[0.1, 0.2, 0.5, 0.5]]), np.array([[0.4, 0.2, 0.5, 0.5]])
    seen = ScoredRows(first, GROUPS, np.array([0.25]), np.array([1.0]))
    r = 5**0.5 * 0.3 / 0.3
    shared = 0.7 * (1 + r + r * r / 3) * np.exp(-r) * np.exp(-0.5 / 0.6) + 0.4 * np.exp(-0.5 / 0.9)
    own = 0.7 + 0.4 + 0.05 + JITTER
    mean, deviation = GaussianProcess(seen, parameters()).predict(second, 0.75)
    assert mean[0] == pytest.approx(shared / own)
    assert deviation[0] == pytest.approx((1.1 - shared**2 / own) ** 0.5)


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_that_of_the_loss(seed: int) -> None:
    seen, centre = some(20, [0.2, 0.6, 1.0], seed), usual(3)
    at = centre + 0.5 * np.random.default_rng(seed).normal(size=len(centre))
    by_differences = approx_fprime(at, lambda each: _loss(each, seen, centre)[0], 1e-6)
    np.testing.assert_allclose(_loss(at, seen, centre)[1], by_differences, atol=1e-3, rtol=1e-4)


def test_a_fit_finds_the_dimension_that_matters_and_beats_the_usual_parameters() -> None:
    seen, later = some(80, [0.5, 1.0]), some(200, [1.0], seed=1)
    found = fitted(seen)
    assert found[0] == min(found[:3])

    def error(chosen: Reals) -> float:
        return float(
            np.mean((GaussianProcess(seen, chosen).predict(later.features, 1.0)[0] - later.scores) ** 2)
        )

    assert error(found) < 0.7 * error(usual(3))


def test_where_a_score_is_certain_nothing_is_left_to_learn() -> None:
    seen, place = some(30, [1.0]), np.full((1, 4), 0.5)
    joined = seen.joined(place, np.array([1.0]), np.array([2.0]))
    noisy, certain = (
        GaussianProcess(joined, parameters(), certain=each).predict(place, 1.0) for each in (0, 1)
    )
    assert certain[0][0] == pytest.approx(2.0, abs=0.01)
    assert certain[1][0] < 0.02 < noisy[1][0]


def test_equal_trials_with_different_scores_are_no_trouble() -> None:
    seen = ScoredRows(
        np.full((6, 4), 0.5), GROUPS, np.full(6, 1.0), np.array([-1.0, 1.0, -1.0, 1.0, -1.0, 1.0])
    )
    mean, deviation = GaussianProcess(seen, fitted(seen)).predict(np.full((1, 4), 0.5), 1.0)
    assert mean[0] == pytest.approx(0.0, abs=1e-6)
    assert 0 < deviation[0] < 1


def threads_of_blas() -> set[int]:
    return {pool["num_threads"] for pool in ThreadpoolController().select(user_api="blas").info()}


def test_no_process_is_fitted_or_asked_in_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, used = some(20, [0.5, 1.0]), list[set[int]]()
    scaled = gaussian_process._scaled

    def watched(*given: Any) -> Reals:
        used.append(threads_of_blas())
        return scaled(*given)

    monkeypatch.setattr(gaussian_process, "_scaled", watched)
    with ThreadpoolController().limit(limits=2, user_api="blas"):
        before = threads_of_blas()
        process = GaussianProcess(seen, fitted(seen))
        process.predict(seen.features, 1.0)
        process.predict_together(seen.features)

        assert threads_of_blas() == before
    assert len(used) > 3
    assert all(each == {1} for each in used)


BENDS = np.array([True, True, False])
SHAPES = np.log([[0.4, 3.0, 9.0], [2.0, 0.5, 9.0]])
FEATURES = np.random.default_rng(0).uniform(0.02, 0.98, (50, 3))


@pytest.mark.parametrize("column", [0, 1])
def test_a_position_is_bent_as_pytorch_does(column: int) -> None:
    a, b = torch.tensor(np.exp(SHAPES[:, column]))
    wanted = Kumaraswamy(a, b).cdf(torch.tensor(FEATURES[:, column]))
    np.testing.assert_allclose(warped(FEATURES, SHAPES, BENDS)[:, column], wanted.numpy(), atol=1e-9)


def test_options_stay_and_numbers_of_1_bend_nothing() -> None:
    np.testing.assert_array_equal(warped(FEATURES, SHAPES, BENDS)[:, 2], FEATURES[:, 2])
    np.testing.assert_allclose(warped(FEATURES, np.zeros((2, 3)), BENDS), FEATURES, atol=1e-12)


@pytest.mark.parametrize("which", [0, 1])
def test_slopes_are_those_of_differences(which: int) -> None:
    step = np.zeros((2, 3))
    step[which] = 1e-6
    wanted = (warped(FEATURES, SHAPES + step, BENDS) - warped(FEATURES, SHAPES - step, BENDS)) / 2e-6
    np.testing.assert_allclose(slopes(FEATURES, SHAPES, BENDS)[which], wanted, atol=1e-6)


def test_the_ends_of_a_range_have_finite_slopes() -> None:
    ends = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    assert np.isfinite(slopes(ends, SHAPES, BENDS)).all()
    assert np.isfinite(warped(ends, SHAPES, BENDS)).all()
