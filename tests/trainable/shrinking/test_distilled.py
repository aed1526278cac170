"""Tests that a pruned network learns from the whole one, and that pruned networks teach others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainable.shrinking.networks import assert_taught_by
from tests.trainable.small_runs import SIZE, data_set, small_recipe, write_parts
from tests.trainable.teachers import taught_recipe, write_teacher
from trainable.bench import ON_CPU, Bench
from trainable.bundle.trained import network_in, trained_in
from trainable.errors import ModelError, UserError
from trainable.models.weights import file_digest
from trainable.recipe import Recipe
from trainable.recipe.yamlfile import read_recipe
from trainable.run import make_run
from trainable.shrinking.fine_tuning import fine_tuning, taught_by
from trainable.shrinking.shrink import DISTILLED, PRUNED, TUNED, UNPRUNED, Shrunk, shrink, write_shrunk
from trainable.train import train

pytestmark = pytest.mark.usefixtures("few_rounds")

CPU = torch.device("cpu")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """The folder of a trained network of width 16."""
    write_parts(tmp_path / "images.npz", other_kind=False)
    values = {"data.path": str(tmp_path / "images.npz"), "model.width": 16, "optimizer.lr": 0.5}
    train(small_recipe(values), out=tmp_path / "whole")
    return tmp_path / "whole"


def distilled_of(folder: Path, values: dict[str, Any] | None = None) -> Shrunk:
    known = trained_in(folder)
    recipe = fine_tuning(known.recipe)
    taught = taught_by(recipe, folder).with_values(values or {})
    return shrink(known, recipe, 0.5, seeds=2, taught=taught, bench=ON_CPU)


def test_a_teacher_takes_the_place_of_another_one_and_how_is_learnt_stays() -> None:
    plain = taught_by(small_recipe(), Path("large"))
    assert plain.get("distillation") == {
        "kind": "logits",
        "teacher": "large",
        "temperature": 4.0,
        "weight": 0.5,
    }
    own = taught_recipe("other.pt", distillation__kind="dkd", distillation__model__width=4)
    found = taught_by(own.with_values({"distillation.weight": 0.25}), Path("large"))
    assert found.distillation is not None
    assert (found.distillation.kind, found.distillation.weight) == ("dkd", 0.25)
    assert (found.distillation.teacher, found.distillation.model) == ("large", None)


@pytest.mark.slow("trains and prunes networks")
def test_the_distilled_network_is_written_with_a_recipe_that_names_its_teacher(
    whole: Path, tmp_path: Path
) -> None:
    found = distilled_of(whole)
    assert {name: len(each) for name, each in found.scores.items()} == {
        UNPRUNED: 1,
        PRUNED: 1,
        TUNED: 2,
        DISTILLED: 2,
    }
    assert found.kept == DISTILLED
    assert [each.scores for each in found.tuned] == list(found.scores[DISTILLED])
    content = (whole / "model.safetensors").read_bytes()
    (whole / "model.safetensors").write_bytes(b"another teacher, which came once the networks were distilled")
    write_shrunk(found, tmp_path / "small")
    (whole / "model.safetensors").write_bytes(content)
    recipe = read_recipe(tmp_path / "small" / "recipe.yaml")
    assert recipe.get("distillation.teacher") == str(whole)
    assert recipe.provenance is not None
    assert recipe.provenance.teacher_digest == file_digest(whole / "model.safetensors")
    assert recipe.provenance.teacher_recipe == read_recipe(whole / "recipe.yaml").digest()
    said: list[str] = []
    outcome = train(recipe, bench=Bench(say=said.append))
    assert not outcome.diverged
    assert not any("teacher" in line for line in said), "it is the teacher that the provenance names"


@pytest.mark.slow("trains and prunes networks")
def test_both_fine_tunings_have_one_start_seeds_and_epochs_and_differ_by_the_teacher_alone(
    whole: Path,
) -> None:
    idle = distilled_of(whole, {"distillation.weight": 0.0})
    taught = distilled_of(whole, {"distillation.weight": 1.0})
    losses = [[each["validation"].loss for each in one.scores[TUNED]] for one in (idle, taught)]
    assert losses[0] == losses[1]
    assert [each["validation"].loss for each in idle.scores[DISTILLED]] == losses[0]
    assert [each["validation"].loss for each in taught.scores[DISTILLED]] != losses[0]
    assert [each.seed for each in taught.tuned] == [1, 2]


@pytest.mark.slow("trains and prunes networks")
@pytest.mark.parametrize("kind", ["dkd", "features"])
def test_other_kinds_of_distillation_train_a_pruned_network(whole: Path, kind: str) -> None:
    found = distilled_of(whole, {"distillation.kind": kind})
    assert all(each["validation"].finite for each in found.scores[DISTILLED])
    assert set(found.best.weights) == set(found.pruned.network.state_dict()), "the map of features is no part"


@pytest.mark.slow("trains and prunes networks")
def test_a_pruned_network_teaches_what_is_pruned_from_it(whole: Path, tmp_path: Path) -> None:
    write_shrunk(distilled_of(whole), tmp_path / "small")
    smaller = distilled_of(tmp_path / "small")
    assert smaller.recipe.get("distillation.teacher") == str(tmp_path / "small")
    assert smaller.costs[PRUNED].flops <= 0.5 * smaller.costs[UNPRUNED].flops
    write_shrunk(smaller, tmp_path / "smaller")
    recipe = read_recipe(tmp_path / "smaller" / "recipe.yaml")
    assert recipe.provenance is not None
    assert recipe.provenance.teacher_digest == file_digest(tmp_path / "small" / "model.safetensors")
    noise = torch.randn(3, 1, SIZE, SIZE)
    assert network_in(tmp_path / "smaller")(noise).shape == (3, 3)


@pytest.mark.slow("trains and prunes networks")
def test_what_cannot_teach_is_refused_before_any_training(whole: Path, tmp_path: Path) -> None:
    known = trained_in(whole)
    own = replace(known, build=lambda classes: torch.nn.Linear(1, classes))
    recipe, said = fine_tuning(known.recipe), list[str]()
    with pytest.raises(UserError, match=r"^distillation: resnet_small is code of yours, which no file names"):
        shrink(own, recipe, 0.5, taught=taught_by(recipe, whole))
    others = write_teacher(tmp_path / "others", data=data_set())
    (others / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"^distillation\.teacher: "):
        shrink(
            known,
            recipe,
            0.5,
            taught=taught_by(recipe, others),
            bench=Bench(device_name="cpu", say=said.append),
        )
    assert [line.partition(" to ")[0] for line in said] == ["pruned"]


@pytest.mark.slow("trains and prunes networks")
def test_a_network_without_a_teacher_names_none(whole: Path, tmp_path: Path) -> None:
    known = trained_in(whole)
    found = shrink(known, fine_tuning(known.recipe), 0.5, seeds=2, bench=ON_CPU)
    assert (found.kept, DISTILLED in found.scores) == (TUNED, False)
    write_shrunk(found, tmp_path / "small")
    recipe: Recipe = read_recipe(tmp_path / "small" / "recipe.yaml")
    assert recipe.distillation is None
    assert recipe.provenance is not None
    assert recipe.provenance.teacher_digest is None


@pytest.mark.slow("trains and prunes networks")
@pytest.mark.usefixtures("few_rounds")
def test_a_pruned_network_teaches_an_ordinary_recipe(tmp_path: Path) -> None:
    write_parts(tmp_path / "images.npz", other_kind=False)
    train(
        small_recipe({"data.path": str(tmp_path / "images.npz"), "optimizer.lr": 0.5}), out=tmp_path / "whole"
    )
    known = trained_in(tmp_path / "whole")
    write_shrunk(shrink(known, fine_tuning(known.recipe), 0.5, seeds=2, bench=ON_CPU), tmp_path / "small")
    values = {"data.path": known.recipe.data.path, "distillation.teacher": str(tmp_path / "small")}
    run = make_run(small_recipe(values))
    assert_taught_by(run, tmp_path / "small", torch.randn(3, 1, SIZE, SIZE))
    assert not run.step().diverged
    hints = make_run(small_recipe({**values, "distillation.kind": "features"}))
    assert not hints.step().diverged
    alone = {"distillation.teacher": str(tmp_path / "small" / "model.safetensors"), "distillation.model": {}}
    with pytest.raises(
        ModelError, match=r"pruned\.json stands beside these weights: .* without distillation"
    ):
        make_run(small_recipe({**values, **alone}))
