"""Writes a pruned network into a folder from which it can be loaded again."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import torch

from trainable.origins import versions
from trainable.probes.flops import count_flops
from trainable.recipe import Recipe
from trainable.recipe.provenance import Provenance
from trainable.recipe.trained_files import MODEL_FILE, PRUNED_FILE, RECIPE_FILE, TRAINING_FILE
from trainable.recipe.yamlfile import write_recipe, write_whole
from trainable.shrinking.shrink import Shrunk, recipe_network
from trainable.train import model_file
from trainable.training.devices import default_device, device_name
from trainable.training.run import PREFIXES


def write_shrunk(shrunk: Shrunk, folder: Path) -> None:
    """Write the best of the kept networks, as `tunebook train --out` would, and in what it is narrower.

    The folder then holds `recipe.yaml`, the fine-tuning, `model.safetensors`, `pruned.json`, and in
    `training.yaml` the recipe that trained the whole network, where that is known; `trained_in(FOLDER)` and
    `network_in(FOLDER)` read them.
    """
    recipe, best = _with_provenance(shrunk), shrunk.best
    write_recipe(folder / RECIPE_FILE, recipe)
    write_whole(folder / MODEL_FILE, model_file(best.weights, recipe, shrunk.trained.data.info))
    write_whole(folder / PRUNED_FILE, shrunk.widths.content())
    if (training := shrunk.trained.whole_training) is not None:
        write_recipe(folder / TRAINING_FILE, training)


def _with_provenance(shrunk: Shrunk) -> Recipe:
    """Return the recipe of the best network's fine-tuning, with what it scored and by what it was made.

    It names no objective: trained again, from the recipe's own network, it would not score the same.
    """
    best = shrunk.best
    scores = {
        name: value
        for part, each in best.scores.items()
        for name, value in each.metrics(PREFIXES[part]).items()
    }
    provenance = Provenance(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        metrics=scores,
        pruned=_share_of_own(shrunk),
        threads=torch.get_num_threads(),
        device=device_name(default_device()),
        versions=versions("torch-pruning"),
    )
    seeded = shrunk.recipe.with_values({"loop.seed": best.seed})
    rests_on = shrunk.origins.provenance()
    return seeded.model_copy(update={"provenance": provenance.model_copy(update=rests_on)})


def _share_of_own(shrunk: Shrunk) -> float:
    """Return the share that is left of the operations of the recipe's network, which may have been pruned
    before."""
    info = shrunk.trained.data.info
    own = count_flops(recipe_network(shrunk.trained), (info.channels, info.image_size, info.image_size))
    return round(shrunk.pruned.after.total / own.total, 4)
