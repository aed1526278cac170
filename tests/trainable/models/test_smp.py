"""Tests the networks of segmentation_models_pytorch: as smp computes them, for images of every size."""

from __future__ import annotations

import pytest
import segmentation_models_pytorch as smp
import torch
from torch import nn
from torch.nn import functional

from trainable.errors import ModelError
from trainable.models.make import NetworkEnds, make_model
from trainable.recipe import models as specs
from trainable.recipe.tasks import Segmentation

SMALL = "mobilenetv3_small_050"
QUARTER = ("fpn", "deeplabv3plus", "segformer")  # these decoders answer at a quarter of the image's size
DECODERS = ("unet", "unetplusplus", *QUARTER)


def spec_of(name: str, encoder: str = SMALL, **fields: object) -> specs.SmpModel:
    return specs.SmpModel.model_validate({"name": name, "encoder": encoder, **fields})


def make(spec: specs.SmpModel, *, side: int = 64, channels: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return make_model(spec, NetworkEnds(classes=5, channels=channels, image_size=side), task=Segmentation())


@pytest.mark.parametrize("name", DECODERS)
def test_smps_answer_is_ours_enlarged(name: str) -> None:
    ours = make(spec_of(name)).eval()
    library = smp.create_model(name, f"tu-{SMALL}", encoder_weights=None, classes=5).eval()
    library.load_state_dict(ours.state_dict())
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        logits, expected = ours(images), library(images)
    if name in QUARTER:  # smp enlarges by corners, and the head's task does not
        logits = functional.interpolate(logits, scale_factor=4, mode="bilinear", align_corners=True)
    torch.testing.assert_close(logits, expected)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize(("side", "quarter"), [(32, 8), (33, 9), (50, 13), (64, 16)])
def test_images_of_every_size_are_answered_for(name: str, side: int, quarter: int) -> None:
    net = make(spec_of(name), side=side, channels=1)
    expected = quarter if name in QUARTER else side
    assert net(torch.rand(2, 1, side, side)).shape == (2, 5, expected, expected)


@pytest.mark.parametrize("name", DECODERS[1:])
def test_an_image_that_is_padded_is_answered_as_one_with_zeros_beside_it(name: str) -> None:
    net = make(spec_of(name)).eval()
    image = torch.rand(1, 3, 40, 40)
    more = 8 if name == "deeplabv3plus" else 24  # its last features are a 16th of the image
    padded = functional.pad(image, (0, more, 0, more))
    scale = 4 if name in QUARTER else 1
    torch.testing.assert_close(net(image), net(padded)[..., : 40 // scale, : 40 // scale])


@pytest.mark.parametrize("encoder", ["resnet18", "convnext_atto"])
def test_encoders_that_begin_at_a_half_or_a_quarter_are_taken(encoder: str) -> None:
    assert make(spec_of("unet", encoder), side=32).eval()(torch.rand(1, 3, 32, 32)).shape == (1, 5, 32, 32)


def test_an_encoder_that_is_built_for_one_size_is_built_for_the_padded_one() -> None:
    net = make(spec_of("fpn", "swinv2_cr_tiny_ns_224"), side=60)
    assert net(torch.rand(2, 3, 60, 60)).shape == (2, 5, 15, 15)


@pytest.mark.parametrize(("stride", "side"), [(None, 4), (16, 4), (8, 8)])
def test_the_output_stride_is_that_of_the_last_features(stride: int | None, side: int) -> None:
    net = make(spec_of("deeplabv3plus", output_stride=stride)).eval()
    images = torch.rand(1, 3, 64, 64)
    assert net.encoder(images)[-1].shape[-1] == side
    assert net(images).shape == (1, 5, 16, 16)


def test_names_of_weights_are_smps() -> None:
    names = make(spec_of("unetplusplus", "resnet18")).state_dict().keys()
    library = smp.UnetPlusPlus("tu-resnet18", encoder_weights=None, classes=5)
    assert names == library.state_dict().keys()


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (spec_of("unet", "resnett18"), r"model\.encoder: timm has no .*'resnett18'; did you mean resnet18"),
        (spec_of("unet", "resnet18.none"), r"model\.encoder: timm's resnet18 has no weights 'none'; it has "),
        (spec_of("fpn", "test_vit"), r"model\.encoder: test_vit does not fit below fpn: .*such as resnet18"),
        (spec_of("deeplabv3plus", "swin_tiny_patch4_window7_224"), "cannot be dilated, which deepl"),
        (spec_of("unet", "vgg11_bn", stochastic_depth=0.1), r"model\.stochastic_depth: smp's unet over"),
    ],
    ids=["unknown", "tag", "levels", "dilation", "depth"],
)
def test_an_encoder_that_does_not_fit_is_named(spec: specs.SmpModel, fault: str) -> None:
    with pytest.raises(ModelError, match=fault):
        make(spec)
