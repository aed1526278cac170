"""Tests that numpy answers whole images as a run does: windows, views, and what lies beyond the image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from trainable.recipe.tasks import Segmentation
from trainable.tasks.segmentation.exported.masks import Segmenter
from trainable.tasks.segmentation.exported.whole_images import class_logits
from trainable.tasks.segmentation.task import SegmentationTask, SlidingWindow
from trainable.training.evaluate import View

SIDE, OVERLAP = 16, 0.4
MEAN, STD = (0.3, 0.5, 0.4), (0.2, 0.25, 0.3)
VIEWS = {
    "one": [View()],
    "mirrored": [View(), View(mirrored=True)],
    "scales": [View(), View(12), View(24), View(24, mirrored=True)],
}


@pytest.fixture(scope="module")
def network() -> nn.Module:
    """Return a network whose answers depend on where a pixel is in the window, at half its size."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 5, padding=2, stride=2), nn.GELU(), nn.Conv2d(8, 3, 5, padding=2))
    return nn.Sequential(*layers).eval().requires_grad_(False)


def about(views: list[View]) -> dict[str, Any]:
    return {
        "side": SIDE,
        "overlap": OVERLAP,
        "views": [[1.0 if view.size is None else view.size / SIDE, view.mirrored] for view in views],
    }


@pytest.mark.parametrize("size", [(16, 16), (9, 13), (40, 27), (16, 55), (7, 41)])
@pytest.mark.parametrize("views", VIEWS)
def test_an_image_of_any_size_is_answered_as_in_a_run(
    network: nn.Module, views: str, size: tuple[int, int]
) -> None:
    seen, module = VIEWS[views], Segmenter(network, side=SIDE, mean=MEAN, std=STD)
    image = np.random.default_rng(1).integers(0, 256, (*size, 3), dtype=np.uint8)

    def model(windows: NDArray[np.float32]) -> NDArray[np.float32]:
        assert windows.shape[1:] == (SIDE, SIDE, 3)
        found: NDArray[np.float32] = module(torch.from_numpy(windows)).numpy()
        return found

    levels = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    shown = (levels - module.mean) / module.std
    black = -torch.tensor(MEAN) / torch.tensor(STD)
    task = SegmentationTask(Segmentation(overlap=OVERLAP), 3, SlidingWindow(SIDE, OVERLAP, black))
    autocast = torch.autocast("cpu", enabled=False)
    expected = task.answer(network, shown, autocast, seen)[0].numpy()
    assert class_logits(model, image, about(seen)) == pytest.approx(expected, abs=2e-4)
