"""Tests weights of networks for segmentation: of the whole network, or of what is below the decoder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision import models

from trainable.errors import ModelError
from trainable.models.groups import head_parameters
from trainable.models.make import NetworkEnds, make_model
from trainable.models.pretrained_input import pretrained_input
from trainable.models.published_weights import published_entry
from trainable.models.weights import weights_digest, weights_file
from trainable.recipe import models as specs
from trainable.recipe.tasks import Segmentation

LITE = specs.TorchvisionModel(name="lraspp_mobilenet_v3_large")
DEEPLAB = specs.TorchvisionModel(name="deeplabv3_mobilenet_v3_large")
FCN = specs.TorchvisionModel(name="fcn_resnet50")
SMALL = "mobilenetv3_small_050"
UNET = specs.SmpModel(encoder=SMALL)
BACKBONE = "MobileNet_V3_Large_Weights.IMAGENET1K_V1"


def make(spec: specs.Model, weights: str | None = None, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    ends = NetworkEnds(**{"classes": 5, "channels": 3, "image_size": 32, **options})
    return make_model(spec.model_copy(update={"weights": weights}), ends, task=Segmentation())


def raised(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a state that no drawing has, of the same names and shapes."""
    return {
        name: (each + 0.5 if each.is_floating_point() else each).contiguous() for name, each in state.items()
    }


def saved(state: Mapping[str, Tensor], path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        save_file(dict(state), path)
    else:
        torch.save(dict(state), path)
    return str(path)


def differing(model: nn.Module, state: Mapping[str, Tensor], part: str = "") -> set[str]:
    """Return which weights of a part of a network a state did not give."""
    return {
        name
        for name, each in model.state_dict().items()
        if name.startswith(part) and not (name in state and torch.equal(each, state[name]))
    }


@pytest.mark.parametrize("spec", [LITE, DEEPLAB, UNET, specs.UNetSmall(width=4)], ids=specs.network_name)
def test_a_file_of_the_whole_network_gives_all_but_the_heads(tmp_path: Path, spec: specs.Model) -> None:
    state = raised(make(spec, classes=7).state_dict())
    net = make(spec, saved(state, tmp_path / "model.safetensors"))
    assert differing(net, state) == head_parameters(net)


@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_classifiers_file_gives_the_backbone_alone(tmp_path: Path, prefix: str) -> None:
    whole = raised(models.get_model("mobilenet_v3_large", weights=None).state_dict())
    path = saved({f"{prefix}{name}": each for name, each in whole.items()}, tmp_path / "mobile.pth")
    net, drawn = make(DEEPLAB, path), make(DEEPLAB)
    below = {name.replace("features.", "backbone."): each for name, each in whole.items()}
    assert differing(net, below, "backbone.") == set()
    assert differing(net, drawn.state_dict(), "classifier.") == {"classifier.4.weight", "classifier.4.bias"}


@pytest.mark.slow("builds large networks")
def test_a_resnets_file_gives_the_backbone_without_its_last_layer(tmp_path: Path) -> None:
    whole = raised(models.get_model("resnet50", weights=None).state_dict())
    net = make(FCN, saved(whole, tmp_path / "resnet50.safetensors"))
    below = {f"backbone.{name}": each for name, each in whole.items() if not name.startswith("fc.")}
    assert differing(net, below, "backbone.") == set()


@pytest.mark.slow("builds large networks")
def test_a_file_of_another_backbone_is_named_with_what_does_not_fit(tmp_path: Path) -> None:
    whole = models.get_model("resnet18", weights=None).state_dict()
    path = saved(whole, tmp_path / "resnet18.pth")
    with pytest.raises(ModelError) as caught:
        make(FCN, path)
    message = str(caught.value)
    assert "for the backbone of torchvision's fcn_resnet50 does not fit the network" in message
    assert "these look like timm's resnet18" in message


def in_torchs_cache(caches: Path, spec: specs.TorchvisionModel, state: Mapping[str, Tensor]) -> None:
    name = published_entry(spec).url.rpartition("/")[2]
    saved(state, caches / "torch" / "hub" / "checkpoints" / name)


@pytest.mark.parametrize("weights", ["default", "COCO_WITH_VOC_LABELS_V1"])
def test_torchvisions_weights_of_the_whole_network_leave_its_heads_new(caches: Path, weights: str) -> None:
    state = raised(make(DEEPLAB, classes=21).state_dict())
    in_torchs_cache(caches, DEEPLAB.model_copy(update={"weights": weights}), state)
    net = make(DEEPLAB, weights)
    assert differing(net, state) == head_parameters(net)


@pytest.mark.parametrize("channels", [1, 3])
def test_torchvisions_weights_of_the_backbone_give_it_alone(caches: Path, channels: int) -> None:
    whole = raised(models.get_model("mobilenet_v3_large", weights=None).state_dict())
    in_torchs_cache(caches, LITE.model_copy(update={"weights": BACKBONE}), whole)
    net = make(LITE, BACKBONE, channels=channels)
    below = {name.replace("features.", "backbone."): each for name, each in whole.items()}
    stem = below["backbone.0.0.weight"]
    below["backbone.0.0.weight"] = stem if channels == 3 else stem.sum(1, keepdim=True)
    assert differing(net, below, "backbone.") == set()


@pytest.mark.parametrize(
    ("spec", "weights", "fault"),
    [
        (LITE, "default", "of torchvision's lraspp_mobilenet_v3_large are not on this machine .*--download"),
        (LITE, BACKBONE, r"not on this machine .*mobilenet_v3_large-8738ca79\.pth.*--download"),
        (LITE, "IMAGENET1K_V1", "it has COCO_WITH_VOC_LABELS_V1, DEFAULT, MobileNet_V3_Large_Weights.IMAGE"),
        (LITE, "ResNet50_Weights.IMAGENET1K_V1", "has no weights 'ResNet50_Weights.IMAGENET1K_V1'"),
        (UNET, "default", f"of smp's unet over {SMALL} are not on this machine .*--download"),
        (UNET, "IMAGENET1K_V1", r"is torchvision's; .*behind model\.encoder, as in resnet50\.a1_in1k"),
        (specs.SmpModel(encoder="test_resnet.none"), "default", r"model\.encoder: timm's test_resnet has no"),
    ],
)
def test_published_weights_are_not_fetched_unasked(
    caches: Path, spec: specs.Model, weights: str, fault: str
) -> None:
    with pytest.raises(ModelError, match=fault):
        make(spec, weights)
    assert list(caches.iterdir()) == []


def timms(encoder: str, classes: int = 7) -> dict[str, Tensor]:
    return raised(timm.create_model(encoder, num_classes=classes).state_dict())


@pytest.mark.slow("builds large networks")
@pytest.mark.parametrize("name", ["unet", "deeplabv3plus"])
@pytest.mark.parametrize("encoder", [SMALL, "resnet18"])
def test_a_file_of_timm_gives_the_encoder_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, encoder: str, name: str
) -> None:
    whole = timms(encoder)
    spec = specs.SmpModel.model_validate({"encoder": encoder, "name": name})
    net, drawn = make(spec, saved(whole, tmp_path / f"{encoder}.safetensors")), make(spec)
    below = {f"encoder.model.{key}": each for key, each in whole.items()}
    assert differing(net, below, "encoder.") == set()
    assert differing(net, drawn.state_dict(), "decoder.") == set()
    assert caplog.records == []


