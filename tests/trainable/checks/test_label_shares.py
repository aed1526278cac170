"""Tests when classes are said to have other shares in another part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tests.trainable.small_runs import data_set
from trainable.checks.finding import Finding
from trainable.checks.label_shares import check_label_shares
from trainable.data import ArrayPart

SOUND = data_set()


def part(held: Sequence[int]) -> ArrayPart:
    labels = np.repeat(np.arange(len(held)), held)
    return ArrayPart(np.zeros((len(labels), 1, 4, 4), np.uint8), labels)


def found_in(
    train: Sequence[int], validation: Sequence[int], test: Sequence[int] | None = None
) -> list[Finding]:
    """Check parts that have so many images of each class."""
    info = replace(
        SOUND.info, classes=tuple(f"c{each}" for each in range(len(train))), class_counts=tuple(train)
    )
    tested = None if test is None else part(test)
    data = replace(SOUND, info=info, train=part(train), validation=part(validation), test=tested)
    return list(check_label_shares(data))


def levels(*held: Sequence[int]) -> list[str]:
    return [finding.level for finding in found_in(*held)]


def test_a_test_part_with_other_shares_is_a_warning_that_names_the_classes() -> None:
    validation, test = found_in([300, 300, 300], [60, 60, 60], [150, 60, 10])
    assert (validation.level, test.level) == ("passed", "warning")
    assert "test against training and validation" in test.what
    assert "differ in share by 35% of the images" in test.what
    assert "most c0 68% against 33%, c2 5% against 33%, c1 27% against 33%" in test.what
    assert "val_balanced_accuracy" in test.do


def test_parts_of_equal_shares_pass_whatever_their_sizes() -> None:
    assert levels([1000, 200, 10], [100, 20, 1], [50, 10, 1]) == ["passed", "passed"]


def test_a_validation_part_with_the_tests_shares_is_a_note() -> None:
    assert levels([900, 100], [100, 100], [300, 300]) == ["note", "passed"]
    assert levels([900, 100], [100, 100], [30, 300]) == ["warning", "warning"]


def test_a_set_without_a_test_part_is_compared_once() -> None:
    assert levels([900, 100], [100, 100]) == ["warning"]


def test_parts_drawn_at_random_are_hardly_ever_said_to_differ() -> None:
    """None of 200 in expectation differs with a p below 0.001 and by 10 % of the images too."""
    random = np.random.default_rng(0)
    shares = random.dirichlet(np.ones(20))
    warned = 0
    for _ in range(100):
        parts = [random.multinomial(count, shares) + 1 for count in (1000, 150, 150)]
        warned += levels(*(each.tolist() for each in parts)).count("warning")
    assert warned <= 1
