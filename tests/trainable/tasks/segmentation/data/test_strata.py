"""Tests what a split keeps in proportion: the rarest class that each image shows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from trainable.data.split import SplitPlan, grouped_split, stratified_split
from trainable.tasks.segmentation.data.survey import LEAST, Shown, strata_of

SHOWN = st.tuples(st.integers(LEAST, 40), st.integers(2, 8)).flatmap(lambda shape: arrays.arrays(bool, shape))


def shown(*images: str, classes: str = "abcd") -> Shown:
    """Return which images show which classes, given each image's classes as letters."""
    return np.array([[each in image for each in classes] for image in images])


def test_an_image_belongs_to_the_rarest_class_that_it_shows() -> None:
    found = shown(*["ab"] * 5, *["ac"] * 4, *["a"] * 6, *["abd"] * 3)

    strata = strata_of(found)

    names = ["abcd"[each] for each in strata.named_by]
    assert [names[label] for label in strata.labels(found)] == [*"bbbbb", *"cccc", *"aaaaaa", *"ddd"]


def test_an_image_that_shows_nothing_belongs_to_the_commonest_class() -> None:
    found = shown(*["ab"] * 3, *["a"] * 3, "")

    assert strata_of(found).labels(found).tolist() == [0, 0, 0, 1, 1, 1, 1]


def test_a_class_of_too_few_images_is_joined_with_the_next_more_common_one() -> None:
    found = shown("ad", "ad", *["ac"] * 3, *["ab"] * 5, *["a"] * 3)

    strata = strata_of(found)

    assert ["abcd"[each] for each in strata.named_by] == ["c", "b", "a"]
    assert strata.labels(found).tolist() == [0] * 5 + [1] * 5 + [2] * 3


def test_too_few_images_of_the_commonest_class_are_joined_with_the_rarer_one() -> None:
    found = shown(*["ab"] * 4, "a")

    assert strata_of(found).labels(found).tolist() == [0] * 5
    assert strata_of(found).named_by == (0,)


def test_images_of_another_part_have_strata_of_the_training_part() -> None:
    strata = strata_of(shown(*["ab"] * 3, *["a"] * 4))

    assert strata.labels(shown("ad", "a", "ab", "")).tolist() == [0, 1, 0, 1]


def test_a_stratum_has_three_groups_where_groups_are_known() -> None:
    found = shown(*["ab"] * 4, *["a"] * 6)
    groups = np.array([0, 0, 1, 1, 0, 1, 2, 2, 3, 4])

    assert strata_of(found, groups).labels(found).tolist() == [0] * 10


@given(SHOWN, st.integers(0, 3))
def test_a_split_by_strata_is_never_refused(found: Shown, seed: int) -> None:
    strata = strata_of(found)
    labels, names = strata.labels(found), [str(each) for each in strata.named_by]

    parts = stratified_split(labels, names, SplitPlan(0.15, 0.15, seed))

    assert all(set(labels[part]) == set(range(len(names))) for part in parts)
    assert min(np.bincount(labels)) >= LEAST


@given(SHOWN, st.data())
def test_every_stratum_has_three_groups(found: Shown, data: st.DataObject) -> None:
    units = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(found), max_size=len(found))))

    strata = strata_of(found, units)

    labels = strata.labels(found)
    held = [len(set(units[labels == each].tolist())) for each in range(len(strata.named_by))]
    assert min(held) >= LEAST or len(held) == 1


def test_groups_of_images_with_masks_are_split_into_three_parts() -> None:
    found = shown(*["ab"] * 10, *["ac"] * 10, *["a"] * 20)
    groups = [str(each % 8) for each in range(40)]
    strata = strata_of(found, np.array([int(each) for each in groups]))

    parts = grouped_split(strata.labels(found), groups, "abc", SplitPlan(0.2, 0.2, 0))

    kept = [{groups[each] for each in part} for part in parts]
    assert kept[0].isdisjoint(kept[1])
    assert all(kept)
