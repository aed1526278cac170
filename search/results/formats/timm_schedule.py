"""A recipe's schedule as timm's arguments, and how far timm's own rates are from it."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping
from typing import Any, NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from search.results.formats.table import rate
from search.results.formats.winner import Winner
from trainable.recipe import schedules
from trainable.training.schedule import cycle_ends, factor

ROUNDING = 1e-6  # rates that differ by less of the highest rate are the same
SMOOTH = ("cosine", "poly")
BENDS, POINTS = np.linspace(1.0, 2.0, 201).round(3), 1_000  # exponents of progress, tried on so many points
EXACT_DIGITS = 12  # 0.7 * 10 epochs are 7.000000000000001


def schedule_arguments(spec: schedules.Schedule, winner: Winner) -> dict[str, Any]:
    """Return timm's arguments of a schedule, its rates changing with each step."""
    epochs, steps, lr = winner.recipe.loop.epochs, updates(winner), rate(spec, winner)
    arguments = {"epochs": epochs, **_shape(spec, epochs, steps, lr)}
    arguments |= _warmup(spec, epochs, steps, lr)
    if arguments["warmup_epochs"] and arguments["sched"] in SMOOTH and not arguments.get("warmup_prefix"):
        arguments["lr_k_decay"] = _bend(arguments, epochs)
    return arguments


def _bend(arguments: Mapping[str, Any], epochs: int) -> float:
    """Return the exponent of progress with which a shape over the whole run is nearest to one that begins
    after a warm-up of so many epochs: timm's k-decay (arXiv 2004.05909)."""
    rising = arguments["warmup_epochs"] / epochs
    progress = np.linspace(rising, 1.0, POINTS)
    wanted = _fall(arguments, (progress - rising) / (1.0 - rising))
    return float(min(BENDS, key=lambda bend: np.abs(_fall(arguments, progress**bend) - wanted).max()))


def _fall(arguments: Mapping[str, Any], progress: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the factors of timm's smooth shapes, without a least rate, at shares of the run."""
    if arguments["sched"] == "cosine":
        return (1.0 + np.cos(np.pi * progress)) / 2.0
    return np.asarray((1.0 - progress) ** arguments["decay_rate"])


def updates(winner: Winner) -> int:
    """Return how many steps train.py takes in an epoch: its last one may be of fewer parts."""
    parts = math.ceil(winner.info.train_images / winner.cut.gpus) // winner.cut.at_once
    return -(-parts // winner.cut.parts)


def _shape(spec: schedules.Schedule, epochs: int, steps: int, lr: float) -> dict[str, Any]:
    length = epochs - spec.warmup_epochs
    match spec:
        case schedules.Constant():
            return {"sched": "step", "decay_epochs": epochs + 1, "decay_rate": 1.0}
        case schedules.Cosine(final_factor=final):
            return {"sched": "cosine", "min_lr": final * lr}
        case schedules.Step(every=every, gamma=gamma):
            return {"sched": "step", "decay_epochs": round(every * length, EXACT_DIGITS), "decay_rate": gamma}
        case schedules.Poly(power=power):
            return {"sched": "poly", "decay_rate": power}
        case schedules.Exponential(gamma=gamma):
            return {"sched": "step", "decay_epochs": 1.0 / steps, "decay_rate": gamma ** (1.0 / steps)}
        case schedules.SGDR(final_factor=final) if spec.cycle_epochs == int(spec.cycle_epochs):
            return {
                "epochs": int(spec.cycle_epochs),
                "lr_cycle_mul": spec.growth,
                # as many whole cycles as cover the run: timm trains to the end of the last one
                "lr_cycle_limit": max(1, len(cycle_ends(spec, epochs))),
                "lr_cycle_decay": 1.0,
                "sched": "cosine",
                "min_lr": final * lr,
            }
        case schedules.OneCycle(anneal="linear"):
            return {"sched": "poly", "decay_rate": 1.0, "min_lr": lr / spec.div / spec.final_div}
        case schedules.OneCycle():
            return {"sched": "cosine", "min_lr": lr / spec.div / spec.final_div}
        case schedules.SGDR() | schedules.Cyclic():
            return {"sched": "cosine", "min_lr": 0.0}
        case _:
            assert_never(spec)


def _warmup(spec: schedules.Schedule, epochs: int, steps: int, lr: float) -> dict[str, Any]:
    """Return the warm-up.

    Whole epochs come before the shape, as in the recipe; train.py cannot begin the shape after a fraction.
    """
    rising = spec.rise * epochs if isinstance(spec, schedules.OneCycle) else spec.warmup_epochs
    if rising * steps <= 1.0:
        return {"warmup_epochs": 0}
    first = lr / spec.div if isinstance(spec, schedules.OneCycle) else lr / (rising * steps)
    if rising != int(rising) or isinstance(spec, schedules.SGDR):
        return {"warmup_epochs": rising, "warmup_lr": first}
    return {
        "warmup_epochs": int(rising),
        "warmup_lr": first,
        "warmup_prefix": True,
        "epochs": epochs - int(rising),
    }


class Distance(NamedTuple):
    """How far two schedules are apart at most, as a share of the highest rate, and at which step."""

    share: float
    step: int
    epochs: int

    def __str__(self) -> str:
        return (
            f"rates differ by {self.share:.2%} of lr at most, at step {self.step}, over {self.epochs} epochs"
        )


def largest_distance(arguments: Mapping[str, Any], winner: Winner) -> Distance:
    """Return where the rates that timm makes of the arguments differ most from the recipe's."""
    import torch
    from timm.scheduler import create_scheduler_v2, scheduler_kwargs

    spec, epochs, steps = winner.recipe.schedule, winner.recipe.loop.epochs, winner.steps
    lr = arguments["lr"]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    made, trained = create_scheduler_v2(
        optimizer, **scheduler_kwargs(Namespace(**arguments)), updates_per_epoch=updates(winner)
    )
    worst, where = 0.0, 0
    for step in range(epochs * steps):
        made.step_update(step)
        wanted = factor(spec, step / steps, epochs, 1.0 / steps)
        apart = abs(optimizer.param_groups[0]["lr"] / lr - wanted)
        worst, where = max((worst, where), (apart, step))
    return Distance(worst, where, int(trained))


def why(spec: schedules.Schedule) -> str:
    """Return why timm's rates are not those of a schedule."""
    match spec:
        case schedules.OneCycle():
            return "timm has no 1cycle: the file rises in a straight line and falls as its legs do"
        case schedules.Cyclic():
            return "timm has no triangles: the file has one cosine"
        case schedules.SGDR():
            return "timm's cycles are whole epochs, without a warm-up before them"
        case _ if spec.warmup_epochs != int(spec.warmup_epochs):
            return "timm's shape begins with the run, unless warm-ups are whole epochs; lr_k_decay bends it"
        case _:
            return "timm's warm-up ends a step later"
