"""Tests data sets as they are published, from the folder that TUNEBOOK_DATA names."""

from pathlib import Path

import pytest
import torch

from tests.trainable.data_forms import write_csv
from trainable.bench import ON_CPU
from trainable.data.assembly import load
from trainable.errors import DataError
from trainable.recipe import Recipe
from trainable.recipe.data import Columns, Data
from trainable.tasks.kits import make_loader

pytestmark = pytest.mark.data


@pytest.mark.slow("reads many images")
def test_fashion_mnist_is_read_from_its_idx_files(real_images: Path) -> None:
    data = load(Data(path=str(real_images / "fashion-mnist"), train_limit=10_000))

    assert data.info.format == "idx"
    assert (data.info.train_images, data.info.validation_images, data.info.test_images) == (
        10_000,
        9_000,
        10_000,
    )
    assert data.info.class_counts == (1000,) * 10
    assert (data.info.channels, data.info.image_size, data.info.flips) == (1, 28, ())
    assert data.info.mean[0] == pytest.approx(0.286, abs=0.002)


@pytest.mark.slow("reads many photographs")
def test_the_sign_language_digits_are_read_whatever_their_size(real_images: Path) -> None:
    data = load(Data(path=str(real_images / "sign-language-digits" / "Dataset")))

    assert data.info.train_images + data.info.validation_images + data.info.test_images == 2062
    assert (data.info.channels, data.info.image_size) == (3, 64)
    loader = make_loader(data, Recipe(), ON_CPU)
    images, labels = next(iter(loader.train([torch.arange(128)], 1)))
    assert images.shape == (128, 3, 64, 64)
    assert labels.shape == (128,)


def test_the_folder_around_the_sign_language_digits_is_an_error_that_names_the_right_one(
    real_images: Path,
) -> None:
    with pytest.raises(DataError, match=r"holds one folder only, Dataset/; data\.path should be .*/Dataset"):
        load(Data(path=str(real_images / "sign-language-digits")))


@pytest.mark.slow("reads many photographs")
def test_a_manifest_of_photographs_is_the_folder_that_it_lists(real_images: Path, tmp_path: Path) -> None:
    root = real_images / "sign-language-digits" / "Dataset"
    images = [each.relative_to(root) for each in root.rglob("*.JPG")]
    write_csv(tmp_path / "signs.csv", [{"file": str(each), "digit": each.parts[0]} for each in images])
    folder = Data(path=str(root), image_size=16, in_memory=False)
    columns = Columns(path="file", label="digit")
    listed = folder.model_copy(
        update={"path": str(tmp_path / "signs.csv"), "root": str(root), "columns": columns}
    )
    assert load(listed).info.digest == load(folder).info.digest
