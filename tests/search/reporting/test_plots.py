"""Tests marks: their paths are what the page's script reads back."""

from __future__ import annotations

import re
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.reporting.plots import CROWDED, SIDE, Area, Axis, Plot, PlotLine, Points, Spot, spots_on

SHARE = st.floats(0.0, 1.0)
SPOTS = st.lists(st.tuples(SHARE, SHARE), min_size=1, max_size=30)


def units(spots: list[Spot]) -> list[tuple[int, int]]:
    return [(round(SIDE * x), round(SIDE * (1.0 - y))) for x, y in spots]


@given(SPOTS)
def test_the_steps_of_a_line_lead_through_its_spots(spots: list[Spot]) -> None:
    start, _, steps = PlotLine("best", spots).path.replace("h0", "").partition("l")
    numbers = [int(each) for each in re.findall(r"-?\d+", start + " " + steps)]
    across, down = accumulate(numbers[::2]), accumulate(numbers[1::2])
    assert list(zip(across, down, strict=True)) == units(spots)


@given(SPOTS)
def test_points_are_lines_without_length_at_their_spots(spots: list[Spot]) -> None:
    path = Points("best", spots, range(len(spots))).path
    assert [(int(x), int(y)) for x, y in re.findall(r"M(\d+) (\d+)h0", path)] == units(spots)


def test_an_area_is_closed_at_the_bottom() -> None:
    assert Area("belief", [(0.0, 0.5), (1.0, 0.25)]).path == f"M0 {SIDE}L0 1000 2000 1500 2000 {SIDE}z"


def test_pairs_of_numbers_become_spots_on_two_axes() -> None:
    x, y = Axis("", 0.0, 10.0), Axis("", 1.0, 3.0)
    assert spots_on(x, y, [(5.0, 3.0), (10.0, 2.0)]) == [(0.5, 1.0), (1.0, 0.5)]


@pytest.mark.parametrize(("lines", "look"), [(CROWDED, ""), (CROWDED + 1, "crowded")])
def test_many_marks_are_fainter(lines: int, look: str) -> None:
    assert Plot("", Axis(""), Axis(""), lines=[PlotLine("best", [(0.0, 0.0)])] * lines).look == look
