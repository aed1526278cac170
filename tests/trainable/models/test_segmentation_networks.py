"""Tests networks for segmentation: torchvision's, a person's own, and what is refused."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision import models

from trainable.errors import ModelError
from trainable.models.checkpointing import checkpoint_blocks
from trainable.models.lint import lints
from trainable.models.make import NetworkEnds, make_model
from trainable.recipe import models as specs
from trainable.recipe.tasks import CLASSIFICATION, Segmentation, TaskSpec

MOBILE = specs.TorchvisionModel(name="deeplabv3_mobilenet_v3_large")
LITE = specs.TorchvisionModel(name="lraspp_mobilenet_v3_large")
MASKS = Segmentation()
FCN = specs.TorchvisionModel(name="fcn_resnet50")
SMP = specs.SmpModel(name="fpn", encoder="mobilenetv3_small_050")


def make(spec: specs.Model, *, channels: int = 3, side: int = 64) -> nn.Module:
    torch.manual_seed(0)
    return make_model(spec, NetworkEnds(classes=5, channels=channels, image_size=side), task=MASKS)


def theirs(spec: specs.TorchvisionModel) -> nn.Module:
    options = {} if spec is LITE else {"aux_loss": True}
    made: nn.Module = models.get_model(
        spec.name, weights=None, weights_backbone=None, num_classes=5, **options
    )
    return made.eval()


@pytest.mark.slow("builds large networks")
@pytest.mark.parametrize("spec", [MOBILE, LITE, FCN], ids=lambda spec: spec.name)
@pytest.mark.parametrize("side", [64, 75])
def test_torchvisions_answer_is_ours_enlarged(spec: specs.TorchvisionModel, side: int) -> None:
    ours, library = make(spec, side=side).eval(), theirs(spec)
    library.load_state_dict(ours.state_dict())
    images = torch.rand(2, 3, side, side)
    with torch.no_grad():
        logits, expected = ours(images), library(images)["out"]
    assert logits.shape[-1] <= side // 4
    torch.testing.assert_close(
        functional.interpolate(logits, size=(side, side), mode="bilinear", align_corners=False), expected
    )


@pytest.mark.slow("builds large networks")
@pytest.mark.parametrize("spec", [MOBILE, FCN], ids=lambda spec: spec.name)
def test_an_auxiliary_head_answers_in_training_alone(spec: specs.TorchvisionModel) -> None:
    net, library = make(spec), theirs(spec)
    library.load_state_dict(net.state_dict())
    images = torch.rand(2, 3, 64, 64)
    assert net.training
    main, auxiliary = net(images)
    assert main.shape[:2] == auxiliary.shape[:2] == (2, 5)
    for each in (net.train(), library.train()):  # the same batch statistics, and no dropout
        for layer in each.modules():
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0
    expected = library(images)["aux"]
    enlarged = functional.interpolate(net(images)[1], size=(64, 64), mode="bilinear", align_corners=False)
    torch.testing.assert_close(enlarged, expected)
    assert isinstance(net.eval()(images), Tensor)


@pytest.mark.parametrize("spec", [MOBILE, LITE, SMP], ids=lambda spec: spec.name)
def test_grey_images_have_a_first_layer_of_one_channel(spec: specs.Model) -> None:
    net = make(spec, channels=1).eval()
    assert net(torch.rand(2, 1, 64, 64)).shape[:2] == (2, 5)
    assert next(each for each in net.modules() if isinstance(each, nn.Conv2d)).in_channels == 1


@pytest.mark.parametrize("spec", [MOBILE, LITE, SMP], ids=lambda spec: spec.name)
def test_the_answer_does_not_depend_on_the_layout(spec: specs.Model) -> None:
    net, images = make(spec).eval(), torch.rand(2, 3, 64, 64)
    expected = net(images)
    last = net.to(memory_format=torch.channels_last)(images.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(last, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("spec", [MOBILE, LITE, SMP], ids=lambda spec: spec.name)
def test_a_copy_and_a_saved_state_answer_alike(spec: specs.Model) -> None:
    net = make(spec).eval()
    other = make(spec.model_copy(update={"initialisation": "xavier"})).eval()
    images = torch.rand(1, 3, 64, 64)
    assert not torch.equal(other(images), net(images))
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(images), net(images))
    assert torch.equal(copy.deepcopy(net)(images), net(images))


@pytest.mark.parametrize(
    ("spec", "task", "fault"),
    [
        (
            specs.TorchvisionModel(name="resnet50"),
            Segmentation(),
            "no segmentation model 'resnet50'; .*fcn_resnet50",
        ),
        (specs.TorchvisionModel(name="unet"), MASKS, "no segmentation model 'unet'; .*unet_small"),
        (specs.TorchvisionModel(name="alexnet"), MASKS, "it has 6, such as fcn_resnet50"),
        (FCN, CLASSIFICATION, "no classification model 'fcn_resnet50'; .*resnet50"),
        (
            specs.TimmModel(name="resnet18"),
            Segmentation(),
            r"model\.kind: for a segmentation expected one of unet_",
        ),
        (specs.ResNetSmall(), MASKS, "got resnet_small; unet_small needs no other field"),
        (SMP, CLASSIFICATION, r"model\.kind: for a classification expected one of resnet_small, .*got smp"),
    ],
)
def test_a_network_of_the_other_task_is_refused(spec: specs.Model, task: TaskSpec, fault: str) -> None:
    with pytest.raises(ModelError, match=fault):
        make_model(spec, NetworkEnds(classes=5, channels=3, image_size=64), task=task)


class Own(nn.Module):
    """A network that answers at a share of the image's size, or in another form."""

    def __init__(self, classes: int, scale: float = 1.0, form: str = "logits") -> None:
        super().__init__()
        self.layer, self.scale, self.form = nn.Conv2d(3, classes, 3, padding=1), scale, form

    def forward(self, images: Tensor) -> object:
        logits = functional.interpolate(self.layer(images), scale_factor=self.scale)
        return {"logits": logits, "a dict": {"out": logits}, "a mean": logits.mean((2, 3))}[self.form]


