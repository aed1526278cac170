"""Tests that an option means the same on every command, and sets in a study or a recipe what `--set` sets."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from search.commands import options
from search.commands.named import named_input
from search.commands.options import InputOptions, SearchOptions, StudyOptions
from search.study import Study
from trainable.bench import DeviceChoice
from trainable.errors import UserError
from trainable.probes import lr_find
from trainable.recipe import Recipe
from trainable.recipe.tasks import CLASSIFICATION
from trainable.recipe.yamlfile import write_recipe
from trainable.train_options import recipe_values, study_values

GIVEN: dict[str, Any] = {
    "model": "timm/resnet18",
    "weights": "none",
    "image_size": 32,
    "seed": 3,
    "metric": "val_loss",
    "device": DeviceChoice.CPU,
}


def test_options_set_a_studys_fields() -> None:
    study = named_input(InputOptions(file="digits", **GIVEN))
    same = [
        "base.model={kind: timm, name: resnet18}",
        "base.model.weights=null",
        "data.image_size=32",
        "seed=3",
        "objective.metric=val_loss",
        "resources.gpus=0",
    ]
    assert isinstance(study, Study)
    assert study.base_recipe() == _study(same).base_recipe()
    assert (study.seed, study.objective, study.resources) == (
        3,
        _study(same).objective,
        _study(same).resources,
    )


def _study(settings: list[str]) -> Study:
    study = named_input(InputOptions(data="digits", settings=settings))
    assert isinstance(study, Study)
    return study


def test_options_set_a_recipes_fields(tmp_path: Path) -> None:
    write_recipe(tmp_path / "recipe.yaml", Recipe())
    given = {name: value for name, value in GIVEN.items() if name != "metric"}
    recipe = named_input(InputOptions(file=str(tmp_path / "recipe.yaml"), **given))
    assert isinstance(recipe, Recipe)
    assert (recipe.model.kind, recipe.get("model.name"), recipe.model.weights) == ("timm", "resnet18", None)
    assert (recipe.data.image_size, recipe.loop.seed) == (32, 3)


def test_an_option_of_studies_alone_is_refused_with_a_recipe() -> None:
    with pytest.raises(UserError, match=r"--metric: sets objective\.metric of a study"):
        recipe_values(StudyOptions(metric="val_loss"), CLASSIFICATION)


def test_minutes_are_hours_and_both_are_refused() -> None:
    assert study_values(SearchOptions(minutes=30.0)) == {"budget.hours": 0.5}
    with pytest.raises(UserError, match=r"--hours and --minutes: both set budget\.hours"):
        study_values(SearchOptions(hours=1.0, minutes=30.0))


def test_a_setting_wins_over_an_option() -> None:
    study = named_input(InputOptions(file="digits", seed=3, settings=["seed=4", "optimizer.lr=0.3"]))
    assert isinstance(study, Study)
    assert (study.seed, study.base_recipe().optimizer.lr) == (4, 0.3)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("tf_efficientnet_lite0", "timm"), ("resnet18", "torchvision"), ("resnet50.a1_in1k", "timm")],
)
@pytest.mark.parametrize("file", ["digits", "small.yaml", "recipe.yaml"])
def test_a_networks_name_that_is_set_brings_the_library_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, name: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text("data: {path: digits}\nbase: {model: {kind: resnet_small}}\n")
    write_recipe(tmp_path / "recipe.yaml", Recipe())
    named = named_input(InputOptions(file=file, settings=[f"model.name={name}"]))
    recipe = named.base_recipe() if isinstance(named, Study) else named
    assert isinstance(recipe, Recipe)
    assert (recipe.model.kind, recipe.get("model.name")) == (kind, name)


@pytest.mark.parametrize("file", ["digits", "recipe.yaml"])
def test_a_networks_name_that_is_set_and_two_libraries_have_is_said_or_refused_with_close_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path / "recipe.yaml", Recipe())
    named_input(InputOptions(file=file, settings=["model.name=resnet18"]))
    assert capsys.readouterr().err == "resnet18 is torchvision's; timm/resnet18 names timm's\n"
    with pytest.raises(UserError, match=r"no library has .* did you mean .*resnet18"):
        named_input(InputOptions(file=file, settings=["model.name=resnet188"]))


def test_a_library_that_has_the_name_stays(tmp_path: Path) -> None:
    write_recipe(
        tmp_path / "recipe.yaml", Recipe().with_values({"model": {"kind": "timm", "name": "resnet34"}})
    )
    named = named_input(InputOptions(file=str(tmp_path / "recipe.yaml"), settings=["model.name=resnet18"]))
    assert isinstance(named, Recipe)
    assert named.model.kind == "timm"


def test_every_option_of_one_input_is_an_option_of_a_search() -> None:
    shared = {each.name for each in fields(InputOptions)}
    assert shared <= {each.name for each in fields(SearchOptions)}


def test_the_fewest_steps_of_a_sweep_are_those_of_the_probe() -> None:
    assert options.LEAST_STEPS == lr_find.LEAST_STEPS
