"""Defines our small residual net, for images of a few pixels."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

# With fewer input channels, the weight gradient of a strided 1x1 convolution in channels_last writes beyond
# its memory on CPUs (torch 2.15): the process dies, or its numbers are wrong. A vector holds so many channels
# with AVX-512, and 8 with AVX2.
LEAST_CHANNELS = 16


class SmallResNet(nn.Module):
    """Computes a residual net for images up to 64 px:
    a 3x3 stem and three stages of (depth - 2) / 6 basic blocks.

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
        _initialise(self)

    def forward(self, images: Tensor) -> Tensor:
        features = functional.relu(self.stem_norm(self.stem(images)), inplace=True)
        logits: Tensor = self.head(self.stages(features).mean((2, 3)))
        return logits


class BasicBlock(nn.Module):
    """Computes two 3x3 convolutions around a shortcut: identity, or 1x1 if the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(inputs, outputs, kernel=3, stride=stride)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = _convolution(outputs, outputs, kernel=3, stride=1)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.shortcut = _shortcut(inputs, outputs, stride)

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
    """Computes a strided 1x1 convolution as one without a stride of every second pixel, which is the same.

    A mean over one pixel takes them: its gradient is quicker than a slice's.
    """

    def forward(self, features: Tensor) -> Tensor:
        return functional.conv2d(functional.avg_pool2d(features, 1, self.stride), self.weight)


def _stage(inputs: int, outputs: int, blocks: int, stride: int) -> nn.Sequential:
    first = BasicBlock(inputs, outputs, stride)
    return nn.Sequential(first, *(BasicBlock(outputs, outputs, stride=1) for _ in range(blocks - 1)))


def _initialise(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, BasicBlock):
            nn.init.zeros_(module.second_norm.weight)
