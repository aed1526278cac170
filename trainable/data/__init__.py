"""Reads images: data sets by name or path, split, decoded, and loaded in batches."""

from trainable.data.assembly import from_arrays, load
from trainable.data.dataset import DataInfo, DataSet, resolve
from trainable.data.parts import ArrayPart, FilePart, Part
from trainable.data.source import Split

__all__ = [
    "ArrayPart",
    "DataInfo",
    "DataSet",
    "FilePart",
    "Part",
    "Split",
    "from_arrays",
    "load",
    "resolve",
]
