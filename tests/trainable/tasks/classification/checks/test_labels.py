"""Tests the checks of labels alone: classes, their shares in the parts, and what accuracy hides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.trainable.small_runs import data_set
from trainable.checks.finding import Finding, advised
from trainable.checks.sampling import NamedImage
from trainable.data import ArrayPart, DataSet
from trainable.data.assembly import from_arrays
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.tasks.classification.checks.labels import (
    check_accuracy,
    check_contradictions,
    check_label_shares,
    check_labels,
)


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings}


def test_the_smallest_and_the_largest_class_are_named_with_their_counts() -> None:
    data = data_set(90)
    assert isinstance(data.train, ArrayPart)
    chosen = np.flatnonzero((data.train.labels != 1) | (np.arange(90) < 6))
    rare = replace(data, train=ArrayPart(data.train.images[chosen], data.train.labels[chosen]))
    found = by_name(list(check_labels(rare)))["class balance"]
    assert found.level == "warning"
    assert "from 2 training images of class 1 to 30 of 0" in found.what
    assert "val_balanced_accuracy" in found.do
    assert found.of_accuracy


@pytest.mark.parametrize(("images", "level"), [(90, "warning"), (99, "warning"), (120, "passed")])
def test_validation_parts_are_small_where_accuracy_is_uncertain_by_more_than_five_points(
    images: int, level: str
) -> None:
    assert by_name(list(check_labels(data_set(48, images))))["validation size"].level == level


def test_a_class_that_training_lacks_is_named() -> None:
    data = data_set(48)
    assert isinstance(data.train, ArrayPart)
    without = replace(data, train=replace(data.train, labels=np.minimum(data.train.labels, 1)))
    found = [each for each in check_labels(without) if each.level == "error"]
    assert "1 of 3 classes have no train image: 2" in found[0].what
    assert "data.min_images: 1" in found[0].do


def test_a_class_that_the_test_part_alone_lacks_is_no_matter_of_its_training_images() -> None:
    data = data_set(48)
    assert isinstance(data.test, ArrayPart)
    without = replace(data, test=replace(data.test, labels=np.minimum(data.test.labels, 1)))
    (found,) = (each for each in check_labels(without) if "no test image" in each.what)
    assert "data.test: none leaves the test part out" in found.do
    assert "min_images" not in found.do


@pytest.mark.parametrize(
    ("names", "warned"),
    [
        (("-1", "0", "1"), "a class is called -1 (16 training images)"),
        (
            ("NA", "cat", "unlabeled"),
            "2 classes are called NA (16 training images), unlabeled (16 training images)",
        ),
        (("cat", "nan", "unknown"), "a class is called nan (16 training images)"),
        (("0", "1", "2"), ""),
    ],
)
def test_a_class_that_is_called_as_if_images_had_no_label_is_a_warning(
    names: tuple[str, ...], warned: str
) -> None:
    data = data_set(48)
    named = replace(data, info=replace(data.info, classes=names, class_counts=(16, 16, 16)))
    found = [each for each in check_labels(named) if "no label" in each.means]
    assert [(each.level, each.what) for each in found] == ([("warning", warned)] if warned else [])
    assert all("data.exclude" in each.do for each in found)


@pytest.mark.parametrize(("folders", "said"), [(4, True), (3, False), (46, False)])
def test_folders_in_class_folders_may_be_the_classes_that_are_meant(folders: int, said: bool) -> None:
    data = replace(data_set(90), inner_folders=tuple(f"a/{n}" for n in range(folders)))
    notes = [each.what for each in check_labels(data) if each.level == "note"]
    assert [note.partition(";")[0] for note in notes] == ["the 3 classes are the uppermost folders"] * said


def test_a_class_without_training_images_is_not_said_to_be_learnt() -> None:
    data = data_set(48)
    assert isinstance(data.train, ArrayPart)
    without = replace(data.train, labels=np.minimum(data.train.labels, 1))
    named = replace(data, train=without, info=replace(data.info, classes=("cat", "dog", "none")))
    assert not [each for each in check_labels(named) if "no label" in each.means]


def test_minus_one_beside_one_is_a_class() -> None:
    data = from_arrays((np.zeros((8, 4, 4), np.uint8), np.resize([-1, 1], 8)), spec=Data(test_fraction=0.0))
    assert data.info.classes == ("-1", "1")
    assert not [each for each in check_labels(data) if "no label" in each.means]


# --- what accuracy hides ----------------------------------------------------------------------------------


def validated_on(held: tuple[int, ...]) -> DataSet:
    """Return a set whose validation part has so many images of each class."""
    labels = np.repeat(np.arange(len(held)), held)
    every = np.arange(len(held))
    return from_arrays(
        (np.zeros((len(held), 8, 8), np.uint8), every), (np.zeros((len(labels), 8, 8), np.uint8), labels)
    )


def test_what_guessing_scores_is_named_with_the_objective_that_shows_it() -> None:
    data = validated_on((180, 12, 8))
    found = advised(check_accuracy(data), Recipe(), data.info)
    assert (found.level, found.of_accuracy) == ("warning", True)
    assert "answering 0 to every validation image scores 90% accuracy, and 33% balanced" in found.what
    assert "objective.metric: val_balanced_accuracy" in found.do


def test_classes_whose_recall_nobody_can_see_are_named_with_its_interval() -> None:
    """Of 2 of 4 right, Wilson's interval is (p + z^2/2n ± z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n)."""
    data = validated_on((30, 4, 30))
    found = advised(check_accuracy(data), Recipe(), data.info)
    assert (found.level, found.of_accuracy) == ("note", False)
    assert "1 of 3 classes have few validation images: 1" in found.what
    z, n, p = 1.96, 4, 0.5
    half = z * (p * (1 - p) / n + z**2 / (4 * n**2)) ** 0.5 / (1 + z**2 / n)
    assert (
        f"if half of the 4 of 1 are right, its recall is {0.5 - half:.0%} to {0.5 + half:.0%}" in found.what
    )
    assert found.do.startswith("move images into the validation part, or gather more images")


