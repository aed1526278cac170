"""Tests that a trained network becomes a smaller one in a folder, which is loaded and bundled again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainable.bundle.trained_networks import untrained
from tests.trainable.small_runs import SIZE, images, write_parts
from trainable.bench import ON_CPU
from trainable.bundle.trained import network_in, trained_in
from trainable.bundle.weights_alone import uses_of_weights, write_timm_files
from trainable.bundle.write import write_bundle
from trainable.errors import DataError, ModelError, UserError
from trainable.recipe import Recipe
from trainable.recipe.provenance import Provenance
from trainable.recipe.trained_files import PRUNED_FILE, TRAINING_FILE
from trainable.recipe.yamlfile import read_recipe, write_recipe
from trainable.shrinking.fine_tuning import fine_tuning, scores_of
from trainable.shrinking.prune import prune
from trainable.shrinking.shrink import (
    PRUNED,
    SCRATCH,
    TUNED,
    UNPRUNED,
    Shrunk,
    draw_narrow,
    shrink,
    write_shrunk,
)
from trainable.train import train

pytestmark = pytest.mark.usefixtures("few_rounds")

CPU = torch.device("cpu")
VALUES: dict[str, Any] = {
    "augmentation.crop.kind": "none",
    "precision.kind": "fp32",
    "optimizer.lr": 0.5,
    "loop": {"epochs": 2, "batch_size": 16},
}


def folder_of(tmp_path: Path, values: dict[str, Any] | None = None) -> Path:
    """Train a small recipe; return the folder that is left."""
    write_parts(tmp_path / "images.npz", other_kind=False)
    path = {"data.path": str(tmp_path / "images.npz")}
    train(
        Recipe().with_values({**VALUES, **path, **({"model.width": 8} if values is None else values)}),
        out=tmp_path / "trained",
    )
    return tmp_path / "trained"


def shrunk_of(folder: Path, share: float = 0.5, **options: Any) -> Shrunk:
    known = trained_in(folder)
    return shrink(known, fine_tuning(known.recipe), share, seeds=2, **options, bench=ON_CPU)


@pytest.mark.slow("trains and prunes networks")
def test_a_shrunk_network_is_loaded_scored_and_shrunk_again(tmp_path: Path) -> None:
    found = shrunk_of(folder_of(tmp_path), test=True, scratch=True)
    assert {name: len(each) for name, each in found.scores.items()} == {
        UNPRUNED: 1,
        PRUNED: 1,
        TUNED: 2,
        SCRATCH: 2,
    }
    assert found.parts == ("validation", "test")
    assert found.costs[PRUNED].flops <= 0.5 * found.costs[UNPRUNED].flops
    assert found.costs[PRUNED].parameters < found.costs[UNPRUNED].parameters
    assert found.costs[PRUNED].file_bytes < found.costs[UNPRUNED].file_bytes
    out = tmp_path / "small"
    write_shrunk(found, out)
    names = {"recipe.yaml", "model.safetensors", PRUNED_FILE, TRAINING_FILE}
    assert {each.name for each in out.iterdir()} == names
    again = trained_in(out)
    assert again.whole_training == found.trained.recipe
    narrow = again.network()
    assert all(torch.equal(each, found.best.weights[name]) for name, each in narrow.state_dict().items())
    noise = torch.randn(3, 1, SIZE, SIZE)
    assert torch.equal(network_in(out)(noise), narrow.eval()(noise))
    scores = scores_of(narrow, again.recipe, again.data, ("test",), ON_CPU)["test"]
    assert scores == found.best.scores["test"]
    known = read_recipe(out / "recipe.yaml").provenance
    assert known is not None
    assert known.objective is None
    assert known.metrics["test_accuracy"] == scores.accuracy
    assert "torch-pruning" in known.versions
    assert known.pruned == round(found.pruned.share, 4)
    smaller = shrunk_of(out)
    write_shrunk(smaller, tmp_path / "smaller")
    last = read_recipe(tmp_path / "smaller" / "recipe.yaml").provenance
    assert last is not None
    assert last.pruned == round(smaller.pruned.after.total / found.pruned.before.total, 4)
    assert smaller.costs[UNPRUNED].parameters == found.costs[PRUNED].parameters
    assert sum(each.numel() for each in trained_in(tmp_path / "smaller").network().parameters()) == (
        smaller.costs[PRUNED].parameters
    )


@pytest.mark.slow("trains and prunes networks")
@pytest.mark.usefixtures("few_passes")
def test_a_shrunk_network_becomes_a_bundle_that_can_be_loaded(tmp_path: Path) -> None:
    out = tmp_path / "small"
    write_shrunk(shrunk_of(folder_of(tmp_path)), out)
    write_bundle(trained_in(out), tmp_path / "bundle")
    noise = torch.randn(3, 1, SIZE, SIZE)
    assert torch.equal(network_in(tmp_path / "bundle")(noise), network_in(out)(noise))
    card = (tmp_path / "bundle" / "README.md").read_text()
    assert "# resnet_small, pruned, for 3 classes" in card
    assert "network_in" in card
    assert trained_in(tmp_path / "bundle").whole_training == trained_in(out).whole_training is not None
    metrics = json.loads((tmp_path / "bundle" / "metrics.json").read_text())
    assert metrics["same_top_class"] == {"model.onnx": 1.0, "model.pt2": 1.0}


@pytest.mark.slow("trains and prunes networks")
def test_a_bundle_does_not_say_that_timm_builds_a_pruned_network(tmp_path: Path) -> None:
    model = {"model": {"kind": "timm", "name": "mobilenetv3_small_050"}, "data.image_size": 32}
    known = untrained(model)
    pruned = prune(known.network(), (1, 32, 32), 0.5)
    narrow = replace(known, weights=pruned.network.state_dict(), widths=pruned.widths)
    write_timm_files(narrow, tmp_path)
    assert not any(tmp_path.iterdir())
    assert "create_model" in "".join(uses_of_weights(known))
    assert "create_model" not in "".join(uses_of_weights(narrow))


def test_a_network_of_your_own_is_shrunk_from_python(tmp_path: Path) -> None:
    def build(classes: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, classes))

    def make() -> Any:
        return images(60, 0)

    own = {"data.path": "make", "data.format": "own", "model": {"kind": "own", "name": "build"}}
    recipe = Recipe().with_values({**VALUES, **own})
    train(recipe, model=build, data=make, out=tmp_path / "trained")
    known = trained_in(tmp_path / "trained", model=build, data=make)
    found = shrink(known, fine_tuning(known.recipe), 0.5, seeds=2, scratch=True, bench=ON_CPU)
    write_shrunk(found, tmp_path / "small")
    assert trained_in(tmp_path / "small", model=build, data=make).network()[0].out_channels == 8
    assert network_in(tmp_path / "small", model=build)[3].in_features == 8 * 36


@pytest.mark.slow("trains and prunes networks")
def test_training_from_scratch_begins_from_other_weights_for_each_seed(tmp_path: Path) -> None:
    known = trained_in(folder_of(tmp_path))
    found = shrink(known, fine_tuning(known.recipe), 0.5, seeds=1, bench=ON_CPU)
    one, same, other = (draw_narrow(known, found.widths, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(one["stem.weight"], same["stem.weight"])
    assert not torch.equal(one["stem.weight"], other["stem.weight"])
    assert {name: each.shape for name, each in one.items()} == {
        name: each.shape for name, each in found.pruned.network.state_dict().items()
    }


def test_what_cannot_be_compared_is_refused_before_any_training(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    known = trained_in(folder)
    weights = known.recipe.with_values({"model.weights": "some.safetensors"})
    begun = type(known)(weights, known.data, known.weights, known.epochs)
    with pytest.raises(UserError, match=r"^--scratch: the recipe begins from the weights 'some.safetensors'"):
        shrink(begun, fine_tuning(weights), 0.5, scratch=True)
    (train_x, train_y), (val_x, val_y) = images(60, 0), images(60, 1)
    parts = {"train_images": train_x, "train_labels": train_y, "val_images": val_x, "val_labels": val_y}
    np.savez(tmp_path / "two.npz", allow_pickle=False, **parts)
    two = tmp_path / "without-test"
    train(known.recipe.with_values({"data.path": str(tmp_path / "two.npz")}), out=two)
    other = trained_in(two)
    with pytest.raises(DataError, match="there is no test part to score"):
        shrink(other, fine_tuning(other.recipe), 0.5, test=True)


@pytest.mark.slow("trains and prunes networks")
def test_the_objective_of_the_search_judges_a_network_that_is_pruned_again(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    recipe = read_recipe(folder / "recipe.yaml")
    assert recipe.provenance is not None
    known = recipe.provenance.model_copy(update={"objective": "val_loss"})
    write_recipe(folder / "recipe.yaml", recipe.model_copy(update={"provenance": known}))
    found = shrunk_of(folder)
    write_shrunk(found, tmp_path / "small")
    assert (found.metric, shrunk_of(tmp_path / "small").metric) == ("val_loss", "val_loss")


@pytest.mark.slow("trains and prunes networks")
def test_a_folder_with_widths_of_another_network_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    found = shrunk_of(folder)
    (folder / PRUNED_FILE).write_bytes(found.widths.content())
    with pytest.raises(ModelError, match="the weights do not fit the recipe's network"):
        network_in(folder)
    recipe = read_recipe(folder / "recipe.yaml")
    write_recipe(folder / "recipe.yaml", recipe.model_copy(update={"provenance": None}))
    with pytest.raises(UserError, match=r"recipe\.yaml: expected data\.channels, data\.image_size and prov"):
        network_in(folder)


@pytest.mark.parametrize("scratch", [False, True])
def test_a_teacher_that_has_changed_under_its_name_is_refused_before_any_training(
    tmp_path: Path, scratch: bool
) -> None:
    write_recipe(tmp_path / "recipe.yaml", Recipe())
    (tmp_path / "model.safetensors").write_bytes(b"others")
    taught = {"distillation.teacher": str(tmp_path)}
    whole = untrained()
    recipe = whole.recipe.with_values(taught).model_copy(
        update={"provenance": Provenance(teacher_digest="0" * 12)}
    )
    tuning = whole.recipe if scratch else fine_tuning(recipe)
    with pytest.raises(UserError, match=r"not the weights of the teacher .* --set distillation\.teacher=DIR"):
        shrink(replace(whole, recipe=recipe), tuning, 0.5, scratch=scratch, bench=ON_CPU)
