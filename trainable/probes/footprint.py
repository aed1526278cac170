"""Measures what a training step takes of a GPU: memory, and the share of its time in which the GPU works."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from itertools import chain, count, cycle, islice

import torch
from torch.profiler import ProfilerActivity, profile

from trainable.augmentation.sizes import extreme_sizes
from trainable.data.batch import Batch
from trainable.probes.batch_find import Steps
from trainable.recipe.network_cost import Footprint
from trainable.training.devices import CONTEXT_BYTES, give_back, wait_for
from trainable.training.run import Run

FEWEST = 8  # steps that are timed, and again recorded: whole portions, which are augmented at once


def measure_footprint(run: Run) -> Footprint:
    """Measure steps of a run on a CUDA device, which is afterwards as it was.

    One shape alone is tried, the run's own micro-batch, because cuDNN takes seconds to plan for each new one.
    """
    busy = None
    try:
        with run.probing(run.recipe.loop.epochs - 1):  # when everything is trained
            _, peak = torch.cuda.mem_get_info(run.device)  # all there is, if a step does not fit
            if Steps(run).on_cuda(run.micro_batch).fits:
                busy = busy_share(run)
                peak = torch.cuda.max_memory_reserved(run.device)
    finally:
        give_back(run.device)
    free, _ = torch.cuda.mem_get_info(run.device)
    held = torch.cuda.memory_reserved(run.device)  # this run's, which goes with it
    return Footprint(trial_bytes=peak + CONTEXT_BYTES, free_bytes=free + held, busy=busy)


def busy_share(run: Run) -> float | None:
    """Return the share of steps' time in which the GPU works, in (0, 1]; None where nothing was recorded.

    The run is in `probing`. The profiler slows down launches and no kernels, so it counts the work alone, and
    the time is that of as many steps without it. NVML's utilisation is too coarse: of a process whose kernels
    take 7 % of the time it says 17 %, and of four 99 %, though eight train twice as many images
    (decisions/0055).
    """
    side = extreme_sizes(run.recipe.augmentation.size, run.info.image_size)[1]
    steps = run.steps_of_a_portion * math.ceil(FEWEST / run.steps_of_a_portion)
    windows = _endless_windows(run)

    def train() -> None:
        for window in islice(windows, steps):
            run.train_on(window, lr=0.0, size=side)
        wait_for(run.device)

    train()  # what is prepared once is prepared now
    began = time.perf_counter()
    train()
    seconds = time.perf_counter() - began
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        train()
    worked = covered(
        (each.time_range.start, each.time_range.end)
        for each in profiler.events() or ()
        if each.device_type.name == "CUDA" and not each.is_user_annotation
    )
    return min(1.0, 1e-6 * worked / seconds) if worked else None  # events are in microseconds


def _endless_windows(run: Run) -> Iterator[list[Batch]]:
    """Yield effective batches of one epoch after the other, augmented on the GPU as they are read; of images
    that are not decoded yet the same one, since decoding is over when trials train."""
    if run.images.decoded:
        return chain.from_iterable(map(run.windows, count()))
    return cycle(islice(run.windows(), 1))


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return how long one of the spans (begin, end) or more last: kernels of several streams overlap."""
    whole, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        whole += max(0.0, end - max(begin, until))
        until = max(until, end)
    return whole
