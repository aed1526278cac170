"""Tests which image is in which part."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainable.data.split import SplitPlan, stratified_limit, stratified_split
from trainable.errors import DataError

SIZES = (100, 40, 20)
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(3), SIZES))
NAMES = ("ant", "bee", "cow")


def test_each_class_is_split_by_the_fractions() -> None:
    train, validation, test = stratified_split(LABELS, NAMES, SplitPlan(0.15, 0.15, seed=0))

    assert np.bincount(LABELS[train]).tolist() == [70, 28, 14]
    assert np.bincount(LABELS[validation]).tolist() == [15, 6, 3]
    assert np.bincount(LABELS[test]).tolist() == [15, 6, 3]


@given(
    sizes=st.lists(st.integers(3, 40), min_size=2, max_size=5),
    validation=st.floats(0.01, 0.6),
    test=st.floats(0.0, 0.39),
    seed=st.integers(0, 2**32),
)
def test_everyone_is_in_exactly_one_part_and_every_class_in_every_part(
    sizes: list[int], validation: float, test: float, seed: int
) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    parts = stratified_split(labels, list(map(str, sizes)), SplitPlan(validation, test, seed))

    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    for part in parts[: 2 if test == 0.0 else 3]:
        assert np.unique(labels[part]).tolist() == list(range(len(sizes)))
        assert np.all(np.diff(part) > 0)


def test_the_same_seed_splits_alike_and_another_otherwise() -> None:
    first, again, other = (
        stratified_split(LABELS, NAMES, SplitPlan(0.15, 0.15, seed))[1].tolist() for seed in (0, 0, 1)
    )

    assert first == again
    assert first != other


def test_the_test_part_does_not_depend_on_the_validation_fraction() -> None:
    small, large = (
        stratified_split(LABELS, NAMES, SplitPlan(fraction, 0.2, 0))[2].tolist() for fraction in (0.1, 0.3)
    )

    assert small == large


@given(
    sizes=st.lists(st.integers(3, 40), min_size=2, max_size=5),
    test=st.sampled_from([0.0, 0.15, 0.3]),
    validation_seed=st.integers(0, 2**32),
)
def test_a_validation_seed_draws_anew_from_all_but_the_test_part(
    sizes: list[int], test: float, validation_seed: int
) -> None:
    labels, names = np.repeat(np.arange(len(sizes)), sizes), list(map(str, sizes))
    before = stratified_split(labels, names, SplitPlan(0.15, test, seed=0))
    train, validation, tested = stratified_split(labels, names, SplitPlan(0.15, test, 0, validation_seed))

    assert tested.tolist() == before[2].tolist()
    assert np.bincount(labels[validation]).tolist() == np.bincount(labels[before[1]]).tolist()
    assert sorted([*train, *validation]) == sorted([*before[0], *before[1]])


def test_another_validation_seed_gives_another_validation_part() -> None:
    drawn = {
        tuple(stratified_split(LABELS, NAMES, SplitPlan(0.15, 0.15, 0, seed))[1]) for seed in (None, 0, 1, 2)
    }

    assert len(drawn) == 4


def test_a_class_too_small_to_split_is_an_error_that_says_how_many_are_needed() -> None:
    labels = np.array([0, 0, 0, 1, 1])

    with pytest.raises(DataError, match="class 'bee' has 2; 3 are needed"):
        stratified_split(labels, ("ant", "bee"), SplitPlan(0.15, 0.15, 0))
    assert [len(part) for part in stratified_split(labels, ("ant", "bee"), SplitPlan(0.15, 0.0, 0))] == [
        3,
        2,
        0,
    ]


def test_fractions_that_leave_nothing_to_train_on_are_an_error() -> None:
    with pytest.raises(DataError, match=r"validation_fraction 0\.6.*data\.test_fraction 0\.4"):
        stratified_split(LABELS, NAMES, SplitPlan(0.6, 0.4, 0))


def test_a_limit_keeps_the_proportions() -> None:
    chosen = stratified_limit(LABELS, NAMES, 80, seed=0)

    assert len(chosen) == 80
    np.testing.assert_allclose(np.bincount(LABELS[chosen]), [50, 20, 10], atol=1)


@given(sizes=st.lists(st.integers(1, 50), min_size=2, max_size=6), data=st.data())
def test_a_limit_takes_exactly_so_many_and_someone_of_every_class(
    sizes: list[int], data: st.DataObject
) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    count = data.draw(st.integers(len(sizes), len(labels)))

    chosen = stratified_limit(labels, list(map(str, sizes)), count, seed=0)

    assert len(set(chosen.tolist())) == count
    assert np.unique(labels[chosen]).tolist() == list(range(len(sizes)))


def test_a_limit_above_the_number_takes_all_and_one_below_the_classes_is_an_error() -> None:
    assert stratified_limit(LABELS, NAMES, 1000, 0).tolist() == list(range(160))
    with pytest.raises(DataError, match=r"train_limit 2\b.*\b3\b"):
        stratified_limit(LABELS, NAMES, 2, 0)
