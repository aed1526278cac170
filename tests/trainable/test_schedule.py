"""Schedules as pure functions of progress, against torch's schedulers over whole runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import optim
from torch.optim import lr_scheduler

from trainable.schedule import factor
from trainable.specs import schedules

EPOCHS = 12
STEPS = 10
"""Steps an epoch."""


def ours(spec: schedules.Schedule, epochs: int = EPOCHS, steps: int = STEPS) -> list[float]:
    return [factor(spec, step / steps, epochs, 1 / steps) for step in range(epochs * steps)]


def torchs(shape: type[lr_scheduler.LRScheduler], warmup_steps: int = 0, **options: Any) -> list[float]:
    optimizer = optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = shape(optimizer, **options)
    if warmup_steps:
        warmup = lr_scheduler.LinearLR(optimizer, 1 / warmup_steps, 1.0, total_iters=warmup_steps - 1)
        scheduler = lr_scheduler.SequentialLR(optimizer, [warmup, scheduler], milestones=[warmup_steps])
    rates = []
    for _ in range(EPOCHS * STEPS):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step:UserWarning")
@pytest.mark.parametrize("warmup", [0, 2])
class TestEveryShapeEqualsTorchs:
    def test_constant(self, warmup: int) -> None:
        spec = schedules.Constant(warmup_epochs=float(warmup))
        assert ours(spec) == pytest.approx(
            torchs(lr_scheduler.ConstantLR, warmup * STEPS, factor=1.0, total_iters=1)
        )

    @pytest.mark.parametrize("final", [0.0, 0.05])
    def test_cosine(self, warmup: int, final: float) -> None:
        spec = schedules.Cosine(warmup_epochs=float(warmup), final_factor=final)
        reference = torchs(
            lr_scheduler.CosineAnnealingLR,
            warmup * STEPS,
            T_max=(EPOCHS - warmup) * STEPS,
            eta_min=final,
        )
        assert ours(spec) == pytest.approx(reference, abs=1e-12)

    def test_step(self, warmup: int) -> None:
        spec = schedules.Step(warmup_epochs=float(warmup), every=0.1, gamma=0.3)
        reference = torchs(
            lr_scheduler.StepLR, warmup * STEPS, step_size=(EPOCHS - warmup) * STEPS // 10, gamma=0.3
        )
        assert ours(spec) == pytest.approx(reference)

    @pytest.mark.parametrize("power", [0.9, 1.0, 2.0])
    def test_poly(self, warmup: int, power: float) -> None:
        spec = schedules.Poly(warmup_epochs=float(warmup), power=power)
        total = (EPOCHS - warmup) * STEPS
        reference = torchs(lr_scheduler.PolynomialLR, warmup * STEPS, total_iters=total, power=power)
        assert ours(spec) == pytest.approx(reference)

    def test_exponential(self, warmup: int) -> None:
        spec = schedules.Exponential(warmup_epochs=float(warmup), gamma=0.8)
        reference = torchs(lr_scheduler.ExponentialLR, warmup * STEPS, gamma=0.8 ** (1 / STEPS))
        assert ours(spec) == pytest.approx(reference)


def test_warmup_climbs_by_the_same_amount_a_step_and_ends_at_the_whole_rate() -> None:
    climb = ours(schedules.Constant(warmup_epochs=2.0))[: 2 * STEPS]
    assert climb == pytest.approx([(step + 1) / (2 * STEPS) for step in range(2 * STEPS)])


def test_a_warmup_that_ends_within_a_step_never_exceeds_the_whole_rate() -> None:
    rates = ours(schedules.Cosine(warmup_epochs=0.5), steps=3)
    assert max(rates) == 1.0
    assert rates[0] == pytest.approx(1 / 1.5)


def test_the_default_steps_fall_to_a_tenth_at_each_quarter() -> None:
    rates = ours(schedules.Step(), epochs=120, steps=1)
    drops = [epoch for epoch in range(1, 120) if rates[epoch] < rates[epoch - 1]]
    assert drops == [30, 60, 90]
    assert rates[-1] == pytest.approx(1e-3)


@pytest.mark.parametrize("every", [0.1, 0.2, 0.3])
def test_drops_survive_the_rounding_of_floats(every: float) -> None:
    rates = [factor(schedules.Step(every=every), epoch, 10) for epoch in range(10)]
    expected = [0.1 ** (epoch // round(10 * every)) for epoch in range(10)]
    assert rates == pytest.approx(expected)
