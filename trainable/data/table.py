"""Reads columns of text from a CSV or Parquet file."""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import compress, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trainable.errors import DataError, listed, quoted
from trainable.files.host_memory import available_bytes
from trainable.files.regular import check_regular, why
from trainable.recipe.data import PARQUET, SEPARATORS

if TYPE_CHECKING:
    import pyarrow

OTHER_SEPARATORS = (";", ",", "\t", "|")
MOST_BYTES = 2**31  # a larger file, or one that unpacks to more text, is no list of images
# The largest lists of images have so many, some 16 million; a compressed column may declare any number
MOST_ROWS = 2**24
# Excel writes and reads a first line that names what stands between cells
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?(?=\r?\n|\r)', re.IGNORECASE)
# What some programs write for a cell in quotes: a space before the first of them, which stands in no name
SPACED_QUOTES = re.compile(r' +"((?:[^"]|"")*)"')
HEAD_BYTES = 256
AS_UTF_8 = 'save it as CSV in UTF-8 (in Excel: "CSV UTF-8")'
SHORTEN = "see that this is the list of images, and keep fewer rows in it"
# Until its rows are checked, a list takes about so much memory: for a row, a cell, and the bytes of its text
# (peaks of 100,000 rows, short and long ones, CSV and Parquet, n=1 each)
ROW_BYTES, CELL_BYTES, TEXT_COPIES = 200, 170, 12


class CellTable(NamedTuple):
    """The columns that were asked for, as text; None for a cell without a value."""

    columns: dict[str, list[str | None]]
    # A person finds each row by this number: the line of a CSV file, or the row of a Parquet file
    numbers: list[int]
    unit: str  # what is numbered: `line` or `row`

    def only(self, used: Sequence[bool]) -> CellTable:
        """Return the rows that are used, with the numbers that they have."""
        return self._replace(
            columns={name: list(compress(column, used)) for name, column in self.columns.items()},
            numbers=list(compress(self.numbers, used)),
        )


def read_table(path: Path, required: Sequence[str], optional: Sequence[str], advice: str) -> CellTable:
    """Return the required columns, and those optional ones that are there; `advice` tells what to do where
    columns have other names.

    Raises DataError if the file cannot be read, a column is missing or occurs twice, rows have other numbers
    of cells than the header, or cells are neither text nor whole numbers.
    """
    try:
        if (size := check_regular(path).st_size) > MOST_BYTES:
            raise DataError(f"{path}: has {size:,} bytes; a manifest has at most {MOST_BYTES:,}; {SHORTEN}")
        read = _from_parquet if path.suffix.lower() in PARQUET else _from_csv
        return read(path, required, optional, advice)
    except DataError:
        raise
    except Exception as error:  # a damaged Parquet file raises nearly anything
        raise DataError(f"{path}: cannot be read as a table: {why(error)}") from error


def _from_csv(path: Path, required: Sequence[str], optional: Sequence[str], advice: str) -> CellTable:
    text = _decoded(path)
    if (said := SEPARATOR_LINE.match(text)) is not None:  # a blank line stays: rows keep their numbers
        separator, text = said[1], text[said.end() :]
    else:
        separator = _separator(text, SEPARATORS.get(path.suffix.lower(), ","), required)
    rows_at_most = 1 + max(text.count("\n"), text.count("\r"))
    check_memory(path, rows_at_most, rows_at_most + text.count(separator), TEXT_COPIES * len(text))

    def read(*, spaced: bool) -> CellTable:
        lines = io.StringIO(text, newline="")
        reader = csv.reader(lines, delimiter=separator, strict=True, skipinitialspace=spaced)
        rows = list(islice(_numbered(path, reader), MOST_ROWS + 2))  # the header, and one too many
        return _table_of(path, rows, separator, required, optional, advice)

    try:
        return read(spaced=False)
    except DataError as error:
        problem = error.with_traceback(None)  # so that its rows go before others are read
    if ' "' in text:  # there may be a separator in a cell that has a space before its quotes
        with suppress(DataError):
            return read(spaced=True)
    raise problem


def _table_of(
    path: Path,
    rows: Sequence[tuple[int, list[str]]],
    separator: str,
    required: Sequence[str],
    optional: Sequence[str],
    advice: str,
) -> CellTable:
    """Return the columns of the rows of a CSV file, each with its line. Raises DataError."""
    if not rows:
        raise DataError(f"{path}: is empty; expected a header and a row for each image")
    (_, header), *cells = rows
    if len(cells) > MOST_ROWS:
        raise DataError(f"{path}: has more than {MOST_ROWS:,} rows, the most of a manifest; {SHORTEN}")
    first_line = _first_line(header, separator, required)
    wanted = _wanted(path, header, required, optional, advice, first_line)
    if odd := [(number, len(row)) for number, row in cells if len(row) != len(header)]:
        named = listed([f"line {number} has {count}" for number, count in odd], 3)
        what = f"a row has {separator!r} between its cells, one for each column"
        if any(count > len(header) for _, count in odd):
            what = f"a cell that has {separator!r} in it must stand in quotes"
        raise DataError(f"{path}: the header has {len(header)} columns, but {named}; {what}")
    columns: dict[str, list[str | None]] = {
        name: [_without_quotes(row[position]) for _, row in cells] for name, position in wanted.items()
    }
    return CellTable(columns, [number for number, _ in cells], "line")


