"""Some images of a data set are read on another machine, which says what is wrong with them there."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.trainable.small_images import write_classes
from trainable.data.assembly import load
from trainable.data.sample import DataSample
from trainable.recipe.data import Data


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    write_classes(tmp_path / "pets", {"cat": 40, "dog": 40})
    return tmp_path / "pets"


def sample_of(folder: Path) -> DataSample:
    """A sample as it arrives on another machine."""
    sample = DataSample.of(load(Data(path=str(folder), in_memory=False)))
    assert sample is not None
    arrived: DataSample = pickle.loads(pickle.dumps(sample))
    return arrived


def test_a_machine_that_has_the_same_images_says_how_fast_it_reads(pets: Path) -> None:
    found = sample_of(pets).read()
    assert found.problem == ""
    assert found.images_per_second is not None
    assert found.images_per_second > 0.0


def test_a_sample_is_small_and_of_each_part(pets: Path) -> None:
    sample = sample_of(pets)
    assert len(sample.images) == 3
    assert 0 < len(sample.digests) < 80
    assert len(pickle.dumps(sample)) < 20_000


def test_images_that_travel_need_not_be_there(pets: Path) -> None:
    assert DataSample.of(load(Data(path=str(pets), in_memory=True))) is None


def test_images_in_one_array_travel_with_whatever_names_them(tmp_path: Path) -> None:
    labels = np.arange(80) % 2
    images = np.zeros((80, 8, 8), np.uint8)
    np.savez(tmp_path / "set.npz", train_images=images, train_labels=labels)
    assert DataSample.of(load(Data(path=str(tmp_path / "set.npz"), in_memory=False))) is None


def test_a_machine_without_the_images_names_one(pets: Path) -> None:
    sample = sample_of(pets)
    shutil.rmtree(pets)
    found = sample.read()
    count = len(sample.digests)
    assert found.problem.startswith(f"{count} of {count} images of data.path {pets} cannot be read")
    assert "(No such file or directory), first cat/" in found.problem
    assert found.images_per_second is None


def test_a_machine_with_other_images_is_named(pets: Path) -> None:
    sample = sample_of(pets)
    source, indices = sample.images[0]
    first = source.name(int(indices[0]))
    (pets / first).write_bytes((pets / source.name(int(indices[1]))).read_bytes())
    assert f"1 of {len(sample.digests)} images" in sample.read().problem
    assert f"are other ones there, first {first}: " in sample.read().problem


def test_a_machine_that_keeps_copies_elsewhere_is_told_how_to_share_them(pets: Path) -> None:
    here = load(Data(path=str(pets), in_memory=False))
    copied = replace(here, copy=Path("/elsewhere/tunebook/data/digest/pets"))
    sample = DataSample.of(copied)
    assert sample is not None
    assert "set XDG_CACHE_HOME to the same folder on all machines" in sample.read().problem
