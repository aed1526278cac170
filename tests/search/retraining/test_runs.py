"""Tests that a recipe is trained again only with the images, weights and teacher that it was found with."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from search.retraining.runs import OriginsChanged, Retraining, retraining
from tests.trainable.small_images import write_classes
from tests.trainable.small_runs import images, small_recipe, write_parts
from trainable.bench import Bench
from trainable.errors import UserError
from trainable.origins import Origins
from trainable.recipe import Recipe
from trainable.recipe.provenance import Provenance


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Return a recipe of images in a file, with their digests and that of its weights."""
    write_parts(tmp_path / "parts.npz", other_kind=False)
    (tmp_path / "weights.pt").write_bytes(b"weights")
    weights = {"model.weights": str(tmp_path / "weights.pt"), "data.normalisation": "data"}
    found = small_recipe({"data.path": str(tmp_path / "parts.npz"), **weights})
    with retraining(found) as again:
        return found.model_copy(update={"provenance": Provenance(**again.origins.provenance())})


def change_parts(recipe: Recipe, change: str) -> None:
    """Blanks an image, relabels one, adds one, or leaves out the last of the training part."""
    file = Path(recipe.data.path)
    parts: dict[str, Any] = dict(np.load(file))
    match change:
        case "blanked":
            parts["train_images"][7] = 0
        case "relabelled":
            parts["test_labels"][7] = 1 - parts["test_labels"][7]
        case "added":
            more, labels = images(1, 9)
            parts["val_images"] = np.concatenate([parts["val_images"], more])
            parts["val_labels"] = np.concatenate([parts["val_labels"], labels])
        case "removed":
            parts["train_images"], parts["train_labels"] = (
                parts["train_images"][1:],
                parts["train_labels"][1:],
            )
    np.savez(file, **parts)


CHANGES = ("blanked", "relabelled", "added", "removed")


@pytest.mark.parametrize("change", CHANGES)
def test_other_images_are_refused_before_any_run(recipe: Recipe, change: str) -> None:
    change_parts(recipe, change)
    with pytest.raises(UserError, match="these are not the images") as refused, retraining(recipe):
        pytest.fail("nothing may be trained")
    assert recipe.provenance is not None
    assert f"(digest {recipe.provenance.data_digest}, now " in str(refused.value)
    assert "put back what the recipe was found with, or search again" in str(refused.value)


def test_images_that_are_stored_otherwise_are_those_that_the_recipe_was_found_with(tmp_path: Path) -> None:
    write_classes(tmp_path / "photos", {"a": 6, "b": 6})
    found = small_recipe({"data.path": str(tmp_path / "photos"), "data.format": "folder"})
    with retraining(found) as again:
        known = found.model_copy(update={"provenance": Provenance(**again.origins.provenance())})
    first = tmp_path / "photos" / "a" / "000.png"
    with Image.open(first) as image:
        image.save(first.with_name("000-small.bmp"))
    first.unlink()
    with retraining(known) as again:
        assert again.origins == Origins.of(known.provenance)


def test_a_recipe_of_an_earlier_version_is_told_to_search_again(recipe: Recipe) -> None:
    assert recipe.provenance is not None
    earlier = recipe.provenance.model_copy(update={"data_digest": "697267636c22f6a4"})
    found = recipe.model_copy(update={"provenance": earlier})
    with pytest.raises(UserError, match=r"search again with this version$") as refused, retraining(found):
        pytest.fail("nothing may be trained")
    assert "put back" not in str(refused.value)


def test_other_weights_are_refused_before_any_run(recipe: Recipe) -> None:
    Path(str(recipe.model.weights)).write_bytes(b"others")
    with pytest.raises(UserError, match=r"model\.weights: these are not the weights"), retraining(recipe):
        pytest.fail("nothing may be trained")


def test_all_that_has_changed_is_said_at_once(recipe: Recipe) -> None:
    change_parts(recipe, "blanked")
    Path(str(recipe.model.weights)).write_bytes(b"others")
    with pytest.raises(UserError, match=r"not the images .*; model\.weights: .*"), retraining(recipe):
        pytest.fail("nothing may be trained")


def test_images_that_change_while_runs_train_are_a_failure(recipe: Recipe) -> None:
    changed = pytest.raises(OriginsChanged, match=r"while the runs trained: data\.path")
    with changed as refused, retraining(recipe):
        change_parts(recipe, "relabelled")
    assert refused.value.exit_code == 1


def with_other_images(recipe: Recipe, test: bool, bench: Bench) -> tuple[int, Origins]:
    if recipe.loop.seed == 0:
        raise ValueError("no such thing")
    return recipe.loop.seed, Origins(images="others")


@pytest.mark.integration
def test_a_run_that_has_used_other_images_ends_all_and_one_that_failed_does_not() -> None:
    recipes = [Recipe().with_values({"loop.seed": seed}) for seed in range(2)]
    with closing(Retraining(Origins(images="known")).work(with_other_images, recipes)) as runs:
        assert next(runs).fault == "ValueError: no such thing"
        with pytest.raises(OriginsChanged, match=r"seed 1: while the runs .*\(digest known, now others\)"):
            next(runs)


def test_unchanged_images_are_no_fault(recipe: Recipe) -> None:
    with retraining(recipe) as again:
        assert again.origins == Origins.of(recipe.provenance)
