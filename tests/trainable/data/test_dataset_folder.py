"""Tests folders of images: which are parts, which are classes, and what is refused."""

from pathlib import Path

import pytest

from tests.trainable.small_images import write_classes, write_image
from trainable.data.assembly import load
from trainable.data.folder import read
from trainable.data.part_names import PartChoice
from trainable.errors import DataError
from trainable.recipe.data import Data

TWO = {"cat": 2, "dog": 3}


def test_a_tree_of_class_folders_is_one_whole_with_sorted_classes(tmp_path: Path) -> None:
    collection = read(write_classes(tmp_path, {"dog": 3, "cat": 2, "10": 1, "2": 1}))

    assert collection.classes == ("10", "2", "cat", "dog")
    assert collection.whole
    assert collection.parts["train"].labels.tolist() == [0, 1, 2, 2, 3, 3, 3]
    assert collection.parts["train"].name(2) == "cat/000.png"
    assert collection.flips == ()


@pytest.mark.parametrize(
    ("train", "validation", "test"),
    [("train", "val", "test"), ("Training", "VALID", "Testing"), ("TRAIN", "validation", "test")],
)
def test_parts_are_found_by_their_usual_names_in_any_case(
    tmp_path: Path, train: str, validation: str, test: str
) -> None:
    for part, count in ((train, 3), (validation, 2), (test, 1)):
        write_classes(tmp_path / part, {"cat": count, "dog": count})

    collection = read(tmp_path)

    sizes = {part: len(source) for part, source in collection.parts.items()}
    assert sizes == {"train": 6, "validation": 4, "test": 2}
    assert not collection.whole


def test_parts_with_other_names_are_named_by_fields(tmp_path: Path) -> None:
    for part in ("fitting", "dev", "final"):
        write_classes(tmp_path / part, TWO)

    collection = read(tmp_path, PartChoice({"train": "fitting", "validation": "dev", "test": "final"}))

    assert collection.parts["validation"].name(0) == "dev/cat/000.png"


def test_a_part_name_that_is_not_there_is_an_error_with_the_folders(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", TWO)
    write_classes(tmp_path / "dev", TWO)

    with pytest.raises(DataError, match=r"data\.validation.*'devel'.*dev, train"):
        read(tmp_path, PartChoice({"validation": "devel"}))


@pytest.mark.parametrize(
    ("counts", "fault"),
    [
        (
            {f"{part}/{name}": 2 for part in ("train", "test", "dev") for name in TWO},
            r"\bdev\b.*data\.validation",
        ),
        (
            {f"{part}/{name}": 2 for part in ("train", "val", "validation") for name in TWO},
            r"\bval and valid",
        ),
        ({f"{part}/{name}": 2 for part in ("val", "test") for name in TWO}, "no training folder among"),
        ({"train/cat": 2, "test/cat": 2}, r"\btwo\b.*found cat"),
        ({"cat": 2, "dog": 3, ".": 1}, r"\b1 image\b.*000\.png"),
        ({".": 1}, "no folders"),
    ],
    ids=["no part's name", "two of one part", "no training", "one class", "beside classes", "no folders"],
)
def test_folders_that_are_no_data_set_are_refused(tmp_path: Path, counts: dict[str, int], fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        read(write_classes(tmp_path, counts))


def test_folders_without_images_beside_the_parts_are_left_alone(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", TWO)
    write_classes(tmp_path / "test", TWO)
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "notes.csv").write_text("a,b\n")

    assert len(read(tmp_path).parts["train"]) == 5


def test_a_class_called_train_is_a_class(tmp_path: Path) -> None:
    assert read(write_classes(tmp_path, {"bus": 2, "car": 2, "train": 2})).classes == ("bus", "car", "train")


def test_nested_folders_belong_to_their_top_class(tmp_path: Path) -> None:
    write_classes(tmp_path, TWO)
    write_image(tmp_path / "cat" / "indoors" / "sofa" / "x.jpg")

    collection = read(tmp_path)

    assert collection.classes == ("cat", "dog")
    assert collection.parts["train"].name(2) == "cat/indoors/sofa/x.jpg"
    assert collection.parts["train"].labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert collection.inner_folders == (), "most images lie in the class folders themselves"


def test_folders_in_class_folders_that_hold_most_images_are_listed(tmp_path: Path) -> None:
    write_classes(tmp_path / "train" / "cat", {"indoors": 2, "outdoors": 2})
    write_classes(tmp_path / "train" / "dog", {"garden": 1})
    write_classes(tmp_path / "test", TWO)

    assert read(tmp_path).inner_folders == ("train/cat/indoors", "train/cat/outdoors", "train/dog/garden")


def test_hidden_files_junk_and_files_that_are_no_images_are_left_alone(tmp_path: Path) -> None:
    write_classes(tmp_path, TWO)
    write_classes(tmp_path / ".cache", TWO)
    write_classes(tmp_path / "__MACOSX", TWO)
    write_image(tmp_path / "cat" / ".hidden.png")
    (tmp_path / "cat" / "README.md").write_text("about cats")
    (tmp_path / "README.md").write_text("about cats and dogs")

    assert len(read(tmp_path).parts["train"]) == 5


def test_a_linked_class_folder_is_followed(tmp_path: Path) -> None:
    write_classes(tmp_path / "elsewhere", {"dog": 3})
    write_classes(tmp_path / "set", {"cat": 2})
    (tmp_path / "set" / "dog").symlink_to(tmp_path / "elsewhere" / "dog")

    assert len(read(tmp_path / "set").parts["train"]) == 5


def test_a_folder_with_one_folder_in_it_is_an_error_that_names_it(tmp_path: Path) -> None:
    write_classes(tmp_path / "Dataset", TWO)
    (tmp_path / "LICENSE").write_text("CC0")

    with pytest.raises(DataError, match=rf"Dataset/;.*data\.path.*{tmp_path}/Dataset"):
        read(tmp_path)


def test_empty_classes_are_an_error_that_names_them(tmp_path: Path) -> None:
    write_classes(tmp_path, TWO)
    (tmp_path / "emu").mkdir()
    (tmp_path / "fox").mkdir()
    (tmp_path / "fox" / "notes.txt").write_text("no image")

    with pytest.raises(DataError, match="no images in class emu, fox"):
        read(tmp_path)


def test_classes_that_differ_between_parts_are_an_error_that_names_them(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", {"cat": 2, "dog": 2, "emu": 2})
    write_classes(tmp_path / "test", {"cat": 2, "dog": 2, "fox": 2})

    with pytest.raises(DataError, match=r"emu.*test.*fox.*test"):
        load(Data(path=str(tmp_path)))
