"""Tests the files that timm loads: the same network, and images as timm can describe them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from PIL import Image
from torch import Tensor, nn

from tests.full_disk import files_of_at_most
from tests.trainable.bundle.trained_networks import DIGITS, untrained
from trainable.bundle.trained import Trained
from trainable.bundle.weights_alone import write_timm_files
from trainable.tasks.classification.exported.predict import stored_pixels

SIGNS: dict[str, Any] = {"model.kind": "timm", "model.name": "test_vit", "data.image_size": 64}


def loaded(folder: Path) -> tuple[nn.Module, Any]:
    """Return the network that timm makes of a folder, and its own transform of images."""
    network = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    return network, timm.data.create_transform(**timm.data.resolve_model_data_config(network))


def timms(folder: Path, image: Image.Image) -> Tensor:
    network, transform = loaded(folder)
    with torch.no_grad():
        found: Tensor = network(transform(image)[None]).softmax(1)
    return found


def ours(trained: Trained, image: Image.Image) -> Tensor:
    pixels = stored_pixels(image, trained.exporter.about())
    found: Tensor = trained.exporter.module(trained.network())(torch.from_numpy(pixels[None].copy()))
    return found


@pytest.mark.slow("exports networks")
@pytest.mark.data
@pytest.mark.parametrize(
    ("values", "most"),
    [
        ({}, 1e-3),
        ({"data.channels": 1, "data.interpolation": "bicubic"}, 5e-3),
        ({"model.name": "test_resnet", "evaluation.resize.kind": "center_crop"}, 2e-2),
    ],
    ids=["stretched", "grey", "middle"],
)
def test_timm_answers_photographs_as_we_do_by_its_own_transform(
    real_images: Path, tmp_path: Path, values: dict[str, Any], most: float
) -> None:
    folder = real_images / "sign-language-digits" / "Dataset"
    trained = untrained({**SIGNS, **values, "data.path": str(folder)})
    write_timm_files(trained, tmp_path)
    mode = "L" if trained.data.info.channels == 1 else "RGB"
    for file in sorted(folder.glob("*/*.JPG"))[::400]:
        image = Image.open(file).convert(mode).crop((0, 10, 90, 70))
        torch.testing.assert_close(timms(tmp_path, image), ours(trained, image), rtol=0, atol=most)


def test_a_disk_that_takes_no_more_is_an_error_of_the_system(tmp_path: Path) -> None:
    trained = untrained({"model.kind": "timm", "model.name": "test_resnet", "data.image_size": 32})
    with files_of_at_most(20_000), pytest.raises(OSError, match="File too large"):
        write_timm_files(trained, tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["config.json"]


def test_the_configuration_says_what_the_images_and_classes_are(tmp_path: Path) -> None:
    trained = untrained({"model.kind": "timm", "model.name": "test_resnet", "data.image_size": 32})
    write_timm_files(trained, tmp_path)
    said = json.loads((tmp_path / "config.json").read_text())
    assert (said["architecture"], said["label_names"]) == ("test_resnet", list("0123456789"))
    images = said["pretrained_cfg"]
    assert (images["input_size"], images["crop_mode"], images["crop_pct"]) == ([1, 32, 32], "squash", 1.0)
    assert images["mean"] == list(trained.data.info.mean)
    assert (
        not {"license", "tag", "origin_url"} & images.keys()
    )  # they are of weights that it did not begin from


def test_a_network_that_timm_cannot_build_has_no_configuration(tmp_path: Path) -> None:
    write_timm_files(untrained(DIGITS), tmp_path)
    assert list(tmp_path.iterdir()) == []
