"""Reads images that are stored in Arrow files: their bytes as in an image file, or a path."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from trainable.array_types import Integers
from trainable.data.source import FileSource, Source, changed_ns, file_content, open_image
from trainable.data.table import MOST_BYTES, MOST_ROWS, check_memory
from trainable.errors import DataError
from trainable.files.paths import text_of
from trainable.files.regular import check_regular

if TYPE_CHECKING:
    import pyarrow
    from PIL import Image

TEXT_COLUMNS = 2  # of a saved set: the label and the path of each image


def open_table(files: Sequence[str]) -> pyarrow.Table:
    """Return the rows of Arrow streams, mapped and not read. Raises OSError, pyarrow's ArrowInvalid (a
    ValueError) among others."""
    import pyarrow as arrow

    tables = []
    for file in files:
        check_regular(file)
        tables.append(arrow.ipc.open_stream(arrow.memory_map(file)).read_all())
    table = arrow.concat_tables(tables)
    table.validate(full=True)
    return table


def paths_without_bytes(column: pyarrow.ChunkedArray) -> Iterator[tuple[int, str]]:
    """Yield the numbers of the rows, from 0 on, of a column of images that have a path and no bytes, with the
    path."""
    before = 0
    for chunk in column.chunks:
        for row in np.flatnonzero(chunk.field("bytes").is_null().to_numpy(zero_copy_only=False)).tolist():
            if path := chunk.field("path")[row].as_py():
                yield before + row, path
        before += len(chunk)


def check_declared(files: Sequence[str]) -> None:
    """Raise DataError where Arrow streams declare more rows, or more bytes of compressed buffers, than a set
    of images has, or than fit in memory. Raises what `open_table` does.

    Nothing is unpacked for it. Buffers that are not compressed are mapped, and take no memory.
    """
    rows = unpacked = 0
    for file in files:
        for more_rows, more_bytes in _declared(file):
            rows, unpacked = rows + more_rows, unpacked + more_bytes
        if rows > MOST_ROWS or unpacked > MOST_BYTES:
            raise DataError(
                f"{file}: up to here {rows:,} rows are declared, and {unpacked:,} bytes in compressed "
                f"buffers; expected at most {MOST_ROWS:,} rows and {MOST_BYTES:,} bytes. `save_to_disk` of "
                "`datasets` compresses nothing: load the set there and save it again"
            )
    check_memory(Path(files[-1]).parent, rows, rows * TEXT_COLUMNS, unpacked)


def _declared(file: str) -> Iterator[tuple[int, int]]:
    """Yield the rows of each batch of an Arrow stream, and the bytes that its compressed buffers declare.

    pyarrow does not tell the latter, so they are read from the header of each message, which pyarrow has
    verified (arrow.apache.org/docs/format/Columnar.html, "Recordbatch message" and "Compression").
    """
    import pyarrow as arrow

    check_regular(file)
    messages = arrow.ipc.MessageReader.open_stream(arrow.memory_map(file))
    for message in iter(lambda: _next_of(messages), None):
        header = memoryview(message.metadata)
        batch = _table_at(header, _field(header, _table_at(header, 0), 2))
        if message.type == "dictionary":
            batch = _table_at(header, _field(header, batch, 1))
        elif message.type != "record batch":
            continue
        rows = _whole(header, _field(header, batch, 0), 8) if message.type == "record batch" else 0
        yield rows, _unpacked(header, batch, message.body) if _field(header, batch, 3) else 0


def _next_of(messages: Any) -> Any:
    """Return the next message of a stream; None at its end."""
    try:
        return messages.read_next_message()
    except StopIteration:
        return None


def _unpacked(header: memoryview, batch: int, body: Any) -> int:
    """Return how many bytes a batch's buffers have unpacked; each begins with this number, or -1 where it is
    stored as it is."""
    at = _table_at(header, _field(header, batch, 2))
    total, content = 0, memoryview(body)
    for place in range(at + 4, at + 4 + 16 * _whole(header, at, 4), 16):
        start, length = _whole(header, place, 8), _whole(header, place + 8, 8)
        if length:
            total += max(0, _whole(content, start, 8))
    return total


def _whole(content: memoryview, at: int, size: int) -> int:
    return int.from_bytes(content[at : at + size], "little", signed=True)


def _table_at(header: memoryview, at: int) -> int:
    """Return where the table (or vector) begins that is referred to at a place of a flatbuffer."""
    return at + _whole(header, at, 4)


def _field(header: memoryview, table: int, number: int) -> int:
    """Return where a table of a flatbuffer has a field; 0 if it leaves that out."""
    slots = table - _whole(header, table, 4)
    slot = 4 + 2 * number
    offset = _whole(header, slots + slot, 2) if slot < _whole(header, slots, 2) else 0
    return table + offset if offset else 0


@final
class ArrowSource(Source):
    """The images in one column of a data set's Arrow files."""

    by_class = True

    def __init__(
        self,
        root: str,
        files: tuple[str, ...],
        column: str,
        rows: Integers,
        names: tuple[str, ...],
        labels: Integers,
    ) -> None:
        self.root, self.files, self.column = root, files, column
        self.rows = rows  # for each image, these are its rows in the files, [N]
        self.names, self.labels = names, labels

    def open(self, index: int) -> Image.Image:
        stored = self._stored(index)
        return open_image(io.BytesIO(stored) if isinstance(stored, bytes) else stored)

    def content(self, index: int) -> bytes:
        stored = self._stored(index)
        return stored if isinstance(stored, bytes) else file_content(stored)

    def _stored(self, index: int) -> bytes | str:
        """Return the bytes of an image, or the path of its file."""
        stored = self._images[int(self.rows[index])].as_py()
        if stored is None or (stored["bytes"] is None and not stored["path"]):
            raise ValueError("there is neither an image nor a path in this row")
        found: bytes | None = stored["bytes"]
        return found if found is not None else os.path.join(self.root, stored["path"])

    def name(self, index: int) -> str:
        """Return the image's path, or its row's number from 0 on, with that of the class in front."""
        return text_of(self.names[index]) if self.names[index] else f"row {int(self.rows[index])}"

    def sizes_and_times(self, indices: Integers) -> Integers:
        """Return the size of each image's bytes, and the newest time of change of the files that hold them;
        of an image that is stored as a path, those of its file."""
        from pyarrow.compute import binary_length

        sizes = np.concatenate(
            [
                binary_length(each.field("bytes")).fill_null(0).to_numpy(zero_copy_only=False)
                for each in self._images.chunks
            ]
        )
        times = np.full(len(sizes), max(changed_ns(os.stat(file)) for file in self.files), np.int64)
        if paths := dict(paths_without_bytes(self._images)):
            rows = np.intersect1d(self.rows[indices], list(paths))
            files = FileSource(self.root, [paths[row] for row in rows.tolist()], rows)
            sizes[rows], times[rows] = files.sizes_and_times(np.arange(len(rows))).T
        chosen = self.rows[indices]
        return np.stack([sizes[chosen].astype(np.int64), times[chosen]], axis=1)

    def files_by_path(self) -> Iterator[str]:
        """Yield the files of the images that are stored as a path alone."""
        return (os.path.join(self.root, path) for _, path in paths_without_bytes(self._images))

    @cached_property
    def _images(self) -> Any:
        return open_table(self.files).column(self.column)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_images"}  # it is opened again
