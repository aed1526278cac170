"""Measures what fixed views of the images cost in accuracy while the head alone is trained, and save in time.

    python benchmarks/frozen_views.py --data TUNEBOOK_DATA

EfficientNet-Lite0 with ImageNet's weights is fine-tuned at 64 px: five epochs of the head alone, then five of
all layers, AdamW at 0.003, batch 32, crops of 35 to 100 % of the area, and mirrored where that keeps the
label. Arms differ in `model.frozen_views` alone and take turns. Results are written after each run, and runs
that are there are not repeated.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from report import described, measure_missing
from trainable.data import DataSet
from trainable.data.assembly import from_arrays
from trainable.recipe import Recipe
from trainable.recipe.data import Data
from trainable.run import make_run
from tuning_sets import make_set

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.lite_weights import LITE0, write_weights

Flip = Literal["horizontal", "vertical"]
NAME = "frozen-views"
SIDE = 64
FROZEN, EPOCHS = 5, 10
SIZES = {"signs": 300, "clothes": 300}
VALIDATION = 300
FLIPS: dict[str, tuple[Flip, ...]] = {"signs": (), "clothes": ("horizontal",)}
SEEDS = range(3)
VIEWS = (None, 2, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder TUNEBOOK_DATA")
    parser.add_argument(
        "--weights", type=Path, default=Path("lite-weights"), help="where weights are written"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    write_weights(options.weights)
    measure_missing(NAME, ((each, partial(trained, each, options)) for each in settings()), page)


def settings() -> Iterator[dict[str, Any]]:
    for data in SIZES:
        for seed in SEEDS:
            yield from ({"data": data, "seed": seed, "views": views} for views in VIEWS)


@cache
def loaded(name: str, folder: Path) -> DataSet:
    whole = make_set(name, folder)
    return from_arrays(
        train=(_small(whole.train[: SIZES[name]]), whole.train_labels[: SIZES[name]]),
        validation=(_small(whole.test[:VALIDATION]), whole.test_labels[:VALIDATION]),
        spec=Data(path=name, flips=FLIPS[name]),
    )


def _small(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.stack(
        [np.asarray(Image.fromarray(each).resize((SIDE, SIDE), Image.Resampling.BICUBIC)) for each in images]
    )


def trained(setting: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return the validation accuracy after each epoch, and the seconds of each."""
    values: dict[str, Any] = {
        "data.path": setting["data"],
        "data.normalisation": {"mean": [0.5] * 3, "std": [0.5] * 3},
        "model": {"kind": "timm", "name": LITE0, "weights": str(options.weights / f"{LITE0}.safetensors")},
        "model.freeze_epochs": FROZEN,
        "model.frozen_views": setting["views"],
        "augmentation.crop": {"kind": "resized", "scale_min": 0.35},
        "augmentation.flip_probability": 0.5,
        "optimizer": {"kind": "adamw", "lr": 3e-3, "weight_decay": 0.02, "scaling": "none"},
        "schedule.warmup_epochs": 0.5,
        "precision.kind": "fp32",
        "loop.batch_size": 32,
        "loop.epochs": EPOCHS,
        "loop.seed": setting["seed"],
    }
    run = make_run(Recipe().with_values(values), data=loaded(setting["data"], options.data))
    while not run.finished:
        run.step()
    run.close()
    return {
        "accuracies": [each.val_accuracy for each in run.history],
        "seconds": [each.epoch_seconds for each in run.history],
    }


def page(runs: Sequence[dict[str, Any]], where: dict[str, Any]) -> str:
    """Return the results as a page of Markdown."""
    lines = [
        "# Fixed views while the head alone is trained",
        "",
        f"EfficientNet-Lite0 at {SIDE} px, {FROZEN} epochs of the head alone, then {EPOCHS - FROZEN} of all",
        f"layers: accuracy on {VALIDATION} validation images, mean (least to most) over n seeds; points",
        "of accuracy at the end against the same seed with new views in each epoch.",
        "",
        "| set | images | views | n | after the head alone | at the end | against new views |",
        "|-|-|-|-|-|-|-|",
    ]
    for data, images in SIZES.items():
        for views in VIEWS:
            row = _row(runs, data, views)
            if row:
                shown = "new in each epoch" if views is None else str(views)
                lines.append(f"| {data} | {images:,} | {shown} | {row} |")
    return "\n".join([*lines, "", described(where)])


def _row(runs: Sequence[dict[str, Any]], data: str, views: int | None) -> str:
    usual, ours = _accuracies(runs, data, None), _accuracies(runs, data, views)
    if not ours:
        return ""
    frozen, end = [each[FROZEN - 1] for each in ours.values()], [each[-1] for each in ours.values()]
    gains = [100 * (ours[seed][-1] - usual[seed][-1]) for seed in ours if seed in usual]
    against = _spread(gains, "+.1f") if gains and views is not None else ""
    return f"{len(ours)} | {_spread(frozen, '.3f')} | {_spread(end, '.3f')} | {against}"


def _accuracies(runs: Sequence[dict[str, Any]], data: str, views: int | None) -> dict[int, list[float]]:
    return {
        each["setting"]["seed"]: each["accuracies"]
        for each in runs
        if (each["setting"]["data"], each["setting"]["views"]) == (data, views)
    }


def _spread(values: Sequence[float], form: str) -> str:
    return f"{statistics.mean(values):{form}} ({min(values):{form}} to {max(values):{form}})"


if __name__ == "__main__":
    main()
