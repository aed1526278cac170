"""Tests manifests: the columns, the parts, where the images lie, and what is wrong with the rows."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet
import pytest

from tests.trainable.data_forms import write_csv
from tests.trainable.small_images import write_image
from trainable.data import DataSet
from trainable.data.assembly import load
from trainable.data.manifest import manifest_fingerprint
from trainable.errors import DataError
from trainable.recipe.data import Columns, Data
from trainable.recipe.yamlfile import parse_setting

Row = dict[str, object]


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    """Return rows of sixteen images beside the manifest, eight of each of two species."""
    for number in range(16):
        write_image(tmp_path / "shots" / f"{number:02}.png", value=10 * number)
    return [
        {"path": f"shots/{number:02}.png", "label": "daisy" if number % 2 else "aster"}
        for number in range(16)
    ]


def manifest(folder: Path, rows: list[Row], **values: Any) -> DataSet:
    return load(Data(path=str(write_csv(folder / "images.csv", rows)), **values))


def fault_of(folder: Path, rows: list[Row], **values: Any) -> str:
    with pytest.raises(DataError) as caught:
        manifest(folder, rows, **values)
    return str(caught.value)


def test_columns_have_the_names_that_a_person_gives_them(tmp_path: Path, rows: list[Row]) -> None:
    parts = ["train", "valid", "Test", "training"] * 4
    named = [
        {"file": row["path"], "species": row["label"], "part": part, "camera": "x", "patient": number // 4}
        for number, (row, part) in enumerate(zip(rows, sorted(parts), strict=True))
    ]
    columns = Columns(path="file", label="species", split="part")
    info = manifest(tmp_path, named, columns=columns).info
    assert (info.format, info.classes) == ("manifest", ("aster", "daisy"))
    assert (info.train_images, info.validation_images, info.test_images) == (8, 4, 4)


def test_images_lie_below_the_root_or_beside_the_manifest(tmp_path: Path, rows: list[Row]) -> None:
    beside = manifest(tmp_path, rows)
    (tmp_path / "lists").mkdir()
    below = manifest(tmp_path / "lists", rows, root=str(tmp_path))
    absolute = manifest(
        tmp_path / "lists", [{**row, "path": str(tmp_path / str(row["path"]))} for row in rows]
    )
    assert beside.info.digest == below.info.digest == absolute.info.digest


def test_every_kind_of_fault_is_in_one_message_with_the_lines(tmp_path: Path, rows: list[Row]) -> None:
    rows = [{**row, "split": "train"} for row in rows]
    rows[0]["path"], rows[1]["label"], rows[2]["split"] = "", "", "dev"
    rows[3]["path"] = rows[4]["path"] = "shots/lost.png"
    rows[6]["path"] = rows[5]["path"]
    found = fault_of(tmp_path, rows)
    for expected in (
        "5 kinds of faults",
        "line 2: path is empty",
        "line 3: label is empty",
        "line 4: split is 'dev'; expected train/training, val/valid/validation, test/testing",
        "lines 5, 6: there is no such file (the first is shots/lost.png)",
        "lines 6, 8: the image is in an earlier row too (the first is shots/lost.png)",
    ):
        assert expected in found


def test_many_rows_with_a_fault_are_counted(tmp_path: Path, rows: list[Row]) -> None:
    (tmp_path / "shots").rename(tmp_path / "moved")
    assert "lines 2, 3, 4, 5, 6 and 11 more: there is no such file (the first is shots/00.png)" in fault_of(
        tmp_path, rows
    )


def test_rows_without_a_file_or_a_label_are_refused_with_what_leaves_them_out(
    tmp_path: Path, rows: list[Row]
) -> None:
    rows = [{**row, "split": "test" if number < 4 else "train"} for number, row in enumerate(rows)]
    (tmp_path / "shots" / "00.png").unlink()
    (tmp_path / "shots" / "03.png").unlink()
    fault = fault_of(tmp_path, rows)
    assert "(the first is shots/00.png); data.test: none leaves the test part out" in fault
    assert "data.exclude leaves out the images that a CSV file lists in a column image" in fault
    assert manifest(tmp_path, rows, test="none", test_fraction=0.0).info.test_images == 0
    rows[8]["label"] = ""
    fault = fault_of(tmp_path, rows)
    assert "line 10: label is empty\n" in fault
    assert "data.exclude leaves out the images" in fault
    listed = write_csv(tmp_path / "out.csv", [{"image": rows[row]["path"]} for row in (0, 3)])
    assert f"no label for 1 of 12 images of the train part: {rows[8]['path']};" in fault_of(
        tmp_path, rows, exclude=str(listed)
    )
    listed = write_csv(tmp_path / "out.csv", [{"image": rows[row]["path"]} for row in (0, 3, 8)])
    info = manifest(tmp_path, rows, exclude=str(listed)).info
    assert (info.train_images + info.validation_images, info.test_images) == (11, 2)
    assert manifest_fingerprint(Data(path=str(tmp_path / "images.csv"), exclude=str(listed)))
    listed = write_csv(tmp_path / "out.csv", [{"image": rows[0]["path"], "part": "test"}])
    assert "line 5: there is no such file" in fault_of(tmp_path, rows, exclude=str(listed))


@pytest.mark.parametrize(("test", "train"), [("0", "1"), ("", "train")])
def test_splits_of_other_names_are_refused_with_the_fields_that_name_them(
    tmp_path: Path, rows: list[Row], test: str, train: str
) -> None:
    named = [{**row, "split": test if number < 4 else train} for number, row in enumerate(rows)]
    fault = fault_of(tmp_path, named)
    example = "data.train: '1'" if train == "1" else "data.test: ''"
    assert f"data.train, data.validation and data.test name them, such as {example}" in fault
    assert "data.exclude_parts" not in fault
    assert manifest(tmp_path, named, train=train, test=test).info.test_images == 4


def test_the_rows_of_a_part_with_another_name_may_be_of_one_that_is_free_or_left_out(
    tmp_path: Path, rows: list[Row]
) -> None:
    named = [{**row, "split": "0" if number < 4 else "1"} for number, row in enumerate(rows)]
    assert "such as data.train: '1'" in (fault := fault_of(tmp_path, named, test="0"))
    assert "data.exclude_parts" not in fault, "nothing would stay"
    fault = fault_of(tmp_path, named, train="1")
    assert "such as data.test: '0'; data.exclude_parts: ['0'] leaves them out" in fault
    assert manifest(tmp_path, named, train="1", exclude_parts=("0",)).info.train_images
    assert "such as data.validation: '0'" in fault_of(tmp_path, named, train="1", test="none")
    parts = ("train", "val", "test", "more")
    full = [{**row, "split": parts[number % 4]} for number, row in enumerate(rows)]
    assert "data.test name them; data.exclude_parts: [more] leaves" in fault_of(tmp_path, full)


@pytest.mark.parametrize("name", ["more", "null", "true", "nan", "new photos"])
def test_a_part_that_a_refusal_leaves_out_is_written_as_yaml_reads_it(
    tmp_path: Path, rows: list[Row], name: str
) -> None:
    named = [{**row, "split": name if number < 4 else "train"} for number, row in enumerate(rows)]
    found = re.search(r"data[.]exclude_parts: (\[.*\]) leaves", fault_of(tmp_path, named))
    assert found is not None
    assert parse_setting(f"data.exclude_parts={found[1]}")[1] == [name]


def test_what_a_list_leaves_out_is_not_asked_for_again(tmp_path: Path, rows: list[Row]) -> None:
    listed = write_csv(tmp_path / "out.csv", [{"image": rows[0]["path"]}])
    spec = Data(path=str(write_csv(tmp_path / "images.csv", rows)), exclude=str(listed))
    before = manifest_fingerprint(spec)
    (tmp_path / "shots" / "00.png").unlink()
    assert manifest_fingerprint(spec) == before
    write_image(tmp_path / "shots" / "01.png", value=200, size=(40, 40))
    assert manifest_fingerprint(spec) != before


def test_a_column_that_is_missing_is_named_with_those_that_are_there(tmp_path: Path, rows: list[Row]) -> None:
    found = fault_of(tmp_path, rows, columns=Columns(label="species", group="patient"))
    assert "there is no column 'species', 'patient'; its columns are path, label" in found


def test_a_row_with_too_few_cells_is_named(tmp_path: Path, rows: list[Row]) -> None:
    path = write_csv(tmp_path / "images.csv", rows)
    path.write_text(path.read_text() + "shots/00.png\n")
    with pytest.raises(DataError, match="the header has 2 columns, but line 18 has 1"):
        load(Data(path=str(path)))


def test_a_part_may_have_another_name(tmp_path: Path, rows: list[Row]) -> None:
    named: list[Row] = [{**row, "split": "dev" if number < 4 else "train"} for number, row in enumerate(rows)]
    assert manifest(tmp_path, named, validation="dev").info.validation_images == 4


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([0.5] * 16, "column 'label': expected text or whole numbers, got double"),
        ([None] + ["a", "b", "c"] * 5, "row 1: label is empty"),
        (["a"] * 16, "there is one class only, a; two are needed"),
        ([["a"]] * 16, "column 'label': expected text or whole numbers, got list"),
        ([{"bytes": b"a"}] * 16, "column 'label': expected text or whole numbers, got struct"),
    ],
)
def test_labels_of_parquet_are_text_or_whole_numbers(
    tmp_path: Path, rows: list[Row], labels: list[object], problem: str
) -> None:
    table = arrow.table({"path": [row["path"] for row in rows], "label": labels})
    arrow.parquet.write_table(table, tmp_path / "images.parquet")
    with pytest.raises(DataError, match=problem):
        load(Data(path=str(tmp_path / "images.parquet")))


def test_a_list_from_a_spreadsheet_is_read_whatever_its_separator_encoding_and_names(
    tmp_path: Path, rows: list[Row]
) -> None:
    """Excel in Europe separates by semicolons; its Unicode text is UTF-16 with tabs."""
    wanted = manifest(tmp_path, rows).info
    for encoding, separator, ends in (
        ("utf-8", ";", "\n"),
        ("utf-8-sig", ";", "\r\n"),
        ("utf-16", "\t", "\r\n"),
        ("utf-8", "|", "\n"),
        ("utf-8", ",", "\r"),
        ("utf-8", ";", "\r"),
    ):
        lines = [f"Path {separator}LABEL{separator}note"]
        note = "a" if separator == "," else "a, b"
        lines += [f"{row['path']} {separator} {row['label']} {separator}{note}" for row in rows]
        (tmp_path / "sheet.csv").write_bytes(ends.join(lines).encode(encoding))
        assert load(Data(path=str(tmp_path / "sheet.csv"))).info.digest == wanted.digest


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_recognised(tmp_path: Path, rows: list[Row], encoding: str) -> None:
    wanted = manifest(tmp_path, rows).info
    text = "\r\n".join(["path\tlabel", *(f"{row['path']}\t{row['label']}" for row in rows)])
    (tmp_path / "sheet.csv").write_bytes(text.encode(encoding))
    assert load(Data(path=str(tmp_path / "sheet.csv"))).info.digest == wanted.digest


@pytest.mark.parametrize("encoding", ["utf-32", "utf-8"])
def test_characters_of_code_0_are_refused_with_what_to_do(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "sheet.csv").write_bytes("path,label\na.png,\0\n".encode(encoding))
    with pytest.raises(DataError, match=r"line \d has a character of code 0, .*save it as CSV in UTF-8"):
        load(Data(path=str(tmp_path / "sheet.csv")))


@pytest.mark.parametrize("first", ["sep=;", '"sep=;"', "SEP=;"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_first_line_that_names_the_separator_is_followed(
    tmp_path: Path, rows: list[Row], first: str, encoding: str
) -> None:
    wanted = manifest(tmp_path, rows).info
    lines = [first, "path;label", *(f"{row['path']};{row['label']}" for row in rows)]
    (tmp_path / "sheet.csv").write_bytes("\r\n".join(lines).encode(encoding))
    assert load(Data(path=str(tmp_path / "sheet.csv"))).info.digest == wanted.digest
    lines[5] += ";more"
    (tmp_path / "sheet.csv").write_bytes("\r\n".join(lines).encode(encoding))
    with pytest.raises(DataError, match="the header has 2 columns, but line 6 has 3"):
        load(Data(path=str(tmp_path / "sheet.csv")))


def test_a_column_of_two_names_that_are_alike_is_asked_for(tmp_path: Path, rows: list[Row]) -> None:
    named = [{"Path": row["path"], "PATH": "x", "label": row["label"]} for row in rows]
    asked = "'Path', 'PATH' may all be the column 'path'; data.columns says which is meant"
    assert asked in fault_of(tmp_path, named)
    parts = [{**row, "Split": "train", "SPLIT": "test"} for row in rows]
    assert "'Split', 'SPLIT' may all be the column 'split'" in fault_of(tmp_path, parts)
    assert manifest(tmp_path, named, columns=Columns(path="Path")).info.train_images


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["01", "1"], ("01", "1")),
        (["NA", "null"], ("NA", "null")),
        (["TRUE", "FALSE"], ("FALSE", "TRUE")),
        (["10.0", "9.0"], ("9", "10")),
        (["1", "1.5"], ("1", "1.5")),
        (["v1.0", "1.0"], ("1.0", "v1.0")),
        ([" a b", "c "], ("a b", "c")),
    ],
)
def test_labels_of_csv_are_the_text_that_is_there(
    tmp_path: Path, rows: list[Row], labels: list[str], classes: tuple[str, ...]
) -> None:
    named = [{**row, "label": labels[number % 2]} for number, row in enumerate(rows)]
    assert manifest(tmp_path, named).info.classes == classes


@pytest.mark.parametrize(
    ("labels", "classes"), [([9.0, 10.0], ("9", "10")), ([True, False], ("False", "True"))]
)
def test_whole_numbers_of_parquet_may_be_floats_where_some_rows_have_none(
    tmp_path: Path, rows: list[Row], labels: list[object], classes: tuple[str, ...]
) -> None:
    """pandas writes a column of whole numbers with a missing one as floats."""
    parts = ["test"] + ["train"] * 15
    column = [None, *labels * 8][:16]
    table = arrow.table({"path": [row["path"] for row in rows], "label": column, "split": parts})
    arrow.parquet.write_table(table, tmp_path / "images.parquet")
    assert load(Data(path=str(tmp_path / "images.parquet"), test="none")).info.classes == classes
    with pytest.raises(DataError, match=r"row 1: label is empty; data\.test: none leaves the test part out"):
        load(Data(path=str(tmp_path / "images.parquet")))


def test_facts_are_measured_anew_when_a_listed_file_changes(tmp_path: Path, rows: list[Row]) -> None:
    spec = Data(path=str(write_csv(tmp_path / "images.csv", rows)))
    before = manifest_fingerprint(spec)
    write_image(tmp_path / "unlisted.png")
    assert manifest_fingerprint(spec) == before
    write_image(tmp_path / "shots" / "03.png", size=(50, 50))
    assert manifest_fingerprint(spec) != before


ODD = ("a b.png", "#1.png", "100%.png", "%20.png", "why?.png", "\u00e9\u82b1.png", "c&d=e+f.png", "plain.png")


@pytest.fixture
def odd_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """Return rows of images whose names a URI must escape, in a folder with such a name too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for number, name in enumerate(ODD):
        write_image(tmp_path / "my shots" / name, value=10 * number)
    return [{"path": name, "label": "ab"[number % 2]} for number, name in enumerate(ODD)]


