"""Checks the time that steps wait for images, and finds a number of loader processes that would hide it."""

from __future__ import annotations

import math
import os

from trainable.checks.finding import Finding, passed
from trainable.checks.steps import FirstSteps

MUCH = 0.25
"""Above this share of waiting time, more processes are worth their memory."""


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
        what = f"images in memory: {_percent(share)} of a step's {1000 * (data + step):.3g} ms"
        if share <= MUCH:
            return passed("loader", what)
        means = "augmentation takes much of the time: the network is small for it"
        do = "a cheaper augmentation.policy or augmentation.crop, if time matters"
        return Finding("loader", "note", what, means, do)
    needed = wanted_workers(data, step, cpus or len(os.sched_getaffinity(0)))
    waited = waited_share(data, step, workers)
    what = (
        f"a batch takes {1000 * data:.3g} ms to read and augment, a step {1000 * step:.3g} ms: with "
        f"loop.workers {workers} about {_percent(waited)} of the time is spent waiting"
    )
    better = waited_share(data, step, needed)
    if waited <= MUCH or better > 0.9 * waited:
        return passed("loader", what)
    if cached:
        return passed("loader", f"{what}; a run decodes its images once before, as data.cache says")
    return Finding(
        "loader",
        "warning",
        what,
        f"with {needed} it would be {_percent(better)}",
        f"loop.workers: {needed}; data.in_memory: true or a smaller data.image_size, if there is memory",
    )


def wanted_workers(data_seconds: float, step_seconds: float, cpus: int) -> int:
    """Return how many processes together read a batch in the time of a step;
    one processor is left for the steps."""
    return max(1, min(math.ceil(data_seconds / max(step_seconds, 1e-9)), cpus - 1))


def waited_share(data_seconds: float, step_seconds: float, workers: int) -> float:
    """Return the share of the time that is waited: all reading time without processes, else the time by
    which they are late."""
    waited = data_seconds if workers == 0 else max(0.0, data_seconds / workers - step_seconds)
    return waited / (waited + step_seconds)


def _percent(share: float) -> str:
    return f"{share:.0%}"
