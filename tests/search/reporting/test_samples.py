"""Tests the sample images of each class: which images they are, how many, and that they are kept."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from search.learning.search import Search
from search.reporting.gather import report_of
from search.reporting.page import page
from search.reporting.samples import MOST_CHARACTERS, MOST_CLASSES, PER_CLASS, SAMPLES_FILE, samples_of
from tests.search.planted_searches import Run, planted
from trainable.data import ArrayPart, DataSet
from trainable.errors import UserError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("storage")
    return planted(storage, lambda at, luck: Run(0.5, 0.5), trials=1, budget__epochs=1)


@pytest.fixture
def search(folder: Path) -> Search:
    (folder / SAMPLES_FILE).unlink(missing_ok=True)
    return Search(folder)


def images(search: Search, labels: list[int], classes: int, **changes: Any) -> Callable[[], DataSet]:
    """Give a data set whose training images are told apart by their grey; validation and test are black."""
    side, channels = changes.pop("side", 8), changes.pop("channels", 1)
    luck = np.random.default_rng(0)
    pixels = luck.integers(1, 256, (len(labels), channels, side, side), dtype=np.uint8)
    train = ArrayPart(pixels, np.array(labels, np.int64))
    black = ArrayPart(np.zeros((classes, channels, side, side), np.uint8), np.arange(classes))
    info = replace(
        search.info,
        classes=tuple(f"class {number}" for number in range(classes)),
        class_counts=tuple(np.bincount(labels, minlength=classes).tolist()),
        train_images=len(labels),
        channels=channels,
        mean=(0.5,) * channels,
        std=(0.5,) * channels,
        image_size=side,
    )
    return lambda: DataSet(info, train, black, black)


def pixels_of(thumbnail: str) -> Any:
    return np.array(Image.open(io.BytesIO(base64.b64decode(thumbnail.partition(",")[2]))))


def test_each_class_has_training_images_of_its_own_and_none_of_another_part(search: Search) -> None:
    labels = [0] * 3 + [1] * 30 + [2]
    data = images(search, labels, 3)
    found = samples_of(search, data).classes
    assert [(each.name, each.images, len(each.thumbnails)) for each in found] == [
        ("class 0", 3, 3),
        ("class 1", 30, PER_CLASS),
        ("class 2", 1, 1),
    ]
    train = data().train
    assert isinstance(train, ArrayPart)
    for label, each in enumerate(found):
        own = [image[0] for image in train.images[train.labels == label]]
        for thumbnail in each.thumbnails:
            assert any(np.array_equal(pixels_of(thumbnail), image) for image in own)


def test_coloured_images_keep_their_colours(search: Search) -> None:
    found = samples_of(search, images(search, [0, 1], 2, channels=3)).classes
    assert pixels_of(found[0].thumbnails[0]).shape == (8, 8, 3)


@pytest.mark.parametrize("classes", [100, 1000])
def test_the_pictures_of_many_classes_fit_on_a_page(search: Search, classes: int) -> None:
    labels = list(range(classes)) * 5
    found = samples_of(search, images(search, labels, classes, side=48, channels=3)).classes
    assert len(found) == min(classes, MOST_CLASSES)
    assert all(each.thumbnails for each in found)
    # noise makes the largest pictures that there are
    assert MOST_CHARACTERS / 2 < sum(len(each) for row in found for each in row.thumbnails) < 1_000_000


def test_they_are_kept_so_that_a_later_report_needs_no_data(search: Search) -> None:
    def away() -> DataSet:
        raise UserError("data.path: /flowers does not exist")

    first = samples_of(search, images(search, [0, 1], 2))
    assert samples_of(search, away) == first
    assert (search.folder / SAMPLES_FILE).exists()
    (search.folder / SAMPLES_FILE).write_text(first.model_copy(update={"data": "another"}).model_dump_json())
    with pytest.raises(UserError, match="/flowers does not exist"):
        samples_of(search, away)


def test_the_page_shows_them_and_says_nothing_where_there_are_none(search: Search, folder: Path) -> None:
    samples_of(search, images(search, [0, 0, 1], 2))
    text = page(report_of(search))
    assert text.count('alt="Training image') == 3
    assert 'id="samples"' not in page(report_of(search).model_copy(update={"samples": None}))
