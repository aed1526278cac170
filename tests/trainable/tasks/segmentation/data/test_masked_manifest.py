"""Tests manifests with a column of masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet
import pytest

from tests.s3_server import S3Server
from tests.trainable.data_forms import write_csv
from tests.trainable.small_masks import bands, write_mask, write_pairs
from trainable.bench import HERE
from trainable.data.manifest import manifest_fingerprint
from trainable.data.source import Collection
from trainable.errors import DataError
from trainable.files.store import Store
from trainable.recipe.data import Columns, Data
from trainable.recipe.tasks import Masks
from trainable.tasks.segmentation.data.assembly import load
from trainable.tasks.segmentation.data.parts import MaskedSource
from trainable.tasks.segmentation.data.reading import read

Row = dict[str, object]


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    """Return rows of eight images with masks beside the manifest, in no order."""
    write_pairs(tmp_path, {f"{number:02}": (0, 1, 255) for number in range(8)})
    return [
        {"path": f"images/{number:02}.jpg", "mask": f"masks/{number:02}.png", "group": f"p{number // 2}"}
        for number in (3, 1, 0, 2, 7, 6, 5, 4)
    ]


def collection(folder: Path, rows: list[Row], masks: Masks | None = None, **values: Any) -> Collection:
    path = write_csv(folder / "images.csv", rows)
    return read(Data(path=str(path), **values), HERE, masks or Masks())


def fault_of(folder: Path, rows: list[Row], masks: Masks | None = None, **values: Any) -> str:
    with pytest.raises(DataError) as caught:
        collection(folder, rows, masks, **values)
    return str(caught.value)


def source(found: Collection, part: Any = "train") -> MaskedSource:
    chosen = found.parts[part]
    assert isinstance(chosen, MaskedSource)
    return chosen


def test_a_manifest_needs_no_labels_and_is_read_in_the_order_of_a_folder(
    tmp_path: Path, rows: list[Row]
) -> None:
    found = collection(tmp_path, rows)

    assert (found.format, found.classes, found.whole) == ("manifest", ("0", "1"), True)
    assert source(found).name(1) == "images/01.jpg"
    assert source(found).masks.name(1) == "masks/01.png"
    assert found.groups is not None
    assert found.groups["train"] == ("p0", "p0", "p1", "p1", "p2", "p2", "p3", "p3")


def test_the_columns_of_masks_and_parts_have_the_names_that_a_person_gives(
    tmp_path: Path, rows: list[Row]
) -> None:
    named: list[Row] = [
        {"file": row["path"], "truth": row["mask"], "part": "val" if number < 3 else "train"}
        for number, row in enumerate(rows)
    ]

    found = collection(
        tmp_path, named, Masks(column="truth"), columns=Columns(path="file", split="part"), group="([0-9])[.]"
    )

    assert {part: len(each) for part, each in found.parts.items()} == {"train": 5, "validation": 3}
    assert found.groups is not None
    assert found.groups["validation"] == ("0", "1", "3")


def test_masks_lie_below_the_root_with_the_images(tmp_path: Path, rows: list[Row]) -> None:
    (tmp_path / "lists").mkdir()

    found = collection(tmp_path / "lists", rows, root=str(tmp_path))

    assert source(found).class_mask(0).shape == (10, 12)


def test_parquet_is_read_as_csv_is(tmp_path: Path, rows: list[Row]) -> None:
    table = arrow.table({name: [row[name] for row in rows] for name in rows[0]})
    arrow.parquet.write_table(table, tmp_path / "images.parquet")

    found = read(Data(path=str(tmp_path / "images.parquet")), HERE, Masks())

    assert len(source(found)) == 8


def test_every_kind_of_fault_is_in_one_message_with_the_lines(tmp_path: Path, rows: list[Row]) -> None:
    rows[0]["mask"], rows[1]["mask"] = "", "masks/lost.png"
    rows[2]["path"] = "images/lost.jpg"
    rows[4]["path"] = rows[3]["path"]

    found = fault_of(tmp_path, rows)

    for expected in (
        "4 kinds of faults",
        "line 2: mask is empty",
        "line 4: there is no such file (the first is images/lost.jpg)",
        "line 3: there is no such mask (the first is masks/lost.png)",
        "line 6: the image is in an earlier row too (the first is images/02.jpg)",
    ):
        assert expected in found


def test_rows_whose_image_or_mask_is_missing_are_left_out_by_the_list_that_names_them(
    tmp_path: Path, rows: list[Row]
) -> None:
    rows[0]["mask"], rows[1]["mask"], rows[2]["path"] = "", "masks/lost.png", "images/lost.jpg"
    assert "data.exclude leaves out the images that a CSV file lists" in fault_of(tmp_path, rows)
    listed = write_csv(tmp_path / "out.csv", [{"image": row["path"]} for row in rows[:3]])
    info = load(Data(path=str(tmp_path / "images.csv"), exclude=str(listed)), Masks()).info
    assert info.train_images + info.validation_images + info.test_images == 5
    assert manifest_fingerprint(Data(path=str(tmp_path / "images.csv"), exclude=str(listed)), "mask")


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path: Path, rows: list[Row]) -> None:
    assert "there is no column 'truth'; its columns are path, mask, group" in fault_of(
        tmp_path, rows, Masks(column="truth")
    )


def test_facts_are_measured_anew_when_a_mask_changes(tmp_path: Path, rows: list[Row]) -> None:
    spec = Data(path=str(write_csv(tmp_path / "images.csv", rows)))
    before = manifest_fingerprint(spec, "mask")
    write_mask(tmp_path / "masks" / "unlisted.png", bands(0))
    assert manifest_fingerprint(spec, "mask") == before
    write_mask(tmp_path / "masks" / "03.png", bands(1, 0))
    assert manifest_fingerprint(spec, "mask") != before


@pytest.mark.integration
def test_masks_behind_uris_are_copied_with_their_images(
    tmp_path: Path, rows: list[Row], s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = Store(s3.uri).at("masked")
    for row in rows:
        for name in (str(row["path"]), str(row["mask"])):
            store.put(tmp_path / name, name)
    (tmp_path / "lists").mkdir()

    found = collection(tmp_path / "lists", rows, root=store.uri)

    assert (len(found.objects), len(source(found))) == (16, 8)
    assert found.copy is not None
    assert found.copy.is_relative_to(tmp_path / "cache")
    assert source(found).class_mask(0).shape == (10, 12)
