"""Trains draws from the space `document` on photographs, and writes their curves as a table for `pruning`.

    python benchmarks/document_draws.py --data FOLDER [--draws 40]

It uses the sign-language digits at 32 px, 20 epochs, and ResNet-8 of width 8 with stride 2. The table has a
line for each draw; a script that was cut short goes on after the lines written.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

from report import refuse_busy_machine
from search.facts.hardware import local_hardware
from search.record.home import Home
from search.running.prepare import Prepared, prepare
from search.study import Study
from spaces.domains import Values
from spaces.space import Space
from trainable.run import make_run

TABLE = Path(__file__).parent / "tables" / "photographs_1442.jsonl"
SEED = 77


def main() -> None:
    options = _options()
    torch.set_num_threads(1)
    refuse_busy_machine(2)
    prepared = prepare(_study(options.data), Home(Path()), local_hardware())
    done = len(TABLE.read_text().splitlines()) if TABLE.exists() else 0
    with TABLE.open("a") as table:
        for number in range(done, options.draws):
            values = drawn(prepared.space, np.random.default_rng((SEED, number)))
            table.write(json.dumps({"values": values, "curve": curve(prepared, values)}) + "\n")
            table.flush()


def drawn(space: Space, random: np.random.Generator) -> Values:
    return space.sample(lambda dimension: float(random.random()))


def curve(prepared: Prepared, values: Values) -> list[float]:
    """Return the validation accuracy after each epoch; fewer than all where the run diverged."""
    run = make_run(prepared.space.recipe(values), data=prepared.data)
    points = []
    while not run.finished and not (result := run.step()).diverged:
        points.append(round(result.val_accuracy, 4))
    return points


def _study(folder: str) -> Study:
    return Study.from_tree(
        {
            "data": {"path": folder, "image_size": 32},
            "base": {"model": {"kind": "resnet_small", "depth": 8, "width": 8, "stem_stride": 2}},
            "budget": {"epochs": 20},
        },
        where="",
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Train draws of the space `document` on the sign-language digits."
    )
    parser.add_argument("--data", required=True, help="the folder of the sign-language digits")
    parser.add_argument("--draws", type=int, default=40)
    return parser.parse_args()


if __name__ == "__main__":
    main()
