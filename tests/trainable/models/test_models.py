"""Tests models by spec: shapes, initialisation, and clear errors before training."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trainable.errors import ModelError
from trainable.models.layers import has_attention
from trainable.models.make import NetworkEnds, count_parameters, make_model
from trainable.models.small_networks import BasicBlock
from trainable.recipe import models as specs


def make(spec: specs.Model, *, classes: int = 7, channels: int = 3, image_size: int = 32) -> nn.Module:
    return make_model(spec, NetworkEnds(classes=classes, channels=channels, image_size=image_size))


@pytest.mark.parametrize(("depth", "blocks"), [(8, 3), (20, 9), (56, 27)])
def test_the_small_net_has_its_depth_in_convolutions_and_one_linear(depth: int, blocks: int) -> None:
    model = make(specs.ResNetSmall(depth=depth, width=8), channels=1, image_size=8)  # type: ignore[arg-type]
    assert sum(isinstance(each, BasicBlock) for each in model.modules()) == blocks
    main_path = [
        each for each in model.modules() if isinstance(each, nn.Conv2d) and each.kernel_size == (3, 3)
    ]
    assert len(main_path) + 1 == depth


def test_the_published_resnet20_has_its_number_of_parameters() -> None:
    """The paper says 0.27 million (1512.03385, table 6); here two projections with norms replace padding."""
    projections = 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64
    assert count_parameters(make(specs.ResNetSmall(depth=20), classes=10)) == 269_722 + projections


def test_blocks_of_a_new_small_net_are_the_identity_after_their_shortcut() -> None:
    model = make(specs.ResNetSmall(width=8))
    block = next(each for each in model.modules() if isinstance(each, BasicBlock))
    features = torch.rand(2, 8, 6, 6)
    torch.testing.assert_close(block(features), features)


def test_convolutions_are_drawn_from_kaiming_fan_out() -> None:
    torch.manual_seed(0)
    model = make(specs.ResNetSmall(width=64))
    convolution = next(each for each in model.modules() if isinstance(each, BasicBlock)).first
    assert convolution.weight.std().item() == pytest.approx((2 / (64 * 9)) ** 0.5, rel=0.02)
    assert all(each.bias is None for each in model.modules() if isinstance(each, nn.Conv2d))


@pytest.mark.parametrize("stride", [1, 2])
def test_a_stem_with_stride_halves_what_the_stages_see(stride: int) -> None:
    model = make(specs.ResNetSmall(width=8, stem_stride=stride))  # type: ignore[arg-type]
    assert model.stem(torch.zeros(1, 3, 32, 32)).shape[-1] == 32 // stride


@pytest.mark.parametrize(
    ("spec", "image_size"),
    [
        (specs.TorchvisionModel(name="mobilenet_v3_small"), 32),
        (specs.TorchvisionModel(name="squeezenet1_1"), 32),
        (specs.TimmModel(name="test_resnet"), 32),
        (specs.TimmModel(name="test_vit"), 48),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
@pytest.mark.parametrize("channels", [1, 3])
def test_models_of_libraries_take_any_channels_and_classes(
    spec: specs.Model, image_size: int, channels: int
) -> None:
    model = make(spec, channels=channels, image_size=image_size)
    assert model.training
    assert model(torch.zeros(2, channels, image_size, image_size)).shape == (2, 7)


def test_a_grey_stem_keeps_geometry_and_scale() -> None:
    torch.manual_seed(0)
    stem = make(specs.TorchvisionModel(name="resnet18"), channels=1).conv1
    assert stem.weight.shape == (64, 1, 7, 7)
    assert (stem.stride, stem.padding, stem.bias) == ((2, 2), (3, 3), None)
    assert stem.weight.std().item() == pytest.approx((2 / (64 * 49)) ** 0.5, rel=0.05)


@pytest.mark.parametrize(
    ("spec", "close"),
    [
        (specs.TorchvisionModel(name="resnet81"), "resnet18"),
        (specs.TimmModel(name="resnett18"), "resnet18"),
        (specs.TimmModel(name="someone/resnet18"), "hf-hub:someone/resnet18"),
        (specs.TorchvisionModel(name="fcn_resnet50"), "resnet50"),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_an_unknown_name_is_answered_with_close_ones(spec: specs.Model, close: str) -> None:
    with pytest.raises(ModelError, match=f"no classification model .*{close}"):
        make(spec)


@pytest.mark.parametrize(
    ("spec", "image_size"),
    [
        (specs.TorchvisionModel(name="alexnet"), 16),
        (specs.TorchvisionModel(name="vit_b_32"), 40),
        (specs.TimmModel(name="test_vit"), 8),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_images_that_do_not_fit_are_an_error_that_names_both(spec: specs.Model, image_size: int) -> None:
    with pytest.raises(
        ModelError, match=rf"{spec.name} cannot take images of 3 x {image_size} x {image_size}"
    ):
        make(spec, image_size=image_size)


@pytest.mark.parametrize(
    ("name", "attends"),
    [
        *((name, True) for name in ("vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "mobilevit_s")),
        *((name, True) for name in ("coatnet_0_rw_224", "efficientvit_m0", "halonet26t", "convit_tiny")),
        *((name, False) for name in ("resnet18", "seresnet50", "resnest14d", "skresnet18", "convnext_tiny")),
        *((name, False) for name in ("mixer_s16_224", "poolformer_s12", "repvit_m1", "ecaresnet26t")),
    ],
)
def test_attention_is_distinguished_from_gates_that_are_called_so(name: str, attends: bool) -> None:
    import timm

    with torch.device("meta"):
        assert has_attention(timm.create_model(name, pretrained=False)) is attends


@pytest.mark.parametrize(
    ("name", "attends"),
    [("vit_b_16", True), ("swin_t", True), ("maxvit_t", True), ("efficientnet_b0", False)],
)
def test_attention_is_found_in_torchvisions_models_too(name: str, attends: bool) -> None:
    from torchvision import models

    with torch.device("meta"):
        assert has_attention(models.get_model(name, weights=None)) is attends


def test_attention_is_found_in_a_net_of_ones_own() -> None:
    own = nn.Sequential(nn.Linear(8, 8), nn.TransformerEncoderLayer(8, 2, batch_first=True))
    assert has_attention(own)
    assert not has_attention(own[:1])
