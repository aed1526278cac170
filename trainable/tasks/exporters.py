"""Which class answers for the task of a trained network, where it is written, served and described."""

from __future__ import annotations

from typing import assert_never

from trainable.data import DataInfo
from trainable.recipe import Recipe
from trainable.recipe.tasks import Classification, Segmentation
from trainable.tasks.classification.exported.labels import LabelExporter
from trainable.tasks.exporter import Exporter
from trainable.tasks.segmentation.exported.masks import MaskExporter


def exporter_of(recipe: Recipe, info: DataInfo) -> Exporter:
    """Return the answers about the network of a recipe for the images that `info` describes."""
    match recipe.task:
        case Classification():
            return LabelExporter(recipe, info)
        case Segmentation():
            return MaskExporter(recipe, info, recipe.task)
        case _:
            assert_never(recipe.task)
