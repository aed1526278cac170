"""Tests that what is known of a data set, which is read from files, cannot contradict itself."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trainable.data import DataInfo

INFO = DataInfo(
    path="digits",
    format="digits",
    classes=tuple("0123456789"),
    channels=1,
    image_size=8,
    train_images=7_000,
    validation_images=1_500,
    test_images=1_500,
    class_counts=(700,) * 10,
    mean=(0.3,),
    std=(0.3,),
    flips=(),
    digest="0" * 12,
    in_memory=True,
)
TREE = INFO.tree()


def test_what_was_written_is_read() -> None:
    assert DataInfo.from_tree(TREE) == INFO


@pytest.mark.parametrize(
    "change",
    [
        {"classes": ["one"], "class_counts": [7000]},
        {"class_counts": TREE["class_counts"][1:]},
        {"class_counts": [0, *TREE["class_counts"][1:]]},
        {"class_counts": [-1, *TREE["class_counts"][1:]]},
        {"classes": [], "class_counts": []},
        {"train_images": 0},
        {"validation_images": -5},
        {"test_images": -1},
        {"image_size": 0},
        {"mean": []},
        {"channels": 3},
        {"std": [0.0]},
        {"std": [-1.0]},
    ],
)
def test_what_no_data_set_is_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="expected"):
        DataInfo.from_tree({**TREE, **change})
