"""Our small networks, for images of a few pixels: a residual net for labels, and a U-Net for masks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

# With fewer input channels, the weight gradient of a strided 1x1 convolution in channels_last writes beyond
# its memory on CPUs (torch 2.15): the process dies, or its numbers are wrong. A vector holds so many channels
# with AVX-512, and 8 with AVX2.
LEAST_CHANNELS = 16


class SmallResNet(nn.Module):
    """A residual net for images up to 64 px: a 3x3 stem and three stages of (depth - 2) / 6 basic blocks.

    He et al., arXiv 1512.03385, section 4.2, with projection shortcuts (their option B). Convolutions are
    drawn from kaiming's normal, fan out (arXiv 1502.01852); the last gamma of each block begins at zero, so
    that each block begins as the identity (Goyal et al., arXiv 1706.02677, section 5.1).
    """

    def __init__(self, *, depth: int, width: int, stem_stride: int, classes: int, channels: int) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.stem = _convolution(channels, width, kernel=3, stride=stem_stride)
        self.stem_norm = nn.BatchNorm2d(width)
        self.stages = nn.Sequential(
            _stage(width, width, blocks, stride=1),
            _stage(width, 2 * width, blocks, stride=2),
            _stage(2 * width, 4 * width, blocks, stride=2),
        )
        self.head = nn.Linear(4 * width, classes)
        _draw_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        features = functional.relu(self.stem_norm(self.stem(images)), inplace=True)
        logits: Tensor = self.head(self.stages(features).mean((2, 3)))
        return logits


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut: identity, or 1x1 if the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(inputs, outputs, kernel=3, stride=stride)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = _convolution(outputs, outputs, kernel=3, stride=1)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = _shortcut(inputs, outputs, stride)
        nn.init.zeros_(self.second_norm.weight)

    def forward(self, features: Tensor) -> Tensor:
        inner = functional.relu(self.first_norm(self.first(features)), inplace=True)
        inner = self.second_norm(self.second(inner))
        return functional.relu(inner + self.shortcut(features), inplace=True)


def _convolution(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Conv2d:
    """Return a convolution without bias, which the normalisation that follows would remove."""
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    narrow = inputs < LEAST_CHANNELS and stride > 1
    kind = _Subsampled if narrow else nn.Conv2d
    return nn.Sequential(kind(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs))


class _Subsampled(nn.Conv2d):
    """A strided 1x1 convolution, computed as one without a stride of every second pixel, which is the same.

    A mean over one pixel takes them: its gradient is quicker than a slice's.
    """

    def forward(self, features: Tensor) -> Tensor:
        return functional.conv2d(functional.avg_pool2d(features, 1, self.stride), self.weight)


def _stage(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    first = BasicBlock(inputs, outputs, stride)
    return nn.Sequential(first, *(BasicBlock(outputs, outputs, stride=1) for _ in range(blocks - 1)))


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
        _draw_convolutions(self.down)
        _draw_convolutions(self.up)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [B, classes, H, W] of images [B, C, H, W]."""
        features, beside = self.down[0](images), []
        for block in list(self.down)[1:]:
            beside.append(features)
            features = block(functional.max_pool2d(features, 2, ceil_mode=True))
        for block in self.up:
            larger = beside.pop()
            doubled = functional.interpolate(features, scale_factor=2.0, mode="bilinear", align_corners=False)
            cut = doubled[..., : larger.shape[-2], : larger.shape[-1]]  # so each stays above its own pixels
            features = block(torch.cat([cut, larger], 1))
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


def _draw_convolutions(part: nn.Module) -> None:
    for module in part.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
