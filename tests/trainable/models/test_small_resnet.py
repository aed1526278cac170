"""Tests that narrow nets train in channels_last as they do in the usual layout, without harm to memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trainable.models.small_networks import LEAST_CHANNELS, SmallResNet


def gradients(width: int, side: int, layout: torch.memory_format) -> list[torch.Tensor]:
    torch.manual_seed(0)
    net = SmallResNet(depth=8, width=width, stem_stride=1, classes=3, channels=1).to(memory_format=layout)
    images = torch.randn(8, 1, side, side).contiguous(memory_format=layout)
    nn.functional.cross_entropy(net(images), torch.arange(8) % 3).backward()
    return [each.grad for each in net.parameters() if each.grad is not None]


@pytest.mark.parametrize(("width", "side"), [(4, 9), (6, 9), (8, 9), (8, 96), (12, 128)])
def test_gradients_do_not_depend_on_the_layout(width: int, side: int) -> None:
    expected = gradients(width, side, torch.contiguous_format)
    for _ in range(5):  # memory that was overwritten shows later
        for ours, theirs in zip(gradients(width, side, torch.channels_last), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_no_strided_1x1_convolution_has_too_few_channels_for_its_kernels() -> None:
    for width in (4, 7, 8, 12, 16):
        net = SmallResNet(depth=8, width=width, stem_stride=2, classes=3, channels=1)
        strided = [
            each
            for each in net.modules()
            if type(each) is nn.Conv2d and each.kernel_size == (1, 1) and each.stride != (1, 1)
        ]
        assert all(each.in_channels >= LEAST_CHANNELS for each in strided)
