"""Tests how a part's images are shown to an exported classifier: as they are stored, in their order."""

from __future__ import annotations

from typing import Any

import torch

from tests.trainable.small_runs import data_set, small_recipe
from trainable.tasks.classification.exported.labels import stored_images, top_classes
from trainable.tasks.exporters import exporter_of


def test_images_of_several_sizes_are_answered_in_their_order() -> None:
    seen: list[tuple[int, ...]] = []

    def brightest(images: Any) -> Any:
        seen.append(images.shape)
        return images.reshape(len(images), -1)

    sizes = [(1, (4, 1, 1)), (3, (4, 1, 1)), (2, (2, 2, 1))]
    shown = [torch.eye(4)[each].reshape(size) for each, size in sizes]
    assert top_classes(brightest, [each.numpy() for each in shown]).tolist() == [1, 3, 2]
    assert seen == [(2, 4, 1, 1), (1, 2, 2, 1)]


def test_images_that_python_gave_are_compared_as_the_squares_that_they_are() -> None:
    data = data_set()
    recipe = small_recipe({"data.format": "own"})
    stored = list(stored_images(data, recipe.data, "test", exporter_of(recipe, data.info).about()))
    assert [each.shape for each in stored] == [(8, 8, 1)] * 20
