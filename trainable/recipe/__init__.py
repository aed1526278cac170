"""One run as data: the Recipe, its sections and their YAML. It needs no torch."""

from trainable.recipe.recipe import LEARNING_RATES, REFERENCE_BATCH, Recipe, digest_of

__all__ = ["LEARNING_RATES", "REFERENCE_BATCH", "Recipe", "digest_of"]
