"""The pretrained networks of timm that are worth a first look, by size.

Each is the best of its size on ImageNet among those whose licence allows any use, or the one that most people
begin with; timm's results (https://github.com/huggingface/pytorch-image-models/tree/main/results) have the
accuracies. What suits your images best, `tunebook backbones` measures.
"""

from __future__ import annotations

from typing import Literal, get_args

Size = Literal["small", "medium", "large"]
SIZES: tuple[Size, ...] = get_args(Size)

# Small have up to 12 million parameters, medium up to 30, large up to 100
BACKBONES: dict[Size, tuple[str, ...]] = {
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
