"""Tests schedules, pure functions of progress, against torch's schedulers over whole runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import optim
from torch.optim import lr_scheduler

from trainable.recipe import schedules
from trainable.training.schedule import cycle_ends, factor, momentum

EPOCHS = 12
STEPS = 10  # it counts the steps of an epoch


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


def momenta(spec: schedules.Schedule, epochs: int = EPOCHS) -> list[float | None]:
    return [momentum(spec, step / STEPS, epochs, 1 / STEPS) for step in range(epochs * STEPS)]


Shape = Callable[[optim.Optimizer, int], lr_scheduler.LRScheduler]


def torchs_after_warmup(warmup: int, shape: Shape) -> tuple[list[float], list[float]]:
    """Return rates and momenta of torch's warm-up, then of its scheduler over the steps that are left.

    Two of the schedulers set their optimizer up, which SequentialLR would undo.
    """
    rates = torchs(lr_scheduler.ConstantLR, warmup * STEPS, factor=1.0)[: warmup * STEPS]
    optimizer = optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0, momentum=0.5)
    steps = (EPOCHS - warmup) * STEPS
    scheduler = shape(optimizer, steps)
    momenta = [optimizer.param_groups[0]["momentum"]] * len(rates)
    for step in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        momenta.append(optimizer.param_groups[0]["momentum"])
        optimizer.step()
        if step < steps - 1:
            scheduler.step()
    return rates, momenta


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
            lr_scheduler.CosineAnnealingLR, warmup * STEPS, T_max=(EPOCHS - warmup) * STEPS, eta_min=final
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

    @pytest.mark.parametrize("growth", [1, 2, 3])
    @pytest.mark.parametrize("cycle", [0.3, 1.0, 2.0])
    def test_sgdr(self, warmup: int, cycle: float, growth: int) -> None:
        spec = schedules.SGDR(
            warmup_epochs=float(warmup), cycle_epochs=cycle, growth=growth, final_factor=0.05
        )
        reference, _ = torchs_after_warmup(
            warmup,
            lambda optimizer, _: lr_scheduler.CosineAnnealingWarmRestarts(
                optimizer, T_0=round(cycle * STEPS), T_mult=growth, eta_min=0.05
            ),
        )
        assert ours(spec) == pytest.approx(reference, abs=1e-12)

    @pytest.mark.parametrize("equal_legs", [False, True])
    @pytest.mark.parametrize("anneal", ["cosine", "linear"])
    @pytest.mark.parametrize("rise", [0.3, 0.377])
    def test_onecycle_and_its_momentum(
        self, warmup: int, rise: float, anneal: Literal["cosine", "linear"], equal_legs: bool
    ) -> None:
        spec = schedules.OneCycle(
            warmup_epochs=float(warmup), rise=rise, anneal=anneal, equal_legs=equal_legs, div=20.0
        )
        rates, momentum_of_torch = torchs_after_warmup(
            warmup,
            lambda optimizer, steps: lr_scheduler.OneCycleLR(
                optimizer,
                max_lr=1.0,
                total_steps=steps,
                pct_start=rise,
                anneal_strategy="cos" if anneal == "cosine" else "linear",
                three_phase=equal_legs,
                div_factor=20.0,
            ),
        )
        assert ours(spec) == pytest.approx(rates, rel=1e-9, abs=1e-12)
        assert momenta(spec) == pytest.approx(momentum_of_torch, abs=1e-12)

    @pytest.mark.parametrize("mode", ["triangular", "triangular2", "exp_range"])
    @pytest.mark.parametrize("rise", [0.7, 2.0])
    def test_cyclic(
        self, warmup: int, rise: float, mode: Literal["triangular", "triangular2", "exp_range"]
    ) -> None:
        spec = schedules.Cyclic(
            warmup_epochs=float(warmup), mode=mode, lowest=0.2, rise_epochs=rise, gamma=0.8
        )
        reference, _ = torchs_after_warmup(
            warmup,
            lambda optimizer, _: lr_scheduler.CyclicLR(
                optimizer,
                base_lr=0.2,
                max_lr=1.0,
                step_size_up=round(rise * STEPS),
                mode=mode,
                gamma=0.8 ** (1 / STEPS),
                cycle_momentum=False,
            ),
        )
        assert ours(spec) == pytest.approx(reference, abs=1e-12)


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


@pytest.mark.parametrize("equal_legs", [False, True])
def test_a_onecycle_has_its_lowest_rate_at_the_last_step(equal_legs: bool) -> None:
    spec = schedules.OneCycle(rise=0.3, div=10.0, final_div=100.0, equal_legs=equal_legs)
    rates = ours(spec)
    assert (rates[0], max(rates), rates[-1]) == pytest.approx((0.1, 1.0, 0.001))
    assert min(rates) == rates[-1]


@pytest.mark.parametrize("equal_legs", [False, True])
def test_the_momentum_of_a_onecycle_is_lowest_where_the_rate_is_highest(equal_legs: bool) -> None:
    spec = schedules.OneCycle(rise=0.25, equal_legs=equal_legs, momentum_low=0.8, momentum_high=0.9)
    rates, momenta_ = ours(spec), momenta(spec)
    assert momenta_.index(min(each for each in momenta_ if each is not None)) == rates.index(max(rates))
    assert (momenta_[0], momenta_[-1]) == pytest.approx((0.9, 0.9))


def test_warmup_has_the_high_momentum_of_a_onecycle() -> None:
    assert momenta(schedules.OneCycle(warmup_epochs=2.0))[: 2 * STEPS] == [0.95] * 2 * STEPS


@pytest.mark.parametrize(
    "spec",
    [
        schedules.Constant(),
        schedules.Cosine(),
        schedules.Step(),
        schedules.Poly(),
        schedules.Exponential(),
        schedules.SGDR(),
        schedules.OneCycle(cycle_momentum=False),
        schedules.Cyclic(),
    ],
    ids=lambda spec: spec.kind,
)
def test_other_schedules_leave_the_momentum_alone(spec: schedules.Schedule) -> None:
    assert set(momenta(spec)) == {None}


@pytest.mark.parametrize(
    ("spec", "epochs", "expected"),
    [
        (schedules.SGDR(cycle_epochs=10.0, growth=2), 70, (10, 30, 70)),
        (schedules.SGDR(cycle_epochs=10.0, growth=2), 69, (10, 30)),
        (schedules.SGDR(cycle_epochs=1.0, growth=3), 364, (1, 4, 13, 40, 121, 364)),
        (schedules.SGDR(cycle_epochs=4.0, growth=1), 13, (4, 8, 12)),
        (schedules.SGDR(cycle_epochs=4.0, growth=1, warmup_epochs=3.0), 15, (7, 11, 15)),
        (schedules.SGDR(cycle_epochs=2.5, growth=1), 10, (5, 10)),
        (schedules.SGDR(cycle_epochs=0.1, growth=1), 3, (1, 2, 3)),
        (schedules.SGDR(cycle_epochs=2.5, growth=1, warmup_epochs=0.5), 10, (3, 8)),
        (schedules.SGDR(cycle_epochs=2.0, growth=2, warmup_epochs=0.5), 20, ()),
        (schedules.SGDR(cycle_epochs=30.0), 20, ()),
        (schedules.Cyclic(rise_epochs=2.0), 12, (4, 8, 12)),
        (schedules.Cyclic(rise_epochs=1.5, warmup_epochs=1.0), 9, (4, 7)),
        (schedules.Cosine(), 20, ()),
        (schedules.OneCycle(), 20, ()),
    ],
)
def test_cycles_end_at_whole_epochs(spec: schedules.Schedule, epochs: int, expected: tuple[int, ...]) -> None:
    assert cycle_ends(spec, epochs) == expected


@given(
    first=st.sampled_from([0.5, 1.0, 2.0, 3.0]),
    growth=st.integers(1, 3),
    warmup=st.sampled_from([0.0, 1.0, 2.0]),
)
def test_the_rate_restarts_after_the_end_of_a_cycle(first: float, growth: int, warmup: float) -> None:
    spec = schedules.SGDR(cycle_epochs=first, growth=growth, warmup_epochs=warmup)
    rates = ours(spec, epochs=30)
    jumps = {
        number + 1
        for number, (before, after) in enumerate(itertools.pairwise(rates))
        if number >= warmup * STEPS and after > before
    }
    ends = {end * STEPS for end in cycle_ends(spec, 29)}
    assert ends == {jump for jump in jumps if jump % STEPS == 0}


@given(
    steps=st.integers(1, 30),
    rise=st.floats(0.01, 0.99),
    anneal=st.sampled_from(["cosine", "linear"]),
    equal_legs=st.booleans(),
)
def test_a_onecycle_of_few_steps_stays_within_its_bounds(
    steps: int, rise: float, anneal: Literal["cosine", "linear"], equal_legs: bool
) -> None:
    spec = schedules.OneCycle(
        rise=rise / 2.01 if equal_legs else rise,
        anneal=anneal,
        equal_legs=equal_legs,
        div=10.0,
        final_div=10.0,
    )
    for step in range(steps):
        rate = factor(spec, step / steps, 1, 1 / steps)
        assert 0.01 - 1e-12 <= rate <= 1.0
        speed = momentum(spec, step / steps, 1, 1 / steps)
        assert speed is not None
        assert 0.85 - 1e-12 <= speed <= 0.95 + 1e-12