def _without_quotes(cell: str) -> str:
    """Return what stands in quotes that have spaces before them; any other cell as it is."""
    if cell[:1] != " " or (quoted_text := SPACED_QUOTES.fullmatch(cell)) is None:
        return cell
    return quoted_text[1].replace('""', '"')


def _first_line(header: Sequence[str], separator: str, required: Sequence[str]) -> str:
    """Return what to write as the first line, where it names no column: with what stands between its cells,
    as far as can be seen."""
    used = separator if len(header) > 1 else max([separator, *OTHER_SEPARATORS], key=header[0].count)
    example = f"{', '.join(required)} with tabs between them" if used == "\t" else used.join(required)
    return f"the first line must name the columns, such as {example}; "


def _decoded(path: Path) -> str:
    """Return the text of a file in UTF-8, or in UTF-16, as Excel writes "Unicode text"."""
    content = path.read_bytes()
    encoding = _encoding(content)
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        what = f"is not {encoding.removesuffix('-sig').upper()} at byte {error.start:,}"
        raise DataError(f"{path}: {what}; {AS_UTF_8}") from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise DataError(f"{path}: line {line} has a character of code 0, which no text has; {AS_UTF_8}")
    return text


def _encoding(content: bytes) -> str:
    """Return the encoding of a text: by its mark, or without one by the bytes of 0 that each letter of a
    header has in UTF-16."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    head = content[:HEAD_BYTES]
    zeros = [head[place::2].count(0) for place in (0, 1)]
    if max(zeros) <= len(head) // 8:  # a quarter of the characters
        return "utf-8-sig"
    return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"


def _separator(text: str, usual: str, required: Sequence[str]) -> str:
    """Return what stands between the cells of the header: the usual separator of such a file, unless another
    one finds more of the required columns, as where a spreadsheet writes decimals with a comma."""
    first = re.search(r"\S[^\r\n]*", text)  # to split all lines would take memory that nobody has counted
    header = first[0] if first is not None else ""

    def found(separator: str) -> int:
        names = next(csv.reader([header], delimiter=separator, skipinitialspace=True), [])
        return sum(_position(name, names) is not None for name in required)

    return max([usual, *OTHER_SEPARATORS], key=found)


def _position(wanted: str, names: Sequence[str]) -> int | None:
    """Return where a column is: the one of this name, else the only one that differs from it in spaces around
    it or the case of letters alone; None if there is none, or several."""
    if wanted in names:
        return names.index(wanted)
    return alike[0] if len(alike := _alike(wanted, names)) == 1 else None


def _alike(wanted: str, names: Sequence[str]) -> list[int]:
    return [at for at, name in enumerate(names) if name.strip().casefold() == wanted.strip().casefold()]


def _numbered(path: Path, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not blank, with the line where it begins. Raises DataError for one that is no
    CSV."""
    begins = 1
    try:
        for row in reader:
            if row:
                yield begins, row
            begins = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f'{path}: line {begins}: is not valid CSV: {error}; a cell that begins with " must end with it, '
            'and has any other " twice'
        ) from None


def _from_parquet(path: Path, required: Sequence[str], optional: Sequence[str], advice: str) -> CellTable:
    from pyarrow.parquet import ParquetFile
    from pyarrow.types import is_nested

    with ParquetFile(path) as file:
        names = file.schema_arrow.names
        wanted = {name: names[at] for name, at in _wanted(path, names, required, optional, advice).items()}
        flat = [each for each in wanted.values() if not is_nested(file.schema_arrow.field(each).type)]
        _check_declared(path, file.metadata, set(wanted.values()))
    own = list(wanted.values())
    with ParquetFile(path, read_dictionary=flat) as file:  # so that a cell that is repeated is there once
        table = file.read(columns=own)
    columns = {name: texts(table.column(each), f"{path}: column {each!r}") for name, each in wanted.items()}
    return CellTable(columns, list(range(1, table.num_rows + 1)), "row")