@pytest.mark.parametrize(("scale", "side"), [(1.0, 24), (0.5, 12)])
def test_a_network_of_ones_own_may_answer_at_any_smaller_size(scale: float, side: int) -> None:
    spec = specs.OwnModel(name="Own", arguments={"scale": scale})
    net = make_model(spec, NetworkEnds(classes=4, channels=3, image_size=24), build=Own, task=MASKS)
    assert net(torch.rand(2, 3, 24, 24)).shape == (2, 4, side, side)


@pytest.mark.parametrize(
    ("arguments", "got"),
    [({"scale": 2.0}, r"\(1, 4, 48, 48\)"), ({"form": "a dict"}, "dict"), ({"form": "a mean"}, r"\(1, 4\)")],
)
def test_what_is_no_answer_for_each_pixel_is_refused(arguments: dict[str, specs.Argument], got: str) -> None:
    spec = specs.OwnModel(name="Own", arguments=arguments)
    with pytest.raises(ModelError, match=rf"your Own: expected logits of shape \(1, 4, h, w\) .*got {got}"):
        make_model(spec, NetworkEnds(classes=4, channels=3, image_size=24), build=Own, task=MASKS)


def test_images_that_are_too_small_are_an_error_that_names_unet_small() -> None:
    spec = specs.SmpModel(name="unet", encoder="inception_v3")
    with pytest.raises(ModelError, match=r"smp's unet over inception_v3 cannot take .* unet_small takes"):
        make_model(spec, NetworkEnds(classes=5, channels=3, image_size=32), task=MASKS)


@pytest.mark.parametrize("spec", [MOBILE, SMP], ids=lambda spec: spec.name)
def test_lint_reaches_every_layer_of_each_head(spec: specs.Model) -> None:
    found = lints(make(spec), torch.rand(2, 3, 64, 64))
    assert not [each for each in found if each.kind == "unused_parameter"]


def loss_and_gradients(net: nn.Module, images: Tensor) -> tuple[Tensor, list[Tensor]]:
    torch.manual_seed(1)
    answers = net(images)
    several = answers if isinstance(answers, tuple) else (answers,)
    loss = torch.stack([each.square().mean() for each in several]).sum()
    loss.backward()
    return loss, [each.grad for each in net.parameters() if each.grad is not None]


@pytest.mark.parametrize(
    ("spec", "blocks"),
    [(LITE, 15), (SMP, 12 + 7), (specs.SmpModel(encoder="resnet18"), 8 + 5), (specs.UNetSmall(width=4), 7)],
    ids=["lraspp", "fpn", "unet", "unet_small"],
)
def test_recomputed_blocks_change_no_loss_and_no_gradient(spec: specs.Model, blocks: int) -> None:
    net, images = make(spec), torch.rand(2, 3, 32, 32)
    twin = copy.deepcopy(net)
    assert checkpoint_blocks(twin) == blocks
    (loss, expected), (again, got) = loss_and_gradients(net, images), loss_and_gradients(twin, images)
    assert torch.equal(again, loss)
    assert all(map(torch.equal, got, expected))
    assert len(got) == len(list(net.parameters()))
