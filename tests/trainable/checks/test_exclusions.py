"""Tests which of two copies is to be left out, and that the list leaves none between parts."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.full_disk import files_of_at_most
from tests.trainable.checks.test_near_duplicates import scenes
from trainable.checks.duplicates import Fingerprints, check_duplicates
from trainable.checks.exclusions import Exclusion, _are_apart, exclusions, write_exclusions
from trainable.data.assembly import load, stored_parts
from trainable.errors import DataError
from trainable.recipe.data import Data
from trainable.tasks.classification.checks.label_checks import LabelChecks

COUNT = 60


def brighter(image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    other: np.ndarray[Any, Any] = np.clip(image.astype(int) + 9, 0, 255).astype(np.uint8)
    return other


def written(spec: Data, path: Path) -> list[tuple[str, ...]]:
    """Return the rows of the file, without its header."""
    write_exclusions(exclusions(load(spec), stored_parts(spec)[0]).rows, path)
    with path.open(newline="") as file:
        return [tuple(row) for row in csv.reader(file)][1:]


def levels(spec: Data) -> list[str]:
    return [
        each.level
        for each in check_duplicates(Fingerprints(load(spec)), LabelChecks())
        if each.check != "contradictions"
    ]


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """Return a folder of parts: test and validation have copies of training images, and of each other."""
    images = scenes(COUNT, 0)
    parts = {"train": images[:40], "val": images[40:50], "test": images[50:].copy()}
    parts["test"][0], parts["val"][1], parts["test"][2] = images[0], images[3], brighter(images[5])
    parts["val"][4] = parts["test"][9]
    for part, pixels in parts.items():
        for number, each in enumerate(pixels):
            path = tmp_path / "set" / part / "ab"[number % 2] / f"{number:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(each).save(path)
    return tmp_path / "set"


@pytest.mark.parametrize("in_memory", [True, False])
def test_test_images_stay_before_validation_images_and_these_before_training_images(
    given: Path, tmp_path: Path, in_memory: bool
) -> None:
    spec = Data(path=str(given), in_memory=in_memory)
    rows = written(spec, tmp_path / "copies.csv")
    assert sorted(rows) == [
        ("train", "train/a/00.png", "equal", "test", "test/a/00.png"),
        ("train", "train/b/03.png", "equal", "validation", "val/b/01.png"),
        ("train", "train/b/05.png", "nearly the same", "test", "test/a/02.png"),
        ("validation", "val/a/04.png", "equal", "test", "test/b/09.png"),
    ]
    without = spec.model_copy(update={"exclude": str(tmp_path / "copies.csv")})
    info = load(without).info
    assert (info.train_images, info.validation_images, info.test_images) == (37, 9, 10)
    assert levels(spec) != ["passed", "passed"]
    assert levels(without) == ["passed", "passed"]


def test_of_copies_in_what_is_split_here_one_stays_so_that_no_split_has_them(tmp_path: Path) -> None:
    images = scenes(COUNT, 0)
    images[30:40], images[40:45] = images[:10], images[10:15]
    images[45] = brighter(images[20])
    np.savez(tmp_path / "a.npz", train_images=images, train_labels=np.arange(COUNT) % 2)
    spec = Data(path=str(tmp_path / "a.npz"))
    assert len(written(spec, tmp_path / "copies.csv")) == 16
    for seed in range(3):
        values = {"exclude": str(tmp_path / "copies.csv"), "split_seed": seed, "validation_seed": seed}
        without = spec.model_copy(update=values)
        assert sum(map(len, load(without).parts.values())) == COUNT - 16
        assert levels(without) == ["passed", "passed"]


def test_copies_within_a_part_of_the_data_are_not_compared_with_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, other, *rest = scenes(COUNT, 0)
    nearly = np.repeat(other[None], 200, axis=0)
    nearly.reshape(200, -1)[np.arange(200), np.arange(200)] = 0
    train = np.stack([*[scene] * 200, *nearly, *rest[:30]])
    values: dict[str, Any] = {"train_images": train, "train_labels": np.arange(len(train)) % 2}
    values |= {"val_images": np.stack(rest[30:40]), "val_labels": np.arange(10) % 2}
    np.savez(tmp_path / "a.npz", **values, test_images=np.stack(rest[40:]), test_labels=np.arange(18) % 2)
    calls = list[object]()

    def counting(*given: Any) -> bool:
        calls.append(given)
        return _are_apart(*given)

    monkeypatch.setattr("trainable.checks.exclusions._are_apart", counting)
    assert written(Data(path=str(tmp_path / "a.npz")), tmp_path / "copies.csv") == []
    assert len(calls) < len(train)


def test_a_row_without_a_part_is_of_any_and_one_that_names_no_image_is_an_error(given: Path) -> None:
    path = given.parent / "own.csv"
    path.write_text("image\ntrain/a/00.png\n")
    spec = Data(path=str(given), exclude=str(path))
    assert load(spec).info.train_images == 39
    path.write_text("image,part\ntrain/a/00.png,train\nnone.png,\n")
    with pytest.raises(DataError, match=r"1 of 2 rows name no image of .*: line 3, 'none\.png'; remove"):
        load(spec)
    path.write_text("image,part\ntrain/a/00.png,fit\n")
    with pytest.raises(DataError, match=r"column part: expected train/training, .*; got 'fit'"):
        load(spec)
    for text, problem in (
        ("train/a/00.png\n", "its columns are train/a/00.png; the first line must name the columns"),
        (
            "path\ntrain/a/00.png\n",
            "no column 'image'; .* such as image; images are listed in a column image",
        ),
        ("image\ntrain/a/0,0.png\n", "line 2 has 2; a cell that has ',' in it must stand in quotes"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=f"data.exclude: .*{problem}") as caught:
            load(spec)
        assert "data.columns" not in str(caught.value)
    with pytest.raises(DataError, match=r"is a folder; expected a CSV file; .* writes such a list"):
        load(spec.model_copy(update={"exclude": str(given)}))
    path.unlink()
    with pytest.raises(DataError, match=r"own\.csv does not exist; .* --set data\.exclude=null --write-excl"):
        load(spec)


def test_names_of_files_that_begin_with_a_space_are_left_out_too(tmp_path: Path) -> None:
    for number, image in enumerate(scenes(12, 0)):
        path = tmp_path / "set" / "ab"[number % 2] / f" {number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    (tmp_path / "out.csv").write_text("image\na/ 00.png\n b/ 01.png \n")
    found = load(Data(path=str(tmp_path / "set"), exclude=str(tmp_path / "out.csv")))
    assert sum(map(len, found.parts.values())) == 10


@pytest.mark.parametrize("name", ["copies.csv", "copies.TSV"])
def test_a_list_is_read_under_each_name_under_which_it_is_written(given: Path, name: str) -> None:
    path = given.parent / name
    written(Data(path=str(given)), path)
    assert load(Data(path=str(given), exclude=str(path))).info.train_images == 37


def test_a_disk_that_takes_no_more_leaves_no_half_of_a_list_and_names_the_file(tmp_path: Path) -> None:
    rows = [Exclusion("train", f"a/{number}.png", "equal", "test", "b.png") for number in range(99)]
    with files_of_at_most(1_000), pytest.raises(OSError, match=r"File too large: .*copies\.csv"):
        write_exclusions(rows, tmp_path / "copies.csv")
    assert not list(tmp_path.iterdir())


def test_how_many_images_were_compared_is_stated(given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = Data(path=str(given), in_memory=False)
    monkeypatch.setattr("trainable.checks.duplicates.MOST", 32)
    monkeypatch.setattr("trainable.checks.exclusions.most_compared", lambda data: 20)
    data, members = load(spec), stored_parts(spec)[0]
    assert exclusions(data, members).compared == {
        "equal": "a sample of 32 of 60 compared",
        "nearly the same": "a sample of 20 of 60 compared",
    }
    assert {*exclusions(data, members, full=True).compared.values()} == {"all 60 compared"}
