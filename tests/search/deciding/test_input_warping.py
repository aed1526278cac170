"""Tests bent axes against PyTorch's Kumaraswamy distribution, and their slopes against differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.distributions import Kumaraswamy

from search.deciding.gaussian_process import slopes, warped

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
