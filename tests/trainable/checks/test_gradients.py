"""Tests that wrong gradients are found, and right ones pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.trainable.small_runs import CLASSES, SIZE, small_recipe
from tests.trainable.small_subjects import small_subject
from trainable.checks.gradients import check_gradients, check_model_gradients


class Doubled(torch.autograd.Function):
    """The input doubled, with a derivative that may be wrong."""

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
    findings = list(check_model_gradients(small_subject(model=body)))
    assert len(findings) == 2  # the layer, and the whole
    assert {each.level for each in findings} == ({"passed"} if slope == 2.0 else {"error"})
    assert findings[0].what.startswith("1 (Doubling)")


@pytest.mark.parametrize("seed", range(3))
def test_kinks_of_relu_and_pooling_raise_no_alarm(seed: int) -> None:
    recipe = small_recipe({"loop.seed": seed, "model.width": 8})
    assert {each.level for each in check_model_gradients(small_subject(recipe))} == {"passed"}
    pooled = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, CLASSES)
    )
    assert {each.level for each in check_model_gradients(small_subject(model=pooled))} == {"passed"}
