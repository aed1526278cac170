"""Tests what the stored features of a network depend on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from search.facts.backbones import _cache_file
from tests.trainable.small_images import write_classes
from trainable.data import DataSet
from trainable.data.assembly import load
from trainable.recipe import Recipe
from trainable.recipe.data import Data


@pytest.mark.parametrize("limit", [0, 2**32])
def test_features_of_a_set_that_is_not_hashed_whole_depend_on_the_times_of_all_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr("trainable.data.measure.DIGEST_BYTES", limit)
    folder = write_classes(tmp_path / "images", {"cat": 8, "dog": 8})

    def stored(data: DataSet) -> Path:
        return _cache_file(Recipe(), data, torch.device("cpu"))

    before = load(Data(path=str(folder)))
    os.utime(folder / "cat" / "003.png", ns=(0, 10**18))
    after = load(Data(path=str(folder)))

    assert before.info.digest == after.info.digest
    assert (stored(before) == stored(after)) == (limit > 0)
