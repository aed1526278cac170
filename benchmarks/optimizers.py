"""Compares optimizers at several rates, and batches, in short runs from scratch.

    TUNEBOOK_DATA=FOLDER python benchmarks/optimizers.py

The sets, the network and the epochs are those of real_searches.py; the batch is the one that the rules settle
there, weights are averaged, and runs of 20 epochs shift images by up to 1.5 of 32 pixels. Two of them run
again with a half and with a quarter of that batch. Results are written after each run, and runs that are
there are not repeated.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from real_searches import IMAGES, make_set_of
from report import described, measure_missing
from trainable.data import DataSet
from trainable.data.assembly import load
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.train import train

NAME = "optimizers"
SEEDS = (1, 2)
FILES: dict[str, dict[str, Any]] = {
    "sign-language": {"path": str(IMAGES / "sign-language-digits" / "Dataset"), "image_size": 32},
    "nuclei": {"path": "nuclei.npz", "image_size": 32},
    "fashion-mnist": {"path": str(IMAGES / "fashion-mnist"), "train_limit": 10_000},
    "photographs": {"path": "photographs.npz"},
}
RUNS = {"sign-language": (20, 32), "nuclei": (20, 64), "fashion-mnist": (9, 128), "photographs": (9, 128)}
"""The epochs and the batch of each set's runs."""
IMAGES_OF = {"sign-language": 1_442, "nuclei": 2_700, "fashion-mnist": 10_000, "photographs": 10_000}
"""The training images of each set."""
OPTIMIZERS: dict[str, tuple[dict[str, Any], Sequence[tuple[float, float]]]] = {
    "SGD": ({"kind": "sgd", "momentum": 0.9}, [(0.5, 2e-4), (1.0, 2e-4), (2.0, 2e-4), (4.0, 2e-4)]),
    "AdamW": ({"kind": "adamw"}, [(0.01, 0.02), (0.02, 0.02), (0.05, 0.02), (0.1, 0.02)]),
    "NAdamW": ({"kind": "timm", "name": "nadamw"}, [(0.02, 0.02), (0.05, 0.02), (0.1, 0.02)]),
    "Muon": (
        {"kind": "timm", "name": "muon"},
        [(0.02, 0.1), (0.05, 0.1), (0.1, 0.1), (0.2, 0.1), (0.05, 0.3), (0.1, 0.3)],
    ),
}
"""The fields of each optimizer, and its rates at batch 256 with their decays."""
SMALLER = {"SGD": (1.0, 2e-4), "Muon": (0.1, 0.3)}
"""The rate and the decay of those that run with smaller batches."""
PARTS = (2, 4)
"""The rule's batch is divided by these."""

HEAD = """# Optimizers in short runs from scratch

ResNet-8 of width 8 with stride 2 (20,000 parameters): accuracy on the validation and on the test part, in
percent, means over n seeds; `best`: each optimizer at the rate and decay that are best on validation, with
the least and the most of its runs on test.

"""


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for data in ("nuclei", "photographs"):
            make_set_of(data, Path(folder))
        measure_missing(NAME, ((each, partial(trained, each, folder)) for each in settings()), page)


def settings() -> Iterator[dict[str, Any]]:
    for seed in SEEDS:
        for data in FILES:
            for optimizer, (_, rates) in OPTIMIZERS.items():
                for rate, decay in rates:
                    yield {"data": data, "optimizer": optimizer, "lr": rate, "decay": decay, "seed": seed}
    for seed in SEEDS:
        for data in FILES:
            for optimizer, (rate, decay) in SMALLER.items():
                setting = {"data": data, "optimizer": optimizer, "lr": rate, "decay": decay, "seed": seed}
                yield from ({**setting, "part": part} for part in PARTS)


@cache
def loaded(data: str, folder: str) -> DataSet:
    spec = FILES[data]
    return load(Data.model_validate({**spec, "path": str(Path(folder) / spec["path"])}))


def trained(setting: dict[str, Any], folder: str) -> dict[str, Any]:
    """Return the accuracies at the end of one run."""
    fields, _ = OPTIMIZERS[setting["optimizer"]]
    epochs, batch = RUNS[setting["data"]]
    images = loaded(setting["data"], folder)
    values: dict[str, Any] = {
        "model": {"kind": "resnet_small", "depth": 8, "width": 8, "stem_stride": 2},
        "optimizer": {**fields, "lr": setting["lr"], "weight_decay": setting["decay"]},
        "schedule.warmup_epochs": min(1.0, epochs / 10),
        "regularisation.averaging": {"kind": "ema", "decay": 0.95},
        "augmentation.crop": {"kind": "pad", "fraction": 1.5 / 32} if epochs >= 10 else {"kind": "none"},
        "precision.kind": "fp32",
        "loop.batch_size": batch // setting.get("part", 1),
        "loop.epochs": epochs,
        "loop.seed": setting["seed"],
    }
    scores = train(Recipe().with_values(values), data=images, test=True).tree()
    return {part: scores[f"{part}_accuracy"] for part in ("val", "test")}


def page(runs: Sequence[dict[str, Any]], where: dict[str, Any]) -> str:
    """Return the results as a page of Markdown."""
    best, every = [], []
    for data in FILES:
        for optimizer, (_, rates) in OPTIMIZERS.items():
            found = {rate: _of(runs, data, optimizer, rate) for rate in rates}
            found = {rate: each for rate, each in found.items() if each}
            every += [_row((data, optimizer, *map(str, rate)), each) for rate, each in found.items()]
            if found:
                rate = max(found, key=lambda rate: statistics.mean(each["val"] for each in found[rate]))
                best.append(_row((data, optimizer, *map(str, rate)), found[rate]))
    tables = [
        _table("Best", "rate | decay", best),
        _table("Smaller batches", "batch | steps a run", _of_batches(runs)),
        _table("All", "rate | decay", every),
    ]
    return f"{HEAD}{chr(10).join(tables)}\n{described(where)}"


def _of_batches(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return the rows of smaller batches, at the same rate for 256 images."""
    rows = []
    for data, (epochs, batch) in RUNS.items():
        images = IMAGES_OF[data]
        for optimizer, rate in SMALLER.items():
            for part in (1, *PARTS):
                if found := _of(runs, data, optimizer, rate, part):
                    size = batch // part
                    rows.append(_row((data, optimizer, str(size), f"{images // size * epochs:,}"), found))
    return rows


def _table(title: str, columns: str, rows: Sequence[str]) -> str:
    head = f"| data | optimizer | {columns} | validation | test | from, to | n |\n|-|-|-|-|-|-|-|-|"
    return f"## {title}\n\n{head}\n{chr(10).join(rows)}\n"


def _of(
    runs: Sequence[dict[str, Any]], data: str, optimizer: str, rate: tuple[float, float], part: int = 1
) -> list[dict[str, Any]]:
    """Return the runs with this optimizer at this rate and decay, and with this part of the rule's batch."""
    wanted = {"data": data, "optimizer": optimizer, "lr": rate[0], "decay": rate[1]}
    found = [each for each in runs if wanted.items() <= each["setting"].items()]
    return [each for each in found if each["setting"].get("part", 1) == part]


def _row(names: Sequence[str], runs: Sequence[dict[str, Any]]) -> str:
    validation, test = ([100 * each[part] for each in runs] for part in ("val", "test"))
    means = f"{statistics.mean(validation):.1f} | {statistics.mean(test):.1f}"
    return f"| {' | '.join(names)} | {means} | {min(test):.1f} to {max(test):.1f} | {len(runs)} |"


if __name__ == "__main__":
    main()
