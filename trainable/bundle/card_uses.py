"""Says on the model card how the files of a bundle are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_never

from torch import nn

from trainable.bundle.markdown import code, code_block
from trainable.bundle.trained import Trained
from trainable.models.libraries import RGB, torchvision_options
from trainable.models.smp import TIMM, stride_of
from trainable.recipe.models import (
    OwnModel,
    ResNetSmall,
    SmpModel,
    TimmModel,
    TorchvisionModel,
    UNetSmall,
)


def uses(trained: Trained) -> Iterator[str]:
    """Yield paragraphs: how a bundle's files are used, and how its weights become a network again."""
    yield from _of_masks() if trained.data.info.dense else _of_labels()
    yield from _uses_of_weights(trained) if trained.widths is None else _uses_of_narrow_weights()


def _of_masks() -> Iterator[str]:
    yield code_block(
        "sh", "pip install onnxruntime pillow numpy\npython predict.py DIR IMAGE...    # masks as PNG, in DIR"
    )
    yield (
        "`model.onnx` and `model.pt2` are functions of square windows: normalisation is inside, and "
        "`class_logits` of `predict.py` cuts an image of any size into windows and joins their answers."
    )
    yield code_block(
        "python",
        "import onnxruntime\n"
        'session = onnxruntime.InferenceSession("model.onnx")\n'
        '(logits,) = session.run(None, {"images": windows})    # float32 [N, side, side, C]\n\n'
        "import torch\n"
        'segment = torch.export.load("model.pt2").module()\n'
        "logits = segment(windows)    # a tensor, float32 [N, side, side, C]",
    )
    yield "There are no files for timm, whose networks classify images."


def _of_labels() -> Iterator[str]:
    yield code_block(
        "sh", "pip install onnxruntime pillow numpy\npython predict.py IMAGE...    # file, class, probability"
    )
    yield "`model.onnx` and `model.pt2` are functions of pixels: all preprocessing is inside."
    yield code_block(
        "python",
        "import onnxruntime\n"
        'session = onnxruntime.InferenceSession("model.onnx")\n'
        '(probabilities,) = session.run(None, {"images": images})    # uint8 [N, H, W, C]\n\n'
        "import torch\n"
        'classify = torch.export.load("model.pt2").module()\n'
        "probabilities = classify(images)    # a tensor, uint8 [N, H, W, C]",
    )


def _uses_of_narrow_weights() -> Iterator[str]:
    """Yield how the weights of a pruned network become a network again."""
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


def _uses_of_weights(trained: Trained) -> Iterator[str]:
    """Yield how `model.safetensors`, the weights alone, becomes a network again."""
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