def test_names_that_a_uri_must_escape_are_found_with_and_without_escapes(
    tmp_path: Path, odd_rows: list[Row]
) -> None:
    """Below a root a row is a name, as on a disk; a row that is a URI may have escapes."""
    fractions = {"validation_fraction": 0.3, "test_fraction": 0.0}
    here = manifest(tmp_path, odd_rows, root=str(tmp_path / "my shots"), **fractions).info.digest
    folder = (tmp_path / "my shots").as_uri()
    assert "%20" in folder
    for root in (folder, folder.replace("%20", " ")):
        assert manifest(tmp_path, odd_rows, root=root, **fractions).info.digest == here
    uris = [{**row, "path": (tmp_path / "my shots" / str(row["path"])).as_uri()} for row in odd_rows]
    data = manifest(tmp_path, uris, **fractions)
    assert data.info.digest == here
    assert data.copy is not None
    assert sorted(each.name for each in data.copy.rglob("*.png")) == sorted(ODD)
    mixed = [
        {**row, "path": str(row["path"]).replace("%23", "#").replace("%C3%A9%E8%8A%B1", "\u00e9\u82b1")}
        for row in uris
    ]
    assert manifest(tmp_path, mixed, **fractions).info.digest == here


def test_an_image_is_one_under_two_spellings_of_its_uri(tmp_path: Path, odd_rows: list[Row]) -> None:
    folder = (tmp_path / "my shots").as_uri()
    again: Row = {"path": f"{folder}/a b.png", "label": "a"}
    assert "line 10: the image is in an earlier row too" in fault_of(
        tmp_path, [*odd_rows, again], root=folder
    )


