"""Tests mutations: near their parent, never the same, within the space."""

from __future__ import annotations

import numpy as np
import pytest

from search.deciding.cube import Cube
from search.deciding.mutation import SWITCHED, mutations
from spaces.domains import Choice, Float
from spaces.space import Dimension, Space
from tests.search.small_spaces import conditional_space
from trainable.recipe import Recipe

SPACE = conditional_space()
CUBE = Cube(SPACE)
OPTIMIZER = [each.path for each in SPACE.dimensions].index("optimizer.kind")


@pytest.fixture
def parent() -> np.ndarray:
    row = CUBE.row(SPACE.own)
    assert row is not None
    return row


def test_each_mutation_makes_a_recipe_and_differs_from_its_parent(parent: np.ndarray) -> None:
    for row in mutations(CUBE, parent, 0.1, 200, np.random.default_rng(0)):
        SPACE.recipe(CUBE.values(row))
        assert not np.array_equal(row, parent, equal_nan=True)


def test_a_smaller_step_stays_nearer(parent: np.ndarray) -> None:
    def distance(step: float) -> float:
        rows = mutations(CUBE, parent, step, 400, np.random.default_rng(0))
        return float(np.nanmean(np.abs(rows - parent)[:, ~CUBE.is_choice]))

    assert distance(0.02) < 0.25 * distance(0.2)


def test_a_number_can_reach_the_end_of_its_range(parent: np.ndarray) -> None:
    rows = mutations(CUBE, parent, 0.5, 400, np.random.default_rng(0))
    positions = rows[:, ~CUBE.is_choice]
    assert np.nanmin(positions) == 0.0
    assert np.nanmax(positions) > 0.999


@pytest.mark.parametrize("end", [1e-3, 10.0])
def test_a_row_whose_only_number_is_at_an_end_changes_too(end: float) -> None:
    rate = Dimension("optimizer.lr", Float(1e-3, 10.0, log=True), "for the test", "none")
    only = Dimension("augmentation.crop.kind", Choice(("none",)), "for the test", "none")
    cube = Cube(Space(Recipe(), (rate, only), own={rate.path: end, only.path: "none"}))
    parent = cube.exact(np.array([[float(end > 1.0), 0.5]]))[0]
    rows = mutations(cube, parent, 0.1, 200, np.random.default_rng(0))
    assert (rows[:, 0] != parent[0]).all()
    assert (rows[:, 1] == parent[1]).all()


def test_about_half_of_the_numbers_move_and_options_change_less_often(parent: np.ndarray) -> None:
    rows = mutations(CUBE, parent, 0.1, 2000, np.random.default_rng(0))
    changed = rows[:, OPTIMIZER] != parent[OPTIMIZER]
    assert changed.mean() == pytest.approx(SWITCHED + 0.75 / 5, abs=0.04)  # one of five moves in any case
    moved = rows[~changed, 4] != parent[4]
    assert moved.mean() == pytest.approx(0.6, abs=0.06)


def test_what_a_new_option_brings_is_drawn_evenly(parent: np.ndarray) -> None:
    rows = mutations(CUBE, parent, 0.1, 2000, np.random.default_rng(0))
    brought = rows[rows[:, OPTIMIZER] != parent[OPTIMIZER], 2]
    assert np.mean(brought < 0.5) == pytest.approx(0.5, abs=0.06)
