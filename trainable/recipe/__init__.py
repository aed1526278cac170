"""Describes one run as data: the Recipe, its sections and their YAML. It needs no torch."""

from trainable.recipe.recipe import REFERENCE_BATCH, Recipe

__all__ = ["REFERENCE_BATCH", "Recipe"]
