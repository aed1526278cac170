"""Reads images that are stored in Arrow files: their bytes as in an image file, or a path."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np
from PIL import Image

from trainable.data.source import Integers, Source, changed_ns, file_content, open_image
from trainable.files.paths import text_of
from trainable.files.regular import check_regular

if TYPE_CHECKING:
    import pyarrow


def open_table(files: Sequence[str]) -> pyarrow.Table:
    """Returns the rows of Arrow streams, mapped and not read. Raises OSError, pyarrow's ArrowInvalid (a
    ValueError) among others."""
    import pyarrow as arrow

    tables = []
    for file in files:
        check_regular(file)
        tables.append(arrow.ipc.open_stream(arrow.memory_map(file)).read_all())
    table = arrow.concat_tables(tables)
    table.validate(full=True)
    return table


@final
class ArrowSource(Source):
    """Reads the images in one column of a data set's Arrow files."""

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
        self.rows = rows
        """For each image, these are its rows in the files, [N]."""
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
        """Returns the image's path, or its row's number from 0 on, with that of the class in front."""
        return text_of(self.names[index]) if self.names[index] else f"row {int(self.rows[index])}"

    def sizes_and_times(self, indices: Integers) -> Integers:
        """Returns the size of each image's bytes, 0 for a path, and the files' newest time of change."""
        from pyarrow.compute import binary_length

        sizes = np.concatenate(
            [
                binary_length(each.field("bytes")).fill_null(0).to_numpy(zero_copy_only=False)
                for each in self._images.chunks
            ]
        )
        newest = max(changed_ns(os.stat(file)) for file in self.files)
        chosen = sizes[self.rows[indices]].astype(np.int64)
        return np.stack([chosen, np.full(len(indices), newest, np.int64)], axis=1)

    @cached_property
    def _images(self) -> Any:
        return open_table(self.files).column(self.column)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_images"}  # it is opened again
