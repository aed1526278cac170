"""Tests masks of nuclei as they are published, from the folder that TUNEBOOK_DATA names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trainable.bench import HERE
from trainable.data.split import members_of
from trainable.recipe.data import Data
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data.parts import MaskedSource
from trainable.tasks.segmentation.data.reading import read

pytestmark = pytest.mark.data


def test_numbers_of_nuclei_are_foreground_of_binary_masks(real_images: Path) -> None:
    spec = Data(path=str(real_images / "nuclei"))

    found = read(spec, HERE, Masks(values="binary"))

    source = found.parts["train"]
    assert isinstance(source, MaskedSource)
    assert (len(source), found.classes) == (60, ("background", "foreground"))
    assert found.surveys is not None
    survey = found.surveys["train"]
    assert survey.pixels.sum(axis=1).tolist() == [256 * 256] * 60
    for index in range(0, 60, 20):
        np.testing.assert_array_equal(source.class_mask(index), np.minimum(source.masks.raw(index), 1))
    sizes = {part: len(selection.indices) for part, selection in members_of(found, spec).items()}
    assert sizes == {"train": 42, "validation": 9, "test": 9}