@pytest.mark.parametrize(
    ("held", "level"),
    [
        ((50, 50), "passed"),
        ((71, 29), "passed"),
        ((72, 28), "warning"),
        ((12, 12), "passed"),
        ((11, 11), "note"),
    ],
)
def test_nothing_is_hidden_where_classes_are_nearly_alike(held: tuple[int, ...], level: str) -> None:
    assert check_accuracy(validated_on(held)).level == level


# --- shares of the classes --------------------------------------------------------------------------------

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
    assert (validation.of_accuracy, test.of_accuracy) == (False, True)
    assert "test against training and validation" in test.what
    assert "differ in share by 35% of the images" in test.what
    assert "most c0 68% against 33%, c2 5% against 33%, c1 27% against 33%" in test.what
    assert any("val_balanced_accuracy" in each.do for each in test.advice)


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


# --- one image with two labels ----------------------------------------------------------------------------


def test_two_images_that_differ_in_their_labels_are_named() -> None:
    group = [NamedImage("train", number, label, f"{number}.png") for number, label in enumerate((0, 0, 1))]
    found = check_contradictions([group], ["cat", "dog"])
    assert found.what == "3 of 3 images also occur with another label: 0.png (cat) = 2.png (dog)"


def test_a_class_that_hardly_exists_is_named_with_its_part() -> None:
    data = data_set(90)
    assert isinstance(data.train, ArrayPart)
    chosen = np.flatnonzero((data.train.labels != 1) | (np.arange(90) < 6))
    rare = replace(data, train=ArrayPart(data.train.images[chosen], data.train.labels[chosen]))
    (found,) = (each for each in check_labels(rare) if "fewer than" in each.what)
    assert (found.check, found.level) == ("class balance", "warning")
    assert found.what == "classes with fewer than 5 images: 1 (2) in training"
    assert not any("fewer than" in each.what for each in check_labels(data))


def test_the_size_of_a_part_says_from_what_difference_on_two_recipes_are_told_apart() -> None:
    size = by_name(list(check_labels(data_set(48, 120))))["validation size"]
    assert "from a difference of 5.0 points on (6 images that one of them alone has right" in size.what
