"""Defines what a network for segmentation says of itself, and makes those of torchvision."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, final

from torch import Tensor, nn

from trainable.errors import ModelError
from trainable.models.libraries import (
    RGB,
    check_torchvision_name,
    replace_first_convolution,
    torchvision_options,
    unfit,
)
from trainable.recipe import models as specs
from trainable.recipe.tasks import Segmentation

Answers = Tensor | tuple[Tensor, Tensor]
"""Logits [B, classes, h, w] or, in training, a pair of them: the head's, and those of an auxiliary head."""


class DenseNetwork(nn.Module, abc.ABC):
    """Defines a network that answers for each pixel, made of a backbone that may be pretrained and of layers
    above it.

    It maps images [B, C, H, W] to logits [B, classes, h, w] with h <= H and w <= W: whoever compares them
    with a mask enlarges them. In training a network with an auxiliary head gives a pair, its head's logits
    first. The names of its weights are those of its library.
    """

    def __init__(self, backbone: str, heads: Sequence[str]) -> None:
        super().__init__()
        self.backbone_name = backbone
        """This module is the backbone: all layers outside of it are new."""
        self.heads = tuple(heads)
        """These layers compute the logits, the main head's first."""

    @abc.abstractmethod
    def forward(self, images: Tensor) -> Answers:
        """Return the logits of images [B, C, H, W]."""

    def layers_above(self) -> list[nn.Module]:
        """Return the modules outside the backbone, in order of definition."""
        inside = set(self.get_submodule(self.backbone_name).modules())
        return [each for each in self.modules() if each is not self and each not in inside]


@final
class ConvolutionalHeads(DenseNetwork):
    """Computes an FCN or a DeepLabV3 of torchvision (arXiv 1411.4038, 1706.05587), without the enlarging.

    By dilation, logits are an eighth of the image, or a sixteenth over MobileNetV3. The auxiliary head
    answers in training alone.
    """

    def __init__(self, backbone: nn.Module, classifier: nn.Sequential, auxiliary: nn.Sequential) -> None:
        super().__init__("backbone", [_last("classifier", classifier), _last("aux_classifier", auxiliary)])
        self.backbone = backbone
        self.classifier = classifier
        self.aux_classifier = auxiliary

    def forward(self, images: Tensor) -> Answers:
        features = self.backbone(images)
        logits: Tensor = self.classifier(features["out"])
        return (logits, self.aux_classifier(features["aux"])) if self.training else logits


@final
class LiteHead(DenseNetwork):
    """Computes the Lite R-ASPP of torchvision (arXiv 1905.02244, section 6.4), without the enlarging.

    Two convolutions, on features of two sizes, compute its logits together.
    """

    def __init__(self, backbone: nn.Module, classifier: nn.Module) -> None:
        super().__init__("backbone", ["classifier.low_classifier", "classifier.high_classifier"])
        self.backbone = backbone
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.backbone(images))
        return logits


def dense_from_torchvision(
    spec: specs.TorchvisionModel, *, classes: int, channels: int, image_size: int
) -> DenseNetwork:
    """Return torchvision's network for segmentation, drawn from torch's global generator.
    Raises ModelError as `make_model` does."""
    from torchvision import models
    from torchvision.models.segmentation import LRASPP

    check_torchvision_name(spec.name, Segmentation())
    options = torchvision_options(spec.name, image_size)
    try:
        made: Any = models.get_model(spec.name, weights=None, num_classes=classes, **options)
    except (ValueError, RuntimeError, AssertionError) as error:
        raise unfit(spec, channels, image_size, error, Segmentation()) from error
    if channels != RGB:
        replace_first_convolution(made, channels)
    if isinstance(made, LRASPP):
        return LiteHead(made.backbone, made.classifier)
    return ConvolutionalHeads(made.backbone, made.classifier, made.aux_classifier)


def check_answers(title: str, logits: object, classes: int, image_size: int) -> None:
    """Raises ModelError unless these are logits [1, classes, h, w] for one image, no larger than it is."""
    shape = tuple(logits.shape) if isinstance(logits, Tensor) else ()
    if len(shape) == 4 and shape[:2] == (1, classes) and all(1 <= side <= image_size for side in shape[2:]):
        return
    got = shape if isinstance(logits, Tensor) else type(logits).__name__
    raise ModelError(
        f"{title}: expected logits of shape (1, {classes}, h, w) for one image in evaluation mode, h and w "
        f"at most {image_size}, got {got}"
    )


def _last(name: str, layers: nn.Sequential) -> str:
    return f"{name}.{len(layers) - 1}"
