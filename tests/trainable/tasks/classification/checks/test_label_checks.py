"""Tests the checks of a network of labels before training: its outputs and its first loss."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from tests.trainable.small_runs import CLASSES, small_recipe
from tests.trainable.small_subjects import small_subject
from trainable.tasks.classification.checks.label_checks import check_initial_loss, check_outputs, initial_loss


@pytest.mark.parametrize(
    ("loss", "level"),
    [
        (math.log(10), "passed"),
        (1.4 * math.log(10), "passed"),
        (1.6 * math.log(10), "warning"),
        (11 * math.log(10), "error"),
        (math.nan, "error"),
        (0.9 * math.log(10), "passed"),
        (0.5 * math.log(10), "warning"),
    ],
)
def test_the_first_loss_is_compared_with_that_of_guessing(loss: float, level: str) -> None:
    assert initial_loss(loss, 10).level == level


@pytest.mark.parametrize("initialisation", ["default", "kaiming", "xavier", "orthogonal"])
@pytest.mark.parametrize("seed", [0, 1])
def test_networks_as_they_are_initialised_begin_near_guessing(initialisation: str, seed: int) -> None:
    recipe = small_recipe({"model.initialisation": initialisation, "model.width": 16, "loop.seed": seed})
    run = small_subject(recipe).plain_run(32)
    with run.probing():
        assert check_initial_loss(run).level == "passed"


class Answer(nn.Module):
    """A network whose logits come from a formula alone; it has one parameter so that it is a network."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, images: Tensor) -> Tensor:
        logits = images.flatten(1)[:, :CLASSES] * self.weight
        match self.kind:
            case "softmax":
                return logits.softmax(1)
            case "log_softmax":
                return logits.log_softmax(1)
            case "mean of the batch":
                return logits - logits.mean(0)
            case "too many":
                return torch.cat([logits, logits], 1)
            case "inf":
                return logits + math.inf
        return logits


@pytest.mark.parametrize(
    ("kind", "level", "words"),
    [
        ("sound", "passed", "finite logits"),
        ("log_softmax", "passed", "finite logits"),  # which cross-entropy leaves as it is
        ("softmax", "warning", "softmax"),
        ("mean of the batch", "warning", "depends on the other images"),
        ("too many", "error", f"expected (8, {CLASSES})"),
        ("inf", "error", "inf"),
    ],
)
def test_outputs_that_are_no_logits_of_their_image_are_found(kind: str, level: str, words: str) -> None:
    run = small_subject(model=Answer(kind)).plain_run(8)
    images, _ = next(run.windows())[0]
    (found,) = check_outputs(run, images)
    assert found.level == level
    assert words in found.what
