"""What a library's network for segmentation says of itself: its backbone, and its heads."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from torch import Tensor, nn

from trainable.errors import ModelError

# Logits [B, classes, h, w] or, in training, a pair of them: the head's, and those of an auxiliary head
PixelLogits = Tensor | tuple[Tensor, Tensor]


class SegmentationNetwork(nn.Module, abc.ABC):
    """A network with an answer for each pixel: a backbone that may be pretrained, and layers above it.

    It maps images [B, C, H, W] to logits [B, classes, h, w] with h <= H and w <= W: whoever compares them
    with a mask enlarges them. In training a network with an auxiliary head gives a pair, its head's logits
    first. The names of its weights are those of its library.
    """

    def __init__(self, backbone: str, heads: Sequence[str]) -> None:
        super().__init__()
        self.backbone_name = backbone  # all layers outside of this module are new
        self.heads = tuple(heads)  # the layers that compute logits, the main head's first

    @abc.abstractmethod
    def forward(self, images: Tensor) -> PixelLogits:
        """Return the logits of images [B, C, H, W]."""


def check_answers(title: str, logits: object, classes: int, image_size: int) -> None:
    """Raise ModelError unless these are logits [1, classes, h, w] for one image, no larger than it is."""
    shape = tuple(logits.shape) if isinstance(logits, Tensor) else ()
    if len(shape) == 4 and shape[:2] == (1, classes) and all(1 <= side <= image_size for side in shape[2:]):
        return
    got = shape if isinstance(logits, Tensor) else type(logits).__name__
    raise ModelError(
        f"{title}: expected logits of shape (1, {classes}, h, w) for one image in evaluation mode, h and w "
        f"at most {image_size}, got {got}"
    )
