"""Checks single training steps: gradients, weights that move, and the recipe's first steps."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count

import torch
from torch import Tensor

from trainable.checks.finding import Finding, passed
from trainable.data.batch import Batch
from trainable.errors import listed
from trainable.training import schedule
from trainable.training.devices import give_back, ran_out, wait_for
from trainable.training.optim import applied_lr
from trainable.training.run import Run

AGREEMENT = 0.05
"""Two gradients of one window may differ by this share of their size: rounding gives 1e-3 in bf16, while a
gradient that is added to the last one differs by its whole size."""

NEGLIGIBLE = 1e-3
"""A gradient that is this much smaller than the largest may leave its weight unchanged."""

EXPLODED = 4.0
"""A loss that is so many times the first is beyond the noise of a batch; the rate finder stops there too
(PyTorch tuning guide, 001)."""

FIRST_STEPS = 20
ENOUGH_STEPS = 4


@dataclass(frozen=True)
class FirstSteps:
    """Holds the recipe's own first steps:
    the loss before each, and the seconds a step takes for data and for computing."""

    losses: tuple[float, ...]
    data_seconds: float
    step_seconds: float


def check_step(run: Run) -> Iterator[Finding]:
    """Check whether a gradient contains no earlier one, and whether the weights move;
    call it in `probing`."""
    window = next(run.windows())
    before, after = _gradients(run, window), _gradients(run, window)
    if not before:
        means = "nothing can be trained"
        yield Finding("training step", "error", "no parameter gets a gradient", means, "look at forward")
        return
    apart = max(_apart(before[name], after[name]) for name in before)
    if apart > AGREEMENT or not math.isfinite(apart):
        yield Finding(
            "training step",
            "error",
            f"the same batch and weights give another gradient the second time: they differ by {apart:.0%}",
            "gradients are added up over steps (never zeroed), or the network keeps things between batches",
            "zero gradients before each window; keep no tensor on the module between two calls of forward",
        )
        return
    still = _that_stay(run, set(before), _usual_rate(run))
    if still:
        yield Finding(
            "training step",
            "error",
            f"{len(still):,} of {len(before):,} parameters with a gradient do not move: {listed(still)}",
            "the optimizer does not update them: they keep their first values",
            "give the optimizer the parameters that the model uses, and an optimizer.lr above 0",
        )
        return
    yield passed("training step", f"each step has its own gradients, and all {len(before):,} parameters move")


def first_steps(run: Run, seconds: float) -> FirstSteps | Finding:
    """Take up to 20 steps as the recipe does, with schedule and augmentation; call it in `probing`.

    A run that does not fit into memory gets a finding instead.
    """
    losses: list[float] = []
    waits: list[float] = []
    steps: list[float] = []
    began = time.perf_counter()
    windows = chain.from_iterable(map(run.windows, count()))
    try:
        while len(losses) < FIRST_STEPS and (
            len(losses) < ENOUGH_STEPS or time.perf_counter() - began < seconds
        ):
            started = time.perf_counter()
            window = next(windows)
            wait_for(run.device)
            loaded = time.perf_counter()
            losses.append(float(run.train_on(window, _scheduled(run, len(losses)))))
            waits.append(loaded - started)
            steps.append(time.perf_counter() - loaded)
            if not math.isfinite(losses[-1]):
                break
    except Exception as error:
        if not ran_out(error):
            raise
        give_back(run.device)
        return Finding(
            "first steps",
            "warning",
            f"{run.micro_batch} images at once do not fit into the memory of {run.device}",
            "a run would cut its micro-batch in half until it fits: the same result, a little slower",
            "`tunebook batch-find` says how many fit; set loop.micro_batch",
        )
    return FirstSteps(tuple(losses), _typical(waits), _typical(steps))


def check_first_steps(steps: FirstSteps) -> Finding:
    """Check whether the loss stays within bounds over the recipe's own first steps."""
    first, last = steps.losses[0], steps.losses[-1]
    what = f"over the recipe's first {len(steps.losses)} steps the loss goes from {first:.3g} to {last:.3g}"
    if all(math.isfinite(loss) and loss <= EXPLODED * first for loss in steps.losses):
        return passed("first steps", what)
    return Finding(
        "first steps",
        "warning",
        f"{what}, at most {max(steps.losses):.3g}",
        "the rate is too high to begin with: the run may diverge",
        "lower optimizer.lr (`tunebook lr-find` gives a band) or set schedule.warmup_epochs",
    )


def _gradients(run: Run, window: list[Batch]) -> dict[str, Tensor]:
    """Return each parameter's gradient of a window, by a step at rate 0;
    the layers draw the same random numbers."""
    torch.manual_seed(0)
    run.train_on(window, 0.0)
    return {
        name: each.grad.detach().clone()
        for name, each in run.model.named_parameters()
        if each.grad is not None
    }


def _apart(first: Tensor, second: Tensor) -> float:
    size = max(float(first.norm()), float(second.norm()))
    return float((first - second).norm()) / size if size > 0.0 else 0.0


def _that_stay(run: Run, names: set[str], lr: float) -> list[str]:
    """Return the parameters that none of a few steps moves,
    although one of them had a gradient worth a step.

    A gradient far below the others' may be lost in the rounding of its weight (behind a gamma that begins at
    0 it is).
    """
    before = {name: each.detach().clone() for name, each in run.model.named_parameters() if name in names}
    pushed: set[str] = set()
    windows = chain.from_iterable(map(run.windows, count()))
    for _ in range(3):
        run.train_on(next(windows), lr)
        sizes = {
            name: float(each.grad.abs().max())
            for name, each in run.model.named_parameters()
            if each.grad is not None
        }
        largest = max(sizes.values(), default=0.0)
        pushed |= {name for name, size in sizes.items() if size > NEGLIGIBLE * largest}
    now = dict(run.model.named_parameters())
    return [name for name, each in before.items() if name in pushed and bool((now[name] == each).all())]


def _usual_rate(run: Run) -> float:
    """Return at least the usual rate of the recipe's optimizer:
    whether weights move must not depend on the recipe's rate."""
    return max(type(run.recipe.optimizer)().lr, applied_lr(run.recipe.optimizer, run.recipe.loop.batch_size))


def _scheduled(run: Run, step: int) -> float:
    """Return the applied rate of a step in the recipe's schedule."""
    recipe = run.recipe
    steps = run.info.train_images // recipe.loop.batch_size
    factor = schedule.factor(recipe.schedule, step / steps, recipe.loop.epochs, 1.0 / steps)
    return applied_lr(recipe.optimizer, recipe.loop.batch_size) * factor


def _typical(seconds: list[float]) -> float:
    """Return the median, without the first step, which warms up."""
    later = sorted(seconds[1:] or seconds)
    return later[len(later) // 2]
