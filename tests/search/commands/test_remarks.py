"""Tests that each command which trains on images, or explains them, says once what is odd about them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from search.commands.asked import study_from
from search.commands.guests import ALL
from search.facts.hardware import local_hardware
from search.record.home import Home
from search.running.prepare import decide, load
from tests.search.command_line import Tunebook
from trainable.bench import Bench
from trainable.recipe import Recipe
from trainable.recipe.yamlfile import write_recipe

WITHOUT = "left out by data.min_images"


@pytest.fixture
def recipe(tunebook: Tunebook) -> Path:
    """Write a recipe of images in 16 levels, of which one class has too few."""
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [40, 40, 3])
    images = (random.integers(0, 16, (83, 8, 8)) + 60 * (labels == 1)[:, None, None]) // 5
    np.savez("data.npz", train_images=images.astype(np.uint8), train_labels=labels)
    tiny = {"model.kind": "resnet_small", "model.depth": 8, "model.width": 4, "loop.epochs": 1}
    data = {"data.path": "data.npz", "data.min_images": 10, "data.validation_fraction": 0.2}
    write_recipe(Path("recipe.yaml"), Recipe().with_values({**tiny, **data, "precision.kind": "fp32"}))
    return Path("recipe.yaml")


@pytest.mark.parametrize(
    "command",
    [
        "train",
        "explain",
        "lr-find --steps 30 --sweeps 1",
        "lr-find --steps 30 --sweeps 1 --json",
        pytest.param("check --seconds 1", marks=pytest.mark.slow("trains for its checks")),
    ],
)
def test_a_remark_on_the_images_is_said_once(command: str, recipe: Path, tunebook: Tunebook) -> None:
    name, *options = command.split()
    _, out, err = tunebook(name, recipe, *options)
    said = " ".join((err if "--json" in options else out).split())
    faint = "levels are in use" if name == "check" else "levels of 256"
    assert (said.count(WITHOUT), said.count(faint)) == (1, 1), said


def test_a_search_says_each_remark_once_before_its_trials(recipe: Path, tmp_path: Path) -> None:
    data = {"data.path": "data.npz", "data.min_images": 10, "data.validation_fraction": 0.2}
    study = study_from(None, {**data, "base.model": "resnet_small", "name": "told"})
    said: list[str] = []
    decide(load(study, Home(tmp_path), local_hardware(), bench=Bench(say=said.append), guests=ALL))
    assert [sum(words in line for line in said) for words in (WITHOUT, "levels of 256")] == [1, 1]
