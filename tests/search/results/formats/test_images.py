"""Tests that the parts of a data set are written as class folders: each image once, in the recipe's part."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.ExifTags import Base

from search.results.formats.images import FOLDERS, write_parts
from search.results.formats.script import script_sheet
from search.results.formats.script_text import script_text
from tests.search.results.formats.winners import recipe_of, winner_of
from trainable.data import ArrayPart
from trainable.data.assembly import load, stored_parts
from trainable.data.decode import upright
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
    written = write_parts(parts, classes, tmp_path / "parts", "0")
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
    write_parts(parts, classes, tmp_path / "parts", "0")
    lines = (tmp_path / "parts" / "train_list.txt").read_text().splitlines()
    for line in lines:
        path, label = line.split("\t")
        assert (tmp_path / "parts" / path).exists()
        assert Path(path).parent.name == classes[int(label)]


@pytest.mark.slow("writes many images")
def test_images_that_are_no_files_are_written_with_the_same_pixels_in_the_same_order(tmp_path: Path) -> None:
    write_parts(*stored_parts(Recipe().data), tmp_path / "parts", "0")
    data, again = load(Recipe().data), load(Data(path=str(tmp_path / "parts")))
    assert again.info.test_images == data.info.test_images
    for name in ("train", "validation"):
        old, new = data.parts[name], again.parts[name]
        assert isinstance(old, ArrayPart)
        assert isinstance(new, ArrayPart)
        order = np.argsort(old.labels, kind="stable")
        assert (new.labels == old.labels[order]).all()
        assert (new.images == old.images[order]).all()


def odd_images(folder: Path) -> Path:
    """Write a photograph that EXIF turns, one of 16 bits, one with a transparent half, a GIF and a plain one
    without an ending, under names that would break a list."""
    pixels = np.random.default_rng(0).integers(0, 255, (9, 12, 3), dtype=np.uint8)
    image, turned = Image.fromarray(pixels).resize((120, 90)), Image.Exif()
    turned[Base.Orientation] = 6
    half = image.convert("RGBA")
    half.putalpha(Image.fromarray(np.linspace(0, 255, 90 * 120).reshape(90, 120).astype(np.uint8)))
    deep = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257)
    for name in ("bee", "ant hill"):
        (folder / name).mkdir(parents=True)
        image.save(folder / name / "turned.jpg", exif=turned, quality=95)
        half.save(folder / name / "half \n\t'\"clear.png")
        deep.save(folder / name / "deep.png")
        image.save(folder / name / "moving.gif")
        image.save(folder / name / (b"plain\xff.JPEG".decode(errors="surrogateescape")), format="JPEG")
    return folder


def test_other_programs_see_images_as_they_are_seen_here(tmp_path: Path) -> None:
    spec = Data(path=str(odd_images(tmp_path / "insects")), test_fraction=0.2, validation_fraction=0.2)
    parts, classes = stored_parts(spec)
    write_parts(parts, classes, tmp_path / "parts", "0")
    seen = 0
    for part, selection in parts.items():
        lines = (tmp_path / "parts" / f"{FOLDERS[part]}_list.txt").read_text().splitlines()
        assert len(lines) == len(selection.indices)
        for index, line in zip(selection.indices.tolist(), lines, strict=True):
            with Image.open(tmp_path / "parts" / line.split("\t")[0]) as there:
                shown = np.asarray(there.convert("RGB")).astype(int)
            here = np.asarray(upright(selection.source.open(index), 3)).astype(int)
            assert shown.shape == here.shape
            assert np.abs(shown - here).mean() < 2.0
            seen += 1
    files = [each for each in (tmp_path / "parts").rglob("*.*") if each.parent.parent.parent.name == "parts"]
    assert seen == len(files) == 10
    assert {each.suffix for each in files} == {".jpg", ".png"}, "timm leaves out files of other endings"
    assert sum(each.is_symlink() for each in files) == 2


def test_the_script_sees_images_as_they_are_seen_here(tmp_path: Path) -> None:
    asked = recipe_of(data__channels=1)
    made: dict[str, Any] = {"__name__": "script"}
    winner = winner_of(asked)
    exec(script_text(winner, script_sheet(winner), Path("train.py")), made)
    levels = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    Image.fromarray(levels).save(tmp_path / "deep.png")
    with Image.open(tmp_path / "deep.png") as image:
        assert (made["square"](tmp_path / "deep.png", 256).numpy()[0] == np.asarray(upright(image, 1))).all()


def test_a_folder_that_has_these_parts_serves_another_format_too(tmp_path: Path) -> None:
    parts, classes = stored_parts(Data(path=str(photographs(tmp_path / "insects"))))
    write_parts(parts, classes, tmp_path / "parts", "of these")
    before = sorted((each, each.lstat().st_mtime_ns) for each in (tmp_path / "parts").rglob("*"))
    assert write_parts(parts, classes, tmp_path / "parts", "of these") == 16
    assert sorted((each, each.lstat().st_mtime_ns) for each in (tmp_path / "parts").rglob("*")) == before
    with pytest.raises(UserError, match="has not these parts, and is not empty; give a new folder"):
        write_parts(parts, classes, tmp_path / "parts", "of others")


def test_an_image_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    parts, classes = stored_parts(Data(path=str(photographs(tmp_path / "insects"))))
    (tmp_path / "insects/bee/0.png").write_bytes(b"half a file")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match=r"--images: bee/0\.png: cannot identify image file"):
        write_parts(parts, classes, tmp_path / "parts", "0")
    assert sorted(tmp_path.iterdir()) == before, "half of a folder would be refused by the next call"


def test_a_disk_that_takes_no_more_leaves_no_half_of_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    parts, classes = stored_parts(Data(path=str(photographs(tmp_path / "insects"))))
    monkeypatch.setattr(Path, "symlink_to", refuse)
    with pytest.raises(OSError, match="No space left on device"):
        write_parts(parts, classes, tmp_path / "parts", "0")
    assert [each.name for each in tmp_path.iterdir()] == ["insects"]


@pytest.mark.parametrize(
    "name", ["b" * 256, "\u82b1" * 86, "bee/ant", "..", "a\0"], ids=["long", "wide", "path", "up", "nul"]
)
def test_a_class_that_no_folder_can_be_called_is_refused_before_anything_is_written(
    tmp_path: Path, name: str
) -> None:
    parts, _ = stored_parts(Data(path=str(photographs(tmp_path / "insects"))))
    with pytest.raises(UserError, match=r"cannot be the name of a folder .*; rename it in the data, or"):
        write_parts(parts, ("ant", name), tmp_path / "parts", "0")
    assert [each.name for each in tmp_path.iterdir()] == ["insects"]


def test_parts_are_written_into_an_empty_folder_that_a_link_leads_to(tmp_path: Path) -> None:
    parts, classes = stored_parts(Data(path=str(photographs(tmp_path / "insects"))))
    (tmp_path / "large disk").mkdir()
    (tmp_path / "parts").symlink_to(tmp_path / "large disk")
    assert write_parts(parts, classes, tmp_path / "parts", "0") == 16
    assert (tmp_path / "large disk" / "val_list.txt").is_file()


def test_a_folder_that_is_not_empty_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty"):
        write_parts(*stored_parts(Recipe().data), tmp_path, "0")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
