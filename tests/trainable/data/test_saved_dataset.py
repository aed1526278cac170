"""Tests where the images may lie that a folder which Hugging Face `datasets` has saved names by a path."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pytest
from PIL import Image

from tests.trainable.data_forms import IMAGES, saved_by_path, saved_table
from trainable.data.assembly import load
from trainable.data.saved_dataset import INFO_FILE, STATE_FILE, read
from trainable.errors import DataError
from trainable.recipe.data import Data


@pytest.fixture
def photographs(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "photographs"
    folder.mkdir()
    files = [folder / f"{number}.png" for number in range(20)]
    for number, file in enumerate(files):
        Image.new("L", (8, 8), number).save(file)
    return files


@pytest.mark.parametrize("path", ["/{}", "../photographs/0.png", "x/../../photographs/0.png", "./../x"])
def test_an_image_outside_of_the_folder_is_refused_with_its_row_and_the_field_that_allows_it(
    photographs: list[Path], tmp_path: Path, path: str
) -> None:
    inside = [f"{number}.png" for number in range(19)]
    folder = saved_by_path(tmp_path / "downloaded", [*inside, path.format(str(photographs[0])[1:])])
    with pytest.raises(DataError, match=r"rows 20 name images outside of .*downloaded.*data\.root names"):
        load(Data(path=str(folder)))


def test_images_lie_in_the_folder_itself_or_in_the_one_that_is_named(
    photographs: list[Path], tmp_path: Path
) -> None:
    absolute = saved_by_path(tmp_path / "absolute", list(map(str, photographs)))
    relative = saved_by_path(tmp_path / "relative", [each.name for each in photographs])
    own = saved_by_path(tmp_path / "own", [f"./{each.name}" for each in photographs])
    for each in photographs:
        (own / each.name).write_bytes(each.read_bytes())
    root = str(tmp_path / "photographs")
    digests = {
        load(Data(path=str(own))).info.digest,
        *(load(Data(path=str(folder), root=root)).info.digest for folder in (absolute, relative)),
    }
    assert len(digests) == 1
    with pytest.raises(DataError, match=r"rows 1, 2, .* outside of .*/own"):
        load(Data(path=str(absolute), root=str(own)))


def test_an_image_that_is_named_by_its_path_has_the_size_and_time_of_its_file(
    photographs: list[Path], tmp_path: Path
) -> None:
    images = [
        {"bytes": file.read_bytes() if at < 10 else None, "path": str(file)}
        for at, file in enumerate(photographs)
    ]
    table = arrow.table({"image": arrow.array(images, IMAGES), "label": arrow.array([0, 1] * 10)})
    folder = saved_table(tmp_path / "half", table)
    source = read(folder, Data(path=str(folder), root="/")).parts["train"]
    every = np.arange(20)
    before = source.sizes_and_times(every)
    sizes = {str(file): file.stat().st_size for file in photographs}
    assert before[:, 0].tolist() == [sizes[source.name(index)] for index in range(20)]
    for number in (3, 15):
        photographs[number].write_bytes(b"other")
    changed = (source.sizes_and_times(every) != before).any(axis=1)
    assert [source.name(index) for index in np.flatnonzero(changed).tolist()] == [str(photographs[15])]


def test_a_root_is_a_folder_of_this_machine(photographs: list[Path], tmp_path: Path) -> None:
    folder = saved_by_path(tmp_path / "downloaded", [each.name for each in photographs])
    with pytest.raises(DataError, match=r"data\.root: s3://a/b: expected a folder of this machine"):
        load(Data(path=str(folder), root="s3://a/b"))


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_a_link_that_leads_out_of_the_folder_is_refused_unless_the_folder_is_named(
    photographs: list[Path], tmp_path: Path, linked: str
) -> None:
    folder = saved_by_path(tmp_path / "downloaded", [f"images/{each.name}" for each in photographs])
    if linked == "folder":
        (folder / "images").symlink_to(tmp_path / "photographs")
    else:
        (folder / "images").mkdir()
        for each in photographs:
            (folder / "images" / each.name).symlink_to(each)
    with pytest.raises(DataError, match=r"rows 1, 2, .* outside of .*or a link; .*data\.root names"):
        load(Data(path=str(folder)))
    assert sum(map(len, load(Data(path=str(folder), root=str(folder))).parts.values())) == 20


def test_links_within_the_folder_are_followed_and_the_folder_may_be_one(
    photographs: list[Path], tmp_path: Path
) -> None:
    folder = saved_by_path(tmp_path / "downloaded", [f"images/{each.name}" for each in photographs])
    (tmp_path / "photographs").rename(folder / "blobs")
    (folder / "images").mkdir()
    for each in photographs:
        (folder / "images" / each.name).symlink_to(f"../blobs/{each.name}")
    (tmp_path / "link").symlink_to(folder)
    assert sum(map(len, load(Data(path=str(tmp_path / "link"))).parts.values())) == 20


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_buffers_are_bounded_by_what_they_declare(
    photographs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    rows = [{"bytes": each.read_bytes(), "path": None} for each in photographs]
    table = arrow.table({"image": arrow.array(rows, IMAGES), "label": arrow.array([0, 1] * 10)})
    folder = saved_table(tmp_path / "saved", table, compression)
    assert sum(map(len, load(Data(path=str(folder))).parts.values())) == 20
    declared = sum(each.stat().st_size for each in photographs) + 20 * 8
    monkeypatch.setattr("trainable.data.arrow_source.MOST_BYTES", declared)
    with pytest.raises(DataError, match=r"20 rows are declared, and [\d,]+ bytes in .*save it again"):
        load(Data(path=str(folder)))
    plain = saved_table(tmp_path / "plain", table)
    assert sum(map(len, load(Data(path=str(plain))).parts.values())) == 20


def test_a_split_without_images_is_refused_and_may_be_left_out(
    photographs: list[Path], tmp_path: Path
) -> None:
    root = tmp_path / "photographs"
    saved_by_path(root / "train", [each.name for each in photographs])
    empty = saved_by_path(root / "test", [])
    (empty / STATE_FILE).write_text(json.dumps({"_data_files": []}))
    (root / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    spec = Data(path=str(root), root=str(root))
    with pytest.raises(DataError, match=r"test: has no images.*data\.test: none leaves the test part out"):
        load(spec)
    assert len(load(spec.model_copy(update={"test": "none"})).parts["train"]) > 0


def test_rows_are_bounded_before_they_are_read(tmp_path: Path) -> None:
    rows = arrow.array([{"bytes": b"", "path": None}], IMAGES).take(arrow.array([0] * 2**17))
    labels = arrow.array([True] * 2**17)
    folder = saved_table(tmp_path / "saved", arrow.table({"image": rows, "label": labels}))
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr("trainable.data.arrow_source.MOST_ROWS", 2**17 - 1)
        with pytest.raises(DataError, match=r"131,072 rows are declared.*expected at most 131,071 rows"):
            load(Data(path=str(folder)))
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr("trainable.data.table.available_bytes", lambda: 2**20)
        with pytest.raises(DataError, match=r"131,072 rows need about 70,778,880 bytes of memory"):
            load(Data(path=str(folder)))


def test_labels_that_name_one_text_by_its_place_are_bounded(
    photographs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"bytes": each.read_bytes(), "path": None} for each in photographs]
    labels = arrow.array(["a long name of a class", "another name of a class"] * 10, arrow.string_view())
    table = arrow.table({"image": arrow.array(rows, IMAGES), "label": labels})
    folder = saved_table(tmp_path / "saved", table)
    info = json.loads((folder / INFO_FILE).read_text())
    info["features"]["label"] = {"_type": "Value"}
    (folder / INFO_FILE).write_text(json.dumps(info))
    assert load(Data(path=str(folder))).info.classes[0] == "a long name of a class"
    monkeypatch.setattr("trainable.data.table.MOST_BYTES", 449)
    with pytest.raises(DataError, match="unpacks to 450 bytes"):
        load(Data(path=str(folder)))
