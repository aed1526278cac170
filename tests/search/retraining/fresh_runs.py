"""Makes what runs with fresh seeds have come to, as `tunebook train --json` prints it."""

from __future__ import annotations

from search.retraining.runs import Fresh
from trainable.recipe import Recipe


def fresh_run(seed: int, test: float, validation: float = 0.9, images: float = 0.0) -> Fresh:
    """Return a run with these accuracies, whose images alone leave the gap a standard error of `images`."""
    half = 2.5758293 * images
    gap = {"level": 0.99, "metrics": {"accuracy": {"interval": [-half, half]}}}
    scores = {"test_accuracy": test, "val_accuracy": validation, "validation_test_gap": gap}
    return Fresh(Recipe().with_values({"loop.seed": seed}), scores)
