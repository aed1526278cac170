"""Tests segmentations that learn from a teacher: the pixels that count, and runs of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainable.small_runs import curve, data_set, small_recipe
from tests.trainable.small_segmentations import mask_data, mask_recipe, write_masks
from tests.trainable.teachers import write_teacher
from trainable.errors import ModelError
from trainable.recipe import Recipe
from trainable.recipe.tasks import IGNORED, Segmentation
from trainable.run import make_run
from trainable.tasks.distilled.task import Distilled
from trainable.tasks.distilled.teacher import Teacher
from trainable.tasks.segmentation.task import SegmentationTask, SlidingWindow
from trainable.train import train
from trainable.training.run import Run
from trainable.training.task import TrainingBatch

KINDS = ("logits", "dkd", "features")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_masks(tmp_path_factory.mktemp("masks"), 24)


@pytest.fixture(scope="module")
def teacher(root: Path) -> Path:
    recipe = mask_recipe(root, {"loop.epochs": 8})
    train(recipe, data=mask_data(recipe), out=root / "teacher")
    return root / "teacher"


def taught(root: Path, teacher: Path, values: dict[str, Any] | None = None) -> Recipe:
    wanted = {"model.width": 4, "distillation.teacher": str(teacher), **(values or {})}
    return mask_recipe(root, wanted)


def finished(recipe: Recipe) -> Run:
    run = make_run(recipe, data=mask_data(recipe))
    while not run.finished:
        run.step()
    return run


@pytest.mark.parametrize("kind", KINDS)
def test_a_smaller_network_learns_from_one_for_the_same_masks(root: Path, teacher: Path, kind: str) -> None:
    values = {"distillation.kind": kind, "augmentation.crop.kind": "scaled", "loop.epochs": 4}
    run = finished(taught(root, teacher, values))
    assert run.history[-1].train_loss < run.history[0].train_loss
    assert not run.diverged
    assert run.history[-1].teacher_seconds


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_in_parts_is_the_same(root: Path, teacher: Path, kind: str) -> None:
    """Also where images have other numbers of pixels that count, beyond their border."""
    values = {
        "distillation.kind": kind,
        "augmentation.crop.kind": "scaled",
        "model.freeze_norm": True,
        "regularisation.class_weights.kind": "inverse",
    }
    whole = finished(taught(root, teacher, values))
    cut = finished(taught(root, teacher, {**values, "loop.micro_batch": 1}))
    for mine, other in zip(curve(whole.history), curve(cut.history), strict=True):
        assert mine == pytest.approx(other, rel=1e-4, abs=1e-4)


def test_pixels_that_are_ignored_and_outputs_of_another_size_are_compared_right() -> None:
    """The teacher's answers are resized to the student's, and the mask shrinks to them."""
    student = torch.randn(2, 3, 4, 4, requires_grad=True)
    masks = torch.randint(0, 3, (2, 8, 8))
    masks[:, :, :4] = IGNORED
    task = SegmentationTask(Segmentation(), 3, SlidingWindow(8, 1 / 3))
    recipe = small_recipe({"distillation.teacher": "t", "distillation.weight": 1.0})
    assert recipe.distillation is not None
    teacher, images = known(torch.randn(2, 3, 2, 2)), torch.zeros(2, 3, 8, 8)
    taught = Distilled(task, recipe.distillation, teacher, nn.Linear(1, 1), data_set().info)
    taught.loss_of(taught.prepared(TrainingBatch((images, masks), images, masks)), student).backward()
    assert student.grad is not None
    assert torch.equal(student.grad[:, :, :, :2], torch.zeros(2, 3, 4, 2)), "nothing is learnt there"
    assert student.grad[:, :, :, 2:].abs().sum() > 0.0


class Constant(nn.Module):
    def __init__(self, answers: Tensor) -> None:
        super().__init__()
        self.answers = answers

    def forward(self, images: Tensor) -> Tensor:
        return self.answers


def known(answers: Tensor) -> Teacher:
    """Return a teacher that always answers so."""
    return Teacher(
        network=Constant(answers),
        as_known=lambda images: images,
        classes=None,
        autocast=torch.autocast("cpu", enabled=False),
        cut=None,
        digest="",
        recipe_digest=None,
    )


def test_a_teacher_of_images_does_not_teach_pixels(root: Path, tmp_path: Path) -> None:
    classifier = write_teacher(tmp_path, data_set())
    recipe = taught(root, classifier)
    with pytest.raises(ModelError, match=r"expected a teacher of task\.kind segmentation, got one of class"):
        make_run(recipe, data=mask_data(recipe))
