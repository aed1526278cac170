"""Tests that parts of another kind are found before a search, with figures, and parts of one kind are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageFilter
from safetensors.torch import save_file

from tests.trainable.small_runs import small_recipe
from trainable.bench import ON_CPU
from trainable.check import make_subject
from trainable.checks.finding import Finding, advised
from trainable.checks.parts_alike import (
    QUANTILES,
    check_parts_alike,
    known_images,
    some_of_each,
    statistics_of,
)
from trainable.checks.subject import Subject
from trainable.data import ArrayPart, DataSet
from trainable.data.assembly import from_arrays, load
from trainable.models.make import NetworkEnds, make_model
from trainable.recipe import Recipe
from trainable.recipe.data import Data

Array = NDArray[Any]
Change = Callable[[Array], Array]


def kept(images: Array) -> Array:
    return images


def brighter(images: Array) -> Array:
    return np.clip(images * 1.3 + 10, 0, 255).astype(np.uint8)


def blurred(images: Array) -> Array:
    def soft(image: Array) -> Array:
        shown = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
        found = np.asarray(shown.filter(ImageFilter.GaussianBlur(0.8)))
        return found[None] if found.ndim == 2 else found.transpose(2, 0, 1)

    return np.stack([soft(image) for image in images])


@pytest.fixture(scope="module")
def digits() -> DataSet:
    return load(Data())


def changed(data: DataSet, validation: Change = kept, test: Change = kept) -> DataSet:
    """Return a data set whose validation and test images are changed."""

    def part(each: Any, change: Change) -> ArrayPart:
        assert isinstance(each, ArrayPart)
        return ArrayPart(change(each.images), each.labels)

    return replace(data, validation=part(data.validation, validation), test=part(data.test, test))


def found_in(data: DataSet) -> list[Finding]:
    return list(check_parts_alike(data, some_of_each(data)))


def test_parts_of_one_kind_pass_with_their_figures(digits: DataSet) -> None:
    validation, test = found_in(digits)
    assert (validation.level, test.level) == ("passed", "passed")
    assert validation.what.startswith("validation against training: images are told apart with AUC 0.")
    assert test.what.startswith("test against training and validation: images are told apart with AUC 0.")


@pytest.mark.parametrize(("change", "named"), [(brighter, "brightness"), (blurred, "sharpness")])
def test_a_test_part_of_another_kind_is_a_warning_that_says_by_what_and_what_to_do(
    digits: DataSet, change: Change, named: str
) -> None:
    validation, test = found_in(changed(digits, test=change))
    assert (validation.level, test.level) == ("passed", "warning")
    assert f"the figure that differs most is {named}, " in test.what
    assert "standard deviations" in test.what
    do = advised(test, Recipe(), digits.info).do
    assert "data.group" in do
    assert "take validation images from the test's kind" in do


def test_to_split_anew_is_advised_where_tunebook_splits(digits: DataSet) -> None:
    validation, *_ = found_in(changed(digits, validation=brighter))
    of_other_parts = Recipe().with_values({"data.validation_fraction": 0.5})
    for recipe, is_split_here in ((Recipe(), True), (of_other_parts, False)):
        do = advised(validation, recipe, digits.info).do
        assert ("split anew" in do) == is_split_here
        assert "prepare all parts alike" in do


def test_validation_of_the_tests_kind_is_as_it_should_be(digits: DataSet) -> None:
    validation, test = found_in(changed(digits, blurred, blurred))
    assert (validation.level, test.level) == ("note", "passed")
    assert "of the test's kind" in validation.means
    assert test.what.startswith("test against validation: ")


def test_a_validation_part_unlike_both_others_is_a_warning_and_so_is_one_without_a_test(
    digits: DataSet,
) -> None:
    assert [each.level for each in found_in(changed(digits, blurred))] == ["warning", "warning"]
    alone = replace(changed(digits, blurred), test=None)
    assert [each.level for each in found_in(alone)] == ["warning"]


def test_parts_that_are_too_small_are_not_checked() -> None:
    images = np.random.default_rng(0).integers(0, 256, (30, 8, 8), dtype=np.uint8)
    labels = np.arange(30) % 2
    found = found_in(from_arrays((images[:20], labels[:20]), (images[20:], labels[20:])))
    assert [each.level for each in found] == ["note"]
    assert "not checked: validation against training: too few images" in found[0].what


def subject_with_weights(digits: DataSet, folder: Path) -> Subject:
    recipe = small_recipe({"data.path": "digits"})
    network = make_model(recipe.model, NetworkEnds(classes=10, channels=1, image_size=8))
    save_file(network.state_dict(), folder / "weights.safetensors")
    recipe = recipe.with_values({"model.weights": str(folder / "weights.safetensors")})
    return make_subject(recipe, digits, None, ON_CPU)


def test_a_pretrained_network_looks_at_the_images_too_if_there_is_time(
    digits: DataSet, tmp_path: Path
) -> None:
    subject = subject_with_weights(digits, tmp_path)
    chosen, known = known_images(subject, 60.0)
    assert known is not None
    assert {part: len(each) for part, each in known.items()} == {part: len(at) for part, at in chosen.items()}
    assert known["train"].shape == (1_000, known["test"].shape[1])
    levels = [each.level for each in check_parts_alike(digits, chosen, known)]
    assert levels == ["passed", "passed"]
    in_no_time = known_images(subject, 0.0)
    assert in_no_time[1] is None
    assert in_no_time[0].keys() == chosen.keys()


def test_a_network_without_weights_knows_nothing_of_images(digits: DataSet) -> None:
    subject = make_subject(small_recipe(), digits, None, ON_CPU)
    assert known_images(subject, 60.0)[1] is None


@pytest.mark.slow("trains for its checks")
@pytest.mark.data
def test_photographs_taken_elsewhere_are_found_and_random_parts_are_not(real_images: Path) -> None:
    path = str(real_images / "sign-language-digits" / "Dataset")
    hands = load(Data(path=path, image_size=32, in_memory=True))
    assert [each.level for each in found_in(hands)] == ["passed", "passed"]
    elsewhere = changed(hands, test=lambda images: brighter(blurred(images)))
    assert [each.level for each in found_in(elsewhere)] == ["passed", "warning"]


# --- statistics of images, against numpy ------------------------------------------------------------------


def noise(channels: int, side: int, count: int = 6) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(side).integers(0, 256, (count, channels, side, side), dtype=np.uint8)


def test_the_named_figures_come_first_and_are_numpys() -> None:
    images = noise(3, 24)
    found = statistics_of(images)
    assert found.names == ("red", "green", "blue", "contrast", "sharpness")
    wide = images.astype(float)
    grey = wide.mean(1)
    steps = [(np.diff(grey, axis=axis) ** 2).mean((1, 2)) for axis in (1, 2)]
    expected = [*wide.mean((2, 3)).T, grey.std((1, 2)), np.sqrt(sum(steps))]
    for column, values in enumerate(expected):
        assert found.values[:, column] == pytest.approx(values, rel=1e-4)


def test_quantiles_of_small_images_are_exact_and_of_large_ones_near() -> None:
    for side, error in ((8, 8.0), (96, 16.0)):
        images = noise(1, side)
        exact = np.quantile(images.reshape(6, -1), QUANTILES, axis=1).T
        columns = statistics_of(images).values[:, 1 + 1 + 3 + 1 :][:, : len(QUANTILES)]
        assert np.abs(columns - exact).max() < error


def test_a_blurred_image_is_less_sharp_and_as_bright() -> None:
    (image,) = noise(1, 32, 1)
    soft = np.asarray(Image.fromarray(image[0]).filter(ImageFilter.GaussianBlur(1)))
    sharp, blurred = statistics_of(np.stack([image, soft[None]])).values
    assert blurred[0] == pytest.approx(sharp[0], abs=3.0)
    assert blurred[2] < 0.5 * sharp[2]


@pytest.mark.parametrize("side", [4, 5, 7])
def test_the_smallest_images_have_finite_statistics(side: int) -> None:
    assert np.isfinite(statistics_of(noise(3, side)).values).all()
