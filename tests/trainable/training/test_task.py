"""Tests how other tasks plug in: the loop trains what a Task says, whatever its outputs mean."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.trainable.small_runs import SIZE, small_recipe
from trainable.ranks import ALONE
from trainable.recipe import augmentations as specs
from trainable.tasks.classification.task import ClassificationTask
from trainable.training.answers import RankRows
from trainable.training.batches import MicroBatches, Order
from trainable.training.evaluate import Outputs, Scores, Tally, main_output
from trainable.training.precision import Compute
from trainable.training.step import TrainingStep
from trainable.training.task import BatchMixing, Task
from trainable.training.trainer import Trainer


class Brightness(Task):
    """How bright an image is: targets are numbers, the loss a squared error."""

    classes = 1
    guessing = 1.0

    def loss(self, outputs: Outputs, targets: Tensor) -> Tensor:
        return functional.mse_loss(main_output(outputs)[:, 0], targets)

    def right(self, output: Tensor, targets: Tensor) -> Tensor:
        return (output[:, 0] - targets).abs() < 0.1

    def mixing(self, spec: specs.Mixing) -> BatchMixing | None:
        return None

    def tally(self, device: torch.device, confusion: bool = False, rows: RankRows | None = None) -> Tally:
        raise AssertionError("not scored here")

    def worst(self, images: int = 0) -> Scores:
        raise AssertionError("not scored here")


def test_the_training_loop_takes_another_task() -> None:
    torch.manual_seed(0)
    images = torch.rand(64, 1, SIZE, SIZE)
    targets = images.mean((1, 2, 3))
    recipe = small_recipe({"optimizer.lr": 0.02, "loop.epochs": 30, "optimizer.weight_decay": 0.0})
    network = nn.Sequential(nn.Flatten(), nn.Linear(SIZE * SIZE, 1))
    compute = Compute(torch.device("cpu"), "fp32")
    step = TrainingStep(recipe, network, Brightness(), compute, MicroBatches.of(recipe.loop, ALONE))
    trainer = Trainer(recipe, step, Order(torch.zeros(64, dtype=torch.int64), recipe.loop), SIZE)
    results = [
        trainer.epoch(
            epoch,
            lambda first, epoch=epoch: (  # type: ignore[misc]
                (images[chosen], targets[chosen]) for chosen in trainer.order(epoch, first)
            ),
        )
        for epoch in range(30)
    ]
    assert results[-1].loss < 1e-3 < results[0].loss
    assert results[-1].accuracy > 0.9


def test_classification_is_cross_entropy_with_whole_or_mixed_labels() -> None:
    task = ClassificationTask(4, 0.1)
    logits, labels = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
    soft = functional.one_hot(labels, 4).double()
    expected = functional.cross_entropy(logits, labels, label_smoothing=0.1)
    torch.testing.assert_close(task.loss(logits, labels), expected)
    torch.testing.assert_close(task.loss(logits, soft), expected)
    assert task.right(soft, labels).all()
    mixed = torch.tensor([[0.7, 0.3, 0.0, 0.0]])
    assert task.right(torch.tensor([[0.0, 9.0, 0.0, 0.0]]), mixed).item() == pytest.approx(0.3)
    assert task.guessing == math.log(4)
    assert ClassificationTask(1).guessing == math.log(2)
