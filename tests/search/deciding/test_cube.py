"""Tests the rows that stand for trials, there and back without a loss, and mutations of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.deciding.beliefs import draw
from search.deciding.cube import SWITCHED, Cube, CubeRows, mutations
from spaces.domains import Choice, Float
from spaces.space import Dimension, Space
from tests.search.small_spaces import conditional_space
from trainable.recipe import Recipe

SPACE = conditional_space()
CUBE = Cube(SPACE)
SIX = len(SPACE.dimensions)

rows = st.lists(st.floats(0, 1), min_size=SIX, max_size=SIX).map(lambda row: np.array([row]))


@given(rows)
def test_an_exact_row_is_the_row_of_its_values(row: CubeRows) -> None:
    (exact,) = CUBE.exact(row)
    again = CUBE.row(CUBE.values(exact))
    assert again is not None
    np.testing.assert_allclose(again, exact, atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_the_values_of_a_trials_row_are_the_trials(seed: int) -> None:
    values = draw(SPACE, "even", np.random.default_rng(seed))
    row = CUBE.row(values)
    assert row is not None
    again = CUBE.values(row)
    assert again.keys() == values.keys()
    assert {path for path in values if again[path] != pytest.approx(values[path])} == set()


def test_a_trial_with_a_value_outside_its_range_has_no_row() -> None:
    assert CUBE.row({**SPACE.own, "regularisation.label_smoothing": 0.5}) is None


def test_a_row_lacks_what_its_options_do_not_bring() -> None:
    sgd, adamw = CUBE.exact(np.array([[0.2] * SIX, [0.8] * SIX]))
    names = [each.name for each in SPACE.dimensions]
    assert [names[at] for at in np.flatnonzero(np.isnan(sgd))] == ["optimizer.lr[adamw]"]
    assert [names[at] for at in np.flatnonzero(np.isnan(adamw))] == [
        "optimizer.lr[sgd]",
        "optimizer.momentum[sgd]",
    ]


def test_a_condition_on_what_does_not_vary_asks_the_base() -> None:
    fixed = Space(
        Recipe(),
        SPACE.dimensions[1:],
        own={each: SPACE.own[each] for each in SPACE.own if each != "optimizer.kind"},
    )
    assert np.isnan(Cube(fixed).exact(np.full((1, SIX - 1), 0.5))[0]).tolist() == [
        False,
        True,
        False,
        False,
        False,
    ]


def test_two_options_are_one_apart_in_the_features_and_what_both_lack_adds_nothing() -> None:
    sgd, adamw, other = CUBE.exact(np.array([[0.2] * SIX, [0.8] * SIX, [0.2, 0.2, 0.2, 0.2, 0.7, 0.2]]))
    options = CUBE.groups == 0
    features = CUBE.features(np.stack([sgd, adamw, other]))
    assert np.linalg.norm(features[0, options] - features[1, options]) == pytest.approx(1.0)
    assert np.linalg.norm(features[0] - features[2]) == pytest.approx(0.5)


def test_another_option_is_any_but_the_same() -> None:
    three = Dimension("augmentation.crop.kind", Choice(("none", "pad", "resized")), "for the test", "none")
    cube = Cube(Space(Recipe(), (three,), own={three.path: "none"}))
    moved = cube.exact((1 / 6 + cube.to_other_options(np.linspace(0, 0.999, 60)[:, None])) % 1.0)
    chosen = [cube.values(row)[three.path] for row in moved]
    assert chosen == ["pad"] * 30 + ["resized"] * 30


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
