"""`tunebook backbones` ranks what is at hand, says what is not, and writes the next study."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from search.study import read_study
from spaces.rules.backbones import BACKBONES, SIZES
from tests.search.command_line import Refusal, Tunebook
from tests.trainable.small_images import write_classes
from tests.trainable.small_segmentations import write_masks

PERMISSIVE = ("apache-2.0", "mit", "bsd-3-clause")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with images, two networks' weights, and the cache: one test measures for all."""
    folder = tmp_path_factory.mktemp("backbones")
    write_classes(folder / "images", {"cat": 16, "dog": 16})
    (folder / "weights").mkdir()
    for name in ("test_resnet", "test_efficientnet"):
        torch.manual_seed(0)
        save_file(timm.create_model(name).state_dict(), folder / "weights" / f"{name}.safetensors")
    return folder


@pytest.fixture(autouse=True)
def cache(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return shared / "cache"


@pytest.fixture
def weights(shared: Path) -> Path:
    return shared / "weights"


@pytest.fixture
def images(shared: Path) -> Path:
    return shared / "images"


@pytest.mark.slow("trains networks")
def test_the_lists_name_networks_of_timm_with_free_weights() -> None:
    for size, most in zip(SIZES, (12e6, 30e6, 100e6), strict=True):
        for name in BACKBONES[size]:
            configuration = timm.get_pretrained_cfg(name)
            assert configuration is not None
            assert configuration.license in PERMISSIVE, name
            with torch.device("meta"):
                network = timm.create_model(name)
            assert sum(each.numel() for each in network.parameters()) <= most, name


@pytest.mark.slow("trains networks")
def test_networks_in_a_folder_are_ranked_and_become_the_next_studys_choices(
    tunebook: Tunebook, weights: Path, images: Path, tmp_path: Path
) -> None:
    out = tmp_path / "next.yaml"
    code, _, err = tunebook("backbones", images, "--weights", weights, "-o", out)
    assert code == 0, err
    study = read_study(out)
    assert study.space.name == "finetune"
    choice: dict[str, Any] = study.space.overrides["model.name"]
    assert set(choice["choice"]) == {"test_resnet", "test_efficientnet"}
    assert sum(choice["weights"]) == pytest.approx(1.0, abs=0.01)
    assert study.base_recipe().model.weights == str(weights)
    code, explained, err = tunebook("explain", out)
    assert code == 0, err
    assert "model.name" in explained
    one = tmp_path / "one.yaml"
    code, _, err = tunebook("backbones", out, "--weights", weights, "--models", "test_resnet", "-o", one)
    assert code == 0, err
    assert read_study(one).base_recipe().get("model.name") == "test_resnet"
    assert read_study(one).networks == ()


@pytest.mark.slow("trains networks")
def test_the_next_study_keeps_what_is_pinned_of_any_network_and_leaves_out_what_is_too_large(
    tunebook: Tunebook, refusal: Refusal, weights: Path, images: Path, tmp_path: Path
) -> None:
    out, limit = tmp_path / "next.yaml", "objective.constraints.parameters.max"
    small, large = sorted(map(parameters, ("test_resnet", "test_efficientnet")))
    pins = {"base.model.freeze_epochs": 1, "base.model.layer_rates.kind": "decayed", limit: large - 1}
    settings = [part for path, value in pins.items() for part in ("--set", f"{path}={value}")]
    code, said, err = tunebook("backbones", images, "--weights", weights, *settings, "-o", out)
    assert code == 0, err
    assert f"more parameters than {limit}, {large - 1:,}" in " ".join(said.split())
    model = read_study(out).base["model"]
    assert parameters(model.pop("name")) == small
    rates = {"kind": "decayed"}
    assert model == {"freeze_epochs": 1, "layer_rates": rates, "kind": "timm", "weights": str(weights)}
    none = ("--weights", weights, "--set", f"{limit}={small - 1}", "-o", tmp_path / "none.yaml")
    assert "no study can be written" in refusal("backbones", images, *none)


def parameters(name: str) -> int:
    return sum(each.numel() for each in timm.create_model(name, num_classes=2).parameters())


@pytest.mark.slow("trains networks")
def test_a_network_that_cannot_take_what_is_pinned_is_left_out(
    tunebook: Tunebook, weights: Path, images: Path
) -> None:
    pin = ("--set", "base.model.zero_init_residual=true")
    code, said, err = tunebook("backbones", images, "--weights", weights, *pin)
    assert code == 0, err
    assert "test_efficientnet: left out: model.zero_init_residual: " in " ".join(said.split())


def test_a_group_in_two_parts_is_refused(
    refusal: Refusal, weights: Path, images: Path, tmp_path: Path
) -> None:
    files = sorted(images.rglob("*.png"))
    parts = ["train", "train", "validation", "test"]
    lines = [f"{each},{each.parent.name},{parts[row % 4]},same" for row, each in enumerate(files)]
    (tmp_path / "list.csv").write_text("\n".join(["path,label,split,group", *lines]))
    err = refusal("backbones", tmp_path / "list.csv", "--weights", weights)
    assert "scores would reward memory" in " ".join(err.split())


@pytest.mark.slow("trains networks")
def test_an_objective_that_counts_classes_alike_is_named(
    tunebook: Tunebook, weights: Path, images: Path
) -> None:
    setting = "objective.metric=val_balanced_accuracy"
    code, said, err = tunebook("backbones", images, "--weights", weights, "--set", setting)
    assert code == 0, err
    assert "val_balanced_accuracy, the objective, counts classes alike" in said


@pytest.mark.slow("trains networks")
def test_a_second_look_is_taken_from_the_cache(
    tunebook: Tunebook, weights: Path, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    arguments = ("backbones", images, "--weights", weights, "--json")
    _, first, _ = tunebook(*arguments)
    stored = {each: each.stat().st_mtime_ns for each in cache.rglob("*.npz")}
    assert len(stored) == 2
    _, second, _ = tunebook(*arguments)
    assert json.loads(second) == json.loads(first)
    assert {each: each.stat().st_mtime_ns for each in cache.rglob("*.npz")} == stored


@pytest.mark.slow("trains networks")
def test_what_is_not_at_hand_is_said(tunebook: Tunebook, weights: Path, images: Path) -> None:
    arguments = ("backbones", images, "--weights", weights)
    code, out, _ = tunebook(*arguments, "--models", "test_resnet,test_vit")
    assert code == 0
    assert "test_vit: left out: model.weights: expected a file of weights in the folder" in " ".join(
        out.split()
    )
    code, _, err = tunebook("backbones", images, "--models", "test_resnet")
    assert code == 2
    assert "no network can be compared: pass --download to fetch weights, or --weights DIR" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--weights", "nowhere"), "nowhere: expected a folder with NAME.safetensors"),
        (("--weights", "there.yaml"), "there.yaml: expected a folder with NAME.safetensors"),
        (("--weights", "empty"), "expected files such as NAME.safetensors, found none"),
        (("-o", "there.yaml"), "exists already"),
    ],
)
def test_a_mistake_is_one_message(
    refusal: Refusal, images: Path, arguments: tuple[str, str], message: str
) -> None:
    Path("empty").mkdir()
    Path("there.yaml").touch()
    assert message in refusal("backbones", images, *arguments)


def test_backbones_of_images_with_masks_are_refused_in_one_sentence(tunebook: Tunebook) -> None:
    write_masks(Path("data"))
    segmentation = ("--set", "task.kind=segmentation", "--set", "model.kind=unet_small")
    code, _, err = tunebook("backbones", "data", *segmentation)
    assert code != 0
    assert "these images have masks: compare encoders in a search" in err
