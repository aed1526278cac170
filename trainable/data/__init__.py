"""Reads images: data sets by name or path, split, decoded, and loaded in batches.

This hands out the values alone; what reads them is `trainable.data.assembly`.
"""

from trainable.data.dataset import DataSet, resolve
from trainable.data.info import DataInfo
from trainable.data.parts import ArrayPart, FilePart, Part
from trainable.recipe.data import Split

__all__ = [
    "ArrayPart",
    "DataInfo",
    "DataSet",
    "FilePart",
    "Part",
    "Split",
    "resolve",
]
