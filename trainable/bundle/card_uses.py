"""Says on the model card how the files of a bundle are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from trainable.bundle.markdown import code_block
from trainable.recipe import Recipe
from trainable.recipe.models import OwnModel, ResNetSmall, TimmModel, TorchvisionModel


def uses(recipe: Recipe) -> Iterator[str]:
    """Yields paragraphs: how a bundle's files are used, and how its weights become a network again."""
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
    yield from _uses_of_weights(recipe)


def _uses_of_weights(recipe: Recipe) -> Iterator[str]:
    """Yields how `model.safetensors`, the weights alone, becomes a network again."""
    match recipe.model:
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
            yield code_block(
                "python",
                "import torchvision\nfrom safetensors.torch import load_file\n"
                f'network = torchvision.models.get_model("{name}", num_classes=CLASSES).eval()\n'
                'network.load_state_dict(load_file("model.safetensors"))',
            )
        case ResNetSmall():
            yield (
                "`model.safetensors` holds the weights of tunebook's own `resnet_small`, which no library "
                "builds; `tunebook train` begins from them with `model.weights: FOLDER`."
            )
        case OwnModel(name=name):
            yield (
                f"`model.safetensors` holds the weights of the network `{name}`, which its author's own code "
                "builds."
            )
        case _:
            assert_never(recipe.model)
