"""Measures whether a pruned network gains when the unpruned one teaches it: `tunebook shrink --distillation`.

    python benchmarks/pruned_students.py --data TUNEBOOK_DATA

The networks of benchmarks/shrinking.py are pruned and fine-tuned by the labels alone, and again, as long and
with the same seeds, with the unpruned network as teacher. Results are written after each run, and runs that
are there are not repeated.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from report import described, measure_missing
from shrinking import SEEDS, SETS, folder_of, whole, with_interval
from trainable.shrinking.fine_tuning import fine_tuning, taught_by
from trainable.shrinking.shrink import DISTILLED, TUNED, UNPRUNED, shrink

NAME = "pruned-students"
SHARES = (0.5, 0.25)
TUNINGS = 3
"""Each pruned network is fine-tuned with so many seeds."""
Runs = Sequence[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder TUNEBOOK_DATA")
    parser.add_argument("--work", type=Path, default=Path("shrinking-work"), help="where networks are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measure_missing(NAME, ((each, partial(measured, each, options)) for each in settings()), page)


def settings() -> Iterator[dict[str, Any]]:
    for data in SETS:
        for share in SHARES:
            yield from ({"data": data, "seed": seed, "share": share} for seed in SEEDS)


def measured(setting: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return test accuracies by network, one for each fine-tuning."""
    known = whole(setting, options)
    recipe = fine_tuning(known.recipe)
    taught = taught_by(recipe, folder_of(setting, options).absolute())
    found = shrink(known, recipe, setting["share"], seeds=TUNINGS, taught=taught, test=True, say=print)
    return {
        "left": found.pruned.share,
        "epochs": recipe.loop.epochs,
        "accuracies": {name: [each["test"].accuracy for each in of] for name, of in found.scores.items()},
    }


def page(runs: Runs, where: dict[str, Any]) -> str:
    """Return the results as a page of Markdown."""
    lines = [
        "# Pruned networks that learn from the unpruned one",
        "",
        "`resnet_small` of width 16, trained on the digits, and of width 8, on 2,000 images of",
        "Fashion-MNIST, pruned and fine-tuned for a fifth of the epochs, by the labels alone and with the",
        "unpruned network as teacher (logits, temperature 4, half of the loss): accuracy on the test part,",
        f"mean over {TUNINGS} seeds of the fine-tuning and n trainings of the unpruned network. Differences",
        "in points, with 95 % intervals (Student's t over trainings).",
        "",
        "| set | asked | left | epochs | n | unpruned | fine-tuned | distilled | distilled - fine-tuned |",
        "|-|-|-|-|-|-|-|-|-|",
        *_rows(runs),
    ]
    return "\n".join([*lines, "", described(where)])


def _rows(runs: Runs) -> Iterator[str]:
    for data in SETS:
        for share in SHARES:
            found = [
                each for each in runs if (each["setting"]["data"], each["setting"]["share"]) == (data, share)
            ]
            if not found:
                continue
            means = [
                {name: 100 * statistics.mean(of) for name, of in each["accuracies"].items()} for each in found
            ]
            scores = " | ".join(
                f"{statistics.mean(each[name] for each in means):.1f} %"
                for name in (UNPRUNED, TUNED, DISTILLED)
            )
            gains = [each[DISTILLED] - each[TUNED] for each in means]
            left = statistics.mean(each["left"] for each in found)
            yield (
                f"| {data} | {share:g} | {left:.3f} | {found[0]['epochs']} | {len(found)} | {scores} | "
                f"{with_interval(gains)} |"
            )


if __name__ == "__main__":
    main()
