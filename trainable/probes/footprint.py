"""Measures what a training step takes of a GPU: memory, and the share of its time in which the GPU works."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.profiler import ProfilerActivity, profile

from trainable.probes.batch_find import Steps, Tried
from trainable.recipe.network_cost import Footprint
from trainable.training.memory import CONTEXT_BYTES, give_back
from trainable.training.run import Run

PROFILED = 5  # steps; 500 kernels each are some MB of events


def measure_footprint(run: Run) -> Footprint:
    """Measure steps of a run on a CUDA device, which is afterwards as it was.

    One shape alone is tried, the run's own micro-batch, because cuDNN takes seconds to plan for each new one.
    """
    try:
        with run.probing(run.recipe.loop.epochs - 1):  # when everything is trained
            steps = Steps(run)
            tried = steps.on_cuda(run.micro_batch)
            busy = _busy(steps, tried)
    finally:
        give_back(run.device)
    free, whole = torch.cuda.mem_get_info(run.device)
    held = torch.cuda.memory_reserved(run.device)  # this run's, which goes with it
    peak = tried.peak_bytes if tried.peak_bytes is not None else whole
    return Footprint(trial_bytes=peak + CONTEXT_BYTES, free_bytes=free + held, busy=busy)


def _busy(steps: Steps, tried: Tried) -> float | None:
    """Return the share of a step's time in which the GPU works, in (0, 1]; None where nothing was recorded.

    The profiler slows down launches and no kernels, so it counts the work alone, and a step's time is that of
    steps without it. NVML's utilisation is too coarse: of a process whose kernels take 7 % of the time it
    says 17 %, and of four 99 %, though eight train twice as many images (decisions/0055).
    """
    if tried.images_per_second is None:
        return None
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        for _ in range(PROFILED):
            steps.take(tried.images)
    worked = covered(
        (each.time_range.start, each.time_range.end)
        for each in profiler.events() or ()
        if each.device_type.name == "CUDA" and not each.is_user_annotation
    )
    step_seconds = tried.images / tried.images_per_second
    return min(1.0, 1e-6 * worked / PROFILED / step_seconds) if worked else None  # events are in microseconds


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return how long one of the spans (begin, end) or more last: kernels of several streams overlap."""
    whole, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        whole += max(0.0, end - max(begin, until))
        until = max(until, end)
    return whole
