"""Measures how long a file of a bundle takes to answer batches of images."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainable.bundle.answering import Answer
from trainable.tasks.segmentation.data.loading import PIXELS_AT_ONCE

BATCHES = (1, 8, 32, 128)
WARM_UPS = 1
"""Memory is taken in the first pass, which does not count."""
LEAST_PASSES, MOST_PASSES, SECONDS = 3, 200, 1.0
"""So many passes are timed, as many as fit into these seconds."""


def latencies(
    answer: Answer, size: tuple[int, int, int], *, dense: bool = False
) -> dict[str, dict[str, float]]:
    """Return, by batch, the milliseconds from decoded images [H, W, C] of one size to their probabilities:
    the median, the 5th and the 95th percentile, and how many passes these are of.

    Those of masks, if `dense`, are of windows, and of as many together as a run scores.
    """
    batches = [each for each in BATCHES if not dense or each * size[0] * size[1] <= PIXELS_AT_ONCE] or [1]
    noise = np.random.default_rng(0)
    images = noise.integers(0, 256, (max(batches), *size), dtype=np.uint8)
    shown = images.astype(np.float32) if dense else images
    return {str(batch): _summary(_times(answer, shown[:batch])) for batch in batches}


def processor() -> str:
    """Return the name of this machine's processor."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _times(answer: Answer, images: NDArray[Any]) -> list[float]:
    for _ in range(WARM_UPS):
        answer(images)
    times: list[float] = []
    until = time.perf_counter() + SECONDS
    while len(times) < LEAST_PASSES or (len(times) < MOST_PASSES and time.perf_counter() < until):
        began = time.perf_counter()
        answer(images)
        times.append(1e3 * (time.perf_counter() - began))
    return times


def _summary(times: list[float]) -> dict[str, Any]:
    low, high = np.percentile(times, (5, 95))
    rounded = {"median_ms": median(times), "p5_ms": low, "p95_ms": high}
    return {**{name: round(float(each), 3) for name, each in rounded.items()}, "passes": len(times)}
