"""Tests what a study's first trials are trained as, which are outside the space, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from search.study import Study, StudyError
from search.study.first import FirstTrial
from search.study.first_trials import first_trials
from search.study.space import build_space
from spaces.priors import likeliest
from spaces.space import Space
from tests.search.planted_searches import Images
from tests.spaces.small_facts import digits_facts, masks_facts
from trainable.recipe import Recipe
from trainable.recipe.yamlfile import write_recipe


def study_of(*first: Any, **values: Any) -> Study:
    tree = {"data": {"path": "digits"}, "base": {"precision.kind": "fp32"}, "first": list(first)}
    return Study.from_tree(tree).with_values(
        {path.replace("__", "."): value for path, value in values.items()}
    )


def space_of(study: Study) -> Space:
    return build_space(study, digits_facts(), Images().info)


def trials_of(*first: Any, **values: Any) -> tuple[FirstTrial, ...]:
    study = study_of(*first, **values)
    return first_trials(study, space_of(study), Images().info)


def own(study: Study) -> Recipe:
    space = space_of(study)
    return space.recipe(space.own)


def faults_of(*first: Any, **values: Any) -> list[tuple[str, str]]:
    with pytest.raises(StudyError) as refused:
        trials_of(*first, **values)
    return [(fault.path, fault.message) for fault in refused.value.faults]


def test_values_stand_on_top_of_the_documented_recipe() -> None:
    (trial,) = trials_of({"optimizer.lr": 0.2})
    assert Recipe.from_tree(trial.recipe) == own(study_of()).with_values({"optimizer.lr": 0.2})
    assert (trial.source, trial.outside) == ("first.0 of the study", ())
    assert trial.values["optimizer.lr"] == 0.2


def test_nested_and_dotted_values_mean_the_same() -> None:
    assert trials_of({"optimizer": {"lr": 0.2}}) == trials_of({"optimizer.lr": 0.2})


def test_another_kind_has_the_values_that_the_space_believes_in_and_not_those_of_the_documented_one() -> None:
    (trial,) = trials_of({"optimizer.kind": "adamw"})
    (rate,) = (each for each in space_of(study_of()).dimensions if each.name == "optimizer.lr[adamw]")
    assert own(study_of()).get("optimizer.kind") == "sgd"
    assert trial.values["optimizer.lr"] == likeliest(rate.domain, rate.prior({}))
    assert trial.outside == ()


def test_what_a_search_fixes_or_draws_from_a_narrower_range_is_trained_as_written_and_named() -> None:
    far, batch = trials_of({"optimizer.lr": 1e5}, {"loop.batch_size": 17})
    assert Recipe.from_tree(far.recipe).get("optimizer.lr") == 1e5
    assert far.outside == ("optimizer.lr",)
    assert Recipe.from_tree(batch.recipe).loop.batch_size == 17
    assert batch.outside == ("loop.batch_size",)
    assert space_of(study_of()).named(batch.values)


def test_a_file_gives_way_to_the_data_length_seed_and_machine_of_the_search(tmp_path: Path) -> None:
    file, base = tmp_path / "best.yaml", own(study_of())
    other = {"loop.epochs": 77, "loop.seed": 5, "data.path": "/elsewhere", "precision.kind": "bf16"}
    write_recipe(file, base.with_values({**other, "optimizer.lr": 0.2}))
    (trial,) = trials_of(str(file))
    assert Recipe.from_tree(trial.recipe) == base.with_values({"optimizer.lr": 0.2})
    assert (trial.source, trial.outside) == (str(file), ())


def test_a_file_keeps_what_the_search_varies_even_of_a_machine(tmp_path: Path) -> None:
    file = tmp_path / "best.yaml"
    write_recipe(file, own(study_of()).with_values({"precision.kind": "bf16"}))
    varied = {"precision.kind": {"choice": ["fp32", "bf16"]}}
    (trial,) = trials_of(str(file), base={}, space__overrides=varied)
    assert (trial.values["precision.kind"], trial.outside) == ("bf16", ())
    assert trial.recipe["precision"]["kind"] == "bf16"


def test_a_file_with_other_fixed_fields_is_trained_as_written(tmp_path: Path) -> None:
    file = tmp_path / "best.yaml"
    write_recipe(file, own(study_of()).with_values({"model.width": 24, "optimizer.lr": 0.2}))
    (trial,) = trials_of(str(file))
    assert Recipe.from_tree(trial.recipe).get("model.width") == 24
    assert trial.outside == ("model.width",)


def test_a_number_that_is_no_option_is_trained_as_written_where_nothing_depends_on_it(tmp_path: Path) -> None:
    file, decay = tmp_path / "best.yaml", "regularisation.averaging.decay"
    averaged = own(study_of()).with_values({"regularisation.averaging.kind": "ema", decay: 0.123})
    write_recipe(file, averaged)
    mapping = {decay: 0.123, "regularisation.averaging.kind": "ema", "optimizer.lr": 1}
    for trial in trials_of(str(file), mapping):
        assert trial.recipe["regularisation"]["averaging"]["decay"] == 0.123
        assert (trial.values[decay], trial.outside) == (0.123, (decay,))


BATCHES = {"space__overrides": {"loop.batch_size": {"choice": [16, 32]}}}


def test_a_value_on_which_beliefs_depend_must_be_one_that_the_search_may_draw(tmp_path: Path) -> None:
    file, other = tmp_path / "best.yaml", tmp_path / "other.yaml"
    write_recipe(file, own(study_of()).with_values({"loop.batch_size": 17}))
    write_recipe(other, own(study_of()).with_values({"optimizer.kind": "timm", "optimizer.name": "lion"}))
    found = dict(faults_of(str(file), {"loop.batch_size": 18}, str(other), **BATCHES))
    assert list(found) == ["first.0.loop.batch_size", "first.1.loop.batch_size", "first.2.optimizer.name"]
    assert found["first.0.loop.batch_size"].startswith("expected one of 16, 32, got 17")
    assert "got 'lion'" in found["first.2.optimizer.name"]


@pytest.mark.parametrize(
    ("entry", "path", "message"),
    [
        ({"optimizer.lrr": 1.0}, "first.0.optimizer.lrr", "did you mean 'lr'"),
        ({"optimizer.lr": "many"}, "first.0.optimizer.lr", "expected a valid number, got 'many'"),
        ({"optimizer.kind": "lars"}, "first.0.optimizer.kind", "expected one of sgd, adamw"),
        ({"data.path": "x"}, "first.0.data.path", "cannot differ in a first trial"),
        ({"loop.epochs": 3}, "first.0.loop.epochs", "write budget.epochs"),
        ({"loop.seed": 3}, "first.0.loop.seed", "all trials share it; write it in the study's `base`"),
        ({"precision": {"kind": "bf16"}}, "first.0.precision.kind", "all trials share it"),
        ({"optimizer.lr": 0.1, "optimizer": {"lr": 0.2}}, "first.0.optimizer.lr", "is written twice"),
        ({"loop.batch_size": 50_000}, "first.0.loop.batch_size", "more than the"),
        ({"evaluation.flip": True}, "first.0.evaluation.flip", "a mirrored image must keep its label"),
        (
            {"augmentation.size": {"kind": "multi_scale", "smallest": 0.99, "largest": 1.0}},
            "first.0.augmentation.size",
            "widen smallest and largest",
        ),
        ({}, "first.0", "trial 0, the documented one"),
    ],
)
def test_what_is_no_trial_of_this_search_is_refused_by_its_place(
    entry: dict[str, Any], path: str, message: str
) -> None:
    ((where, what),) = faults_of(entry)
    assert where == path
    assert message in what


def test_every_fault_is_named_at_once() -> None:
    wrong = {"optimizer.kind": "lars"}
    again = {"optimizer.lr": 0.2}
    assert [path for path, _ in faults_of(wrong, again, again)] == ["first.0.optimizer.kind", "first.2"]


def test_first_trials_count_in_the_budget() -> None:
    assert len(trials_of({"optimizer.lr": 0.2}, budget__trials=2)) == 1
    ((path, message),) = faults_of({"optimizer.lr": 0.2}, budget__trials=1)
    assert (path, message) == (
        "first",
        "expected budget.trials of at least 2, the documented recipe among them, got 1",
    )


@pytest.mark.parametrize("entry", [3, None, "", ["a.yaml"]])
def test_an_entry_that_is_neither_a_file_nor_values_is_refused(entry: object) -> None:
    with pytest.raises(StudyError, match=r"first\.0: .*(path of a recipe's file|not a path)"):
        study_of(entry)


def test_files_that_hold_no_recipe_are_named_by_their_places_with_all_other_faults(tmp_path: Path) -> None:
    written = {
        "study": "data: {path: digits}\nbudget: {trials: 3}\n",
        "empty": "",
        "part": "optimizer: {lr: 0.2}\n",
        "typo": "data: {path: digits}\nmodel: {}\noptimiser: {}\n",
    }
    for name, text in written.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    study, empty, part, typo = (str(tmp_path / f"{name}.yaml") for name in written)
    none, uri = str(tmp_path / "none.yaml"), "s3://bucket/best.yaml"
    found = dict(faults_of(none, {"optimizer.kind": "lars"}, study, empty, part, typo, uri, budget__trials=9))
    places = [f"first.{at}" for at in range(7)]
    places[1], places[5] = "first.1.optimizer.kind", "first.5.optimiser"
    assert list(found) == places
    assert found["first.0"] == f"{none}: no such file"
    expected = "expected a recipe, which has data, model, optimizer and more"
    assert found["first.2"] == f"{study}: {expected}, got data and budget"
    assert found["first.3"] == f"{empty}: {expected}, got an empty file"
    assert found["first.4"] == f"{part}: {expected}, got optimizer"
    assert found["first.5.optimiser"].startswith("unknown key")
    assert found["first.5.optimiser"].endswith(f"(in {typo})")
    assert found["first.6"].startswith(f"{uri}: expected a file, got a URI")


def test_the_weights_of_a_first_trial_are_found_from_any_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (trial,) = trials_of({"model.weights": "mine.safetensors"})
    assert trial.recipe["model"]["weights"] == str(tmp_path / "mine.safetensors")


def test_paths_are_absolute_in_a_resolved_study(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    uri = "s3://bucket/best.yaml"  # it is refused later, as it was written
    study = study_of("best.yaml", {"optimizer.lr": 0.2}, uri).resolved("mine")
    assert study.first == (str(tmp_path / "best.yaml"), {"optimizer.lr": 0.2}, uri)
    assert Study.from_tree(study.model_dump(mode="json")) == study


# --- segmentations ------------------------------------------------------------------------------------

MASKS = {"kind": "segmentation", "masks": {"values": "binary"}}


def trials_of_masks(*first: Any) -> tuple[FirstTrial, ...]:
    """Return the first trials of a search that learns masks."""
    study = Study.from_tree(
        {"data": {"path": "nuclei"}, "base": {"task": MASKS, "precision.kind": "fp32"}, "first": list(first)}
    )
    images = Images(train=42, side=128).info
    labelled = replace(images, format="folder", classes=("0", "1"), class_counts=(42, 42))
    info = replace(labelled, task_kind="segmentation", pixel_counts=(9, 1))
    return first_trials(study, build_space(study, masks_facts(), info), info)


def test_a_first_trial_of_a_segmentation_has_another_loss_and_the_searchs_masks(tmp_path: Path) -> None:
    task = {"kind": "segmentation", "loss": {"dice": 0.5}, "overlap": 0.0}
    write_recipe(tmp_path / "mine.yaml", Recipe.from_tree({"task": task, "loop": {"batch_size": 4}}))
    changed, of_file = trials_of_masks({"task.loss.dice": 1.0}, str(tmp_path / "mine.yaml"))
    assert Recipe.from_tree(changed.recipe).get("task.loss.dice") == 1.0
    recipe = Recipe.from_tree(of_file.recipe)
    assert recipe.get("task.loss.dice") == 0.5
    assert (recipe.get("task.masks.values"), recipe.get("task.overlap")) == ("binary", 1 / 3)


def test_a_first_trial_of_another_task_or_other_masks_is_refused(tmp_path: Path) -> None:
    write_recipe(tmp_path / "labels.yaml", Recipe())
    with pytest.raises(StudyError, match=r"first\.0\.task\.kind: expected segmentation.*got classification"):
        trials_of_masks(str(tmp_path / "labels.yaml"))
    with pytest.raises(StudyError, match=r"task\.masks\.values: cannot differ in a first trial"):
        trials_of_masks({"task.masks.values": "index"})
