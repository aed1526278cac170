"""`tunebook train`: one recipe, without a search."""

from __future__ import annotations

from trainable.collector import load_torch
from trainable.debug_tools import tools_named
from trainable.models.network_names import read_named_recipe
from trainable.recipe.data import refuse_missing
from trainable.recipe.trained_files import refuse_trained
from trainable.train_options import TrainOptions, recipe_with_options


def run_train(options: TrainOptions) -> int:
    """Train the recipe in a file, with what the options change, and print the result; return the exit code.
    Raises UserError, before torch is imported where it can be known then."""
    recipe = recipe_with_options(read_named_recipe(options.recipe), options)
    tools_named(options.debug or ())
    refuse_missing(recipe.data)
    if options.out is not None and not options.force:
        refuse_trained("--out", options.out)
    load_torch()
    from search.results.teachers import recipe_with_teacher
    from trainable.__main__ import train_recipe

    return train_recipe(recipe_with_teacher(recipe), options)
