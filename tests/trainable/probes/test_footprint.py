"""Tests how the time is counted in which a GPU works; `test_packing` measures steps on one."""

from __future__ import annotations

import pytest

from trainable.probes.footprint import covered


@pytest.mark.parametrize(
    ("spans", "whole"),
    [
        ([], 0.0),
        ([(0.0, 2.0), (5.0, 6.0)], 3.0),
        ([(5.0, 6.0), (0.0, 2.0)], 3.0),
        ([(0.0, 4.0), (1.0, 2.0), (3.0, 5.0)], 5.0),
        ([(1.0, 2.0), (1.0, 2.0)], 1.0),
    ],
)
def test_kernels_at_the_same_time_count_once(spans: list[tuple[float, float]], whole: float) -> None:
    assert covered(spans) == whole
