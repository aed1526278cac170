"""Tests how far apart searches are by their facts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.learning.lessons import SAME_FACTS, Likeness, likeness
from tests.spaces.small_facts import digits_facts, imagenet_facts, masks_facts


def test_equal_facts_leave_the_whole_weight_and_the_variance_between_models_of_one_task() -> None:
    found = likeness(digits_facts(), digits_facts())
    assert (found.distance, found.words, found.share) == (0.0, (), 1.0)
    assert found.variance == SAME_FACTS**2


def test_a_factor_of_ten_and_another_kind_count_alike_and_are_named() -> None:
    ten = likeness(digits_facts(train_images=1_000), digits_facts(train_images=10_000))
    kind = likeness(digits_facts(pretrained=True), digits_facts())
    assert ten.distance == pytest.approx(kind.distance) == 1.0
    assert (ten.words, kind.words) == (("train_images 1,000, here 10,000",), ("pretrained true, here false",))


def test_a_search_of_another_task_is_another_kind() -> None:
    found = likeness(masks_facts(task="classification"), masks_facts())
    assert (found.distance, found.words) == (1.0, ("task classification, here segmentation",))


def test_machines_and_names_are_no_difference_between_tasks() -> None:
    assert likeness(digits_facts(cpus=64, workers=8, gpus=1.0), digits_facts()).distance == 0.0


def test_either_direction_is_as_far() -> None:
    there, back = likeness(imagenet_facts(), digits_facts()), likeness(digits_facts(), imagenet_facts())
    assert there.distance == pytest.approx(back.distance)
    assert there.distance > 5.0


@given(st.floats(0.0, 50.0), st.floats(0.0, 50.0))
def test_what_is_farther_has_no_less_variance_and_no_more_weight(one: float, other: float) -> None:
    near, far = (Likeness(each) for each in sorted((one, other)))
    assert near.variance <= far.variance
    assert near.share >= far.share > 0.0
