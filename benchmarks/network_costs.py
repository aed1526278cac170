"""Measures how steady the measured cost of a network is, what measuring takes, and what TPE makes of limits.

Latency is the quickest of many passes; their median is shown beside it. The machine may be busy, as that of a
search is: its load stands in the result. For TPE one rate is drawn, and a small part of
its range is allowed: how many of 50 draws lie there, if it is told how far the others are from it, or that
they have no score.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from report import described, environment, write
from search.deciding.make import make_sampler
from search.record.journal import Outcome
from spaces.domains import Float
from spaces.space import Dimension, Space
from trainable.data.assembly import from_arrays
from trainable.probes.network_cost import measure_cost, times_to_answer
from trainable.recipe import Recipe
from trainable.run import make_run
from trainable.training.run import Run

NETS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "resnet_small, 8 px": (1, 8, {"model.kind": "resnet_small", "model.width": 16}),
    "resnet18, 64 px": (3, 64, {"model.kind": "torchvision", "model.name": "resnet18"}),
    "tf_efficientnet_lite0, 96 px": (3, 96, {"model.kind": "timm", "model.name": "tf_efficientnet_lite0"}),
}
BATCH = 32
ALLOWED = (0.004, 0.02, 0.1)
"""These parts of a range of five decades are allowed."""
DRAWS = 50


def small_run(channels: int, side: int, values: dict[str, Any]) -> Run:
    """Return a run on noise in fp32."""
    random = np.random.default_rng(0)
    shape = (4 * BATCH, side, side) if channels == 1 else (4 * BATCH, side, side, channels)
    part = random.integers(0, 255, shape, dtype=np.uint8), np.arange(4 * BATCH) % 4
    fixed = {"data.path": "noise", "precision.kind": "fp32", "loop.batch_size": BATCH}
    return make_run(
        Recipe().with_values({**fixed, **values}), data=from_arrays(part, part), device=torch.device("cpu")
    )


def latency_row(name: str, run: Run, times: int) -> tuple[str, dict[str, Any]]:
    """Return a row of the page, and what it was made of."""
    passes = [times_to_answer(run) for _ in range(times)]
    found = {
        "quickest_ms": [1e3 * min(each) for each in passes],
        "median_ms": [1e3 * statistics.median(each) for each in passes],
        "measuring_s": [_seconds_to_measure(run) for _ in range(3)],
    }
    quickest, middle = (_spread(found[key]) for key in ("quickest_ms", "median_ms"))
    took = statistics.median(found["measuring_s"])
    return f"| {name} | {quickest} | {middle} | {took:.2f} |", found


def _seconds_to_measure(run: Run) -> float:
    began = time.perf_counter()
    measure_cost(run)
    return time.perf_counter() - began


def _spread(values: Sequence[float]) -> str:
    low, middle, high = np.quantile(values, (0.05, 0.5, 0.95))
    return f"{middle:.3g} ({low:.3g} to {high:.3g})"


def allowed_draws(part: float, outcome: Outcome, seed: int) -> int:
    """Return how many draws are allowed; others end so, and tell their excess if they are infeasible."""
    rates = Float(1e-4, 10.0, log=True)
    space = Space(Recipe(), (Dimension("optimizer.lr", rates, "drawn", "none"),), {"optimizer.lr": 0.01})
    sampler, limit, count = make_sampler(space, "tpe", seed, "max"), 1e-4 * 10.0 ** (5.0 * part), 0
    for number in range(DRAWS):
        values = sampler.ask(number)
        rate = values["optimizer.lr"]
        assert isinstance(rate, float)
        sampler.add(number, values)
        if rate <= limit:
            sampler.tell(number, "finished", {1: rate}, {"latency_ms": rate / limit - 1.0})
        else:
            above = {"latency_ms": rate / limit - 1.0} if outcome == "infeasible" else None
            sampler.tell(number, outcome, {}, above)
        count += rate <= limit
    return count


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Measure costs of networks again and again, and TPE's draws."
    )
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    where = environment(1)
    costs = {name: latency_row(name, small_run(*NETS[name]), arguments.times) for name in NETS}
    outcomes: tuple[Outcome, ...] = ("infeasible", "diverged")
    draws = {
        part: {
            each: [allowed_draws(part, each, seed) for seed in range(arguments.seeds)] for each in outcomes
        }
        for part in ALLOWED
    }
    rows = "\n".join(row for row, _ in costs.values())
    told = "\n".join(
        f"| {part:.1%} | {' | '.join(_spread(draws[part][each]) for each in outcomes)} | {DRAWS * part:.2g} |"
        for part in ALLOWED
    )
    page = (
        f"# What networks cost, measured, and limits\n\n"
        f"One image on the CPU in fp32, n={arguments.times} measurements of each network: median "
        f"(5 % to 95 %). The whole measurement takes a training step of {BATCH} images too; n=3, median.\n\n"
        "| network | latency_ms, the quickest pass | their median | seconds to measure |\n|-|-|-|-|\n"
        f"{rows}\n\nOf {DRAWS} draws of TPE, so many meet the limit, n={arguments.seeds} seeds: median "
        "(5 % to 95 %).\n\n"
        "| of the range is allowed | told as constraints | told as diverged | expected of uniform draws |\n"
        f"|-|-|-|-|\n{told}\n\n{described(where)}"
    )
    record = {
        "environment": where,
        "costs": {name: found for name, (_, found) in costs.items()},
        "draws": draws,
    }
    write("network-costs", record, page)


if __name__ == "__main__":
    main()
