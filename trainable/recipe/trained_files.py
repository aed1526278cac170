"""Finds a trained network on disk: what `train --out` left in a folder, or weights whose network is named.

It needs no torch: a safetensors file says in its first bytes which numbers it holds.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from trainable.errors import ModelError, UserError
from trainable.files.folders import refuse_existing
from trainable.files.paths import without_tilde
from trainable.recipe.distillation import MODEL, SECTION, TEACHER, Taught
from trainable.recipe.models import Model
from trainable.recipe.recipe import Recipe
from trainable.recipe.yamlfile import read_recipe

MODEL_FILE, RECIPE_FILE = "model.safetensors", "recipe.yaml"
ONNX_FILE = "model.onnx"  # a bundle has it
METRICS_FILE = "metrics.json"
SEARCH_FILE = "study.yaml"  # the folder of a search has it
PRUNED_FILE = "pruned.json"  # in what a network is narrower than the one that the recipe beside it builds
# Beside a pruned network, whose `recipe.yaml` is its fine-tuning: the recipe that trained the whole network
TRAINING_FILE = "training.yaml"
RECIPE_ENDINGS = (".yaml", ".yml")
# Tensors that are no parameters: training does not adjust them
STATISTICS_OF_NORMS = ("running_mean", "running_var", "num_batches_tracked")
# A safetensors file begins with the length of its header, little-endian, and then has the header in JSON
LENGTH_BYTES = 8


@dataclass(frozen=True)
class TrainedFiles:
    """The files of a trained network. `recipe` is None where its network is named instead."""

    weights: Path
    recipe: Recipe | None
    model: Model


def teacher_files(spec: Taught) -> TrainedFiles:
    """Return the files that `distillation.teacher` names.

    A folder has `model.safetensors` and `recipe.yaml`, a recipe has `model.safetensors` beside it, and beside
    any other file stands `recipe.yaml`, unless `distillation.model` names the network. Raises ModelError for
    what is missing, RecipeError for a recipe with faults.
    """
    named = without_tilde(spec.teacher)
    if named.is_dir():
        weights, recipe = named / MODEL_FILE, named / RECIPE_FILE
    elif named.suffix in RECIPE_ENDINGS:
        weights, recipe = named.parent / MODEL_FILE, named
    else:
        weights, recipe = named, named.parent / RECIPE_FILE
    if spec.model is not None:
        _check_there(spec, weights)
        return TrainedFiles(weights, None, spec.model)
    for file in (weights, recipe):
        _check_there(spec, file)
    found = read_recipe(recipe)
    return TrainedFiles(weights, found, found.model)


def of_pruned_network(file: Path, recipe: Recipe) -> str | None:
    """Return in words that the recipe in a file is the fine-tuning of a pruned network, and build the whole
    one; None for any other recipe. A copy of such a file says so by its provenance."""
    known = recipe.provenance
    beside = file.name == RECIPE_FILE and (file.parent / PRUNED_FILE).is_file()
    if not beside and (known is None or known.pruned is None):
        return None
    training = file.parent / TRAINING_FILE
    other = f"; {training} trained the whole one" if beside and training.is_file() else ""
    return (
        f"{file}: is the fine-tuning of a pruned network, and builds the whole network, not the pruned "
        f"one{other}"
    )


def with_absolute_teacher(recipe: Recipe) -> Recipe:
    """Return the recipe with the absolute path of its teacher, so that it means the same from any folder."""
    if recipe.distillation is None:
        return recipe
    return recipe.with_values({TEACHER: str(without_tilde(recipe.distillation.teacher).absolute())})


def refuse_trained(option: str, folder: Path) -> None:
    """Raise UserError where an option names the folder of a search, or of what an earlier training left."""
    if (folder / SEARCH_FILE).exists():
        raise UserError(f"{option}: {folder} is the folder of a search; name another one")
    for name in (MODEL_FILE, RECIPE_FILE, METRICS_FILE):
        refuse_existing(option, folder / name)


def check_keeps_teacher(out: Path, recipe: Recipe) -> None:
    """Raise UserError where the files that a run leaves in `out` would replace those of its own teacher."""
    if recipe.distillation is None:
        return
    weights = teacher_files(recipe.distillation).weights
    if weights.parent.resolve() == out.resolve():
        raise UserError(
            f"--out {out}: holds the teacher, {weights}, which {MODEL_FILE} and {RECIPE_FILE} of this run "
            "would replace; name another folder"
        )


def parameters_in(weights: Path) -> int | None:
    """Return how many parameters a safetensors file holds, by its header alone; None for any other file.

    Raises ModelError for a file without such a header.
    """
    if weights.suffix != ".safetensors":
        return None
    try:
        with weights.open("rb") as opened:
            length = int.from_bytes(opened.read(LENGTH_BYTES), "little")
            header = json.loads(opened.read(min(length, weights.stat().st_size)))
        shapes = {name: each["shape"] for name, each in header.items() if name != "__metadata__"}
        counts = [math.prod(each) for name, each in shapes.items() if not name.endswith(STATISTICS_OF_NORMS)]
        return int(sum(counts))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        raise ModelError(
            f"{TEACHER}: expected weights in safetensors in {weights}, got other bytes"
        ) from None


def _check_there(spec: Taught, file: Path) -> None:
    if file.is_file():
        return
    raise ModelError(
        f"{TEACHER}: {spec.teacher}: expected {MODEL_FILE} and {RECIPE_FILE}, which `train RECIPE --out DIR` "
        f"leaves in DIR, or a file of weights with {SECTION}.{MODEL} for its network; there is no {file}"
    )
