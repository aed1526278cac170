"""Counts the parameters of the network that a recipe learns from."""

from __future__ import annotations

from trainable.recipe import Recipe
from trainable.recipe.trained_files import STATISTICS_OF_NORMS, parameters_in, teacher_files


def teacher_parameters(base: Recipe) -> int | None:
    """Return how many parameters the teacher of a recipe has, by its file of weights; None without one.

    Raises ModelError where there is no such file, or none that can be read.
    """
    if base.distillation is None:
        return None
    weights = teacher_files(base.distillation).weights
    if (counted := parameters_in(weights)) is not None:
        return counted
    from trainable.models.weights import read_weights  # torch takes seconds to import

    state = read_weights(weights)
    return sum(each.numel() for name, each in state.items() if not name.endswith(STATISTICS_OF_NORMS))
