"""Tests that a step whose gradients overflow changes nothing, and that nobody reads whether it did."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim

from trainable.recipe import optimizers
from trainable.training.optim import make_phases

SPECS: dict[str, optimizers.Optimizer] = {
    "rmsprop": optimizers.RMSProp(lr=0.01, momentum=0.7, weight_decay=0.1),
    "plain rmsprop": optimizers.RMSProp(lr=0.01, momentum=0.0),
    "adadelta": optimizers.Adadelta(lr=0.5, weight_decay=0.1),
    "lars": optimizers.LARS(lr=1.0, momentum=0.8, weight_decay=0.1),
    "nesterov lars": optimizers.LARS(lr=1.0, momentum=0.8, nesterov=True),
}
STEPS = 6


def trained(spec: optimizers.Optimizer, overflows: dict[int, float], taken: set[int]) -> dict[str, Any]:
    """Return weights and state after the steps that were taken; some gradients are replaced by a number."""
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = make_phases(spec, model, batch_size=256)[0].optimizer
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0, growth_interval=100, backoff_factor=0.999)
    for step in range(STEPS):
        if step in taken:
            optimizer.zero_grad()
            inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
            loss: Tensor = model(inputs).square().mean()
            scaler.scale(loss).backward()
            if step in overflows and model.weight.grad is not None:
                model.weight.grad[0, 0] = overflows[step]
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    return {**model.state_dict(), **_state(optimizer, model)}


def _state(optimizer: optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    states = {name: optimizer.state[each] for name, each in model.named_parameters()}
    return {
        f"{name} {key}": value
        for name, state in states.items()
        for key, value in state.items()
        if isinstance(value, Tensor) and key != "step"
    }


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize(
    "overflows",
    [{0: float("inf")}, {0: float("nan"), 3: float("inf"), 4: float("nan")}],
    ids=["first", "three"],
)
def test_a_step_that_overflows_leaves_weights_and_state_as_they_were(
    spec: optimizers.Optimizer, overflows: dict[int, float]
) -> None:
    ours = trained(spec, overflows, set(range(STEPS)))
    theirs = trained(spec, {}, set(range(STEPS)) - set(overflows))
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value)
