"""Measures what networks lose, and what they spare, when their channels are pruned to a share of operations.

    python benchmarks/shrinking.py --data TUNEBOOK_DATA

Small residual nets are trained on scikit-learn's digits and on some images of Fashion-MNIST. Each is pruned
to several shares and fine-tuned as `tunebook shrink` does, and the same layers are trained from new weights
at full length. Other rankings of channels and other rates of the fine-tuning are tried on the same networks.
Networks of torchvision and timm are pruned with random weights, to see which can be.
Results are written after each run, and runs that are there are not repeated.
"""

from __future__ import annotations

import argparse
import copy
import math
import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

import shrinking_networks
from report import described, measure_missing
from trainable.bundle.trained import Trained, trained_in
from trainable.recipe import Recipe
from trainable.recipe.trained_files import MODEL_FILE
from trainable.shrinking.choice import Ranking
from trainable.shrinking.fine_tuning import LR_FACTOR, fine_tuning, seeds_of, trained_on
from trainable.shrinking.prune import RANKING, prune
from trainable.shrinking.shrink import PRUNED, SCRATCH, TUNED, UNPRUNED, shrink
from trainable.train import train

NAME = "pruning-networks"
SEEDS = range(3)
SHARES = (0.75, 0.5, 0.25)
TRAINING: dict[str, Any] = {
    "augmentation.crop.kind": "none",
    "precision.kind": "fp32",
    "loop.batch_size": 32,
}
SETS: dict[str, dict[str, Any]] = {
    "digits": {"model.width": 16, "optimizer.lr": 0.2, "loop.epochs": 20},
    "fashion-mnist": {
        "data.train_limit": 2000,
        "data.validation_fraction": 0.02,
        "model.width": 8,
        "optimizer.lr": 1.0,
        "loop.epochs": 15,
    },
}
OTHERS: tuple[tuple[Ranking, float], ...] = (("uniform", 0.3), ("uniform", 0.1), ("global", 1.0))
"""Other rankings of channels, and rates as shares of the recipe's."""
COLUMNS = (
    *("set", "asked", "left", "n", "unpruned", "pruned", "fine-tuned", "from scratch"),
    *("parameters", "for 1", "for 32"),
)
STUDENT = {2: 12.706, 3: 4.303}
"""The 97.5 % quantile of Student's t by the number of differences."""
Runs = Sequence[dict[str, Any]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder TUNEBOOK_DATA")
    parser.add_argument("--work", type=Path, default=Path("shrinking-work"), help="where networks are kept")
    options = parser.parse_args()
    torch.set_num_threads(1)
    trained = ((each, partial(measured, each, options)) for each in settings())
    random = ((each, partial(shrinking_networks.measured, each)) for each in shrinking_networks.settings())
    measure_missing(NAME, chain(random, trained), page)


def settings() -> Iterator[dict[str, Any]]:
    for data in SETS:
        for seed in SEEDS:
            for share in SHARES:
                for ranking, factor in ((RANKING, LR_FACTOR), *(OTHERS if share < SHARES[0] else ())):
                    yield {
                        "data": data,
                        "seed": seed,
                        "share": share,
                        "ranking": ranking,
                        "lr_factor": factor,
                    }


def measured(setting: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return test accuracies by network, and costs where the setting is that of the command."""
    known = whole(setting, options)
    if (setting["ranking"], setting["lr_factor"]) == (RANKING, LR_FACTOR):
        return as_the_command(known, setting["share"])
    info, recipe = known.data.info, fine_tuning(known.recipe, lr_factor=setting["lr_factor"])
    shape = (info.channels, info.image_size, info.image_size)
    pruned = prune(known.network(), shape, setting["share"], ranking=setting["ranking"])
    (tuned,) = trained_on(
        recipe,
        known.data,
        lambda _: copy.deepcopy(pruned.network),
        seeds=seeds_of(known.recipe, 1),
        parts=("test",),
        metric="val_accuracy",
        device=torch.device("cpu"),
        title=TUNED,
        say=print,
    )
    return {"left": pruned.share, "accuracies": {TUNED: tuned.scores["test"].accuracy}}


def whole(setting: dict[str, Any], options: argparse.Namespace) -> Trained:
    """Return the network that is pruned, trained unless an earlier run left it."""
    folder = folder_of(setting, options)
    path = {} if setting["data"] == "digits" else {"data.path": str(options.data / setting["data"])}
    if not (folder / MODEL_FILE).is_file():
        values = {**TRAINING, **SETS[setting["data"]], **path, "loop.seed": setting["seed"]}
        train(Recipe().with_values(values), out=folder)
    return trained_in(folder)


def folder_of(setting: dict[str, Any], options: argparse.Namespace) -> Path:
    """Return the folder of the network that is pruned."""
    folder: Path = options.work / f"{setting['data']}-{setting['seed']}"
    return folder


def as_the_command(known: Trained, share: float) -> dict[str, Any]:
    recipe = fine_tuning(known.recipe)
    found = shrink(known, recipe, share, seeds=1, test=True, scratch=True, say=print)
    return {
        "left": found.pruned.share,
        "accuracies": {name: each[0]["test"].accuracy for name, each in found.scores.items()},
        "parameters": {name: each.parameters for name, each in found.costs.items()},
        "latencies": {
            name: {str(batch): each.tree() for batch, each in cost.latencies.items()}
            for name, cost in found.costs.items()
        },
    }


def page(runs: Runs, where: dict[str, Any]) -> str:
    """Return the results as a page of Markdown."""
    lines = [
        "# Pruned networks",
        "",
        "`resnet_small` of width 16, trained on the digits (20 epochs), and of width 8, on 2,000 images of",
        "Fashion-MNIST (15), pruned to a share of its operations, and fine-tuned for a fifth of the epochs",
        "at the whole rate: accuracy on the test part, mean over n trainings of the whole network;",
        "differences from it in points, of the same training, with 95 % intervals (Student's t over",
        "trainings). From scratch: the same layers from new weights, at full length. Parameters and latency",
        "(for 1 image and for 32): those of the pruned network over the whole one's, mean over trainings; of",
        "latency, each is the ratio of the median passes, taken in turns.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|-|-|-|-|-|-|-|-|-|-|-|",
        *_rows(runs),
        "",
        "## Other ways",
        "",
        "Points of test accuracy of the fine-tuned network against the whole one, mean (least to most).",
        "",
        "| set | asked | channels ranked | rate | n | difference |",
        "|-|-|-|-|-|-|",
        *_other_rows(runs),
        "",
        *shrinking_networks.lines(runs),
    ]
    return "\n".join([*lines, "", described(where)])


def _rows(runs: Runs) -> Iterator[str]:
    for data in SETS:
        for share in SHARES:
            found = _of(runs, data, share, RANKING, LR_FACTOR)
            if not found:
                continue
            scores = [each["accuracies"] for each in found]
            whole = statistics.mean(each[UNPRUNED] for each in scores)
            differences = [
                with_interval([100 * (each[name] - each[UNPRUNED]) for each in scores])
                for name in (PRUNED, TUNED, SCRATCH)
            ]
            parameters = statistics.mean(_ratio(each["parameters"]) for each in found)
            latencies = " | ".join(
                f"{statistics.mean(_latency(each, batch) for each in found):.2f}" for batch in ("1", "32")
            )
            left = statistics.mean(each["left"] for each in found)
            yield (
                f"| {data} | {share:g} | {left:.3f} | {len(found)} | {100 * whole:.1f} % | "
                f"{' | '.join(differences)} | {parameters:.2f} | {latencies} |"
            )


def _other_rows(runs: Runs) -> Iterator[str]:
    for data in SETS:
        for share in SHARES[1:]:
            whole = {each["setting"]["seed"]: each for each in _of(runs, data, share, RANKING, LR_FACTOR)}
            for ranking, factor in ((RANKING, LR_FACTOR), *OTHERS):
                found = _of(runs, data, share, ranking, factor)
                gains = [
                    100 * (each["accuracies"][TUNED] - whole[seed]["accuracies"][UNPRUNED])
                    for each in found
                    if (seed := each["setting"]["seed"]) in whole
                ]
                if gains:
                    spread = f"{statistics.mean(gains):+.1f} ({min(gains):+.1f} to {max(gains):+.1f})"
                    yield f"| {data} | {share:g} | {ranking} | {factor:g} | {len(gains)} | {spread} |"


def _of(runs: Runs, data: str, share: float, ranking: str, factor: float) -> list[dict[str, Any]]:
    wanted = {"data": data, "share": share, "ranking": ranking, "lr_factor": factor}
    return [each for each in runs if {**each["setting"], **wanted} == each["setting"]]


def _ratio(values: dict[str, float]) -> float:
    return values[PRUNED] / values[UNPRUNED]


def _latency(run: dict[str, Any], batch: str) -> float:
    return _ratio({name: each[batch]["median_ms"] for name, each in run["latencies"].items()})


def with_interval(gains: Sequence[float]) -> str:
    """Return the mean of differences, with its interval where it is of two or three."""
    mean = statistics.mean(gains)
    if len(gains) not in STUDENT:
        return f"{mean:+.1f}"
    half = STUDENT[len(gains)] * statistics.stdev(gains) / math.sqrt(len(gains))
    return f"{mean:+.1f} ({mean - half:+.1f} to {mean + half:+.1f})"


if __name__ == "__main__":
    main()
