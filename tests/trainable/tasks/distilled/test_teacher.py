"""Tests that a teacher is found, is shown what its student sees, and answers in the student's classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.trainable.small_runs import CLASSES, SIZE, data_set, small_recipe
from tests.trainable.teachers import taught_recipe, write_teacher
from trainable.augmentation.sizes import resized
from trainable.data import ArrayPart, DataSet
from trainable.data.assembly import from_arrays
from trainable.errors import ModelError
from trainable.recipe import Recipe
from trainable.recipe.yamlfile import read_recipe, write_recipe
from trainable.run import make_run
from trainable.tasks.distilled.task import Distilled
from trainable.tasks.distilled.teacher import Teacher, class_order, conversion, misfit


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_teacher(tmp_path_factory.mktemp("teacher"))


def loaded(recipe: Recipe, data: DataSet | None = None) -> Teacher:
    run = make_run(recipe, data=data or data_set())
    assert isinstance(run.task, Distilled)
    return run.task.teacher


def seen(data: DataSet) -> torch.Tensor:
    """Return the validation images as a student takes them."""
    run = make_run(small_recipe(), data=data)
    (images,) = (images for images, _ in run.images.evaluate("validation"))
    return images


def trained(folder: Path, data: DataSet) -> nn.Module:
    """Return the network of a folder, as `train` left it."""
    run = make_run(read_recipe(folder / "recipe.yaml"), data=data)
    run.model.load_state_dict(load_file(folder / "model.safetensors"))
    return run.model.eval()


def test_a_teacher_answers_as_the_network_that_train_has_left(teacher: Path) -> None:
    images, data = seen(data_set()), data_set()
    with torch.no_grad():
        expected = trained(teacher, data)(images)
    for named in (teacher, teacher / "recipe.yaml", teacher / "model.safetensors"):
        torch.testing.assert_close(loaded(taught_recipe(named)).answers(images), expected)
    alone = taught_recipe(teacher / "model.safetensors", distillation__model__width=16)
    torch.testing.assert_close(loaded(alone).answers(images), expected)


def test_a_teacher_is_frozen_and_asks_for_no_gradient(teacher: Path) -> None:
    found = loaded(taught_recipe(teacher))
    assert not found.network.training
    assert not any(each.requires_grad for each in found.network.parameters())
    assert not found.answers(seen(data_set()).requires_grad_()).requires_grad


def test_its_digests_are_those_of_its_weights_and_its_recipe(teacher: Path) -> None:
    found = loaded(taught_recipe(teacher))
    assert found.recipe_digest == read_recipe(teacher / "recipe.yaml").digest()
    assert len(found.digest) == 12
    bare = taught_recipe(teacher / "model.safetensors", distillation__model__width=16)
    assert loaded(bare).recipe_digest is None


def test_classes_in_another_order_are_those_of_the_student(tmp_path: Path, teacher: Path) -> None:
    recipe = read_recipe(teacher / "recipe.yaml")
    assert recipe.provenance is not None
    images = seen(data_set())
    before = loaded(taught_recipe(teacher)).answers(images)
    turned = recipe.provenance.model_copy(update={"class_names": recipe.provenance.class_names[::-1]})
    (tmp_path / "model.safetensors").write_bytes((teacher / "model.safetensors").read_bytes())
    write_recipe(tmp_path / "recipe.yaml", recipe.model_copy(update={"provenance": turned}))
    assert torch.equal(loaded(taught_recipe(tmp_path)).answers(images), before.flip(1))


def test_the_order_of_classes() -> None:
    assert class_order(["a", "b"], ["a", "b"], "") is None
    assert class_order([], ["a", "b"], "") is None, "nothing names the teacher's classes"
    assert class_order(["c", "a", "b"], ["a", "b", "c"], "") == [1, 2, 0]


def test_images_are_converted_to_the_normalisation_channels_and_size_of_the_teacher() -> None:
    pixels = torch.rand(4, 3, 6, 6)
    ours, theirs = ((0.1, 0.2, 0.3), (0.5, 0.6, 0.7)), ((0.45,), (0.3,))
    mean, std = (torch.tensor(each).view(1, 3, 1, 1) for each in ours)
    network = nn.Conv2d(1, 1, 1)
    grey = (pixels * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)
    found = conversion(theirs, ours, 6, network)((pixels - mean) / std)
    torch.testing.assert_close(found, (grey - 0.45) / 0.3)
    back = conversion(ours, theirs, 12, network)((grey - 0.45) / 0.3)
    assert back.shape == (4, 3, 12, 12)
    small = torch.nn.functional.interpolate(back, size=(6, 6), mode="area")
    whole = conversion(ours, theirs, None, network)((grey - 0.45) / 0.3)
    torch.testing.assert_close(whole, (grey.expand(-1, 3, -1, -1) - mean) / std)
    assert (small - whole).abs().mean() < 0.2, "enlarged, it is the same picture"


def test_equal_statistics_change_no_digit() -> None:
    images, ours = torch.randn(2, 1, 6, 6), ((0.45,), (0.3,))
    assert conversion(ours, ours, 6, nn.Conv2d(1, 1, 1))(images) is images


def test_a_teacher_of_other_pixels_sees_them_in_its_own_way(tmp_path: Path) -> None:
    """The student's images have half the size, and are twice as bright."""
    known, data = enlarged(data_set(), 2), brighter(data_set())
    folder = write_teacher(tmp_path, known)
    assert isinstance(data.validation, ArrayPart)
    pixels = torch.from_numpy(data.validation.images).float() / 255.0
    normalised = resized((pixels - known.info.mean[0]) / known.info.std[0], 2 * SIZE)
    with torch.no_grad():
        expected = trained(folder, known)(normalised)
    found = loaded(taught_recipe(folder), data).answers(seen(data))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def enlarged(data: DataSet, times: int) -> DataSet:
    return changed(data, lambda pixels: pixels.repeat(times, -1).repeat(times, -2))


