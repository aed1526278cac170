"""Tests what is said of a list that cannot be read as a table, and what is read all the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainable.data.table import read_table
from trainable.errors import DataError

ADVICE = "name them otherwise"


def fault_of(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        read_table(path, ["path", "label"], ["split"], ADVICE)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("a.png,cat\nb.png,dog\n", "its columns are a.png, cat"),
        ("# my images\npath,label\na.png,cat\n", "its columns are # my images"),
        ("file,species\na.png,cat\n", "its columns are file, species"),
    ],
    ids=["no header", "a comment", "other names"],
)
def test_a_first_line_that_names_no_column_is_told_what_it_must_be(
    tmp_path: Path, text: str, first: str
) -> None:
    fault = fault_of(tmp_path / "a.csv", text)
    assert f"there is no column 'path', 'label'; {first}" in fault
    assert f"; the first line must name the columns, such as path,label; {ADVICE}" in fault


@pytest.mark.parametrize(
    ("name", "between", "written"),
    [
        ("a.csv", ";", "path;label"),
        ("a.tsv", "\t", "path, label with tabs between them"),
        ("a.csv", "|", "path|label"),
    ],
)
def test_a_first_line_that_must_name_the_columns_is_written_with_the_separator_of_the_file(
    tmp_path: Path, name: str, between: str, written: str
) -> None:
    rows = f"a.png{between}cat\nb.png{between}dog\n"
    assert f"name the columns, such as {written}; {ADVICE}" in fault_of(tmp_path / name, rows)
    (tmp_path / name).write_text(f"path{between}label\n{rows}")
    table = read_table(tmp_path / name, ["path", "label"], [], ADVICE)
    assert table.columns == {"path": ["a.png", "b.png"], "label": ["cat", "dog"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("path,label\na.png;cat\n", "the header has 2 columns, but line 2 has 1; a row has ',' between"),
        (
            "path,label\na.png,cat\nb,1.png,dog\n",
            "2 columns, but line 3 has 3; a cell .*must stand in quotes",
        ),
        (
            'path,label\na.png,cat\n"b.png,dog\nc.png,cat\n',
            'line 3: is not valid CSV: .*; a cell .* any other "',
        ),
        ('path,label\n"a"b.png,cat\n', "line 2: is not valid CSV: ',' expected after '\"'; a cell that"),
        ("path,label,label\na.png,cat,dog\n", "there are several columns 'label'; rename all but the one"),
    ],
    ids=[
        "another separator",
        "more cells",
        "an open quote",
        "text behind a quote",
        "two columns of one name",
    ],
)
def test_what_is_wrong_with_a_row_or_the_header_is_said_with_what_to_do(
    tmp_path: Path, text: str, said: str
) -> None:
    assert re.search(rf"a\.csv: .*{said}", fault_of(tmp_path / "a.csv", text))


def test_cells_in_quotes_may_have_spaces_before_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('path,  "label"\n "a, 1.png",   "cat, big"\n"b.png", "dog"\n')
    table = read_table(tmp_path / "a.csv", ["path", "label"], [], ADVICE)
    assert table.columns == {"path": ["a, 1.png", "b.png"], "label": ["cat, big", "dog"]}


@pytest.mark.parametrize(
    ("label", "read"),
    [
        ('"says, ""hi"""', 'says, "hi"'),
        (' "quoted" cat', ' "quoted" cat'),
        (' 12" disc', ' 12" disc'),
        (' "a 12"" disc"', 'a 12" disc'),
        (' "cat"', "cat"),
    ],
)
def test_quotes_in_a_cell_change_nothing_in_the_others(tmp_path: Path, label: str, read: str) -> None:
    (tmp_path / "a.csv").write_text(f"path,label\n x.png,{label}\n")
    table = read_table(tmp_path / "a.csv", ["path", "label"], [], ADVICE)
    assert table.columns == {"path": [" x.png"], "label": [read]}


def test_spaces_that_may_belong_to_a_name_stay_where_nothing_is_in_quotes(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label,path\ncat, a.png\n")
    assert read_table(tmp_path / "a.csv", ["path"], [], ADVICE).columns == {"path": [" a.png"]}
