"""Measures how fast networks train in each number format and memory layout: what `precision.kind: auto` sees.

    python benchmarks/number_formats.py [--times 7]

Each time is what a search measures before its trials; the machine may be busy, and its load stands in the
result. Networks take turns.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from network_costs import NETS as COSTED
from report import described, environment, write
from trainable.data.assembly import from_arrays
from trainable.models.make import make_model
from trainable.probes.speed import measure_speeds
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.recipe.speeds import Speed, fastest
from trainable.recipe.training import Precision
from trainable.training.devices import default_device

NETS: dict[str, tuple[int, int, dict[str, Any]]] = {
    **COSTED,
    "resnet_small, 64 px": (3, 64, {"model.kind": "resnet_small", "model.width": 16}),
}
CLASSES = 10
Rates = dict[str, list[float]]
"""Images a second by format and layout, one for each time."""


def speeds_of(name: str) -> tuple[Speed, ...]:
    channels, side, values = NETS[name]
    spec = Recipe().with_values(values).model
    network = make_model(spec, classes=CLASSES, channels=channels, image_size=side)
    part = np.zeros((CLASSES, side, side, channels), np.uint8), np.arange(CLASSES)
    info = from_arrays(part, part, spec=Data(path="blank", image_size=side)).info
    return measure_speeds(network, info, default_device(), Precision())


def page(rates: Mapping[str, Rates], taken: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield from ("# Speed in each number format and layout", "")
    yield "Images a second of whole training steps, median (least to most); what `auto` takes, and how often."
    ways = list(next(iter(rates.values())))
    yield from ("", f"| network | {' | '.join(ways)} | taken |", "|-" * (len(ways) + 2) + "|")
    for name, by_way in rates.items():
        cells = " | ".join(
            f"{statistics.median(each):.0f} ({min(each):.0f} to {max(each):.0f})" for each in by_way.values()
        )
        choices = ", ".join(f"{way} {taken[name].count(way)}x" for way in ways if way in taken[name])
        yield f"| {name} | {cells} | {choices} |"
    yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--times", type=int, default=7)
    times = parser.parse_args().times
    torch.set_num_threads(1)
    where = environment(1)
    rates: dict[str, Rates] = {name: {} for name in NETS}
    taken: dict[str, list[str]] = {name: [] for name in NETS}
    for _ in range(times):
        for name in NETS:
            speeds = speeds_of(name)
            for each in speeds:
                rates[name].setdefault(each.way, []).append(each.images_per_second)
            taken[name].append(fastest(speeds).way)
    found = {"environment": where, "times": times, "images_per_second": rates, "taken": taken}
    write("number-formats", found, "\n".join([*page(rates, taken), described(where)]))


if __name__ == "__main__":
    main()
