"""How images looked to weights: told by timm, torchvision and the files of `tunebook train`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.lite_weights import LITE0, write_weights
from tests.trainable.small_runs import data_set, small_recipe
from trainable.bench import ON_CPU, Bench
from trainable.data import ArrayPart, DataSet
from trainable.data.assembly import from_arrays
from trainable.errors import ModelError
from trainable.models.make import NetworkEnds, make_model
from trainable.models.pretrained_input import pretrained_input
from trainable.recipe import Recipe
from trainable.recipe import models as specs
from trainable.recipe.data import ChannelStatistics
from trainable.tasks.kits import make_loader
from trainable.train import train
from trainable.training.pixels import as_weights_know, resolved

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
SWAG = "IMAGENET1K_SWAG_E2E_V1"
CPU = torch.device("cpu")


def lite(folder: Path, **values: object) -> Recipe:
    model = {"kind": "timm", "name": write_weights(folder), "weights": str(folder)}
    return Recipe().with_values({"data.path": "arrays", "model": model, **values})


def photographs(count: int = 12) -> DataSet:
    pixels = torch.randint(0, 256, (count, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator())
    labels = torch.arange(count) % 2
    return from_arrays((pixels.numpy(), labels.numpy()), (pixels.numpy(), labels.numpy()))


@pytest.mark.parametrize(
    ("spec", "mean", "side", "interpolation"),
    [
        (specs.TorchvisionModel(name="resnet18", weights="default"), IMAGENET[0], 224, "bilinear"),
        (
            specs.TorchvisionModel(name="vit_b_16", weights="IMAGENET1K_SWAG_E2E_V1"),
            IMAGENET[0],
            384,
            "bicubic",
        ),
        (specs.TimmModel(name=LITE0, weights="default"), (0.5,) * 3, 224, "bicubic"),
        (specs.TimmModel(name="test_vit", weights="default"), (0.5,) * 3, 160, "bicubic"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_libraries_say_how_images_looked(
    spec: specs.Model, mean: tuple[float, ...], side: int, interpolation: str
) -> None:
    known = pretrained_input(spec)
    assert known is not None
    assert (known.mean, known.side, known.interpolation) == (mean, side, interpolation)


def test_without_weights_nothing_is_known() -> None:
    assert pretrained_input(specs.TimmModel(name=LITE0)) is None


@pytest.mark.parametrize("weights", ["IMAGENET1K_V3", "ResNet50_Weights.IMAGENET1K_V1"])
def test_an_unknown_name_of_weights_is_answered_with_the_known_ones(weights: str) -> None:
    spec = specs.TorchvisionModel(name="resnet18", weights=weights)
    with pytest.raises(ModelError, match=r"torchvision's resnet18 has no weights .*; it has IMAGENET1K_V1"):
        pretrained_input(spec)


def test_a_recipe_sees_images_as_its_weights_do(tmp_path: Path) -> None:
    asked = as_weights_know(lite(tmp_path), Bench(device_name="cuda"))
    assert (asked.data.image_size, asked.data.interpolation) == (224, "bicubic")
    assert as_weights_know(lite(tmp_path), ON_CPU).data.image_size == 96
    written = as_weights_know(lite(tmp_path, **{"data.image_size": 64}), Bench(device_name="cuda"))
    assert written.data.image_size == 64


def test_a_network_of_one_size_keeps_it_on_a_cpu(tmp_path: Path) -> None:
    recipe = Recipe().with_values({"model": {"kind": "timm", "name": "test_vit", "weights": "default"}})
    assert as_weights_know(recipe, ON_CPU).data.image_size == 160


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, {"mean": [0.5] * 3, "std": [0.5] * 3}),
        ("pretrained", {"mean": [0.5] * 3, "std": [0.5] * 3}),
        ("data", "data"),
        ({"mean": [0.1] * 3, "std": [0.2] * 3}, {"mean": [0.1] * 3, "std": [0.2] * 3}),
    ],
)
def test_pixels_are_normalised_as_asked(tmp_path: Path, asked: object, expected: object) -> None:
    data = photographs()
    recipe = resolved(lite(tmp_path, **{"data.normalisation": asked}), data)
    assert recipe.tree()["data"]["normalisation"] == expected
    images, _ = next(make_loader(data, recipe, ON_CPU).evaluate("train"))
    mean, std = (
        (expected["mean"], expected["std"]) if isinstance(expected, dict) else (data.info.mean, data.info.std)
    )
    assert isinstance(data.train, ArrayPart)
    pixels = torch.from_numpy(data.train.images).double() / 255
    wanted = (pixels - torch.tensor(mean).view(1, -1, 1, 1)) / torch.tensor(std).view(1, -1, 1, 1)
    torch.testing.assert_close(images.double(), wanted, atol=1e-5, rtol=1e-5)


def test_what_no_weights_say_is_refused() -> None:
    recipe = small_recipe({"data.normalisation": "pretrained"})
    with pytest.raises(ModelError, match=r"data\.normalisation: pretrained: resnet_small has no pre"):
        resolved(recipe, data_set())


def test_numbers_of_other_channels_are_refused() -> None:
    recipe = small_recipe({"data.normalisation": {"mean": [0.5] * 3, "std": [0.5] * 3}})
    with pytest.raises(Exception, match="the images have 1 channels, got the mean and std of 3"):
        make_loader(data_set(), recipe, ON_CPU)


def test_a_network_of_ones_own_sees_the_datas_statistics_or_those_of_its_file(tmp_path: Path) -> None:
    assert resolved(lite(tmp_path), photographs(), own_model=True).data.normalisation == "data"
    first = data_set()
    recipe = Recipe().with_values(
        {"loop.epochs": 1, "loop.batch_size": 8, "model": {"kind": "own", "name": "tiny"}}
    )
    train(recipe, data=first, model=tiny, out=tmp_path / "first")
    again = recipe.with_values({"model.weights": str(tmp_path / "first" / "model.safetensors")})
    outcome = train(again, data=data_set(train=30), model=tiny)
    assert outcome.recipe.data.normalisation == ChannelStatistics(mean=first.info.mean, std=first.info.std)


def tiny(channels: int, classes: int) -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(4), torch.nn.Linear(4, classes))


@pytest.mark.slow("builds large networks")
def test_images_from_python_are_as_large_as_the_weights_want(tmp_path: Path) -> None:
    photographed = photographs().train
    assert isinstance(photographed, ArrayPart)
    arrays = photographed.tensors()
    large = torch.nn.functional.interpolate(arrays[0], 128).permute(0, 2, 3, 1).numpy()
    recipe = lite(tmp_path, **{"loop.epochs": 1, "loop.batch_size": 4, "data.validation_fraction": 0.3})
    outcome = train(recipe, data=lambda: (large, arrays[1].numpy()), bench=ON_CPU)
    assert (outcome.recipe.data.image_size, outcome.recipe.data.interpolation) == (96, "bicubic")


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ({"mean": [0.5]}, "std: is required; input_size: is required"),
        (
            {"mean": 0.5, "std": [0.5], "input_size": [3, 8, 8]},
            "mean: expected a list, such as [...], got 0.5",
        ),
        (
            {"mean": [0.5], "std": [0.5], "input_size": None},
            "input_size: expected a list, such as [...], got None",
        ),
        ({"mean": [0.5], "std": [0.5, 0.5], "input_size": [3, 8, 8]}, "expected a mean and a std for one"),
    ],
)
def test_a_folders_configuration_is_checked(tmp_path: Path, said: dict[str, object], fault: str) -> None:
    content = {"architecture": "test_resnet", "num_classes": 3, "pretrained_cfg": said}
    (tmp_path / "config.json").write_text(json.dumps(content))
    (tmp_path / "model.safetensors").touch()
    spec = specs.TimmModel(name=f"local-dir:{tmp_path}", weights="default")
    with pytest.raises(ModelError, match=re.escape(fault)):
        pretrained_input(spec)


def test_what_train_wrote_is_normalised_alike_when_a_run_begins_from_it(tmp_path: Path) -> None:
    first = data_set()
    train(small_recipe({"loop.epochs": 1}), data=first, out=tmp_path / "first")
    begun = small_recipe({"loop.epochs": 1, "model.weights": str(tmp_path / "first")})
    recipe = resolved(begun, data_set(train=30))
    assert recipe.data.normalisation == ChannelStatistics(mean=first.info.mean, std=first.info.std)
    state = load_file(tmp_path / "first" / "model.safetensors")
    save_file(state, tmp_path / "silent.safetensors")
    silent = begun.with_values({"model.weights": str(tmp_path / "silent.safetensors")})
    assert resolved(silent, data_set()).data.normalisation == "data"


def test_a_folder_holds_the_weights_of_several_models(tmp_path: Path) -> None:
    name = write_weights(tmp_path)
    spec = specs.TimmModel(name=name, weights=str(tmp_path))
    model = make_model(spec, NetworkEnds(classes=5, channels=3, image_size=64))
    state = load_file(tmp_path / f"{name}.safetensors")
    assert torch.equal(model.state_dict()["conv_stem.weight"], state["conv_stem.weight"])
    other = specs.TimmModel(name="test_vit", weights=str(tmp_path))
    with pytest.raises(ModelError, match=r"expected a file of weights in the folder .*, called test_vit"):
        make_model(other, NetworkEnds(classes=5, channels=3, image_size=160))


def test_weights_from_imagenet_tell_photographs_apart(tmp_path: Path) -> None:
    """A bright disc and a bright square: ImageNet's features answer to shapes, those of noise to nothing."""
    spec = specs.TimmModel(name=write_weights(tmp_path), weights=str(tmp_path))
    model = make_model(spec, NetworkEnds(classes=2, channels=3, image_size=64)).eval()
    grid = torch.arange(64) - 31.5
    disc = (grid[:, None] ** 2 + grid[None] ** 2 < 400).float().expand(1, 3, 64, 64)
    square = ((grid[:, None].abs() < 18) & (grid[None].abs() < 18)).float().expand(1, 3, 64, 64)
    with torch.inference_mode():
        one, moved, other = (
            model.forward_head(model.forward_features(2 * each - 1), pre_logits=True)
            for each in (disc, disc.roll(3, -1), square)
        )
    assert torch.cosine_similarity(one, moved) > torch.cosine_similarity(one, other)