def _check_declared(path: Path, declared: Any, columns: set[str]) -> None:
    """Raise DataError where a file declares more rows or bytes than a manifest has, or than fit in memory:
    repeated cells take next to nothing in a file. `declared` is pyarrow's FileMetaData."""
    chunks = [
        group.column(at)
        for group in map(declared.row_group, range(declared.num_row_groups))
        for at in range(group.num_columns)
    ]
    unpacked = sum(
        each.total_uncompressed_size for each in chunks if each.path_in_schema.partition(".")[0] in columns
    )
    if declared.num_rows > MOST_ROWS or unpacked > MOST_BYTES:
        raise DataError(
            f"{path}: declares {declared.num_rows:,} rows, and {unpacked:,} bytes of the columns that are "
            f"read; a manifest has at most {MOST_ROWS:,} rows and {MOST_BYTES:,} bytes of them; {SHORTEN}"
        )
    check_memory(path, declared.num_rows, declared.num_rows * len(columns), TEXT_COPIES * unpacked)


def check_memory(where: object, rows: int, cells: int, others: int) -> None:
    """Raise DataError where so many rows and cells of text, and so many other bytes, do not fit in the free
    memory."""
    needed, free = rows * ROW_BYTES + cells * CELL_BYTES + others, available_bytes()
    if needed > free:
        raise DataError(
            f"{where}: {rows:,} rows need about {needed:,} bytes of memory, and {free:,} are free; "
            f"{SHORTEN}, or use a machine with more memory"
        )


def _check_expanded(column: pyarrow.ChunkedArray, where: str) -> None:
    """Raise DataError where cells that name their text by a number, or by its place, are more text than a
    manifest has, or than fits in the free memory."""
    if (size := sum(map(_text_bytes, column.chunks))) > MOST_BYTES:
        raise DataError(
            f"{where}: unpacks to {size:,} bytes; a manifest has at most {MOST_BYTES:,}; {SHORTEN}"
        )
    check_memory(where, len(column), len(column), TEXT_COPIES * size)


def _text_bytes(chunk: pyarrow.Array) -> int:
    """Return how many bytes the text of an array's cells has, once it is written out."""
    import pyarrow as arrow
    from pyarrow import compute

    if arrow.types.is_string_view(chunk.type):
        views = np.frombuffer(chunk.buffers()[1], np.int32).reshape(-1, 4)  # a length, and where the text is
        return (
            int(views[chunk.offset : chunk.offset + len(chunk), 0].sum(dtype=np.int64)) if len(chunk) else 0
        )
    lengths = compute.binary_length(chunk.dictionary.cast("large_string"))
    return compute.sum(lengths.take(chunk.indices)).as_py() or 0


def texts(column: pyarrow.ChunkedArray, where: str) -> list[str | None]:
    """Return a column's values as text; whole numbers that are stored as floats, since some are missing, as
    whole numbers. Raises DataError for other types than text, whole numbers and truth values."""
    import pyarrow as arrow

    kind = column.type
    if arrow.types.is_dictionary(kind):
        kind = kind.value_type
        _check_expanded(column, where)
        column = column.cast(kind)
    elif arrow.types.is_string_view(kind):
        _check_expanded(column, where)
    elif arrow.types.is_null(kind):
        return [None] * len(column)
    known = (
        arrow.types.is_integer,
        arrow.types.is_string,
        arrow.types.is_large_string,
        arrow.types.is_string_view,
        arrow.types.is_boolean,
    )
    if arrow.types.is_floating(kind):
        numbers = [None if value is None or math.isnan(value) else value for value in column.to_pylist()]
        if all(value is None or value.is_integer() for value in numbers):
            return [None if value is None else str(int(value)) for value in numbers]
    if not any(is_kind(kind) for is_kind in known):
        raise DataError(
            f"{where}: expected text or whole numbers, got {kind}; data.columns names another column, or "
            "write this one as text"
        )
    return [None if value is None else str(value) for value in column.to_pylist()]


def _wanted(
    path: Path,
    found: Sequence[str],
    required: Sequence[str],
    optional: Sequence[str],
    advice: str,
    first_line: str = "",
) -> dict[str, int]:
    """Return the positions of the columns to read, by name; `first_line` tells what to do where the first row
    may be none of names."""
    if twice := [name for name in (*required, *optional) if list(found).count(name) > 1]:
        named = listed([quoted(name) for name in twice])
        raise DataError(f"{path}: there are several columns {named}; rename all but the one that is meant")
    for name in (*required, *optional):
        if name not in found and len(alike := _alike(name, found)) > 1:
            named = listed([quoted(found[at]) for at in alike])
            raise DataError(f"{path}: {named} may all be the column {quoted(name)}; {advice}")
    places = {name: _position(name, found) for name in (*required, *optional)}
    if missing := [name for name in required if places[name] is None]:
        columns = listed(list(found), 20) or "none"
        named = listed([quoted(name) for name in missing])
        first = first_line if len(missing) == len(required) else ""
        raise DataError(f"{path}: there is no column {named}; its columns are {columns}; {first}{advice}")
    return {name: at for name, at in places.items() if at is not None}
