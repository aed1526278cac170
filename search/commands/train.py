"""`tunebook train`: one recipe, without a search."""

from __future__ import annotations

from trainable.__main__ import asked_recipe, train_recipe
from trainable.train_options import TrainOptions


def run_train(options: TrainOptions) -> int:
    """Train the recipe in a file, with what the options change, and print the result; return the exit code.
    Raises UserError, before torch is imported where it can be known then."""
    recipe = asked_recipe(options)
    from search.results.teachers import recipe_with_teacher  # what reads searches takes a while to import

    return train_recipe(recipe_with_teacher(recipe), options)
