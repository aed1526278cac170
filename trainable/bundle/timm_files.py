"""Writes what `timm.create_model("local-dir:FOLDER", pretrained=True)` loads, for networks of timm."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_never

from safetensors.torch import save as safetensors_bytes

from trainable.bundle.trained import Trained
from trainable.data import DataInfo
from trainable.data.decode import Resize
from trainable.data.loading import statistics_of
from trainable.models.libraries import timm_options
from trainable.models.timm_names import CONFIGURATION, located
from trainable.recipe.models import TimmModel, is_published
from trainable.recipe.trained_files import MODEL_FILE
from trainable.recipe.training import CenterCrop, Stretch
from trainable.recipe.yamlfile import write_whole

STALE = ("pool_size", "test_input_size", "test_pool_size", "test_crop_pct")
"""What timm knows of its own weights in these fields is not true of images of another size."""
OF_PUBLISHED_WEIGHTS = ("tag", "license", "origin_url", "paper_ids", "paper_name", "notes")
"""These fields are true of a network that began from the weights which timm publishes, and of no other."""


def write_timm_files(trained: Trained, folder: Path) -> None:
    """Write `config.json`, with how images look to the network and what its classes are called, and the
    weights; nothing for a network that timm cannot build, such as a pruned one, or one for masks."""
    if not isinstance(trained.recipe.model, TimmModel) or trained.widths is not None:
        return
    # `save_for_hf` writes the weights itself: where the disk is full, as no error of the system's
    from timm.models._hub import save_config_for_hf

    network, info = _described(trained), trained.data.info
    sizes = timm_options(
        located(trained.recipe.model.name),
        classes=len(info.classes),
        channels=info.channels,
        image_size=info.image_size,
    )
    arguments = {name: each for name, each in sizes.items() if name != "num_classes"}
    names = {"label_names": list(info.classes)}
    save_config_for_hf(network, str(folder / CONFIGURATION), model_config=names, model_args=arguments)
    write_whole(folder / MODEL_FILE, safetensors_bytes(network.state_dict()))


def _described(trained: Trained) -> Any:
    """Return the network; its `pretrained_cfg`, which timm writes, says how images look to these weights."""
    network: Any = trained.network()
    mean, std = statistics_of(trained.recipe.data, trained.data.info)
    weights = trained.recipe.model.weights
    stale = STALE if weights is not None and is_published(weights) else (*STALE, *OF_PUBLISHED_WEIGHTS)
    network.pretrained_cfg = {
        **{name: each for name, each in network.pretrained_cfg.items() if name not in stale},
        **_images(trained.data.info, trained.recipe.evaluation.resize),
        "mean": list(mean),
        "std": list(std),
    }
    return network


def _images(info: DataInfo, resize: Resize) -> dict[str, Any]:
    """Return how images become squares, in timm's words: `squash` stretches."""
    size = [info.channels, info.image_size, info.image_size]
    match resize:
        case Stretch():
            crop: dict[str, Any] = {"crop_mode": "squash", "crop_pct": 1.0}
        case CenterCrop(ratio=ratio):
            crop = {"crop_mode": "center", "crop_pct": ratio}
        case _:
            assert_never(resize)
    return {"input_size": size, "interpolation": info.interpolation, **crop}
