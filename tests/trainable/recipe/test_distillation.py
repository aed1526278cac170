"""Tests the section of a recipe that says what is learnt from a teacher."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from tests.trainable.small_runs import data_set
from tests.trainable.teachers import taught_recipe, write_teacher
from trainable.errors import ModelError, RecipeError, UserError
from trainable.models.make import count_parameters
from trainable.recipe import Recipe
from trainable.recipe.distillation import FeaturesTaught, LogitsTaught
from trainable.recipe.trained_files import parameters_in, teacher_files
from trainable.recipe.yamlfile import read_recipe, write_recipe
from trainable.run import make_run
from trainable.train import train


def taught(**values: Any) -> Recipe:
    return Recipe().with_values({"distillation.teacher": "teacher", **values})


def test_a_recipe_without_a_teacher_has_no_trace_of_one() -> None:
    plain = Recipe()
    assert "distillation" not in plain.tree()
    assert not [path for path, _ in plain.leaves() if path.startswith("distillation")]
    assert plain.digest() == "586201c81a59", "that of earlier versions"


def test_a_teacher_is_in_the_digest_and_can_be_left_out_again() -> None:
    assert taught().digest() != Recipe().digest()
    assert taught().with_values({"distillation": None}) == Recipe()


def test_logits_at_a_temperature_of_4_share_the_loss_with_the_labels_by_default() -> None:
    assert taught().distillation == LogitsTaught(teacher="teacher", temperature=4.0, weight=0.5)
    assert Recipe.from_tree({"distillation": {"teacher": "teacher"}}) == taught()


def test_another_kind_has_its_defaults_and_keeps_the_teacher_and_its_network() -> None:
    first = taught(**{"distillation.temperature": 2.0, "distillation.model.width": 32})
    second = first.with_values({"distillation.kind": "dkd", "distillation.beta": 2.0})
    assert second.get("distillation.teacher") == "teacher"
    assert second.get("distillation.model.width") == 32
    assert (second.get("distillation.temperature"), second.get("distillation.beta")) == (4.0, 2.0)
    third = second.with_values({"distillation.kind": "features"}).distillation
    assert isinstance(third, FeaturesTaught)


@pytest.mark.parametrize("kind", ["logits", "dkd", "features"])
def test_what_is_written_is_read_again(kind: str, tmp_path: Path) -> None:
    recipe = taught(**{"distillation.kind": kind, "distillation.model.kind": "unet_small"})
    write_recipe(tmp_path / "recipe.yaml", recipe)
    assert read_recipe(tmp_path / "recipe.yaml") == recipe


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"distillation.temperature": 2.0}, "distillation.temperature: this recipe learns from no teacher"),
        ({"distillation.kind": "dkd"}, "distillation.kind: this recipe learns from no teacher; write"),
        ({"distillation": {"kind": "dkd"}}, "distillation.teacher: is required"),
    ],
)
def test_values_without_a_teacher_are_one_clear_fault(values: dict[str, Any], fault: str) -> None:
    with pytest.raises(RecipeError, match=fault):
        Recipe().with_values(values)


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        (
            {"distillation.temperature": 0.0},
            "distillation.temperature: expected greater than or equal to 0.1",
        ),
        (
            {"distillation.kind": "features", "distillation.weight": 1.0},
            "distillation.weight: expected less than 1 with kind features: the head learns from the labels",
        ),
        ({"distillation.weight": 1.5}, "distillation.weight: expected less than or equal to 1, got 1.5"),
        ({"distillation.alpha": 1.0}, "distillation.alpha: unknown key"),
        ({"distillation.kind": "hints"}, "distillation.kind: expected one of 'logits', 'dkd', 'features'"),
        ({"distillation.model.weights": "w"}, "distillation.teacher names the weights; leave these out"),
        ({"distillation.kind": "features", "loop.compile": True}, "loop.compile: distillation.kind features"),
    ],
)
def test_faults_name_their_field(values: dict[str, Any], fault: str) -> None:
    with pytest.raises(RecipeError, match=fault):
        taught(**values)


# --- the files of a teacher ---------------------------------------------------------------------------


def test_the_parameters_of_a_file_are_those_of_its_network(tmp_path: Path) -> None:
    folder = write_teacher(tmp_path, loop__epochs=1)
    spec = taught_recipe(folder).distillation
    assert spec is not None
    run = make_run(taught_recipe(folder, model__width=16), data=data_set())
    assert parameters_in(teacher_files(spec).weights) == count_parameters(run.model)


@pytest.mark.parametrize(
    "content", [b"", b"\x08\0\0\0\0\0\0\0not json", b"\x02\0\0\0\0\0\0\0[]", b"\xff" * 16]
)
def test_other_bytes_are_no_weights(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(ModelError, match=r"distillation\.teacher: expected weights in safetensors"):
        parameters_in(file)
    assert parameters_in(tmp_path / "model.pth") is None


def test_a_file_of_weights_needs_a_recipe_beside_it_or_the_name_of_its_network(tmp_path: Path) -> None:
    save_file({}, tmp_path / "net.safetensors")
    alone = taught(**{"distillation.teacher": str(tmp_path / "net.safetensors")})
    assert alone.distillation is not None
    with pytest.raises(ModelError, match=r"with distillation\.model for its network; there is no .*recipe"):
        teacher_files(alone.distillation)
    named = alone.with_values({"distillation.model.width": 32}).distillation
    assert named is not None
    found = teacher_files(named)
    assert (found.weights, found.recipe) == (tmp_path / "net.safetensors", None)


# --- the files of a run that has a teacher --------------------------------------------------------------


def test_a_trained_recipe_names_its_teacher_by_an_absolute_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_teacher(Path("teacher"))
    train(taught_recipe("teacher", loop__epochs=1), data=data_set(), out="student")
    monkeypatch.chdir(tmp_path / "student")
    found = read_recipe(Path("recipe.yaml"))
    assert found.get("distillation.teacher") == str(tmp_path / "teacher")
    train(found, data=data_set())


@pytest.mark.parametrize("out", ["teacher", "link", "."])
def test_a_run_does_not_replace_its_own_teacher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    teacher = write_teacher(tmp_path / "teacher")
    (tmp_path / "link").symlink_to(teacher)
    monkeypatch.chdir(tmp_path if out != "." else teacher)
    before = (teacher / "model.safetensors").read_bytes()
    with pytest.raises(UserError, match=r"holds the teacher, .*model\.safetensors, which .* would replace"):
        train(taught_recipe(teacher), data=data_set(), out=out)
    assert (teacher / "model.safetensors").read_bytes() == before
