"""The pretrained networks of timm that are worth a first look, and which one a search starts from by itself.

Each is the best of its size on ImageNet among those whose licence allows any use, or the one that most people
begin with; timm's results (https://github.com/huggingface/pytorch-image-models/tree/main/results) have the
accuracies. What suits your images best, `tunebook backbones` measures. The rule of the start is asked before
the other rules, because their facts depend on the network. `000:48` is a line of the training tricks notes
(docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from spaces.facts import Backbone, Facts
from spaces.rules.rulings import Ruling, Rulings
from spaces.rules.tasks import rules_of
from trainable.recipe.tasks import TaskKind

BackboneSize = Literal["small", "medium", "large"]
SIZES: tuple[BackboneSize, ...] = get_args(BackboneSize)

# Small have up to 12 million parameters, medium up to 30, large up to 100
BACKBONES: dict[BackboneSize, tuple[str, ...]] = {
    "small": (
        "tf_efficientnet_lite0.in1k",
        "mobilenetv3_large_100.ra_in1k",
        "efficientnet_b0.ra_in1k",
        "convnext_atto.d2_in1k",
        "resnet18.a1_in1k",
    ),
    "medium": (
        "resnet50.a1_in1k",
        "tf_efficientnetv2_s.in21k_ft_in1k",
        "convnext_tiny.in12k_ft_in1k",
        "vit_small_patch16_224.augreg_in21k_ft_in1k",
    ),
    "large": (
        "convnext_base.fb_in22k_ft_in1k",
        "vit_base_patch16_224.augreg2_in21k_ft_in1k",
        "tf_efficientnetv2_m.in21k_ft_in1k",
    ),
}

FIRST = {False: "tf_efficientnet_lite0.in1k", True: "convnext_tiny.in12k_ft_in1k"}  # without and with a GPU
NAMED = "the file's name"


def candidates(gpu: bool, task: TaskKind) -> Sequence[str]:
    """Return the networks that a search may start from by itself, the best choice for the device first."""
    sizes = (BACKBONES["medium"], BACKBONES["small"]) if gpu else (BACKBONES["small"],)
    found = dict.fromkeys((FIRST[gpu], *(name for each in sizes for name in each)))
    return tuple(name for name in found if not name.startswith(rules_of(task).start.unfit))


def suits(side: int | None, task: TaskKind) -> bool:
    """Say whether images of this side, in pixels, are worth fine-tuning for; None if nobody has looked."""
    return side is not None and side >= rules_of(task).start.least_side


def network(facts: Facts) -> Rulings:
    """Return the pretrained network that trials start from; nothing if the study names one, if the images
    are small, and if no weights are at hand.

    In the same time weights from ImageNet gained far more than training from scratch. Of small networks
    ConvNeXt-Tiny came first over all sets of a comparison (arXiv 2406.05612); a CPU takes EfficientNet-Lite0,
    a twelfth of the operations. A segmentation has smp's U-Net above the same networks: the authors of FCN
    held training from scratch for not feasible (arXiv 1411.4038, section 4.3), and more pretraining gained
    some 3 % (000:48).
    """
    return start(facts.stored_side, facts.backbone, facts.task)


def start(side: int | None, backbone: Backbone | None, task: TaskKind) -> Rulings:
    """Return what `network` does, from the three facts that it depends on. A person's own weights are used
    whatever the size of the images."""
    if backbone is None or (backbone.published and not suits(side, task)):
        return {}
    rules = rules_of(task).start
    reason = f"images of {side} px, and its weights are at hand" if backbone.published else "your weights"
    source = rules.source if backbone.published else NAMED
    return {f"model.{name}": Ruling(value, reason, source) for name, value in rules.model(backbone).items()}
