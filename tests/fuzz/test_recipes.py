"""Fuzzes recipes: what is accepted makes a run, and most of these train; what is not is one clear message."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from torch import nn

from tests.fuzz import mutations
from tests.fuzz.bounds import Tally
from trainable.bench import ON_CPU
from trainable.data.assembly import load
from trainable.errors import FaultyInput, UserError
from trainable.recipe import Recipe
from trainable.recipe.models import OwnModel, ResNetSmall
from trainable.recipe.yamlfile import parse_tree, to_yaml
from trainable.run import make_run
from trainable.training.run import Run

VALUES: tuple[dict[str, Any], ...] = (
    {},
    {"optimizer.kind": "adamw", "schedule.kind": "onecycle", "augmentation.masking.kind": "gridmask"},
    {"optimizer.kind": "lamb", "regularisation.clipping.kind": "norm", "augmentation.crop.kind": "resized"},
    {"regularisation.averaging.kind": "ema", "regularisation.label_smoothing": 0.1, "loop.micro_batch": 4},
    {"optimizer.kind": "lars", "augmentation.mixing.kind": "cutmix", "schedule.kind": "poly"},
    {"optimizer.kind": "rmsprop", "augmentation.policy.kind": "randaugment", "loop.compile": True},
    {
        "model.kind": "own",
        "model.name": "build",
        "model.arguments.depth": 2,
        "model.arguments.width": 1.5,
        "model.arguments.norm": "batch",
        "model.arguments.bias": True,
    },
    {"model.layer_rates.kind": "decayed", "model.stochastic_depth": 0.1, "evaluation.scales": [1.0, 1.25]},
)
WIDTH = {"model.width": 4}
SMALL = {
    "loop.epochs": 2,
    "loop.batch_size": 8,
    "evaluation.norm_batches": 1,
    "precision.kind": "fp32",
}
BASE = tuple(
    Recipe().with_values({**({} if "model.kind" in values else WIDTH), **SMALL, **values})
    for values in VALUES
)
TREES: tuple[dict[str, Any], ...] = tuple(each.tree() for each in BASE)
TEXT = b"""version: 2
data: {path: digits, flips: [horizontal]}
model: {kind: resnet_small, width: 4}
optimizer: {kind: adamw, lr: 1e-3}
schedule:
  kind: cosine
  warmup_epochs: 0.5
augmentation: {crop: {kind: resized, scale_min: 0.35}}
loop: &loop {epochs: 2, batch_size: 8}
precision: {kind: fp32}
"""
NAMES = tuple(dict.fromkeys(name for path, _ in BASE[1].leaves() for name in path.split(".")))
# Width times depth: larger networks are only checked, as they take longer than an input may
MOST_WEIGHTS = 16 * 14
Extent = Literal["written", "made", "trained"]
# What is done with a recipe that is accepted: it is written and read again, makes a run, or is trained
EXTENTS: tuple[Extent, ...] = ("written", "made", "made", "trained")
TALLY = Tally()
pytestmark = pytest.mark.fuzz


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fuzz") / "set.npz"
    write_images(path)
    return path


def write_images(path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (60, 8, 8), dtype=np.uint8)
    np.savez(path, train_images=pixels, train_labels=np.arange(60) % 3)


def check_one(path: Path, luck: mutations.Luck) -> None:
    extent = luck.choice(EXTENTS)
    match luck.randrange(5):
        case 0:
            text = mutations.content(TEXT, luck)
            TALLY.shown = text
            TALLY.outcome(
                lambda: made(parse_tree(text.decode(errors="replace"), "recipe.yaml"), path, extent)
            )
            return
        case 1 | 2:
            tree = mutations.tree(luck.choice(TREES), luck, names=NAMES)
        case _:
            tree = mutations.crossed(TREES, luck)
    TALLY.shown = tree
    TALLY.outcome(lambda: made(tree, path, extent))


def parsed(text: bytes) -> dict[str, Any]:
    return parse_tree(text.decode(errors="replace"), "recipe.yaml")


def warm(path: Path) -> None:
    for tree in TREES:
        made(tree, path, "trained")  # imports what else the first input would wait for


def test_a_recipe_is_refused_at_once_or_makes_a_run(images: Path) -> None:
    warm(images)
    TALLY.try_all(lambda luck: check_one(images, luck))
    TALLY.check(least_share=0.2)


def made(tree: dict[str, Any], path: Path, extent: Extent) -> Recipe:
    """Read a recipe, and do as much with it as `extent` says, on a few small images if it names others."""
    recipe = Recipe.from_tree(tree, "recipe.yaml")
    if extent == "written":
        check_written(recipe)
    recipe = recipe.model_copy(
        update={"data": recipe.data.model_copy(update={"path": str(path), "format": "npz"})}
    )
    if extent in ("made", "trained") and is_small(recipe):
        data = load(recipe.data, resize=recipe.evaluation.resize)
        model = own_network if isinstance(recipe.model, OwnModel) else None
        run = make_run(recipe, data=data, model=model, bench=ON_CPU)
        try:
            if extent == "trained" and not recipe.loop.compile:  # compiling takes longer than an input may
                train(run)
        finally:
            run.close()
    return recipe


def own_network(classes: int, channels: int, **arguments: Any) -> nn.Module:
    convolution = nn.Conv2d(channels, 8, 3, padding=1)
    return nn.Sequential(convolution, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes))


def check_written(recipe: Recipe) -> None:
    try:
        again = Recipe.from_tree(parse_tree(to_yaml(recipe.tree(), {}), "written"))
    except FaultyInput as error:
        raise AssertionError(f"accepted, and then refused: {error}") from error
    assert again == recipe
    assert again.digest() == recipe.digest()


def train(run: Run) -> None:
    try:
        assert run.step().epoch == 1
    except UserError as error:
        raise AssertionError(f"accepted, and then refused: {error}") from error


def is_small(recipe: Recipe) -> bool:
    model, sizes = recipe.model, (recipe.data.image_size or 8, recipe.evaluation.norm_batches)
    few = not isinstance(model, ResNetSmall) or model.width * model.depth <= MOST_WEIGHTS
    return isinstance(model, ResNetSmall | OwnModel) and few and max(sizes) <= 32
