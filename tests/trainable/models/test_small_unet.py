"""Tests our small U-Net: sizes, layout, initialisation, and what it does not have."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainable.errors import ModelError, RecipeError
from trainable.models.make import NetworkEnds, count_parameters, make_model
from trainable.models.small_networks import DoubleConvolution, SmallUNet
from trainable.recipe import Recipe
from trainable.recipe import models as specs
from trainable.recipe.tasks import Segmentation


def unet(levels: int = 3, width: int = 8, channels: int = 3) -> SmallUNet:
    torch.manual_seed(0)
    return SmallUNet(levels=levels, width=width, classes=4, channels=channels)


@pytest.mark.parametrize("levels", [1, 3, 5])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (5, 5), (17, 30), (32, 32), (33, 63)])
def test_the_answer_is_as_large_as_the_image_whatever_its_size(levels: int, height: int, width: int) -> None:
    net = unet(levels, width=4).eval()
    assert net(torch.rand(2, 3, height, width)).shape == (2, 4, height, width)


def test_channels_double_where_the_image_halves() -> None:
    net = unet(levels=4, width=6)
    assert [block.second.out_channels for block in net.down] == [6, 12, 24, 48, 96]
    assert [block.second.out_channels for block in net.up] == [48, 24, 12, 6]
    assert [block.first.in_channels for block in net.up] == [96 + 48, 48 + 24, 24 + 12, 12 + 6]


def test_the_deepest_features_are_halved_so_often() -> None:
    net, sides = unet(levels=3), []
    net.down[-1].register_forward_hook(lambda _, inputs, __: sides.append(inputs[0].shape[-1]))
    net(torch.rand(2, 3, 40, 40))
    assert sides == [5]


def test_a_pixel_of_an_odd_image_is_answered_as_in_a_larger_one() -> None:
    """What is cut off was at the right and below, so nothing else moves."""
    net = unet(levels=2).eval()
    image = torch.rand(1, 3, 96, 96)
    odd = image[..., :93, :93]
    torch.testing.assert_close(net(odd)[..., :48, :48], net(image)[..., :48, :48], rtol=1e-4, atol=1e-5)


def test_convolutions_are_drawn_from_kaiming_and_the_head_as_torch_draws_it() -> None:
    net = unet(width=64)
    first = net.down[0].second
    assert first.weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)
    assert net.head.weight.abs().max().item() == pytest.approx(64**-0.5, rel=0.1)
    blocks = [each for each in net.modules() if isinstance(each, DoubleConvolution)]
    assert all(each.first.bias is None and each.second.bias is None for each in blocks)


def gradients(width: int, side: int, layout: torch.memory_format) -> list[Tensor]:
    net = unet(width=width, channels=1).to(memory_format=layout)
    images = torch.randn(4, 1, side, side, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(4 * side * side).reshape(4, side, side) % 4
    functional.cross_entropy(net(images.contiguous(memory_format=layout)), labels).backward()
    return [each.grad for each in net.parameters() if each.grad is not None]


@pytest.mark.parametrize(("width", "side"), [(4, 9), (6, 30), (12, 33)])
def test_gradients_do_not_depend_on_the_layout(width: int, side: int) -> None:
    expected = gradients(width, side, torch.contiguous_format)
    for ours, theirs in zip(gradients(width, side, torch.channels_last), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_it_learns_where_a_square_is() -> None:
    torch.manual_seed(0)
    net = SmallUNet(levels=2, width=8, classes=2, channels=1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    masks = torch.zeros(8, 16, 16, dtype=torch.int64)
    for index in range(8):
        masks[index, index : index + 6, 8 - index : 14 - index] = 1
    images = masks[:, None] + 0.1 * torch.randn(8, 1, 16, 16)
    for _ in range(20):
        optimizer.zero_grad()
        functional.cross_entropy(net(images), masks).backward()
        optimizer.step()
    assert (net.eval()(images).argmax(1) == masks).float().mean() > 0.98


def test_a_recipe_makes_it_for_segmentation_alone() -> None:
    spec = specs.UNetSmall(levels=2, width=4)
    net = make_model(spec, NetworkEnds(classes=3, channels=1, image_size=15), task=Segmentation())
    assert net.training
    assert net(torch.rand(2, 1, 15, 15)).shape == (2, 3, 15, 15)
    assert count_parameters(net) == sum(each.numel() for each in net.parameters())
    with pytest.raises(ModelError, match=r"model\.kind: for a classification expected one of resnet_small, "):
        make_model(spec, NetworkEnds(classes=3, channels=1, image_size=15))


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"model.weights": "default"}, "unet_small has no published weights"),
        ({"model.levels": 6}, r"model\.levels: "),
        ({"model.levels": 5, "model.width": 128}, "width 128, doubled 5 times, is 4096 channels, expected"),
    ],
)
def test_a_recipe_says_what_it_cannot_be(values: dict[str, object], fault: str) -> None:
    with pytest.raises(RecipeError, match=fault):
        Recipe().with_values({"model.kind": "unet_small", **values})


@pytest.mark.parametrize("field", ["stochastic_depth", "zero_init_residual"])
def test_it_has_no_residual_blocks(field: str) -> None:
    spec = specs.UNetSmall().model_copy(update={field: 0.5 if field == "stochastic_depth" else True})
    with pytest.raises(ModelError, match=rf"model\.{field}: unet_small has no"):
        make_model(spec, NetworkEnds(classes=3, channels=1, image_size=16), task=Segmentation())


def test_dropout_before_its_head_is_a_hook_that_training_alone_has() -> None:
    spec = specs.UNetSmall(width=4, dropout=0.5)
    net = make_model(spec, NetworkEnds(classes=3, channels=1, image_size=16), task=Segmentation())
    assert not [each for each in net.modules() if isinstance(each, nn.Dropout)]
    images = torch.rand(2, 1, 16, 16)
    assert not torch.equal(net(images), net(images))
    assert torch.equal(net.eval()(images), net(images))
