"""Tests that networks for masks are pruned, fine-tuned, distilled, judged by their IoU, and loaded again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainable.shrinking.networks import assert_taught_by
from tests.trainable.small_segmentations import CLASSES, mask_recipe, write_masks
from trainable.bench import ON_CPU, Bench
from trainable.bundle.trained import network_in, trained_in
from trainable.bundle.write import write_bundle
from trainable.errors import ModelError
from trainable.models.make import NetworkEnds, make_model
from trainable.recipe.tasks import Segmentation
from trainable.recipe.yamlfile import read_recipe
from trainable.run import make_run
from trainable.shrinking.fine_tuning import fine_tuning, scores_of, taught_by
from trainable.shrinking.prune import prune
from trainable.shrinking.shrink import (
    DISTILLED,
    PRUNED,
    SCRATCH,
    TUNED,
    UNPRUNED,
    Shrunk,
    shrink,
    write_shrunk,
)
from trainable.train import train

pytestmark = [pytest.mark.slow("trains and prunes networks"), pytest.mark.usefixtures("few_rounds")]

CPU = torch.device("cpu")
WINDOW = 16
SMP = "mobilenetv3_small_050"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a trained U-Net, for images of two sizes."""
    root = write_masks(tmp_path_factory.mktemp("masks"), 40, sizes=((32, 32), (24, 40)))
    train(mask_recipe(root, {"model.width": 16, "loop.epochs": 8}), out=root / "whole")
    return root / "whole"


@pytest.fixture(scope="module")
def found(whole: Path) -> Shrunk:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainable.shrinking.latency.SECONDS", 0.0)
        known = trained_in(whole)
        recipe = fine_tuning(known.recipe)
        said: list[str] = []
        shrunk = shrink(
            known,
            recipe,
            0.5,
            seeds=2,
            taught=taught_by(recipe, whole),
            test=True,
            scratch=True,
            bench=Bench(device_name="cpu", say=said.append),
        )
    assert said[0].endswith("operations a window")
    assert [line.partition(" 0.")[0] for line in said[1:3]] == [
        "fine-tuned, seed 1: val_mean_iou",
        "fine-tuned, seed 2: val_mean_iou",
    ]
    return shrunk


def test_it_is_judged_and_chosen_by_the_mean_iou(found: Shrunk) -> None:
    assert found.metric == "val_mean_iou"
    ious = [each.scores["validation"].extra["mean_iou"] for each in found.tuned]
    assert found.best.scores["validation"].extra["mean_iou"] == max(ious)
    assert set(found.scores) == {UNPRUNED, PRUNED, TUNED, DISTILLED, SCRATCH}
    for scores in found.scores.values():
        assert all(part.by_image is not None for each in scores for part in each.values())


def test_it_has_fewer_operations_and_answers_each_pixel(found: Shrunk, tmp_path: Path) -> None:
    assert 0.4 < found.pruned.share <= 0.5
    write_shrunk(found, tmp_path / "small")
    narrow = network_in(tmp_path / "small")
    noise = torch.randn(2, 3, WINDOW, WINDOW)
    assert narrow(noise).shape == (2, len(CLASSES), WINDOW, WINDOW)
    again = trained_in(tmp_path / "small")
    assert torch.equal(again.network().eval()(noise), narrow(noise))
    assert scores_of(narrow, again.recipe, again.data, ("test",), ON_CPU)["test"] == found.best.scores["test"]
    provenance = read_recipe(tmp_path / "small" / "recipe.yaml").provenance
    assert provenance is not None
    assert provenance.metrics["val_mean_iou"] == found.best.scores["validation"].extra["mean_iou"]


def test_it_teaches_another_network_for_the_same_masks(found: Shrunk, tmp_path: Path) -> None:
    write_shrunk(found, tmp_path / "small")
    student = fine_tuning(found.trained.recipe).with_values(
        {"model.width": 4, "distillation.teacher": str(tmp_path / "small"), "loop.epochs": 1}
    )
    run = make_run(student, data=found.trained.data, bench=ON_CPU)
    assert_taught_by(run, tmp_path / "small", torch.randn(2, 3, WINDOW, WINDOW))
    assert not run.step().diverged


@pytest.mark.usefixtures("few_passes")
def test_it_becomes_a_bundle(found: Shrunk, tmp_path: Path) -> None:
    write_shrunk(found, tmp_path / "small")
    write_bundle(trained_in(tmp_path / "small"), tmp_path / "bundle")
    noise = torch.randn(2, 3, WINDOW, WINDOW)
    assert torch.equal(network_in(tmp_path / "bundle")(noise), network_in(tmp_path / "small")(noise))
    assert "unet_small, pruned, for 3 classes" in (tmp_path / "bundle" / "README.md").read_text()


def dense(model: dict[str, Any], size: int) -> torch.nn.Module:
    torch.manual_seed(0)
    spec = mask_recipe(Path("masks"), {"model": model}).model
    return make_model(spec, NetworkEnds(classes=3, channels=3, image_size=size), task=Segmentation()).eval()


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ({"kind": "unet_small", "levels": 3, "width": 16}, 32),
        ({"kind": "torchvision", "name": "lraspp_mobilenet_v3_large"}, 64),
        ({"kind": "torchvision", "name": "deeplabv3_mobilenet_v3_large"}, 64),
        *(
            ({"kind": "smp", "name": name, "encoder": SMP}, 64)
            for name in ("unet", "unetplusplus", "fpn", "deeplabv3plus", "segformer")
        ),
    ],
    ids=["unet_small", "lraspp", "deeplabv3", "unet", "unetplusplus", "fpn", "deeplabv3plus", "segformer"],
)
def test_networks_with_heads_for_pixels_are_pruned(model: dict[str, Any], size: int) -> None:
    whole = dense(model, size)
    pruned = prune(whole, (3, size, size), 0.5)
    assert 0.46 < pruned.share <= 0.5
    noise = torch.randn(2, 3, size, size)
    with torch.no_grad():
        assert pruned.network(noise).shape == whole(noise).shape


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("ghostnet_050", r"^mine: cannot be pruned: .* what it does to channels is not understood"),
        ("mobilevit_xxs", r"^mine: expected a convolutional network, got one with attention layers"),
    ],
)
def test_an_encoder_that_cannot_be_pruned_is_named(encoder: str, message: str) -> None:
    network = dense({"kind": "smp", "name": "unet", "encoder": encoder}, 64)
    with pytest.raises(ModelError, match=message):
        prune(network, (3, 64, 64), 0.5, title="mine")
