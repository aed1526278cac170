"""Knows the networks that benchmarks/shrinking.py prunes with random weights: which can be, and how fast they
are then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from trainable.errors import ModelError
from trainable.models.make import make_model
from trainable.recipe import Recipe
from trainable.shrinking.latency import latencies
from trainable.shrinking.prune import STEP, prune

SHAPE, CLASSES, SHARE = (3, 64, 64), 10, 0.5
TORCHVISION = (
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "googlenet",
    "mnasnet0_5",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "regnet_y_400mf",
    "resnet18",
    "resnext50_32x4d",
    "shufflenet_v2_x0_5",
    "squeezenet1_1",
    "vit_b_16",
)
TIMM = (
    "convnext_atto",
    "convnextv2_atto",
    "dla34",
    "efficientnetv2_rw_t",
    "fastvit_t8",
    "ghostnet_050",
    "hrnet_w18_small",
    "lcnet_050",
    "mobilenetv3_small_050",
    "mobilenetv4_conv_small",
    "mobileone_s0",
    "nf_regnet_b0",
    "regnetx_002",
    "repvgg_a0",
    "res2net50_14w_8s",
    "resnetv2_50",
    "selecsls42",
    "starnet_s1",
    "tf_efficientnet_lite0",
    "vovnet39a",
)
TIMED = (("torchvision", "resnet18"), ("timm", "mobilenetv3_small_100"))
STEPS = (1, STEP)
TIMES = range(3)
"""Each network is timed so often."""


def settings() -> Iterator[dict[str, Any]]:
    yield from ({"library": "torchvision", "network": name} for name in TORCHVISION)
    yield from ({"library": "timm", "network": name} for name in TIMM)
    for library, name in TIMED:
        yield from ({"library": library, "network": name, "time": time} for time in TIMES)


def measured(setting: dict[str, Any]) -> dict[str, Any]:
    """Return the share of the operations that is left, or why none; or latencies by step, in turns."""
    torch.manual_seed(0)
    values = {"model": {"kind": setting["library"], "name": setting["network"]}, "precision.kind": "fp32"}
    recipe = Recipe().with_values(values)
    whole = make_model(recipe.model, classes=CLASSES, channels=SHAPE[0], image_size=SHAPE[1])
    if "time" not in setting:
        try:
            return {"left": prune(whole, SHAPE, SHARE).share}
        except ModelError as error:
            return {"refused": str(error)}
    networks = {str(step): prune(whole, SHAPE, SHARE, step=step).network for step in STEPS}
    found = latencies({"whole": whole, **networks}, SHAPE, recipe, torch.device("cpu"))
    return {
        "ms": {name: {str(batch): each.median_ms for batch, each in of.items()} for name, of in found.items()}
    }


def lines(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield what was found, as Markdown."""
    of_networks = [each for each in runs if "network" in each["setting"]]
    tried = [each for each in of_networks if "time" not in each["setting"]]
    yield from (f"## Networks, to {SHARE:g} of their operations at {SHAPE[1]} px", "")
    yield from ("Random weights, n=1.", "", "| network | left |", "|-|-|")
    yield from (f"| {_named(each)} | {_left(each)} |" for each in tried)
    yield from ("", "## Steps of channels", "")
    yield "Latency over the whole network's, median passes in turns: mean (least to most) of n measurements."
    yield from ("", "| network | channels a step | n | for 1 | for 32 |", "|-|-|-|-|-|")
    for library, name in TIMED:
        timed = [
            each for each in of_networks if "time" in each["setting"] and each["setting"]["network"] == name
        ]
        for step in STEPS if timed else ():
            cells = [_spread([_ratio(each, str(step), batch) for each in timed]) for batch in ("1", "32")]
            yield f"| {library}'s {name} | {step} | {len(timed)} | {' | '.join(cells)} |"


def _named(run: dict[str, Any]) -> str:
    return f"{run['setting']['library']}'s {run['setting']['network']}"


def _left(run: dict[str, Any]) -> str:
    if "left" in run:
        return f"{run['left']:.3f}"
    return f"refused: {run['refused'].partition(': ')[2].replace('|', '/')}"


def _ratio(run: dict[str, Any], step: str, batch: str) -> float:
    return float(run["ms"][step][batch] / run["ms"]["whole"][batch])


def _spread(values: Sequence[float]) -> str:
    return f"{sum(values) / len(values):.2f} ({min(values):.2f} to {max(values):.2f})"
