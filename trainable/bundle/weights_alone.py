"""How the weights alone become a network again: what the page says of it, and the files that timm reads.

`timm.create_model("local-dir:FOLDER", pretrained=True)` loads the folder of a bundle.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_never

from safetensors.torch import save as safetensors_bytes
from torch import nn

from trainable.bundle.trained import Trained
from trainable.data import DataInfo
from trainable.data.decode import Resize
from trainable.data.loading import statistics_of
from trainable.markdown import code, code_block
from trainable.models.libraries import RGB, timm_options, torchvision_options
from trainable.models.smp import TIMM, stride_of
from trainable.models.timm_names import CONFIGURATION, located
from trainable.recipe.models import (
    OwnModel,
    ResNetSmall,
    SmpModel,
    TimmModel,
    TorchvisionModel,
    UNetSmall,
    is_published,
)
from trainable.recipe.trained_files import MODEL_FILE
from trainable.recipe.training import CenterCrop, Stretch
from trainable.recipe.yamlfile import write_whole

# what timm knows of its own weights in these fields is not true of images of another size
STALE = ("pool_size", "test_input_size", "test_pool_size", "test_crop_pct")
# these fields are true of a network that began from the weights which timm publishes, and of no other
OF_PUBLISHED_WEIGHTS = ("tag", "license", "origin_url", "paper_ids", "paper_name", "notes")


def uses_of_weights(trained: Trained) -> Iterator[str]:
    """Yield the page's paragraphs about how `model.safetensors` becomes a network again."""
    yield from _with_its_library(trained) if trained.widths is None else _as_pruned()


def _as_pruned() -> Iterator[str]:
    yield (
        "The network was pruned: it is narrower than the one that its library builds, in what `pruned.json` "
        "names. With tunebook the weights alone become a network again, which gives logits:"
    )
    yield code_block(
        "python",
        "from pathlib import Path\n"
        "from trainable.bundle.trained import network_in\n"
        'network = network_in(Path("FOLDER"))',
    )


def _with_its_library(trained: Trained) -> Iterator[str]:
    match trained.recipe.model:
        case TimmModel():
            yield "The weights alone, with timm, which gives logits:"
            yield code_block(
                "python",
                "import timm\n"
                'network = timm.create_model("local-dir:FOLDER", pretrained=True).eval()\n'
                "transform = timm.data.create_transform(**timm.data.resolve_model_data_config(network))",
            )
            yield (
                "timm's transform does not turn images as EXIF says, and resizes with Pillow: levels may "
                "differ by a few from those of training, and a centre crop by a pixel. It shows the network "
                "one view."
            )
        case TorchvisionModel(name=name):
            yield "The weights alone, with torchvision (the network takes normalised squares, see below):"
            yield code_block("python", _as_torchvision_builds_it(trained, name))
        case SmpModel() as spec:
            yield (
                "The weights alone, with segmentation_models_pytorch (the network takes normalised squares, "
                "see below):"
            )
            yield code_block("python", _as_smp_builds_it(trained, spec))
        case ResNetSmall(kind=name) | UNetSmall(kind=name):
            yield (
                f"`model.safetensors` holds the weights of tunebook's own `{name}`, which no library "
                "builds; `tunebook train` begins from them with `model.weights: FOLDER`."
            )
        case OwnModel(name=name):
            yield (
                f"`model.safetensors` holds the weights of the network {code(name)}, which its author's own "
                "code builds."
            )
        case _:
            assert_never(trained.recipe.model)


def _as_smp_builds_it(trained: Trained, spec: SmpModel) -> str:
    """Return code that builds the network with smp, which enlarges its answers to the image's size."""
    info = trained.data.info
    options: dict[str, Any] = {
        "arch": spec.name,
        "encoder_name": f"{TIMM}{spec.encoder}",
        "encoder_weights": None,
    }
    options |= {"in_channels": info.channels, "classes": len(info.classes)}
    if spec.name == "deeplabv3plus":
        options["encoder_output_stride"] = stride_of(spec)
    given = ", ".join(f"{key}={value!r}" for key, value in options.items())
    return "\n".join(
        [
            "import segmentation_models_pytorch",
            "from safetensors.torch import load_file",
            f"network = segmentation_models_pytorch.create_model({given}).eval()",
            'network.load_state_dict(load_file("model.safetensors"))',
        ]
    )


def _as_torchvision_builds_it(trained: Trained, name: str) -> str:
    """Return code that builds the network with torchvision; for grey images its first layer is another."""
    info = trained.data.info
    options = {"num_classes": len(info.classes), **torchvision_options(name, info.image_size)}
    given = "".join(f", {key}={value!r}" for key, value in options.items())
    lines = ["import torch", "import torchvision", "from safetensors.torch import load_file"]
    lines.append(f'network = torchvision.models.get_model("{name}"{given}).eval()')
    if info.channels != RGB:
        layers = trained.network().named_modules()
        place, layer = next((place, each) for place, each in layers if isinstance(each, nn.Conv2d))
        lines.append(f'network.set_submodule("{place}", torch.nn.{layer!r})')
    lines.append('network.load_state_dict(load_file("model.safetensors"))')
    return "\n".join(lines)


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
