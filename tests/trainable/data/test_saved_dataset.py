"""Tests where the images may lie that a folder which Hugging Face `datasets` has saved names by a path."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as arrow
import pytest
from PIL import Image

from trainable.data import load
from trainable.data.saved_dataset import INFO_FILE, STATE_FILE
from trainable.errors import DataError
from trainable.recipe.data import Data


def saved(folder: Path, paths: list[str]) -> Path:
    """Saves what names images by their paths alone, as somebody else's program may; returns the folder."""
    folder.mkdir()
    images = arrow.array(
        [{"bytes": None, "path": each} for each in paths],
        arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())]),
    )
    table = arrow.table({"image": images, "label": arrow.array([at % 2 for at in range(len(paths))])})
    with (
        arrow.OSFile(str(folder / "data.arrow"), "wb") as file,
        arrow.ipc.new_stream(file, table.schema) as out,
    ):
        out.write_table(table, max_chunksize=7)
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["a", "b"]}}
    (folder / INFO_FILE).write_text(json.dumps({"features": features}))
    (folder / STATE_FILE).write_text(json.dumps({"_data_files": [{"filename": "data.arrow"}]}))
    return folder


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
    folder = saved(tmp_path / "downloaded", [*inside, path.format(str(photographs[0])[1:])])
    with pytest.raises(DataError, match=r"rows 20 name images outside of .*downloaded.*data\.root names"):
        load(Data(path=str(folder)))


def test_images_lie_in_the_folder_itself_or_in_the_one_that_is_named(
    photographs: list[Path], tmp_path: Path
) -> None:
    absolute = saved(tmp_path / "absolute", list(map(str, photographs)))
    relative = saved(tmp_path / "relative", [each.name for each in photographs])
    own = saved(tmp_path / "own", [f"./{each.name}" for each in photographs])
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


def test_a_root_is_a_folder_of_this_machine(photographs: list[Path], tmp_path: Path) -> None:
    folder = saved(tmp_path / "downloaded", [each.name for each in photographs])
    with pytest.raises(DataError, match=r"data\.root: s3://a/b: expected a folder of this machine"):
        load(Data(path=str(folder), root="s3://a/b"))
