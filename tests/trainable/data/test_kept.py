"""Tests what is left out of a data set by a field: parts, and classes; in each form alike."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from PIL import Image

from tests.trainable.data_forms import FORMS, Labelled, labelled, write_csv, write_forms, write_npz
from tests.trainable.small_images import write_classes, write_image
from trainable.data import DataSet
from trainable.data.assembly import from_arrays, load
from trainable.data.part_names import PartChoice
from trainable.errors import DataError, RecipeError
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data.folder import read as read_masked


def stored(root: Path, form: str, **counts: list[int]) -> str:
    return str(write_forms(labelled(counts), root)[form])


def write_saved(images: list[Labelled], folder: Path) -> None:
    """Write what `save_to_disk` does of a set whose test part has no labels, as the hub has them."""
    classes, parts = datasets.ClassLabel(names=["cat", "dog"]), {}
    for part in ("train", "test"):
        chosen = [each for each in images if each.part == part]
        content = {
            "image": [Image.fromarray(each.pixels) for each in chosen],
            "label": [int(each.label) if part == "train" else -1 for each in chosen],
        }
        features = datasets.Features({"image": datasets.Image(), "label": classes})
        parts[part] = datasets.Dataset.from_dict(content, features=features)
    datasets.DatasetDict(parts).save_to_disk(str(folder))


@pytest.mark.parametrize("form", ["csv", "datasets"])
def test_images_without_a_label_are_left_out_by_the_list_that_names_them(tmp_path: Path, form: str) -> None:
    images = labelled({"train": [8, 8]})
    paths = write_forms(images, tmp_path)
    lost = ["0/000.png", "1/003.png"]
    if form == "csv":
        text = paths["csv"].read_text()
        for each in lost:
            text = text.replace(f"folder/{each},{each[0]}", f"folder/{each},")
        paths["csv"].write_text(text)
        lost = [f"folder/{each}" for each in lost]
    else:
        label = datasets.ClassLabel(names=["cat", "dog"])
        content = {
            "image": [str(tmp_path / "folder" / each.path) for each in images],
            "label": [-1 if each.path in lost else int(each.label) for each in images],
        }
        features = datasets.Features({"image": datasets.Image(), "label": label})
        paths["datasets"] = tmp_path / "unlabelled"
        datasets.Dataset.from_dict(content, features=features).save_to_disk(str(paths["datasets"]))
        lost = ["000.png", "003.png #2"]
    path = str(paths[form])
    assert ("label is empty" if form == "csv" else "data.exclude leaves out the images") in fault_of(path)
    one = write_csv(tmp_path / "one.csv", [{"image": lost[0]}])
    fault = fault_of(path, exclude=str(one))
    assert f"no label for 1 of 16 images of the train part: {lost[1].split(' #')[0]}; " in fault
    both = write_csv(tmp_path / "both.csv", [{"image": each} for each in lost])
    found = load(Data(path=path, exclude=str(both), test_fraction=0.0)).info
    assert found.train_images + found.validation_images == 14


@pytest.mark.parametrize("form", ["folder", "csv", "datasets"])
def test_a_part_of_another_name_is_left_out_by_the_field_that_its_refusal_names(
    tmp_path: Path, form: str
) -> None:
    path = stored(tmp_path, form, train=[8, 8], test=[3, 3], unlabeled=[1, 0])
    assert "data.exclude_parts: [unlabeled]" in fault_of(path)
    assert sizes(load(Data(path=path, exclude_parts=("unlabeled",)))) == (14, 2, 6)
    odd = fault_of(path, exclude_parts=("unlabelled",))
    assert "data.exclude_parts: 'unlabelled': " in odd
    assert "'train'" in odd


@pytest.mark.parametrize("form", ["folder", "datasets"])
@pytest.mark.parametrize("values", [{"validation": "val"}, {}])
def test_one_of_two_parts_of_one_meaning_is_left_out(
    tmp_path: Path, form: str, values: dict[str, Any]
) -> None:
    path = stored(tmp_path, form, train=[8, 8], val=[3, 3], validation=[2, 2])
    assert "data.exclude_parts: [validation]" in fault_of(path, **values)
    assert sizes(load(Data(path=path, exclude_parts=("validation",), **values))) == (16, 6, 0)
    assert sizes(load(Data(path=path, validation="none", test_fraction=0.0))) == (14, 2, 0)


def test_photographs_without_folders_of_classes_beside_train_are_left_out(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", {"cat": 20, "dog": 20})
    write_image(tmp_path / "test1" / "1.jpg")
    path = str(tmp_path)
    for test in (None, "none"):
        assert "data.exclude_parts: [test1]" in fault_of(path, test=test)
    assert sizes(load(Data(path=path, exclude_parts=("test1",)))) == (28, 6, 6)


@pytest.mark.parametrize("around", [False, True])
def test_a_part_without_masks_is_left_out_by_the_field_that_its_refusal_names(
    tmp_path: Path, around: bool
) -> None:
    for part in ("train", "val"):
        for folder in ("images", "masks"):
            place = (folder, part) if around else (part, folder)
            write_image(tmp_path.joinpath(*place) / "a.png")
    extra = ("images", "unlabeled") if around else ("unlabeled", "images")
    write_image(tmp_path.joinpath(*extra) / "a.png")
    named: Any = {"train": None, "validation": None, "test": None}
    with pytest.raises(DataError, match=r"data\.exclude_parts: \[unlabeled\]"):
        read_masked(tmp_path, PartChoice(named), Masks())
    found = read_masked(tmp_path, PartChoice(named, excluded=("unlabeled",)), Masks())
    assert list(found.parts) == ["train", "validation"]


def test_forms_whose_parts_have_no_names_of_their_own_refuse_names_of_parts(tmp_path: Path) -> None:
    path = stored(tmp_path, "npz", train=[8, 8])
    assert "has no parts but train, validation and test" in fault_of(path, exclude_parts=("unlabeled",))
    with pytest.raises(DataError, match="has no parts but train"):
        load(Data(exclude_parts=("unlabeled",)))
    with pytest.raises(DataError, match="has no parts but train"):
        from_arrays(
            (np.zeros((8, 4, 4), np.uint8), np.arange(8) % 2), spec=Data(exclude_parts=("unlabeled",))
        )


def fault_of(path: str, **values: Any) -> str:
    with pytest.raises(DataError) as caught:
        load(Data(path=path, **values))
    return str(caught.value)


def sizes(data: DataSet) -> tuple[int, int, int]:
    return data.info.train_images, data.info.validation_images, data.info.test_images


@pytest.mark.parametrize("form", FORMS)
def test_a_part_is_left_out_by_a_field_and_then_split_off_from_training_as_if_there_were_none(
    tmp_path: Path, form: str
) -> None:
    path = stored(tmp_path, form, train=[8, 8], test=[3, 3])
    assert sizes(load(Data(path=path))) == (14, 2, 6)
    assert sizes(load(Data(path=path, test="none"))) == (14 - 2, 2, 2)
    assert sizes(load(Data(path=path, test="none", test_fraction=0.0))) == (14, 2, 0)


@pytest.mark.parametrize("form", FORMS)
def test_a_class_that_a_part_lacks_is_named_and_trained_on_if_that_is_stated(
    tmp_path: Path, form: str
) -> None:
    path = stored(tmp_path, form, train=[4, 4, 4], validation=[2, 2, 2], test=[2, 0, 2])
    fault = fault_of(path)
    assert "the parts have different classes: 1 is not in the test part" in fault
    for remedy in ("data.unscored: allow", "data.min_images", "data.test: none"):
        assert remedy in fault
    info = load(Data(path=path, unscored="allow")).info
    assert (info.classes, info.train_images, info.test_images) == (("0", "1", "2"), 12, 4)
    assert load(Data(path=path, test="none")).info.test_images == 0


@pytest.mark.parametrize("form", FORMS)
def test_classes_with_few_training_images_are_left_out_of_every_part(tmp_path: Path, form: str) -> None:
    path = stored(tmp_path, form, train=[4, 4, 1], validation=[2, 2, 2])
    info = load(Data(path=path, min_images=2)).info
    assert (info.classes, info.left_out) == (("0", "1"), ("2",))
    assert (info.train_images, info.validation_images) == (8, 4)
    assert info.left_out_in_words == "1 class is left out by data.min_images: 2"
    plain = stored(tmp_path / "without", form, train=[4, 4], validation=[2, 2])
    assert info.digest != load(Data(path=path)).info.digest
    assert load(Data(path=plain)).info.left_out == ()


@pytest.mark.parametrize("form", FORMS)
def test_a_class_that_training_lacks_is_left_out_of_the_other_parts_by_one_image_at_least(
    tmp_path: Path, form: str
) -> None:
    path = stored(tmp_path, form, train=[4, 4, 0], validation=[2, 2, 2])
    assert "2 is only in the validation part\n  data.min_images: 1 leaves out" in fault_of(path)
    assert load(Data(path=path, min_images=1)).info.validation_images == 4


@pytest.mark.parametrize("form", FORMS)
def test_classes_too_small_to_split_are_left_out_by_what_the_message_says(tmp_path: Path, form: str) -> None:
    path = stored(tmp_path, form, train=[6, 6, 2])
    assert "class '2' has 2; 3 are needed, one for each part; data.min_images: 3" in fault_of(path)
    assert load(Data(path=path, min_images=3)).info.classes == ("0", "1")
    assert "left out 0 (6), 1 (6), 2 (2); lower it" in fault_of(path, min_images=7)


def test_a_published_test_part_without_labels_is_refused_with_what_leaves_it_out(tmp_path: Path) -> None:
    images = labelled({"train": [6, 6], "test": [2, 2]})
    rows = [{"path": each.path, "label": each.label, "split": each.part} for each in images[:12]]
    for row in rows:
        write_image(tmp_path / str(row["path"]))
    write_image(tmp_path / "unlabelled.png")
    write_csv(tmp_path / "rows.csv", [*rows, {"path": "unlabelled.png", "label": "", "split": "test"}])
    write_saved(images, tmp_path / "saved")
    write_npz(images, tmp_path / "a.npz")
    arrays = dict(np.load(tmp_path / "a.npz"))
    del arrays["test_labels"]
    np.savez(tmp_path / "a.npz", **arrays)
    for name in ("rows.csv", "a.npz", "saved"):
        path = str(tmp_path / name)
        assert "data.test: none leaves the test part out" in fault_of(path)
        assert load(Data(path=path, test="none", test_fraction=0.0)).info.test_images == 0


@pytest.mark.parametrize("labels", [[np.nan] * 4, [0, 1], []], ids=["no numbers", "too few", "none"])
def test_a_test_part_of_arrays_that_cannot_be_used_is_refused_with_what_leaves_it_out(
    tmp_path: Path, labels: list[float]
) -> None:
    images = np.zeros((16, 4, 4), np.uint8)
    test = (images[: 4 if labels else 0], np.array(labels))
    if len(labels) < 4:
        test = (test[0], test[1].astype(int))
    np.savez(
        tmp_path / "a.npz",
        train_images=images,
        train_labels=np.arange(16) % 2,
        test_images=test[0],
        test_labels=test[1],
    )
    path = str(tmp_path / "a.npz")
    assert fault_of(path).endswith("; data.test: none leaves the test part out")
    assert load(Data(path=path, test="none", test_fraction=0.0)).info.train_images
    arrays, spec = (images, np.arange(16) % 2), Data(test="none", test_fraction=0.0)
    with pytest.raises(DataError, match=r"; data\.test: none leaves the test part out$"):
        from_arrays(arrays, test=test)
    assert from_arrays(arrays, test=test, spec=spec).info.train_images


def test_a_split_of_a_saved_set_without_the_column_of_labels_is_refused_with_what_leaves_it_out(
    tmp_path: Path,
) -> None:
    images = labelled({"train": [6, 6], "test": [2, 2]})
    write_saved(images, tmp_path / "saved")
    part = datasets.load_from_disk(str(tmp_path / "saved" / "test")).remove_columns("label")
    part.save_to_disk(str(tmp_path / "test"))
    shutil.rmtree(tmp_path / "saved" / "test")
    (tmp_path / "test").rename(tmp_path / "saved" / "test")
    fault = fault_of(str(tmp_path / "saved"))
    assert "data.columns.label names one; data.test: none leaves the test part out" in fault
    assert load(Data(path=str(tmp_path / "saved"), test="none", test_fraction=0.0)).info.train_images


@pytest.mark.parametrize("name", ["state.json", "dataset_info.json", "data-00000-of-00001.arrow"])
@pytest.mark.parametrize("damaged", [True, False])
def test_a_split_of_a_saved_set_with_a_damaged_or_missing_file_is_refused_with_what_leaves_it_out(
    tmp_path: Path, name: str, damaged: bool
) -> None:
    write_saved(labelled({"train": [6, 6], "test": [2, 2]}), tmp_path / "saved")
    file = tmp_path / "saved" / "test" / name
    if damaged:
        file.write_bytes(b"xx")
    else:
        file.unlink()
    fault = fault_of(str(tmp_path / "saved"))
    assert f"{file.parent}: is no folder that `datasets` has saved: " in fault
    assert fault.endswith("; data.test: none leaves the test part out")
    assert load(Data(path=str(tmp_path / "saved"), test="none", test_fraction=0.0)).info.train_images


@pytest.mark.parametrize("train", ["", "train"])
def test_a_flat_folder_of_test_images_beside_the_others_is_no_class(tmp_path: Path, train: str) -> None:
    write_classes(tmp_path / train, {"cat": 6, "dog": 6})
    write_image(tmp_path / "test" / "1.jpg")
    assert "data.test: none leaves the test part out" in fault_of(str(tmp_path))
    info = load(Data(path=str(tmp_path), test="none", test_fraction=0.0)).info
    assert (info.classes, info.test_images) == (("cat", "dog"), 0)


def test_class_folders_that_differ_in_spaces_alone_are_named(tmp_path: Path) -> None:
    write_classes(tmp_path / "one", {" cat": 6, "dog": 6})
    assert load(Data(path=str(tmp_path / "one"))).info.classes == (" cat", "dog")
    write_classes(tmp_path / "two", {" cat": 6, "cat": 6, "dog": 6})
    assert "the classes ' cat' and 'cat' differ in spaces" in fault_of(str(tmp_path / "two"))
    for part, name in (("train", "cat"), ("val", "cat ")):
        write_classes(tmp_path / "parts" / part, {name: 6, "dog": 6})
    assert "the classes 'cat' and 'cat ' differ in spaces" in fault_of(str(tmp_path / "parts"))
    write_classes(tmp_path / "lacking", {"train/ cat": 6, "train/dog": 6, "val/dog": 6})
    assert "' cat' is not in the validation part" in fault_of(str(tmp_path / "lacking"))


def test_a_folder_of_a_part_with_spaces_around_its_name_is_no_class(tmp_path: Path) -> None:
    write_classes(tmp_path / "parts", {" train/a": 6, " train/b": 6, "Test /a": 2, "Test /b": 2})
    assert load(Data(path=str(tmp_path / "parts"))).info.test_images == 4
    write_classes(tmp_path / "beside", {" test": 6, "b": 6, "c": 6})
    assert "is called like the test part" in fault_of(str(tmp_path / "beside"))


def test_a_part_without_masks_is_left_out_too(tmp_path: Path) -> None:
    for part, folder in (("train", "images"), ("train", "masks"), ("test", "images")):
        write_image(tmp_path / part / folder / "a.png")
    named: Any = {"train": None, "validation": None, "test": None}
    assert list(read_masked(tmp_path, PartChoice(named, ("test",)), Masks()).parts) == ["train"]


def test_training_images_cannot_be_left_out() -> None:
    with pytest.raises(RecipeError, match="nothing to train on; none is for validation and test"):
        Recipe.from_tree({"version": 2, "data": {"train": "none"}})


def test_recipes_that_leave_nothing_out_keep_the_digest_of_earlier_versions() -> None:
    assert Recipe(data=Data(unscored="allow")).digest() == Recipe().digest() == "586201c81a59"
    assert Recipe(data=Data(min_images=2)).digest() != Recipe().digest()
    assert Recipe(data=Data(exclude_parts=("unlabeled",))).digest() != Recipe().digest()
