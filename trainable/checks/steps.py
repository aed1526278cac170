"""Checks single training steps: gradients, weights that move, the first steps, the wait for images."""

from __future__ import annotations

import math
import os
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

# Two gradients of one window may differ by this share of their size: rounding gives 1e-3 in bf16, while a
# gradient that is added to the last one differs by its whole size
AGREEMENT = 0.05

NEGLIGIBLE = 1e-3  # a gradient that is this much smaller than the largest may leave its weight unchanged

# A loss that is so many times the first is beyond the noise of a batch; the rate finder stops there too
# (PyTorch tuning guide, 001)
EXPLODED = 4.0

FIRST_STEPS = 20
ENOUGH_STEPS = 4

MUCH_WAITING = 0.25  # above this share of waiting time, more processes are worth their memory


@dataclass(frozen=True)
class FirstSteps:
    """The recipe's own first steps."""

    losses: tuple[float, ...]  # before each step
    data_seconds: float  # what a step waits for images
    step_seconds: float  # what it computes


def check_step(run: Run) -> Iterator[Finding]:
    """Check whether a gradient contains no earlier one, and whether the weights move; call it in
    `probing`."""
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


def check_loader(
    steps: FirstSteps, *, workers: int, in_memory: bool, cached: bool = False, cpus: int | None = None
) -> Finding:
    """Check the share of a step's time that reading images takes, from steps without loader processes.

    `in_memory` says that images were decoded already, `cached` that they will be before a run begins. `cpus`
    is how many processors the run has; by default those that this process may use.
    """
    data, step = steps.data_seconds, steps.step_seconds
    if in_memory:
        share = data / (data + step)
        what = f"images in memory: {share:.0%} of a step's {1000 * (data + step):.3g} ms"
        if share <= MUCH_WAITING:
            return passed("loader", what)
        means = "augmentation takes much of the time: the network is small for it"
        do = "a cheaper augmentation.policy or augmentation.crop, if time matters"
        return Finding("loader", "note", what, means, do)
    needed = wanted_workers(data, step, cpus or len(os.sched_getaffinity(0)))
    waited = waited_share(data, step, workers)
    what = (
        f"a batch takes {1000 * data:.3g} ms to read and augment, a step {1000 * step:.3g} ms: with "
        f"loop.workers {workers} about {waited:.0%} of the time is spent waiting"
    )
    better = waited_share(data, step, needed)
    if waited <= MUCH_WAITING or better > 0.9 * waited:
        return passed("loader", what)
    if cached:
        return passed("loader", f"{what}; a run decodes its images once before, as data.cache says")
    return Finding(
        "loader",
        "warning",
        what,
        f"with {needed} it would be {better:.0%}",
        f"loop.workers: {needed}; data.in_memory: true or a smaller data.image_size, if there is memory",
    )


def wanted_workers(data_seconds: float, step_seconds: float, cpus: int) -> int:
    """Return how many processes together read a batch in the time of a step; one processor is left for the
    steps."""
    return max(1, min(math.ceil(data_seconds / max(step_seconds, 1e-9)), cpus - 1))


def waited_share(data_seconds: float, step_seconds: float, workers: int) -> float:
    """Return the share of the time that is waited: all reading time without processes, else the time by
    which they are late."""
    waited = data_seconds if workers == 0 else max(0.0, data_seconds / workers - step_seconds)
    return waited / (waited + step_seconds)


def _gradients(run: Run, window: list[Batch]) -> dict[str, Tensor]:
    """Return each parameter's gradient of a window, by a step at rate 0; the layers draw the same random
    numbers."""
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
    """Return at least the usual rate of the recipe's optimizer: whether weights move must not depend on the
    recipe's rate."""
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
