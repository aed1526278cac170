"""Tests whole bundles: what is in them, that files answer as the run does, and that no half is ever left."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from torch import nn

from tests.trainable.bundle.trained_networks import DIGITS, untrained
from tests.trainable.small_runs import SIZE, images
from trainable.bundle.measured import MeasuredBundle, checked_share
from trainable.bundle.programs import ExportError
from trainable.bundle.trained import in_fp32, scored_weights, trained, trained_in
from trainable.bundle.write import metrics_tree, write_bundle
from trainable.errors import ModelError, UserError
from trainable.models.weights import statistics_in
from trainable.origins import digests_of
from trainable.recipe import Recipe
from trainable.recipe.provenance import Provenance
from trainable.recipe.yamlfile import read_recipe
from trainable.run import make_run
from trainable.train import train
from trainable.training.answers import Answers
from trainable.training.bootstrap import Intervals
from trainable.training.evaluate import Scores

pytestmark = pytest.mark.usefixtures("few_passes")
FILES = {
    "README.md",
    "latency.json",
    "metrics.json",
    "model.onnx",
    "model.pt2",
    "model.safetensors",
    "predict.py",
    "recipe.yaml",
}
PHOTOGRAPHS: dict[str, Any] = {
    **DIGITS,
    "data.image_size": 32,
    "data.flips": ["horizontal"],
    "optimizer": {"kind": "adamw", "lr": 0.01},
    "loop.epochs": 2,
}
CUT: dict[str, Any] = {"evaluation.resize.kind": "center_crop", "evaluation.resize.ratio": 0.9}
VIEWS: dict[str, Any] = {"evaluation.flip": True, "evaluation.scales": [1.0, 0.75]}


@pytest.mark.slow("exports networks")
def test_what_train_left_becomes_a_bundle_whose_page_says_what_was_measured(tmp_path: Path) -> None:
    recipe = Recipe().with_values({**DIGITS, "loop.epochs": 1, "regularisation.averaging.kind": "ema"})
    outcome = train(recipe, out=tmp_path / "trained", test=True)
    said: list[str] = []
    write_bundle(trained_in(tmp_path / "trained"), tmp_path / "bundle", said.append)
    folder = tmp_path / "bundle"
    assert {each.name for each in folder.iterdir()} == FILES
    assert {each.name for each in tmp_path.iterdir()} == {"trained", "bundle"}
    metrics = json.loads((folder / "metrics.json").read_text())
    assert outcome.test is not None
    assert metrics["test_accuracy"] == pytest.approx(outcome.test.accuracy)
    assert metrics["same_top_class"] == {"model.onnx": 1.0, "model.pt2": 1.0}
    assert [line.split(":")[0] for line in said[1:]] == ["model.onnx", "model.pt2"]
    assert read_recipe(folder / "recipe.yaml").digest() == outcome.recipe.digest()
    before, after = load_file(tmp_path / "trained/model.safetensors"), load_file(folder / "model.safetensors")
    assert all(torch.equal(each, after[name]) for name, each in before.items())
    assert statistics_in(folder / "model.safetensors") is not None
    latency = json.loads((folder / "latency.json").read_text())
    assert [list(each["batches"]) for each in latency["files"].values()] == [["1", "2"]] * 2
    card = ModelCard.load(folder / "README.md")
    assert card.data.eval_results is not None
    (result,) = card.data.eval_results
    assert (result.dataset_split, result.metric_value) == ("test", round(outcome.test.accuracy, 4))
    assert "| epochs | 1 of the recipe's 1 |\n| images | 1,259 to train" in card.text
    assert "create_model" not in card.text  # timm builds no such network


@pytest.mark.data
@pytest.mark.integration
@pytest.mark.parametrize(
    "values",
    [{**CUT, "data.channels": 1}, {**VIEWS, "data.interpolation": "bicubic"}],
    ids=["grey, the middle", "colour, stretched, with views"],
)
def test_files_have_the_run_s_top_class_of_every_photograph(
    real_images: Path, tmp_path: Path, values: dict[str, Any]
) -> None:
    path = str(real_images / "sign-language-digits" / "Dataset")
    train(Recipe().with_values({**PHOTOGRAPHS, **values, "data.path": path}), out=tmp_path / "trained")
    write_bundle(trained_in(tmp_path / "trained"), tmp_path / "bundle")
    metrics = json.loads((tmp_path / "bundle" / "metrics.json").read_text())
    assert metrics["same_top_class"] == {"model.onnx": 1.0, "model.pt2": 1.0}
    assert metrics["images"] == 310
    columns = zip(*metrics["test_confusion"], strict=True)
    assert sum(any(column) for column in columns) > 3  # it answers with more than one class


def test_of_many_classes_the_metrics_have_the_most_frequent_confusions_and_no_matrix() -> None:
    known, count = untrained(), 300
    names = tuple(f"class {number}" for number in range(count))
    info = replace(known.data.info, classes=names, class_counts=(1,) * count)
    answers = Answers.of_logits(torch.eye(count, dtype=torch.float64).roll(1, 0), torch.arange(count))
    scores = Scores(1.0, 0.0, 0.0, 0.0, count, answers=answers)
    measured = MeasuredBundle("test", scores, Intervals({}, 1000), {"model.onnx": 1.0}, {})
    tree = metrics_tree(replace(known, data=replace(known.data, info=info)), measured)
    assert "test_confusion" not in tree
    assert len(tree["test_most_confused"]) == count
    assert tree["test_most_confused"][0] == {"true": "class 0", "predicted": "class 299", "images": 1}


def build(classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(SIZE * SIZE, classes))


def make() -> Any:
    return images(120, seed=0)


OWN: dict[str, Any] = {
    "data.path": "make",
    "data.format": "own",
    "data.test_fraction": 0.0,
    "model": {"kind": "own", "name": "build"},
    "loop": {"epochs": 1, "batch_size": 32},
    "precision.kind": "fp32",
}


def test_a_function_that_is_another_one_since_the_training_is_said_and_not_refused() -> None:
    known = Provenance(code={**digests_of(data=make), "model": "0" * 12})
    recipe = Recipe().with_values(OWN).model_copy(update={"provenance": known})
    (line,) = trained(recipe, {}, epochs=1, model=build, data=make).changed_code
    assert line.startswith("model: the source of this function is not that of the one")


@pytest.mark.slow("exports networks")
def test_your_own_network_and_images_become_a_bundle_from_python_also_without_a_test_part(
    tmp_path: Path,
) -> None:
    train(Recipe().with_values(OWN), model=build, data=make, out=tmp_path / "trained")
    with pytest.raises(
        UserError, match=r"code of yours, model=build, data=make, .*write the bundle from Python"
    ):
        trained_in(tmp_path / "trained")
    write_bundle(trained_in(tmp_path / "trained", model=build, data=make), tmp_path / "bundle")
    card = (tmp_path / "bundle" / "README.md").read_text()
    assert "There is no test part: **the recipe or its weights were chosen" in card
    assert "val_accuracy" in json.loads((tmp_path / "bundle" / "metrics.json").read_text())


def test_a_folder_that_is_not_empty_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="exists already; give a new folder for the bundle") as raised:
        write_bundle(untrained(), tmp_path)
    assert raised.value.exit_code == 2
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.slow("exports networks")
def test_a_file_that_answers_otherwise_leaves_no_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainable.bundle.measured.LEAST_SHARE", 1.1)  # no file can have so much
    trained = untrained({"model": OWN["model"]}, build)
    with pytest.raises(ExportError, match=r"^model\.onnx: its top class is the run's for 269 of 269 images"):
        write_bundle(trained, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_999_of_1000_equal_answers_are_enough_and_fewer_are_not() -> None:
    assert checked_share("model.onnx", 999, 1000, "images") == 0.999
    with pytest.raises(ExportError, match=r"for 998 of 1,000 images \(99\.80%\), expected at least 99\.9%"):
        checked_share("model.onnx", 998, 1000, "images")


@pytest.mark.slow("exports networks")
def test_the_weights_of_a_state_are_those_that_the_run_is_scored_with() -> None:
    recipe = Recipe().with_values({**DIGITS, "loop.epochs": 1, "regularisation.averaging.kind": "ema"})
    for each in (recipe, in_fp32(recipe)):
        run = make_run(each)
        run.step()
        found = scored_weights(run.state_dict())
        assert found.keys() == run.weights().keys()
        assert all(torch.equal(tensor, found[name]) for name, tensor in run.weights().items())
        run.close()


def test_other_images_than_those_of_the_training_are_refused(tmp_path: Path) -> None:
    recipe = Recipe().with_values({**DIGITS, "loop.epochs": 1})
    outcome = train(recipe, out=tmp_path)
    assert outcome.recipe.provenance is not None
    content = (tmp_path / "recipe.yaml").read_text()
    (tmp_path / "recipe.yaml").write_text(content.replace("split_seed: 0", "split_seed: 1"))
    with pytest.raises(UserError, match="not what the weights were trained with; put the former back"):
        trained_in(tmp_path)
    (tmp_path / "recipe.yaml").write_text(content)
    (tmp_path / "model.safetensors").write_bytes(b"half a file")
    with pytest.raises(UserError, match=r"model\.safetensors: cannot be read: "):
        trained_in(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match="no such file; a run that diverged leaves none"):
        trained_in(tmp_path)


def test_weights_of_another_network_or_without_numbers_are_refused(tmp_path: Path) -> None:
    known = untrained()
    other = replace(known, weights=untrained({**DIGITS, "model.width": 16}).weights)
    with pytest.raises(ModelError, match="the weights do not fit the recipe's network"):
        other.network()
    lost = replace(known, weights={name: each * float("nan") for name, each in known.weights.items()})
    with pytest.raises(UserError, match="numbers that are not finite"):
        write_bundle(lost, tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []
