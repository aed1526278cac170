"""Tests that the parts of a data set are written as class folders: each image once, in the recipe's part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from search.results.formats.images import write_parts
from trainable.data import load
from trainable.data.dataset import stored_parts
from trainable.errors import UserError
from trainable.recipe import Recipe
from trainable.recipe.data import Data


def photographs(folder: Path) -> Path:
    generator = np.random.default_rng(0)
    for name, count in (("bee", 9), ("ant hill", 7)):
        (folder / name / "deeper").mkdir(parents=True)
        for number in range(count):
            pixels = generator.integers(0, 255, (9, 12, 3), dtype=np.uint8)
            place = folder / name / ("deeper" if number % 2 else "")
            Image.fromarray(pixels).save(place / f"{number // 2}.png")
    return folder


def test_each_image_is_linked_once_in_its_part_and_class(tmp_path: Path) -> None:
    spec = Data(path=str(photographs(tmp_path / "insects")))
    parts, classes = stored_parts(spec)
    written = write_parts(parts, classes, tmp_path / "parts")
    links = [path for path in (tmp_path / "parts").rglob("*") if path.is_symlink()]
    assert written == len(links) == len({path.resolve() for path in links}) == 16
    assert all(
        path.resolve().relative_to(tmp_path / "insects").parts[0] == path.parent.name for path in links
    )
    data = load(spec)
    sizes = {part: len(list((tmp_path / "parts" / part).rglob("*.png"))) for part in ("train", "val", "test")}
    assert sizes == {"train": len(data.train), "val": len(data.validation), "test": len(data.test or ())}


def test_a_list_of_each_part_has_a_path_and_a_label_on_each_line(tmp_path: Path) -> None:
    parts, classes = stored_parts(Data(path=str(photographs(tmp_path / "insects"))))
    write_parts(parts, classes, tmp_path / "parts")
    lines = (tmp_path / "parts" / "train_list.txt").read_text().splitlines()
    for line in lines:
        path, label = line.split("\t")
        assert (tmp_path / "parts" / path).exists()
        assert Path(path).parent.name == classes[int(label)]


def test_images_that_are_no_files_are_written_with_the_same_pixels_in_the_same_order(tmp_path: Path) -> None:
    write_parts(*stored_parts(Recipe().data), tmp_path / "parts")
    data, again = load(Recipe().data), load(Data(path=str(tmp_path / "parts")))
    assert again.info.test_images == data.info.test_images
    for name in ("train", "validation"):
        old, new = data.parts[name], again.parts[name]
        order = np.argsort(old.labels, kind="stable")
        assert (new.labels == old.labels[order]).all()
        assert (new.images == old.images[order]).all()


def test_a_folder_that_is_not_empty_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        write_parts(*stored_parts(Recipe().data), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