def brighter(data: DataSet) -> DataSet:
    return changed(data, lambda pixels: np.minimum(2 * pixels.astype(np.int64), 255).astype(np.uint8))


def changed(data: DataSet, change: Any) -> DataSet:
    held = [part for part in data.parts.values() if isinstance(part, ArrayPart)]
    assert len(held) == len(data.parts)
    parts = [(change(part.images[:, 0]), part.labels) for part in held]
    return from_arrays(*parts)


# --- what cannot teach --------------------------------------------------------------------------------


def refused(recipe: Recipe, data: DataSet | None = None) -> str:
    with pytest.raises(ModelError) as caught:
        make_run(recipe, data=data or data_set())
    return str(caught.value)


def test_a_missing_teacher_is_named_with_what_is_expected(tmp_path: Path) -> None:
    message = refused(taught_recipe(tmp_path / "nowhere"))
    assert message.startswith(f"distillation.teacher: {tmp_path}/nowhere: expected model.safetensors and")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert f"there is no {tmp_path}/recipe.yaml" in refused(taught_recipe(tmp_path))


def test_a_teacher_of_other_classes_is_refused_by_name_and_may_give_hints(teacher: Path) -> None:
    data = data_set()
    other = replace(data, info=replace(data.info, classes=("0", "1", "two")))
    message = refused(taught_recipe(teacher), other)
    assert "expected a teacher of the 3 classes of these images; it lacks two, and has others: 2" in message
    hints = taught_recipe(teacher, distillation__kind="features")
    assert loaded(hints, other).answers(seen(data)).shape == (20, 64)


def test_weights_that_do_not_fit_the_network_are_refused(teacher: Path) -> None:
    message = refused(taught_recipe(teacher / "model.safetensors", distillation__model__width=8))
    assert message.startswith("distillation.teacher: the weights in ")
    assert message.endswith("do not fit its network: stem.weight: expected (8, 1, 3, 3), got (16, 1, 3, 3)")


def test_weights_of_other_classes_are_refused_with_both_numbers(teacher: Path) -> None:
    data = data_set()
    more = replace(data, info=replace(data.info, classes=tuple("abcd"), class_counts=(5, 5, 5, 5)))
    message = refused(taught_recipe(teacher / "model.safetensors", distillation__model__width=16), more)
    assert "its head has 3 classes, the images have 4 (" in message
    assert message.endswith(
        "expected (4, 64), got (3, 64)); distillation.kind features needs no equal classes"
    )


def test_the_first_tensor_that_does_not_fit_is_named() -> None:
    network = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    state = network.state_dict()
    assert misfit(network, state) is None
    assert misfit(network, {**state, "more": torch.ones(2)}) == "more: expected no such tensor, got (2,)"
    del state["0.bias"]
    assert misfit(network, state) == "0.bias: expected (3,), got no such tensor"


class Odd(nn.Module):
    """A network with a last linear layer that it does not call."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(SIZE * SIZE, CLASSES)
        self.idle = nn.Linear(3, 3)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.body(images.flatten(1))
        return logits


def test_a_student_without_features_before_a_head_cannot_have_hints(teacher: Path) -> None:
    recipe = taught_recipe(teacher, distillation__kind="features")
    with pytest.raises(ModelError, match=r"distillation\.kind features: expected a network whose last"):
        make_run(recipe, data=data_set(), model=Odd())
