"""Tests which of several equal images are said to contradict each other."""

from __future__ import annotations

from pathlib import Path

from tests.trainable.small_segmentations import mask_data, mask_recipe, write_masks
from trainable.checks.contradictions import NamedImage, check_contradictions, check_mask_contradictions


def test_two_images_that_differ_in_their_labels_are_named() -> None:
    group = [NamedImage("train", number, label, f"{number}.png") for number, label in enumerate((0, 0, 1))]
    found = check_contradictions([group], ["cat", "dog"])
    assert found.what == "3 of 3 images also occur with another label: 0.png (cat) = 2.png (dog)"


def test_every_mask_of_one_image_is_compared_with_the_first(tmp_path: Path) -> None:
    data = mask_data(mask_recipe(write_masks(tmp_path, count=12)))
    group = [NamedImage("train", position, 0, f"{position}.png") for position in (0, 0, 1)]
    found = check_mask_contradictions(data, [group])
    assert found.what == "3 of 3 images also occur with another mask: 0.png = 1.png"
    assert check_mask_contradictions(data, [group[:2]]).level == "passed"
