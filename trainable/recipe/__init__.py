"""What one run is, as data: the Recipe, its sections, YAML. Needs no torch."""

from trainable.recipe.recipe import REFERENCE_BATCH, Recipe

__all__ = ["REFERENCE_BATCH", "Recipe"]
