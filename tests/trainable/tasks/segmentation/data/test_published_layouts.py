"""Tests the layouts of PASCAL VOC and Cityscapes, and torchvision's data sets, from folders like theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io

from tests.trainable.small_images import write_image
from tests.trainable.small_masks import bands, write_mask
from trainable.bench import HERE
from trainable.data.source import Collection
from trainable.errors import DataError
from trainable.recipe.data import Data
from trainable.recipe.tasks import IGNORED, Masks
from trainable.tasks.segmentation.data.parts import MaskedSource
from trainable.tasks.segmentation.data.published import KNOWN
from trainable.tasks.segmentation.data.reading import read


def collection(root: Path, name: str | None = None, **data: Any) -> Collection:
    return read(Data(path=str(root), name=name, **data), HERE, Masks())


def sizes(found: Collection) -> dict[str, int]:
    return {part: len(source) for part, source in found.parts.items()}


def source(found: Collection, part: Any = "train") -> MaskedSource:
    chosen = found.parts[part]
    assert isinstance(chosen, MaskedSource)
    return chosen


def write_voc(root: Path, lists: Mapping[str, Sequence[str]], without_masks: Sequence[str] = ()) -> Path:
    (root / "ImageSets" / "Segmentation").mkdir(parents=True)
    for name, stems in lists.items():
        (root / "ImageSets" / "Segmentation" / f"{name}.txt").write_text("\n".join(stems) + "\n")
    for stem in sorted({stem for stems in lists.values() for stem in stems if stem} | {"unlisted"}):
        write_image(root / "JPEGImages" / f"{stem}.jpg")
        if stem not in without_masks:
            write_mask(root / "SegmentationClass" / f"{stem}.png", bands(0, 15, 255), "P")
    return root


def test_voc_is_read_by_its_lists(tmp_path: Path) -> None:
    lists = {"train": ["b", "a"], "val": ["c"], "trainval": ["a", "b", "c"]}

    found = collection(write_voc(tmp_path, lists))

    assert sizes(found) == {"train": 2, "validation": 1}
    assert (len(found.classes), found.classes[15], found.flips) == (21, "person", ("horizontal",))
    assert source(found).name(0) == "JPEGImages/b.jpg"
    np.testing.assert_array_equal(source(found).class_mask(0), bands(0, 15, IGNORED))


def test_trainval_is_split_where_there_is_no_training_list(tmp_path: Path) -> None:
    found = collection(write_voc(tmp_path, {"trainval": list("abc"), "val": ["c"]}))

    assert sizes(found) == {"train": 3}


@pytest.mark.parametrize("secret", [True, False])
def test_a_test_list_without_masks_makes_no_part(tmp_path: Path, secret: bool) -> None:
    write_voc(tmp_path, {"train": list("ab"), "val": ["c"], "test": ["x", "y"]}, ("x", "y") if secret else ())

    assert sizes(collection(tmp_path)).get("test") == (None if secret else 2)


def test_another_list_may_be_named(tmp_path: Path) -> None:
    write_voc(tmp_path, {"train": ["a"], "train_aug": list("abc"), "val": ["d"]})

    assert sizes(collection(tmp_path, train="train_aug")) == {"train": 3, "validation": 1}


@pytest.mark.parametrize(
    ("lists", "without_masks", "problem"),
    [
        ({"val": ["a"]}, (), r"Segmentation: there is no train\.txt or training\.txt or trainval\.txt"),
        ({"train": ["a", "b"], "val": ["b"]}, (), r"Segmentation: b is listed more than once in train, val"),
        ({"train": ["a", "b", "c"]}, ("b",), r"1 of 3 names in the train list have no file in Segmentation"),
        ({"train": [""]}, (), r"train\.txt: is empty; expected the name of an image on each line"),
    ],
)
def test_lists_with_a_fault_are_an_error(
    tmp_path: Path, lists: dict[str, list[str]], without_masks: Sequence[str], problem: str
) -> None:
    write_voc(tmp_path, lists, without_masks)

    with pytest.raises(DataError, match=problem):
        collection(tmp_path)


def write_cityscapes(root: Path, kinds: Mapping[str, Sequence[int]]) -> Path:
    for part, cities in {"train": ("ulm", "bonn"), "val": ("lindau",), "test": ("berlin",)}.items():
        for city in cities:
            for number in range(2):
                stem = f"{city}/{city}_{number:06}_000019"
                write_image(root / "leftImg8bit" / part / f"{stem}_leftImg8bit.png")
                for kind, values in kinds.items():
                    shown = values if part != "test" else (255,)
                    write_mask(root / "gtFine" / part / f"{stem}_gtFine_{kind}.png", bands(*shown))
                write_mask(root / "gtFine" / part / f"{stem}_gtFine_color.png", bands(1), "RGB")
    write_image(root / "leftImg8bit" / "train_extra" / "ulm" / "x_leftImg8bit.png")
    return root


@pytest.mark.parametrize("kind", ["labelTrainIds", "labelIds", "both"])
def test_cityscapes_is_read_with_either_numbers_and_without_its_secret_test_part(
    tmp_path: Path, kind: str
) -> None:
    values = {"labelTrainIds": (0, 18, 255), "labelIds": (7, 33, 4)}

    found = collection(write_cityscapes(tmp_path, {k: v for k, v in values.items() if kind in (k, "both")}))

    assert sizes(found) == {"train": 4, "validation": 2}
    assert (len(found.classes), found.classes[0], found.classes[18]) == (19, "road", "bicycle")
    np.testing.assert_array_equal(source(found).class_mask(0), bands(0, 18, IGNORED))
    assert source(found).masks.name(0).endswith("labelIds.png" if kind == "labelIds" else "labelTrainIds.png")


def test_cities_may_be_groups(tmp_path: Path) -> None:
    found = collection(write_cityscapes(tmp_path, {"labelIds": (7, 8)}), group="^(.+?)/")

    assert found.groups == {"train": ("bonn", "bonn", "ulm", "ulm"), "validation": ("lindau", "lindau")}


def test_an_image_of_cityscapes_without_a_mask_is_named(tmp_path: Path) -> None:
    write_cityscapes(tmp_path, {"labelIds": (7, 8)})
    (tmp_path / "gtFine" / "val" / "lindau" / "lindau_000001_000019_gtFine_labelIds.png").unlink()

    with pytest.raises(
        DataError, match=r"1 image without a mask: leftImg8bit/val/lindau/lindau_000001_000019_left"
    ):
        collection(tmp_path)


def write_pets(root: Path) -> None:
    base = root / "oxford-iiit-pet"
    (base / "annotations").mkdir(parents=True)
    for part in ("trainval", "test"):
        names = [f"Beagle_{part}{number}" for number in range(4)]
        (base / "annotations" / f"{part}.txt").write_text("".join(f"{name} 1 1 1\n" for name in names))
        for name in names:
            write_image(base / "images" / f"{name}.jpg")
            write_mask(base / "annotations" / "trimaps" / f"{name}.png", bands(1, 2, 3))


def write_boundaries(root: Path) -> None:
    for part in ("train", "val"):
        (root / f"{part}.txt").write_text(f"{part}_0\n{part}_1\n")
        for number in range(2):
            write_image(root / "img" / f"{part}_{number}.jpg")
            inner = np.array([(bands(0, 20),)], dtype=[("Segmentation", object)])
            (root / "cls").mkdir(exist_ok=True)
            scipy.io.savemat(root / "cls" / f"{part}_{number}.mat", {"GTcls": inner})


def write_voc_of_torchvision(root: Path) -> None:
    write_voc(root / "VOCdevkit" / "VOC2012", {"train": ["a", "b"], "val": ["c"]})


@pytest.mark.parametrize(
    ("name", "write", "parts", "classes", "rows"),
    [
        ("OxfordIIITPet", write_pets, {"train": 4, "test": 4}, ("pet", "background", "border"), (0, 1, 2)),
        ("SBDataset", write_boundaries, {"train": 2, "validation": 2}, None, (0, 20)),
        ("VOCSegmentation", write_voc_of_torchvision, {"train": 2, "validation": 1}, None, (0, 15, 255)),
    ],
)
def test_a_set_of_torchvision_is_read_as_torchvision_reads_it(
    tmp_path: Path, name: str, write: Any, parts: dict[str, int], classes: Any, rows: tuple[int, ...]
) -> None:
    from torchvision import datasets

    write(tmp_path)

    found = collection(tmp_path, name)

    assert (sizes(found), found.format, found.flips) == (parts, "torchvision", ("horizontal",))
    assert found.classes == classes or len(found.classes) == 21
    np.testing.assert_array_equal(source(found).class_mask(0), bands(*rows))
    target = {"target_types": "segmentation"} if name == "OxfordIIITPet" else {}
    theirs = getattr(datasets, name)(str(tmp_path), **KNOWN[name].layout.train, **target)
    np.testing.assert_array_equal(source(found).masks.raw(0), np.asarray(theirs[0][1]))
    np.testing.assert_array_equal(np.asarray(source(found).open(0)), np.asarray(theirs[0][0]))


def test_a_set_that_has_no_masks_or_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"OxfordIIITPet, SBDataset, VOCSegmentation, which have masks; got 'C"
    ):
        collection(tmp_path, "CIFAR10")
    for name in KNOWN:
        with pytest.raises(DataError, match=rf"torchvision's {name}: .*--download fetches it"):
            collection(tmp_path, name)
    assert not list(tmp_path.iterdir())


def test_a_part_that_is_left_out_is_not_looked_into(tmp_path: Path) -> None:
    write_voc(tmp_path / "voc", {"train": list("ab"), "val": ["c"]}, ("c",))
    with pytest.raises(DataError, match=r"take the names out; data\.validation: none leaves the validation"):
        collection(tmp_path / "voc")
    assert sizes(collection(tmp_path / "voc", validation="none")) == {"train": 2}
    root = write_cityscapes(tmp_path / "city", {"labelIds": (7, 8)})
    next((root / "gtFine" / "val").rglob("*_labelIds.png")).unlink()
    with pytest.raises(DataError, match=r"data\.validation: none leaves the validation part out"):
        collection(root)
    assert "validation" not in sizes(collection(root, validation="none"))
