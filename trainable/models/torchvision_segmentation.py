"""Makes torchvision's networks for segmentation, and finds the part of them that weights are of."""

from __future__ import annotations

from typing import Any, final

from torch import Tensor, nn

from trainable.models.libraries import (
    RGB,
    check_torchvision_name,
    replace_first_convolution,
    torchvision_options,
    unfit,
)
from trainable.models.published_weights import torchvision_weights
from trainable.models.segmentation_networks import PixelLogits, SegmentationNetwork
from trainable.models.weights import PartWeights, read_weights, weights_file
from trainable.recipe import models as specs
from trainable.recipe.tasks import Segmentation

BACKBONE = "backbone."  # the names of the backbone's weights begin so
FEATURES = "features."  # a MobileNetV3 for classification has what is the backbone here under this name
CLASSIFIERS = ("fc.", "classifier.")  # layers of networks for classification that no backbone has


@final
class ConvolutionalHeads(SegmentationNetwork):
    """An FCN or a DeepLabV3 of torchvision (arXiv 1411.4038, 1706.05587), without the enlarging.

    By dilation, logits are an eighth of the image, or a sixteenth over MobileNetV3. The auxiliary head
    answers in training alone.
    """

    def __init__(self, backbone: nn.Module, classifier: nn.Sequential, auxiliary: nn.Sequential) -> None:
        super().__init__("backbone", [_last("classifier", classifier), _last("aux_classifier", auxiliary)])
        self.backbone = backbone
        self.classifier = classifier
        self.aux_classifier = auxiliary

    def forward(self, images: Tensor) -> PixelLogits:
        features = self.backbone(images)
        logits: Tensor = self.classifier(features["out"])
        return (logits, self.aux_classifier(features["aux"])) if self.training else logits


@final
class LiteHead(SegmentationNetwork):
    """The Lite R-ASPP of torchvision (arXiv 1905.02244, section 6.4), without the enlarging.

    Two convolutions, on features of two sizes, compute its logits together.
    """

    def __init__(self, backbone: nn.Module, classifier: nn.Module) -> None:
        super().__init__("backbone", ["classifier.low_classifier", "classifier.high_classifier"])
        self.backbone = backbone
        self.classifier = classifier

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.backbone(images))
        return logits


def segmentation_from_torchvision(
    spec: specs.TorchvisionModel, *, classes: int, channels: int, image_size: int
) -> SegmentationNetwork:
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


def torchvision_part(spec: specs.TorchvisionModel, *, may_fetch: bool) -> PartWeights:
    """Return the weights of a network for segmentation, from a file or as torchvision publishes them.

    Weights without a backbone are those of a network for classification: all of it but the classifier is the
    backbone here. Raises ModelError as `read_weights` and `torchvision_weights` do.
    """
    published = specs.is_published(str(spec.weights))
    state = torchvision_weights(spec, may_fetch=may_fetch) if published else read_weights(weights_file(spec))
    if any(name.startswith(BACKBONE) for name in state):
        return PartWeights(state)
    below = {name: each for name, each in state.items() if not name.startswith(CLASSIFIERS)}
    return PartWeights(
        {BACKBONE + name.removeprefix(FEATURES): each for name, each in below.items()}, BACKBONE
    )


def _last(name: str, layers: nn.Sequential) -> str:
    return f"{name}.{len(layers) - 1}"