@pytest.mark.parametrize(
    ("uri", "told"),
    [
        ("file:///x/%2E%2E/y.png", "without .. and ."),
        ("file:///x/a%00.png", "NUL"),
        ("file:///x/%E9.png", "UTF-8"),
    ],
)
def test_escapes_do_not_lead_out_of_the_copy_or_to_names_that_no_file_has(
    tmp_path: Path, rows: list[Row], uri: str, told: str
) -> None:
    assert told in fault_of(tmp_path, [*rows, {"path": uri, "label": "daisy"}])


@pytest.mark.parametrize(
    ("rows", "text", "said"),
    [
        (2**17, "a.png", r"declares 131,072 rows, and .* a manifest has at most 131,071 rows"),
        (2**16, "a" * 2**16, r"unpacks to 4,294,967,296 bytes; a manifest has at most 2,147,483,648"),
    ],
    ids=["rows", "text"],
)
def test_a_small_parquet_file_that_stands_for_gigabytes_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, text: str, said: str
) -> None:
    monkeypatch.setattr("trainable.data.table.MOST_ROWS", 2**17 - 1)
    column = arrow.DictionaryArray.from_arrays(arrow.array(np.zeros(rows, np.int8)), arrow.array([text]))
    file = tmp_path / "images.parquet"
    arrow.parquet.write_table(arrow.table({"path": column, "label": column}), file, store_schema=False)
    assert file.stat().st_size < 2**20
    with pytest.raises(DataError, match=said):
        load(Data(path=str(file)))


