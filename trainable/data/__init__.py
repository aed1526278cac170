"""Reads images: data sets by name or path, split, decoded, and loaded in batches."""

from trainable.data.dataset import (
    ArrayPart,
    DataInfo,
    DataSet,
    FilePart,
    Part,
    PartName,
    from_arrays,
    load,
    load_for,
    resolve,
)

__all__ = [
    "ArrayPart",
    "DataInfo",
    "DataSet",
    "FilePart",
    "Part",
    "PartName",
    "from_arrays",
    "load",
    "load_for",
    "resolve",
]
