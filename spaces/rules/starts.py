"""Holds the rule for a search that names no network: from which one its trials start.

It is asked before the other rules, because their facts depend on the network. `000:48` is a line of the
training tricks notes (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from spaces.facts import Backbone, Facts
from spaces.rules.backbones import BACKBONES
from spaces.rules.rulings import Ruling, Rulings

LEAST_SIDE = 64
"""Images of this side in pixels or more are fine-tuned; smaller ones hold little that a network has learnt
from photographs."""
LARGEST_OF_UNET_SMALL = 128
"""A segmentation of images up to this shorter side, in pixels, is learnt from scratch by `unet_small`."""
FIRST = {False: "tf_efficientnet_lite0.in1k", True: "convnext_tiny.in12k_ft_in1k"}
"""The default networks: without and with a GPU."""
SOURCE = "measured: benchmarks/results/finetuning.md; arXiv 1411.1792, 2406.05612; the 64 px are ours"
SOURCE_OF_MASKS = "000:48; arXiv 1505.04597, 1411.4038, section 4.3; the 128 px are ours"
NAMED = "the file's name"
NO_ENCODER = ("vit_",)
"""No decoder fits above networks whose names begin so: their features have one size."""


def candidates(gpu: bool, *, dense: bool = False) -> Sequence[str]:
    """Return the networks that a search may start from by itself, the best choice for the device first; for
    a segmentation (`dense`) those that a decoder fits above."""
    sizes = (BACKBONES["medium"], BACKBONES["small"]) if gpu else (BACKBONES["small"],)
    found = dict.fromkeys((FIRST[gpu], *(name for each in sizes for name in each)))
    return tuple(name for name in found if not (dense and name.startswith(NO_ENCODER)))


def suits(side: int | None, *, dense: bool = False) -> bool:
    """Say whether images of this side, in pixels, are worth fine-tuning for; None if nobody has looked."""
    if side is None:
        return False
    return side > LARGEST_OF_UNET_SMALL if dense else side >= LEAST_SIDE


def network(facts: Facts) -> Rulings:
    """Return the pretrained network that trials start from; nothing if the study names one, if the images
    are small, and if no weights are at hand.

    In the same time weights from ImageNet gained far more than training from scratch. Of small networks
    ConvNeXt-Tiny came first over all sets of a comparison (arXiv 2406.05612); a CPU takes EfficientNet-Lite0,
    a twelfth of the operations. A segmentation has smp's U-Net above the same networks, the decoder that
    answers for every pixel and takes images of every size. The authors of FCN held training from scratch for
    not feasible (arXiv 1411.4038, section 4.3), and more pretraining gained some 3 % (000:48).
    """
    return start(facts.stored_side, facts.backbone, dense=facts.dense)


def start(side: int | None, backbone: Backbone | None, *, dense: bool = False) -> Rulings:
    """Return what `network` does, from the three facts that it depends on. A person's own weights are used
    whatever the size of the images."""
    if backbone is None or (backbone.published and not suits(side, dense=dense)):
        return {}
    reason = f"images of {side} px, and its weights are at hand" if backbone.published else "your weights"
    source = SOURCE_OF_MASKS if dense else SOURCE
    source = source if backbone.published else NAMED
    values = {"kind": "timm", "name": backbone.name, "weights": backbone.weights}
    if dense:
        values = {"kind": "smp", "name": "unet", "encoder": backbone.name, "weights": backbone.weights}
    return {f"model.{name}": Ruling(value, reason, source) for name, value in values.items()}
