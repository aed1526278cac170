"""Measures a bundle: what a run scores with its weights, whether its files answer alike, and how fast."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trainable.bench import Say
from trainable.bundle.programs import ExportError
from trainable.bundle.trained import Trained, in_fp32
from trainable.data import Split
from trainable.errors import UserError
from trainable.run import make_run
from trainable.stages import stage
from trainable.tasks.exporter import Exporter, NumpyAnswer, Parity
from trainable.training.bootstrap import Intervals, resampled_scores
from trainable.training.evaluate import Scores

LEAST_SHARE = 0.999  # of the images, or of all their pixels, a file must have the run's top class
BATCHES = (1, 8, 32, 128)
WARM_UPS = 1  # memory is taken in the first pass, which does not count
LEAST_PASSES, MOST_PASSES, SECONDS = 3, 200, 1.0  # as many passes are timed as fit into these seconds


@dataclass(frozen=True)
class PartMeasured:
    """What a run answers on a part, in fp32, and how sure its scores are."""

    part: Split  # test, or validation of data without a test part
    scores: Scores
    intervals: Intervals
    parity: Parity


@dataclass(frozen=True)
class MeasuredBundle:
    """What was measured of a bundle's files and of the weights in them."""

    part: Split  # the files were compared on it, too
    scores: Scores
    intervals: Intervals
    parity: Mapping[
        str, float
    ]  # by file, the share of the part's images, or pixels, with the run's top class
    latency: Mapping[str, Any]  # what `latency.json` holds


def scored(trained: Trained, part: Split) -> PartMeasured:
    """Return what a run answers with these very weights. Raises UserError if it is not finite."""
    parity = trained.exporter.parity(trained.data, part)
    run = make_run(in_fp32(trained.recipe), data=trained.data, model=trained.network().float())
    try:
        scores = run.score(part, confusion=True, answers=True, take=parity.take)
        sure = resampled_scores(scores, run.extra_metrics, trained.recipe.loop.seed)
    finally:
        run.close()
    if sure is None:
        raise UserError("the weights answer with numbers that are not finite: there is nothing to bundle")
    return PartMeasured(part, scores, sure.intervals(), parity)


def measure(
    trained: Trained, answers: Mapping[str, NumpyAnswer], found: PartMeasured, say: Say
) -> MeasuredBundle:
    """Compare each file with the run, and measure how fast it answers. `say` receives a line for each.

    Raises ExportError where a file has the run's top class too seldom.
    """
    shares: dict[str, float] = {}
    words = trained.exporter.words
    for name, answer in answers.items():
        with stage(f"comparing the answers of {name}"):
            shares[name] = checked_share(name, *found.parity.same(answer), words.compared)
        say(f"{name}: the same top class on {shares[name]:.2%} {words.of_them}")
    with stage("measuring how fast the files answer"):
        latency = _latency(trained, answers)
    return MeasuredBundle(found.part, found.scores, found.intervals, shares, latency)


def checked_share(file: str, same: int, count: int, what: str) -> float:
    """Return the share for which a file has the run's top class. Raises ExportError below LEAST_SHARE."""
    if same < LEAST_SHARE * count:
        raise ExportError(
            f"{file}: its top class is the run's for {same:,} of {count:,} {what} ({same / count:.2%}), "
            f"expected at least {LEAST_SHARE:.1%}; no bundle is written"
        )
    return same / count


def _latency(trained: Trained, answers: Mapping[str, NumpyAnswer]) -> dict[str, Any]:
    info, packages = trained.data.info, {"model.onnx": "onnxruntime", "model.pt2": "torch"}
    size = (info.image_size, info.image_size, info.channels)
    files = {
        name: {
            "runtime": f"{packages[name]} {metadata.version(packages[name])}, cpu",
            "batches": latencies(answer, trained.exporter, size),
        }
        for name, answer in answers.items()
    }
    return {
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "image": list(size),
        "files": files,
    }


def latencies(
    answer: NumpyAnswer, exporter: Exporter, size: tuple[int, int, int]
) -> dict[str, dict[str, float]]:
    """Return, by batch, the milliseconds from decoded images [H, W, C] of one size to their answers: the
    median, the 5th and the 95th percentile, and how many passes these are of."""
    most = exporter.most_at_once
    batches = [each for each in BATCHES if most is None or each <= most] or [1]
    noise = np.random.default_rng(0)
    images = exporter.batch(noise.integers(0, 256, (max(batches), *size), dtype=np.uint8))
    return {str(batch): _summary(_times(answer, images[:batch])) for batch in batches}


def processor() -> str:
    """Return the name of this machine's processor."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _times(answer: NumpyAnswer, images: NDArray[Any]) -> list[float]:
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