def test_an_encoder_whose_layers_have_other_names_there_is_loaded_too(tmp_path: Path) -> None:
    """timm calls stages.0 stages_0 where features alone are asked for."""
    whole = timms("convnext_atto")
    spec = specs.SmpModel(name="segformer", encoder="convnext_atto")
    net = make(spec, saved(whole, tmp_path / "convnext.pth"))
    below = {f"encoder.model.{key}".replace("stages.", "stages_"): each for key, each in whole.items()}
    below = {key.replace("stem.", "stem_"): each for key, each in below.items()}
    assert differing(net, below, "encoder.") == set()


def test_an_encoders_first_layer_is_summed_for_grey_images(tmp_path: Path) -> None:
    whole = timms(SMALL)
    net = make(UNET, saved(whole, tmp_path / "small.pth"), channels=1)
    stem = net.encoder.model.conv_stem.weight
    torch.testing.assert_close(stem, whole["conv_stem.weight"].sum(1, keepdim=True))


def test_a_file_of_another_encoder_is_named_by_timms_names(tmp_path: Path) -> None:
    path = saved(timms("resnet18"), tmp_path / "resnet18.pth")
    with pytest.raises(ModelError) as caught:
        make(UNET, path)
    message = str(caught.value)
    assert f"for timm's {SMALL}, the encoder, does not fit the network" in message
    assert "these look like timm's resnet18" in message


def test_timms_weights_in_its_cache_need_no_leave(caches: Path) -> None:
    whole = timms("test_resnet", classes=1000)
    folder = caches / "hub" / "models--timm--test_resnet.r160_in1k"
    saved(whole, folder / "snapshots" / "abc" / "model.safetensors")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    net = make(specs.SmpModel(encoder="test_resnet"), "default")
    below = {f"encoder.model.{key}": each for key, each in whole.items()}
    assert differing(net, below, "encoder.") == set()


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (UNET, [SMALL, "model"]),
        (DEEPLAB, ["deeplabv3_mobilenet_v3_large", "mobilenet_v3_large", "model"]),
        (specs.UNetSmall(), ["model"]),
    ],
    ids=["smp", "torchvision", "ours"],
)
def test_a_folder_has_a_file_called_as_the_network_or_as_what_is_below_the_decoder(
    tmp_path: Path, spec: specs.Model, names: list[str]
) -> None:
    spec = spec.model_copy(update={"weights": str(tmp_path)})
    for name in reversed(names):
        saved({"a": torch.ones(1)}, tmp_path / f"{name}.safetensors")
        assert weights_file(spec) == tmp_path / f"{name}.safetensors"
        assert weights_digest(spec) is not None


@pytest.mark.parametrize(
    ("spec", "weights", "mean"),
    [
        (FCN, "default", 0.485),
        (FCN, "ResNet50_Weights.IMAGENET1K_V2", 0.485),
        (specs.SmpModel(encoder="resnet18"), "default", 0.485),
        (specs.SmpModel(encoder="inception_v3"), "default", 0.5),
    ],
)
def test_images_look_as_they_did_to_the_weights_at_a_side_that_is_open(
    spec: specs.Model, weights: str, mean: float
) -> None:
    known = pretrained_input(spec.model_copy(update={"weights": weights}))
    assert known is not None
    assert (known.side, known.fixed_side) == (None, False)
    assert known.mean[0] == mean
    assert known.interpolation in ("bilinear", "bicubic")


def test_nothing_is_known_of_images_of_a_small_u_net(tmp_path: Path) -> None:
    path = saved({"a": torch.ones(1)}, tmp_path / "a.safetensors")
    assert pretrained_input(specs.UNetSmall(weights=path)) is None
    assert pretrained_input(specs.SmpModel(encoder="resnet18")) is None
