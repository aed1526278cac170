"""Tests torchvision's data sets by name, from small folders laid out like theirs."""

import csv
import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.trainable.small_images import write_image
from trainable.data import FilePart, image_cache
from trainable.data.assembly import load
from trainable.data.decode import square
from trainable.data.torchvision_sets import LAYOUTS, read
from trainable.errors import DataError
from trainable.recipe.data import Data


def write_idx(path: Path, array: NDArray[np.uint8]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(content)
    path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))


def write_mnist(root: Path, name: str, count: int) -> None:
    for part in ("train", "t10k"):
        images = np.random.default_rng(0).integers(0, 256, (count, 28, 28), dtype=np.uint8)
        write_idx(root / name / "raw" / f"{part}-images-idx3-ubyte", images)
        write_idx(root / name / "raw" / f"{part}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8) % 10)


def write_food(root: Path) -> None:
    base = root / "food-101"
    for part in ("train", "test"):
        ids = {name: [f"{name}/{part}{number}" for number in range(4)] for name in ("pie", "soup")}
        (base / "meta").mkdir(parents=True, exist_ok=True)
        (base / "meta" / f"{part}.json").write_text(json.dumps(ids))
        for each in (image for images in ids.values() for image in images):
            write_image(base / "images" / f"{each}.jpg")


def test_a_list_that_names_images_outside_of_the_data_set_is_refused(tmp_path: Path) -> None:
    write_food(tmp_path / "sets" / "food")
    write_image(tmp_path / "photos" / "me.jpg")
    listed = tmp_path / "sets" / "food" / "food-101" / "meta" / "train.json"
    ids = json.loads(listed.read_text())
    ids["pie"][1] = "../../../../photos/me"
    listed.write_text(json.dumps(ids))
    with pytest.raises(
        DataError, match=r"its lists name images outside of it, 1 in all, the first '.*me\.jpg'"
    ):
        read("Food101", tmp_path / "sets" / "food")


def test_every_layout_names_a_data_set_of_torchvision_with_known_flips() -> None:
    from torchvision import datasets

    for name, layout in LAYOUTS.items():
        assert isinstance(getattr(datasets, name), type)
        assert set(layout.flips) <= {"horizontal", "vertical"}
    assert LAYOUTS["MNIST"].flips == ()
    assert LAYOUTS["CIFAR10"].flips == ("horizontal",)


def test_a_set_that_is_not_known_is_an_error_with_the_known_names(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"data\.name: expected one of torchvision's CIFAR10, .*USPS; got 'Cifar10'"
    ):
        read("Cifar10", tmp_path)


def test_a_set_that_is_not_there_is_an_error_that_says_how_to_fetch_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"torchvision's CIFAR10: .*--download fetches it"):
        read("CIFAR10", tmp_path)
    assert not list(tmp_path.iterdir())


def test_one_stored_in_arrays_is_read(tmp_path: Path) -> None:
    write_mnist(tmp_path, "FashionMNIST", 60)

    data = load(Data(path=str(tmp_path), name="FashionMNIST"))

    assert data.info.format == "torchvision"
    assert data.info.classes[:2] == ("T-shirt/top", "Trouser")
    assert data.info.flips == ("horizontal",)
    assert (data.info.train_images, data.info.validation_images, data.info.test_images) == (50, 10, 60)
    assert (data.info.channels, data.info.image_size) == (1, 28)


def test_one_stored_in_files_is_read_while_training_where_it_does_not_fit(tmp_path: Path) -> None:
    write_food(tmp_path)

    data = load(Data(path=str(tmp_path), name="Food101", in_memory=False, validation_fraction=0.25))

    assert isinstance(data.train, FilePart)
    assert data.info.classes == ("pie", "soup")
    assert (len(data.train), len(data.validation), data.info.test_images) == (6, 2, 8)


def write_gtsrb(root: Path) -> None:
    for number in range(6):
        write_image(root / "gtsrb" / "GTSRB" / "Training" / f"{number % 2:05}" / f"{number}.ppm")
        write_image(root / "gtsrb" / "GTSRB" / "Final_Test" / "Images" / f"{number}.ppm")
    with (root / "gtsrb" / "GT-final_test.csv").open("w", newline="") as file:
        rows = [{"Filename": f"{number}.ppm", "ClassId": number % 2} for number in range(6)]
        writer = csv.DictWriter(file, ["Filename", "ClassId"], delimiter=";")
        writer.writeheader()
        writer.writerows(rows)


def write_pets(root: Path) -> None:
    base = root / "oxford-iiit-pet"
    for part in ("trainval", "test"):
        names = [f"{('Beagle', 'Sphynx')[number % 2]}_{part}{number}" for number in range(6)]
        lines = [f"{name} {number % 2 + 1} 1 1" for number, name in enumerate(names)]
        (base / "annotations").mkdir(parents=True, exist_ok=True)
        (base / "annotations" / f"{part}.txt").write_text("\n".join(lines) + "\n")
        for name in names:
            write_image(base / "images" / f"{name}.jpg")


def write_eurosat(root: Path) -> None:
    for number in range(6):
        write_image(root / "eurosat" / "2750" / ("Forest", "River")[number % 2] / f"{number}.jpg")


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("Food101", write_food),
        ("GTSRB", write_gtsrb),
        ("OxfordIIITPet", write_pets),
        ("EuroSAT", write_eurosat),
    ],
)
def test_the_files_of_one_are_decoded_once_as_those_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, write: Callable[[Path], None]
) -> None:
    from torchvision import datasets

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(image_cache, "SPARE_BYTES", 0)
    write(tmp_path)
    data = load(
        Data(path=str(tmp_path), name=name, in_memory=False, test_fraction=0.0, channels=3, image_size=8)
    )

    data.be_here()

    source, indices = data.selections["train"]
    assert source.name(0).endswith((".jpg", ".ppm"))
    whole = getattr(datasets, name)(str(tmp_path), **LAYOUTS[name].train)
    expected = [square(whole[int(index)][0], data.form) for index in indices]
    np.testing.assert_array_equal(data.decoded_views()["train", 8], expected)
    assert [whole[int(index)][1] for index in indices] == source.labels[indices].tolist()


def test_one_that_lists_its_samples_is_read(tmp_path: Path) -> None:
    write_gtsrb(tmp_path)

    collection = read("GTSRB", tmp_path)

    assert collection.classes == ("0", "1")
    assert collection.parts["train"].labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert "test" in collection.parts
    assert collection.parts["test"].labels.tolist() == [0, 1, 0, 1, 0, 1]


def test_one_without_parts_is_a_whole_to_be_split(tmp_path: Path) -> None:
    write_eurosat(tmp_path)

    collection = read("EuroSAT", tmp_path)

    assert collection.whole
    assert collection.classes == ("Forest", "River")
    assert collection.flips == ("horizontal", "vertical")
