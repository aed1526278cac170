"""Holds the rule for a search that names no network: from which one its trials start.

It is asked before the other rules, because their facts depend on the network.
"""

from __future__ import annotations

from collections.abc import Sequence

from spaces.facts import Backbone, Facts
from spaces.rules.backbones import BACKBONES
from spaces.rules.rulings import Ruling, Rulings

LEAST_SIDE = 64
"""Images of this side in pixels or more are fine-tuned; smaller ones hold little that a network has learnt
from photographs."""
FIRST = {False: "tf_efficientnet_lite0.in1k", True: "convnext_tiny.in12k_ft_in1k"}
"""The default networks: without and with a GPU."""
SOURCE = "measured: benchmarks/results/finetuning.md; arXiv 1411.1792, 2406.05612; the 64 px are ours"
NAMED = "the file's name"


def candidates(gpu: bool) -> Sequence[str]:
    """Returns the networks that a search may start from by itself, the best choice for the device first."""
    sizes = (BACKBONES["medium"], BACKBONES["small"]) if gpu else (BACKBONES["small"],)
    return tuple(dict.fromkeys((FIRST[gpu], *(name for each in sizes for name in each))))


def suits(side: int | None) -> bool:
    """Says whether images of this side, in pixels, are worth fine-tuning for; None if nobody has looked."""
    return side is not None and side >= LEAST_SIDE


def network(facts: Facts) -> Rulings:
    """Returns the pretrained network that trials start from; nothing if the study names one, if the images
    are small, and if no weights are at hand.

    In the same time weights from ImageNet gained far more than training from scratch. Of small networks
    ConvNeXt-Tiny came first over all sets of a comparison (arXiv 2406.05612); a CPU takes EfficientNet-Lite0,
    a twelfth of the operations.
    """
    return start(facts.stored_side, facts.backbone)


def start(side: int | None, backbone: Backbone | None) -> Rulings:
    """Returns what `network` does, from the two facts that it depends on. A person's own weights are used
    whatever the size of the images."""
    if backbone is None or (backbone.published and not suits(side)):
        return {}
    reason = f"images of {side} px, and its weights are at hand" if backbone.published else "your weights"
    source = SOURCE if backbone.published else NAMED
    values = {"kind": "timm", "name": backbone.name, "weights": backbone.weights}
    return {f"model.{name}": Ruling(value, reason, source) for name, value in values.items()}
