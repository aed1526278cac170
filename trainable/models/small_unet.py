"""Our small U-Net, for segmentation of images of a few pixels."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class SmallUNet(nn.Module):
    """A U-Net for images under 128 px: it halves the image `levels` times, doubling its channels,
    and enlarges it again, beside the features of each size.

    Ronneberger et al., arXiv 1505.04597, section 2, with four changes that are usual since: BatchNorm after
    each convolution, borders padded so that the answer is as large as the image, features enlarged by
    bilinear interpolation, and a width and a depth for small images. It takes images of any size: the half
    of an odd side is rounded up, and what is too much is cut off again. Convolutions are drawn from kaiming's
    normal, fan out (arXiv 1502.01852), and the head as torch draws it.
    """

    def __init__(self, *, levels: int, width: int, classes: int, channels: int) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(levels + 1)]
        pairs = zip([channels, *widths], widths, strict=False)
        self.down = nn.ModuleList(DoubleConvolution(inputs, outputs) for inputs, outputs in pairs)
        self.up = nn.ModuleList(
            DoubleConvolution(below + beside, beside)
            for below, beside in zip(widths[:0:-1], widths[-2::-1], strict=True)
        )
        self.head = nn.Conv2d(width, classes, 1)
        _initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [B, classes, H, W] of images [B, C, H, W]."""
        features, beside = self.down[0](images), []
        for block in list(self.down)[1:]:
            beside.append(features)
            features = block(functional.max_pool2d(features, 2, ceil_mode=True))
        for block in self.up:
            larger = beside.pop()
            features = block(torch.cat([_doubled(features, like=larger), larger], 1))
        logits: Tensor = self.head(features)
        return logits


class DoubleConvolution(nn.Module):
    """Two 3x3 convolutions, each with BatchNorm and ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)

    def forward(self, features: Tensor) -> Tensor:
        features = functional.relu(self.first_norm(self.first(features)), inplace=True)
        return functional.relu(self.second_norm(self.second(features)), inplace=True)


def _doubled(features: Tensor, *, like: Tensor) -> Tensor:
    """Return features twice as large, cut to the size of others: so each stays above its own pixels."""
    doubled = functional.interpolate(features, scale_factor=2.0, mode="bilinear", align_corners=False)
    return doubled[..., : like.shape[-2], : like.shape[-1]]


def _initialise(model: SmallUNet) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d) and module is not model.head:
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
