"""Tests the checks of a network before training: its outputs, first loss and gradients."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainable.small_runs import CLASSES, SIZE, data_set, plain_net, small_recipe
from trainable.checks.gradients import check_gradients, check_model_gradients
from trainable.checks.networks import check_construction, check_initial_loss, check_outputs, initial_loss
from trainable.checks.subject import Subject, make_subject
from trainable.recipe import Recipe


def subject(model: nn.Module | None = None, recipe: Recipe | None = None) -> Subject:
    return make_subject(recipe or small_recipe(), data_set(), model, torch.device("cpu"), download=False)


# --- the first loss -----------------------------------------------------------------------------------


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
    run = subject(recipe=recipe).plain_run(32)
    with run.probing():
        assert check_initial_loss(run).level == "passed"


# --- outputs ------------------------------------------------------------------------------------------


class Answer(nn.Module):
    """Returns logits from a formula alone, and has one parameter so that it is a network."""

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
    run = subject(Answer(kind)).plain_run(8)
    images, _ = next(run.windows())[0]
    (found,) = check_outputs(run, images)
    assert found.level == level
    assert words in found.what


# --- construction -------------------------------------------------------------------------------------


def test_a_network_without_dropout_is_the_same_network() -> None:
    """The plain copy begins with the same weights, and answers twice alike while it trains."""
    recipe = small_recipe({"model.dropout": 0.5, "model.stochastic_depth": 0.5})
    made = subject(recipe=recipe)
    for (name, one), (_, other) in zip(
        made.untrained.state_dict().items(), made.without_drops.state_dict().items(), strict=True
    ):
        assert torch.equal(one, other), name
    images = torch.randn(8, 1, SIZE, SIZE)
    bare = made.without_drops.train()
    assert torch.equal(bare(images), bare(images))
    own = subject(plain_net(dropout=0.5))
    assert torch.equal(own.without_drops.train()(images.double()), own.without_drops(images.double()))
    assert not torch.equal(own.untrained.train()(images.double()), own.untrained(images.double()))


def test_the_networks_are_drawn_as_a_run_draws_them() -> None:
    from trainable.run import make_run

    recipe = small_recipe({"loop.seed": 7})
    run = make_run(recipe, data=data_set(), device=torch.device("cpu"))
    for one, other in zip(run.model.parameters(), subject(recipe=recipe).untrained.parameters(), strict=True):
        assert torch.equal(one, other)


def test_what_a_library_built_is_a_note_where_ones_own_is_a_warning() -> None:
    images = torch.randn(2, 1, SIZE, SIZE)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * SIZE**2, CLASSES)
    )
    own = subject(model)
    library = replace(own, is_own=False)
    levels = [
        next(each.level for each in check_construction(one, images) if each.check == "bias before norm")
        for one in (own, library)
    ]
    assert levels == ["warning", "note"]


# --- gradients ----------------------------------------------------------------------------------------


class Doubled(torch.autograd.Function):
    """Doubles the input, with a derivative that may be wrong."""

    @staticmethod
    def forward(context: Any, value: Tensor, slope: float) -> Tensor:
        context.slope = slope
        return 2.0 * value

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        return gradients[0] * context.slope, None


class Doubling(nn.Module):
    def __init__(self, slope: float) -> None:
        super().__init__()
        self.slope = slope

    def forward(self, value: Tensor) -> Tensor:
        doubled: Tensor = Doubled.apply(value, self.slope)
        return doubled


class InSinglePrecision(nn.Module):
    def forward(self, value: Tensor) -> Tensor:
        return value @ torch.ones(value.shape[1], 2)


@pytest.mark.parametrize(("slope", "level"), [(2.0, "passed"), (2.1, "error"), (0.0, "error")])
def test_a_backward_that_does_not_fit_its_forward_is_found(slope: float, level: str) -> None:
    found = check_gradients(Doubling(slope), (torch.randn(3, 4),))
    assert found.level == level
    assert "Doubling" in found.what


def test_a_layer_that_cannot_compute_in_fp64_is_a_note() -> None:
    assert check_gradients(InSinglePrecision(), (torch.randn(3, 4),)).level == "note"


@pytest.mark.parametrize("slope", [2.0, 2.5])
def test_a_wrong_layer_inside_a_network_is_named(slope: float) -> None:
    body = nn.Sequential(nn.Flatten(), Doubling(slope), nn.Linear(SIZE * SIZE, CLASSES))
    findings = list(check_model_gradients(subject(body)))
    assert len(findings) == 2  # the layer, and the whole
    assert {each.level for each in findings} == ({"passed"} if slope == 2.0 else {"error"})
    assert findings[0].what.startswith("1 (Doubling)")


@pytest.mark.parametrize("seed", range(3))
def test_kinks_of_relu_and_pooling_raise_no_alarm(seed: int) -> None:
    recipe = small_recipe({"loop.seed": seed, "model.width": 8})
    assert {each.level for each in check_model_gradients(subject(recipe=recipe))} == {"passed"}
    pooled = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, CLASSES)
    )
    assert {each.level for each in check_model_gradients(subject(pooled))} == {"passed"}