def test_a_csv_file_has_no_more_rows_than_a_manifest_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainable.data.table.MOST_ROWS", 2)
    (tmp_path / "images.csv").write_text("path,label\n" + "a.png,a\n" * 3)
    with pytest.raises(DataError, match="has more than 2 rows, the most of a manifest"):
        load(Data(path=str(tmp_path / "images.csv")))


@pytest.mark.parametrize(
    ("name", "content"),
    [("images.csv", "path,label\n" + ",\n" * 999), ("images.csv", "path,label\r" + "a,b\r" * 999)],
    ids=["empty cells", "old ends of lines"],
)
def test_rows_that_do_not_fit_in_memory_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str
) -> None:
    (tmp_path / name).write_bytes(content.encode())
    needed = 1001 * 200 + 2001 * 170 + 12 * len(content)
    monkeypatch.setattr("trainable.data.table.available_bytes", lambda: needed - 1)
    said = rf"1,001 rows need about {needed:,} bytes of memory, .*; see that this is the list of images, and"
    with pytest.raises(DataError, match=said):
        load(Data(path=str(tmp_path / name)))


def test_a_list_that_does_not_fit_in_memory_is_not_split_into_lines_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "images.csv").write_bytes(b"path,label\n" + b"ab\n" * 2**18)
    monkeypatch.setattr("trainable.data.table.available_bytes", lambda: 2**20)
    tracemalloc.start()
    with pytest.raises(DataError, match="262,146 rows need about"):
        load(Data(path=str(tmp_path / "images.csv")))
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_repeated_text_that_does_not_fit_in_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "a" * 2**10
    column = arrow.DictionaryArray.from_arrays(arrow.array(np.zeros(2**10, np.int8)), arrow.array([text]))
    file = tmp_path / "images.parquet"
    arrow.parquet.write_table(arrow.table({"path": column, "label": column}), file, store_schema=False)
    monkeypatch.setattr("trainable.data.table.available_bytes", lambda: 12 * 2**20)
    with pytest.raises(DataError, match=r"1,024 rows need about .* bytes of memory"):
        load(Data(path=str(file)))
