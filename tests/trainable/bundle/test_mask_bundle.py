"""Tests bundles of networks for masks: their files answer as the run does, and what the page says of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard
from PIL import Image

from tests.trainable.bundle.test_write import FILES
from tests.trainable.small_segmentations import CLASSES, drawn, mask_recipe, write_masks
from tests.trainable.tasks.classification.exported.test_predict import alone
from trainable.bundle.measured import checked_share
from trainable.bundle.programs import ExportError, answer_of_onnx, answer_of_pt2
from trainable.bundle.trained import trained_in
from trainable.bundle.write import write_bundle
from trainable.tasks.segmentation.data.stores import stored_values
from trainable.tasks.segmentation.exported.masks import same_pixels
from trainable.tasks.segmentation.exported.whole_images import class_logits
from trainable.tasks.segmentation.predicted import KeptMasks
from trainable.train import train

pytestmark = pytest.mark.usefixtures("few_passes")
VIEWS: dict[str, Any] = {
    "evaluation.flip": True,
    "evaluation.scales": [1.0, 0.75, 1.5],
    "data.flips": ["horizontal"],
}


def bundled(root: Path, values: dict[str, Any] | None = None, channels: int = 3) -> Path:
    """Train a small recipe and return the folder of its bundle."""
    recipe = mask_recipe(write_masks(root, sizes=((32, 32), (12, 40)), channels=channels), values)
    train(recipe, out=root / "trained", test=True)
    write_bundle(trained_in(root / "trained"), root / "bundle")
    return root / "bundle"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainable.bundle.measured.BATCHES", (1, 2))
        patch.setattr("trainable.bundle.measured.SECONDS", 0.0)
        return bundled(tmp_path_factory.mktemp("masks"))


@pytest.mark.slow("exports networks")
def test_a_bundle_has_the_files_of_any_other_and_says_what_was_measured(bundle: Path) -> None:
    assert {each.name for each in bundle.iterdir()} == FILES
    metrics = json.loads((bundle / "metrics.json").read_text())
    trained = json.loads((bundle.parent / "trained" / "metrics.json").read_text())
    assert metrics["same_top_class"] == {"model.onnx": 1.0, "model.pt2": 1.0}
    assert metrics["test_mean_iou"] == pytest.approx(trained["last"]["test_mean_iou"], abs=1e-6)
    assert metrics["test_by_class"].keys() == {"iou", "dice"}
    card = ModelCard.load(bundle / "README.md")
    assert card.data.eval_results is not None
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("mean_iou", round(metrics["test_mean_iou"], 4))
    assert card.data.pipeline_tag == "image-segmentation"
    low, high = metrics["test_intervals"]["by_class"]["iou"]["ground"]
    row = f"| `ground` | {metrics['test_by_class']['iou']['ground']:.4f} | {low:.4f} to {high:.4f} |"
    assert row in card.text
    assert "0 `ground`, 1 `square`, 2 `disc`" in card.text


@pytest.mark.slow("exports networks")
@pytest.mark.parametrize(
    ("values", "channels"),
    [(VIEWS, 3), ({"data.in_memory": False, "data.test_fraction": 0.0}, 1)],
    ids=["with views", "grey, from files, without a test part"],
)
def test_files_have_the_run_s_top_class_of_every_pixel(
    tmp_path: Path, values: dict[str, Any], channels: int
) -> None:
    if "data.test_fraction" in values:
        recipe = mask_recipe(write_masks(tmp_path, channels=channels), values)
        train(recipe, out=tmp_path / "trained")
        write_bundle(trained_in(tmp_path / "trained"), tmp_path / "bundle")
        folder = tmp_path / "bundle"
    else:
        folder = bundled(tmp_path, values, channels)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert min(metrics["same_top_class"].values()) > 0.9999


def test_a_file_that_answers_otherwise_makes_no_bundle() -> None:
    import torch

    kept, about = KeptMasks(), {"side": 4, "overlap": 0.0, "views": [[1.0, False]]}
    kept.take(np.array([0]), torch.tensor([[1.0, 0.0]])[..., None, None].expand(1, 2, 4, 4))
    wrong = np.zeros((1, 2, 4, 4), np.float32)
    wrong[:, 1] = 1.0
    found = same_pixels(lambda windows: wrong, [np.zeros((4, 4, 1), np.uint8)], about, kept)
    with pytest.raises(ExportError, match="top class is the run's for 0 of 16 pixels"):
        checked_share("model.onnx", *found, "pixels")


@pytest.mark.integration
def test_the_script_needs_nothing_of_ours_and_writes_masks_of_any_size(bundle: Path, tmp_path: Path) -> None:
    files = []
    for number, size in enumerate(((32, 32), (50, 21))):
        image, _ = drawn(number + 100, *size)
        files.append(tmp_path / f"{number}.png")
        Image.fromarray(image).save(files[-1])
    (tmp_path / "text.png").write_text("no image")
    done = alone(tmp_path, bundle / "predict.py", tmp_path / "out", *files, tmp_path / "text.png")
    assert done.returncode == 1, "one of them is no image"
    assert done.stderr.splitlines()[-1].startswith(f"{tmp_path / 'text.png'}: cannot be read")
    answer = answer_of_onnx(bundle / "model.onnx")
    import onnxruntime

    session = onnxruntime.InferenceSession(bundle / "model.onnx", providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map["tunebook"])
    assert about["classes"] == list(CLASSES)
    for file, line in zip(files, done.stdout.splitlines(), strict=True):
        name, out, shares = line.split("\t")
        assert (name, out) == (str(file), str(tmp_path / "out" / file.name))
        assert "ground" in shares
        with Image.open(out) as mask:
            expected = class_logits(answer, np.asarray(Image.open(file)), about).argmax(0)
            assert np.array_equal(stored_values(mask)[0], expected)


@pytest.mark.integration
def test_the_script_writes_over_nothing(bundle: Path, tmp_path: Path) -> None:
    Image.fromarray(drawn(0, 20, 20)[0]).save(tmp_path / "a.png")
    command = [sys.executable, str(bundle / "predict.py"), str(tmp_path), str(tmp_path / "a.png")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert f"its mask {tmp_path / 'a.png'} is there already" in done.stderr


@pytest.mark.slow("exports networks")
def test_both_files_answer_windows_alike(bundle: Path) -> None:
    windows = np.random.default_rng(0).uniform(0, 255, (3, 16, 16, 3)).astype(np.float32)
    first = answer_of_onnx(bundle / "model.onnx")(windows)
    second = answer_of_pt2(bundle / "model.pt2")(windows)
    assert first.shape == (3, 3, 16, 16)
    assert first == pytest.approx(second, abs=1e-4)
