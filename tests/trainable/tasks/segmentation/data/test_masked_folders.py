"""Tests folders of images and masks: which are paired, which are parts, and what is refused."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.trainable.small_images import write_image
from tests.trainable.small_masks import bands, write_mask, write_pairs
from trainable.bench import HERE
from trainable.data.source import Collection
from trainable.data.split import members_of
from trainable.errors import DataError
from trainable.recipe.data import Columns, Data
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data.parts import MaskedSource
from trainable.tasks.segmentation.data.reading import read, read_pairs

FOUR = {"a": (0, 1), "b": (0, 1), "c": (0, 2), "d": (0,)}


def collection(root: Path, data: dict[str, Any] | None = None, **masks: Any) -> Collection:
    return read(Data(path=str(root), **(data or {})), HERE, Masks(**masks))


def fault_of(root: Path, data: dict[str, Any] | None = None, **masks: Any) -> str:
    with pytest.raises(DataError) as caught:
        collection(root, data, **masks)
    return str(caught.value)


def names(found: Collection, part: Any = "train") -> list[tuple[str, str]]:
    """Return the names of each image and its mask."""
    source = found.parts[part]
    assert isinstance(source, MaskedSource)
    return [(source.name(index), source.masks.name(index)) for index in range(len(source))]


def write_beside(folder: Path, stems: Iterable[str], suffix: str = "_mask") -> Path:
    """Write images with their masks in one folder."""
    for stem in stems:
        write_image(folder / f"{stem}.jpg")
        write_mask(folder / f"{stem}{suffix}.png", bands(0, 1))
    return folder


def test_images_and_masks_in_two_folders_are_one_whole_to_be_split(tmp_path: Path) -> None:
    found = collection(write_pairs(tmp_path, FOUR))

    assert names(found)[:2] == [("images/a.jpg", "masks/a.png"), ("images/b.jpg", "masks/b.png")]
    assert (found.format, found.whole, found.classes, found.flips) == ("folder", True, ("0", "1", "2"), ())


def test_the_two_folders_may_have_other_names(tmp_path: Path) -> None:
    write_pairs(tmp_path, FOUR, images="photos")
    (tmp_path / "masks").rename(tmp_path / "labels")

    assert len(names(collection(tmp_path, images="photos", folder="labels"))) == 4


@pytest.mark.parametrize("named", ["../elsewhere", "{}/elsewhere"])
def test_masks_may_be_in_a_folder_elsewhere(tmp_path: Path, named: str) -> None:
    root = write_pairs(tmp_path / "set", FOUR)
    (root / "masks").rename(tmp_path / "elsewhere")
    found = collection(root, folder=named.format(tmp_path))
    assert names(found)[0] == ("images/a.jpg", "../elsewhere/a.png")
    assert found.found == "", "the recipe says which folders"


def test_deeper_folders_are_paired_by_their_paths_and_hidden_files_ignored(tmp_path: Path) -> None:
    write_pairs(tmp_path, {"site/x": (0, 1), "site 2/x": (0, 1), "x": (0, 1)})
    write_image(tmp_path / "images" / ".hidden.jpg")
    write_image(tmp_path / "masks" / ".thumbs" / "x.png")
    (tmp_path / "images" / "README.md").write_text("about")

    assert [image for image, _ in names(collection(tmp_path))] == [
        "images/site/x.jpg",
        "images/site 2/x.jpg",
        "images/x.jpg",
    ]


@pytest.mark.parametrize("around", [True, False])
def test_folders_of_parts_lie_around_the_two_folders_or_in_both(tmp_path: Path, around: bool) -> None:
    for part, count in (("Training", 4), ("val", 2), ("test", 1)):
        for stem in "abcd"[:count]:
            images, masks = (
                (f"{part}/images", f"{part}/masks") if around else (f"images/{part}", f"masks/{part}")
            )
            write_image(tmp_path / images / f"{stem}.png")
            write_mask(tmp_path / masks / f"{stem}.png", bands(0, 1))

    found = collection(tmp_path)

    assert {part: len(source) for part, source in found.parts.items()} == {
        "train": 4,
        "validation": 2,
        "test": 1,
    }
    assert names(found, "test") == [
        ("test/images/a.png", "test/masks/a.png") if around else ("images/test/a.png", "masks/test/a.png")
    ]


def test_parts_with_other_names_are_named_by_fields(tmp_path: Path) -> None:
    write_pairs(tmp_path / "fit", FOUR)
    write_pairs(tmp_path / "dev", FOUR)

    found = collection(tmp_path, {"train": "fit", "validation": "dev"})

    assert set(found.parts) == {"train", "validation"}
    assert "data.train is 'fitting', but the folders there are dev, fit" in fault_of(
        tmp_path, {"train": "fitting"}
    )


def test_masks_beside_their_images_are_known_by_a_suffix(tmp_path: Path) -> None:
    found = collection(write_beside(tmp_path, ["cat", "deep/dog"]), suffix="_mask")

    assert names(found) == [("cat.jpg", "cat_mask.png"), ("deep/dog.jpg", "deep/dog_mask.png")]


def test_masks_beside_their_images_may_be_in_parts(tmp_path: Path) -> None:
    write_beside(tmp_path / "train", "abc")
    write_beside(tmp_path / "val", "d")

    found = collection(tmp_path, suffix="_mask")

    assert names(found, "validation") == [("val/d.jpg", "val/d_mask.png")]


def test_masks_in_their_own_folder_may_have_a_suffix_too(tmp_path: Path) -> None:
    for stem in "ab":
        write_image(tmp_path / "train" / f"{stem}.jpg")
        write_mask(tmp_path / "train_masks" / f"{stem}_mask.gif", bands(0, 1))

    found = collection(tmp_path, images="train", folder="train_masks", suffix="_mask")

    assert names(found)[0] == ("train/a.jpg", "train_masks/a_mask.gif")


def test_images_and_masks_without_a_partner_are_counted_and_named(tmp_path: Path) -> None:
    write_pairs(tmp_path, {f"{number:02}": (0, 1) for number in range(14)})
    for number in range(12):
        (tmp_path / "masks" / f"{number:02}.png").unlink()
    (tmp_path / "images" / "13.jpg").unlink()

    lines = fault_of(tmp_path).splitlines()
    assert lines[1].startswith("  12 images without a mask: images/00.jpg, images/01.jpg, ")
    assert lines[1].endswith(", images/09.jpg and 2 more")
    assert lines[2] == "  1 mask without an image: masks/13.png"
    assert lines[3].endswith("in a manifest, with a column task.masks.column")


def test_a_suffix_that_would_pair_them_all_is_named(tmp_path: Path) -> None:
    for stem in ("cat", "dog"):
        write_image(tmp_path / "images" / f"{stem}.jpg")
        write_mask(tmp_path / "masks" / f"{stem}_seg.png", bands(0, 1))

    assert "set task.masks.suffix: '_seg' if masks are named like masks/cat_seg.png" in fault_of(tmp_path)
    assert len(names(collection(tmp_path, suffix="_seg"))) == 2


def test_a_mask_without_the_suffix_is_an_error(tmp_path: Path) -> None:
    found = fault_of(write_pairs(tmp_path, FOUR), suffix="_mask")

    assert found.startswith("task.masks.suffix: expected masks whose names end with '_mask'")
    assert "got masks/a.png, masks/b.png" in found


def test_two_images_of_one_name_are_an_error(tmp_path: Path) -> None:
    write_pairs(tmp_path, FOUR)
    write_image(tmp_path / "images" / "a.png")

    assert re.search(
        "images/a.jpg and images/a.png have one name; .* remove or rename one", fault_of(tmp_path)
    )


def test_parts_that_are_in_one_of_the_two_folders_alone_are_an_error(tmp_path: Path) -> None:
    for part in ("train", "val"):
        write_image(tmp_path / "images" / part / "a.png")
    write_mask(tmp_path / "masks" / "train" / "a.png", bands(0, 1))

    assert "images has folders of the parts train, validation, and" in fault_of(tmp_path)


def test_images_that_would_be_left_out_are_an_error(tmp_path: Path) -> None:
    write_pairs(tmp_path / "train", FOUR)
    write_pairs(tmp_path / "extra", FOUR)
    assert "extra would be left out, as it has no part's name" in fault_of(tmp_path)
    (tmp_path / "extra").rename(tmp_path / "val")
    write_image(tmp_path / "loose.png")
    assert "images beside the folders of parts would be left out: loose.png" in fault_of(tmp_path)


def test_two_folders_for_one_part_are_an_error(tmp_path: Path) -> None:
    for part in ("train", "val", "valid"):
        write_pairs(tmp_path / part, FOUR)

    assert "val and valid could both be the validation part; name one by data.validation" in fault_of(
        tmp_path
    )


def test_a_folder_without_the_two_folders_is_an_error_that_says_what_is_expected(tmp_path: Path) -> None:
    write_image(tmp_path / "photos" / "a.png")

    found = fault_of(tmp_path)

    assert found.startswith(
        f"{tmp_path}: expected the folders images/ with images and masks/ with masks; found photos/. "
        "task.masks.images and task.masks.folder give them other names"
    )


def test_a_folder_without_images_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "masks").mkdir()

    assert fault_of(tmp_path).startswith(f"{tmp_path}/images: no images (known endings: .jpg")


def test_groups_are_found_in_the_paths_below_the_images_folder(tmp_path: Path) -> None:
    stems = [f"p{patient}/{slice}" for patient in range(6) for slice in range(4)]
    write_pairs(tmp_path, {stem: (0, int(stem[-1]) % 2) for stem in stems})
    spec = Data(path=str(tmp_path), group="^(.+)/")

    found = read(spec, HERE, Masks())
    members = members_of(found, spec)

    assert found.groups is not None
    assert found.groups["train"] == tuple(stem.split("/")[0] for stem in stems)
    patients = {
        part: {found.groups["train"][index] for index in selection.indices.tolist()}
        for part, selection in members.items()
    }
    assert set.union(*patients.values()) == {f"p{number}" for number in range(6)}
    assert sum(map(len, patients.values())) == 6


def test_the_rarest_classes_are_in_every_part(tmp_path: Path) -> None:
    masks = {f"{number:02}": (0, 1) if number < 20 else (0, 1, 2) for number in range(24)}
    spec = Data(path=str(write_pairs(tmp_path, masks)))

    found = read(spec, HERE, Masks())
    members = members_of(found, spec)

    assert (found.classes, found.strata) == (("0", "1", "2"), ("2", "1"))
    assert {part: set(selection.labels.tolist()) for part, selection in members.items()} == {
        part: {0, 1} for part in ("train", "validation", "test")
    }


def test_a_limit_below_the_number_of_strata_draws_from_all_images(tmp_path: Path) -> None:
    masks = {f"{number:02}": (0, number % 4) for number in range(40)}
    spec = Data(path=str(write_pairs(tmp_path, masks)), train_limit=2)

    found = read(spec, HERE, Masks())

    assert len(found.split_by) > 2
    assert len(members_of(found, spec)["train"].indices) == 2


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"path": "digits"}, r"has format digits, which has no masks; a segmentation needs a folder"),
        ({"format": "idx"}, r"has format idx, which has no masks"),
        ({"format": "datasets"}, r"has format datasets, which has no masks"),
        ({"root": "elsewhere"}, r"data\.root: only a manifest's images lie below it"),
        ({"columns": Columns(path="file")}, r"data\.columns: a manifest has columns"),
    ],
)
def test_what_has_no_masks_is_an_error(tmp_path: Path, values: dict[str, Any], problem: str) -> None:
    write_pairs(tmp_path, FOUR)

    with pytest.raises(DataError, match=problem):
        read(Data(**{"path": str(tmp_path), **values}), HERE, Masks())


@pytest.mark.parametrize(
    ("images", "masks"),
    [("image", "label"), ("imgs", "masks"), ("JPEGImages", "SegmentationClass"), ("img_dir", "ann_dir")],
)
@pytest.mark.parametrize("part", ["", "train"])
def test_folders_with_the_usual_names_of_published_sets_are_found_and_said(
    tmp_path: Path, images: str, masks: str, part: str
) -> None:
    for folder in (images, masks):
        write_image(tmp_path / folder / part / "a.png", mode="L")
    found = read_pairs(Data(path=str(tmp_path)), HERE, Masks())
    assert found.parts["train"].images.name(0) == "/".join(filter(None, [images, part, "a.png"]))
    places = ["/".join(filter(None, [folder, part])) for folder in (images, masks)]
    assert (
        found.found == f"images are in {places[0]}/ and masks in {places[1]}/, by the names of these folders"
    )


def test_of_two_folders_that_could_have_the_masks_neither_is_taken(tmp_path: Path) -> None:
    for folder in ("imgs", "masks", "labels"):
        write_image(tmp_path / folder / "a.png", mode="L")
    with pytest.raises(DataError, match=r"found imgs/, labels/, masks/.*task\.masks\.images and task\.masks"):
        read_pairs(Data(path=str(tmp_path)), HERE, Masks())


def test_a_test_part_without_masks_is_refused_with_the_field_that_leaves_it_out(tmp_path: Path) -> None:
    """Both where it has no folder of masks, and where the folder has other names."""
    for part in ("train", "val"):
        write_pairs(tmp_path / part, FOUR)
    write_image(tmp_path / "test" / "images" / "x.jpg")
    assert "data.test: none leaves the test part out" in fault_of(tmp_path)
    write_mask(tmp_path / "test" / "masks" / "y.png", bands(0, 1))
    fault = fault_of(tmp_path)
    assert "add or remove these, or list pairs of other names in a manifest" in fault
    assert "data.test: none leaves the test part out" in fault
    assert "test" not in collection(tmp_path, {"test": "none"}).parts


def test_the_suffix_that_is_advised_pairs_folders_with_the_names_of_published_sets(tmp_path: Path) -> None:
    write_image(tmp_path / "imgs" / "a.png", mode="L")
    write_mask(tmp_path / "labels" / "a_m.png", bands(0, 1))

    assert "set task.masks.suffix: '_m' if masks are named like labels/a_m.png" in fault_of(tmp_path)
    assert names(collection(tmp_path, suffix="_m")) == [("imgs/a.png", "labels/a_m.png")]


def test_a_suffix_pairs_within_folders_that_are_called_as_those_of_published_sets(tmp_path: Path) -> None:
    """The suffix says that both are together: usual names count where it pairs nothing."""
    for folder in ("image", "label"):
        write_beside(tmp_path / folder, ["a"])

    assert names(collection(tmp_path, suffix="_mask")) == [
        ("image/a.jpg", "image/a_mask.png"),
        ("label/a.jpg", "label/a_mask.png"),
    ]

    shutil.rmtree(tmp_path / "image")
    (tmp_path / "label").rename(tmp_path / "train")
    write_image(tmp_path / "train_labels" / "a.png")
    found = collection(tmp_path, suffix="_mask")
    assert names(found) == [("train/a.jpg", "train/a_mask.png")]
    assert found.found == "images in train_labels/ are not read"


@pytest.mark.parametrize("part", ["", "train/"])
def test_folders_beside_the_two_that_are_read_are_named(tmp_path: Path, part: str) -> None:
    write_pairs(tmp_path / part, FOUR)
    for folder in ("depth", "overlay/some"):
        write_image(tmp_path / part / folder / "a.png")
    (tmp_path / part / "notes").mkdir()

    assert collection(tmp_path).found == f"images in {part}depth/, {part}overlay/ are not read"


@pytest.mark.parametrize("ending", ["annot", "_labels", "-GT"])
def test_masks_may_be_in_folders_that_are_called_as_those_of_the_images_beside_them(
    tmp_path: Path, ending: str
) -> None:
    for part in ("train", "val", "test"):
        write_image(tmp_path / part / "a.png")
        write_mask(tmp_path / f"{part}{ending}" / "a.png", bands(0, 1))

    found = collection(tmp_path)

    assert names(found, "validation") == [("val/a.png", f"val{ending}/a.png")]
    assert found.found == f"images are in train/ and masks in train{ending}/, by the names of these folders"
    assert set(collection(tmp_path, {"test": "none"}).parts) == {"train", "validation"}
    write_mask(tmp_path / "val_seg" / "a.png", bands(0, 1))
    assert "would be left out" in fault_of(tmp_path), "of two, none is taken"
    assert collection(tmp_path, {"exclude_parts": ("val_seg",)}).found == found.found
    shutil.rmtree(tmp_path / "val_seg")
    shutil.rmtree(tmp_path / f"test{ending}")
    assert "data.test: none leaves the test part out" in fault_of(tmp_path)


def test_the_masks_of_a_part_that_is_left_out_are_left_out_with_it(tmp_path: Path) -> None:
    for part in ("train", "training"):
        write_image(tmp_path / part / f"{part}.png")
        write_mask(tmp_path / f"{part}_masks" / f"{part}.png", bands(0, 1))
    assert "leave one out by data.exclude_parts: [training]" in fault_of(tmp_path)

    found = collection(tmp_path, {"exclude_parts": ("training",)})

    assert names(found) == [("train/train.png", "train_masks/train.png")]
    fault = fault_of(tmp_path, {"train": "training"})
    assert fault.endswith("or leave it out by data.exclude_parts: [train, train_masks]")
    chosen = {"train": "training", "exclude_parts": ("train", "train_masks")}
    assert names(collection(tmp_path, chosen)) == [("training/training.png", "training_masks/training.png")]


@pytest.mark.parametrize("inner", ["", "train"])
def test_a_folder_around_the_data_set_is_refused_with_its_path(tmp_path: Path, inner: str) -> None:
    write_pairs(tmp_path / "set" / inner, FOUR)

    assert fault_of(tmp_path).endswith(f"; data.path should be {tmp_path / 'set'}")
